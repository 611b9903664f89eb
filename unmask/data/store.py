"""TokenStore: a corpus as memory-mapped token numbers with word, sentence and document boundaries.

Written once by `unmask.data.prepare`, read by every objective. Flat files and a memory map, as in nanoGPT:
opening takes the same time for a megabyte and a terabyte, and processes on one machine share the pages. The
folder:

    meta.json                    settings, key, counts, duplicates, unigram entropy: everything known about the text
    tokenizer/                   the tokenizer that made the numbers
    train/, heldout/             one `Split` each:
      tokens.bin                 (N,) uint16, or uint32 when the vocabulary is above 65,536
      flags.bin                  (N,) uint8: WORD | SENTENCE | DOCUMENT starts at this token
      documents.bin              (D+1,) int64: where each document starts in tokens; the last is N
      sentences.bin              (S+1,) int64: where each sentence starts in tokens; the last is N
      document_sentences.bin     (D+1,) int64: number of each document's first sentence; the last is S
      chunks-<length>.bin        (C, 2) int64: sentence ranges for pairs, made when first asked for
      chunks-<length>.json       how many of them are too long for a row

Every document is followed by one `[SEP]` with flag 0, which is inside the document's range but in no
sentence:

    document d   tokens[documents[d] : documents[d + 1]], the last of which is [SEP]
    sentence s   tokens[sentences[s] : sentence_end(s)], where the end is sentences[s + 1], less one when sentence
                 s + 1 begins another document or there is none
"""

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unmask.data.chunks import as_berts, pair_chunks
from unmask.data.flags import DOCUMENT
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError, quote

FORMAT = 1  # of the folder; a store of another format is refused
SPLITS = ("train", "heldout")
USED = "used"  # an empty file whose time says when the store was last opened; `unmask cache prune` reads it


class Split:
    """One side of the held-out split; its arrays are memory-mapped and read-only."""

    def __init__(self, path: Path, dtype: str, counts: dict[str, Any]):
        self.path, self.counts = path, counts
        tokens, documents, sentences = counts["tokens"], counts["documents"], counts["sentences"]
        self.tokens = _map(path / "tokens.bin", dtype, tokens)
        self.flags = _map(path / "flags.bin", "uint8", tokens)
        self.documents = _map(path / "documents.bin", "int64", documents + 1)
        self.sentences = _map(path / "sentences.bin", "int64", sentences + 1)
        self.document_sentences = _map(path / "document_sentences.bin", "int64", documents + 1)
        self._chunks: dict[int, np.ndarray] = {}

    def sentence_end(self, s: int) -> int:
        """Token after the last of sentence `s`; the document's [SEP] is left out."""
        end = int(self.sentences[s + 1])
        return end - 1 if end == len(self.tokens) or self.flags[end] & DOCUMENT else end

    def chunks(self, length: int) -> np.ndarray:
        """(C, 2) int64: sentences [first, last) of one document, two at least, for a pair row of `length`
        tokens.

        Indexed once per length and kept in the store folder (in memory where the folder cannot be written).
        """
        if length not in self._chunks:
            path = self.path / f"chunks-{length}.bin"
            if not path.exists():
                blocks = pair_chunks(self.path, self.counts, length)
                try:
                    _write_blocks(path, blocks)
                except OSError:
                    blocks = pair_chunks(self.path, self.counts, length)
                    self._chunks[length] = np.concatenate([np.zeros((0, 2), np.int64), *blocks])
                    return self._chunks[length]
            self._chunks[length] = _map(path, "int64", path.stat().st_size // 8).reshape(-1, 2)
        return self._chunks[length]

    def truncated_chunks(self, length: int) -> int:
        """How many chunks are two sentences too long for the row, which the reader has to cut.

        Counted once per length and kept beside the chunks: a run starts in seconds, whatever the corpus.
        """
        path = self.path / f"chunks-{length}.json"
        with suppress(OSError, ValueError, KeyError, TypeError):
            return int(json.loads(path.read_text("utf-8"))["truncated"])
        over = self._count_truncated(length)
        with suppress(OSError):  # a store that cannot be written counts again next time
            _write_blocks(path, [json.dumps({"truncated": over}).encode()])
        return over

    def _count_truncated(self, length: int) -> int:
        """By reading, not by the memory maps: pages that were looked at once would count as this process's memory."""
        chunks, over, total = self.chunks(length), 0, len(self.tokens)
        for low in range(0, len(chunks), 1 << 16):
            first, last = chunks[low : low + (1 << 16)].T
            sentence = int(first.min())
            starts = self._read("sentences.bin", np.dtype("int64"), sentence, int(last.max()) + 1)
            begin, end = starts[first - sentence], starts[last - sentence]
            token = min(int(end.min()), total - 1)  # one chunk may end where the text does
            flags = self._read("flags.bin", np.dtype("uint8"), token, min(int(end.max()) + 1, total))
            inside = np.minimum(end, total - 1) - token
            sep = (end == total) | (flags[np.clip(inside, 0, len(flags) - 1)] & DOCUMENT > 0)
            over += int((end - sep - begin > length - 3).sum())
        return over

    def _read(self, name: str, dtype: np.dtype, start: int, end: int) -> np.ndarray:
        return np.fromfile(self.path / name, dtype, end - start, offset=start * dtype.itemsize)


class TokenStore:
    """A prepared corpus: `TokenStore.open(folder)`, or what `unmask.data.prepare.prepare` returns."""

    def __init__(self, path: Path, meta: dict[str, Any]):
        self.path, self.meta = path, meta
        self.train, self.heldout = (Split(path / name, meta["dtype"], meta[name]) for name in SPLITS)

    @classmethod
    def open(cls, path: str | Path) -> "TokenStore":
        path = Path(path)
        meta = read_meta(path)
        if meta is None:
            raise UserError(
                f"{path} is not a token store (no meta.json)" if path.exists() else f"no such token store: {path}",
                valid="a folder that `unmask prepare` wrote",
                fix=f"unmask prepare CORPUS -o {quote(path)}",
            )
        if meta.get("format") != FORMAT:
            raise UserError(
                f"the token store {path} has format {meta.get('format')}",
                valid=f"format {FORMAT}",
                fix="prepare it again into another folder",
            )
        store = cls(path, meta)
        with suppress(OSError):  # a read-only store is fine; it only looks unused
            (path / USED).touch()
        return store

    def index(self, lengths: Iterable[int]) -> None:
        """Sentence pairs for rows of these lengths, found and counted now."""
        for length in (as_berts(length, self.tokenizer) for length in lengths):
            for split in (self.train, self.heldout):
                split.chunks(length)
                split.truncated_chunks(length)

    def describe(self) -> str:
        """A few lines for people: how much text, what was held out, dropped and found to be double."""
        train, heldout, double = self.meta["train"], self.meta["heldout"], self.meta["duplicates"]
        near = double["near"]
        lines = [
            f"{self.path}: {train['tokens']:,} tokens, {train['words']:,} words, {train['sentences']:,} sentences, "
            f"{train['documents']:,} documents to train on",
            f"held out: {heldout['tokens']:,} tokens in {heldout['documents']:,} documents "
            f"({self.meta['heldout_rule']})",
            f"duplicates: {double['exact']:,} of {double['documents']:,} documents dropped, equal to an earlier one"
            + (f" (e.g. {double['exact_examples'][0]})" if double["exact"] else ""),
        ]
        if near["near"]:
            lines.append(
                f"near duplicates: {near['near']:,} of {near['documents']:,} looked at ({near['share']:.1%}), kept; "
                f"e.g. {near['examples'][0]}"
            )
        if near["leaked"]:
            lines.append(
                f"{near['leaked']:,} of {near['heldout']:,} held-out documents looked at are near duplicates of text "
                "trained on: held-out figures will look better than they are"
            )
        return "\n".join(lines)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path / "tokenizer")


def read_meta(path: Path) -> dict[str, Any] | None:
    """A store's meta.json; None when there is none."""
    try:
        meta = json.loads((path / "meta.json").read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path / 'meta.json'}: {error}", fix=f"delete {path} and prepare again") from None
    return meta


def _map(path: Path, dtype: str, count: int) -> np.ndarray:
    """The whole file as a read-only array; its size must be what meta.json says."""
    try:
        found = path.stat().st_size
    except OSError as error:
        raise UserError(f"the token store is damaged: {error}", fix="delete it and prepare again") from None
    expected = count * np.dtype(dtype).itemsize
    if found != expected:
        raise UserError(
            f"the token store is damaged: {path} has {found:,} bytes, not {expected:,}",
            fix="delete it and prepare again",
        )
    if not count:
        return np.zeros(0, dtype)  # an empty file cannot be mapped
    # A plain ndarray over the map: slicing np.memmap itself costs several microseconds each time.
    return np.asarray(np.memmap(path, dtype, "r"))


def _write_blocks(path: Path, blocks: Iterable[np.ndarray | bytes]) -> None:
    """All or nothing; two processes doing the same at once write the same bytes."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            for block in blocks:
                file.write(block if isinstance(block, bytes) else block.tobytes())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
