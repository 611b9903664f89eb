"""Trivial baselines of each task, and their scores next to the model's in the results of a run."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import tiny

from unmask import api
from unmask.cli.show.tables import task_results
from unmask.console import Console
from unmask.errors import UserError
from unmask.model import hf
from unmask.recipe import Recipe
from unmask.registry import TASKS
from unmask.report import facts
from unmask.runs import baseline
from unmask.tasks.task import FitContext, Task
from unmask.text.bm25 import extract_terms
from unmask.text.segmentation import sentences
from unmask.text.tokenizer import Tokenizer

TAGS = [
    {"text": "anna saw york", "spans": [{"start": 0, "end": 4, "label": "PER"}, {"start": 9, "end": 13, "label": "LOC"}]},
    {"text": "new york sleeps", "spans": [{"start": 0, "end": 8, "label": "LOC"}]},
    {"text": "anna sleeps", "spans": [{"start": 0, "end": 4, "label": "PER"}]},
    {"text": "york sleeps", "spans": [{"start": 0, "end": 4, "label": "LOC"}]},
]  # fmt: skip
POS = [
    {"text": "a dog ran", "words": [[0, 1], [2, 5], [6, 9]], "tags": ["DET", "NOUN", "VERB"]},
    {"text": "cats ran", "words": [[0, 4], [5, 8]], "tags": ["NOUN", "VERB"]},
]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.model_folder(tmp_path_factory.mktemp("start"))


def task_of(name: str, start: Path, train: list[dict[str, Any]], **settings: Any) -> Task:
    recipe = Recipe.build({"init_from": str(start), "task": {"name": name, **settings}})
    config = hf.config_of(start)
    kind = TASKS[name]
    tokenizer = Tokenizer.load(start)
    task = kind(recipe, tokenizer, kind.fit_state(FitContext(recipe, config, tokenizer), train).task_state)
    task.bind(config)
    return task


def simple(task: Task, train: list[dict[str, Any]], evaluated: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    return baseline.count_based_baselines(task, train, [], evaluated, Console(quiet=True))


def test_tag_baseline_predicts_the_most_frequent_tag_of_a_word(start: Path) -> None:
    task = task_of("tag", start, TAGS)
    evaluated = [{"text": "anna likes york", "spans": TAGS[0]["spans"][:1]}]
    (scores,) = simple(task, TAGS, evaluated).values()
    assert (scores["precision"], scores["recall"]) == (0.5, 1.0)  # york was an entity each time
    rare = [
        *TAGS,
        {"text": "york slept", "spans": []},
        {"text": "york ran", "spans": []},
        {"text": "york sat", "spans": []},
    ]
    (scores,) = simple(task, rare, evaluated).values()
    assert scores["precision"] == 1.0  # york is O 3 of 6 times, more often than any entity tag
    speech = task_of("tag", start, POS)
    evaluated = [{"text": "cats ran home", "words": [[0, 4], [5, 8], [9, 13]], "tags": ["NOUN", "VERB", "ADV"]}]
    assert simple(speech, POS, evaluated)["most frequent tag"]["token_accuracy"] == pytest.approx(2 / 3)


def test_answer_baseline_predicts_the_sentence_with_the_largest_overlap(start: Path) -> None:
    context = "The house is old. Its king was called Henry. It rained all day."
    answer = {"text": "Its king was called Henry.", "start": 18}
    answerable = {"question": "who was king", "context": context, "answers": [answer], "impossible": False}
    task = task_of("answer", start, [answerable])
    assert simple(task, [answerable], [answerable])["nearest sentence"]["exact"] == 1.0
    none = {"question": "how far away", "context": context, "answers": [], "impossible": True}
    task = task_of("answer", start, [answerable, none] * 5)
    task.task_state["threshold"] = -99.0  # the model's own threshold is not used
    scores = simple(task, [answerable, none] * 5, [answerable, none])["nearest sentence"]
    assert scores["exact"] == 1.0 and scores["NoAns_exact"] == 1.0
    assert task.task_state["threshold"] == -99.0
    assert simple(task, [answerable], [answerable])["nearest sentence"]["exact"] == 1.0  # always answers
    assert all(np.isfinite(value) for value in scores.values())


def test_choose_baselines_are_tfidf_and_most_frequent_position(start: Path) -> None:
    rows = [
        {"text": "where is the cat", "choices": ["a dog", "the cat is here", "no"], "label": 1},
        {"text": "what is red", "choices": ["red is a colour", "blue"], "label": 1},
        {"text": "who came", "choices": ["anna came", "bob left", "no", "yes"], "label": 0},
    ]
    scores = simple(task_of("choose", start, rows), rows, rows)
    assert scores["TF-IDF"]["accuracy"] == pytest.approx(2 / 3)
    assert scores["most frequent place"]["accuracy"] == pytest.approx(2 / 3)


def test_generate_baseline_copies_the_first_sentences(start: Path) -> None:
    text = "It rained. We stayed in. Nobody came."
    one = [{"text": text, "target": "It rained."}]
    assert simple(task_of("generate", start, one), one, one)["first sentence"]["rougeL"] == 1.0
    two = [{"text": text, "target": "It rained. We stayed in."}]
    assert simple(task_of("generate", start, two), two, two)["first 2 sentences"]["rougeL"] == 1.0
    assert sentences("下雨了。我们没出门。") == ["下雨了。", "我们没出门。"] and sentences("") == [""]


def test_embed_baseline_compares_words(start: Path) -> None:
    rows = [{"text": f"the {w} here", "positive": f"one {w} there"} for w in tiny.WORDS]
    scores = simple(task_of("embed", start, rows), rows, rows)["TF-IDF"]
    assert scores["mrr"] == scores["recall@1"] == 1.0
    scored = [r | {"score": float(n % 2)} for n, r in enumerate(rows)]
    scored = [r if r["score"] else r | {"positive": "nothing alike"} for r in scored]
    assert simple(task_of("embed", start, scored), scored, scored)["TF-IDF"]["spearman"] > 0.8
    plain = [{"text": "a"}]
    assert simple(task_of("embed", start, rows), plain, plain) == {}


def test_bm25_matches_bm25s(start: Path) -> None:
    bm25s = pytest.importorskip("bm25s")
    rng = np.random.default_rng(0)
    passages = [" ".join(rng.choice(tiny.WORDS, rng.integers(3, 12))) for _ in range(40)]
    records = []
    for n in range(20):
        query = " ".join(rng.choice(tiny.WORDS, 3, replace=False))
        records.append({"query": query, "passages": passages, "relevance": [float(i == n) for i in range(40)]})
    seen: list[list[float]] = []

    class RecordScores(TASKS["rank"]):  # type: ignore[misc]
        def score(self, answers: Any, evaluated: Any) -> dict[str, float]:
            seen.extend(a["scores"] for a in answers)
            return super().score(answers, evaluated)

    task = task_of("rank", start, records)
    task.__class__ = RecordScores
    assert 0 < simple(task, records[:5], records)["BM25"]["ndcg@10"] < 1
    index = bm25s.BM25(k1=1.5, b=0.75)
    index.index([extract_terms(p) for p in dict.fromkeys(passages)], show_progress=False)
    names = list(dict.fromkeys(passages))
    for record, scores in zip(records, seen):
        expected = dict(zip(names, index.get_scores(extract_terms(record["query"]))))
        assert scores == pytest.approx([float(expected[p]) for p in passages], rel=1e-5)


def test_run_reports_baselines_next_to_the_model(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    rows = [
        {"query": f"a {a}", "passage": f"the {b} is here", "relevance": int(a == b)}
        for a in tiny.WORDS for b in tiny.WORDS[:6]
    ]  # fmt: skip
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows[:36]))
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows[30:]))
    run = api.finetune(
        start, train=tmp_path / "train.jsonl", dev=tmp_path / "dev.jsonl", steps=2, batch_size=2, baseline=True,
        out=tmp_path / "run", overrides=["task.rank.num_negatives=2", "train.num_evals=1"],
    )  # fmt: skip
    results = run.read_json("results.json")
    bm25, scratch = results["baselines"]
    assert (bm25["baseline"], scratch["baseline"]) == ("BM25", "without pre-training") and bm25["split"] == "dev"
    assert set(bm25) - {"baseline", "split"} == set(results["dev"]) and bm25["ndcg@10"] > 0.1
    task_results(results)
    assert "BM25" in capsys.readouterr().out


def test_texts_without_words_have_no_count_based_baseline(start: Path) -> None:
    class RecordingConsole(Console):
        def warn(self, text: str) -> None:
            warnings.append(text)

    warnings: list[str] = []
    rows = [{"text": "?!", "choices": ["…", "!"], "label": 0}] * 3
    task = task_of("choose", start, rows)
    assert (
        baseline.count_based_baselines(task, rows, [], rows, RecordingConsole(quiet=True)) == {}
        and "these texts" in warnings[0]
    )
    task.__class__ = type("Other", (type(task),), {"SPEC": replace(task.SPEC, name="other", baseline="")})
    assert (
        baseline.count_based_baselines(task, rows, [], rows, RecordingConsole(quiet=True)) == {}
        and "the task other has no baseline" in warnings[1]
    )


def test_baseline_with_several_tasks_raises(start: Path) -> None:
    recipe = {"tasks": {"a": {"name": "classify", "train": ["a.csv"]}}}
    with pytest.raises(UserError, match="--baseline does not work with several tasks"):
        api.finetune(start, recipe=recipe, baseline=True)


@pytest.mark.parametrize(
    ("settings", "lr", "scratch_lr"),
    [({"lr": 1e-3}, 1e-3, 1e-3), ({}, 1.2e-3, 6e-3), ({"overrides": ["task.baseline_lr=0.004"]}, 1.2e-3, 4e-3)],
)
def test_explicit_learning_rate_applies_to_both_models(
    start: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, Any],
    lr: float,
    scratch_lr: float,
) -> None:
    """Without an explicit rate each model uses its own default. A resumed run keeps the rates."""
    train, test = tiny.labeled(tmp_path / "train.csv", 40), tiny.labeled(tmp_path / "test.csv", 12, first=50)
    run = api.finetune(start, train=train, test=test, steps=2, baseline=True, out=tmp_path / "run", **settings)
    results = run.read_json("results.json")
    assert (results["lr"], results["baselines"][-1]["lr"]) == (pytest.approx(lr), pytest.approx(scratch_lr))
    folder = run.path / "without-pretraining"
    assert Recipe.build(Recipe.read(folder / "recipe.yaml")).train.lr == pytest.approx(scratch_lr)
    task_results(results)
    assert f"learning rate: {lr:.2g}; without pre-training: {scratch_lr:.2g}" in capsys.readouterr().out
    lines = dict(facts(api.info(run.path)))
    assert lines["learning rate"] == f"{lr:.2g}"
    assert lines["test, without pre-training"].endswith(f"(learning rate {scratch_lr:.2g})")
    assert f"(learning rate {scratch_lr:.2g})" in (run.path / "report.html").read_text()
    (run.path / "results.json").write_text(json.dumps({k: v for k, v in results.items() if k != "baselines"}))
    shutil.rmtree(folder)
    again = api.resume(run.path).read_json("results.json")
    assert again["baselines"][-1]["lr"] == pytest.approx(scratch_lr)
