"""Token stores detect damage: one flipped bit in any file raises an error that names the file, before the data is
used."""

import os
from pathlib import Path

import numpy as np
import pytest

from unmask import api
from unmask.batch import StepConfig
from unmask.errors import UserError
from unmask.recipe import DataRecipe
from unmask.text import checked
from unmask.text.checked import ChecksummedFile
from unmask.text.corpus import Corpus
from unmask.text.prepare import prepare
from unmask.text.rows import RowDataset
from unmask.text.store import TokenStore

LENGTH = 32


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checked, "BLOCK_BYTES", 256)


def lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    """Verify lazily, as if every array were too large to be verified on opening."""
    monkeypatch.setattr(checked, "EAGER_BYTES", 1)


@pytest.fixture
def store_path(store: TokenStore, text_file: Path, tmp_path: Path, small_blocks: None) -> Path:
    """A store with small checksum blocks and an index of its sentence pairs."""
    corpus = Corpus([str(text_file)], DataRecipe(eval_fraction=0.1))
    return prepare(corpus, store.tokenizer, DataRecipe(eval_fraction=0.1), tmp_path / "made", lengths=[LENGTH]).path


def flip(path: Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def read_all(folder: Path) -> list[np.ndarray]:
    """Open a store and read all of its rows, as streams and as pairs."""
    store = TokenStore.open(folder)
    store.index([LENGTH])
    out = []
    for split in (store.train, store.heldout):
        for kind in ("stream", "pairs"):
            rows = RowDataset(split, store.tokenizer, 1, kind)
            out += [rows.example(0, i, StepConfig(0, LENGTH)).input_ids for i in range(rows.count(LENGTH))]
        np.asarray(split.documents)
    return out


def files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file() and p.name != "used")


@pytest.mark.parametrize("lazy", [False, True], ids=["at opening", "at first use"])
def test_flipped_bit_in_any_file_raises_and_names_the_file(
    store_path: Path, lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lazy:
        lazily(monkeypatch)
    assert len(files(store_path)) > 30
    for name in files(store_path):
        if name.endswith((f"chunks-{LENGTH}.json", f"chunks-{LENGTH}.json.sum")):
            continue  # counted again: see below
        whole = (store_path / name).read_bytes()
        for where in (0.37, 1):
            flip(store_path / name, where)
            with pytest.raises(UserError, match="damaged") as caught:
                read_all(store_path)
            assert str(store_path / name.removesuffix(".sum")) in caught.value.message, name
            assert caught.value.hint.startswith("rm ")
            (store_path / name).write_bytes(whole)
    read_all(store_path)


def test_damaged_count_is_recomputed(store_path: Path) -> None:
    path = store_path / "train" / f"chunks-{LENGTH}.json"
    whole = path.read_bytes()
    flip(path, 0.9)
    assert TokenStore.open(store_path).train.truncated_chunks(LENGTH) == int(whole.split()[-1].rstrip(b"}"))
    assert path.read_bytes() == whole


def test_lazy_verification_gives_the_same_rows(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = read_all(store_path)
    lazily(monkeypatch)
    lazy_rows = read_all(store_path)
    assert len(lazy_rows) == len(expected) > 1000
    assert all(np.array_equal(a, b) for a, b in zip(expected, lazy_rows))


@pytest.mark.parametrize("lazy", [False, True], ids=["at opening", "at first use"])
def test_run_with_changed_tokens_does_not_start(store_path: Path, lazy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is changed into its neighbor; sizes and boundaries stay the same."""
    if lazy:
        lazily(monkeypatch)
    path = store_path / "train" / "tokens.bin"
    np.bitwise_xor(np.fromfile(path, np.uint16), 1).tofile(path)
    with pytest.raises(UserError, match=r"damaged: .*tokens\.bin"):
        api.pretrain(
            store_path,
            preset="bert-tiny",
            steps=2,
            batch_size=2,
            max_length=LENGTH,
            out=store_path.parent / "run",
        )


def test_run_stops_at_the_first_damaged_row(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large store, the run has started when the reader thread detects the damage."""
    lazily(monkeypatch)
    flip(store_path / "train" / "tokens.bin", 0.5)
    sets = ["model.layers=1", "model.hidden=8", "model.heads=1", "model.intermediate=8"]
    sets += ["train.embedding_init=random"]  # otherwise the whole text is counted first
    with pytest.raises(UserError, match=r"damaged: .*tokens\.bin"):
        api.pretrain(
            store_path, preset="bert-tiny", objective="mlm", epochs=1, batch_size=16, max_length=LENGTH, overrides=sets,
            out=store_path.parent / "run",
        )  # fmt: skip
    assert (store_path.parent / "run" / "recipe.yaml").exists()


def test_opening_time_does_not_depend_on_the_size(tmp_path: Path) -> None:
    blocks = 50_000  # 3 GB, but sparse on disk
    path = tmp_path / "tokens.bin"
    with open(path, "wb") as file:
        os.truncate(file.fileno(), blocks * checked.BLOCK_BYTES)
    zero = np.uint32(checked.zlib.crc32(bytes(checked.BLOCK_BYTES)))
    np.full(blocks, zero, "<u4").tofile(checked.checksums_path(path))
    opened = ChecksummedFile(path, blocks * checked.BLOCK_BYTES, "rm it")
    assert sum(opened._verified) == 0
    tokens = opened.map(np.dtype("uint16"))
    each = checked.BLOCK_BYTES // 2
    assert tokens[5 * each - 3 : 5 * each + 3].tolist() == [0] * 6
    assert [n for n, seen in enumerate(opened._verified) if seen] == [4, 5]
    assert tokens[-1] == tokens[0] == 0
    assert tokens[np.array([-1, 9 * each])].tolist() == [0, 0]
    assert [n for n, seen in enumerate(opened._verified) if seen] == [0, 4, 5, 9, blocks - 1]
    with open(path, "r+b") as file:  # damaged after it was verified in this process: the next process detects it
        file.seek(5 * checked.BLOCK_BYTES)
        file.write(b"x")
    assert tokens[5 * each] == ord("x")
    with pytest.raises(UserError, match="do not match their checksum"):
        ChecksummedFile(path, blocks * checked.BLOCK_BYTES, "rm it").map(np.dtype("uint16"))[5 * each]


def test_store_without_checksums_opens_with_a_warning(store_path: Path, capsys: pytest.CaptureFixture) -> None:
    for path in store_path.rglob("*.sum"):
        path.unlink()
    store = TokenStore.open(store_path)
    assert store.notes == [n for n in store.notes if "has no checksums" in n] and store.notes
    assert isinstance(store.train.tokens, np.ndarray)
    assert len(read_all(store_path)) > 1000
    (store_path / "meta.json").write_text('{"format": 1, "dtype": "uint16"}')
    with pytest.raises(UserError, match=r"damaged: .*meta\.json"):
        TokenStore.open(store_path)
    (store_path / "meta.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"meta\.json: it is nested"):
        TokenStore.open(store_path)


def test_missing_checksums_raise(store_path: Path) -> None:
    for name in ("meta.json.sum", "train/tokens.bin.sum", "heldout/flags.bin.sum", "tokenizer/tokenizer.json.sum"):
        path = store_path / name
        kept = path.read_bytes()
        path.unlink()
        with pytest.raises(UserError, match="damaged"):
            TokenStore.open(store_path)
        path.write_bytes(kept)
    (store_path / "tokenizer" / ".DS_Store").write_bytes(b"of a desktop")  # hidden files are not part of a store
    TokenStore.open(store_path)


@pytest.mark.parametrize("name", ["meta.json", "train/tokens.bin", "tokenizer/tokenizer.json", "tokenizer/vocab.txt"])
@pytest.mark.parametrize("kind", ["empty", "pipe", "folder"])
def test_empty_or_irregular_file_raises(store_path: Path, name: str, kind: str) -> None:
    (store_path / name).unlink()
    {"empty": Path.touch, "pipe": os.mkfifo, "folder": Path.mkdir}[kind](store_path / name)
    with pytest.raises(UserError, match=r"damaged|not a "):
        TokenStore.open(store_path)


def test_suggested_command_repairs_a_damaged_cached_store(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    store = api.prepare(text_file, vocab_size=300)
    whole = (store.path / "train" / "tokens.bin").read_bytes()
    flip(store.path / "train" / "tokens.bin", 0.3)
    with pytest.raises(UserError, match="damaged") as caught:
        api.prepare(text_file, vocab_size=300)
    assert os.system(caught.value.hint.split("  (")[0]) == 0
    assert api.prepare(text_file, vocab_size=300).path == store.path
    assert (store.path / "train" / "tokens.bin").read_bytes() == whole


def test_damaged_cached_tokenizer_raises(text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run trains its tokenizer once; one changed character in the cached file would change token ids."""
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    api.prepare(text_file, tmp_path / "one", vocab_size=300)
    (cached,) = (tmp_path / "cache" / "tokenizers").iterdir()
    flip(cached / "tokenizer.json", 0.8)
    for call in (
        lambda: api.prepare(text_file, tmp_path / "two", vocab_size=300),
        lambda: api.dry_run(text_file, preset="bert-tiny", steps=1, vocab_size=300),
    ):
        with pytest.raises(UserError, match=r"damaged: .*tokenizer\.json") as caught:
            call()
    assert os.system(caught.value.hint.split("  (")[0]) == 0
    assert api.prepare(text_file, tmp_path / "two", vocab_size=300).meta["key"]
