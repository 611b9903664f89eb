"""Recipe: every setting of a run, validated. Its sections are in `sections.py` and `task_recipe.py`.

A recipe comes from a YAML file, from flags, from `--set section.field=value` and from Python keywords, all through
the same schema. An unknown key is an error that names the nearest valid one. A run saves its recipe resolved:
`auto` values replaced, a budget in minutes converted to steps.
"""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from unmask.errors import UserError
from unmask.files import check_recipe, path_exists, read_yaml, write_text
from unmask.renamed import upgrade
from unmask.sections import (
    BUDGETS,
    TRAINING,
    BiLMRecipe,
    CBOWRecipe,
    DataRecipe,
    DenoiseRecipe,
    DistillRecipe,
    HybridRecipe,
    MLMRecipe,
    RTDRecipe,
    SpanRecipe,
    TokenizerRecipe,
    TrainRecipe,
)
from unmask.settings import Dumper, Section, deep_merge, format_validation_error, load, nested, setting
from unmask.task_recipe import TaskRecipe

__all__ = ["BUDGETS", "Recipe", "TaskRecipe", "TrainRecipe", "merge_overrides"]


class Recipe(Section):
    """
    >>> Recipe.build({"preset": "bert-mini"}, ["train.steps=10"]).train.steps
    10
    """

    panel = "Model"

    seed: int = setting(0, "Random seed.", (*TRAINING, "show-batch", "learn"), panel="Optimization")
    preset: str = setting(
        "modernbert-mini",
        "Architecture and size; `unmask presets` lists them.",
        ("pretrain",),
        shown="modernbert-mini; modernbert-tiny with --minutes up to 10",
        metavar="NAME",
    )
    model: dict[str, Any] = setting({}, "Overrides of the preset's architecture, e.g. {layers: 6}.")
    init_from: str = setting(
        "",
        "Start from this model folder or Hub model ID.",
        ("pretrain", "learn"),
        flag="--from",
        metavar="MODEL",
    )
    objective: str = setting(
        "auto",
        "Objective: mlm, mlm+nsp, rtd, clm, span, …; `unmask presets` lists them.",
        ("pretrain",),
        shown="depends on the architecture",
        metavar="NAME",
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
    tasks: dict[str, TaskRecipe] = setting({}, "Multi-task fine-tuning: tasks that share an encoder, by name.")
    train: TrainRecipe = TrainRecipe()

    @classmethod
    def build(cls, values: dict[str, Any] | None = None, overrides: str | Sequence[str] | None = None) -> "Recipe":
        """Validate nested `values` (a YAML file merged with flags), updated by `overrides` such as `section.field=value`."""
        try:
            return cls.model_validate(merge_overrides(values, overrides))
        except ValidationError as error:
            raise UserError(
                format_validation_error(error, cls), hint="`unmask config` prints every recipe key with its default"
            ) from None

    @classmethod
    def read(cls, path: str | Path) -> dict[str, Any]:
        """Read the values of a recipe file; keys of version 0.1 get today's names."""
        if not path_exists(Path(path)):
            raise UserError(f"no such recipe file: {path}", expected="a YAML file", hint="unmask config > recipe.yaml")
        values = read_yaml(path) or {}
        if not isinstance(values, dict):
            raise UserError(f"the recipe {path} is not a mapping", expected="section: {field: value}")
        return upgrade(values)

    @classmethod
    def load_builtin(cls, name: str) -> dict[str, Any]:
        """Read a recipe of the package's `recipes/` folder."""
        with resources.as_file(resources.files("unmask") / "recipes" / f"{name}.yaml") as path:
            return cls.read(path)

    def changed(self, **values: Any) -> "Recipe":
        """Return a copy with other values; a dict updates only those fields of its section.

        >>> Recipe(seed=3).changed(preset="bert-tiny", train={"batch_size": 8}).train.batch_size
        8
        """
        dicts = {n: v for n, v in values.items() if isinstance(v, dict) and isinstance(getattr(self, n), Section)}
        sections = {name: getattr(self, name).model_copy(update=fields) for name, fields in dicts.items()}
        return self.model_copy(update=values | sections)

    def write(self, path: str | Path) -> None:
        text = self.text()
        check_recipe(text)
        write_text(Path(path), text)

    def text(self) -> str:
        return yaml.dump(self.model_dump(mode="json"), Dumper=Dumper, sort_keys=False, allow_unicode=True)


def merge_overrides(values: dict[str, Any] | None, overrides: str | Sequence[str] | None = None) -> dict[str, Any]:
    """Apply `section.field=value` strings to nested values, without validation.

    >>> merge_overrides({"train": {"lr": 0.1}}, "train.batch_size=8")
    {'train': {'lr': 0.1, 'batch_size': 8}}
    """
    values = deep_merge({}, values or {})
    for text in [overrides] if isinstance(overrides, str) else overrides or []:
        path, eq, value = text.partition("=")
        if not eq:
            raise UserError(
                f"--set {text} has no value", expected="--set section.field=value, e.g. train.batch_size=64"
            )
        try:
            parsed: Any = load(value) if value else value
        except (yaml.YAMLError, ValueError) as error:
            reason = getattr(error, "problem", None) or str(error)
            raise UserError(
                f"--set {text}: the value is not valid YAML: {reason}",
                expected="a number, a word, [a, list], {a: mapping}, or 'text in quotes'",
            ) from None
        values = deep_merge(values, nested(path.strip(), parsed))
    return values
