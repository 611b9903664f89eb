"""Multi-task fine-tuning: both tasks are trained, both model directories contain the same encoder, and resume is
bit-exact."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from runs.tiny import labeled, model_folder, sentence, tagged
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from unmask import api
from unmask.errors import UserError
from unmask.recipe import Recipe
from unmask.runs import multitask
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import execute
from unmask.runs.multitask import MultiTaskLoader, SharedEncoderModel
from unmask.runs.part import make_recipe
from unmask.tasks.tag.task import Tag
from unmask.train.loader import LengthBucketedLoader
from unmask.train.run import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several")
    model_folder(folder / "model")
    labeled(folder / "reviews.csv", 40)
    tagged(folder / "names.jsonl", 24)
    return folder


def recipe(folder: Path, **train: object) -> dict:
    return {
        "init_from": str(folder / "model"),
        "task": {"dev_fraction": 0.2},
        "tasks": {
            "sentiment": {"name": "classify", "train": [str(folder / "reviews.csv")]},
            "people": {"name": "tag", "train": [str(folder / "names.jsonl")]},
        },
        "train": {"steps": 90, "lr": 3e-3, "layerwise_lr_decay": 1.0, "save_steps": 7, "threads": 1, **train},
    }


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return api.finetune(recipe=recipe(folder), out=folder / "run")


def encoder_of(folder: Path) -> dict[str, torch.Tensor]:
    tensors = load_file(folder / "model.safetensors")
    return {k: v for k, v in tensors.items() if k.startswith(("bert.embeddings", "bert.encoder"))}


def test_both_tasks_are_trained_and_evaluated(run: Run) -> None:
    results = run.read_json("results.json")
    assert results["tasks"]["sentiment"]["dev"]["accuracy"] == 1.0
    assert results["tasks"]["people"]["dev"]["f1"] == 1.0
    assert results["best"]["mean"] == 1.0
    assert {"sentiment.accuracy", "people.f1"} <= set(results["best"])
    assert api.info(run.path)["state"] == "finished"
    assert [c.split()[2] for c in api.info(run.path)["example_command"]] == [
        str(run.model / n) for n in ("sentiment", "people")
    ]
    page = (run.path / "report.html").read_text()
    assert all(words in page for words in ("sentiment", "people", "Confusion"))


def test_task_folders_share_one_encoder_and_load_separately(run: Run) -> None:
    first, second = encoder_of(run.model / "sentiment"), encoder_of(run.model / "people")
    assert set(first) == set(second) and len(first) > 20
    assert all(torch.equal(first[name], second[name]) for name in first)
    text, label = sentence(3)
    assert api.predict(run.model / "sentiment", text)[0]["label"] == label
    assert api.predict(run.model / "people", text)[0]["entities"][0]["label"] == "PER"
    assert AutoModelForSequenceClassification.from_pretrained(run.model / "sentiment").config.id2label[1] == "pos"
    assert "B-PER" in AutoModelForTokenClassification.from_pretrained(run.model / "people").config.id2label.values()


def test_encoder_is_trained_and_optimized_once(run: Run, folder: Path) -> None:
    jobs = Finetune().prepare(run.recipe(), Context.single_process())
    both = SharedEncoderModel({name: part.model for name, part in jobs.parts.items()})
    names = [name for name, _ in both.named_parameters()]
    assert len(names) == len(set(names)) and not any(".encoder." in name for name in names)
    assert jobs.parts["people"].model.encoder is jobs.parts["sentiment"].model.encoder
    before = both.encoder.embeddings.tokens.weight
    after = load_file(run.model / "people" / "model.safetensors")["bert.embeddings.word_embeddings.weight"]
    assert not torch.equal(before, after)


def test_step_updates_only_the_encoder_and_the_head_of_its_task(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, set[str]]] = []
    real = multitask.MultiTaskTrainer.step

    def step(self, number, batches):
        before = {name: value.clone() for name, value in self.shared.named_parameters()}
        done = real(self, number, batches)
        moved = {name for name, value in self.shared.named_parameters() if not torch.equal(value, before[name])}
        seen.append((self.names[self.loader.task(number)], {".".join(name.split(".")[:2]) for name in moved}))
        return done

    monkeypatch.setattr(multitask.MultiTaskTrainer, "step", step)
    monkeypatch.setattr(Finetune, "finish", lambda *_: {})
    short = run.recipe().model_copy(update={"train": run.recipe().train.model_copy(update={"steps": 12})})
    execute(Finetune(), short, Context.single_process(), run.path.parent / "moves")
    assert {name for name, _ in seen} == {"sentiment", "people"}
    for name, moved in seen:
        assert {m for m in moved if m.startswith("tasks.")} == {f"tasks.{name}"} and "encoder.layers" in moved


def test_log_contains_only_the_terms_of_the_step(run: Run) -> None:
    lines = [e for e in run.events() if e["event"] == "train"]
    terms = [{k for k in e if k in ("sentiment.classify", "people.tag")} for e in lines]
    assert all(len(t) == 1 for t in terms), "a step belongs to one task and logs only its terms"
    assert {next(iter(t)) for t in terms} == {"sentiment.classify", "people.tag"}


def test_killed_run_resumes_bit_exactly(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Kill(Exception):
        pass

    steps, real = [], multitask.MultiTaskTrainer.step

    def step(self, number, batches):
        if len(steps) == 40:
            raise Kill
        steps.append(number)
        return real(self, number, batches)

    monkeypatch.setattr(multitask.MultiTaskTrainer, "step", step)
    with pytest.raises(Kill):
        api.finetune(recipe=recipe(folder), out=folder / "killed")
    monkeypatch.setattr(multitask.MultiTaskTrainer, "step", real)
    monkeypatch.setattr("unmask.report.write", lambda run: None)  # plotting is slow
    assert api.info(folder / "killed")["resume_command"] == f"unmask finetune --resume {folder / 'killed'}"
    again = api.resume(folder / "killed")
    for name in ("sentiment", "people"):
        a, b = (load_file(r.model / name / "model.safetensors") for r in (run, again))
        assert all(torch.equal(a[key], b[key]) for key in a)
    results = [r.read_json("results.json") for r in (run, again)]
    for values in results:
        values.pop("seconds"), values.pop("model")
        for part in values["tasks"].values():
            part.pop("model")
    assert results[0] == results[1]


def test_tasks_are_sampled_by_sqrt_of_size_and_rows_are_read_in_order() -> None:
    class Rows:
        pad = 0

    loaders = [LengthBucketedLoader(Rows(), [5] * n, 4, None, 0) for n in (1600, 100)]  # type: ignore[arg-type]
    loader_of_tasks = MultiTaskLoader(loaders, 4, seed=3)
    sampled = [loader_of_tasks.task(step) for step in range(4000)]
    assert np.mean(sampled) == pytest.approx(1 / 5, abs=0.02)
    assert sampled[:50] == [MultiTaskLoader(loaders, 4, seed=3).task(step) for step in range(50)], (
        "must depend only on seed and step"
    )
    requested: list[tuple[int, int, int]] = []
    for n, loader in enumerate(loaders):
        loader.batch = lambda a, b, step_config, n=n: requested.append((n, a, b)) or type("B", (), {"labels": {}})()  # type: ignore
    for step in range(60):
        loader_of_tasks.batch(4 * step, 4 * step + 2, None)  # type: ignore[arg-type]  # two micro-batches of one step
        loader_of_tasks.batch(4 * step + 2, 4 * step + 4, None)  # type: ignore[arg-type]
    for n in (0, 1):
        rows = [row for task, a, b in requested if task == n for row in range(a, b)]
        assert rows == list(range(len(rows)))


def test_invalid_combinations_raise(folder: Path, tmp_path: Path) -> None:
    values = recipe(folder)
    with pytest.raises(UserError, match="both `tasks` and a `task`"):
        api.finetune(recipe=values | {"task": {"train": ["x.csv"]}}, out=tmp_path / "a")
    tasks = values["tasks"] | {"../x": values["tasks"]["people"]}
    with pytest.raises(UserError, match=r"'\.\./x'"):
        api.finetune(recipe=values | {"tasks": tasks}, out=tmp_path / "b")
    frozen = json.loads(json.dumps(values))
    frozen["tasks"]["people"]["freeze"] = "encoder"
    with pytest.raises(UserError, match="share an encoder must have the same value of freeze"):
        api.finetune(recipe=frozen, out=tmp_path / "c")


def test_undefined_score_is_excluded_from_the_mean(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unmask.report.write", lambda run: None)
    (folder / "stars.csv").write_text("text,label\n" + "".join(f"{sentence(n)[0]},{n / 7}\n" for n in range(24)))
    (folder / "same.csv").write_text("text,label\n" + "".join(f"a film {n},2.5\n" for n in range(6)))
    values = recipe(folder, steps=4, num_evals=2)
    stars = {"train": [str(folder / "stars.csv")], "dev": [str(folder / "same.csv")]}
    values["tasks"]["stars"] = {"name": "classify", "classify": {"problem_type": "regression"}, **stars}
    best = api.finetune(recipe=values, out=folder / "undefined").read_json("results.json")["best"]
    assert "stars.r2" not in best
    assert best["mean"] == pytest.approx(np.mean([best["sentiment.accuracy"], best["people.f1"]]))


def test_each_task_keeps_its_max_dev_records_on_resume(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = replace(Tag.SPEC, training=replace(Tag.SPEC.training, max_dev_records=3))
    monkeypatch.setattr(Tag, "SPEC", spec)
    first = Finetune().prepare(make_recipe(recipe(folder)), Context.single_process())
    again = Finetune().prepare(Recipe.build(first.recipe.model_dump()), Context.single_process())
    for jobs in (first, again):
        assert [job.recipe.train.max_eval_examples for job in jobs.parts.values()] == [2000, 3]
