"""Tokenize a corpus into a TokenStore: in parallel, atomically, and resumable after a kill.

There are two passes. The first hashes every document and decides whether it is dropped, held out or trained on
(`scan`). The second tokenizes (`encode`, in `workers`) and appends to the store's files. Results are written in
corpus order, so the bytes do not depend on the number of workers. Hashes, plan and tokens are on disk, so memory
does not grow with the corpus.

The store is built in `<out>.partial-<key>` and renamed when complete. After every JOURNAL_BATCHES batches the
files are synced and their sizes written to `journal.json`. A killed build truncates the files to these sizes
and resumes there. A second process that needs the same store waits for the first.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from unmask.errors import UserError
from unmask.files import new_file, rename, write_text
from unmask.recipe import DataRecipe
from unmask.renamed import hashed
from unmask.text.cache import cache_dir
from unmask.text.corpus import Corpus
from unmask.text.dedupe import PERMUTATIONS, hash_record, near_duplicates
from unmask.text.encode import EncodeTask
from unmask.text.partial import (
    PartialStoreFiles,
    build_lock,
    clear_folder,
    count_split,
    read_journal,
    write_journal,
    write_store_checksums,
)
from unmask.text.scan import DROPPED, HELDOUT, SAMPLED, SplitPlan, make_split_plan, read_decisions
from unmask.text.store import FORMAT, SPLITS, TokenStore, read_meta
from unmask.text.tokenizer import Tokenizer
from unmask.text.workers import encode_inline, encode_parallel

Progress = Callable[[int, int, str], None]  # bytes done, bytes in total, current step

BATCH_CHARS = 1 << 19  # characters per batch for a worker
JOURNAL_BATCHES = 32  # batches between two journal entries: some seconds of work
MIN_PARALLEL_CHARS = 5_000_000  # below this, starting workers takes longer than they save
MAX_EXAMPLES = 5  # locations reported for each kind of duplicate
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def store_parts(corpus: Corpus, tokenizer: Tokenizer, settings: DataRecipe) -> dict[str, Any]:
    """Return everything that determines the bytes of a store. Document boundaries are part of the corpus fingerprint."""
    return {
        "format": FORMAT,
        "corpus": corpus.fingerprint(),
        "tokenizer": tokenizer.fingerprint(),
        **hashed("data", settings.model_dump(include={"language", "eval_fraction", "deduplicate", "minhash_sample"})),
    }


def store_key(corpus: Corpus, tokenizer: Tokenizer, settings: DataRecipe) -> str:
    """Return 16 hexadecimal digits; equal keys mean equal bytes."""
    return _key(store_parts(corpus, tokenizer, settings))


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    settings: DataRecipe,
    out: str | Path | None = None,
    progress: Progress | None = None,
    lengths: Sequence[int] = (),
) -> TokenStore:
    """Tokenize the corpus into a TokenStore in the folder `out` (None: in the cache, under its key).

    An existing store with the same key is opened; one with another key is never modified.
    `lengths`: row lengths of sentence-pair objectives. The index of chunks for them is built now, not at the first row.
    """
    parts = store_parts(corpus, tokenizer, settings)
    key = _key(parts)
    path = Path(out) if out is not None else _cache_path(corpus, key)
    report = progress or (lambda done, total, message: None)
    if _is_complete(path, key, parts):
        report(1, 1, "already prepared")
    else:
        partial = path.with_name(f"{path.name}.partial-{key}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with build_lock(partial, lambda message: report(0, corpus.bytes(), message)):
                if not _is_complete(path, key, parts):  # another process may have built it while we waited
                    _Build(corpus, tokenizer, settings, partial, parts, report).run()
                    _publish(partial, path, key, parts)
        except OSError as error:
            raise _explain_os_error(error, path, partial, corpus) from error
    store = TokenStore.open(path)
    store.index(lengths)
    return store


def cached_store(corpus: Corpus, tokenizer: Tokenizer, settings: DataRecipe) -> TokenStore | None:
    """Return the cached store, or None."""
    path = _cache_path(corpus, store_key(corpus, tokenizer, settings))
    return TokenStore.open(path) if (path / "meta.json").exists() else None


def _cache_path(corpus: Corpus, key: str) -> Path:
    """Return the store's path in the cache. It starts with a readable name, from the first source."""
    first = corpus.sources[0] if corpus.sources else "corpus"
    name = re.sub(r"[^\w-]+", "-", Path(first).stem if first != "-" else "stdin").strip("-")
    return cache_dir() / "stores" / f"{name[:40] or 'corpus'}-{key}"


class _Build:
    """Build a store in its partial folder, from scratch or from its journal."""

    def __init__(
        self,
        corpus: Corpus,
        tokenizer: Tokenizer,
        settings: DataRecipe,
        folder: Path,
        parts: dict[str, Any],
        progress: Progress,
    ):
        self.corpus, self.tokenizer, self.settings = corpus, tokenizer, settings
        self.folder, self.parts, self.progress = folder, parts, progress
        self.dtype = np.dtype(np.uint16 if tokenizer.size <= 1 << 16 else np.uint32)
        self.scan, self.plan, self.journal = folder / "scan.bin", folder / "plan.bin", folder / "journal.json"

    def run(self) -> None:
        if not (self.folder / "meta.json").exists():  # otherwise the build was killed after its last step
            journal = read_journal(self.journal)
            if journal is None or not PartialStoreFiles.are_complete(self.folder, journal["sizes"]):
                journal = self._start()
            plan = SplitPlan(**journal["plan"])
            with PartialStoreFiles(self.folder, journal["sizes"], self.dtype) as files:
                sampled, dropped = self._encode(plan, journal, files)
                files.finish()
            meta = self._meta(plan, journal, sampled, dropped)
            text = json.dumps(meta, indent=1, ensure_ascii=False) + "\n"
            write_store_checksums(self.folder, text.encode())
            write_text(self.folder / "meta.json", text)
        for path in (self.scan, self.plan, self.journal, self.folder / "signatures.bin"):
            path.unlink(missing_ok=True)

    def _start(self) -> dict[str, Any]:
        """Clear the folder, run the first pass and write the first journal entry."""
        clear_folder(self.folder)
        for name in SPLITS:
            (self.folder / name).mkdir()
        self.tokenizer.save(self.folder / "tokenizer")
        try:
            plan = self._scan()
        except UserError:  # the corpus is unusable, so there is nothing to resume
            shutil.rmtree(self.folder)
            raise
        sizes = {path.name: path.stat().st_size for path in (self.scan, self.plan)}
        journal = {"plan": asdict(plan), "documents": 0, "without_tokens": 0, "sizes": sizes}
        write_journal(self.journal, journal)
        return journal

    def _scan(self) -> SplitPlan:
        """Run the first pass: write one hash record per document, then the split plan."""
        with new_file(self.scan) as file:
            done = 0
            for document in self.corpus:
                file.write(hash_record(document.text))
                if self.corpus.read_bytes - done > 1 << 20:
                    done = self.corpus.read_bytes
                    self.progress(done, self.corpus.bytes(), "reading")
        settings = self.settings
        return make_split_plan(
            self.scan, self.plan, settings.deduplicate == "exact", settings.eval_fraction, settings.minhash_sample
        )

    def _encode(
        self, plan: SplitPlan, journal: dict[str, Any], files: PartialStoreFiles
    ) -> tuple[list[tuple[str, bool]], list[str]]:
        """Run the second pass. The documents that the journal counts are already in `files`.

        Return (location, is held out) of every sampled document, and the locations of a few dropped ones.
        """
        sampled: list[tuple[str, bool]] = []
        dropped: list[str] = []
        workers = self.settings.workers or os.cpu_count() or 1
        batches = self._batches(plan, journal["documents"], sampled, dropped)
        if workers == 1 or plan.characters < MIN_PARALLEL_CHARS:
            results = encode_inline(self.tokenizer, self.settings.language, batches)
        else:
            results = encode_parallel(workers, self.folder / "tokenizer", self.settings.language, batches)
        with closing(results):  # stops the workers on errors too
            for number, (result, documents) in enumerate(results, 1):
                files.append(result)
                journal["documents"] = documents
                journal["without_tokens"] += result.without_tokens
                if number % JOURNAL_BATCHES == 0:
                    journal["sizes"] |= files.sync()
                    write_journal(self.journal, journal)
                self.progress(self.corpus.read_bytes, self.corpus.bytes(), "tokenizing")
        return sampled, dropped

    def _batches(
        self, plan: SplitPlan, done: int, sampled: list[tuple[str, bool]], dropped: list[str]
    ) -> Iterator[tuple[list[EncodeTask], int]]:
        """Yield (documents to encode, number of corpus documents read so far).

        Adds the locations of sampled and dropped documents to `sampled` and `dropped`.
        """
        batch: list[EncodeTask] = []
        characters = number = 0
        planned = read_decisions(self.scan, self.plan)
        is_only_document = plan.documents - plan.dropped == 1
        for number, document in enumerate(self.corpus, 1):
            bits, planned_length = next(planned, (0, -1))
            if len(document.text) != planned_length:
                self._raise_changed()
            location = f"{document.source}:{document.line}"
            if bits & DROPPED:
                if len(dropped) < MAX_EXAMPLES:
                    dropped.append(location)
                continue
            if bits & SAMPLED:
                sampled.append((location, bool(bits & HELDOUT)))
            if number <= done:
                continue
            tail = plan.tail if number - 1 == plan.tail_of else 0.0
            batch.append(EncodeTask(document.text, bool(bits & HELDOUT), bool(bits & SAMPLED), tail, is_only_document))
            characters += len(document.text)
            if characters >= BATCH_CHARS:
                yield batch, number
                batch, characters = [], 0
        if next(planned, None) is not None:
            self._raise_changed()
        if batch:
            yield batch, number

    def _raise_changed(self) -> None:
        shutil.rmtree(self.folder)
        raise UserError(
            "the corpus changed while it was being prepared",
            hint="run the same command again when the corpus no longer changes",
        )

    def _meta(
        self, plan: SplitPlan, journal: dict[str, Any], sampled: list[tuple[str, bool]], dropped: list[str]
    ) -> dict[str, Any]:
        from unmask import __version__  # not at the top: `unmask` imports this module

        splits = {name: count_split(self.folder / name, self.dtype, self.tokenizer) for name in SPLITS}
        counts: np.ndarray = splits["train"].pop("counts")
        splits["heldout"].pop("counts")
        if not splits["train"]["tokens"]:
            shutil.rmtree(self.folder)
            raise UserError(
                f"none of the {plan.documents:,} documents ({plan.characters:,} characters) contains a token to train on",
                hint="train a tokenizer on this text: unmask tokenizer train CORPUS",
            )
        share = counts[counts > 0] / counts.sum()
        signatures = np.fromfile(self.folder / "signatures.bin", np.uint32).reshape(-1, PERMUTATIONS)
        near = near_duplicates(signatures, np.array([held_out for _, held_out in sampled], bool), MAX_EXAMPLES)
        pairs = [f"{sampled[a][0]} ~ {sampled[b][0]}" for a, b in near.examples]
        return {
            "format": FORMAT,
            "unmask": __version__,
            "key": _key(self.parts),
            "parts": self.parts,
            "corpus": {
                "description": self.corpus.describe(),
                "report": self.corpus.report.as_dict(),
                "lines": self.corpus.report.lines(),
            },
            "vocabulary": self.tokenizer.size,
            "dtype": self.dtype.name,
            **splits,
            "heldout_rule": plan.rule,
            # nats per training token without [SEP]: the loss of a model that predicts by frequency alone
            "unigram_entropy": float(-(share * np.log(share)).sum()),
            "documents_without_tokens": journal["without_tokens"],
            "duplicates": {
                "documents": plan.documents,
                "exact": plan.dropped,
                "exact_share": plan.dropped / plan.documents,
                "exact_examples": dropped,
                # A lower bound if the corpus is larger than the sample: a duplicate may be outside the sample.
                "near": {**asdict(near), "share": near.near / max(1, near.documents), "examples": pairs},
            },
        }


# ------------------------------------------------------------------------------------------- folders and files


def _is_complete(path: Path, key: str, parts: dict[str, Any]) -> bool:
    """Return whether the complete store exists; raises UserError if the folder contains something else."""
    meta = read_meta(path)
    if meta is None:
        if path.exists() and not (path.is_dir() and not any(path.iterdir())):
            raise UserError(f"{path} exists and is not a token store", hint="choose another folder with -o")
        return False
    if meta.get("key") != key:
        old = meta.get("parts", {})
        changes = [
            f"another {name}" if name in ("corpus", "tokenizer") else f"{name} {old.get(name)}, now {parts[name]}"
            for name in parts
            if old.get(name) != parts[name]
        ]
        raise UserError(
            f"{path} contains a token store with other inputs: {'; '.join(changes)}",
            hint="choose another folder with -o, or delete this one",
        )
    return True


def _publish(partial: Path, path: Path, key: str, parts: dict[str, Any]) -> None:
    try:
        rename(partial, path)  # `path` does not exist or is an empty folder
    except OSError:
        if not _is_complete(path, key, parts):
            raise
        shutil.rmtree(partial)
    (path / "lock").unlink(missing_ok=True)  # held until now, so that no other process started a new build


def _explain_os_error(error: OSError, path: Path, partial: Path, corpus: Corpus) -> UserError:
    if error.errno not in _DISK_FULL:
        return UserError(f"cannot prepare {path}: {error}", hint="choose another folder with -o")
    written = sum(file.stat().st_size for file in partial.rglob("*") if file.is_file())
    # In English, tokens and flags take about 3 bytes per 4 bytes of text; boundaries and hashes take the rest.
    needed = max(int(1.2 * corpus.bytes()) - written, 0)
    free = shutil.disk_usage(path.parent).free
    return UserError(
        f"the disk is full: {error.strerror} after {written / 1e6:,.1f} MB in {partial}; "
        f"about {needed / 1e6:,.1f} MB more are needed, {free / 1e6:,.1f} MB are free",
        hint="free disk space and run the same command again to continue, or choose another disk with -o",
    )


def _key(parts: dict[str, Any]) -> str:
    return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).hexdigest()
