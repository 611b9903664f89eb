"""Terminal output of predict: one line per record, formatted as `TaskSpec.view` says."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unmask.console import plain, visible, write
from unmask.errors import UserError, command
from unmask.files import write_text
from unmask.inference.inputs import shorten
from unmask.tasks.spec import TaskSpec

SHOWN_INPUTS = ("text", "pair", "question", "query", "sentence")  # inputs shown before the prediction
PredictedRecord = dict[str, Any]  # a record with its prediction


def format_prediction(prediction: PredictedRecord, spec: TaskSpec) -> str:
    """
    >>> from unmask.registry import TASKS
    >>> def shown(task, **prediction): return format_prediction(prediction, TASKS[task].SPEC)
    >>> shown("classify", text="what a film", label="pos", probability=0.93)
    'what a film  →  pos 93%'
    >>> shown("classify", text="so", labels=["a"], scores={"a": 0.7, "b": 0.1}), shown("classify", text="so", value=2.5)
    ('so  →  a 70%', 'so  →  2.5')
    >>> shown("answer", question="who?", context="It is Ann", answer="Ann", start=6, end=9, probability=0.93)
    'who?  →  Ann 93% (characters 6–9)'
    >>> shown("tag", text="in Rome", entities=[{"text": "Rome", "label": "loc", "score": 0.9, "start": 3, "end": 7}])
    'in Rome  →  Rome = loc 90%'
    >>> shown("rank", query="who?", passages=["Ann", "Bo"], scores=[0.1, 2.0], order=[1, 0])
    'who?  →  2.000 Bo; 0.100 Ann'
    """
    texts = [f.key for f in spec.inputs if f.holds == "text" and f.key in prediction]
    inputs = " | ".join(
        shorten(prediction[key].replace("\n", " ")) for key in [k for k in texts if k in SHOWN_INPUTS] or texts
    )
    place = next((prediction[f.key] for f in spec.inputs if f.holds == "place" and f.key in prediction), None)
    if place is not None:
        inputs += f" [{place if isinstance(place, str) else prediction[texts[0]][slice(*place)]}]"
    return f"{inputs}  →  {VIEWS.get(spec.view, _plain)(prediction, spec)}"


def _labels(prediction: PredictedRecord, spec: TaskSpec) -> str:
    if "value" in prediction:
        return f"{prediction['value']:.6g}"
    if "label" in prediction:
        return f"{prediction['label']} {prediction['probability']:.0%}"
    return ", ".join(f"{name} {prediction['scores'][name]:.0%}" for name in prediction["labels"]) or "none"


def _tags(prediction: PredictedRecord, spec: TaskSpec) -> str:
    if "entities" in prediction:
        return ", ".join(f"{e['text']} = {e['label']} {e['score']:.0%}" for e in prediction["entities"]) or "no entity"
    text = prediction[spec.inputs[0].key]
    return " ".join(f"{text[start:end]}/{tag}" for (start, end), tag in zip(prediction["words"], prediction["tags"]))


def _answer(prediction: PredictedRecord, spec: TaskSpec) -> str:
    place = f" (characters {prediction['start']}–{prediction['end']})" if prediction.get("start") is not None else ""
    return f"{prediction['answer'] or 'no answer'} {prediction['probability']:.0%}{place}"


def _ranking(prediction: PredictedRecord, spec: TaskSpec) -> str:
    texts = next(prediction[f.key] for f in spec.inputs if f.holds == "texts")
    return "; ".join(f"{prediction['scores'][i]:.3f} {shorten(texts[i])}" for i in prediction["order"])


def _text(prediction: PredictedRecord, spec: TaskSpec) -> str:
    truncated = prediction.get("num_truncated_tokens")
    note = f"  (truncated: the last {truncated:,} tokens were not used)" if truncated else ""
    return prediction["output"] + (" …" if prediction.get("finish_reason") == "length" else "") + note


def _vector(prediction: PredictedRecord, spec: TaskSpec) -> str:
    if "similarity" in prediction:
        return f"{prediction[spec.inputs[1].key]}: {prediction['similarity']:.3f}"
    return " ".join(f"{x:.3f}" for x in prediction["vector"][:6]) + f" … ({len(prediction['vector'])} numbers)"


def _plain(prediction: PredictedRecord, spec: TaskSpec) -> str:
    inputs = {"location", "id", *(f.key for f in spec.fields if f.use != "target")}
    outputs = {key: value for key, value in prediction.items() if key not in inputs}
    return json.dumps(outputs, ensure_ascii=False, default=plain)


VIEWS: dict[str, Callable[[PredictedRecord, TaskSpec], str]] = {
    "labels": _labels,
    "tags": _tags,
    "span": _answer,
    "choices": _answer,
    "ranking": _ranking,
    "text": _text,
    "vector": _vector,
}


def print_answers(predictions: Sequence[PredictedRecord], spec: TaskSpec) -> None:
    # A label with a line break is still one line.
    write(*(visible(format_prediction(prediction, spec), keep="\t") for prediction in predictions))


def check_out(out: Path | None) -> None:
    """Reject `--out` before a model is loaded."""
    if out is not None and out.suffix not in (".csv", ".jsonl"):
        raise UserError(f"--out {out} has an unknown extension", expected="a file name that ends with .csv or .jsonl")
    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist", hint=command("mkdir -p", out.parent))


def write_answers(predictions: Sequence[PredictedRecord], out: Path) -> None:
    """Write one record per line with its prediction; in a csv, lists and mappings are JSON."""
    if out.suffix == ".jsonl":
        lines = [json.dumps(prediction, ensure_ascii=False, default=plain) + "\n" for prediction in predictions]
        return write_text(out, "".join(lines))
    columns = list(dict.fromkeys(key for prediction in predictions for key in prediction))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    for prediction in predictions:
        cells = [prediction.get(column, "") for column in columns]
        writer.writerow(
            [c if isinstance(c, str | int | float) else json.dumps(c, ensure_ascii=False, default=plain) for c in cells]
        )
    write_text(out, table.getvalue())
