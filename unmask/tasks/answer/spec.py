"""The spec of the task `answer`: what the rest of the program needs to know about it."""

from unmask.json_checks import BOOLEAN, NUMBER, POSITIVE, or_null
from unmask.tasks.answer.form import AnswerForm
from unmask.tasks.spec import TaskSpec, Training, Usage

SPEC = TaskSpec(
    name="answer",
    about="a question and a passage → the span of the passage that answers it, or none",
    data_format=AnswerForm(),
    heads=("answer",),
    terms=("start", "end"),
    output="span",
    output_per="token",
    metrics=("f1",),
    group_by="context",
    view="span",
    required_state={"threshold": or_null(NUMBER)},
    optional_state={"none": BOOLEAN, "chinese": BOOLEAN, "longest": POSITIVE},
    baseline="unmask.tasks.answer.baseline:baseline",
    usage=Usage(
        pipeline="question-answering",
        auto_class="AutoModelForQuestionAnswering",
        inputs="tokenizer('QUESTION', 'PASSAGE', return_tensors='pt')",
        result="start_logits",
    ),
    training=Training(
        loss_weights={"start": 0.5, "end": 0.5},  # the mean of both, as in BERT and transformers
        pooling="none",
        aux_mlm=True,
        why_not_augmentable="an answer must occur literally in its passage",
    ),
)
