"""The spec of the task `rank`: what the rest of the program needs to know about it."""

from unmask.json_checks import ABOVE_ZERO
from unmask.tasks.rank.form import RankForm
from unmask.tasks.spec import TaskSpec, Training, Usage

IDENTITY = "torch.nn.modules.linear.Identity"  # without it, CrossEncoder returns the sigmoid of the score

SPEC = TaskSpec(
    name="rank",
    about="a query and passages → the passages sorted by relevance",
    data_format=RankForm(),
    heads=("classify",),
    terms=("rank",),
    output="choice",
    grouped=True,
    metrics=("ndcg@10",),
    group_by="query",
    truncation_note="cut: only the beginning of the passages is read",
    view="ranking",
    required_state={"most": ABOVE_ZERO},
    config_json={"sentence_transformers": {"activation_fn": IDENTITY}},
    baseline="unmask.tasks.rank.baseline:baseline",
    usage=Usage(
        pipeline="text-ranking",
        library="sentence-transformers",
        auto_class="CrossEncoder",
        result="predict([('QUERY', 'PASSAGE')])",
    ),
    training=Training(
        sampling_setting="num_negatives", why_not_augmentable="changing words may change the relevance of a passage"
    ),
)
