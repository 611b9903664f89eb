"""Corpus: read paths, folders, globs, standard input and samples as a stream of documents.

Iterating twice gives the same documents twice. Memory does not grow with the corpus. Nothing is skipped or
repaired silently: `report` counts every such case with its location. `describe()` explains how the text was
split into documents.
"""

import glob
import hashlib
import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

from unmask.errors import UserError, nearest
from unmask.files import new_file, rename
from unmask.recipe import DataRecipe
from unmask.renamed import hashed
from unmask.text.cache import cache_dir
from unmask.text.detect import STDIN, choose_modes, probe
from unmask.text.readers import Document, File, Reading
from unmask.text.report import Report

__all__ = ["Corpus", "Document", "File", "Report"]

# Part of the fingerprint. Increase it when a change of the code splits the same files into other documents.
SPLITTING_VERSION = 2


class Corpus:
    """
    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "a.txt").write_text("One text.\\n\\nAnother text.\\n\\nA third.\\n")
    >>> [(d.text, d.line) for d in Corpus([str(folder)])]
    [('One text.', 1), ('Another text.', 3), ('A third.', 5)]
    """

    def __init__(self, sources: Sequence[str], settings: DataRecipe | None = None):
        self.settings = settings or DataRecipe()
        self.sources = [os.fspath(source) for source in ([sources] if isinstance(sources, str) else sources)]
        self.files: list[File] = []
        self.skipped: list[tuple[str, str]] = []  # (name, reason)
        self._fingerprint = ""
        self._find()
        self.report = self._new_report()

    def __iter__(self) -> Iterator[Document]:
        self.report = report = self._new_report()
        for file in self.files:
            report.files += 1
            before = report.documents
            for document in Reading(file, report).documents():
                report.documents += 1
                report.characters += len(document.text)
                yield document
            if report.documents == before:
                report.add("empty_files", file.name, 0, "no text in it")
        if not report.documents:
            raise UserError(f"the corpus is empty: no text in {self._names()}\n{report}", hint=_HINT)

    @property
    def read_bytes(self) -> int:
        """Return how many of `bytes()` the running iteration has read."""
        return self.report.bytes

    def bytes(self) -> int:
        """Return the size on disk in bytes."""
        return sum(file.size for file in self.files)

    def fingerprint(self) -> str:
        """Return a checksum of the contents and of the settings that determine documents; names and paths do not count."""
        if not self._fingerprint:
            total = hashlib.blake2b(digest_size=16)
            boundary = _hashed_boundary(self.settings.document_boundary)
            total.update(f"{SPLITTING_VERSION} {boundary} {self.settings.encoding}".encode())
            for file in self.files:
                format = (file.encoding, file.column, file.delimiter, file.quotes, file.html)
                total.update(repr((file.kind, _hashed_boundary(file.mode), *format)).encode())
                with open(file.path, "rb") as raw:
                    total.update(hashlib.file_digest(raw, "blake2b").digest())
            self._fingerprint = total.hexdigest()
        return self._fingerprint

    def describe(self) -> str:
        """Describe the files and how they are split into documents, with the reason: one line per kind of file."""
        groups: dict[str, list[File]] = {}
        for file in self.files:
            encoding = "utf-8" if file.encoding in ("ascii", "auto") else file.encoding
            column = f", column {file.column!r}" if file.column else ""
            reason = f" ({file.reason})" if file.reason else ""
            description = f"{file.kind}, {encoding}: one document per {file.mode}{column}{reason}"
            groups.setdefault(description, []).append(file)
        lines = []
        for description, files in groups.items():
            name = files[0].name if len(files) == 1 else f"{len(files):,} files"
            lines.append(f"{name}, {sum(file.size for file in files) / 1e6:,.1f} MB {description}")
        if self.skipped:
            lines.append(f"{len(self.skipped):,} files skipped, first {self.skipped[0][0]}: {self.skipped[0][1]}")
        return "\n".join(lines)

    # ------------------------------------------------------------------------------------------------ finding

    def _find(self) -> None:
        problems: list[UserError] = []
        seen: set[str] = set()

        def probe_all(paths: Iterable[tuple[Path, str]], settings: DataRecipe, html: bool = False) -> list[File]:
            files = []
            for path, name in paths:
                if (real := os.path.realpath(path)) in seen:
                    continue
                seen.add(real)
                try:
                    files.append(probe(path, name, settings, html))
                except UserError as error:
                    problems.append(error)
                    self.skipped.append((name, error.message.removeprefix(f"{name}: ")))
            self.files += files
            return files

        requested: list[File] = []
        for source in self.sources:
            if source.startswith("sample:"):
                from unmask.text.samples import find_sample

                sample = find_sample(source.removeprefix("sample:"))
                settings = sample.settings(self.settings)
                paths = [(Path(path), f"{source}/{Path(path).name}") for path in sample.sources()]
                choose_modes(probe_all(paths, settings, sample.html), settings.document_boundary, "set by the sample")
            else:
                requested += probe_all(_expand(source), self.settings)
        if not self.files and problems:
            raise problems[0]
        if not any(file.size for file in self.files):
            raise UserError(f"the corpus is empty: no text in {self._names()}", hint=_HINT)
        choose_modes(requested, self.settings.document_boundary, "as requested")

    def _new_report(self) -> Report:
        report = Report()
        for name, reason in self.skipped:
            report.add("skipped_files", name, 0, reason)
        return report

    def _names(self) -> str:
        return ", ".join(self.sources[:5]) or "nothing"


_HINT = "pass files, folders, globs, - or sample:NAME; unmask samples lists the samples"


def _expand(source: str) -> Iterator[tuple[Path, str]]:
    """Yield (path, display name) of every file that `source` refers to, in sorted order."""
    if source == "-":
        yield _spool(sys.stdin.buffer), STDIN
        return
    path = Path(source).expanduser()
    if path.is_dir():
        yield from ((file, str(file)) for file in _walk(path))
    elif path.exists():
        special = not stat.S_ISREG(path.stat().st_mode)  # a pipe, as <(zcat a.gz): can be read only once
        if special:
            with open(path, "rb") as pipe:
                yield _spool(pipe), source
        else:
            yield path, source
    elif glob.has_magic(source):
        matches = sorted(glob.glob(str(path), recursive=True))
        if not matches:
            raise UserError(f"no file matches {source!r}", hint=_HINT)
        for match in matches:
            files = _walk(Path(match)) if Path(match).is_dir() else [Path(match)]
            yield from ((file, str(file)) for file in files)
    else:
        siblings = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        raise UserError(f"no such file or folder: {source}{nearest(path.name, siblings)}", hint=_HINT)


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder, without hidden ones. Links to folders are followed once."""
    visited = set()
    for parent, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(parent)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if real not in visited else []
        if real in visited:
            continue
        visited.add(real)
        for name in sorted(files):
            path = Path(parent, name)
            if not name.startswith(".") and path.is_file():
                yield path


def _spool(stream: BinaryIO) -> Path:
    """Copy a stream to the cache, named by its checksum: a corpus is read several times, a pipe only once."""
    folder = cache_dir() / "stdin"
    folder.mkdir(exist_ok=True)
    copy = folder / f"{os.getpid()}.partial"
    try:
        with new_file(copy) as file:
            shutil.copyfileobj(stream, file, 1 << 20)
        with open(copy, "rb") as file:
            name = hashlib.file_digest(file, "blake2b").hexdigest()[:32]
        rename(copy, folder / name)
    except OSError as error:  # usually a full disk
        raise UserError(f"cannot copy the input to {folder}: {error}", hint="set UNMASK_CACHE=FOLDER") from None
    return folder / name


def _hashed_boundary(value: str) -> str:
    """Return the value that version 0.1 hashed, so that older cached stores are still found."""
    return hashed("data", {"document_boundary": value})["documents"]
