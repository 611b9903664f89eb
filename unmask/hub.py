"""Where a model or tokenizer lies: a path on this disk, or a name on the Hugging Face hub.

Everything that is loaded from elsewhere goes through `resolve`, so a path never touches the network, and a machine
without one gets a sentence instead of a stack of retries. Names without an owner (`bert-base-uncased`) are not looked
up: they would turn every misspelt folder into a request. The hub's own name for that one is
`google-bert/bert-base-uncased`.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from unmask.errors import UserError


def resolve(name: str | Path, patterns: Sequence[str]) -> Path:
    """`name` itself when it exists, else the local copy of the hub repository `owner/name`, files `patterns` only.

    >>> resolve(".", ["*.json"])
    PosixPath('.')
    """
    path = Path(name).expanduser()
    if path.exists():
        return path
    if not re.fullmatch(r"\w[\w.-]*/[\w.-]+", str(name)):
        raise UserError(f"no such file or folder: {name}", valid="a path, or owner/name on the Hugging Face hub")
    # Imported here: 0.25 s that nobody with a folder needs to wait for.
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(name), allow_patterns=list(patterns), etag_timeout=10))
    except (OSError, ValueError) as error:  # every error of the hub is one of the two
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{name} is no file or folder here, and the hub did not give it: {reason}",
            valid="a path, or owner/name on the Hugging Face hub (the network is needed the first time)",
            fix=f"check the path, or, where there is a network: hf download {name}",
        ) from None
