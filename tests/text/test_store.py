"""The token store: its contents, and its robustness.

Every tokenizer type is compared with slow, plain reference implementations. Builds are really killed, run out of
disk space, and run concurrently.

"""

import contextlib
import json
import os
import pydoc_data.topics
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unmask.errors import UserError
from unmask.recipe import DataRecipe, TokenizerRecipe
from unmask.text import cache, scan
from unmask.text import prepare as prepare_module
from unmask.text.checked import write_checksums
from unmask.text.chunks import greedy_chunks
from unmask.text.corpus import Corpus
from unmask.text.dedupe import hash_record
from unmask.text.encode import DocumentEncoder, EncodeTask
from unmask.text.fast_wordpiece import FastWordPiece
from unmask.text.flags import DOCUMENT, SENTENCE, WORD
from unmask.text.prepare import prepare, store_key
from unmask.text.segmentation import sentence_starts, word_ids
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer

CHINESE = [
    "我们喜欢这部电影。演员的表演非常精彩！你觉得呢？",
    "北京大学的学生在图书馆学习。他们明天要考试，所以今天很紧张。",
    "这家酒店的服务态度很好，房间也很干净。下次还会来住。GOOD hotel!",
]
ENGLISH = [
    "Dr. Smith's dog didn't bark. Why?  It was café-trained,\nnaïve and (mostly) asleep!\n\nThe end…",
    "One sentence only, with an unknowable☃ sign",
    "  Leading and trailing space.  ",
    "a [MASK] in the text. And then more of it.",
]
KINDS = ["wordpiece", "bpe", "unigram", "char", "byte"]


@pytest.fixture(scope="module")
def documents() -> list[str]:
    """About 400 kB of English in 1,200 distinct documents."""
    blocks = "\n".join(pydoc_data.topics.topics.values()).split("\n\n")
    blocks = [" ".join(block.split()) for block in blocks]
    return list(dict.fromkeys(f"{a} {b}" for a, b in zip(blocks[::2], blocks[1::2]) if a and b))


@pytest.fixture(scope="module")
def tokenizers(documents) -> dict[str, Tokenizer]:
    texts = documents[::3] + CHINESE * 20 + ENGLISH * 5
    return {kind: Tokenizer.train(texts, TokenizerRecipe(type=kind, vocab_size=1200)) for kind in KINDS}


@pytest.fixture(scope="module")
def text_file(documents, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "docs.txt"
    path.write_text("\n\n".join([*documents, documents[5], documents[7]]), "utf-8")
    return path


def files_of(store: Path) -> dict[str, bytes]:
    """All files of a store except the timestamp of its last use."""
    return {
        str(path.relative_to(store)): path.read_bytes()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != "used"
    }


@pytest.fixture(scope="module")
def expected(text_file, tokenizers, tmp_path_factory) -> Path:
    """An uninterrupted build in one process."""
    out = tmp_path_factory.mktemp("expected") / "store"
    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(workers=1), out)
    tokenizers["wordpiece"].save(out.with_name("tokenizer"))
    return out


# ------------------------------------------------------------------------------------------------ boundaries


def reference(tokenizer: Tokenizer, text: str, language: str) -> tuple[list[int], list[int]]:
    """Return ids and flags of one document, implemented as simply as possible."""
    (encoding,) = tokenizer.encode_batch([text])
    words = word_ids(text, language).tolist()

    def inside(span):
        return [c for c in range(*span) if not text[c].isspace()]

    flags, word_starts = [], []
    previous = None  # the word in which the previous token ends
    for span in encoding.offsets:
        solid = inside(span)
        # only spaces: belongs to the word that follows
        first = solid[0] if solid else next((c for c in range(span[1], len(text)) if not text[c].isspace()), len(text))
        word = words[first] if first < len(text) else -1
        flags.append(WORD if word != previous else 0)
        previous = (words[span[1] - 1] if not text[span[1] - 1].isspace() else None) if solid else word
        word_starts.append(first)
    for start in sentence_starts(text, language).tolist():
        at = next((i for i, first in enumerate(word_starts) if first >= start), None)
        if at is not None:
            flags[at] |= SENTENCE | WORD
    if flags:
        flags[0] |= DOCUMENT | SENTENCE | WORD
    return encoding.ids, flags


@pytest.mark.parametrize("kind", KINDS)
def test_flags_match_a_plain_reference(kind, tokenizers, documents):
    tokenizer = tokenizers[kind]
    texts = [*ENGLISH, *CHINESE, *documents[:40], "", " \n ", "x"]
    for text in texts:
        language = "zh" if text in CHINESE else "en"
        result = DocumentEncoder(tokenizer, "auto")([EncodeTask(text)]).train
        ids, flags = reference(tokenizer, text, language)
        if not ids:
            assert len(result.tokens) == 0
            continue
        assert result.tokens.tolist() == [*ids, tokenizer.sep], text
        assert result.flags.tolist() == [*flags, 0], text


@pytest.mark.parametrize("kind", KINDS)
def test_batch_encoding_equals_single_encoding(kind, tokenizers, documents):
    texts = [*ENGLISH, *CHINESE, "", *documents[:30], " \n ", "end "]
    encode = DocumentEncoder(tokenizers[kind], "auto")
    together = encode([EncodeTask(text) for text in texts])
    alone = [encode([EncodeTask(text)]).train for text in texts]
    assert together.without_tokens == 1 + (kind == "wordpiece")  # the other tokenizers keep spaces
    assert together.train.tokens.tolist() == [t for a in alone for t in a.tokens.tolist()]
    assert together.train.flags.tolist() == [f for a in alone for f in a.flags.tolist()]
    bounds = np.append(together.train.documents, len(together.train.tokens))
    assert np.diff(bounds).tolist() == [len(a.tokens) for a in alone if len(a.tokens)]
    starts = np.flatnonzero(together.train.flags & SENTENCE)
    assert together.train.sentences.tolist() == starts.tolist()


def test_wordpiece_word_starts_match_the_hash_prefixes(tokenizers, documents):
    tokenizer = tokenizers["wordpiece"]
    text = " ".join(documents[:50])
    result = DocumentEncoder(tokenizer, "en")([EncodeTask(text)]).train
    inside = [tokenizer.token(i).startswith("##") for i in result.tokens.tolist()[:-1]]
    assert ((result.flags[:-1] & WORD) == 0).tolist() == inside
    assert sum(inside) > 500


def test_chinese_words_match_the_segmenter(tokenizers):
    tokenizer = tokenizers["wordpiece"]
    result = DocumentEncoder(tokenizer, "auto")([EncodeTask("我们喜欢电影。")]).train
    assert [tokenizer.token(i) for i in result.tokens.tolist()] == [*"我们喜欢电影。", "[SEP]"]
    assert (result.flags & WORD).tolist() == [1, 0, 1, 0, 1, 0, 1, 0]


def test_bytes_of_one_character_belong_to_one_word(tokenizers):
    result = DocumentEncoder(tokenizers["byte"], "zh")([EncodeTask("电影 ok")]).train
    assert len(result.tokens) == 6 + 3 + 1
    # 电影 is one word of six bytes; the space belongs to the word that follows
    assert (result.flags & WORD).tolist() == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0]


def test_document_longer_than_the_tokenization_chunk(tokenizers, documents):
    text = " ".join(documents)[:150_000]  # three batches
    for kind in ("bpe", "char"):
        result = DocumentEncoder(tokenizers[kind], "en")([EncodeTask(text)]).train
        assert result.tokens.tolist()[:-1] == tokenizers[kind].encode(text)


odd = st.text(
    alphabet=st.sampled_from(list("aAé-' .,\n\t[]你好，。\u0301\u00ad\ufffd\u3000\xa0\x85\x1c\u200b“”_ßİ☃\u2e52𠀀"))
)


@settings(deadline=None)  # allow slow machines
@given(st.lists(odd | st.sampled_from(["[MASK]", "[mask]", "##a", "a[SEP]b"]), max_size=8))
def test_cached_tokens_equal_the_tokenizer(tokenizers, texts):
    tokenizer = tokenizers["wordpiece"]
    assert FastWordPiece.supports_tokenizer(tokenizer)
    remembering, direct = DocumentEncoder(tokenizer, "auto"), DocumentEncoder(tokenizer, "auto")
    direct.wordpiece = None
    tasks = [EncodeTask(text) for text in texts]
    for _ in range(2):  # the second time everything is cached
        a, b = remembering(tasks).train, direct(tasks).train
        assert a.tokens.tolist() == b.tokens.tolist()
        assert a.flags.tolist() == b.flags.tolist()
        assert a.sentences.tolist() == b.sentences.tolist()


def test_token_cache_is_bounded(tokenizers, monkeypatch):
    monkeypatch.setattr("unmask.text.fast_wordpiece.MAX_CHUNKS", 50)
    encode = DocumentEncoder(tokenizers["wordpiece"], "en")
    for i in range(20):
        text = " ".join(f"word{i * 10 + j}" for j in range(30))
        assert encode([EncodeTask(text)]).train.tokens.tolist()[:-1] == tokenizers["wordpiece"].encode(text)
        assert encode.wordpiece is not None
        assert len(encode.wordpiece.index) <= 50 + 60


# ---------------------------------------------------------------------------------------------- the whole store


def test_every_document_can_be_read_back(expected, documents):
    store = TokenStore.open(expected)
    texts = {tuple(store.tokenizer.encode(text)) for text in documents}
    read = []
    for split in (store.train, store.heldout):
        assert split.documents[0] == split.sentences[0] == split.document_sentences[0] == 0
        assert split.documents[-1] == split.sentences[-1] == len(split.tokens) == len(split.flags)
        assert split.document_sentences[-1] == len(split.sentences) - 1
        assert np.array_equal(split.documents[:-1], np.flatnonzero(split.flags & DOCUMENT))
        assert np.array_equal(split.sentences[:-1], np.flatnonzero(split.flags & SENTENCE))
        for d, (start, end) in enumerate(pairwise(split.documents.tolist())):
            assert split.tokens[end - 1] == store.tokenizer.sep
            assert split.flags[end - 1] == 0
            first, last = split.document_sentences[d : d + 2]
            sentences = [split.tokens[split.sentences[s] : split.sentence_end(s)] for s in range(first, last)]
            body = split.tokens[start : end - 1]
            assert np.array_equal(np.concatenate(sentences), body)
            assert all(len(sentence) for sentence in sentences)
            read.append(tuple(body.tolist()))
    assert len(read) == len(set(read)) == len(documents)  # the two duplicates are dropped
    assert set(read) == texts


def test_meta_counts_match_the_contents(expected, text_file, documents):
    store = TokenStore.open(expected)
    meta = store.meta
    for split in (store.train, store.heldout):
        assert split.counts["words"] == int((split.flags & WORD > 0).sum())
        assert split.counts["unk_tokens"] == int((split.tokens == store.tokenizer.unk).sum())
        assert split.counts["single_sentence_documents"] == int((np.diff(split.document_sentences) == 1).sum())
    tokens = store.train.tokens[store.train.tokens != store.tokenizer.sep]
    _, counts = np.unique(tokens, return_counts=True)
    fractions = counts / counts.sum()
    assert meta["unigram_entropy"] == pytest.approx(-(fractions * np.log(fractions)).sum())
    assert meta["duplicates"]["exact"] == 2
    assert meta["duplicates"]["documents"] == len(documents) + 2
    lines = 2 * len(documents) + 1
    assert meta["duplicates"]["exact_examples"] == [f"{text_file}:{lines}", f"{text_file}:{lines + 2}"]
    assert meta["corpus"]["report"]["documents"] == len(documents) + 2
    assert meta["dtype"] == "uint16"
    assert 0.005 < len(store.heldout.tokens) / len(store.train.tokens) < 0.04
    assert f"duplicates: 2 of {len(documents) + 2:,} documents dropped" in store.describe()


def test_deduplication_can_be_disabled(text_file, tokenizers, tmp_path, documents):
    store = prepare(
        Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(deduplicate="off"), tmp_path / "store"
    )
    assert store.meta["train"]["documents"] + store.meta["heldout"]["documents"] == len(documents) + 2
    assert store.meta["duplicates"]["exact"] == 0


def test_near_duplicates_are_reported_with_their_location(tokenizers, tmp_path, documents):
    long = [text for text in documents if len(text.split()) > 100][:20]
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join([*long, long[3] + " Added."]), "utf-8")
    store = prepare(Corpus([str(path)]), tokenizers["wordpiece"], DataRecipe(), tmp_path / "store")
    near = store.meta["duplicates"]["near"]
    assert (near["near"], near["documents"]) == (1, 21)
    assert near["examples"] == [f"{path}:7 ~ {path}:41"]
    off = DataRecipe(minhash_sample=0)
    store = prepare(Corpus([str(path)]), tokenizers["wordpiece"], off, tmp_path / "off")
    assert store.meta["duplicates"]["near"]["documents"] == 0


def workers_of(process: psutil.Process) -> list[psutil.Process]:
    return [
        child
        for child in process.children()
        if child.status() != psutil.STATUS_ZOMBIE and "unmask.text.workers" in child.cmdline()
    ]


def test_store_bytes_do_not_depend_on_the_number_of_workers(text_file, tokenizers, tmp_path, expected, monkeypatch):
    monkeypatch.setattr(prepare_module, "MIN_PARALLEL_CHARS", 0)
    monkeypatch.setattr(prepare_module, "BATCH_CHARS", 20_000)
    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(workers=3), tmp_path / "store")
    assert files_of(tmp_path / "store") == files_of(expected)
    assert not list(tmp_path.glob("*partial*"))


def test_workers_do_not_import_torch():
    code = "import sys, unmask.text.workers, unmask.text.prepare; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_killed_worker_is_reported(text_file, tokenizers, tmp_path, expected, monkeypatch):
    monkeypatch.setattr(prepare_module, "MIN_PARALLEL_CHARS", 0)
    monkeypatch.setattr(prepare_module, "BATCH_CHARS", 20_000)
    monkeypatch.setattr(prepare_module, "JOURNAL_BATCHES", 1)

    def kill_one(done: int, total: int, message: str) -> None:
        if message == "tokenizing" and (workers := workers_of(psutil.Process())):
            workers[0].kill()

    corpus, settings = Corpus([str(text_file)]), DataRecipe(workers=2)
    with pytest.raises(UserError, match="a worker process ended with code -9"):
        prepare(corpus, tokenizers["wordpiece"], settings, tmp_path / "store", kill_one)
    assert not workers_of(psutil.Process())
    prepare(corpus, tokenizers["wordpiece"], settings, tmp_path / "store")  # resumes
    assert files_of(tmp_path / "store") == files_of(expected)


def test_large_vocabularies_use_four_bytes_per_token(tokenizers):
    encode = DocumentEncoder(tokenizers["wordpiece"], "en")
    assert encode([EncodeTask("a")]).train.tokens.dtype == np.uint16

    class Large:  # training a vocabulary of 70,000 takes long; only its size is used here
        size, sep, backend = 70_000, 3, tokenizers["wordpiece"].backend
        encode_batch = staticmethod(tokenizers["wordpiece"].encode_batch)

    assert DocumentEncoder(Large(), "en")([EncodeTask("a")]).train.tokens.dtype == np.uint32


# -------------------------------------------------------------------------------------------------- held out


def plan_of(tmp_path: Path, texts: list[str], heldout: float) -> tuple[scan.SplitPlan, list[int]]:
    (tmp_path / "scan").write_bytes(b"".join(map(hash_record, texts)))
    plan = scan.make_split_plan(tmp_path / "scan", tmp_path / "plan", True, heldout, 0)
    return plan, [bits for bits, _ in scan.read_decisions(tmp_path / "scan", tmp_path / "plan")]


def heldout_ids(bits: list[int]) -> list[int]:
    return [i for i, b in enumerate(bits) if b & scan.HELDOUT]


def test_adding_documents_does_not_change_the_split_of_others(tmp_path):
    texts = [f"document number {i}" for i in range(scan.MAX_RANKED_DOCUMENTS + 2000)]
    _, before = plan_of(tmp_path, texts, 0.02)
    _, after = plan_of(tmp_path, [f"another {i}" for i in range(3000)] + texts, 0.02)
    assert heldout_ids(before) == [i - 3000 for i in heldout_ids(after) if i >= 3000]
    assert 0.015 < len(heldout_ids(before)) / len(texts) < 0.025


@pytest.mark.parametrize("fraction", [0.01, 0.02, 0.1, 0.5])
def test_eval_fraction_is_met_with_few_documents_of_uneven_length(tmp_path, fraction):
    rng = np.random.default_rng(0)
    texts = [f"{i} " + "x" * int(n) for i, n in enumerate(rng.lognormal(8, 1.2, 249))]
    plan, bits = plan_of(tmp_path, texts, fraction)
    taken = sum(len(texts[i]) for i in heldout_ids(bits))
    assert plan.tail_of == -1
    assert 0.5 * fraction < taken / sum(map(len, texts)) < 1.5 * fraction


@pytest.mark.parametrize("sizes", [[100, 100], [10, 100_000], [100] * 5, [100] * 30, [5000, 10, 10, 10]])
@pytest.mark.parametrize("fraction", [0.001, 0.02, 0.3, 0.9])
def test_neither_split_is_empty(tmp_path, sizes, fraction):
    plan, bits = plan_of(tmp_path, [f"{i}" + "x" * n for i, n in enumerate(sizes)], fraction)
    assert heldout_ids(bits) or plan.tail > 0
    assert len(heldout_ids(bits)) < len(sizes)
    assert 0 <= plan.tail < 1
    if fraction < 0.2:  # never half of the text for 2%
        assert sum(sizes[i] for i in heldout_ids(bits)) <= scan.MAX_DOCUMENT_FRACTION * sum(sizes) + len(sizes)


def test_single_document_is_split_between_sentences(tokenizers, tmp_path, documents):
    path = tmp_path / "book.txt"
    sentences = [f"This is sentence number {i} of the book." for i in range(200)]
    path.write_text(" ".join(sentences), "utf-8")
    store = prepare(
        Corpus([str(path)], DataRecipe(document_boundary="file")),
        tokenizers["wordpiece"],
        DataRecipe(eval_fraction=0.1),
        tmp_path / "s",
    )
    assert (store.meta["train"]["documents"], store.meta["heldout"]["documents"]) == (1, 1)
    trained, held_out = store.meta["train"]["sentences"], store.meta["heldout"]["sentences"]
    assert trained + held_out == 200
    assert len(store.heldout.tokens) / (len(store.train.tokens) + len(store.heldout.tokens)) == pytest.approx(
        0.1, abs=0.005
    )
    assert store.tokenizer.decode(store.heldout.tokens[:10]).startswith(f"this is sentence number {trained}")
    assert "last 10.0% of the longest document" in store.meta["heldout_rule"]
    assert store.heldout.flags[0] == DOCUMENT | SENTENCE | WORD


def test_split_of_two_single_sentence_documents(tokenizers, tmp_path):
    path = tmp_path / "two.txt"
    path.write_text("first document\n\nsecond document", "utf-8")
    store = prepare(Corpus([str(path)]), tokenizers["wordpiece"], DataRecipe(), tmp_path / "store")
    assert (store.meta["train"]["documents"], store.meta["heldout"]["documents"]) == (1, 1)


def test_single_chunk_ends_with_the_text(tokenizers, tmp_path):
    path = tmp_path / "one.txt"
    path.write_text("first sentence. second sentence.\n\nthird sentence. fourth sentence.", "utf-8")
    store = prepare(Corpus([str(path)]), tokenizers["wordpiece"], DataRecipe(), tmp_path / "store")
    assert len(store.train.chunks(64)) == 1 and store.train.truncated_chunks(64) == 0


def test_eval_fraction_zero_holds_out_nothing(text_file, tokenizers, tmp_path):
    store = prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(eval_fraction=0), tmp_path / "store")
    assert len(store.heldout.tokens) == 0
    assert store.heldout.documents.tolist() == store.heldout.sentences.tolist() == [0]
    assert store.heldout.chunks(64).shape == (0, 2)
    assert store.heldout.truncated_chunks(64) == 0


# ------------------------------------------------------------------------------------ killed, disk full, concurrent builds

SCRIPT = """
import os, resource, signal, sys, time
from unmask.text import prepare as module
from unmask.text.corpus import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.recipe import DataRecipe
from unmask.errors import UserError

text, tokenizer, out = sys.argv[1:4]
module.BATCH_CHARS, module.JOURNAL_BATCHES, module.MIN_PARALLEL_CHARS = 10_000, 2, 0
calls = 0
def progress(done, total, message):
    global calls
    calls += message == "tokenizing"
    {action}
try:
    module.prepare(Corpus([text]), Tokenizer.load(tokenizer), DataRecipe(workers={workers}), out, progress)
except UserError as error:
    sys.exit(str(error))
"""


def child(text_file: Path, expected: Path, out: Path, action: str, workers: int = 1) -> subprocess.Popen:
    script = SCRIPT.format(action=action, workers=workers)
    arguments = [str(text_file), str(expected.with_name("tokenizer")), str(out)]
    return subprocess.Popen([sys.executable, "-c", script, *arguments], stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("calls", "workers"), [(1, 1), (7, 1), (21, 2)])
def test_killed_build_resumes(text_file, expected, tokenizers, tmp_path, calls, workers):
    out = tmp_path / "store"
    process = child(text_file, expected, out, f"if calls == {calls}: os.kill(os.getpid(), signal.SIGKILL)", workers)
    assert process.wait() == -signal.SIGKILL
    assert not out.exists()
    (partial,) = tmp_path.glob("store.partial-*")
    journal = json.loads((partial / "journal.json").read_text().splitlines()[0])
    assert (journal["documents"] > 0) == (calls > 2)
    again = {}

    def seen(done: int, total: int, message: str) -> None:
        again[message] = again.get(message, 0) + 1

    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(workers=1), out, seen)
    assert "reading" not in again  # the first pass is not repeated
    assert files_of(out) == files_of(expected)
    assert not list(tmp_path.glob("*partial*"))


@pytest.mark.parametrize("damage", ["corrupt", "truncate", "data", "plan"])
def test_damaged_partial_store_is_rebuilt(text_file, expected, tokenizers, tmp_path, damage):
    out = tmp_path / "store"
    process = child(text_file, expected, out, "if calls == 7: os.kill(os.getpid(), signal.SIGKILL)")
    process.wait()
    (partial,) = tmp_path.glob("store.partial-*")
    journal = partial / "journal.json"
    if damage == "corrupt":
        journal.write_text(journal.read_text().replace('"documents": ', '"documents": 1', 1))
    elif damage == "truncate":
        journal.write_text(journal.read_text()[:100])
    elif damage == "data":
        os.truncate(partial / "train" / "flags.bin", 10)
    else:
        (partial / "plan.bin").unlink()
    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(workers=1), out)
    assert files_of(out) == files_of(expected)


def test_build_killed_before_the_final_rename_resumes(text_file, expected, tokenizers, tmp_path):
    corpus, key = Corpus([str(text_file)]), TokenStore.open(expected).meta["key"]
    partial = tmp_path / f"store.partial-{key}"
    shutil.copytree(expected, partial)
    prepare(corpus, tokenizers["wordpiece"], DataRecipe(workers=1), tmp_path / "store")
    assert files_of(tmp_path / "store") == files_of(expected)


def test_workers_exit_when_the_parent_is_killed(text_file, expected, tmp_path):
    process = child(text_file, expected, tmp_path / "store", "if calls == 3: time.sleep(60)", workers=2)
    try:
        parent, workers, deadline = psutil.Process(process.pid), [], time.time() + 20
        while len(workers) < 2 and time.time() < deadline:
            workers = workers_of(parent)
            time.sleep(0.05)
        assert len(workers) == 2
        process.kill()
        _, alive = psutil.wait_procs(workers, timeout=10)
        assert not alive
    finally:
        process.kill()
        process.wait()


def test_concurrent_builds_make_one_store(text_file, expected, tmp_path):
    out = tmp_path / "store"
    action = "print(message, file=sys.stderr)"
    first = child(text_file, expected, out, "time.sleep(0.05)")
    while not list(tmp_path.glob("store.partial-*/lock")):
        time.sleep(0.01)
        assert first.poll() is None
    second = child(text_file, expected, out, action)
    stderr = second.communicate(timeout=60)[1]
    assert first.wait() == second.returncode == 0, stderr
    assert f"waiting for process {first.pid}" in stderr
    assert "tokenizing" not in stderr
    assert files_of(out) == files_of(expected)
    assert not list(tmp_path.glob("*partial*"))


def test_build_resumes_after_a_full_disk(text_file, expected, tokenizers, tmp_path):
    """The system rejects files above 60,000 bytes, as on a full disk."""
    out = tmp_path / "store"
    process = child(
        text_file, expected, out, "if calls == 1: resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))"
    )
    stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "the disk is full: File too large" in stderr
    assert "MB more are needed" in stderr
    assert "run the same command again" in stderr
    assert "Traceback" not in stderr
    (partial,) = tmp_path.glob("store.partial-*")
    assert json.loads((partial / "journal.json").read_text().splitlines()[0])["documents"] > 0
    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(workers=1), out)
    assert files_of(out) == files_of(expected)


def test_unwritable_folder_raises(text_file, tokenizers, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match="cannot prepare"):
        prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(), tmp_path / "file" / "store")


def test_corpus_changed_during_the_build_raises(text_file, tokenizers, tmp_path):
    path = tmp_path / "a.txt"
    shutil.copy(text_file, path)

    class Changing(Corpus):
        def __iter__(self):
            yield from super().__iter__()
            path.write_text("Something else.\n\nAnd more.", "utf-8")

    with pytest.raises(UserError, match="changed while it was being prepared"):
        prepare(Changing([str(path)]), tokenizers["wordpiece"], DataRecipe(), tmp_path / "store")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


# ----------------------------------------------------------------------------------------------- keys and directories


def test_finished_store_is_reused(text_file, expected, tokenizers):
    def never(done: int, total: int, message: str) -> None:
        assert (done, total, message) == (1, 1, "already prepared")

    settings = DataRecipe(workers=5, corpus=["elsewhere"])  # neither changes the bytes
    store = prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], settings, expected, never)
    assert store.path == expected


def test_store_key_depends_on_everything_that_affects_the_bytes(text_file, tokenizers, tmp_path):
    corpus, tokenizer = Corpus([str(text_file)]), tokenizers["wordpiece"]
    other = tmp_path / "other.txt"
    other.write_text("Another text.\n\nAnd one more.", "utf-8")
    keys = {
        store_key(corpus, tokenizer, DataRecipe()),
        store_key(corpus, tokenizers["bpe"], DataRecipe()),
        store_key(Corpus([str(other)]), tokenizer, DataRecipe()),
        store_key(corpus, tokenizer, DataRecipe(eval_fraction=0.1)),
        store_key(corpus, tokenizer, DataRecipe(language="zh")),
        store_key(corpus, tokenizer, DataRecipe(deduplicate="off")),
    }
    assert len(keys) == 6


def test_another_store_is_never_overwritten(text_file, expected, tokenizers, tmp_path):
    before = files_of(expected)
    with pytest.raises(UserError, match=r"with other inputs: another tokenizer; heldout 0.02, now 0.1"):
        prepare(Corpus([str(text_file)]), tokenizers["bpe"], DataRecipe(eval_fraction=0.1), expected)
    assert files_of(expected) == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    with pytest.raises(UserError, match="is not a token store"):
        prepare(Corpus([str(text_file)]), tokenizers["bpe"], DataRecipe(), tmp_path / "mine")
    assert [p.name for p in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_empty_folder_is_accepted(text_file, expected, tokenizers, tmp_path):
    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(), tmp_path)
    assert files_of(tmp_path) == files_of(expected)


def test_corpus_without_tokens_raises(tokenizers, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\u200b\u200b\n\n\u200b", "utf-8")  # only characters that BERT removes
    with pytest.raises(UserError, match="contains a token to train on"):
        prepare(Corpus([str(path)]), tokenizers["wordpiece"], DataRecipe(), tmp_path / "store")
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_damaged_and_unrelated_folders_raise(expected, tmp_path):
    with pytest.raises(UserError, match="no such token store"):
        TokenStore.open(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a token store") as caught:
        TokenStore.open(tmp_path)
    assert " -o " not in str(caught.value.hint)  # a run or a corpus directory is not suggested for a store
    store = tmp_path / "store"
    shutil.copytree(expected, store)
    os.truncate(store / "train" / "tokens.bin", 100)
    with pytest.raises(UserError, match=r"damaged: .*tokens.bin: it has 100 bytes"):
        TokenStore.open(store)
    (store / "train" / "tokens.bin").unlink()
    with pytest.raises(UserError, match="damaged"):
        TokenStore.open(store)
    meta = json.loads((store / "meta.json").read_text())
    (store / "meta.json").write_text(json.dumps({**meta, "format": 99}))
    write_checksums(store / "meta.json")
    with pytest.raises(UserError, match="has format 99"):
        TokenStore.open(store)
    (store / "meta.json").write_text("{")
    write_checksums(store / "meta.json")
    with pytest.raises(UserError, match="cannot read"):
        TokenStore.open(store)


# -------------------------------------------------------------------------------------------------- the cache


def test_cache_list_and_prune(text_file, tokenizers, tmp_path, monkeypatch):
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path))
    store = prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe())
    assert store.path.parent == tmp_path / "stores"
    assert store.path.name == f"docs-{store.meta['key']}"
    half = tmp_path / "stores" / "half.partial-123"
    half.mkdir()
    (half / "lock").touch()
    (half / "tokens.bin").write_bytes(bytes(1000))
    entries = {entry.path: entry for entry in cache.cache_entries()}
    assert entries[half].complete is False
    assert entries[half].bytes == 1000
    whole = entries[store.path]
    assert (whole.kind, whole.complete) == ("store", True)
    assert whole.bytes == sum(p.stat().st_size for p in store.path.rglob("*") if p.is_file())
    assert abs(whole.last_used - time.time()) < 60
    assert whole.as_dict()["path"] == str(store.path)

    with open(half / "lock") as file:  # another process is using it
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
        assert cache.prune() == []
        assert cache.prune(older_than_days=1) == []
    assert [entry.path for entry in cache.prune()] == [half]
    assert cache.prune(older_than_days=1) == []
    month_ago = time.time() - 30 * 86_400
    for path in store.path.rglob("*"):
        os.utime(path, (month_ago, month_ago))
    TokenStore.open(store.path)  # used just now
    assert cache.prune(older_than_days=20) == []
    os.utime(store.path / "used", (month_ago, month_ago))
    assert [entry.path for entry in cache.prune(older_than_days=20)] == [store.path]
    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe())
    assert len(cache.prune(everything=True)) == 1
    assert cache.cache_entries() == []


# ---------------------------------------------------------------------------------------------------- chunks


def plain_chunks(documents: list[list[int]], budget: int) -> list[list[int]]:
    """Follow the docstring literally: sentence lengths of documents → [first, last) sentence numbers."""
    chunks, base = [], 0
    for lengths in documents:
        s = 0
        while s < len(lengths):
            e = s + 1
            while e < len(lengths) and (sum(lengths[s : e + 1]) <= budget or e == s + 1):
                e += 1
            if e - s >= 2:
                chunks.append([base + s, base + e])
            elif s > 0:
                chunks.append([base + s - 1, base + e])
            s = e
        base += len(lengths)
    return chunks


@given(st.lists(st.lists(st.integers(1, 12), min_size=1, max_size=9), min_size=1, max_size=6), st.integers(2, 20))
def test_chunks_match_a_plain_reference(documents, budget):
    starts, bounds = [], [0]
    at = 0
    for lengths in documents:
        for length in lengths:
            starts.append(at)
            at += length
        at += 1  # [SEP]
        bounds.append(len(starts))
    chunks = greedy_chunks(np.array([*starts, at]), np.array(bounds), budget).tolist()
    assert chunks == plain_chunks(documents, budget)


@pytest.mark.parametrize("block", [1, 50, 1 << 18])
def test_chunks_of_a_store(expected, tmp_path, monkeypatch, block):
    monkeypatch.setattr("unmask.text.chunks.BLOCK_SENTENCES", block)
    shutil.copytree(expected, tmp_path / "store")
    split = TokenStore.open(tmp_path / "store").train
    length = 64
    chunks = split.chunks(length)
    bounds = split.document_sentences.tolist()
    lengths = [split.sentence_end(s) - int(split.sentences[s]) for s in range(len(split.sentences) - 1)]
    assert chunks.tolist() == plain_chunks([lengths[a:b] for a, b in pairwise(bounds)], length - 3)
    over = sum(sum(lengths[a:b]) > length - 3 for a, b in chunks.tolist())
    assert 0 < over == split.truncated_chunks(length)
    assert all(b - a == 2 for a, b in chunks.tolist() if sum(lengths[a:b]) > length - 3)
    # saved, and read back the next time
    assert (split.path / "chunks-64.bin").stat().st_size == 16 * len(chunks)
    monkeypatch.setattr("unmask.text.store.pair_chunks", None)
    assert np.array_equal(TokenStore.open(tmp_path / "store").train.chunks(length), chunks)
    assert not list(split.path.glob("*.partial"))


def test_chunks_are_indexed_with_the_store(text_file, tokenizers, tmp_path):
    prepare(Corpus([str(text_file)]), tokenizers["wordpiece"], DataRecipe(), tmp_path / "s", lengths=(32, 128))
    names = [f"chunks-{n}.{kind}{sums}" for n in (128, 32) for kind in ("bin", "json") for sums in ("", ".sum")]
    assert sorted(p.name for p in (tmp_path / "s").glob("*/chunks*")) == sorted(2 * names)


def test_truncated_chunk_count_is_cached(expected, tmp_path, monkeypatch):
    """A run starts in seconds for any corpus size: the saved count is read, not recomputed."""
    shutil.copytree(expected, tmp_path / "store")
    counted = TokenStore.open(tmp_path / "store").train.truncated_chunks(64)
    with monkeypatch.context() as patch:
        patch.setattr("unmask.text.store.Split._count_truncated", None)
        assert TokenStore.open(tmp_path / "store").train.truncated_chunks(64) == counted > 0
    (tmp_path / "store" / "train" / "chunks-64.json").write_text("{")  # damaged: recomputed
    assert TokenStore.open(tmp_path / "store").train.truncated_chunks(64) == counted


def test_chunks_of_a_store_that_cannot_be_written(expected, tmp_path, monkeypatch):
    shutil.copytree(expected, tmp_path / "store")
    split = TokenStore.open(tmp_path / "store").train
    expected_chunks = TokenStore.open(expected).train.chunks(48)
    (split.path / f"chunks-48.bin.{os.getpid()}.partial").mkdir()  # opening it for writing fails, even for root
    assert np.array_equal(split.chunks(48), expected_chunks)
    assert not (split.path / "chunks-48.bin").exists()


# ---------------------------------------------------------------------------------------------------- memory

MEASURED = """
import sys
from unmask.text import prepare as module
from unmask.text.corpus import Corpus
from unmask.text.tokenizer import Tokenizer
from unmask.recipe import DataRecipe

module.MIN_PARALLEL_CHARS = 0
module.prepare(Corpus([sys.argv[1]]), Tokenizer.load(sys.argv[2]), DataRecipe(workers=2), sys.argv[3], lengths=(128,))
"""


def write_text(path: Path, megabytes: int) -> None:
    """Sentences with Zipf-distributed words, in documents of several lines; never all in memory."""
    rng = np.random.default_rng(0)
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < megabytes * 1_000_000:
            ranks = (rng.zipf(1.4, 200_000) % 1_000_003).tolist()
            words = [f"lorem{rank:x}" for rank in ranks]
            for at in range(0, len(words), 100):
                lines = [" ".join(words[i : i + 10]) for i in range(at, at + 100, 10)]
                file.write(". ".join(lines).title() + ".\n\n")


def peak_memory(text: Path, tokenizer: Path, out: Path) -> float:
    """Peak resident memory of the process and its workers in megabytes."""
    process = subprocess.Popen([sys.executable, "-c", MEASURED, str(text), str(tokenizer), str(out)])
    peak, parent = 0, psutil.Process(process.pid)
    while process.poll() is None:
        total = 0
        with contextlib.suppress(psutil.Error):
            for one in [parent, *parent.children(recursive=True)]:
                total += one.memory_info().rss
        peak = max(peak, total)
        time.sleep(0.02)
    assert process.returncode == 0
    return peak / 1e6


def growth(tmp_path: Path, tokenizer: Tokenizer, small: int, large: int) -> float:
    tokenizer.save(tmp_path / "tokenizer")
    peaks = []
    for megabytes in (small, large):
        text, out = tmp_path / f"{megabytes}.txt", tmp_path / f"store-{megabytes}"
        write_text(text, megabytes)
        peaks.append(peak_memory(text, tmp_path / "tokenizer", out))
        assert TokenStore.open(out).meta["train"]["tokens"] > 100_000 * megabytes
        text.unlink()
        shutil.rmtree(out)
    return peaks[1] - peaks[0]


def test_memory_does_not_grow_with_the_text(tokenizers, tmp_path):
    assert growth(tmp_path, tokenizers["wordpiece"], 4, 16) < 50


@pytest.mark.slow
def test_1_gb_corpus_needs_at_most_100_mb_more_than_10_mb(tokenizers, tmp_path):
    assert growth(tmp_path, tokenizers["wordpiece"], 10, 1000) < 100
