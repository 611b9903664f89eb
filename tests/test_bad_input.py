"""Every user error gives a clear message: the problem, the accepted values, and the command that fixes it. Never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.store import TokenStore
from unmask.text.tokenizer import Tokenizer

FAST = ["--preset=bert-tiny", "--steps=2", "--max-length=32"]


def unmask(*arguments: str, cwd: Path, stdin: str = "") -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "unmask", *arguments], capture_output=True, text=True, cwd=cwd, input=stdin, timeout=120
    )
    text = done.stdout + done.stderr
    assert "Traceback" not in text, text
    return done.returncode, text


def written(path: Path, content: str | bytes) -> str:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path.name


def cases(folder: Path, store: TokenStore) -> dict[str, tuple[list[str], list[str]]]:
    """Return {name: (arguments, words that the error must contain)}."""
    some = written(folder / "some.txt", "A cat sat.\n\nA dog ran.\n" * 20)
    table = written(folder / "table.csv", "review,stars,other\ngood,5,bad\nbad,1,good\n")
    (folder / "empty").mkdir()
    gpt = folder / "gpt"
    gpt.mkdir()
    (gpt / "config.json").write_text(json.dumps({"model_type": "gpt_neox"}))
    (gpt / "tokenizer.json").write_bytes((store.path / "tokenizer" / "tokenizer.json").read_bytes())
    chars = Tokenizer.train(["the cat sat on the mat"], TokenizerRecipe(type="char"))
    shape = {"hidden": 32, "heads": 2, "layers": 1, "intermediate": 64}
    hf.save(Model(preset("bert-tiny", vocab_size=chars.size, **shape), ("mlm",)).init(0), folder / "theirs", chars)
    recipe = written(folder / "recipe.yaml", "train: {stepz: 3}\n")
    return {
        "no such file": (["pretrain", "sme.txt"], ["sme.txt", "some.txt"]),
        "empty folder": (["pretrain", "empty"], ["empty"]),
        "empty file": (["prepare", written(folder / "void.txt", "")], ["void.txt"]),
        "binary file": (["pretrain", written(folder / "photo.bin", os.urandom(5000))], ["photo.bin", "binary"]),
        "wrong column": (["prepare", table, "--text-column", "txt"], ["txt", "review", "--text-column"]),
        "vocabulary too large": (["prepare", some, "--vocab-size", "9999"], ["9,999", "--vocab-size"]),
        "rows too long": (["pretrain", str(store.path), *FAST, "--max-length=600"], ["600", "512 positions", "--max-length 512"]),
        "unknown recipe key": (["pretrain", some, "--set", "train.stpes=3"], ["train.stpes", "did you mean steps?"]),
        "unknown key in a file": (["pretrain", some, "--recipe", recipe], ["train.stepz", "did you mean steps?"]),
        "no value": (["pretrain", some, "--set", "train.steps"], ["section.field=value"]),
        "two budgets": (["pretrain", some, "--steps=1", "--set=train.epochs=1"], ["set one of", "steps and epochs"]),
        "unknown preset": (["pretrain", str(store.path), "--preset=bert-mimi"], ["bert-mimi", "bert-mini"]),
        "unknown objective": (["pretrain", str(store.path), "--objective=mml"], ["mml", "did you mean mlm?"]),
        "unknown shape": (["pretrain", str(store.path), "--set=model.layer=3"], ["layer", "layers"]),
        "heads": (["pretrain", str(store.path), "--set=model.hidden=100", "--set=model.heads=3"], ["100", "3"]),
        "other family": (["pretrain", some, "--from", "gpt"], ["gpt_neox", "bert"]),
        "not a model": (["fill", "empty", "a [MASK]"], ["empty"]),
        "not a run": (["pretrain", "--resume", "empty"], ["not a run folder"]),
        "not a store": (["show-batch", "empty"], ["not a token store", "unmask prepare"]),
        "unknown sample": (["pretrain", "sample:moovies"], ["moovies", "python-docs"]),
        "bad rate": (["pretrain", some, "--mask-rate", "1.5"], ["mlm.mask_rate", "must be a fraction between 0 and 1", "1.5"]),
        "bad length": (["pretrain", some, "--max-length", "64:0.3,128:0.3"], ["64:0.3", "add up to 1", "--max-length 128"]),
        "not a number": (["pretrain", some, "--lr=abc"], ["--lr", "'abc' must be a valid number"]),
        "no recipe file": (["pretrain", some, "--recipe", "no.yaml"], ["no.yaml", "unmask config > recipe.yaml"]),
        "bad device": (["pretrain", some, "--device", "tpu"], ["device", "tpu", "cpu"]),
        "no such device": (["pretrain", some, "--device", "cuda"], ["--device cuda", "finds no such device", "cpu"]),
        "resume and more": (["pretrain", "--resume", "gpt", "--steps=3"], ["--resume", "steps"]),
        "small model vocabulary": (["pretrain", str(store.path), *FAST, "--set=model.vocab_size=10"], ["10", "1,000"]),
        "negative share": (["pretrain", some, "--max-length=64:-1,32:2"], ["64:-1"]),
        "another tokenizer": (["pretrain", str(store.path), *FAST[1:], "--from", "theirs"], ["different tokenizer than theirs"]),
        "preset with from": (["pretrain", some, *FAST, "--from", "theirs"], ["determines the architecture", "remove one"]),
        "span without sentinels": (["pretrain", some, "--preset=bart-mini", "--objective=span"], ["sentinels", "--preset t5-mini"]),
        "tokenizer settings with from": (["pretrain", some, "--from", "theirs", "--tokenizer-type=bpe"], ["has its own tokenizer", "type"]),
        "out exists": (["pretrain", some, "--out", "gpt"], ["gpt already exists"]),
        "no corpus": (["pretrain"], ["no corpus", "sample:"]),
        "unknown encoding": (["prepare", some, "--encoding", "utf-99"], ["utf-99"]),
        "nothing on standard input": (["prepare", "-"], ["corpus is empty"]),
        "one document and nsp": (["pretrain", written(folder / "one.txt", "A b. C d. " * 300), *FAST, "--document-boundary=file",
                                  "--tokenizer-type=char", "--objective=mlm+nsp"], ["two documents", "--objective mlm"]),
    }  # fmt: skip


@pytest.fixture(scope="module")
def prepared(store: TokenStore, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("bad")
    return folder, cases(folder, store)


@pytest.mark.parametrize(
    "name",
    [
        "no such file", "empty folder", "empty file", "binary file", "wrong column", "vocabulary too large",
        "rows too long", "unknown recipe key", "unknown key in a file", "no value", "two budgets", "unknown preset",
        "unknown objective", "unknown shape", "heads", "other family", "not a model", "not a run", "not a store",
        "unknown sample", "no such device", "resume and more", "small model vocabulary", "negative share",
        "another tokenizer", "preset with from", "span without sentinels", "tokenizer settings with from", "out exists", "bad rate", "bad length", "bad device", "not a number", "no recipe file", "no corpus", "unknown encoding",
        "nothing on standard input", "one document and nsp",
    ],
)  # fmt: skip
def test_bad_input_raises_a_clear_error(name: str, prepared) -> None:
    folder, all_cases = prepared
    arguments, words = all_cases[name]
    code, text = unmask(*arguments, cwd=folder)
    assert code == 2, text
    assert "error: " in text or "─ Error ─" in text
    for word in words:
        assert word in text, text
    assert not (folder / "runs").exists(), "an empty run directory was left behind"


def test_every_case_is_covered(prepared) -> None:
    assert len(prepared[1]) == 38
