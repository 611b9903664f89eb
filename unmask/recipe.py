"""Recipe: everything a run was told, validated, with every default in this one file.

A recipe comes from a YAML file, from flags, from `--set section.field=value` and from Python keywords, all through
the same schema. An unknown key is an error that names the nearest valid one. What a run did is saved resolved:
`auto` values replaced, a budget in minutes turned into steps.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from unmask.errors import UserError, nearest


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, validate_default=True)


class DataRecipe(Section):
    """Which text, and how it is cut into documents."""

    corpus: list[str] = []  # paths, folders, globs, '-' or sample:NAME
    documents: Literal["auto", "file", "block", "line", "record"] = "auto"
    column: str = "text"  # of csv, tsv, jsonl and parquet records
    encoding: str = "auto"  # auto = UTF-8, else detected; or a Python codec name
    language: Literal["auto", "en", "zh"] = "auto"  # sentence and word rules
    heldout: Annotated[float, Field(ge=0, lt=1)] = 0.02  # share of documents kept for evaluation
    deduplicate: Literal["exact", "off"] = "exact"
    near_duplicate_sample: int = 20_000  # documents looked at by MinHash; 0 turns it off
    workers: int = 0  # processes that tokenize; 0 = one per core


VOCABULARY = 8192  # entries, when no number is asked for: good for megabytes of text and models of millions of weights


class TokenizerRecipe(Section):
    """A tokenizer to train (`kind`, …) or to take over (`path`)."""

    path: str = ""  # folder or tokenizer.json; empty = train one
    kind: Literal["wordpiece", "bpe", "unigram", "char", "byte"] = "wordpiece"
    vocab_size: Annotated[int, Field(ge=0)] = 0  # 0 = VOCABULARY, or fewer where the text has no more to give
    lowercase: bool = True
    strip_accents: Literal["auto", "yes", "no"] = "auto"  # auto = as lowercase, which is BERT's rule
    special_tokens: list[str] = []  # yours, beside [PAD] [UNK] [CLS] [SEP] [MASK]
    sample_mb: Annotated[float, Field(gt=0)] = 100  # text that training looks at, at most
    min_frequency: int = 2


class MLMRecipe(Section):
    """BERT 1810.04805 §3.1. The four numbers of P4, and how they are drawn."""

    rate: str | float = 0.15  # share of tokens chosen; "0.3:0.15" runs from one to the other
    mask: Annotated[float, Field(ge=0, le=1)] = 0.8  # of the chosen: become [MASK] …
    random: Annotated[float, Field(ge=0, le=1)] = 0.1  # … a random token, never a special one …
    keep: Annotated[float, Field(ge=0, le=1)] = 0.1  # … or stay
    count: Literal["exact", "drawn"] = (
        "exact"  # exact = rate × row (rounded up or down by lot); drawn = a coin per token
    )
    masking: Literal["dynamic", "static"] = "dynamic"  # static = the same masks every `copies` epochs
    copies: Annotated[int, Field(ge=1)] = 1

    @model_validator(mode="after")
    def _sums_to_one(self) -> "MLMRecipe":
        if abs(self.mask + self.random + self.keep - 1) > 1e-6:
            raise ValueError(f"mask + random + keep must be 1, got {self.mask + self.random + self.keep:g}")
        return self

    @field_validator("rate")
    @classmethod
    def _rate(cls, value: str | float) -> str | float:
        ends = [float(x) for x in str(value).split(":")]
        if len(ends) > 2 or not all(0 < x < 1 for x in ends):
            raise ValueError(f"a share between 0 and 1, or START:END, got {value!r}")
        return value


class TrainRecipe(Section):
    """How the loss is minimised. One budget of four."""

    minutes: float | None = None
    tokens: float | None = None
    steps: int | None = None
    epochs: float | None = None
    batch: Annotated[int, Field(ge=1)] = 32  # rows per update, over all processes
    micro_batch: int = 0  # rows per forward pass; 0 = the whole batch; smaller accumulates
    length: str | int = 128  # tokens per row; "64:0.9,128:0.1" = 90 % of the steps at 64, then 128
    optimizer: Literal["muon", "adamw"] = "muon"
    lr: float = 0.0  # AdamW's (with muon: of embeddings, heads, norms, biases); 0 = 5e-3 with muon, 1e-3 without
    muon_lr: float = 0.02  # of the matrices
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    eps: float = 1e-8
    clip: float = 1.0  # gradient norm; 0 = off
    schedule: Literal["linear", "cosine", "wsd", "constant"] = (
        "linear"  # wsd = constant, then decay in the last `decay`
    )
    warmup: float = 0.06  # share of the steps, or a number of steps when ≥ 1
    decay: float = 0.2  # wsd only
    evaluations: int = 10  # held-out evaluations per run …
    eval_every: int = 0  # … or every so many steps
    eval_rows: int = 512  # held-out rows read, at most
    checkpoint_every: int = 200  # steps
    checkpoint_minutes: float = 10.0  # and at least so often
    keep: int = 1  # last checkpoints kept, beside the best
    log_every: int = 1  # steps per line of log.jsonl
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto = bf16 where the device is fast at it
    activation_checkpointing: bool = False
    compile: Literal["auto", "on", "off"] = "off"
    prefetch: int = 4  # batches made ahead
    threads: int = 0  # torch threads; 0 = torch's choice

    @model_validator(mode="after")
    def _one_budget(self) -> "TrainRecipe":
        given = [n for n in ("minutes", "tokens", "steps", "epochs") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"one budget of minutes, tokens, steps, epochs; got {' and '.join(given)}")
        for name in given:
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
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
    objective: str = "auto"  # "mlm", "nsp", "mlm+nsp"; auto = the family's own
    data: DataRecipe = DataRecipe()
    tokenizer: TokenizerRecipe = TokenizerRecipe()
    mlm: MLMRecipe = MLMRecipe()
    train: TrainRecipe = TrainRecipe()

    @classmethod
    def build(cls, values: dict[str, Any] | None = None, sets: list[str] | None = None) -> "Recipe":
        """`values` nested (a YAML file merged with flags), then `sets` as `section.field=value`."""
        values = merge({}, values or {})
        for text in sets or []:
            path, eq, value = text.partition("=")
            if not eq:
                raise UserError(f"--set {text}", valid="--set section.field=value, e.g. train.batch=64")
            nested: Any = yaml.safe_load(value) if value else value
            for key in reversed(path.strip().split(".")):
                nested = {key: nested}
            values = merge(values, nested)
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise UserError(
                _explain(error, cls), fix="unmask pretrain --help, or --dry-run to see every field"
            ) from None

    @classmethod
    def read(cls, path: str | Path) -> dict[str, Any]:
        try:
            values = yaml.safe_load(Path(path).read_text("utf-8")) or {}
        except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the recipe {path}: {error}") from None
        if not isinstance(values, dict):
            raise UserError(f"the recipe {path} is not a mapping", valid="section: {field: value}")
        return values

    def write(self, path: str | Path) -> None:
        Path(path).write_text(self.text(), "utf-8")

    def text(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def merge(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Nested dictionaries, `more` winning.

    >>> merge({"a": {"x": 1}}, {"a": {"y": 2}})
    {'a': {'x': 1, 'y': 2}}
    """
    out = dict(base)
    for key, value in more.items():
        old = out.get(key)
        out[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return out


def _explain(error: ValidationError, root: type[BaseModel]) -> str:
    lines = []
    for problem in error.errors():
        path = [str(p) for p in problem["loc"]]
        if problem["type"] == "extra_forbidden":
            model: Any = root
            for part in path[:-1]:
                model = model.model_fields[part].annotation
            valid = list(model.model_fields)
            lines.append(
                f"unknown recipe key {'.'.join(path)}{nearest(path[-1], valid)}; valid here: {', '.join(valid)}"
            )
        else:
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(f"recipe key {'.'.join(path)}: {message} (got {problem['input']!r:.80})")
    return "\n".join(lines)
