"""What the rest of the program knows about `tag`."""

from unmask.tasks.spec import TaskSpec, Training, Usage
from unmask.tasks.tag.form import TagForm

SPEC = TaskSpec(
    name="tag",
    about="a text → a tag for each word: entities, parts of speech, semantic roles",
    form=TagForm(),
    heads=("tag",),
    terms=("tag",),
    output="choice",
    reads="tokens",
    metrics=("f1", "token_accuracy"),
    keep_together="text",
    view="tags",
    baseline="unmask.tasks.tag.baseline:baseline",
    usage=Usage(pipeline="token-classification", auto_class="AutoModelForTokenClassification"),
    training=Training(pooling="none", token_dropout=True, aux_mlm=True, rewrites=("text",)),
)
