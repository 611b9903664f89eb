"""Recipe: everything a run was told, validated, with every default in this file and in `sections.py`.

A recipe comes from a YAML file, from flags, from `--set section.field=value` and from Python keywords, all through
the same schema. An unknown key is an error that names the nearest valid one. What a run did is saved resolved:
`auto` values replaced, a budget in minutes turned into steps.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    model_validator,
)

from unmask.errors import UserError
from unmask.files import check_recipe, read_yaml, write_text
from unmask.registry import OPTIMIZERS, TASKS
from unmask.sections import (
    AnswerRecipe,
    BiLMRecipe,
    CBOWRecipe,
    ClassifyRecipe,
    DataRecipe,
    DenoiseRecipe,
    DistillRecipe,
    EmbedRecipe,
    GenerateRecipe,
    HybridRecipe,
    MLMRecipe,
    RankRecipe,
    RTDRecipe,
    SpanRecipe,
    TagRecipe,
    TokenizerRecipe,
)
from unmask.settings import (
    BelowOne,
    Count,
    CountOrZero,
    Dumper,
    NotNegative,
    Positive,
    Section,
    ShareAboveZero,
    Text,
    explain,
    load,
    merge,
    nested,
    setting,
)

# Verbs that have a flag for a setting.
TRAINING = ("pretrain", "finetune", "tune")
LABELLED = ("finetune", "tune", "doctor")
TUNING = ("finetune", "tune")


class TaskRecipe(Section):
    """What a labelled file is, and how a model learns from it. A third party's task has its settings under its name."""

    model_config = ConfigDict(extra="allow")  # checked by `_third_party`
    panel = "Task"

    kind: str = setting(
        "auto",
        "classify, tag, answer, choose, generate, embed or rank. Default: as the file looks.",
        LABELLED,
        keyword="task",
    )
    train: list[str] = setting([], "Labelled file; repeat for several.", LABELLED)
    dev: list[str] = setting(
        [], "To watch the training by, and tune thresholds. Default: a tenth of --train.", LABELLED
    )
    test: list[str] = setting([], "To judge it by, once, at the end.", LABELLED)
    dev_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = setting(
        0.1, "Share of the training records kept as dev where there is no dev file."
    )
    dev_seed: CountOrZero | None = setting(
        None, "Which records that share is made of. Default: by the seed of the run."
    )
    seeds: Count = setting(
        1, "Train from so many seeds: mean ± sd, the median model is kept.", ("finetune",), panel="Evaluation"
    )
    baseline: bool = setting(
        False,
        "Also what counted words (TF-IDF, BM25 …) reach, and the model without pre-training.",
        ("finetune",),
        panel="Evaluation",
    )
    baseline_lr: NotNegative = setting(
        0.0, "Learning rate without pre-training; 0 = train.lr if given, else 5 times the default."
    )
    columns: dict[str, Text] = setting(
        {},
        "ROLE=NAME where a column has another name: text=review, label=stars; or its number, counted from 1: text=4.",
        (*LABELLED, "evaluate", "predict", "export", "search"),
        flag="--column",
    )
    labels: list[str] = setting(
        [], "Labels in the model's order: neg,pos. Default: those of --train.", LABELLED, commas=True
    )
    length: CountOrZero = setting(0, "Tokens per row. Default: the model's, up to 512.", TUNING)
    long: Literal["windows", "first", "refuse"] = setting(
        "windows", "Longer texts: windows (read whole), first (cut) or refuse.", (*TUNING, "predict")
    )
    hide: BelowOne = setting(0.0, "Share of tokens masked while training.")
    pooling: Literal["auto", "mean", "cls"] = setting("auto", "mean or cls. Default: the model's own.", ("finetune",))
    init: Literal["pretrained", "random"] = setting(
        "pretrained", "random = the start model gives shape and tokenizer alone: its weights are drawn anew."
    )
    freeze: Literal["none", "encoder"] = setting("none", "encoder = only the head learns.", TUNING)
    aux: str = setting("", "mlm:0.1 = MLM on the same text as a second loss.", ("finetune",))
    augment: str = setting("", "mlm:0.5 = half as many rows again, rewritten by the model.", ("finetune",))
    teacher: str = setting("", "A model fine-tuned for the task, to learn from.", ("finetune",))
    patience: CountOrZero = setting(
        0, "Evaluations without a better one that end training; 0 = none do.", ("finetune",)
    )
    margin: NotNegative = setting(
        1.0, "Standard errors by which an earlier model has to be better on dev than the last to be taken."
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
        """Settings of a third party's task are checked by the class that its spec names; any other key is unknown."""
        given = {k: v for k, v in values.items() if k not in cls.model_fields} if isinstance(values, dict) else {}
        if given:
            kinds: dict[str, Any] = {name: (kind, ...) for name in given if (kind := cls.section(name))}
            checked = create_model("TaskRecipe", __base__=Section, **kinds).model_validate(given)
            values = values | {name: getattr(checked, name) for name in kinds}
        return handler(values)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """`recipe.task.NAME` of a third party's task that was given no settings: its defaults."""
            if name.startswith("_") or name in (self.model_extra or {}) or not (kind := type(self).section(name)):
                return super().__getattr__(name)
            return kind()


BUDGETS = ("minutes", "tokens", "steps", "epochs")


class TrainRecipe(Section):
    """How the loss is minimised. One budget of four."""

    panel = "Optimization"

    minutes: Positive | None = setting(
        None, "Budget in minutes (measured once, then frozen as steps).", ("pretrain", "finetune"), panel="Budget"
    )
    tokens: Positive | None = setting(None, "Budget in tokens.", ("pretrain",), panel="Budget")
    steps: Count | None = setting(None, "Budget in steps. Default in pre-training: 1000.", TRAINING, panel="Budget")
    epochs: Positive | None = setting(
        None, "Budget in passes over the text or the records. Default in fine-tuning: 3.", TRAINING, panel="Budget"
    )
    batch: Count = setting(
        32, "Rows per update. Default: 32; in fine-tuning 16, or 8 of fewer than 2,000 records.", TRAINING
    )
    few_batch: CountOrZero = setting(
        0, "The same where fewer than 2,000 records are learnt from, unless `batch` is given; 0 = `batch`."
    )
    micro_batch: CountOrZero = setting(0, "Rows per forward pass; 0 = the whole batch; smaller accumulates.")
    length: str | int = setting(128, "Tokens per row, or a schedule: 128:0.9,512:0.1.", ("pretrain",))
    packing: Literal["across", "apart"] = setting(
        "across", "apart = tokens see only their own of the documents in a row."
    )
    embeddings: Literal["counted", "random"] = setting(
        "counted", "A new model's token vectors: counted from the text, or drawn."
    )
    optimizer: Annotated[str, AfterValidator(OPTIMIZERS.valid)] = setting(
        "muon", "muon (for the matrices; AdamW for the rest) or adamw."
    )
    lr: NotNegative = setting(
        0.0,
        "AdamW's learning rate. Default: 5e-3 with muon, 1e-3 without; in fine-tuning by the model's width.",
        TRAINING,
    )
    muon_lr: Positive = setting(0.02, "Muon's learning rate, of the matrices.")
    layer_decay: ShareAboveZero = setting(
        1.0, "Each layer learns at this share of the rate of the one above it; heads at the full rate."
    )
    weight_decay: NotNegative = setting(0.01, "Share of the weights that each update takes away, times the rate.")
    betas: tuple[BelowOne, BelowOne] = setting((0.9, 0.98), "AdamW's.")
    eps: Positive = setting(1e-8, "AdamW's.")
    clip: NotNegative = setting(1.0, "Gradient norm; 0 = off.")
    schedule: Literal["linear", "cosine", "wsd", "constant"] = setting(
        "linear", "wsd = constant, then decay in the last `decay`."
    )
    warmup: NotNegative = setting(0.06, "Share of the steps, or a number of steps when ≥ 1.")
    decay: ShareAboveZero = setting(0.2, "wsd only: share of the steps.")
    evaluations: Count = setting(10, "Held-out evaluations per run …")
    eval_every: CountOrZero = setting(0, "… or every so many steps, when above 0.")
    eval_rows: Count | None = setting(
        512, "Held-out rows read, at most; null = all, in fine-tuning as many as the task says."
    )
    checkpoint_every: Count = setting(200, "Steps between checkpoints …")
    checkpoint_minutes: Positive = setting(10.0, "… which are at most so far apart.")
    keep: Count = setting(1, "Last checkpoints kept, beside the best.")
    log_every: Count = setting(1, "Steps per line of log.jsonl.")
    track: Literal["none", "tensorboard"] = setting(
        "none", "tensorboard = its event files too, in the run's tensorboard/."
    )
    device: Literal["auto", "cpu", "cuda", "mps"] = setting(
        "auto", "cpu, cuda or mps. Default: the best there is.", TRAINING, panel="Hardware"
    )
    precision: Literal["auto", "fp32", "bf16"] = setting(
        "auto", "fp32 or bf16. Default: bf16 where the device is fast at it.", TRAINING, panel="Hardware"
    )
    activation_checkpointing: bool = setting(
        False, "Compute again in the backward pass what would fill memory: a third more work."
    )
    compile: Literal["auto", "on", "off"] = setting(
        "off", "torch.compile in pre-training; auto = where the run is long enough to earn it back."
    )
    prefetch: CountOrZero = setting(4, "Batches made ahead.")
    threads: CountOrZero = setting(0, "torch threads; 0 = torch's choice.")

    @model_validator(mode="after")
    def _one_budget(self) -> "TrainRecipe":
        given = [n for n in BUDGETS if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"one budget of {', '.join(BUDGETS)}; got {' and '.join(given)}")
        return self


class Recipe(Section):
    """
    >>> Recipe.build({"preset": "bert-mini"}, ["train.steps=10"]).train.steps
    10
    """

    panel = "Model"

    seed: int = setting(0, "Of everything drawn at random.", (*TRAINING, "show-batch"), panel="Optimization")
    preset: str = setting(
        "modernbert-mini", "bert-tiny … bert-large, modernbert-mini … Default: modernbert-mini.", ("pretrain",)
    )
    model: dict[str, Any] = setting({}, "Fields of the preset's shape to change: {layers: 6}.")
    start: str = setting("", "Model folder or hub name to continue from.", ("pretrain",), flag="--from")
    objective: str = setting(
        "auto", "mlm, mlm+nsp, mlm+sop, rtd, clm, span … Default: the family's own.", ("pretrain",)
    )
    data: DataRecipe = DataRecipe()
    tokenizer: TokenizerRecipe = TokenizerRecipe()
    mlm: MLMRecipe = MLMRecipe()
    bilm: BiLMRecipe = BiLMRecipe()
    cbow: CBOWRecipe = CBOWRecipe()
    hybrid: HybridRecipe = HybridRecipe()
    rtd: RTDRecipe = RTDRecipe()
    span: SpanRecipe = SpanRecipe()
    denoise: DenoiseRecipe = DenoiseRecipe()
    distill: DistillRecipe = DistillRecipe()
    task: TaskRecipe = TaskRecipe()
    tasks: dict[str, TaskRecipe] = setting({}, "Several tasks that share an encoder, by name.")
    train: TrainRecipe = TrainRecipe()

    @classmethod
    def build(cls, values: dict[str, Any] | None = None, sets: str | Sequence[str] | None = None) -> "Recipe":
        """`values` nested (a YAML file merged with flags), then `sets` as `section.field=value`."""
        try:
            return cls.model_validate(told(values, sets))
        except ValidationError as error:
            raise UserError(
                explain(error, cls), hint="--help names the flags; the fields of a recipe are in docs/recipe.md"
            ) from None

    @classmethod
    def read(cls, path: str | Path) -> dict[str, Any]:
        values = read_yaml(path) or {}
        if not isinstance(values, dict):
            raise UserError(f"the recipe {path} is not a mapping", expected="section: {field: value}")
        return values

    @classmethod
    def packaged(cls, name: str) -> dict[str, Any]:
        """One that comes with the package, in `recipes/`."""
        with resources.as_file(resources.files("unmask") / "recipes" / f"{name}.yaml") as path:
            return cls.read(path)

    def changed(self, **values: Any) -> "Recipe":
        """A copy with other values; a dict changes only those fields of its section.

        >>> Recipe(seed=3).changed(preset="bert-tiny", train={"batch": 8}).train.batch
        8
        """
        inside = {n: v for n, v in values.items() if isinstance(v, dict) and isinstance(getattr(self, n), Section)}
        sections = {name: getattr(self, name).model_copy(update=fields) for name, fields in inside.items()}
        return self.model_copy(update=values | sections)

    def write(self, path: str | Path) -> None:
        text = self.text()
        check_recipe(text)
        write_text(Path(path), text)

    def text(self) -> str:
        return yaml.dump(self.model_dump(mode="json"), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def told(values: dict[str, Any] | None, sets: str | Sequence[str] | None = None) -> dict[str, Any]:
    """What a person said, nested, before it is checked.

    >>> told({"train": {"lr": 0.1}}, "train.batch=8")
    {'train': {'lr': 0.1, 'batch': 8}}
    """
    values = merge({}, values or {})
    for text in [sets] if isinstance(sets, str) else sets or []:
        path, eq, value = text.partition("=")
        if not eq:
            raise UserError(f"--set {text}", expected="--set section.field=value, e.g. train.batch=64")
        try:
            known: Any = load(value) if value else value
        except (yaml.YAMLError, ValueError) as error:
            why = getattr(error, "problem", None) or str(error)
            raise UserError(
                f"--set {text}: the value cannot be read: {why}",
                expected="a number, a word, [a, list], {a: mapping}, or 'text in quotes'",
            ) from None
        values = merge(values, nested(path.strip(), known))
    return values
