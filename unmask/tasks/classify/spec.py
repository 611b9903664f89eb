"""The spec of the task `classify`: what the rest of the program needs to know about it."""

from unmask.json_checks import ABOVE_ZERO, BOOLEAN, NUMBER, STRING, list_of, one_of, or_null
from unmask.tasks.classify.form import ClassifyForm
from unmask.tasks.spec import TaskSpec, Training, Usage

SPEC = TaskSpec(
    name="classify",
    about="a text, or a pair of texts → a label, several labels, or a number",
    data_format=ClassifyForm(),
    heads=("classify",),
    terms=("classify",),
    output="choice",  # a model with several labels has "binary", a regression model "number"
    group_by="text",
    view="labels",
    required_state={"labels": list_of(STRING)},
    optional_state={
        "target": one_of("single_label", "multi_label", "regression"),
        "pair": or_null(BOOLEAN),
        "weights": or_null(list_of(NUMBER)),
        "temperature": ABOVE_ZERO,
        "thresholds": or_null(list_of(NUMBER)),
        "counts": list_of(NUMBER),
        "mean": NUMBER,
        "sd": ABOVE_ZERO,
    },
    hints={
        "numbers as labels": "if the label is a number to predict: --set task.classify.problem_type=regression",
        "imbalance": "to give rare labels more weight: --set task.classify.class_weight=balanced",
    },
    baseline="unmask.tasks.classify.baseline:baseline",
    blend="unmask.tasks.classify.blend:LinearBlend",
    learner="unmask.tasks.classify.learner:Learner",
    usage=Usage(pipeline="text-classification", auto_class="AutoModelForSequenceClassification"),
    training=Training(equal_record_weights=True, token_masking=True, aux_mlm=True, augmentable_fields=("text", "pair")),
)
