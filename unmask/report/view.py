"""RunView: read a run folder of any kind, for reports and `unmask info`.

It reads only the folder, without torch, and works at any time: before the first step, during training, after a kill in the middle
of a log line, and for old or damaged folders. Missing parts are empty.
"""

from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command
from unmask.files import read_object
from unmask.metrics import finite
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.tasks import folder as task_folder
from unmask.tasks.spec import TaskSpec
from unmask.train.run import Run

SHAPE = {  # name here → key of config.json
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "intermediate": "intermediate_size",
    "vocabulary": "vocab_size",
    "positions": "max_position_embeddings",
}


class RunView:
    def __init__(self, run: Run):
        self.run, self.path, self.model = run, run.path, run.model
        self.recipe: dict[str, Any] = Recipe.read(run.path / "recipe.yaml")
        self.problems: list[str] = []  # files that exist but cannot be read
        self.kind = run.kind()
        self.on_text = self.kind == "pretrain"  # trained on plain text; all other runs on labeled records
        self.is_learning = self.kind == "learn"  # a loop over runs whose results are a comparison and a decision
        self.plan, self.data, self.environment = map(self.read, ("plan.json", "data.json", "environment.json"))
        self.results, self.saved_state = self.read("results.json"), self.read(run.task_state_file)
        self.events = run.events()
        several = self.recipe.get("tasks") or {}
        self.settings: dict[str, Any] = several or {"": self.recipe.get("task") or {}}  # task → its part of the recipe
        self.tasks = {name: get_nested(values, "name") for name, values in self.settings.items()}  # name here → task
        self.several = bool(several)

    def read(self, name: str, empty: Any = None) -> Any:
        """Read a JSON file of the run; return `empty` (default: {}) if it is missing, damaged, or of another type."""
        empty = {} if empty is None else empty
        if not (self.path / name).exists():
            return empty
        try:
            value = self.run.read_json(name)
        except UserError as error:
            self.problems.append(error.message)
            return empty
        return value if isinstance(value, type(empty)) else empty

    @cached_property
    def details(self) -> dict[str, Any]:
        """Return the details of the predictions by split (see `Task.details`); in a multi-task run, by task and split."""
        return self.read("details.json")

    @cached_property
    def fills(self) -> list[dict[str, Any]]:
        """Return the example fills; [] if there are none yet."""
        fills = self.read("fills.json", [])
        return [f | {"fills": [x for x in f["fills"] if finite(x.get("probability"))]} for f in fills]

    def logged(self, *events: str) -> list[dict[str, Any]]:
        return [e for e in self.events if e.get("event") in events]

    @property
    def done(self) -> int:
        return int(max((e["step"] for e in self.events if finite(e.get("step"))), default=0))

    @property
    def total(self) -> int | None:
        """Planned number of steps, or None."""
        last = (self.plan.get("length_phases") or [{}])[-1]
        known = last.get("start", 0) + last.get("steps", 0)
        return known or (get_nested(self.recipe, "train", "steps") if self.on_text else None)

    @property
    def seconds(self) -> float:
        return max((e["elapsed"] for e in self.events if finite(e.get("elapsed"))), default=0.0)

    @cached_property
    def state(self) -> str:
        """Return the state: finished, running, failed (the loss became NaN, so resuming would fail again) or interrupted."""
        trained = self.total and self.done >= self.total and (self.model / "config.json").exists()
        if self.results or (self.on_text and (trained or self.logged("end"))):
            return "finished"
        if self.run.in_use():
            return "running"
        return "failed" if self.events and self.events[-1].get("event") == "error" else "interrupted"

    @property
    def resume(self) -> str | None:
        return command(f"unmask {self.run.command_name()} --resume", self.path) if self.state == "interrupted" else None

    # ----------------------------------------------------------------------------------------------- tasks

    def folder(self, task: str) -> Path:
        return self.model / task if task else self.model

    def spec(self, task: str) -> TaskSpec | None:
        """Return the spec of a task, bound to the model if it exists; None if the task is not installed."""
        try:
            return task_folder.read_spec(self.folder(task))
        except (UserError, TypeError, AttributeError, KeyError, ValueError):
            return task_spec(self.tasks.get(task))


def task_spec(task: str | None) -> TaskSpec | None:
    """Return the spec of a task, or None if its package is missing or broken."""
    try:
        return TASKS[str(task)].SPEC
    except UserError:
        return None


def shape(folder: Path) -> dict[str, Any]:
    """Return the class, sizes and number of parameters of a model, from config.json and the headers of its weight files."""
    from safetensors import SafetensorError, safe_open

    try:
        config = read_object(folder / "config.json")
        out = {"architecture": (config.get("architectures") or [None])[0], "family": config.get("model_type")}
        out |= {name: config.get(key) for name, key in SHAPE.items()}
        position = config.get("unmask_logit_position", config.get("unmask_predicts"))  # the latter until 0.1
        out |= {"logit_position": position} if position else {}
    except (OSError, ValueError, AttributeError):
        return {}
    count = 0
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as tensors:
                count += sum(prod(tensors.get_slice(key).get_shape()) for key in tensors.keys())  # noqa: SIM118
        except (OSError, SafetensorError):
            return out
    return out | {"parameters": count} if count else out


def get_nested(values: Any, *keys: str) -> Any:
    """Return a nested value, or None if one of the keys is missing.

    >>> get_nested({"a": {"b": 1}}, "a", "b"), get_nested({"a": None}, "a", "b")
    (1, None)
    """
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def jsonable(value: Any) -> Any:
    """Replace NaN and infinities by None, because JSON cannot represent them."""
    if isinstance(value, dict):
        return {key: jsonable(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(v) for v in value]
    return None if isinstance(value, float) and not finite(value) else value
