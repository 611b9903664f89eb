"""Several seeds and baselines: each seed runs once, the median one is kept, the summary statistics are correct; and
the TF-IDF baseline."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from near import gap
from scipy import stats

from unmask import api
from unmask.cli.show.tables import task_results
from unmask.errors import UserError
from unmask.inference.predictor import load
from unmask.metrics import metric
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.report import facts
from unmask.runs import data, seeds
from unmask.runs.finetune import Finetune
from unmask.tasks.classify.baseline import baseline
from unmask.tasks.classify.linear import LinearModel
from unmask.tasks.classify.task import Classify
from unmask.tasks.task import FitContext
from unmask.text.tokenizer import Tokenizer
from unmask.train.fit import TrainingInterrupted
from unmask.train.run import Run

pytestmark = pytest.mark.usefixtures("no_report")

TEXTS = ("sorted list of numbers", "class with methods")


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start")
    tokenizer = Tokenizer.train([f"{t} {n}" for t in TEXTS for n in range(60)], TokenizerRecipe(vocab_size=100))
    shape = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "max_positions": 32}
    hf.save(Model(preset("bert-tiny", vocab_size=tokenizer.size, **shape), ("pooler",)).init(1), folder, tokenizer)
    return folder


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    for name, numbers in (("train", range(60)), ("test", range(60, 84))):
        rows = []
        for n in numbers:
            k = int(rng.random() < 0.5)
            rows.append({"text": f"{TEXTS[k if rng.random() < 0.8 else 1 - k]} {n}", "label": "lc"[k]})
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), "utf-8")
    return {name: str(folder / f"{name}.jsonl") for name in ("train", "test")}


def test_seeds(
    start: Path,
    files: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    created: list[str] = []
    read: list[Any] = []
    work, read_sets = Finetune.work, data.read_sets

    def counted(self: Finetune, job: Any, ctx: Any, run: Any = None) -> Any:
        if len(created) == 2:
            created.append("killed")
            raise KeyboardInterrupt
        created.append(run.path.name)
        return work(self, job, ctx, run)

    monkeypatch.setattr(Finetune, "work", counted)
    monkeypatch.setattr(data, "read_sets", lambda settings: read.append(1) or read_sets(settings))
    out = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        api.finetune(start, **files, out=out, num_seeds=3, steps=4, lr=0.01, overrides=["train.num_evals=2"])  # type: ignore[arg-type]
    assert not (out / "results.json").exists() and Run(out).kind() == "seeds"
    assert len(read) == 1, "files must be read once for all seeds"
    run = api.resume(out)
    assert created == ["seed-0", "seed-1", "killed", "seed-2"]  # finished seeds are not repeated
    results = run.read_json("results.json")
    each = [json.loads((out / f"seed-{n}" / "results.json").read_text()) for n in range(3)]
    assert (
        len({json.loads((out / f"seed-{n}" / "data.json").read_text())["fingerprint"] for n in range(3)}) == 1
    )  # one dev set
    dev = [r["dev"]["accuracy"] for r in each]
    assert dev[results["selected_seed"]] == sorted(dev)[1]
    assert (out / "model" / "model.safetensors").read_bytes() == (
        out / f"seed-{results['selected_seed']}" / "model" / "model.safetensors"
    ).read_bytes()
    assert results["test"] == each[results["selected_seed"]]["test"] and results["model"] == str(run.model)
    assert [row["seed"] for row in results["seeds"]] == [0, 1, 2]
    for row in results["seed_summary"]:
        values = [r[row["set"]][row["score"]] for r in each]
        assert row["mean"] == pytest.approx(np.mean(values)) and row["sd"] == pytest.approx(np.std(values, ddof=1))
        if row["sd"]:
            spec = metric(row["score"])
            low, high = stats.t.interval(0.95, 2, np.mean(values), stats.sem(values))
            assert (row["low"], row["high"]) == pytest.approx(np.clip((low, high), spec.low, spec.high))
    assert {(r["set"], r["score"]) for r in results["seed_summary"]} >= {("dev", "accuracy"), ("test", "macro_f1")}
    lines = dict(facts(api.info(out)))
    assert "±" in lines["test, 3 seeds"] and lines["kept seed"].startswith(f"{results['selected_seed']} (")
    again = api.resume(out)
    assert again.read_json("results.json") == results and len(created) == 4
    assert load(out).predict([{"text": TEXTS[0]}])[0]["label"] in ("l", "c")
    assert run.recipe().task.name == "classify" and run.recipe().task.num_seeds == 3
    task_results(results)
    assert "median seed" in (shown := capsys.readouterr().out) and "±" in shown


def interval_of(values: list[float], score: str) -> dict[str, Any]:
    return seeds.t_interval(values, metric(score).low, metric(score).high)


def test_interval_is_clipped_to_the_score_range_and_needs_three_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert interval_of([0.9, 1.0, 0.8], "accuracy")["high"] == 1.0
    assert interval_of([0.0, 0.3, 0.0], "f1")["low"] == 0.0
    assert interval_of([-0.9, 0.3, 0.0], "mcc")["low"] == -1.0
    assert interval_of([1.0, 9.0, 5.0], "rmse")["low"] == 0.0 and interval_of([1.0, 9.0, 5.0], "other")["low"] < 0
    two = seeds.t_interval([0.8, 0.9])
    assert two["low"] is None and two["high"] is None and two["sd"] == pytest.approx(0.0707, abs=1e-4)
    seen = {"dev": {"records": 2, "accuracy": 0.8}, "seeds": [{}], "model": "my run/model"}
    task_results(seen | {"seed_summary": [{"set": "dev", "score": "accuracy", **two}], "report": "my run/report.html"})
    shown = capsys.readouterr().out
    assert "0.8500 ± 0.0707" in shown and "unmask predict 'my run/model'" in shown and "my run/report.html" in shown
    task_results({"model": "m"})
    assert "no metrics" in capsys.readouterr().out


def test_interrupted_seed_shows_the_resume_command_of_all_seeds(
    start: Path, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise TrainingInterrupted("stopped", hint="unmask finetune --resume …/seed-0")

    monkeypatch.setattr(Finetune, "work", stop)
    with pytest.raises(UserError) as error:
        api.finetune(start, **files, out=tmp_path / "run", num_seeds=2, steps=2)  # type: ignore[arg-type]
    assert error.value.hint == f"unmask finetune --resume {tmp_path / 'run'}"


def test_baselines(start: Path, files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    run = api.finetune(start, **files, out=out, steps=3, baseline=True)  # type: ignore[arg-type]
    results = run.read_json("results.json")
    tfidf, scratch = results["baselines"]
    assert (tfidf["baseline"], scratch["baseline"]) == ("TF-IDF + linear", "without pre-training")
    assert tfidf["split"] == scratch["split"] == "test" and tfidf["records"] == scratch["records"] == 24
    assert set(tfidf) - {"baseline", "split"} == set(results["test"])  # the same scores of the same records
    task_results(results)
    assert "TF-IDF + linear" in capsys.readouterr().out
    lines = dict(facts(api.info(out)))
    assert lines["test, TF-IDF + linear"] == f"accuracy {tfidf['accuracy']:.4f}"
    other = Recipe.build(Recipe.read(out / "without-pretraining" / "recipe.yaml"))
    assert other.train.lr == pytest.approx(5 * run.recipe().train.lr) and other.train.layerwise_lr_decay == 1.0
    del results["baselines"]  # killed before this was written: only it is repeated
    run.write_json("results.json", results)
    stamp = (out / "without-pretraining" / "results.json").stat().st_mtime_ns
    assert api.resume(out).read_json("results.json")["baselines"] == [tfidf, scratch]
    assert (out / "without-pretraining" / "results.json").stat().st_mtime_ns == stamp


def test_baseline_without_pretraining_is_initialized_randomly(
    start: Path, files: dict[str, str], tmp_path: Path
) -> None:
    run = api.finetune(start, **files, out=tmp_path / "run", steps=1, lr=1e-9, baseline=True)  # type: ignore[arg-type]
    first = hf.load(start).model.state_dict()
    finetuned, random_init = (
        hf.load(p / "model").model.state_dict() for p in (run.path, run.path / "without-pretraining")
    )
    name = "encoder.layers.0.mlp.up.weight"
    assert gap(finetuned[name], first[name]) < 1e-5 < 0.01 < gap(random_init[name], first[name])


def records(target: str, count: int, first: int = 0) -> list[dict[str, Any]]:
    rng, words, out = np.random.default_rng(first), ["red", "green", "blue", "round", "flat"], []
    for n in range(count):
        chosen = [w for w in words if rng.random() < 0.4]
        label: Any = [w for w in chosen if w in ("red", "blue")]
        if target == "single_label":
            label = "red" if "red" in chosen else "blue" if "blue" in chosen else "none"
        elif target == "regression":
            label = 50 + 10.0 * len(chosen) + (3.5 if "red" in chosen else 0)
        out.append({"location": f"x:{n}", "text": " ".join([*chosen, "thing"]), "label": label})
    return out


@pytest.mark.parametrize(("target", "min_score"), [("single_label", 0.95), ("multi_label", 0.95), ("regression", 0.95)])
def test_tfidf_learns_word_features(target: str, min_score: float, start: Path) -> None:
    train, dev, test = records(target, 150), records(target, 60, 1), records(target, 60, 2)
    recipe = Recipe.build({"task": {"classify": {"problem_type": target}}})
    tokenizer = Tokenizer.load(start)
    task = Classify(
        recipe, tokenizer, Classify.fit_state(FitContext(recipe, hf.config_of(start), tokenizer), train).task_state
    )
    (scores,) = baseline(task, train, dev, test).values()
    assert scores[task.spec.metric()] > min_score, scores
    assert LinearModel.fit(task.task_state, train).regularization
    (few,) = baseline(task, train[:8], [], test).values()  # too few for cross-validation
    assert task.spec.metric() in few


def test_tfidf_compares_the_texts_of_a_pair_and_reads_chinese() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{n}" for n in range(12)]
    rows = []
    for _ in range(200):
        a = words[rng.integers(12)]
        b = a if rng.random() < 0.5 else words[rng.integers(12)]
        rows.append({"text": f"a {a}", "pair": f"the {b}", "label": "same" if a == b else "other"})
    logits = LinearModel.fit({"labels": ["same", "other"]}, rows[:150]).logits(rows[150:])
    expected = [("same", "other").index(r["label"]) for r in rows[150:]]
    assert np.mean(logits.argmax(-1) == expected) > 0.95
    chinese = [
        {"text": f"这部电影{'很好' if n % 2 else '很差'}看了{n}遍", "label": "x" if n % 2 else "y"} for n in range(40)
    ]
    logits = LinearModel.fit({"labels": ["x", "y", "never"]}, chinese).logits(chinese)
    assert (logits[:, 0] > logits[:, 1]).tolist() == [n % 2 == 1 for n in range(40)] and (logits[:, 2] == -30).all()
