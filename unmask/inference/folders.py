"""Locate a model: in a model folder, a run, a checkpoint, or on the hub."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path

from unmask.errors import UserError, quote
from unmask.files import path_exists


def model_folder(path: str | PathLike[str], say: Callable[[str], None]) -> str | Path:
    """Return the folder of the model. For an unfinished run, it is that of the last checkpoint, with a message to `say`."""
    folder = Path(path).expanduser()
    if not folder.is_dir():
        return str(path)  # a hub name, or a wrong path, which raises an error when it is opened
    if path_exists(folder / "config.json") or path_exists(folder / "bert_config.json"):
        return folder
    if path_exists(folder / "model" / "config.json"):  # a finished run, or a checkpoint
        return folder / "model"
    models = sorted(p.parent for base in (folder, folder / "model") for p in base.glob("*/config.json"))
    if models:  # of a multi-task run
        raise UserError(f"{folder} contains several models", expected=f"one of {', '.join(map(str, models))}")
    if not (folder / "recipe.yaml").is_file():
        raise UserError(
            f"{folder} contains neither a model (config.json) nor a run (recipe.yaml)",
            expected="a model folder, a run folder, or owner/name on the Hugging Face hub",
            hint="pass the folder of a run: unmask pretrain and unmask finetune print its path",
        )
    from unmask.train import checkpoint
    from unmask.train.run import Run

    last = checkpoint.latest(folder / "checkpoints", say)
    if last is None:
        resume = f"unmask {Run(folder).command_name() or 'pretrain'} --resume {quote(folder)}"
        raise UserError(
            f"the run {folder} has neither a model nor a checkpoint yet",
            hint=f"wait for the first checkpoint, or resume a stopped run: {resume}",
        )
    say(f"{folder} is not finished; loading its checkpoint from step {last.state['step']:,}")
    return last.model
