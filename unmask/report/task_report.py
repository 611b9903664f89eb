"""What is drawn and written when a model was fine-tuned: report.html, png files beside it, and the model's README.md.

Everything comes from files of the run: results.json, details.json (see `Task.details`), log.jsonl, findings.json. What is not there
is left out. A list of flat dicts that nothing here knows is shown as a table.
"""

import base64
import io
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from unmask.errors import UserError, quote
from unmask.files import write_bytes, write_text
from unmask.report import task_figures as draw
from unmask.report.curves import COLORS, THEMES, finite
from unmask.report.summary import events, jsonable, render
from unmask.report.task_card import transformers_snippet, unmask_snippet, write_card
from unmask.report.task_summary import asks, describe_score, raw_text_note, second_text, task_facts, task_summary
from unmask.tasks.intervals import NO_SCORE
from unmask.train.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 700  # characters of a text that are shown
MOST = 200  # rows of a table
CELLS = 20  # labels up to which the confusion matrix is a table; larger ones are a picture
KNOWN = {"per_label", "confusion", "calibration", "pr", "scatter", "errors", "examples"}
OF_RESULTS = {"task", "metric", "step", "best", "dev", "test", "intervals", "seconds", "model", "tasks"}


def write(run: Run) -> Path:
    """report.html: one file, no scripts, nothing fetched, light or dark by the system."""
    s, results, details = task_summary(run), _read(run, "results.json"), _read(run, "details.json")
    sections = [
        _section(run, name, dict(results.get("tasks") or {}).get(name, results), details.get(name) if name else details)
        for name in s["tasks"] or [""]
    ]
    names = list(dict.fromkeys([s["metric"], *_metrics(run)]) if s["metric"] else _metrics(run))
    shared: dict[str, Figure] = {}
    if events(run, "train"):
        shared["curves"] = draw.curves(events(run), names, s["steps"]["total"])
    if results.get("trials"):
        shared |= trial_figures(results)
    html = render(
        "task_report.html",
        s=s,
        name=run.path.resolve().name,
        facts=task_facts(s),
        headline=[r for r in s["scores"] if r["shown"] and r["set"] == _last_set(s, r["task"])],
        describe=describe_score,
        raw_text=raw_text_note(s["scores"]),
        images={name: picture(run, name, figure) for name, figure in shared.items()},
        sections=sections,
        tables=_tables({key: value for key, value in results.items() if key not in OF_RESULTS}),
        command=results.get("command"),
        finite=finite,
        show=show,
        recipe=(run.path / "recipe.yaml").read_text("utf-8"),
        environment=yaml.safe_dump(s["environment"], sort_keys=False, allow_unicode=True),
    )
    path = run.path / "report.html"
    write_text(path, html)
    for name in s["tasks"] or [""]:
        folder = run.model / name if name else run.model
        if folder.is_dir():
            write_card(run, folder, s, name)
    return path


def _section(run: Run, name: str, results: dict[str, Any], details: dict[str, Any] | None) -> dict[str, Any]:
    """What is shown of one task: the details of its test set, or else of its dev set."""
    split = next((n for n in ("test", "dev") if (details or {}).get(n)), "")
    found = jsonable((details or {}).get(split) or {})
    prefix = f"{name}." if name else ""
    matrix, pr, points = found.get("confusion") or {}, found.get("pr") or [], found.get("scatter") or {}
    small = len(matrix.get("labels") or []) <= CELLS
    figures: dict[str, Figure] = {}
    if matrix.get("labels"):
        figures["confusion"] = draw.confusion(matrix["labels"], matrix["matrix"])
    if (found.get("calibration") or {}).get("bins"):
        figures["calibration"] = draw.calibration(found["calibration"])
    if pr:
        figures["pr"] = draw.pr(pr)
    if points.get("truth"):
        figures["scatter"] = draw.scatter(points["truth"], points["predicted"])
    kind, folder = str(results.get("task")), run.model / name if name else run.model
    return {
        "name": name,
        "set": split,
        "records": (results.get(split) or {}).get("records"),
        "images": {
            key: picture(run, prefix + key, figure, page=not (small and key == "confusion"))
            for key, figure in figures.items()
        },
        "per_label": found.get("per_label") or [],
        "matrix": matrix if small else {},
        "calibration": found.get("calibration") or {},
        "errors": found.get("errors") or [],
        "examples": found.get("examples") or [],
        "tables": _tables({key: value for key, value in found.items() if key not in KNOWN}),
        "commands": [
            f"unmask predict {quote(folder)} {_ask(kind, found, second_text(folder))}",
            f"unmask predict {quote(folder)} FILE --json > answers.json",
            f"unmask evaluate {quote(folder)} FILE",
            f"unmask serve {quote(folder)}",
        ],
        "snippets": [
            unmask_snippet(str(folder), kind, second_text(folder)),
            transformers_snippet(folder, str(folder), kind),
        ],
    }


def picture(run: Run, name: str, figure: "Figure", page: bool = True) -> dict[str, str]:
    """NAME.png in the run folder; for the page, the same as SVG for either theme. Drawing takes long: it is done once."""
    write_bytes(run.path / f"{name}.png", _bytes(figure, "png"))
    if not page:
        return {}
    figure.set_layout_engine("none")  # everything has its place by now
    light = _bytes(figure, "svg")
    return {theme: base64.b64encode(svg).decode() for theme, svg in (("light", light), ("dark", darkened(light)))}


def darkened(svg: bytes) -> bytes:
    """The same picture in the colours of the other theme.

    >>> darkened(b"fill: #1f6feb")
    b'fill: #58a6ff'
    """
    other = {THEMES["light"][name].encode(): THEMES["dark"][name].encode() for name in COLORS}
    return re.sub(rb"#[0-9a-f]{6}\b", lambda found: other.get(found[0], found[0]), svg)


def _bytes(figure: "Figure", kind: str) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def trial_figures(results: dict[str, Any]) -> "dict[str, Figure]":
    """A search's history, slices and what mattered."""
    trials, metric = results["trials"], str(results.get("metric"))
    searched = [key for key in trials[0] if key not in ("trial", "state", "score", "seconds")]
    found = {"history": draw.history(trials, metric)}
    if results.get("importance"):
        found["importance"] = draw.importance(results["importance"])
    if searched:
        found["slices"] = draw.slices(trials, searched, metric)
    return found


def _tables(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Lists of flat dicts, and dicts of numbers, as tables."""
    tables = []
    for name, value in values.items():
        if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            value = [{"": key, **row} for key, row in value.items()]
        if not isinstance(value, list) or not value or not all(isinstance(row, dict) and _flat(row) for row in value):
            continue
        columns = list(dict.fromkeys(key for row in value for key in row))
        title = name.replace("_", " ").capitalize()
        tables.append({"title": title, "columns": columns, "rows": value[:MOST], "more": max(0, len(value) - MOST)})
    return tables


def _flat(row: dict[str, Any]) -> bool:
    return all(value is None or isinstance(value, str | int | float) for value in row.values())


def show(value: Any) -> str:
    """A value as a person reads it.

    >>> show(0.51234), show(12), show(["a", "b"]), show({"start": 1}), show(None)
    ('0.5123', '12', 'a, b', 'start: 1', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e6 else f"{value:,.0f}"
    if isinstance(value, list):
        return ", ".join(show(v) for v in value) or "–"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {show(v)}" for key, v in value.items())
    text = str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"


def _ask(kind: str, found: dict[str, Any], second: str = "") -> str:
    """What to ask: a text that the model answered, where one is enough and short."""
    texts = [e.get("text") for e in found.get("examples") or [] if isinstance(e, dict)]
    short = [t for t in texts if isinstance(t, str) and 0 < len(t) <= 120 and t.isprintable() and t[0] != "-"]
    return quote(short[0]) if short and asks(kind, second) == '"TEXT"' else asks(kind, second)


def _last_set(s: dict[str, Any], task: str) -> str:
    sets = [r["set"] for r in s["scores"] if r["task"] == task]
    return "test" if "test" in sets else "dev"


def _metrics(run: Run) -> list[str]:
    """Scores that were measured while training."""
    keys = dict.fromkeys(key for e in events(run, "eval") for key, value in e.items() if finite(value))
    return [k for k in keys if k not in ("step", "elapsed", "time", "loss", "perplexity") and not k.endswith(NO_SCORE)]


def _read(run: Run, name: str) -> dict[str, Any]:
    try:
        value = run.read_json(name)
    except UserError:
        return {}
    return value if isinstance(value, dict) else {}
