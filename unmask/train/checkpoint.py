"""Checkpoint: a folder with the model in Hugging Face format, the optimizer's state, and a checksum of each file.

A checkpoint is written under a temporary name and then renamed, so a kill at any moment leaves the previous one intact.
`read` verifies the checksums; `latest` skips damaged checkpoints with a warning.
"""

import errno
import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from unmask.errors import UserError
from unmask.files import new_folder, read_object, write_text
from unmask.json_checks import COUNT, check

CHECKSUM_FILE = "checksums.json"


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    state: dict[str, Any]  # step, best, …: everything that is not a tensor

    @property
    def model(self) -> Path:
        return self.path / "model"

    def optimizer(self) -> dict[str, Tensor]:
        return load_file(self.path / "optimizer.safetensors")


def checksum(path: Path) -> str:
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "blake2b").hexdigest()


def write_folder(path: Path, save: Callable[[Path], object]) -> None:
    """Write a folder with `save`, completely or not at all. An existing folder of that name is replaced."""
    try:
        with new_folder(path, replace=True) as folder:
            save(folder)
    except OSError as error:
        raise disk_error(error, path) from error
    except UserError as error:  # raised while saving the tokenizer
        raise (disk_error(error.__cause__, path) if isinstance(error.__cause__, OSError) else error) from error
    except Exception as error:  # safetensors reports a full disk with its own exception type
        if any(word in str(error) for word in ("No space left", "File too large", "StorageFull")):
            raise disk_error(OSError(errno.ENOSPC, str(error)), path) from error
        raise


def write(
    path: Path, save_model: Callable[[Path], None], optimizer: dict[str, Tensor] | None, state: dict[str, Any]
) -> None:
    """Save model, optimizer and state in `path`, completely or not at all."""

    def save(folder: Path) -> None:
        save_model(folder / "model")
        if optimizer is not None:
            save_file({k: v.contiguous() for k, v in optimizer.items()}, folder / "optimizer.safetensors")
        write_text(folder / "state.json", json.dumps(state, indent=1))
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        write_text(
            folder / CHECKSUM_FILE, json.dumps({str(p.relative_to(folder)): checksum(p) for p in files}, indent=1)
        )

    write_folder(path, save)


def disk_error(error: OSError, path: Path) -> UserError:
    try:
        free = f"{shutil.disk_usage(path.parent).free / 1e6:,.0f} MB free"
    except OSError:
        free = "free space unknown"
    return UserError(
        f"cannot write {path}: {error.strerror or error} ({free}); earlier checkpoints are intact",
        hint="free some disk space (unmask cache prune), then continue with --resume",
    )


def read(path: Path) -> Checkpoint:
    """Open the checkpoint in `path` and verify every file. Raise a UserError that names a damaged file."""
    try:
        sums, state = read_object(path / CHECKSUM_FILE), read_object(path / "state.json", finite=False)
        check(path / "state.json", "step", state.get("step"), COUNT)
    except UserError as error:
        raise UserError(f"checkpoint {path} is damaged: {error.message}") from None
    for name, expected in sums.items():
        file = path / name
        if not file.is_file() or checksum(file) != expected:
            raise UserError(f"checkpoint {path} is damaged: {name} {'differs' if file.exists() else 'is missing'}")
    return Checkpoint(path, state)


def steps(folder: Path) -> list[Path]:
    """Return the checkpoints of a run, oldest first."""
    return sorted(p for p in folder.glob("step-*") if p.is_dir() and p.name[5:].isdigit())


def latest(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """Return the newest intact checkpoint. Warn about damaged ones and skip them."""
    for path in reversed(steps(folder)):
        try:
            return read(path)
        except UserError as error:
            warn(f"{error.message}; falling back to the previous checkpoint")
    return None


def prune(folder: Path, num_kept: int) -> None:
    for path in steps(folder)[:-num_kept]:
        shutil.rmtree(path)
