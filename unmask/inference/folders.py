"""Where a model lies: a model folder, a run, a checkpoint, or a name on the hub."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from unmask.errors import UserError, quote
from unmask.files import path_exists


def model_folder(path: str | PathLike[str], say: Callable[[str], None]) -> str | Path:
    """The folder that holds the model; of a run that is not finished its last checkpoint's, which is said."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return str(path)  # a name on the hub, or a mistake that is explained when it is opened
    if path_exists(folder / "config.json") or path_exists(folder / "bert_config.json"):
        return folder
    if path_exists(folder / "model" / "config.json"):  # a finished run, or a checkpoint
        return folder / "model"
    several = sorted(p.parent for base in (folder, folder / "model") for p in base.glob("*/config.json"))
    if several:  # tasks that were trained together
        raise UserError(f"{folder} holds several models", expected=", ".join(str(p) for p in several))
    if not (folder / "recipe.yaml").is_file():
        raise UserError(
            f"{folder} holds neither a model (config.json) nor a run (recipe.yaml)",
            expected="a model folder, a run folder, or owner/name on the Hugging Face hub",
        )
    from unmask.train import checkpoint
    from unmask.train.run import Run

    last = checkpoint.latest(folder / "checkpoints", say)
    if last is None:
        raise UserError(
            f"the run {folder} has neither a model nor a checkpoint yet",
            hint=f"wait, or if it was stopped: unmask {Run(folder).command_name() or 'pretrain'} --resume {quote(folder)}",
        )
    say(f"{folder} is not finished; loading its checkpoint from step {last.state['step']:,}")
    return last.model
