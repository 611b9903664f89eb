"""Replay: a fraction of the rows comes from another text, by index; held-out losses of both texts are tracked from
step 0."""

import json
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import unmask
from unmask.batch import StepConfig
from unmask.objectives.objective import build
from unmask.recipe import Recipe
from unmask.report.curves import plot_pretraining
from unmask.text.mix import InterleaveSchedule, ReplayPart, parse_replay
from unmask.text.store import TokenStore
from unmask.train.replay import ReplayLoader, ReplaySource, build_loader

RECIPE = {
    "model": {"hidden": 32, "layers": 1, "heads": 2, "intermediate": 64},
    "train": {"threads": 1, "max_eval_examples": 16},
}
SHORT = {"preset": "bert-tiny", "objective": "mlm", "batch_size": 10, "max_length": 32}


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two texts with different words."""
    folder = tmp_path_factory.mktemp("mix")
    for name, word in (("news", "king"), ("poems", "rose")):
        lines = [f"The {word} number {n} of the house is a {word} that the list has not." for n in range(400)]
        (folder / f"{name}.txt").write_text("\n\n".join(lines))
    return folder


def prepared(store: TokenStore, path: Path) -> TokenStore:
    return unmask.prepare(path, tokenizer=str(store.path / "tokenizer"), eval_fraction=0.1)


def make_loader(store: TokenStore, *mixed: tuple[TokenStore, str]) -> ReplayLoader:
    recipe = Recipe.build({"objective": "mlm"})
    sources = [
        ReplaySource(ReplayPart(f"m{n}", "x", Fraction(fraction)), other) for n, (other, fraction) in enumerate(mixed)
    ]
    out = build_loader(store, sources, recipe, build(recipe, store.tokenizer))
    assert isinstance(out, ReplayLoader)
    return out


def test_every_batch_has_its_fractions_and_every_row_is_used_once() -> None:
    schedule = InterleaveSchedule([Fraction("0.2"), Fraction("0.35")])
    located = [schedule.locate(n) for n in range(4000)]
    for first in range(0, 4000, 40):
        counts = np.bincount([which for which, _ in located[first : first + 40]], minlength=3) / 40
        assert np.abs(counts - [0.45, 0.2, 0.35]).max() <= 2 / 40
    for which in range(3):
        rows_of_text = [n for w, n in located if w == which]
        assert rows_of_text == list(range(len(rows_of_text))), "rows of each text must be in order and complete"
    assert schedule.rows(450) == 1000


def test_replay_text_does_not_change_the_corpus_rows(store: TokenStore, others: Path) -> None:
    news, poems = (prepared(store, others / f"{name}.txt") for name in ("news", "poems"))
    a, b, step_config = make_loader(store, (news, "0.25")), make_loader(store, (poems, "0.25")), StepConfig(0, 32, 0.15)
    for n in range(200):
        same = bool(np.array_equal(a.example(n, step_config).input_ids, b.example(n, step_config).input_ids))
        assert same == (a.schedule.locate(n)[0] == 0)
    alone = a.loaders[0]
    corpus_rows = [n for n in range(200) if a.schedule.locate(n)[0] == 0]
    for k, n in enumerate(corpus_rows):
        assert np.array_equal(a.example(n, step_config).input_ids, alone.example(k, step_config).input_ids)
    assert a.count(32) == -(-alone.count(32) * 4 // 3)


def test_replay_fraction_of_tokens(store: TokenStore, others: Path) -> None:
    news = prepared(store, others / "news.txt")
    mixed, step_config = make_loader(store, (news, "0.2")), StepConfig(0, 32, 0.15)
    king = store.tokenizer.encode("king")
    hits = [len(king) and set(king) <= set(mixed.before_and_after(n, step_config)[0].input_ids) for n in range(500)]
    assert 0.15 < np.mean(hits) < 0.3


@pytest.mark.parametrize(
    ("mix", "message"),
    [
        (["a.txt"], "PATH:SHARE"),
        (["a.txt:0"], "above 0 and below 1"),
        (["a.txt:1"], "above 0"),
        (["a.txt:-0.5"], "above 0"),
        (["a.txt:nan"], "above 0"),
        (["a.txt:1/3"], "above 0"),
        ([":0.2"], "PATH:SHARE"),
        (["a.txt:0.5", "b.txt:0.5"], "add up to 1"),
    ],
)
def test_invalid_fractions_raise(mix: list[str], message: str) -> None:
    with pytest.raises(unmask.UserError, match=message):
        parse_replay(mix)


def test_duplicate_names_are_numbered() -> None:
    assert [p.name for p in parse_replay(["a/x.txt:0.1", "b/x.txt:0.1", "sample:sotu:0.1"])] == ["x", "x-2", "sotu"]


def test_unsupported_replay_raises_before_the_text_is_read(store: TokenStore, others: Path, tmp_path: Path) -> None:
    with pytest.raises(unmask.UserError, match="nowhere"):
        unmask.pretrain(store.path, replay=["nowhere.txt:0.2"], steps=1, out=tmp_path / "a", **SHORT)
    foreign = unmask.prepare(others / "news.txt", tmp_path / "foreign", vocab_size=60)
    with pytest.raises(unmask.UserError, match="different tokenizer"):
        unmask.pretrain(store.path, replay=[f"{foreign.path}:0.2"], steps=1, out=tmp_path / "b", **SHORT)


@pytest.fixture(scope="module")
def run(store: TokenStore, others: Path):
    """A model, and its continuation on other text with the first text as replay."""
    first = unmask.pretrain(store.path, steps=2, recipe=RECIPE, out=others / "first", **SHORT)
    return unmask.pretrain(
        others / "news.txt", init_from=str(first.model), replay=[f"{store.path}:0.3"], steps=4, eval_fraction=0.1,
        recipe=RECIPE, overrides=["train.eval_steps=2"], objective="mlm", batch_size=10, max_length=32, out=others / "run",
    )  # fmt: skip


def test_both_losses_are_tracked_from_before_the_first_step(run, store: TokenStore) -> None:
    evals = [e for e in run.events() if e["event"] == "eval"]
    name = f"heldout[{store.path.name}]"
    assert [e["step"] for e in evals] == [0, 2, 4]
    assert all(e["loss"] > 0 and e[name]["loss"] > 0 and e["loss"] != e[name]["loss"] for e in evals)
    info = unmask.info(run.path)
    assert info["mixed"][store.path.name]["first"]["step"] == 0 and info["mixed"][store.path.name]["last"]["step"] == 4
    done = subprocess.run(
        [sys.executable, "-m", "unmask", "info", str(run.path)], capture_output=True, text=True, check=True
    )
    assert f"validation of {store.path.name}" in done.stdout and "at step 0" in done.stdout
    labels = [text.get_text() for text in plot_pretraining(run.events(), 5.0, 4).axes[0].get_legend().get_texts()]
    assert any("validation of store" in label for label in labels)
    assert f"loss on {store.path.name}" in (run.path / "report.html").read_text()


def test_progress_line_shows_both_losses(store: TokenStore, others: Path, tmp_path: Path, capsys) -> None:
    from unmask.console import Console

    path, tokenizer = others / "poems.txt", str(store.path / "tokenizer")
    unmask.pretrain(
        path, tokenizer=tokenizer, replay=[f"{others / 'news.txt'}:0.5"], eval_fraction=0.1, steps=1, recipe=RECIPE,
        out=tmp_path / "run", console=Console(), **SHORT,
    )  # fmt: skip
    output = capsys.readouterr().err
    assert "| news: loss" in output and "replay, 50% of the rows" in output


def test_killed_and_resumed_run_equals_an_uninterrupted_one(store: TokenStore, others: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    sets = ["model.hidden=32", "model.heads=2", "model.layers=1", "train.threads=1", "train.save_steps=5"]
    sets += ["train.max_eval_examples=16", "train.micro_batch_size=5", "train.eval_steps=9"]
    mix = [f"{others / 'news.txt'}:0.3", f"{others / 'poems.txt'}:0.1"]
    unmask.pretrain(store.path, replay=mix, steps=40, overrides=sets, out=whole, **SHORT)
    command = [
        sys.executable,
        "-m",
        "unmask",
        "pretrain",
        str(store.path),
        *(f"--replay={m}" for m in mix),
        "--steps=40",
    ]
    command += [
        *(f"--{k.replace('_', '-')}={v}" for k, v in SHORT.items()),
        *(f"--set={s}" for s in sets),
        f"--out={killed}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log = killed / "log.jsonl"
    deadline = time.monotonic() + 60
    while not (log.exists() and log.read_text().count('"train"') >= 13):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (killed / "model").exists()
    unmask.resume(killed)

    def seen(run: Path) -> list[dict]:
        events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
        timed = ("elapsed", "tokens_per_second")
        return [{k: v for k, v in e.items() if k not in timed} for e in events if e["event"] in ("train", "eval")]

    assert seen(killed) == seen(whole)
    weights = [(run / "model" / "model.safetensors").read_bytes() for run in (killed, whole)]
    assert weights[0] == weights[1]
