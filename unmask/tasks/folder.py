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
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import SHORTEST, Task
from unmask.text.tokenizer import Tokenizer

FILE, VERSION = "unmask.json", 1
# Settings that the folder does not keep.
OF_A_RUN = {"train", "dev", "test", "teacher", "aux", "augment", "dev_share", "dev_seed", "seeds", "baseline"}
OF_A_RUN |= {"baseline_lr", "patience", "margin"}


def write(task: Task, folder: Path) -> None:
    settings = task.settings.model_dump(mode="json", exclude=OF_A_RUN, exclude_defaults=True)
    values = {"version": VERSION, "task": task.name, "settings": settings, "learnt": task.learnt}
    write_json(folder / FILE, values)
    if (sentence := task.bound.sentence) and task.config and not FAMILIES[task.config.family].own:
        # transformers knows the family: sentence-transformers opens the folder too
        write_sentence(folder, sentence, task.config.hidden)


def read(folder: Path, config: ModelConfig, heads: Iterable[str], tokenizer: Tokenizer) -> Task | None:
    """The task that the folder's model was fine-tuned for; None when it was not."""
    file = Path(folder) / FILE
    if is_there(file):
        values = _values(file)
        check_learnt(file, values["task"], values["learnt"], config)
        task = TASKS[values["task"]](_settings(file, values), tokenizer, values["learnt"])
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
    found = ((kind, kind.from_folder(folder, config, heads)) for kind in kinds)
    return next(((kind, learnt) for kind, learnt in found if learnt is not None), None)


def spec(folder: Path) -> TaskSpec:
    """The spec of the task that a folder's model was fine-tuned for, by unmask.json alone: without weights and tokenizer."""
    values = _values(folder / FILE)
    return TASKS[values["task"]].specify(_settings(folder / FILE, values).task, values["learnt"], None)


def learnt(folder: Path) -> dict[str, Any]:
    """What the task of a fine-tuned folder has learnt, as it belongs to the weights there."""
    return _values(Path(folder) / FILE)["learnt"]


def check_learnt(file: Path, task: str, learnt: dict[str, Any], config: ModelConfig) -> None:
    """UserError with the field that the task could not work with."""
    spec = TASKS[task].SPEC
    needed = {"length": POSITIVE, **spec.learnt}
    check_fields(file, learnt, needed | spec.may_learn, tuple(needed), "learnt.")
    most = config.max_positions
    if learnt["length"] < SHORTEST or (config.positions != "relative" and learnt["length"] > most):
        raise UserError(f"{file}: learnt.length is {learnt['length']:,}", expected=f"{SHORTEST} to {most:,}")
    if "labels" not in spec.learnt:
        return
    count = len(config.labels)
    for name in ("labels", "thresholds", "weights", "counts"):
        if (learnt.get(name) and len(learnt[name]) != count) or (name == "labels" and not learnt[name]):
            raise UserError(
                f"{file}: learnt.{name} has {len(learnt[name]):,} items", expected=f"{count:,}, as config.json"
            )


def _settings(file: Path, values: dict[str, Any]) -> Recipe:
    try:
        return Recipe.build({"task": values["settings"]})
    except UserError as error:
        raise UserError(f"{file}: settings: {error.message}", expected=error.expected, hint="fine-tune again") from None


def _values(file: Path) -> dict[str, Any]:
    values = read_object(file)
    if values.get("version") != VERSION:
        raise UserError(
            f"{file} is not of this version: version is {shown(values.get('version'))}",
            expected=f"version {VERSION}",
            hint="fine-tune again",
        )
    rules = {"task": one_of(*TASKS.names()), "settings": OBJECT, "learnt": OBJECT}
    check_fields(file, values, rules, tuple(rules))
    return values
