"""report.html, its figures, and the model's README.md, for a run of any kind.

The page is one file: no scripts, nothing fetched, light or dark by the system. Everything comes from the run's folder; a section
whose files are not there is left out. A list of flat dicts in the results that nothing here knows is shown as a table.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import Environment, PackageLoader

from unmask.errors import command, quote
from unmask.files import write_text
from unmask.metrics import finite, metric
from unmask.report import card, curves, figures, usage, words
from unmask.report.info import facts, summary
from unmask.report.view import RunView, jsonable, shape
from unmask.text.report import KINDS
from unmask.train.log import FIXED_TEXT, fixed_of, is_sum
from unmask.train.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_TEXT_CHARS = 700  # characters of a text that are shown
MAX_TABLE_ROWS = 200  # rows of a table
MAX_HTML_MATRIX_LABELS = 20  # labels up to which the confusion matrix is a table; larger ones are a picture
# Details with a section of their own, and results in no table.
DETAIL_SECTIONS = {"per_label", "confusion", "calibration", "pr", "scatter", "errors", "examples"}
SHOWN_RESULTS = {"task", "metric", "step", "best", "dev", "test", "intervals", "seconds", "model", "tasks"}


def write(run: Run) -> Path:
    view = RunView(run)
    s = summary(view)
    sections = _of_text(view, s) if view.on_text else _of_records(view, s)
    here = PackageLoader("unmask.report", ".")
    pages = Environment(loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    html = pages.get_template("page.html").render(
        s=s,
        name=view.path.resolve().name,
        facts=facts(s),
        finite=finite,
        show=show,
        recipe=(view.path / "recipe.yaml").read_text("utf-8"),
        environment=yaml.safe_dump(s["environment"], sort_keys=False, allow_unicode=True),
        **sections,
    )
    path = view.path / "report.html"
    write_text(path, html)
    card.write_cards(view, s)
    return path


# ------------------------------------------------------------------------------------------- runs on plain text


def _of_text(view: RunView, s: dict[str, Any]) -> dict[str, Any]:
    evals, text = view.logged("eval"), usage.own_example(view, s)
    drawn = {"curves": curves.of_text(view.events, s["data"]["unigram_entropy"], s["steps"]["total"])}
    return {
        "title": "run report",
        "images": _pictures(view, drawn),
        "heldout": {
            "evals": jsonable(evals),
            "accuracies": words.accuracies(evals),
            "sums": any(is_sum(e) for e in evals),
            "fixed": FIXED_TEXT if any(map(fixed_of, evals)) else "",
        },
        "fills": view.fills,
        "problems": _problems(s["data"]["corpus"]),
        "commands": [
            command("unmask fill", view.model, text) if usage.pipeline(s["model"])[0] == "fill-mask" else "",
            usage.snippet(s["model"], str(view.model), text),
        ],
    }


def _problems(corpus: dict[str, Any]) -> dict[str, Any]:
    """What reading the text skipped or repaired: counts with their words, and the places."""
    report = corpus.get("report") or {}
    counts = [(KINDS[kind], report[kind]) for kind in KINDS if finite(report.get(kind))]
    return {"counts": counts, "places": [str(p) for p in report.get("problems") or []]}


# ------------------------------------------------------------------------------------- runs on labelled records


def _of_records(view: RunView, s: dict[str, Any]) -> dict[str, Any]:
    results = view.results
    drawn: dict[str, Figure] = {}
    if view.logged("train"):
        names = [s["metric"]] if s["metric"] else []
        drawn["curves"] = curves.is_per_record(
            view.events, [*dict.fromkeys(names + measured(view))], s["steps"]["total"]
        )
    if results.get("trials"):
        drawn |= figures.search_figures(results)
    return {
        "title": "fine-tuning report",
        "headline": [r for r in s["scores"] if r["shown"] and r["set"] == _last_set(s, r["task"])],
        "notes": words.notes_on(s["scores"]),
        "images": _pictures(view, drawn),
        "command": results.get("command"),
        "tables": _tables({key: value for key, value in results.items() if key not in SHOWN_RESULTS}),
        "parts": [_part(view, name) for name in view.tasks],
    }


def _part(view: RunView, name: str) -> dict[str, Any]:
    """What is shown of one task: the details of its test set, or else of its dev set."""
    results = dict(view.results.get("tasks") or {}).get(name, view.results)
    details = (view.details.get(name) or {}) if name else view.details
    split = next((n for n in ("test", "dev") if details.get(n)), "")
    found = jsonable(details.get(split) or {})
    drawn = figures.detail_figures(found)
    matrix = found.get("confusion") or {}
    small = len(matrix.get("labels") or []) <= MAX_HTML_MATRIX_LABELS
    folder, spec = view.folder(name), view.spec(name)
    return {
        "name": name,
        "set": split,
        "records": (results.get(split) or {}).get("records"),
        "images": _pictures(view, drawn, f"{name}." if name else "", beside=("confusion",) if small else ()),
        "per_label": found.get("per_label") or [],
        "matrix": matrix if small else {},
        "calibration": found.get("calibration") or {},
        "errors": found.get("errors") or [],
        "examples": found.get("examples") or [],
        "tables": _tables({key: value for key, value in found.items() if key not in DETAIL_SECTIONS}),
        "use": [
            f"unmask predict {quote(folder)} {_ask(usage.typed_inputs(spec), found)}",
            f"unmask predict {quote(folder)} FILE --json > answers.json",
            f"unmask evaluate {quote(folder)} FILE",
            f"unmask serve {quote(folder)}",
            usage.unmask_snippet(str(folder), spec),
            usage.library_snippet(shape(folder), str(folder), spec),
        ],
    }


def measured(view: RunView) -> list[str]:
    """Scores that were measured while training."""
    keys = dict.fromkeys(key for e in view.logged("eval") for key, value in e.items() if finite(value))
    return [k for k in keys if k not in ("step", "elapsed", "time") and metric(k).kind == "score"]


def _last_set(s: dict[str, Any], task: str) -> str:
    sets = [r["set"] for r in s["scores"] if r["task"] == task]
    return "test" if "test" in sets else "dev"


def _ask(typed_inputs: str, found: dict[str, Any]) -> str:
    """What to ask: a text that the model answered, where one is enough and short."""
    texts = [e.get("text") for e in found.get("examples") or [] if isinstance(e, dict)]
    short = [t for t in texts if isinstance(t, str) and 0 < len(t) <= 120 and t.isprintable() and t[0] != "-"]
    return quote(short[0]) if short and typed_inputs == '"TEXT"' else typed_inputs


# ------------------------------------------------------------------------------------------------------- any run


def _pictures(
    view: RunView, drawn: "dict[str, Figure]", prefix: str = "", beside: tuple[str, ...] = ()
) -> dict[str, dict[str, str]]:
    """The figures as files of the run, and as images of the page; those that are `beside` as files alone."""
    return {
        name: figures.save_figure(view.path / f"{prefix}{name}.png", figure, page=name not in beside)
        for name, figure in drawn.items()
    }


def _tables(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Lists of flat dicts, and dicts of numbers, as tables."""
    tables = []
    for name, value in values.items():
        if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            value = [{"": key, **row} for key, row in value.items()]
        if not isinstance(value, list) or not value or not all(isinstance(row, dict) and _flat(row) for row in value):
            continue
        columns = list(dict.fromkeys(key for row in value for key in row))
        title = words.spaced(name).capitalize()
        tables.append(
            {
                "title": title,
                "columns": columns,
                "rows": value[:MAX_TABLE_ROWS],
                "more": max(0, len(value) - MAX_TABLE_ROWS),
            }
        )
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
    return text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS] + " …"
