"""TaskSpec of `embed`."""

from unmask.json_checks import BOOLEAN, STRING, one_of
from unmask.tasks.embed.form import EmbedForm
from unmask.tasks.spec import TaskSpec, Training, Usage

SPEC = TaskSpec(
    name="embed",
    about="a text → a vector; two texts → their similarity",
    data_format=EmbedForm(),
    heads=(),
    terms=("embed",),
    output="vector",
    metrics=("spearman", "mrr", "uniformity"),
    group_by="text",
    ranked_field="positive",
    view="vector",
    metric_fields={"spearman": "score", "mrr": "positive"},
    required_state={
        "pooling": one_of("mean", "cls"),
        "normalised": BOOLEAN,
        "lower": BOOLEAN,
        "prompt": STRING,
        "loss": one_of("text", "pairs", "scored"),
    },
    baseline="unmask.tasks.embed.baseline:baseline",
    usage=Usage(
        pipeline="sentence-similarity",
        served_pipeline="feature-extraction",
        library="sentence-transformers",
        auto_class="SentenceTransformer",
        result="encode(['TEXT']).shape",
    ),
    training=Training(
        in_batch_negatives=True,
        pooling="task",
        why_not_augmentable="the texts of a pair might no longer have the same meaning",
    ),
)
