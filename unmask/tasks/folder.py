"""What a fine-tuned folder says of its task: unmask.json beside config.json. A folder of someone else's goes by its head."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.tasks.task import Task

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


def write(task: Task, folder: Path) -> None:
    settings = task.settings.model_dump(mode="json", exclude=OF_A_RUN, exclude_defaults=True)
    values = {"version": VERSION, "task": task.name, "settings": settings, "learnt": task.learnt}
    (folder / FILE).write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", "utf-8")
    task.put_beside(folder)


def read(folder: Path, config: ModelConfig, heads: Iterable[str], tokenizer: Tokenizer) -> Task | None:
    """The task that the folder's model was fine-tuned for; None when it was not."""
    file = Path(folder) / FILE
    if file.is_file():
        values = _values(file)
        recipe = Recipe.build({"task": values["settings"]})
        task = TASKS[values["task"]](recipe, tokenizer, values["learnt"])
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


def learnt(folder: Path) -> dict[str, Any]:
    """What the task of a fine-tuned folder has learnt, as it belongs to the weights there."""
    return _values(Path(folder) / FILE)["learnt"]


def _values(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text("utf-8"))
        known = isinstance(values, dict) and {"version", "task", "settings", "learnt"} <= set(values)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {file}: {error}", fix="copy the folder again") from None
    if not known or values["version"] != VERSION:
        raise UserError(f"{file} is not of this version", valid=f"version {VERSION}", fix="fine-tune again")
    return values
