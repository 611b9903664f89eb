"""A blend adds the logits of a second model to the encoder's, for the same record (`--blend`).

A task that supports it names a class in `SPEC.blend`. The blend changes the outputs of the encoder, so decoding, calibration,
metrics, the server and exported models need not know about it. Its file is saved next to the encoder's weights; transformers
opens the folder and predicts with the encoder alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from unmask.console import Console
from unmask.errors import UserError
from unmask.recipe import Recipe

if TYPE_CHECKING:
    from unmask.labels.record_sets import RecordSets
    from unmask.labels.records import Record
    from unmask.tasks.spec import TaskSpec
    from unmask.tasks.task import Backend, Outputs, Task


COMPONENTS = ("encoder", "linear")
FILE = "linear.safetensors"  # of the second model, in the model folder


class UntrainableError(ValueError):
    """The second model cannot be trained on these records."""


class Blend(Protocol):
    weights: dict[str, float]  # of `COMPONENTS`
    note: str  # about the fit, for the console

    @classmethod
    def check_unlabeled(cls, task: Any) -> None:
        """Raise UserError if the task cannot use unlabeled text."""
        ...

    @classmethod
    def fit(cls, task: Any, model: Backend, sets: RecordSets, unlabeled: Sequence[str] = ()) -> Blend:
        """Fit the second model on the training records, and the weights of both on the dev records, if there are enough."""
        ...

    @classmethod
    def load(cls, folder: Path, num_labels: int) -> Blend: ...

    def save(self, folder: Path) -> None: ...

    def attributions(self, texts: Sequence[str], label: int) -> tuple[float, list[tuple[int, int, int, float]]]:
        """Return the constant of the second model, and the contribution of each text span to a label: (index of the text, start, end, value)."""
        ...

    def apply(self, outputs: Outputs, component: str = "both") -> Outputs:
        """Return the blended outputs. `component`: one of `COMPONENTS` returns the outputs of that one alone."""
        ...


def check(recipe: Recipe, spec: TaskSpec) -> None:
    """Raise UserError if the task does not support --blend."""
    flags = {"--unlabeled": recipe.task.unlabeled, f"--blend {recipe.task.blend}": recipe.task.blend != "none"}
    is_folder = recipe.task.blend not in ("none", "linear")
    if is_folder and spec.blend and not (Path(recipe.task.blend) / FILE).is_file():
        raise UserError(
            f"--blend {recipe.task.blend}: no such folder with a {FILE}",
            expected="none, linear or FOLDER",
        )
    for flag in (flag for flag, is_set in flags.items() if is_set and not spec.blend):
        raise UserError(f"{flag}: the task {spec.name} does not support it", hint=f"remove {flag.split()[0]}")
    if recipe.task.unlabeled and recipe.task.blend != "linear":
        raise UserError("--unlabeled trains the linear model of a blend", hint="add --blend linear")


def read_unlabeled(recipe: Recipe, task: Task) -> list[str]:
    """Return the texts of --unlabeled."""
    if not recipe.task.unlabeled:
        return []
    from unmask.text.corpus import Corpus

    blend_class(task.SPEC).check_unlabeled(task)
    return [document.text for document in Corpus(recipe.task.unlabeled, recipe.data)]


def blend_class(spec: TaskSpec) -> type[Blend]:
    return EntryPoint(spec.name, spec.blend, "").load()


def fit_blend(task: Task, model: Backend, sets: RecordSets, unlabeled: Sequence[str], console: Console) -> Blend | None:
    """Fit the blend of a trained encoder. Return None, with a warning, if the texts have no words to learn from."""
    try:
        blend = blend_class(task.SPEC).fit(task, model, sets, unlabeled)
    except UntrainableError as error:
        console.warn(f"--blend: no linear model can be trained on these texts, so the encoder is used alone: {error}")
        return None
    console.say(blend.note or f"linear model: trained on {len(sets.train):,} labeled records")
    return blend


def load_blend(task: Task, folder: Path) -> Blend | None:
    """Return the blend that a model folder contains, or None."""
    if not task.SPEC.blend or not (folder / FILE).is_file():  # other models do not import scikit-learn
        return None
    return blend_class(task.SPEC).load(folder, len(task.bound.labels) or 1)


class ComponentScores:
    """Scores of the encoder and of the second model, each calibrated by itself. Rows have the format of `baselines` in results.json."""

    def __init__(self, task: Task, recipe: Recipe):
        self.task, self.recipe = task, recipe
        self.rows: list[dict[str, Any]] = []
        self.calibrations: dict[str, dict[str, Any]] = {name: {} for name in COMPONENTS}

    def add(self, split: str, outputs: Outputs, records: Sequence[Record]) -> None:
        if self.task.blend is None or outputs.unblended is None:
            return
        for name in COMPONENTS:
            own = self.task.blend.apply(outputs.unblended, name)
            if split == "dev":
                self.calibrations[name] = self.task.calibrate(own, records)
            task = type(self.task)(self.recipe, self.task.tokenizer, self.task.task_state | self.calibrations[name])
            scores = task.score(task.decode(own), records)
            self.rows.append({"baseline": f"{name} alone", "split": split, "records": len(records), **scores})
