"""Recipe: everything a run was told, validated, with every default in this one file.

A recipe comes from a YAML file, from flags, from `--set section.field=value` and from Python keywords, all through
the same schema. An unknown key is an error that names the nearest valid one. What a run did is saved resolved:
`auto` values replaced, a budget in minutes turned into steps.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from unmask.errors import UserError, nearest

Count = Annotated[int, Field(ge=1)]
CountOrZero = Annotated[int, Field(ge=0)]  # 0 has a meaning of its own, told beside the field
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
BelowOne = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]


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


VOCABULARY = 8192  # entries, when no number is asked for: good for megabytes of text and models of millions of weights


class TokenizerRecipe(Section):
    """A tokenizer to train (`kind`, …) or to take over (`path`)."""

    path: str = ""  # folder or tokenizer.json; empty = train one
    kind: Literal["wordpiece", "bpe", "unigram", "char", "byte"] = "wordpiece"
    vocab_size: CountOrZero = 0  # 0 = VOCABULARY, or fewer where the text has no more to give
    lowercase: bool = True
    strip_accents: Literal["auto", "yes", "no"] = "auto"  # auto = as lowercase, which is BERT's rule
    special_tokens: list[str] = []  # yours, beside [PAD] [UNK] [CLS] [SEP] [MASK]
    sample_mb: Positive = 100  # text that training looks at, at most
    min_frequency: CountOrZero = 2  # occurrences that an entry needs; 0 = as 1


class MLMRecipe(Section):
    """BERT 1810.04805 §3.1. The four numbers of P4, and how they are drawn."""

    rate: str | float = 0.15  # share of tokens chosen; "0.3:0.15" runs from one to the other
    mask: Share = 0.8  # of the chosen: become [MASK] …
    random: Share = 0.1  # … a random token, never a special one …
    keep: Share = 0.1  # … or stay
    count: Literal["exact", "drawn"] = (
        "exact"  # exact = rate × row (rounded up or down by lot); drawn = a coin per token
    )
    masking: Literal["dynamic", "static"] = "dynamic"  # static = the same masks every `copies` epochs
    copies: Count = 1

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


class TrainRecipe(Section):
    """How the loss is minimised. One budget of four."""

    minutes: Positive | None = None
    tokens: Positive | None = None
    steps: Count | None = None
    epochs: Positive | None = None
    batch: Count = 32  # rows per update, over all processes
    micro_batch: CountOrZero = 0  # rows per forward pass; 0 = the whole batch; smaller accumulates
    length: str | int = 128  # tokens per row; "64:0.9,128:0.1" = 90 % of the steps at 64, then 128
    optimizer: Literal["muon", "adamw"] = "muon"
    lr: NotNegative = 0.0  # AdamW's (with muon: of embeddings, heads, norms, biases); 0 = 5e-3 with muon, 1e-3 without
    muon_lr: Positive = 0.02  # of the matrices
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
    eval_rows: Count = 512  # held-out rows read, at most
    checkpoint_every: Count = 200  # steps
    checkpoint_minutes: Positive = 10.0  # and at least so often
    keep: Count = 1  # last checkpoints kept, beside the best
    log_every: Count = 1  # steps per line of log.jsonl
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"  # auto = bf16 where the device is fast at it
    activation_checkpointing: bool = False
    compile: Literal["auto", "on", "off"] = "off"
    prefetch: CountOrZero = 4  # batches made ahead
    threads: CountOrZero = 0  # torch threads; 0 = torch's choice

    @model_validator(mode="after")
    def _one_budget(self) -> "TrainRecipe":
        given = [n for n in ("minutes", "tokens", "steps", "epochs") if getattr(self, n) is not None]
        if len(given) > 1:
            raise ValueError(f"one budget of minutes, tokens, steps, epochs; got {' and '.join(given)}")
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
    def build(cls, values: dict[str, Any] | None = None, sets: str | Sequence[str] | None = None) -> "Recipe":
        """`values` nested (a YAML file merged with flags), then `sets` as `section.field=value`."""
        values = merge({}, values or {})
        for text in [sets] if isinstance(sets, str) else sets or []:
            path, eq, value = text.partition("=")
            if not eq:
                raise UserError(f"--set {text}", valid="--set section.field=value, e.g. train.batch=64")
            try:
                nested: Any = _load(value) if value else value
            except (yaml.YAMLError, ValueError) as error:
                why = getattr(error, "problem", None) or str(error)
                raise UserError(
                    f"--set {text}: the value cannot be read: {why}",
                    valid="a number, a word, [a, list], {a: mapping}, or 'text in quotes'",
                ) from None
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
            values = _load(Path(path).read_text("utf-8")) or {}
        except (OSError, yaml.YAMLError, ValueError) as error:
            raise UserError(f"cannot read the recipe {path}: {error}") from None
        if not isinstance(values, dict):
            raise UserError(f"the recipe {path} is not a mapping", valid="section: {field: value}")
        return values

    def write(self, path: str | Path) -> None:
        Path(path).write_text(self.text(), "utf-8")

    def text(self) -> str:
        return yaml.dump(self.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


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


class _Loader(yaml.SafeLoader):
    """Plain scalars as in YAML 1.2: PyYAML's 1.1 reads `off` as False, `64:1` as 3841 and `5e-4` as text."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that either version of YAML would read as something else."""


def _int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    text = node.value.replace("_", "")
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


_Loader.yaml_implicit_resolvers = {}  # none of 1.1's
for _name, _pattern, _first in [
    ("null", r"null|Null|NULL|~|", [*"nN~", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", [*"tTfF"]),
    ("int", r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+|0o[0-7]+", [*"-+0123456789"]),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        [*"-+.0123456789"],
    ),
    ("merge", r"<<", ["<"]),
]:
    for _class in (_Loader, _Dumper):  # the first match wins: int before float
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"^(?:{_pattern})$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _int)


def _load(text: str) -> Any:
    """
    >>> _load("{compile: off, lr: 5e-4, length: 64:1, lowercase: true}")
    {'compile': 'off', 'lr': 0.0005, 'length': '64:1', 'lowercase': True}
    """
    return yaml.load(text, _Loader)


def _explain(error: ValidationError, root: type[BaseModel]) -> str:
    """One line per field, by its path as a user writes it."""
    unknown: list[str] = []  # lines
    wrong: dict[str, tuple[list[str], list[str]]] = {}  # path → (messages, values got)
    for problem in error.errors():
        path, model = _field(problem["loc"], root)
        where, kind = ".".join(path), problem["type"]
        if kind == "extra_forbidden":
            section = _field(problem["loc"][:-1], root)[1]
            valid = list(section.model_fields) if section else []
            unknown.append(f"unknown recipe key {where}{nearest(path[-1], valid)}; valid here: {', '.join(valid)}")
            continue
        message, got = problem["msg"].removeprefix("Value error, "), f"{problem['input']!r:.80}"
        if model and kind == "value_error":  # of fields taken together: the message names them
            got = ""
        elif model:
            message = f"a section, with the fields {', '.join(model.model_fields)}"
        messages, values = wrong.setdefault(where, ([], []))
        short = message.removeprefix("Input should be ")
        if message not in messages and short not in messages:
            messages.append(short if messages else message)
        if got and got not in values:
            values.append(got)
    return "\n".join(
        unknown
        + [
            f"recipe key {where}: {' or '.join(messages)}" + (f" (got {', '.join(values)})" if values else "")
            for where, (messages, values) in wrong.items()
        ]
    )


def _field(loc: Sequence[str | int], root: type[BaseModel]) -> tuple[list[str], type[BaseModel] | None]:
    """A field's path, without what pydantic adds below it (kinds of a union, places in a list); its section, if one."""
    path: list[str] = []
    model: type[BaseModel] | None = root
    for part in loc:
        if model is None:
            break
        path.append(str(part))
        field = model.model_fields.get(str(part))
        kind = field.annotation if field else None
        model = kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None
    return path, model
