"""A token store notices damage: one flipped bit in any of its files is an error that names the file, before it is used."""

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
    """As if every array were too large to be verified at opening."""
    monkeypatch.setattr(checked, "EAGER_BYTES", 1)


@pytest.fixture
def made(store: TokenStore, text_file: Path, tmp_path: Path, small_blocks: None) -> Path:
    """A store of small blocks, with the index of its sentence pairs."""
    corpus = Corpus([str(text_file)], DataRecipe(eval_fraction=0.1))
    return prepare(corpus, store.tokenizer, DataRecipe(eval_fraction=0.1), tmp_path / "made", lengths=[LENGTH]).path


def flip(path: Path, where: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(where * (len(data) - 1))] ^= 1
    path.write_bytes(data)


def use(folder: Path) -> list[np.ndarray]:
    """Open a store and read every row of it, alone and as pairs."""
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
def test_a_flipped_bit_anywhere_is_an_error_that_names_the_file(
    made: Path, lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if lazy:
        lazily(monkeypatch)
    assert len(files(made)) > 30
    for name in files(made):
        if name.endswith((f"chunks-{LENGTH}.json", f"chunks-{LENGTH}.json.sum")):
            continue  # counted again: see below
        whole = (made / name).read_bytes()
        for where in (0.37, 1):
            flip(made / name, where)
            with pytest.raises(UserError, match="damaged") as caught:
                use(made)
            assert str(made / name.removesuffix(".sum")) in caught.value.message, name
            assert caught.value.hint.startswith("rm ")
            (made / name).write_bytes(whole)
    use(made)


def test_a_damaged_count_is_counted_again(made: Path) -> None:
    path = made / "train" / f"chunks-{LENGTH}.json"
    whole = path.read_bytes()
    flip(path, 0.9)
    assert TokenStore.open(made).train.truncated_chunks(LENGTH) == int(whole.split()[-1].rstrip(b"}"))
    assert path.read_bytes() == whole


def test_verifying_lazily_gives_the_same_rows(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = use(made)
    lazily(monkeypatch)
    found = use(made)
    assert len(found) == len(expected) > 1000
    assert all(np.array_equal(a, b) for a, b in zip(expected, found))


@pytest.mark.parametrize("lazy", [False, True], ids=["at opening", "at first use"])
def test_a_run_on_changed_tokens_does_not_begin(made: Path, lazy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token changed into its neighbour: sizes and boundaries are as before."""
    if lazy:
        lazily(monkeypatch)
    path = made / "train" / "tokens.bin"
    np.bitwise_xor(np.fromfile(path, np.uint16), 1).tofile(path)
    with pytest.raises(UserError, match=r"damaged: .*tokens\.bin"):
        api.pretrain(made, preset="bert-tiny", steps=2, batch_size=2, max_length=LENGTH, out=made.parent / "run")


def test_a_run_stops_at_the_first_damaged_row(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large store: the run has begun when the reader thread meets the damage."""
    lazily(monkeypatch)
    flip(made / "train" / "tokens.bin", 0.5)
    sets = ["model.layers=1", "model.hidden=8", "model.heads=1", "model.intermediate=8"]
    sets += ["train.embedding_init=random"]  # else all of the text is counted first
    with pytest.raises(UserError, match=r"damaged: .*tokens\.bin"):
        api.pretrain(
            made, preset="bert-tiny", objective="mlm", epochs=1, batch_size=16, max_length=LENGTH, overrides=sets,
            out=made.parent / "run",
        )  # fmt: skip
    assert (made.parent / "run" / "recipe.yaml").exists()


def test_opening_costs_the_same_whatever_the_size(tmp_path: Path) -> None:
    blocks = 50_000  # 3 GB, of which the disk holds nothing
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
    with open(path, "r+b") as file:  # after it was verified in this process: the next one sees it
        file.seek(5 * checked.BLOCK_BYTES)
        file.write(b"x")
    assert tokens[5 * each] == ord("x")
    with pytest.raises(UserError, match="do not match their checksum"):
        ChecksummedFile(path, blocks * checked.BLOCK_BYTES, "rm it").map(np.dtype("uint16"))[5 * each]


def test_a_store_without_checksums_opens_and_says_so(made: Path, capsys: pytest.CaptureFixture) -> None:
    for path in made.rglob("*.sum"):
        path.unlink()
    store = TokenStore.open(made)
    assert store.notes == [n for n in store.notes if "has no checksums" in n] and store.notes
    assert isinstance(store.train.tokens, np.ndarray)
    assert len(use(made)) > 1000
    (made / "meta.json").write_text('{"format": 1, "dtype": "uint16"}')
    with pytest.raises(UserError, match=r"damaged: .*meta\.json"):
        TokenStore.open(made)
    (made / "meta.json").write_text("[" * 100_000)
    with pytest.raises(UserError, match=r"meta\.json: it is nested"):
        TokenStore.open(made)


def test_lost_checksums_are_damage(made: Path) -> None:
    for name in ("meta.json.sum", "train/tokens.bin.sum", "heldout/flags.bin.sum", "tokenizer/tokenizer.json.sum"):
        path = made / name
        kept = path.read_bytes()
        path.unlink()
        with pytest.raises(UserError, match="damaged"):
            TokenStore.open(made)
        path.write_bytes(kept)
    (made / "tokenizer" / ".DS_Store").write_bytes(b"of a desktop")  # hidden files are not part of a store
    TokenStore.open(made)


@pytest.mark.parametrize("name", ["meta.json", "train/tokens.bin", "tokenizer/tokenizer.json", "tokenizer/vocab.txt"])
@pytest.mark.parametrize("kind", ["empty", "pipe", "folder"])
def test_a_file_that_is_empty_or_none_is_damage(made: Path, name: str, kind: str) -> None:
    (made / name).unlink()
    {"empty": Path.touch, "pipe": os.mkfifo, "folder": Path.mkdir}[kind](made / name)
    with pytest.raises(UserError, match=r"damaged|not a "):
        TokenStore.open(made)


def test_a_damaged_store_of_the_cache_is_made_again_as_advised(
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


def test_a_damaged_tokenizer_of_the_cache_is_an_error(
    text_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run trains its tokenizer once; one changed letter in what is kept would cut the text into other ids."""
    monkeypatch.setenv("UNMASK_CACHE", str(tmp_path / "cache"))
    api.prepare(text_file, tmp_path / "one", vocab_size=300)
    (kept,) = (tmp_path / "cache" / "tokenizers").iterdir()
    flip(kept / "tokenizer.json", 0.8)
    for use_it in (
        lambda: api.prepare(text_file, tmp_path / "two", vocab_size=300),
        lambda: api.dry_run(text_file, preset="bert-tiny", steps=1, vocab_size=300),
    ):
        with pytest.raises(UserError, match=r"damaged: .*tokenizer\.json") as caught:
            use_it()
    assert os.system(caught.value.hint.split("  (")[0]) == 0
    assert api.prepare(text_file, tmp_path / "two", vocab_size=300).meta["key"]
