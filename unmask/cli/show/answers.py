"""Terminal output of predict: one line per record, formatted as `TaskSpec.view` says."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from unmask.console import plain, visible, write
from unmask.errors import UserError
from unmask.files import write_text
from unmask.inference.inputs import shorten
from unmask.tasks.spec import TaskSpec

SHOWN_INPUTS = ("text", "pair", "question", "query", "sentence")  # inputs shown before the prediction
Found = dict[str, Any]  # a record with its prediction


def line(found: Found, spec: TaskSpec) -> str:
    """
    >>> from unmask.registry import TASKS
    >>> def shown(task, **found): return line(found, TASKS[task].SPEC)
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
    texts = [f.key for f in spec.inputs if f.holds == "text" and f.key in found]
    inputs = " | ".join(
        shorten(found[key].replace("\n", " ")) for key in [k for k in texts if k in SHOWN_INPUTS] or texts
    )
    place = next((found[f.key] for f in spec.inputs if f.holds == "place" and f.key in found), None)
    if place is not None:
        inputs += f" [{place if isinstance(place, str) else found[texts[0]][slice(*place)]}]"
    return f"{inputs}  →  {VIEWS.get(spec.view, _plain)(found, spec)}"


def _labels(found: Found, spec: TaskSpec) -> str:
    if "value" in found:
        return f"{found['value']:.6g}"
    if "label" in found:
        return f"{found['label']} {found['probability']:.0%}"
    return ", ".join(f"{name} {found['scores'][name]:.0%}" for name in found["labels"]) or "none"


def _tags(found: Found, spec: TaskSpec) -> str:
    if "entities" in found:
        return ", ".join(f"{e['text']} = {e['label']} {e['score']:.0%}" for e in found["entities"]) or "no entity"
    text = found[spec.inputs[0].key]
    return " ".join(f"{text[start:end]}/{tag}" for (start, end), tag in zip(found["words"], found["tags"]))


def _answer(found: Found, spec: TaskSpec) -> str:
    place = f" (characters {found['start']}–{found['end']})" if found.get("start") is not None else ""
    return f"{found['answer'] or 'no answer'} {found['probability']:.0%}{place}"


def _ranking(found: Found, spec: TaskSpec) -> str:
    texts = next(found[f.key] for f in spec.inputs if f.holds == "texts")
    return "; ".join(f"{found['scores'][i]:.3f} {shorten(texts[i])}" for i in found["order"])


def _text(found: Found, spec: TaskSpec) -> str:
    truncated = found.get("num_truncated_tokens")
    note = f"  (truncated: the last {truncated:,} tokens were not used)" if truncated else ""
    return found["output"] + (" …" if found.get("finish_reason") == "length" else "") + note


def _vector(found: Found, spec: TaskSpec) -> str:
    if "similarity" in found:
        return f"{found[spec.inputs[1].key]}: {found['similarity']:.3f}"
    return " ".join(f"{x:.3f}" for x in found["vector"][:6]) + f" … ({len(found['vector'])} numbers)"


def _plain(found: Found, spec: TaskSpec) -> str:
    inputs = {"location", "id", *(f.key for f in spec.fields if f.use != "target")}
    rest = {key: value for key, value in found.items() if key not in inputs}
    return json.dumps(rest, ensure_ascii=False, default=plain)


VIEWS: dict[str, Callable[[Found, TaskSpec], str]] = {
    "labels": _labels,
    "tags": _tags,
    "span": _answer,
    "choices": _answer,
    "ranking": _ranking,
    "text": _text,
    "vector": _vector,
}


def print_answers(found: Sequence[Found], spec: TaskSpec) -> None:
    write(*(visible(line(each, spec), keep="\t") for each in found))  # a label with a line break is still one line


def check_out(out: Path | None) -> None:
    """Reject `--out` before a model is loaded."""
    if out is not None and out.suffix not in (".csv", ".jsonl"):
        raise UserError(f"--out {out} has an unknown extension", expected="a file name that ends with .csv or .jsonl")
    if out is not None and not out.parent.is_dir():
        raise UserError(f"--out {out}: the folder {out.parent} does not exist")


def write_answers(found: Sequence[Found], out: Path) -> None:
    """Write one record per line with its prediction; in a csv, lists and mappings are JSON."""
    if out.suffix == ".jsonl":
        lines = [json.dumps(each, ensure_ascii=False, default=plain) + "\n" for each in found]
        return write_text(out, "".join(lines))
    columns = list(dict.fromkeys(key for each in found for key in each))
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(columns)
    for each in found:
        cells = [each.get(column, "") for column in columns]
        writer.writerow(
            [c if isinstance(c, str | int | float) else json.dumps(c, ensure_ascii=False, default=plain) for c in cells]
        )
    write_text(out, table.getvalue())
