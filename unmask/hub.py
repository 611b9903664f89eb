"""Where a model or tokenizer lies: a path on this disk, or a name on the Hugging Face hub.

Everything that is loaded from elsewhere goes through `resolve`, so a path never touches the network, and a machine
without one gets a sentence instead of a stack of retries. `owner/name@revision` names a branch, a tag or a commit. A run writes
the commit that it began with into its recipe (`pin`): a resumed run and a second run of the recipe read the same files, whatever
has been uploaded since. Names without an owner (`bert-base-uncased`) are not downloaded: they would turn every misspelt
folder into a request. For those that the hub is known to have under an owner, that name is suggested.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from unmask.errors import UserError, nearest, quote

NAME = re.compile(r"(?P<repository>\w[\w.-]*/[\w.-]+)(@(?P<revision>\w[\w./-]*))?")
VALID = "a path, or owner/name (or owner/name@revision) on the Hugging Face hub"
COMMIT = re.compile(r"[0-9a-f]{40}")
LOCAL = "runs"  # the folder that every run is written to: no owner on the hub
OWNERS = {
    "google-bert": (
        "bert-base-uncased bert-base-cased bert-large-uncased bert-large-cased bert-base-chinese bert-base-german-cased "
        "bert-base-multilingual-cased bert-base-multilingual-uncased bert-large-uncased-whole-word-masking"
    ),
    "FacebookAI": "roberta-base roberta-large xlm-roberta-base xlm-roberta-large",
    "distilbert": "distilbert-base-uncased distilbert-base-cased distilbert-base-multilingual-cased distilroberta-base distilgpt2",
    "albert": "albert-base-v1 albert-base-v2 albert-large-v2 albert-xlarge-v2 albert-xxlarge-v2",
    "google": "electra-small-discriminator electra-base-discriminator electra-large-discriminator",
    "google-t5": "t5-small t5-base t5-large",
    "openai-community": "gpt2 gpt2-medium gpt2-large gpt2-xl openai-gpt",
    "facebook": "bart-base bart-large",
    "answerdotai": "ModernBERT-base ModernBERT-large",
    "sentence-transformers": "all-MiniLM-L6-v2 all-mpnet-base-v2",
}


def resolve(name: str | Path, patterns: Sequence[str]) -> Path:
    """`name` itself when it exists, else the local copy of the hub repository `owner/name`, files `patterns` only.

    >>> resolve(".", ["*.json"])
    PosixPath('.')
    """
    path = Path(name).expanduser()
    if path.exists():
        return path
    found = _hub_name(str(name))
    if not found:
        _missing(str(name))
    # Imported here: 0.25 s that nobody with a folder needs to wait for.
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(
                found["repository"], revision=found["revision"], allow_patterns=list(patterns), etag_timeout=10
            )
        )
    except (OSError, ValueError) as error:  # every error of the hub is one of the two
        if path.parent.is_dir():  # a folder of that name is here: more likely a misspelt path than an owner
            _missing(str(name))
        revision = f" --revision {quote(found['revision'])}" if found["revision"] else ""
        raise UserError(
            f"{name} is neither a local path nor available on the hub: {_reason(error)}",
            expected=f"{VALID}; the network is needed the first time",
            hint=f"check the path, or, where there is a network: hf download {found['repository']}{revision}",
        ) from None


def pin(name: str) -> str:
    """A hub name with the commit that it stands for now; paths, and names that are pinned already, as they are."""
    found = _hub_name(name)
    if not found or is_pinned(name):
        return name
    commit = resolve(name, ["config.json"]).name  # the folder of a snapshot is called after its commit
    return f"{found['repository']}@{commit}" if COMMIT.fullmatch(commit) else name


def is_pinned(name: str) -> bool:
    """Whether a hub name has a commit, as in a run's recipe."""
    found = NAME.fullmatch(name)
    return found is not None and COMMIT.fullmatch(found["revision"] or "") is not None


def without_revision(name: str) -> str:
    """
    >>> without_revision("google-bert/bert-base-uncased@main"), without_revision("runs/a@b/model")
    ('google-bert/bert-base-uncased', 'runs/a@b/model')
    """
    found = _hub_name(name)
    return found["repository"] if found else name


def _hub_name(name: str) -> re.Match[str] | None:
    """Repository and revision, if `name` is neither a local path nor a run."""
    found = NAME.fullmatch(name)
    return found if found and not name.startswith(f"{LOCAL}/") and not Path(name).expanduser().exists() else None


def _missing(name: str) -> NoReturn:
    owner = next((owner for owner, names in OWNERS.items() if name in names.split()), None)
    if owner:
        from huggingface_hub import HfApi

        full = f"{owner}/{name}"
        try:
            HfApi().model_info(full, timeout=5)
            reached = ""
        except Exception as error:  # of the hub, of its HTTP client, of the network: they have no common class
            reached = f"; {_reason(error)}"
        raise UserError(
            f"no such file or folder: {name}; on the hub it is called {full}{reached}",
            expected=VALID,
            hint=f"{full} in place of {name}" + (f"; where there is a network: hf download {full}" if reached else ""),
        )
    path = Path(name).expanduser()
    try:
        siblings = [each.name for each in path.parent.iterdir()]
    except (OSError, ValueError):  # not there, not to be read, or no path at all
        siblings = []
    hint = f"ls {quote(path.parent)}" if siblings else None
    raise UserError(f"no such file or folder: {name}{nearest(path.name, siblings)}", expected=VALID, hint=hint)


def _reason(error: Exception) -> str:
    """What the hub said, or that it could not be asked."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, LocalEntryNotFoundError):  # nothing is here either; why the hub did not give it is the cause
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if isinstance(error, GatedRepoError):
        return "the hub gives it only to those who accepted its terms: hf auth login"
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such model, or it is private: hf auth login"
    if isinstance(error, RevisionNotFoundError):
        return "the hub has no such revision of it"
    said = str(error).strip().split("\n")[0]
    if isinstance(error, HfHubHTTPError | ValueError) and not isinstance(error, LocalEntryNotFoundError):
        return f"the hub did not give it: {said}"
    return f"the hub could not be reached: {said}"
