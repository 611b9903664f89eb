"""Resolve the name of a model or tokenizer: a local path, or a name on the Hugging Face hub.

All downloads go through `resolve`: a local path never causes a request, and without a network the user gets one message instead
of a series of retries. `owner/name@revision` selects a branch, a tag or a commit. A run writes the commit into its recipe (`pin`),
so that resuming or repeating it reads the same files. Names without an owner (`bert-base-uncased`) are not downloaded, because
every misspelled folder would cause a request; for well-known ones the error suggests the full name.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from unmask.errors import UserError, nearest, quote

NAME = re.compile(r"(?P<repository>\w[\w.-]*/[\w.-]+)(@(?P<revision>\w[\w./-]*))?")
VALID = "a path, or owner/name (or owner/name@revision) on the Hugging Face hub"
COMMIT = re.compile(r"[0-9a-f]{40}")
LOCAL = "runs"  # the folder of all runs, never an owner on the hub
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
    """Return `name` if it is a local path, else download the files that match `patterns` from the hub and return their folder.

    >>> resolve(".", ["*.json"])
    PosixPath('.')
    """
    path = Path(name).expanduser()
    if path.exists():
        return path
    match = _hub_name(str(name))
    if not match:
        _missing(str(name))
    # Imported here because it takes 0.25 s, which local paths do not need.
    from huggingface_hub import snapshot_download

    try:
        repository, revision = match["repository"], match["revision"]
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(patterns), etag_timeout=10))
    except (OSError, ValueError) as error:  # every error of the hub is one of these
        if path.parent.is_dir():  # "owner" is a local folder: more likely a misspelled path than a hub name
            _missing(str(name))
        option = f" --revision {quote(revision)}" if revision else ""
        raise UserError(
            f"{name} is neither a local path nor available on the hub: {_reason(error)}",
            expected=f"{VALID}; the network is needed the first time",
            hint=f"check the path, or, with a network: hf download {repository}{option}",
        ) from None


def pin(name: str) -> str:
    """Return a hub name with its current commit; paths and pinned names are returned unchanged."""
    match = _hub_name(name)
    if not match or is_pinned(name):
        return name
    commit = resolve(name, ["config.json"]).name  # the folder of a snapshot is named after its commit
    return f"{match['repository']}@{commit}" if COMMIT.fullmatch(commit) else name


def is_pinned(name: str) -> bool:
    """Return whether a hub name has a commit, as in a run's recipe."""
    match = NAME.fullmatch(name)
    return match is not None and COMMIT.fullmatch(match["revision"] or "") is not None


def without_revision(name: str) -> str:
    """
    >>> without_revision("google-bert/bert-base-uncased@main"), without_revision("runs/a@b/model")
    ('google-bert/bert-base-uncased', 'runs/a@b/model')
    """
    match = _hub_name(name)
    return match["repository"] if match else name


def _hub_name(name: str) -> re.Match[str] | None:
    """Match repository and revision; None if `name` is a local path or a run."""
    match = NAME.fullmatch(name)
    return match if match and not name.startswith(f"{LOCAL}/") and not Path(name).expanduser().exists() else None


def _missing(name: str) -> NoReturn:
    owner = next((owner for owner, names in OWNERS.items() if name in names.split()), None)
    if owner:
        from huggingface_hub import HfApi

        full = f"{owner}/{name}"
        try:
            HfApi().model_info(full, timeout=5)
            problem = ""
        except Exception as error:  # errors of the hub, its HTTP client and the network have no common class
            problem = f"; {_reason(error)}"
        raise UserError(
            f"no such file or folder: {name}; on the hub it is called {full}{problem}",
            expected=VALID,
            hint=f"use {full} instead of {name}" + (f"; with a network: hf download {full}" if problem else ""),
        )
    path = Path(name).expanduser()
    try:
        siblings = [sibling.name for sibling in path.parent.iterdir()]
    except (OSError, ValueError):  # missing, not readable, or not a valid path
        siblings = []
    raise UserError(
        f"no such file or folder: {name}{nearest(path.name, siblings)}",
        expected=VALID,
        hint="pass the folder of a run, or a model of the hub such as google-bert/bert-base-uncased",
    )


def _reason(error: Exception) -> str:
    """Explain why a download failed."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, LocalEntryNotFoundError):  # not in the cache either; its cause is the hub's error
        error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    if isinstance(error, GatedRepoError):
        return "access requires accepting the model's terms on the hub, then: hf auth login"
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such model, or it is private: hf auth login"
    if isinstance(error, RevisionNotFoundError):
        return "the hub has no such revision of it"
    reason = str(error).strip().split("\n")[0]
    if isinstance(error, HfHubHTTPError | ValueError) and not isinstance(error, LocalEntryNotFoundError):
        return f"the hub rejected the download: {reason}"
    return f"the hub could not be reached: {reason}"
