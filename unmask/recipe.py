"""Recipe: everything a run was told, validated, with every default in this one file.

A recipe comes from a YAML file, from flags, from `--set section.field=value` and from Python keywords, all through
the same schema. An unknown key is an error that names the nearest valid one. What a run did is saved resolved:
`auto` values replaced, a budget in minutes turned into steps.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from unmask.errors import UserError
from unmask.files import check_recipe, read_yaml
from unmask.registry import OPTIMIZERS
from unmask.settings import Dumper, explain, load, merge, nested

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]  # 0 has a meaning of its own, told beside the field
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
BelowOne = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if type(value) is int else value)]  # 4 is "4"


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, validate_default=True)


class DataRecipe(Section):
    """Which text, and how it is cut into documents."""

    corpus: list[str] = []  # paths, folders, globs, '-' or sample:NAME
    documents: Literal["auto", "file", "block", "line", "record"] = "auto"
    column: str = "text"  # of csv, tsv, jsonl and parquet records
    encoding: str = "auto"  # auto = UTF-8, else detected; or a Python codec name
    language: Literal["auto", "en", "zh"] = "auto"  # sentence and word rules
    heldout: BelowOne = 0.02  # share of documents kept for evaluation
    deduplicate: Literal["exact", "off"] = "exact"
    near_duplicate_sample: CountOrZero = 20_000  # documents looked at by MinHash; 0 turns it off
    workers: CountOrZero = 0  # processes that tokenize; 0 = one per core
    mix: list[str] = []  # "PATH:SHARE": that share of the rows comes from another text, against forgetting


VOCABULARY = 8192  # entries, when no number is asked for: good for megabytes of text and models of millions of weights


class TokenizerRecipe(Section):
    """A tokenizer to train (`kind`, …) or to take over (`path`)."""

    path: str = ""  # folder or tokenizer.json; empty = train one
    kind: Literal["auto", "wordpiece", "bpe", "unigram", "char", "byte"] = "auto"  # auto = the family's own
    template: Literal["auto", "bert", "albert", "roberta", "t5", "gpt2"] = "auto"  # what special tokens are called
    vocab_size: CountOrZero = 0  # 0 = VOCABULARY, or fewer where the text has no more to give
    lowercase: bool | Literal["auto"] = "auto"
    strip_accents: Literal["auto", "yes", "no"] = "auto"  # auto = as lowercase, which is BERT's rule
    special_tokens: list[str] = []  # yours, beside those of the template
    sample_mb: Positive = 100  # text that training looks at, at most
    min_frequency: CountOrZero = 2  # occurrences that an entry needs; 0 = as 1
    extend: CountOrZero = 0  # words of the corpus added to the tokenizer of the model that is continued (`--from`)

    def settled(self, own: dict[str, Any] | None = None) -> "TokenizerRecipe":
        """`auto` replaced by a family's own choices, and by BERT's where it has none.

        >>> TokenizerRecipe(lowercase=False).settled({"kind": "unigram"}).kind
        'unigram'
        """
        choices = {"kind": "wordpiece", "template": "bert", "lowercase": True} | (own or {})
        return self.model_copy(update={name: value for name, value in choices.items() if getattr(self, name) == "auto"})


class MLMRecipe(Section):
    """BERT 1810.04805 §3.1. How many tokens are chosen, what becomes of them, and how they are drawn."""

    rate: str | float = 0.15  # share of tokens chosen; "0.3:0.15" runs from one to the other
    mask: Share = 0.8  # of the chosen: become [MASK] …
    random: Share = 0.1  # … a random token, never a special one …
    keep: Share = 0.1  # … or stay
    count: Literal["exact", "drawn"] = (
        "exact"  # exact = rate × row (rounded up or down by lot); drawn = a coin per token
    )
    masking: Literal["dynamic", "static"] = "dynamic"  # static = the same masks every `copies` epochs
    copies: Count = 1
    unit: Literal["token", "word", "span", "ngram", "named"] = (
        "token"  # what is chosen together; see docs/objectives.md
    )
    phrases: str = ""  # unit named: a file of phrases, one per line (of a tsv, the first column)

    @model_validator(mode="after")
    def _sums_to_one(self) -> "MLMRecipe":
        if abs(self.mask + self.random + self.keep - 1) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, got {self.mask + self.random + self.keep:g}")
        return self

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: str | float) -> str | float:
        try:
            ends = [float(x) for x in str(value).split(":")]
        except ValueError:
            ends = []
        if len(ends) not in (1, 2) or not all(0 < x < 1 for x in ends):
            raise ValueError("a share between 0 and 1, or START:END")
        return value


class HybridRecipe(Section):
    """GPT-BERT 2410.24159: rows to fill in and rows to continue, in one batch."""

    clm: Share = 0.5  # share of rows that are continued; the others are masked


class RTDRecipe(Section):
    """ELECTRA 2003.10555."""

    weight: Positive = 50.0  # of the discriminator's loss beside the generator's
    mask: Share = 1.0  # of the chosen tokens, as in the paper; the authors' code masks 0.85 and keeps the others


class SpanRecipe(Section):
    """T5 1910.10683 §3.1.4. The share of tokens is mlm.rate."""

    mean: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 3.0  # tokens of a span, on average


NOISE = ("infill", "permute", "delete", "rotate")


class DenoiseRecipe(Section):
    """BART 1910.13461 §2.2."""

    noise: str = "infill+permute"  # any of infill, permute, delete, rotate
    rate: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = (
        0.3  # share of tokens that infill or delete removes
    )
    mean: Positive = 3.0  # words of a span, on average (Poisson: a span of none is a mask put between words)

    @field_validator("noise")
    @classmethod
    def _noise(cls, value: str) -> str:
        names = value.split("+")
        if not set(names) <= set(NOISE) or len(set(names)) < len(names):
            raise ValueError(f"one or more of {', '.join(NOISE)}, joined by +")
        if {"infill", "delete"} <= set(names):
            raise ValueError("infill or delete: both remove tokens, and the rate is of one of them")
        return value


class DistillRecipe(Section):
    """DistilBERT 1910.01108; the weights are of its code."""

    teacher: str = ""  # folder or hub name: any family with an MLM head and the same tokenizer
    temperature: Positive = 2.0
    soft: NotNegative = 5.0  # weight of the teacher's distribution …
    cosine: NotNegative = 1.0  # … of the angle between hidden states; needs a student as wide as the teacher …
    mlm: NotNegative = 2.0  # … and of the masked tokens themselves
    init: Literal["layers", "none"] = "layers"  # layers = a new student gets evenly spaced layers of the teacher


class BiLMRecipe(Section):
    """ELMo 1802.05365 §3.1."""

    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the tokens that the loss reads, others each epoch


class CBOWRecipe(Section):
    """word2vec 1301.3781 §3.1."""

    window: Count = 5  # words on each side, at most: each token draws its own, from 1 to this
    share: Annotated[float, Field(gt=0, le=1)] = 1.0  # of the tokens that the loss reads, others each epoch


class ClassifyRecipe(Section):
    """BERT 1810.04805 §4.1: one text or a pair → a label, several labels, or a number."""

    target: Literal["auto", "one", "several", "number"] = "auto"  # auto = as the label column looks
    balance: Literal["auto", "on", "off"] = "auto"  # on = rare labels weigh more; auto = when they are very rare
    separator: str = "auto"  # between several labels in one cell: "|"; none = a cell is one label; auto = as it looks


class TagRecipe(Section):
    """BERT 1810.04805 §5.3: a label per word, or entities as spans."""

    scheme: Literal["auto", "BIO", "BIOES", "IO", "none"] = "auto"  # how tags mark entities; none = parts of speech
    faults: Literal["repair", "refuse"] = "repair"  # what to do with a tag that cannot follow the one before it


class AnswerRecipe(Section):
    """BERT 1810.04805 §4.2 and §4.3: the span of a passage that answers a question."""

    longest: CountOrZero = 0  # tokens of an answer, at most; 0 = enough for every training answer, and at least 30
    stride: Count = 128  # tokens by which windows of a long passage overlap
    none: Literal["auto", "yes", "no"] = "auto"  # whether a question may have no answer; auto = as the file says


class GenerateRecipe(Section):
    """A text → a new one: T5 1910.10683, BART 1910.13461, GPT-2, or an encoder with a prefix mask (UniLM 1905.03197)."""

    prefix: str = ""  # put before every text: "summarize: "
    longest: Count = 64  # tokens of an answer
    beams: Count = 1


class EmbedRecipe(Section):
    """Sentence vectors: Sentence-BERT 1908.10084, SimCSE 2104.08821, Matryoshka 2205.13147."""

    temperature: Positive = 0.05  # of the softmax over a batch's other texts
    directions: Literal["one", "both"] = "one"  # both = a positive has to find its text too
    sizes: list[Count] = []  # beside the whole vector, its first so many numbers are trained to stand alone
    pooling: Literal["auto", "mean", "cls"] = "auto"  # auto = as the model's folder says, else mean


class RankRecipe(Section):
    """Cross-encoder (1901.04085): query and passage in one row → how well it answers."""

    loss: Literal["list", "point"] = "list"  # list = relevant above the drawn ones; point = the relevance itself
    negatives: Count = 7  # passages beside a relevant one, drawn anew each epoch
    pool: Count = 20  # passages to put in order, where a file says only which are relevant: filled with drawn ones


class TaskRecipe(Section):
    """What a labelled file is, and how a model learns from it."""

    kind: str = "auto"  # classify, tag, answer, choose, generate, embed, rank; auto = as the file looks
    train: list[str] = []  # files with labels
    dev: list[str] = []  # to choose the best model by; none = dev_share of train
    test: list[str] = []  # to judge it by, once, at the end
    dev_share: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.1
    dev_seed: CountOrZero | None = None  # which records that share is made of; None = by the seed of the run
    seeds: Count = 1  # runs from so many seeds, of which the middle one is kept
    baseline: bool = False  # also what counted words, and the same model without pre-training, reach
    # learning rate without pre-training; 0 = train.lr if given, else 5 times the default
    baseline_lr: NotNegative = 0.0
    columns: dict[str, Text] = {}  # role → column, by name or by number from 1: {text: review, label: 2}
    labels: list[str] = []  # in the model's order; none = those of the training file
    length: CountOrZero = 0  # tokens per row, at most; 0 = 512, or the model's positions if it has fewer
    long: Literal["windows", "first", "refuse"] = "windows"  # what becomes of a longer text
    hide: BelowOne = 0.0  # share of tokens masked while training
    pooling: Literal["auto", "mean", "cls"] = "auto"  # what the row's vector is made of, where the family has a choice
    freeze: Literal["none", "encoder"] = "none"  # encoder = only the head learns (the feature-based way)
    aux: str = ""  # "mlm:0.1" = MLM on the task's own text as a second loss, with that weight
    augment: str = ""  # "mlm:0.5" = that share of further rows, rewritten by the model itself
    teacher: str = ""  # folder of a model fine-tuned for the task, whose answers are learnt beside the labels
    patience: CountOrZero = 0  # evaluations without a better one after which training ends; 0 = never
    margin: NotNegative = (
        1.0  # standard errors by which an earlier model has to be better on dev than the last to be taken
    )
    classify: ClassifyRecipe = ClassifyRecipe()
    tag: TagRecipe = TagRecipe()
    answer: AnswerRecipe = AnswerRecipe()
    generate: GenerateRecipe = GenerateRecipe()
    embed: EmbedRecipe = EmbedRecipe()
    rank: RankRecipe = RankRecipe()


BUDGETS = ("minutes", "tokens", "steps", "epochs")


class TrainRecipe(Section):
    """How the loss is minimised. One budget of four."""

    minutes: Positive | None = None
    tokens: Positive | None = None
    steps: Count | None = None
    epochs: Positive | None = None
    batch: Count = 32  # rows per update, over all processes
    few_batch: CountOrZero = (
        0  # the same where fewer than 2,000 records are learnt from, unless `batch` is given; 0 = `batch`
    )
    micro_batch: CountOrZero = 0  # rows per forward pass; 0 = the whole batch; smaller accumulates
    length: str | int = 128  # tokens per row; "64:0.9,128:0.1" = 90 % of the steps at 64, then 128
    packing: Literal["across", "apart"] = "across"  # apart = tokens see only their own of the documents in a row
    embeddings: Literal["counted", "random"] = "counted"  # a new model's token vectors: counted from the text, or drawn
    optimizer: Annotated[str, AfterValidator(OPTIMIZERS.valid)] = "muon"
    lr: NotNegative = 0.0  # AdamW's (with muon: of embeddings, heads, norms, biases); 0 = 5e-3 with muon, 1e-3 without; fine-tuning: by the width
    muon_lr: Positive = 0.02  # of the matrices
    layer_decay: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = (
        1.0  # each layer learns at this share of the rate of the one above it; heads at the full rate
    )
    weight_decay: NotNegative = 0.01
    betas: tuple[BelowOne, BelowOne] = (0.9, 0.98)
    eps: Positive = 1e-8
    clip: NotNegative = 1.0  # gradient norm; 0 = off
    schedule: Literal["linear", "cosine", "wsd", "constant"] = (
        "linear"  # wsd = constant, then decay in the last `decay`
    )
    warmup: NotNegative = 0.06  # share of the steps, or a number of steps when ≥ 1
    decay: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.2  # wsd only: share of the steps
    evaluations: Count = 10  # held-out evaluations per run …
    eval_every: CountOrZero = 0  # … or every so many steps, when above 0
    eval_rows: Count | None = 512  # held-out rows read, at most; None = all, in fine-tuning as many as the task says
    checkpoint_every: Count = 200  # steps
    checkpoint_minutes: Positive = 10.0  # and at least so often
    keep: Count = 1  # last checkpoints kept, beside the best
    log_every: Count = 1  # steps per line of log.jsonl
    track: Literal["none", "tensorboard"] = "none"  # tensorboard = its event files too, in the run's tensorboard/
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto = bf16 where the device is fast at it
    activation_checkpointing: bool = (
        False  # compute again in the backward pass what would fill memory: a third more work
    )
    compile: Literal["auto", "on", "off"] = (
        "off"  # torch.compile in pre-training; auto = where the run is long enough to earn it back
    )
    prefetch: CountOrZero = 4  # batches made ahead
    threads: CountOrZero = 0  # torch threads; 0 = torch's choice

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

    seed: int = 0
    preset: str = "modernbert-mini"
    model: dict[str, Any] = {}  # fields of the preset's shape to change: {layers: 6}
    start: str = ""  # a folder to continue from (`--from`)
    objective: str = "auto"  # "mlm", "mlm+sop", "rtd", …; auto = the family's own
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
    task: TaskRecipe = TaskRecipe()  # fine-tuning
    tasks: dict[str, TaskRecipe] = {}  # several tasks that share an encoder, by name
    train: TrainRecipe = TrainRecipe()

    @classmethod
    def build(cls, values: dict[str, Any] | None = None, sets: str | Sequence[str] | None = None) -> "Recipe":
        """`values` nested (a YAML file merged with flags), then `sets` as `section.field=value`."""
        try:
            return cls.model_validate(told(values, sets))
        except ValidationError as error:
            raise UserError(
                explain(error, cls), fix="--help names the flags; the fields of a recipe are in unmask/recipe.py"
            ) from None

    @classmethod
    def read(cls, path: str | Path) -> dict[str, Any]:
        values = read_yaml(path) or {}
        if not isinstance(values, dict):
            raise UserError(f"the recipe {path} is not a mapping", valid="section: {field: value}")
        return values

    @classmethod
    def packaged(cls, name: str) -> dict[str, Any]:
        """One that comes with the package, in `recipes/`."""
        with resources.as_file(resources.files("unmask") / "recipes" / f"{name}.yaml") as path:
            return cls.read(path)

    def write(self, path: str | Path) -> None:
        text = self.text()
        check_recipe(text)
        Path(path).write_text(text, "utf-8")

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
            raise UserError(f"--set {text}", valid="--set section.field=value, e.g. train.batch=64")
        try:
            known: Any = load(value) if value else value
        except (yaml.YAMLError, ValueError) as error:
            why = getattr(error, "problem", None) or str(error)
            raise UserError(
                f"--set {text}: the value cannot be read: {why}",
                valid="a number, a word, [a, list], {a: mapping}, or 'text in quotes'",
            ) from None
        values = merge(values, nested(path.strip(), known))
    return values
