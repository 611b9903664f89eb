"""Export a fine-tuned classifier as a static copy: one vector per token, their mean, and a linear layer (inference/static_engine.py).

The copy is trained on the outputs of the model for the texts of --data (distill.py), so it needs texts, but no labels. A tenth of the
texts is held out: it decides when the training stops, and the card reports how often the copy predicts the same as the model there.
Labeled texts are held out first. If there are any, the card also reports the metric of both.

The folder has model.safetensors, config.json and tokenizer.json in the format of model2vec, and unmask.json, export.json and README.md.
It is written only if the folder, loaded again, gives the outputs of the trained copy.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unmask import __version__
from unmask.console import Console
from unmask.errors import UserError
from unmask.exporting.checks import MAX_DIFFERENCE
from unmask.exporting.distill import (
    DIM,
    Student,
    Targets,
    Update,
    choose_prior,
    distill,
    initial_vectors,
    num_parameters,
)
from unmask.exporting.export import Source, atomic_folder, check_free
from unmask.files import write_json, write_text
from unmask.inference import labeled_files
from unmask.inference.exported import FILE, VERSION
from unmask.inference.predictor import load
from unmask.inference.static_engine import MAX_TOKENS, WEIGHTS_FILE, StaticEngine, StaticWeights
from unmask.inference.torch_engine import TorchEngine
from unmask.labels.fields import detected_columns, inputs_of, required_targets, target_key
from unmask.labels.records import Record, open_source
from unmask.model.config_file import STATIC
from unmask.seeds import generator
from unmask.tasks import folder as task_folder
from unmask.tasks.spec import TaskSpec
from unmask.tasks.task import Outputs, Task

MAX_TEXTS, MIN_TEXTS = 20_000, 20
OUTPUTS = ("choice", "binary", "number")
SEQUENCE_REASON = "it reads tokens in their context, and a static model has none"
REASONS = {"vector": "its vectors are its output, and the copy learns labels or numbers", "text": "it generates text"}


@dataclass(frozen=True)
class Data:
    """The records of --data, without duplicates and at most MAX_TEXTS."""

    train: list[Record]
    held_out: list[Record]
    found: int  # before sampling

    @property
    def counts(self) -> dict[str, int]:
        return {"texts": len(self.train) + len(self.held_out), "held_out": len(self.held_out), "found": self.found}


def check_supported(task: Task | None) -> Task:
    """Return the task. Raise UserError if a static model cannot replace the model."""
    if task is None:
        raise UserError(
            "a static copy needs a model that is fine-tuned for a task", hint="unmask finetune MODEL --train FILE"
        )
    spec: TaskSpec = task.spec
    if spec.output in OUTPUTS and spec.output_per == "row" and not spec.grouped:
        return task
    reason = REASONS.get(spec.output, SEQUENCE_REASON)
    if spec.grouped:
        reason = "it compares the texts of a record with each other"
    raise UserError(
        f"a static copy of a model for the task {task.name} is not supported: {reason}",
        expected="a model that predicts a label, several labels or a number for a text or a pair of texts",
        hint="remove --format static, to export to ONNX",
    )


def read_data(task: Task, paths: Sequence[str], columns: dict[str, str], console: Console) -> Data:
    """Read texts from labeled and unlabeled files."""
    records: dict[tuple[str, ...], Record] = {}
    for path in paths:
        for record in _read_file(task, path, columns, console):
            key = inputs_of(task.SPEC, record)
            if key not in records or target_key(task.SPEC, records[key]) is None:
                records[key] = record
    if len(records) < MIN_TEXTS:
        raise UserError(
            f"--data has {len(records):,} different texts",
            expected=f"at least {MIN_TEXTS}; a few thousand for a good copy",
            hint="add unlabeled texts: --data FILE",
        )
    order = generator(0, "static", "texts").permutation(len(records)).tolist()
    found = list(records.values())
    shuffled = [found[n] for n in order]
    labeled = [record for record in shuffled if target_key(task.SPEC, record) is not None]
    if labeled:
        labeled_files.check_labels(task, labeled, console)
    count = min(len(records), MAX_TEXTS)
    # sorted is stable: a random tenth, but labeled texts first, because they measure the copy.
    is_unlabeled = [target_key(task.SPEC, record) is None for record in shuffled]
    held_out = sorted(range(len(shuffled)), key=is_unlabeled.__getitem__)[: count // 10]
    rest = sorted(set(range(len(shuffled))) - set(held_out))[: count - len(held_out)]
    return Data([shuffled[n] for n in rest], [shuffled[n] for n in held_out], len(records))


def _read_file(task: Task, path: str, columns: dict[str, str], console: Console) -> list[Record]:
    """Read a file with its labels, if it has a column with labels for every text."""
    settings = task.settings.model_copy(update={"columns": task.settings.columns | columns})
    source = open_source(path, [], columns=settings.columns)
    roles = detected_columns(task.SPEC.fields, source, settings)
    if all(role in roles for role in required_targets(task.SPEC.fields)):
        try:
            return labeled_files.read_records(task, [path], columns, True, console)[0]
        except UserError as error:
            console.warn(f"{path} is read without its labels: {error.message}")
    return labeled_files.read_records(task, [path], columns, False, console)[0]


def plan(source: Source, data: Data, out: Path) -> dict[str, Any]:
    """Return a description of the export, without writing it."""
    task = check_supported(source.task)
    dim, pairs = min(DIM, source.model.config.hidden), task.bound.text_pairs
    parameters = num_parameters(source.tokenizer.size, dim, num_outputs(task), pairs)
    return {
        "folder": str(out),
        "format": "static",
        "task": task.name,
        "family": source.model.config.family,
        "output": task.spec.output,
        "pairs": pairs,
        "vocab_size": source.tokenizer.size,
        "dim": dim,
        "parameters": parameters,
        "bytes": 4 * parameters,
        "data": data.counts,
    }


@dataclass(frozen=True)
class Copy:
    """The trained copy, and what is needed to save and to check it."""

    weights: StaticWeights
    task: Task
    manifest: dict[str, Any]  # export.json
    reference: Outputs  # of the model, for the held-out texts
    seconds: float  # that the model took for them
    expected: np.ndarray  # (N, outputs) of the trained copy for them


def export(source: Source, data: Data, out: Path, console: Console) -> dict[str, Any]:
    """Train the copy and write its folder. Return its description, how close it is to the model, and the speed of both."""
    planned = plan(source, data, out)
    check_free(out)
    with atomic_folder(out) as folder, console.bar("export") as update:
        trained = train_copy(source, data, update)
        trained.weights.save(folder)
        write_json(folder / FILE, trained.manifest)
        write_json(folder / "config.json", _model2vec_config(planned))
        source.tokenizer.save(folder, segments=False, max_length=MAX_TOKENS)
        task_folder.save_task(trained.task, folder)
        update(1, 1, "checking the copy")
        result = planned | validate(trained, source, data, folder) | {"bytes": (folder / WEIGHTS_FILE).stat().st_size}
        write_json(folder / FILE, trained.manifest | {key: result[key] for key in ("data", "validation")})
        write_card(folder, result, trained.manifest["by"])
    return result


def train_copy(source: Source, data: Data, update: Update) -> Copy:
    task, tokenizer, engine = check_supported(source.task), source.tokenizer, TorchEngine(source.model, "cpu")
    copy_task = task.with_single_row(MAX_TOKENS)
    copy_task.blend = None
    student = Student(initial_vectors(engine, tokenizer), num_outputs(task), task.bound.text_pairs)
    manifest = {
        "version": VERSION,
        "format": "static",
        "task": task.name,
        "heads": list(task.heads),
        "labels": list(source.model.config.labels),
        "pairs": task.bound.text_pairs,
        "separator": [id for id, _ in tokenizer.special_token_layout[1][1]],
        "prior_tokens": 1.0,  # chosen below
        "parameters": sum(value.numel() for value in student.parameters()),
        "by": f"unmask {__version__}",
    }
    untrained = StaticEngine(student.weights(tokenizer.special), manifest)

    def predict(records: list[Record]) -> tuple[Targets, Outputs]:
        rows = [row for record in records for row in copy_task.encode(record, labeled=False)]
        assert len(rows) == len(records)  # MAX_TOKENS leaves one row per text
        outputs = task.compute_outputs(engine, records, lambda done, total, _: update(done, total, "predicting"))
        return Targets([untrained.text_tokens(row) for row in rows], outputs.record_means()), outputs

    train, _ = predict(data.train)
    student.prior_tokens = manifest["prior_tokens"] = choose_prior(train.texts)
    start = time.perf_counter()
    held_out, reference = predict(data.held_out)
    seconds = time.perf_counter() - start
    distill(student, task.spec.output, train, held_out, update)
    with torch.inference_mode():
        expected = student(held_out.texts).double().numpy()
    return Copy(student.weights(tokenizer.special), copy_task, manifest, reference, seconds, expected)


def validate(trained: Copy, source: Source, data: Data, folder: Path) -> dict[str, Any]:
    """Load the folder and compare it with the trained copy and with the model."""
    static, task = load(folder), check_supported(source.task)
    start = time.perf_counter()
    outputs = static.require_task().compute_outputs(static.engine, data.held_out)
    seconds = time.perf_counter() - start
    validation = {
        "largest_difference": check_equal(trained.expected, outputs.record_means()),
        "texts": len(data.held_out),
        "agreement": agreement(task, trained.reference, outputs),
        **measure(task, trained.reference, outputs, data.held_out),
    }
    speed = {"model": len(data.held_out) / trained.seconds, "copy": len(data.held_out) / seconds}
    return {"validation": validation, "texts_per_second": speed}


def check_equal(expected: np.ndarray, found: np.ndarray) -> float:
    """Return the largest difference of any output; raise UserError if it is too large."""
    difference = float(np.abs(expected - found).max(initial=0.0))
    allowed = MAX_DIFFERENCE * max(1.0, float(np.abs(expected).max(initial=0.0)) / 10)
    if not difference <= allowed:  # also for NaN
        raise UserError(
            f"the saved copy differs from the trained one by {difference:.2g}; nothing was written",
            expected=f"a difference of at most {allowed:.2g}",
            hint="please report this with the model's config.json",
        )
    return difference


def agreement(task: Task, reference: Outputs, outputs: Outputs) -> float:
    """Return the share of texts with the same prediction: the same label, or the same labels. For numbers, return R² of the copy's
    numbers against the model's."""
    if task.spec.output == "number":
        y, predicted = reference.record_means(), outputs.record_means()
        return float(1 - np.square(predicted - y).sum() / (np.square(y - y.mean()).sum() or 1.0))
    pairs = zip(task.decode(reference), task.decode(outputs), strict=True)
    return float(np.mean([_decision(a) == _decision(b) for a, b in pairs]))


def _decision(prediction: dict[str, Any]) -> dict[str, Any]:
    """Return a prediction without its probabilities."""
    return {key: value for key, value in prediction.items() if isinstance(value, str | list)}


def measure(task: Task, reference: Outputs, outputs: Outputs, records: list[Record]) -> dict[str, Any]:
    """Return the metric of the model and of the copy on the labeled texts, or {} if there are none."""
    labeled = [n for n, record in enumerate(records) if target_key(task.SPEC, record) is not None]
    if not labeled:
        return {}
    chosen = [records[n] for n in labeled]
    metric = task.spec.metric(chosen)
    model, copy = (task.score([task.decode(each)[n] for n in labeled], chosen) for each in (reference, outputs))
    if metric not in model or metric not in copy:  # undefined for so few records
        return {}
    points = 100 * (model[metric] - copy[metric])
    return {
        "metric": metric,
        "records": len(chosen),
        "model": model[metric],
        "copy": copy[metric],
        "points_lost": points,
    }


def num_outputs(task: Task) -> int:
    return len(task.spec.labels) or 1


# ------------------------------------------------------------------------------------------------------------- the folder


def _model2vec_config(planned: dict[str, Any]) -> dict[str, Any]:
    """Return the config.json that model2vec writes. transformers has no such model_type and says so."""
    return {
        "model_type": STATIC,
        "architectures": ["StaticModel"],
        "hidden_dim": planned["dim"],
        "normalize": False,
        "max_length": None,  # of a text, in tokens
        "embedding_dtype": "float32",
    }


def write_card(folder: Path, result: dict[str, Any], by: str) -> None:
    v, data, speed = result["validation"], result["data"], result["texts_per_second"]
    lines = [
        "---\nlibrary_name: unmask\ntags: [unmask, static]\n---\n",
        f"# Static copy ({result['task']})\n",
        f"A static copy of a fine-tuned {result['family']} model, made by {by}: one vector of {result['dim']} values per token, "
        "their mean over a text, and a linear layer. It needs numpy and tokenizers, but no torch.\n",
        "| | |\n|---|---|",
        f"| trained on | the outputs of the model for {data['texts'] - data['held_out']:,} texts |",
        f"| {agreement_name(result)} | {v['agreement']:.4f} on {v['texts']:,} held-out texts |",
    ]
    if "metric" in v:
        lines.append(
            f"| {v['metric']} on {v['records']:,} held-out labeled texts | model {v['model']:.4f}, copy {v['copy']:.4f}: "
            f"{v['points_lost']:.2f} points lost |"
        )
    lines += [
        f"| texts per second | model {speed['model']:,.0f}, copy {speed['copy']:,.0f}, measured once on the machine of the export |",
        f"| size | {result['bytes'] / 1e6:.1f} MB |\n",
        '```python\nimport unmask\n\nmodel = unmask.load("FOLDER")\n```\n',
        'The vectors open in model2vec: `StaticModel.from_pretrained("FOLDER")`.\n',
    ]
    write_text(folder / "README.md", "\n".join(lines))


def agreement_name(result: dict[str, Any]) -> str:
    return "R² against the model" if result["output"] == "number" else "same prediction as the model"
