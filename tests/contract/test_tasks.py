"""Contract of all tasks: every task overfits a few records, reloads bit for bit, resumes bit for bit after an interruption, and predicts
the same through Python, the command line and, if a class exists, transformers or sentence-transformers.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from contract import theirs
from near import near
from runs.tiny import train
from typer.testing import CliRunner

import unmask
from unmask import api
from unmask.cli import app
from unmask.console import Console
from unmask.inference import labeled_files
from unmask.inference.predictor import Predictor
from unmask.labels.records import Record
from unmask.model import hf
from unmask.model.config import preset, with_tokenizer
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.runs.budget import plan_budget
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.part import Part, prepare
from unmask.text.tokenizer import Tokenizer
from unmask.train.fit import TrainingInterrupted
from unmask.train.run import Run

SHAPE = {
    "hidden": 32,
    "heads": 2,
    "layers": 2,
    "intermediate": 64,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "max_positions": 64,
}
NAMES = ["Ann", "Ben", "Cleo", "Dan", "Eve", "Finn"]
TOWNS = ["Rome", "Paris", "Oslo", "Bonn", "Riga", "Bern"]
FACTS = [f"{name} lives in {town} ." for name, town in zip(NAMES, TOWNS)]


def jsonl(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def rotate(items: list[Any], by: int) -> list[Any]:
    """
    >>> rotate([1, 2, 3], 1)
    [3, 1, 2]
    """
    by %= len(items)
    return items[len(items) - by :] + items[: len(items) - by]


@dataclass
class Case:
    file: str
    content: str
    ask: tuple[Any, ...]  # the first record, as a user would type it
    preset: str = "bert-tiny"
    steps: int = 40
    lr: float = 5e-3
    min_score: float = 0.99
    overrides: list[str] = field(default_factory=list)
    theirs: Callable[[Predictor, list[Record], Path], None] | None = None


# ------------------------------------------------------------------------------------------------------------- cases

CASES = {
    "classify": Case(
        "rows.csv",
        "id,text,label\n" + "".join(f"n{i},{fact},{'north' if i % 2 else 'south'}\n" for i, fact in enumerate(FACTS)),
        (FACTS[0],),
        theirs=theirs.as_sequence_classifier,
    ),
    "tag": Case(
        "rows.conll",
        "".join(f"{name} B-PER\nlives O\nin O\n{town} B-LOC\n. O\n\n" for name, town in zip(NAMES, TOWNS)),
        (FACTS[0],),
        theirs=theirs.as_token_classifier,
    ),
    "answer": Case(
        "rows.jsonl",
        jsonl([
            {"id": f"q{i}", "question": f"where does {name} live ?", "context": fact, "answers": [{"text": town, "start": fact.index(town)}]}
            for i, (name, town, fact) in enumerate(zip(NAMES, TOWNS, FACTS))
        ]),
        (f"where does {NAMES[0]} live ?", FACTS[0]),
        theirs=theirs.as_question_answerer,
    ),
    "choose": Case(
        "rows.jsonl",
        jsonl([
            {"text": f"{name} lives in", "choices": rotate([town, "the sea", "no house"], i), "label": i % 3}
            for i, (name, town) in enumerate(zip(NAMES, TOWNS))
        ]),
        (f"{NAMES[0]} lives in", TOWNS[0], "the sea", "no house"),
        theirs=theirs.as_multiple_choice,
    ),
    "generate": Case(
        "rows.csv",
        "text,target\n" + "".join(f"where is {name} ?,in {town}\n" for name, town in zip(NAMES, TOWNS)),
        (f"where is {NAMES[0]} ?",),
        preset="t5-mini",
        steps=60,
        lr=1e-2,
        overrides=["task.generate.max_new_tokens=16"],
        theirs=theirs.as_seq2seq,
    ),
    "embed": Case(
        "rows.csv",
        "text,positive\n" + "".join(f"where is {name} ?,{fact}\n" for name, fact in zip(NAMES, FACTS)),
        (f"where is {NAMES[0]} ?",),
        theirs=theirs.as_sentence_transformer,
    ),
    "rank": Case(
        "rows.jsonl",
        jsonl([
            {"query": f"where is {name} ?", "passages": rotate([fact, "the sea", "no house"], i), "relevance": rotate([1, 0, 0], i)}
            for i, (name, fact) in enumerate(zip(NAMES, FACTS))
        ]),
        (f"where is {NAMES[0]} ?", FACTS[0], "the sea", "no house"),
        theirs=theirs.as_cross_encoder,
    ),
}  # fmt: skip
# Cases whose text the tokenizer is trained on. Do not add new cases here: that would change all others.
TOKENIZED = ("classify", "tag", "answer", "choose", "generate", "embed", "rank")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Bench"]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("unmask.report.write", lambda run: None)  # figures take longer than these runs
        yield Bench(tmp_path_factory.mktemp("tasks"))


class Bench:
    """Runs of this file, each trained on first use."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.start, self.whole = cache(self._start), cache(self._whole)

    def _start(self, name: str) -> str:
        """Save a tiny, untrained model."""
        settings = with_tokenizer(Recipe.build({"preset": name})).tokenizer
        settings = settings.model_copy(update={"vocab_size": 0})
        tokenizer = Tokenizer.train([CASES[task].content for task in TOKENIZED] * 4, settings)
        fixed = FAMILIES[preset(name).family].fixed
        shape = SHAPE | {
            "vocab_size": tokenizer.size,
            "pad_id": tokenizer.pad,
            "cls_id": tokenizer.cls,
            "sep_id": tokenizer.sep,
        }
        shape |= {"decoder_layers": 2} if preset(name).decoder_layers else {}
        config = preset(name, **{key: value for key, value in shape.items() if key not in fixed})
        hf.save(Model(config, ("lm",) if config.decoder_layers else ("mlm",)).init(0), self.folder / name, tokenizer)
        return str(self.folder / name)

    def recipe(self, task: str) -> Recipe:
        case = CASES[task]
        file = self.folder / task / case.file
        file.parent.mkdir(exist_ok=True)
        file.write_text(case.content)
        budget = [
            f"train.steps={case.steps}",
            "train.batch_size=6",
            f"train.lr={case.lr}",
            "train.save_steps=7",
            "seed=3",
        ]
        return api.task_recipe(self.start(case.preset), task=task, train=file, overrides=[*budget, *case.overrides])

    def _whole(self, task: str) -> tuple[Part, Run]:
        """Train an uninterrupted run; return it with its in-memory state."""
        job = prepare(self.recipe(task))
        return job, train(job, self.folder / task / "whole")

    def file(self, task: str) -> str:
        return str(self.folder / task / CASES[task].file)

    def records(self, task: str, p: Predictor) -> list[Record]:
        return labeled_files.read_records(p.require_task(), [self.file(task)], {}, False, Console(quiet=True))[0]


def same(a: Any, b: Any) -> bool:
    return json.dumps(a, sort_keys=True, default=str) == json.dumps(b, sort_keys=True, default=str)


@pytest.mark.parametrize("task", CASES)
def test_task_overfits_a_few_records(task: str, bench: Bench) -> None:
    run = bench.whole(task)[1]
    metrics = api.evaluate(run.path, bench.file(task))
    assert metrics["task"] == task
    assert metrics[metrics["metric"]] >= CASES[task].min_score, metrics


@pytest.mark.parametrize("task", CASES)
def test_saved_model_reloads_bit_for_bit(task: str, bench: Bench, tmp_path: Path) -> None:
    job, run = bench.whole(task)
    p = unmask.load(run.path)
    records = bench.records(task, p)
    assert same(p.predict(records), job.task.predict(job.model, records))
    Part(job.recipe, p.require_task(), p.model, job.sets, []).save(tmp_path)
    for name in ("model.safetensors", "config.json", "unmask.json", "tokenizer.json"):
        assert (tmp_path / name).read_bytes() == (run.model / name).read_bytes(), name


@pytest.mark.parametrize("task", CASES)
def test_chunked_prediction_equals_unchunked(task: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    p = unmask.load(bench.whole(task)[1].path)
    records = bench.records(task, p)
    whole = p.predict(records)
    monkeypatch.setattr("unmask.tasks.task.CHUNK_SIZE", 2)
    assert equal_up_to_rounding(p.predict(records), whole) and len(records) > 2


def equal_up_to_rounding(a: Any, b: Any) -> bool:
    """Compare up to rounding: results depend on the other rows of a batch in the last digits."""
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(equal_up_to_rounding(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(equal_up_to_rounding, a, b))
    return a == near(b, 1e-4) if isinstance(a, float) else a == b


class InterruptingConsole(Console):
    """Sends SIGTERM to this process after `step` steps."""

    def __init__(self, step: int):
        super().__init__(quiet=True)
        self.step = step

    @contextmanager
    def bar(self, title: str) -> Iterator[Any]:
        def update(done: float, total: float, message: str = "") -> None:
            if title == "finetune" and done == self.step:
                os.kill(os.getpid(), signal.SIGTERM)

        yield update


@pytest.mark.parametrize("task", CASES)
def test_interrupted_run_resumes_bit_for_bit(task: str, bench: Bench) -> None:
    whole, out = bench.whole(task)[1], bench.folder / task / "stopped"
    with pytest.raises(TrainingInterrupted):
        api.finetune(recipe=bench.recipe(task), out=out, console=InterruptingConsole(10))
    assert not (out / "model").exists()
    run = api.resume(out)
    for name in ("model.safetensors", "unmask.json"):
        assert (run.model / name).read_bytes() == (whole.model / name).read_bytes(), name
    losses = [[(e["step"], e["loss"]) for e in r.events() if e["event"] == "train"] for r in (run, whole)]
    assert losses[0] == losses[1] and len(losses[0]) == CASES[task].steps


@pytest.mark.parametrize("task", CASES)
def test_trainer_can_be_sent_to_a_child_process(task: str, bench: Bench, tmp_path: Path) -> None:
    """`train/precision.py` needs this to try bf16."""
    context = Context.single_process()
    job = Finetune().prepare(bench.recipe(task), context)
    work = Finetune().work(job, context)
    plan = plan_budget(job.recipe, work)
    trainer, batch = work.trainer(plan, job.recipe.train), work.loader.batch(0, 6, plan.step_config(0))
    torch.save([trainer, batch], tmp_path / "trainer.pt")
    copied, same_batch = torch.load(tmp_path / "trainer.pt", weights_only=False)
    assert copied.gradients(0, [(0, same_batch)]) == trainer.gradients(0, [(0, batch)])


@pytest.mark.parametrize("task", CASES)
def test_python_and_command_line_predict_the_same(task: str, bench: Bench) -> None:
    run, case = bench.whole(task)[1], CASES[task]
    p = unmask.load(run.path)
    direct = p(*case.ask)
    (by_api,) = unmask.predict(run.path, [case.ask])
    assert same({key: by_api[key] for key in direct}, direct)
    result = CliRunner().invoke(app, ["predict", str(run.path), *case.ask, "--json"])
    assert result.exit_code == 0, result.output
    assert same(json.loads(result.stdout), json.loads(json.dumps([by_api], default=str)))
    file_predictions = unmask.predict(run.path, bench.file(task))
    result = CliRunner().invoke(app, ["predict", str(run.path), bench.file(task), "--json"])
    assert same(json.loads(result.stdout), json.loads(json.dumps(file_predictions, default=str)))
    records = bench.records(task, p)
    assert [a["location"] for a in file_predictions] == [r["location"] for r in records] and len(
        file_predictions
    ) == len(NAMES)
    if task == "classify":
        assert [a["id"] for a in file_predictions] == [f"n{i}" for i in range(6)]
    result = CliRunner().invoke(app, ["predict", str(run.path), *case.ask])
    assert result.exit_code == 0 and result.stdout.strip()


@pytest.mark.parametrize("task", [name for name, case in CASES.items() if case.theirs])
def test_predictions_equal_those_of_transformers(task: str, bench: Bench) -> None:
    run, compare = bench.whole(task)[1], CASES[task].theirs
    p = unmask.load(run.path)
    assert compare
    compare(p, bench.records(task, p), run.model)
