"""TaskSpec of `generate`."""

from unmask.json_checks import STRING
from unmask.tasks.generate.form import GenerateForm
from unmask.tasks.spec import TaskSpec, Training, Usage

SPEC = TaskSpec(
    name="generate",
    about="a text → a new text: a summary, a reply, a completion",
    data_format=GenerateForm(),
    heads=("lm|mlm",),
    terms=("generate",),
    output="text",
    metrics=("rougeL",),
    truncation_note="cut at their end",
    view="text",
    optional_state={"language": STRING},
    baseline="unmask.tasks.generate.baseline:baseline",
    usage=Usage(
        pipeline="text-generation", result="tokenizer.batch_decode(model.generate(**inputs), skip_special_tokens=True)"
    ),
    training=Training(
        max_dev_records=200,  # generating a prediction takes a forward pass per token
        pooling="none",
        distillable=False,
        why_not_augmentable="the target might no longer match the text",
    ),
)
