"""TaskSpec of `choose`."""

from unmask.tasks.choose.form import ChooseForm
from unmask.tasks.spec import TaskSpec, Training, Usage
from unmask.text.windows import TRUNCATES_LONGER_TEXT

SPEC = TaskSpec(
    name="choose",
    about="a text and several choices → the best choice",
    data_format=ChooseForm(),
    heads=("choose",),
    terms=("choose",),
    output="choice",
    grouped=True,
    group_by="context",
    truncation_note=TRUNCATES_LONGER_TEXT,
    view="choices",
    baseline="unmask.tasks.choose.baseline:baseline",
    usage=Usage(
        pipeline="multiple-choice",
        auto_class="AutoModelForMultipleChoice",
        inputs="{k: v[None] for k, v in tokenizer(['TEXT'] * 2, ['CHOICE', 'CHOICE'], return_tensors='pt').items()}",
    ),
    training=Training(
        aux_mlm=True, why_not_augmentable="a replaced word may be the one that distinguishes the choices"
    ),
)
