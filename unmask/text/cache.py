"""The cache folder: copies of standard input, sample texts, tokenizers and token stores. Everything in it can be rebuilt."""

import fcntl
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.files import remove_folder

KINDS = {"stores": "store", "tokenizers": "tokenizer", "samples": "sample", "stdin": "input"}  # folder → kind
STALE_SECONDS = 3600  # unfinished work that did not change for this long counts as abandoned


def cache_dir() -> Path:
    """Return `$UNMASK_CACHE`, else `$XDG_CACHE_HOME/unmask`, else `~/.cache/unmask`, and create it if missing.

    The environment is read on every call, so that a test or a job can change it.
    """
    if custom := os.environ.get("UNMASK_CACHE"):
        folder = Path(custom).expanduser()
    elif shared := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(shared).expanduser() / "unmask"
    else:
        folder = Path.home() / ".cache" / "unmask"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot use {folder} as the cache: {error}", hint="set UNMASK_CACHE=FOLDER") from None
    return folder


@dataclass(frozen=True)
class CacheEntry:
    path: Path
    kind: str  # one of KINDS' values
    bytes: int
    created: float  # seconds since 1970
    last_used: float
    complete: bool

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def cache_entries() -> list[CacheEntry]:
    """Return all cache entries, most recently used first."""
    entries = []
    for folder, kind in KINDS.items():
        for path in (cache_dir() / folder).glob("*"):
            with suppress(FileNotFoundError):  # published or pruned by another process meanwhile
                entries.append(_entry(path, kind))
    return sorted(entries, key=lambda entry: -entry.last_used)


def prune(older_than_days: float | None = None, incomplete: bool = True, everything: bool = False) -> list[CacheEntry]:
    """Remove abandoned builds, entries not used for `older_than_days`, or everything; return the removed entries.

    Builds of other processes stay. A store in use may be removed: the run keeps its memory-mapped pages.
    """
    removed = []
    for entry in cache_entries():
        idle = time.time() - entry.last_used
        old = older_than_days is not None and idle >= older_than_days * 86_400
        abandoned = (
            incomplete and not entry.complete and idle >= (0 if (entry.path / "lock").exists() else STALE_SECONDS)
        )
        if (everything or old or abandoned) and not _busy(entry.path):
            remove_folder(entry.path) if entry.path.is_dir() else entry.path.unlink(missing_ok=True)
            removed.append(entry)
    return removed


def _entry(path: Path, kind: str) -> CacheEntry:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    stats = [file.stat() for file in files] or [path.stat()]
    unfinished = ".partial" in path.name or path.name.startswith("tmp")
    return CacheEntry(
        path,
        kind,
        sum(stat.st_size for stat in stats) if files else 0,
        min(stat.st_mtime for stat in stats),
        max(max(stat.st_mtime, stat.st_atime if len(stats) == 1 else 0) for stat in stats),
        complete=not unfinished and (kind != "store" or (path / "meta.json").exists()),
    )


def _busy(path: Path) -> bool:
    """Return whether a process holds the lock of this unfinished store."""
    try:
        with open(path / "lock") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except BlockingIOError:
        return True
    return False
