"""The spec of the task `tag`: what the rest of the program needs to know about it."""

from unmask.json_checks import BOOLEAN, STRING, list_of, one_of
from unmask.tasks.spec import TaskSpec, Training, Usage
from unmask.tasks.tag import boundaries
from unmask.tasks.tag.form import TagForm

SPEC = TaskSpec(
    name="tag",
    about="a text → a tag for each word: entities, parts of speech, semantic roles",
    data_format=TagForm(),
    heads=("tag",),
    terms=("tag",),
    output="choice",
    output_per="token",
    metrics=("f1", "token_accuracy"),
    group_by="text",
    view="tags",
    extend_predictions="unmask.tasks.tag.task:Tag.add_raw_text_predictions",
    required_state={"labels": list_of(STRING)},
    optional_state={
        "scheme": one_of("BIO", "BIOES", "IO", "none"),
        "predicate": BOOLEAN,
        "boundaries": (boundaries.are_valid, boundaries.VALID),
    },
    baseline="unmask.tasks.tag.baseline:baseline",
    usage=Usage(pipeline="token-classification", auto_class="AutoModelForTokenClassification"),
    training=Training(pooling="none", token_masking=True, aux_mlm=True, augmentable_fields=("text",)),
)
