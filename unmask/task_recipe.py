"""Section `task` of a recipe: labeled files, how to fine-tune on them, and the settings of each task."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, ModelWrapValidatorHandler, create_model, model_validator

from unmask.registry import TASKS
from unmask.settings import BelowOne, Count, CountOrZero, NotNegative, Positive, Section, Text, setting

# Commands that have a flag for a setting.
LABELED = ("finetune", "tune", "doctor")
TUNING = ("finetune", "tune")


class ClassifyRecipe(Section):
    """BERT 1810.04805 §4.1: a text or a pair of texts → one label, several labels, or a number."""

    problem_type: Literal["auto", "single_label", "multi_label", "regression"] = setting(
        "auto", "Type of target. auto: detected from the label column."
    )
    class_weight: Literal["auto", "balanced", "none"] = setting(
        "auto", "balanced: weight labels by inverse frequency. auto: only if labels are very imbalanced."
    )
    label_separator: str = setting(
        "auto", 'Separator of several labels in one cell, e.g. "|". none: a cell is one label. auto: detected.'
    )


class TagRecipe(Section):
    """BERT 1810.04805 §5.3: a label per word, or entities as spans."""

    scheme: Literal["auto", "BIO", "BIOES", "IO", "none"] = setting(
        "auto", "Entity tagging scheme. none: tags without entities, e.g. parts of speech."
    )
    invalid_tags: Literal["repair", "error"] = setting("repair", "What to do with invalid tag sequences.")


class AnswerRecipe(Section):
    """BERT 1810.04805 §4.2 and §4.3: the span of a passage that answers a question."""

    max_answer_length: CountOrZero = setting(
        0, "Maximum answer length in tokens. 0: long enough for every training answer, at least 30."
    )
    doc_stride: Count = setting(128, "Overlap of the windows of a long passage, in tokens.")
    allow_no_answer: Literal["auto", "yes", "no"] = setting(
        "auto", "Whether questions may be unanswerable. auto: detected from the file."
    )


class GenerateRecipe(Section):
    """Text → new text: T5 1910.10683, BART 1910.13461, GPT-2, or an encoder with a prefix mask (UniLM 1905.03197)."""

    source_prefix: str = setting("", 'Prefix of every input, e.g. "summarize: ".')
    max_new_tokens: Count = setting(64, "Maximum length of the generated text in tokens.")
    num_beams: Count = setting(1, "Beam width. 1: greedy decoding.")


class EmbedRecipe(Section):
    """Sentence embeddings: Sentence-BERT 1908.10084, SimCSE 2104.08821, Matryoshka 2205.13147."""

    temperature: Positive = setting(0.05, "Temperature of the in-batch softmax.")
    symmetric_loss: bool = setting(False, "Also train positives to find their anchors.")
    matryoshka_dims: list[Count] = setting([], "Also train these prefixes of the vector (Matryoshka dimensions).")
    pooling: Literal["auto", "mean", "cls"] = setting("auto", "Pooling. auto: as stored with the model, else mean.")


class RankRecipe(Section):
    """Cross-encoder 1901.04085: query and passage in one sequence → relevance."""

    loss: Literal["listwise", "pointwise"] = setting(
        "listwise", "listwise: softmax of a relevant passage against negatives. pointwise: regress the relevance."
    )
    num_negatives: Count = setting(7, "Negatives per relevant passage, resampled every epoch.")
    candidate_pool_size: Count = setting(
        20, "Passages to rank per query when the file lists only relevant ones; filled with random passages."
    )


class TaskRecipe(Section):
    """A labeled file and how to fine-tune on it. A third-party task has its settings under its own name."""

    model_config = ConfigDict(extra="allow")  # checked by `_third_party`
    panel = "Data"

    name: str = setting(
        "auto",
        f"Task: {', '.join(TASKS.builtin())}.",
        LABELED,
        keyword="task",
        shown="detected from the file",
        metavar="NAME",
    )
    train: list[str] = setting([], "Training file. Repeatable.", LABELED, metavar="FILE")
    dev: list[str] = setting(
        [],
        "Validation file, for model selection and thresholds. Repeatable.",
        LABELED,
        shown="10% of --train",
        metavar="FILE",
    )
    unlabeled: list[str] = setting(
        [],
        "Unlabeled text for self-training of the linear model; needs --blend linear. Repeatable.",
        ("finetune",),
        metavar="FILE",
    )
    test: list[str] = setting(
        [], "Test file, evaluated once after training. Repeatable.", (*LABELED, "learn"), metavar="FILE"
    )
    dev_fraction: BelowOne = setting(
        0.1, "Fraction of the training records used as dev set if there is no dev file. 0: no dev set."
    )
    dev_seed: CountOrZero | None = setting(None, "Seed of the train/dev split. null: the seed of the run.")
    num_seeds: Count = setting(
        1, "Train with this many seeds, report mean ± std, keep the median model.", ("finetune",), panel="Evaluation"
    )
    baseline: bool = setting(
        False,
        "Also train baselines: TF-IDF or BM25, and the same model from scratch.",
        ("finetune",),
        panel="Evaluation",
    )
    baseline_lr: NotNegative = setting(
        0.0, "Learning rate of the from-scratch baseline. 0: train.lr if set, else 5 times the default."
    )
    columns: dict[str, Text] = setting(
        {},
        "Name or number (from 1) of a column: text=review, label=stars. Repeatable.",
        (*LABELED, "learn", "evaluate", "predict", "export", "search"),
        flag="--column",
        metavar="ROLE=NAME",
    )
    labels: list[str] = setting(
        [],
        "Labels in the order of the model's outputs, e.g. neg,pos.",
        (*LABELED, "learn"),
        commas=True,
        shown="those of --train",
        metavar="LABEL,…",
    )
    max_length: CountOrZero = setting(0, "Maximum sequence length in tokens.", TUNING, shown="the model's, up to 512")
    overflow: Literal["window", "truncate", "error"] = setting(
        "window",
        "Texts over the maximum length: split into windows, truncate, or raise an error.",
        (*TUNING, "predict"),
    )
    token_mask_rate: BelowOne | None = setting(
        None,
        "Fraction of input tokens masked during training, as regularization.",
        shown="0, or 0.2 after little pre-training",
    )
    pooling: Literal["auto", "mean", "cls"] = setting(
        "auto",
        "Pooling of the hidden states.",
        ("finetune",),
        panel="Model",
        shown="the model's, or mean after little pre-training",
    )
    init: Literal["pretrained", "random"] = setting(
        "pretrained", "random: use only architecture and tokenizer of the model; initialize the weights randomly."
    )
    freeze: Literal["none", "encoder"] = setting("none", "encoder: train only the task head.", TUNING, panel="Model")
    aux_mlm: NotNegative = setting(
        0.0, "Weight of an auxiliary MLM loss on the same texts, e.g. 0.1.", ("finetune",), panel="Optimization"
    )
    augment_mlm: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = setting(
        0.0,
        "Augmentation: 0.5 adds 50% more records, with some words replaced by MLM samples.",
        ("finetune",),
        panel="Optimization",
    )
    teacher: str = setting(
        "",
        "Teacher for distillation: a model fine-tuned on the same task, or a .jsonl file of predictions.",
        ("finetune",),
        panel="Model",
        metavar="MODEL",
    )
    blend: str = setting(
        "none",
        "linear: add the logits of a linear model on n-grams to the encoder's. FOLDER: of the linear model saved there.",
        ("finetune",),
        panel="Model",
        metavar="none|linear|FOLDER",
    )
    words: list[str] = setting(
        [],
        'Words that indicate a label, instead of labels: "spam: free winner prize". One per label.',
        ("learn",),
        metavar='"LABEL: WORD …"',
    )
    patience: CountOrZero = setting(
        0,
        "Early stopping: evaluations without improvement. 0: off.",
        ("finetune",),
        panel="Optimization",
        shown="4 in fine-tuning",
    )
    selection_margin: NotNegative = setting(
        1.0, "Keep an earlier checkpoint only if it beats the last one on dev by this many standard errors."
    )
    classify: ClassifyRecipe = ClassifyRecipe()
    tag: TagRecipe = TagRecipe()
    answer: AnswerRecipe = AnswerRecipe()
    generate: GenerateRecipe = GenerateRecipe()
    embed: EmbedRecipe = EmbedRecipe()
    rank: RankRecipe = RankRecipe()

    @classmethod
    def section(cls, name: str) -> type[Section] | None:
        if name in cls.model_fields or name not in TASKS.names():
            return super().section(name)
        return TASKS[name].SPEC.settings

    @model_validator(mode="wrap")
    @classmethod
    def _third_party(cls, values: Any, handler: ModelWrapValidatorHandler["TaskRecipe"]) -> "TaskRecipe":
        """Validate the settings of a third-party task with the class its spec names; reject any other key."""
        third_party = {k: v for k, v in values.items() if k not in cls.model_fields} if isinstance(values, dict) else {}
        if third_party:
            kinds: dict[str, Any] = {name: (kind, ...) for name in third_party if (kind := cls.section(name))}
            checked = create_model("TaskRecipe", __base__=Section, **kinds).model_validate(third_party)
            values = values | {name: getattr(checked, name) for name in kinds}
        return handler(values)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Give a third-party task without settings in the recipe its defaults, as `recipe.task.NAME`."""
            if name.startswith("_") or name in (self.model_extra or {}) or not (kind := type(self).section(name)):
                return super().__getattr__(name)
            return kind()
