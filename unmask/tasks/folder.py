"""What a fine-tuned folder says of its task: unmask.json beside config.json. A folder of someone else's goes by its head."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import is_there, read_object, shown, write_json
from unmask.json_checks import (
    ABOVE_ZERO,
    FLAG,
    NUMBER,
    OBJECT,
    POSITIVE,
    WORD,
    Rule,
    check_fields,
    list_of,
    one_of,
    or_null,
)
from unmask.model.config import ModelConfig
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.tasks.spec import TaskSpec
from unmask.tasks.tag import boundaries
from unmask.tasks.task import SHORTEST, Task
from unmask.text.tokenizer import Tokenizer

FILE, VERSION = "unmask.json", 1
OF_A_RUN = {
    "train",
    "dev",
    "test",
    "teacher",
    "aux",
    "augment",
    "dev_share",
    "dev_seed",
    "seeds",
    "baseline",
    "baseline_lr",
    "patience",
    "margin",
}  # settings that the folder does not keep
BY_FILES = ("embed", "rank")  # tasks that another program's folder names in files of its own
BY_HEAD = ("answer", "choose", "tag", "classify")  # tasks that have the name of their head
# What a task has learnt, by its name: fields that are needed, and fields that may be there.
NEEDED: dict[str, dict[str, Rule]] = {
    "classify": {"labels": list_of(WORD)},
    "tag": {"labels": list_of(WORD)},
    "answer": {"threshold": or_null(NUMBER)},
    "embed": {
        "pooling": one_of("mean", "cls"),
        "normalised": FLAG,
        "lower": FLAG,
        "prompt": WORD,
        "loss": one_of("text", "pairs", "scored"),
    },
    "rank": {"most": ABOVE_ZERO},
}
MAY: dict[str, dict[str, Rule]] = {
    "classify": {
        "target": one_of("one", "several", "number"),
        "pair": or_null(FLAG),
        "weights": or_null(list_of(NUMBER)),
        "temperature": ABOVE_ZERO,
        "thresholds": or_null(list_of(NUMBER)),
        "counts": list_of(NUMBER),
        "mean": NUMBER,
        "sd": ABOVE_ZERO,
    },
    "tag": {
        "scheme": one_of("BIO", "BIOES", "IO", "none"),
        "predicate": FLAG,
        "boundaries": (boundaries.are_valid, boundaries.VALID),
    },
    "answer": {"none": FLAG, "chinese": FLAG, "longest": POSITIVE},
    "generate": {"language": WORD},
}


def write(task: Task, folder: Path) -> None:
    settings = task.settings.model_dump(mode="json", exclude=OF_A_RUN, exclude_defaults=True)
    values = {"version": VERSION, "task": task.name, "settings": settings, "learnt": task.learnt}
    write_json(folder / FILE, values)
    task.put_beside(folder)


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
                valid=f"the heads that it has: {', '.join(heads) or 'none'}",
            )
    elif known := next(((TASKS[name], of) for name in BY_FILES if (of := TASKS[name].of_folder(folder, config))), None):
        task = known[0](Recipe(), tokenizer, known[1])
    else:
        name = next((name for name in BY_HEAD if name in set(heads)), None)
        if name is None:
            return None
        kind = TASKS[name]
        task = kind(Recipe(), tokenizer, kind.remember(config))
    task.bind(config)
    return task


def spec(folder: Path) -> TaskSpec:
    """The spec of the task that a folder's model was fine-tuned for, by unmask.json alone: without weights and tokenizer."""
    values = _values(folder / FILE)
    return TASKS[values["task"]].specify(_settings(folder / FILE, values).task, values["learnt"], None)


def learnt(folder: Path) -> dict[str, Any]:
    """What the task of a fine-tuned folder has learnt, as it belongs to the weights there."""
    return _values(Path(folder) / FILE)["learnt"]


def check_learnt(file: Path, task: str, learnt: dict[str, Any], config: ModelConfig) -> None:
    """UserError with the field that the task could not work with."""
    needed = {"length": POSITIVE} | NEEDED.get(task, {})
    check_fields(file, learnt, needed | MAY.get(task, {}), tuple(needed), "learnt.")
    most = config.max_positions
    if learnt["length"] < SHORTEST or (config.positions != "relative" and learnt["length"] > most):
        raise UserError(f"{file}: learnt.length is {learnt['length']:,}", valid=f"{SHORTEST} to {most:,}")
    if task not in ("classify", "tag"):
        return
    count = len(config.labels)
    for name in ("labels", "thresholds", "weights", "counts"):
        if (learnt.get(name) and len(learnt[name]) != count) or (name == "labels" and not learnt[name]):
            raise UserError(
                f"{file}: learnt.{name} has {len(learnt[name]):,} items", valid=f"{count:,}, as config.json"
            )


def _settings(file: Path, values: dict[str, Any]) -> Recipe:
    try:
        return Recipe.build({"task": values["settings"]})
    except UserError as error:
        raise UserError(f"{file}: settings: {error.got}", valid=error.valid, fix="fine-tune again") from None


def _values(file: Path) -> dict[str, Any]:
    values = read_object(file)
    if values.get("version") != VERSION:
        raise UserError(
            f"{file} is not of this version: version is {shown(values.get('version'))}",
            valid=f"version {VERSION}",
            fix="fine-tune again",
        )
    rules = {"task": one_of(*TASKS.names()), "settings": OBJECT, "learnt": OBJECT}
    check_fields(file, values, rules, tuple(rules))
    return values
