"""Save and load a task: unmask.json next to config.json. In a folder of another program, the model's head determines the task."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import format_value, path_exists, read_object, write_json
from unmask.json_checks import OBJECT, POSITIVE, check_fields, one_of
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.sentence import write as write_sentence
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.renamed import upgrade, upgrade_task_state
from unmask.tasks.blend import load_blend
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import MIN_LENGTH, Task
from unmask.text.tokenizer import Tokenizer

FILE, VERSION = "unmask.json", 2
TRAINING_ONLY_FIELDS = {  # settings that are not saved with the model
    "train", "dev", "test", "dev_fraction", "dev_seed", "num_seeds", "baseline", "baseline_lr", "teacher", "aux_mlm", "augment_mlm",
    "patience", "selection_margin", "blend", "unlabeled", "words",
}  # fmt: skip


def save_task(task: Task, folder: Path) -> None:
    settings = task.settings.model_dump(mode="json", exclude=TRAINING_ONLY_FIELDS, exclude_defaults=True)
    values = {"version": VERSION, "task": task.name, "settings": settings, "task_state": task.task_state}
    write_json(folder / FILE, values)
    if task.blend:
        task.blend.save(folder)
    if (sentence := task.bound.sentence) and task.config and not FAMILIES[task.config.family].unmask_only:
        # transformers supports the family, so sentence-transformers can load the folder too.
        write_sentence(folder, sentence, task.config.hidden)


def load_task(folder: Path, config: ModelConfig, heads: Iterable[str], tokenizer: Tokenizer) -> Task | None:
    """Return the task that the folder's model was fine-tuned for, or None if it is not fine-tuned."""
    file = Path(folder) / FILE
    if path_exists(file):
        values = _values(file)
        check_task_state(file, values["task"], values["task_state"], config)
        task = TASKS[values["task"]](_settings(file, values), tokenizer, values["task_state"])
        if missing := [head for head in task.heads if not set(head.split("|")) & set(heads)]:
            raise UserError(
                f"{file}: the task {format_value(values['task'])} needs the head {missing[0]}, which the model does not have",
                expected=f"a task for the heads of the model: {', '.join(heads) or 'none'}",
            )
    else:
        detected = _detect_task(Path(folder), config, set(heads))
        if detected is None:
            return None
        task_class, task_state = detected
        task = task_class(Recipe(), tokenizer, task_state)
    task.bind(config)
    task.blend = load_blend(task, Path(folder))
    return task


def _detect_task(folder: Path, config: ModelConfig, heads: set[str]) -> tuple[type[Task], dict[str, Any]] | None:
    """Return the task and the task state of a folder without unmask.json. Files of other libraries take precedence over heads."""
    classes = sorted((task for _, task in TASKS.working()), key=lambda task: task.SPEC.usage.library == "transformers")
    for task in classes:
        if (task_state := task.state_from_folder(folder, config, heads)) is not None:
            return task, task_state
    return None


def read_spec(folder: Path) -> TaskSpec:
    """Return the spec of a folder's task from unmask.json, without loading weights and tokenizer."""
    values = _values(folder / FILE)
    return TASKS[values["task"]].make_spec(_settings(folder / FILE, values).task, values["task_state"], None)


def read_task_state(folder: Path) -> dict[str, Any]:
    """Return the task state of a fine-tuned folder, which belongs to the weights there."""
    return _values(Path(folder) / FILE)["task_state"]


def check_task_state(file: Path, task: str, task_state: dict[str, Any], config: ModelConfig) -> None:
    """Raise UserError with the name of an invalid field."""
    spec = TASKS[task].SPEC
    needed = {"length": POSITIVE, **spec.required_state}
    check_fields(file, task_state, needed | spec.optional_state, tuple(needed), "task_state.")
    length, limit = task_state["length"], config.max_positions
    if length < MIN_LENGTH or (config.positions != "relative" and length > limit):
        raise UserError(f"{file}: task_state.length is {length:,}", expected=f"{MIN_LENGTH} to {limit:,}")
    if "labels" not in spec.required_state:
        return
    count = len(config.labels)
    for name in ("labels", "thresholds", "weights", "counts"):
        if (task_state.get(name) and len(task_state[name]) != count) or (name == "labels" and not task_state[name]):
            raise UserError(
                f"{file}: task_state.{name} has {len(task_state[name]):,} items",
                expected=f"{count:,}, the number of labels in config.json",
            )


def _settings(file: Path, values: dict[str, Any]) -> Recipe:
    try:
        return Recipe.build(upgrade({"task": values["settings"]}))
    except UserError as error:
        raise UserError(f"{file}: settings: {error.message}", expected=error.expected, hint="fine-tune again") from None


def _values(file: Path) -> dict[str, Any]:
    values = read_object(file)
    if values.get("version") == 1:  # written by version 0.1
        values = {"task_state" if key == "learnt" else key: value for key, value in values.items()} | {"version": 2}
    if values.get("version") != VERSION:
        raise UserError(
            f"{file}: version {format_value(values.get('version'))} of the format is not supported",
            expected=f"version 1 to {VERSION}",
            hint="fine-tune again",
        )
    rules = {"task": one_of(*TASKS.names()), "settings": OBJECT, "task_state": OBJECT}
    check_fields(file, values, rules, tuple(rules))
    return values | {"task_state": upgrade_task_state(values["task_state"])}
