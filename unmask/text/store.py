"""TokenStore: a corpus as memory-mapped token ids with word, sentence and document boundaries.

Written once by `unmask.text.prepare`, read by every objective. Flat files and a memory map, as in nanoGPT:
opening takes the same time for a megabyte and a terabyte, and processes on one machine share the pages. Every file
has checksums next to it (`F.sum`, see `checked`), so a damaged byte is an error before it is trained on. The folder:

    meta.json                    settings, key, counts, duplicates, unigram entropy
    tokenizer/                   the tokenizer that produced the ids
    train/, heldout/             one `Split` each:
      tokens.bin                 (N,) uint16, or uint32 when the vocabulary is above 65,536
      flags.bin                  (N,) uint8: WORD | SENTENCE | DOCUMENT starts at this token
      documents.bin              (D+1,) int64: where each document starts in tokens; the last is N
      sentences.bin              (S+1,) int64: where each sentence starts in tokens; the last is N
      document_sentences.bin     (D+1,) int64: number of each document's first sentence; the last is S
      chunks-<length>.bin        (C, 2) int64: sentence ranges for pairs, written at first use
      chunks-<length>.json       number of chunks that are too long for a row

Every document is followed by one `[SEP]` with flag 0. It belongs to the document's range but to no sentence:

    document d   tokens[documents[d] : documents[d + 1]], the last of which is [SEP]
    sentence s   tokens[sentences[s] : sentence_end(s)], where the end is sentences[s + 1], minus one if sentence
                 s + 1 starts another document or does not exist
"""

import io
import json
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from unmask.errors import UserError, command, quote
from unmask.files import parse_json
from unmask.metrics import format_count
from unmask.text.cache import cache_dir
from unmask.text.checked import (
    ChecksummedFile,
    LazyArray,
    checksums_path,
    compute_checksums,
    read_checked,
    verify_folder,
    write_with_checksums,
)
from unmask.text.chunks import bert_equivalent_length, pair_chunks
from unmask.text.flags import DOCUMENT
from unmask.text.tokenizer import Tokenizer

FORMAT = 1  # version of the folder layout; stores of other versions are rejected
SPLITS = ("train", "heldout")
NO_CHECKSUMS = "damage to it cannot be detected. Prepare the text again to add checksums"
USED = "used"  # an empty file; its modification time is the last use of the store (for `unmask cache prune`)


class Split:
    """One side of the held-out split; its arrays are memory-mapped, read-only and verified before they are used."""

    def __init__(self, path: Path, dtype: str, counts: dict[str, Any], hint: str, has_checksums: bool):
        """`hint`: the command that rebuilds the store."""
        self.path, self.counts, self.has_checksums = path, counts, has_checksums
        tokens, documents, sentences = counts["tokens"], counts["documents"], counts["sentences"]
        shapes = {
            "tokens": (np.dtype(dtype), tokens),
            "flags": (np.dtype("uint8"), tokens),
            "documents": (np.dtype("int64"), documents + 1),
            "sentences": (np.dtype("int64"), sentences + 1),
            "document_sentences": (np.dtype("int64"), documents + 1),
        }
        self.dtypes = {name: value_type for name, (value_type, _) in shapes.items()}
        self.files = {
            name: ChecksummedFile(path / f"{name}.bin", count * value_type.itemsize, hint, has_checksums)
            for name, (value_type, count) in shapes.items()
        }
        arrays = {name: file.map(self.dtypes[name]) for name, file in self.files.items()}
        self.tokens, self.flags = arrays["tokens"], arrays["flags"]
        self.documents, self.sentences = arrays["documents"], arrays["sentences"]
        self.document_sentences = arrays["document_sentences"]
        self._chunks: dict[int, np.ndarray | LazyArray] = {}

    def sentence_end(self, s: int) -> int:
        """Return the index after the last token of sentence `s`, without the document's [SEP]."""
        end = int(self.sentences[s + 1])
        return end - 1 if end == len(self.tokens) or self.flags[end] & DOCUMENT else end

    def read(self, name: str, start: int, end: int) -> np.ndarray:
        """Read values [start, end) of a file. The memory map is not used, because its pages would count as our memory."""
        return self.files[name].read(self.dtypes[name], start, end)

    def chunks(self, length: int) -> "np.ndarray | LazyArray":
        """Return (C, 2) int64: ranges [first, last) of at least two sentences of one document, for pairs of `length` tokens.

        They are computed once per length and saved in the store folder, or kept in memory if it is read-only.
        """
        if length not in self._chunks:
            path = self.path / f"chunks-{length}.bin"
            if not path.exists() or (self.has_checksums and not checksums_path(path).exists()):
                blocks = pair_chunks(self.read, self.counts["documents"], length)
                try:
                    write_with_checksums(path, (block.tobytes() for block in blocks))
                except OSError:
                    blocks = pair_chunks(self.read, self.counts["documents"], length)
                    self._chunks[length] = np.concatenate([np.zeros((0, 2), np.int64), *blocks])
                    return self._chunks[length]
            hint = f"{command('rm', path)}  (it is rebuilt when it is needed)"
            file = ChecksummedFile(path, path.stat().st_size // 16 * 16, hint, checksums_path(path).exists())
            self._chunks[length] = file.map(np.dtype("int64"), 2)
        return self._chunks[length]

    def truncated_chunks(self, length: int) -> int:
        """Return the number of chunks that are longer than a row and have to be truncated.

        They are counted once per length and saved next to the chunks, so that a run on a large corpus starts in seconds.
        """
        path = self.path / f"chunks-{length}.json"
        with suppress(OSError, ValueError, KeyError, TypeError):
            text = path.read_bytes()
            if not self.has_checksums or checksums_path(path).read_bytes() == compute_checksums(io.BytesIO(text)):
                return int(json.loads(text)["truncated"])
        count = self._count_truncated(length)
        with suppress(OSError):  # a read-only store counts again next time
            write_with_checksums(path, [json.dumps({"truncated": count}).encode()])
        return count

    def _count_truncated(self, length: int) -> int:
        chunks, count, total = self.chunks(length), 0, len(self.tokens)
        for low in range(0, len(chunks), 1 << 16):
            first, last = chunks[low : low + (1 << 16)].T
            sentence = int(first.min())
            starts = self.read("sentences", sentence, int(last.max()) + 1)
            begin, end = starts[first - sentence], starts[last - sentence]
            token = min(int(end.min()), total - 1)  # one chunk may end where the text does
            flags = self.read("flags", token, min(int(end.max()) + 1, total))
            inside = np.minimum(end, total - 1) - token
            sep = (end == total) | (flags[np.clip(inside, 0, len(flags) - 1)] & DOCUMENT > 0)
            count += int((end - sep - begin > length - 3).sum())
        return count


class TokenStore:
    """A prepared corpus. `TokenStore.open(folder)` opens one; `unmask.text.prepare.prepare` builds one."""

    def __init__(self, path: Path, meta: dict[str, Any]):
        self.path, self.meta = path, meta
        checksums, hint = has_checksums(path), rebuild_command(path)
        self.notes = [] if checksums else [f"{path} has no checksums (an older version wrote it): {NO_CHECKSUMS}"]
        if checksums:
            verify_folder(path / "tokenizer", hint)
        try:
            self.train, self.heldout = (
                Split(path / name, meta["dtype"], meta[name], hint, checksums) for name in SPLITS
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"this file is damaged: {path / 'meta.json'}: {error!r}", hint=hint) from None

    @classmethod
    def open(cls, path: str | Path) -> "TokenStore":
        path = Path(path)
        meta = read_meta(path)
        if meta is None:
            raise UserError(
                f"{path} is not a token store (no meta.json)" if path.exists() else f"no such token store: {path}",
                expected="a folder that `unmask prepare` wrote",
                hint=f"run unmask prepare CORPUS, and pass the folder that it prints instead of {path}"
                if path.exists()  # a run or a corpus, into which no store should be written
                else f"unmask prepare CORPUS -o {quote(path)}",
            )
        if meta.get("format") != FORMAT:
            raise UserError(
                f"the token store {path} has format {meta.get('format')}",
                expected=f"format {FORMAT}",
                hint="prepare the corpus again into another folder",
            )
        store = cls(path, meta)
        with suppress(OSError):  # a read-only store is fine; it only looks unused
            (path / USED).touch()
        return store

    def index(self, lengths: Iterable[int]) -> None:
        """Index and count the sentence pairs for sequences of these lengths."""
        for length in (bert_equivalent_length(length, self.tokenizer) for length in lengths):
            for split in (self.train, self.heldout):
                split.chunks(length)
                split.truncated_chunks(length)

    def describe(self) -> str:
        """Summarize the store in a few lines: training text, validation text and duplicates."""
        train, heldout, duplicates = self.meta["train"], self.meta["heldout"], self.meta["duplicates"]
        near = duplicates["near"]
        lines = [
            f"{self.path}: {', '.join(format_count(train[f'{noun}s'], noun) for noun in ('token', 'word', 'sentence', 'document'))} to train on",
            f"validation: {format_count(heldout['tokens'], 'token')} in {format_count(heldout['documents'], 'document')} "
            f"({self.meta['heldout_rule']})",
            f"duplicates: {duplicates['exact']:,} of {duplicates['documents']:,} documents dropped "
            "(equal to an earlier one)" + (f" (e.g. {duplicates['exact_examples'][0]})" if duplicates["exact"] else ""),
        ]
        if near["near"]:
            lines.append(
                f"near duplicates: {near['near']:,} of {near['documents']:,} sampled ({near['share']:.1%}), kept; "
                f"e.g. {near['examples'][0]}"
            )
        if near["leaked"]:
            lines.append(
                f"{near['leaked']:,} of {near['heldout']:,} sampled validation documents are near duplicates of training "
                "text: the validation loss will be too optimistic"
            )
        return "\n".join(lines)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer.load(self.path / "tokenizer")


def read_meta(path: Path) -> dict[str, Any] | None:
    """Read the meta.json of a store; None if it is missing."""
    file = path / "meta.json"
    if not file.is_file():
        return None
    text = read_checked(file, rebuild_command(path), has_checksums(path))
    try:
        meta = parse_json(text)
    except ValueError as error:  # possible only in a store without checksums
        raise UserError(f"cannot read {file}: {error}", hint=rebuild_command(path)) from None
    if not isinstance(meta, dict):
        raise UserError(f"{file} does not describe a token store", hint=rebuild_command(path))
    return meta


def has_checksums(path: Path) -> bool:
    """Return whether a store was written with checksums. Any checksum file counts, so that a lost one is detected."""
    return any(checksums_path(path / name).exists() for name in ("meta.json", "train/tokens.bin"))


def rebuild_command(path: Path) -> str:
    """Return the command that rebuilds a damaged store."""
    folder = quote(path)
    if path.resolve().parent == (cache_dir() / "stores").resolve():
        return f"rm -r {folder}  (then run the same command again, or --resume the run: the text is prepared again)"
    return f"rm -r {folder} && unmask prepare CORPUS -o {folder}"
