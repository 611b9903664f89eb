"""What a fine-tuned folder says of its task: unmask.json beside config.json. A folder of someone else's goes by its head."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import is_there, read_object, shown, write_json
from unmask.json_checks import OBJECT, POSITIVE, check_fields, one_of
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.sentence import write as write_sentence
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.renamed import upgrade, upgrade_task_state
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import MIN_LENGTH, Task
from unmask.text.tokenizer import Tokenizer

FILE, VERSION = "unmask.json", 2
# Settings that the folder does not keep.
TRAINING_ONLY_FIELDS = {
    "train", "dev", "test", "dev_fraction", "dev_seed", "num_seeds", "baseline", "baseline_lr", "teacher", "aux_mlm", "augment_mlm",
    "patience", "selection_margin",
}  # fmt: skip


def save_task(task: Task, folder: Path) -> None:
    settings = task.settings.model_dump(mode="json", exclude=TRAINING_ONLY_FIELDS, exclude_defaults=True)
    values = {"version": VERSION, "task": task.name, "settings": settings, "task_state": task.task_state}
    write_json(folder / FILE, values)
    if (sentence := task.bound.sentence) and task.config and not FAMILIES[task.config.family].unmask_only:
        # transformers knows the family: sentence-transformers opens the folder too
        write_sentence(folder, sentence, task.config.hidden)


def load_task(folder: Path, config: ModelConfig, heads: Iterable[str], tokenizer: Tokenizer) -> Task | None:
    """The task that the folder's model was fine-tuned for; None when it was not."""
    file = Path(folder) / FILE
    if is_there(file):
        values = _values(file)
        check_task_state(file, values["task"], values["task_state"], config)
        task = TASKS[values["task"]](_settings(file, values), tokenizer, values["task_state"])
        if lacking := [head for head in task.heads if not set(head.split("|")) & set(heads)]:
            raise UserError(
                f"{file}: task is {shown(values['task'])}, and the model has no head {lacking[0]}",
                expected=f"the heads that it has: {', '.join(heads) or 'none'}",
            )
    else:
        found = _of_another_program(Path(folder), config, set(heads))
        if found is None:
            return None
        task = found[0](Recipe(), tokenizer, found[1])
    task.bind(config)
    return task


def _of_another_program(folder: Path, config: ModelConfig, heads: set[str]) -> tuple[type[Task], dict[str, Any]] | None:
    """The task of a folder without unmask.json, and what it has learnt. The files of a library say more than a head: they come first."""
    kinds = sorted((kind for _, kind in TASKS.working()), key=lambda kind: kind.SPEC.usage.library == "transformers")
    found = ((kind, kind.state_from_folder(folder, config, heads)) for kind in kinds)
    return next(((kind, task_state) for kind, task_state in found if task_state is not None), None)


def read_spec(folder: Path) -> TaskSpec:
    """The spec of the task that a folder's model was fine-tuned for, by unmask.json alone: without weights and tokenizer."""
    values = _values(folder / FILE)
    return TASKS[values["task"]].make_spec(_settings(folder / FILE, values).task, values["task_state"], None)


def read_task_state(folder: Path) -> dict[str, Any]:
    """What the task of a fine-tuned folder has learnt, as it belongs to the weights there."""
    return _values(Path(folder) / FILE)["task_state"]


def check_task_state(file: Path, task: str, task_state: dict[str, Any], config: ModelConfig) -> None:
    """UserError with the field that the task could not work with."""
    spec = TASKS[task].SPEC
    needed = {"length": POSITIVE, **spec.required_state}
    check_fields(file, task_state, needed | spec.optional_state, tuple(needed), "task_state.")
    most = config.max_positions
    if task_state["length"] < MIN_LENGTH or (config.positions != "relative" and task_state["length"] > most):
        raise UserError(f"{file}: task_state.length is {task_state['length']:,}", expected=f"{MIN_LENGTH} to {most:,}")
    if "labels" not in spec.required_state:
        return
    count = len(config.labels)
    for name in ("labels", "thresholds", "weights", "counts"):
        if (task_state.get(name) and len(task_state[name]) != count) or (name == "labels" and not task_state[name]):
            raise UserError(
                f"{file}: task_state.{name} has {len(task_state[name]):,} items", expected=f"{count:,}, as config.json"
            )


def _settings(file: Path, values: dict[str, Any]) -> Recipe:
    try:
        return Recipe.build(upgrade({"task": values["settings"]}))
    except UserError as error:
        raise UserError(f"{file}: settings: {error.message}", expected=error.expected, hint="fine-tune again") from None


def _values(file: Path) -> dict[str, Any]:
    values = read_object(file)
    if values.get("version") == 1:  # as version 0.1 wrote it
        values = {"task_state" if key == "learnt" else key: value for key, value in values.items()} | {"version": 2}
    if values.get("version") != VERSION:
        raise UserError(
            f"{file}: version {shown(values.get('version'))} of the format is not supported",
            expected=f"version 1 to {VERSION}",
            hint="fine-tune again",
        )
    rules = {"task": one_of(*TASKS.names()), "settings": OBJECT, "task_state": OBJECT}
    check_fields(file, values, rules, tuple(rules))
    return values | {"task_state": upgrade_task_state(values["task_state"])}
