"""Where things that can be made again are kept: spooled standard input, written samples, token stores."""

import os
from pathlib import Path

from unmask.errors import UserError


def cache_dir() -> Path:
    """`$UNMASK_CACHE`, else `$XDG_CACHE_HOME/unmask`, else `~/.cache/unmask`; made when it is not there.

    Read from the environment on every call, so that a test or a job can point it elsewhere.
    """
    if own := os.environ.get("UNMASK_CACHE"):
        folder = Path(own).expanduser()
    elif shared := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(shared).expanduser() / "unmask"
    else:
        folder = Path.home() / ".cache" / "unmask"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot use {folder} as the cache: {error}", fix="UNMASK_CACHE=FOLDER") from None
    return folder
