"""A store under construction: its lock, its growing files, their counts, and the journal from which a killed build continues."""

import fcntl
import io
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from unmask.files import sync, write_bytes, write_text
from unmask.text.checked import checksums_path, compute_checksums, write_checksums, write_folder_checksums
from unmask.text.encode import EncodeResult
from unmask.text.flags import WORD
from unmask.text.store import SPLITS
from unmask.text.tokenizer import Tokenizer

OFFSETS = ("documents", "sentences", "document_sentences")


@contextmanager
def build_lock(folder: Path, log: Callable[[str], None]) -> Iterator[None]:
    """Let one process build in `folder`; others wait for it, since they need the same store."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            file = open(folder / "lock", "a+")  # noqa: SIM115 - closed by the `with` below
        except FileNotFoundError:  # its owner has just published it
            continue
        with file:
            waited = False
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waited:
                        file.seek(0)
                        log(f"waiting for process {file.read().strip() or '?'}, which is building the same store")
                        waited = True
                    time.sleep(0.1)
            try:
                is_current = os.path.samestat(os.fstat(file.fileno()), os.stat(folder / "lock"))
            except FileNotFoundError:
                is_current = False
            if not is_current:  # the folder was published or removed while this process waited: try again
                continue
            file.truncate(0)
            file.write(f"{os.getpid()}\n")
            file.flush()
            yield
            with suppress(OSError):
                (folder / "lock").unlink()
                folder.rmdir()  # only when empty: nothing was built here
            return


class PartialStoreFiles:
    """The growing files of a partial store. Offsets are written as starts; `finish` adds the last end."""

    def __init__(self, folder: Path, sizes: dict[str, int], dtype: np.dtype[Any]):
        self.dtype = dtype
        names = [f"{split}/{name}.bin" for split in SPLITS for name in ("tokens", "flags", *OFFSETS)]
        self.files: dict[str, BinaryIO] = {}
        for name in [*names, "signatures.bin"]:
            file = open(folder / name, "ab")  # noqa: SIM115 - closed by __exit__
            file.truncate(sizes.get(name, 0))  # what a killed build wrote after its last journal entry
            file.seek(0, os.SEEK_END)
            self.files[name] = file

    @staticmethod
    def are_complete(folder: Path, sizes: dict[str, int]) -> bool:
        """Return whether every file has at least the bytes recorded in the journal."""
        try:
            return all((folder / name).stat().st_size >= size for name, size in sizes.items())
        except OSError:
            return False

    def __enter__(self) -> "PartialStoreFiles":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self.files.values():
            with suppress(OSError):  # a full disk, which was already reported by the write itself
                file.close()

    def append(self, result: EncodeResult) -> None:
        for split in SPLITS:
            arrays = getattr(result, split)
            tokens, sentences = self._ends(split)
            self._write(f"{split}/tokens.bin", arrays.tokens)
            self._write(f"{split}/flags.bin", arrays.flags)
            self._write(f"{split}/documents.bin", arrays.documents + tokens)
            self._write(f"{split}/sentences.bin", arrays.sentences + tokens)
            self._write(f"{split}/document_sentences.bin", arrays.document_sentences + sentences)
        self._write("signatures.bin", result.signatures)

    def finish(self) -> None:
        for split in SPLITS:
            tokens, sentences = self._ends(split)
            for name, end in zip(OFFSETS, (tokens, tokens, sentences)):
                self._write(f"{split}/{name}.bin", np.array([end], np.int64))
        self.sync()

    def sync(self) -> dict[str, int]:
        for file in self.files.values():
            file.flush()
            sync(Path(file.name))
        return {name: file.tell() for name, file in self.files.items()}

    def _ends(self, split: str) -> tuple[int, int]:
        """Return the numbers of tokens and sentences written so far."""
        tokens = self.files[f"{split}/tokens.bin"].tell() // self.dtype.itemsize
        return tokens, self.files[f"{split}/sentences.bin"].tell() // 8

    def _write(self, name: str, array: np.ndarray) -> None:
        self.files[name].write(array.tobytes())


def clear_folder(folder: Path) -> None:
    for path in folder.iterdir():
        if path.name == "lock":
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def write_store_checksums(folder: Path, meta: bytes) -> None:
    """Write the checksums of a complete store; meta.json, which marks the store as complete, is written later."""
    for path in (folder / split / f"{name}.bin" for split in SPLITS for name in ("tokens", "flags", *OFFSETS)):
        write_checksums(path)
    write_folder_checksums(folder / "tokenizer")
    write_bytes(checksums_path(folder / "meta.json"), compute_checksums(io.BytesIO(meta)))


def count_split(split: Path, dtype: np.dtype[Any], tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the statistics of a split for meta.json and its token counts; files are read in blocks."""
    counts = np.zeros(tokenizer.size, np.int64)
    words = 0
    checksum = blake2b(digest_size=16)
    for block in _blocks(split / "tokens.bin", dtype):
        counts += np.bincount(block, minlength=tokenizer.size)
        checksum.update(block.tobytes())
    for block in _blocks(split / "flags.bin", np.dtype(np.uint8)):
        words += int(np.count_nonzero(block & WORD))
        checksum.update(block.tobytes())
    documents = (split / "documents.bin").stat().st_size // 8 - 1
    single, last = 0, None
    for block in _blocks(split / "document_sentences.bin", np.dtype(np.int64)):
        joined = block if last is None else np.append(last, block)
        single += int((np.diff(joined) == 1).sum())
        last = block[-1:]
    # GPT-2's unknown token is the end-of-document token, because its tokenizer can encode every text.
    tokens, unknown = int(counts.sum()), 0 if tokenizer.unk == tokenizer.sep else int(counts[tokenizer.unk])
    counts[tokenizer.sep] -= documents
    return {
        "tokens": tokens,  # including one [SEP] per document
        "documents": documents,
        "sentences": (split / "sentences.bin").stat().st_size // 8 - 1,
        "words": words,
        "unk_tokens": unknown,
        "unk_share": unknown / max(1, tokens - documents),
        "single_sentence_documents": single,
        "checksum": checksum.hexdigest(),
        "counts": counts,
    }


def _blocks(path: Path, dtype: np.dtype[Any]) -> Iterator[np.ndarray]:
    with open(path, "rb") as file:
        while len(block := np.fromfile(file, dtype, 1 << 20)):
            yield block


def write_journal(path: Path, journal: dict[str, Any]) -> None:
    text = json.dumps(journal)
    write_text(path, f"{text}\n{blake2b(text.encode()).hexdigest()}\n")


def read_journal(path: Path) -> dict[str, Any] | None:
    """Return the journal, or None if it is missing or damaged."""
    try:
        text, checksum, _ = path.read_text("utf-8").split("\n")
    except (OSError, ValueError):
        return None
    return json.loads(text) if blake2b(text.encode()).hexdigest() == checksum else None
