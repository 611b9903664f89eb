"""Write report.html, its figures, and the model's README.md for a run of any kind.

The page is one file without scripts or external resources, and it follows the light or dark theme of the system. All content comes
from the run's folder; a section whose files are missing is omitted. Unknown lists of flat dicts in the results are shown as tables.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from jinja2 import Environment, PackageLoader

from unmask.errors import command, quote
from unmask.files import write_text
from unmask.metrics import finite, metric
from unmask.report import card, curves, figures, learning, learning_figures, usage, words
from unmask.report.info import facts, summary
from unmask.report.view import RunView, jsonable, shape
from unmask.text.report import KINDS
from unmask.train.log import FIXED_TEXT, fixed_masking_values, loss_has_other_terms
from unmask.train.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_TEXT_CHARS = 700  # longer texts are cut off
MAX_TABLE_ROWS = 200
MAX_HTML_MATRIX_LABELS = 20  # a confusion matrix with more labels is an image instead of a table
# Details that have their own section, and results that are not shown as tables.
DETAIL_SECTIONS = {"per_label", "confusion", "calibration", "pr", "scatter", "errors", "examples"}
SHOWN_RESULTS = {"task", "metric", "step", "best", "dev", "test", "intervals", "seconds", "model", "tasks"}


def write(run: Run) -> Path:
    view = RunView(run)
    s = summary(view)
    sections = _sections(view, s)
    here = PackageLoader("unmask.report", ".")
    pages = Environment(loader=here, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    html = pages.get_template("page.html").render(
        s=s,
        name=view.path.resolve().name,
        finite=finite,
        show=show,
        metric_title=words.spaced,
        recipe=(view.path / "recipe.yaml").read_text("utf-8"),
        environment=yaml.safe_dump(s["environment"], sort_keys=False, allow_unicode=True),
        **{"facts": facts(s)} | sections,
    )
    path = view.path / "report.html"
    write_text(path, html)
    if not view.is_learning:  # its models are those of its child runs, which have cards
        card.write_cards(view, s)
    return path


def _sections(view: RunView, s: dict[str, Any]) -> dict[str, Any]:
    if view.is_learning:
        return _learning_sections(view, s)
    return _pretraining_sections(view, s) if view.on_text else _finetuning_sections(view, s)


def _learning_sections(view: RunView, s: dict[str, Any]) -> dict[str, Any]:
    images = _pictures(view, learning_figures.plot(view.results))
    return {
        "title": "learning report",
        "learn": learning.sections(view.results) | {"images": images},
        "facts": [fact for fact in facts(s) if fact[0] in ("labels", "records", "model", "time", "hardware")],
    }


# ------------------------------------------------------------------------------------------- runs on plain text


def _pretraining_sections(view: RunView, s: dict[str, Any]) -> dict[str, Any]:
    evals, text = view.logged("eval"), usage.own_example(view, s)
    plots = {"curves": curves.plot_pretraining(view.events, s["data"]["unigram_entropy"], s["steps"]["total"])}
    return {
        "title": "run report",
        "images": _pictures(view, plots),
        "evaluation": {
            "evals": jsonable(evals),
            "accuracies": words.accuracies(evals),
            "sums": any(loss_has_other_terms(e) for e in evals),
            "fixed": FIXED_TEXT if any(map(fixed_masking_values, evals)) else "",
        },
        "fills": view.fills,
        "problems": _problems(s["data"]["corpus"]),
        "commands": [
            command("unmask fill", view.model, text) if usage.pipeline(s["model"])[0] == "fill-mask" else "",
            usage.snippet(s["model"], str(view.model), text),
        ],
    }


def _problems(corpus: dict[str, Any]) -> dict[str, Any]:
    """Return what was skipped or repaired while reading the text: descriptions with counts, and locations."""
    report = corpus.get("report") or {}
    counts = [(KINDS[kind], report[kind]) for kind in KINDS if finite(report.get(kind))]
    return {"counts": counts, "places": [str(p) for p in report.get("problems") or []]}


# ------------------------------------------------------------------------------------- runs on labeled records


def _finetuning_sections(view: RunView, s: dict[str, Any]) -> dict[str, Any]:
    results = view.results
    plots: dict[str, Figure] = {}
    if view.logged("train"):
        names = [s["metric"]] if s["metric"] else []
        plots["curves"] = curves.plot_finetuning(
            view.events, [*dict.fromkeys(names + measured(view))], s["steps"]["total"]
        )
    if results.get("trials"):
        plots |= figures.search_figures(results)
    return {
        "title": "fine-tuning report",
        "headline": [r for r in s["scores"] if r["shown"] and r["set"] == _last_set(s, r["task"])],
        "notes": words.notes_on(s["scores"]),
        "images": _pictures(view, plots),
        "command": results.get("command"),
        "tables": _tables({key: value for key, value in results.items() if key not in SHOWN_RESULTS}),
        "parts": [_task_section(view, name) for name in view.tasks],
    }


def _task_section(view: RunView, name: str) -> dict[str, Any]:
    """Return the report section of one task, with the details of its test set, or of its dev set if there is no test set."""
    results = dict(view.results.get("tasks") or {}).get(name, view.results)
    details = (view.details.get(name) or {}) if name else view.details
    split = next((n for n in ("test", "dev") if details.get(n)), "")
    details = jsonable(details.get(split) or {})
    plots = figures.detail_figures(details)
    matrix = details.get("confusion") or {}
    small = len(matrix.get("labels") or []) <= MAX_HTML_MATRIX_LABELS
    folder, spec = view.folder(name), view.spec(name)
    return {
        "name": name,
        "set": split,
        "records": (results.get(split) or {}).get("records"),
        "images": _pictures(view, plots, f"{name}." if name else "", files_only=("confusion",) if small else ()),
        "per_label": details.get("per_label") or [],
        "matrix": matrix if small else {},
        "calibration": details.get("calibration") or {},
        "errors": details.get("errors") or [],
        "examples": details.get("examples") or [],
        "tables": _tables({key: value for key, value in details.items() if key not in DETAIL_SECTIONS}),
        "use": [
            f"unmask predict {quote(folder)} {_example_arguments(usage.typed_inputs(spec), details)}",
            f"unmask predict {quote(folder)} FILE --json > answers.json",
            f"unmask evaluate {quote(folder)} FILE",
            f"unmask serve {quote(folder)}",
            usage.unmask_snippet(str(folder), spec),
            usage.library_snippet(shape(folder), str(folder), spec),
        ],
    }


def measured(view: RunView) -> list[str]:
    """Return the names of the scores that were measured during training."""
    keys = dict.fromkeys(key for e in view.logged("eval") for key, value in e.items() if finite(value))
    return [k for k in keys if k not in ("step", "elapsed", "time") and metric(k).kind == "score"]


def _last_set(s: dict[str, Any], task: str) -> str:
    sets = [r["set"] for r in s["scores"] if r["task"] == task]
    return "test" if "test" in sets else "dev"


def _example_arguments(typed_inputs: str, details: dict[str, Any]) -> str:
    """Return example arguments for `unmask predict`: a short text from the run if the task reads a single text."""
    texts = [e.get("text") for e in details.get("examples") or [] if isinstance(e, dict)]
    short = [t for t in texts if isinstance(t, str) and 0 < len(t) <= 120 and t.isprintable() and t[0] != "-"]
    return quote(short[0]) if short and typed_inputs == '"TEXT"' else typed_inputs


# ------------------------------------------------------------------------------------------------------- any run


def _pictures(
    view: RunView, plots: "dict[str, Figure]", prefix: str = "", files_only: tuple[str, ...] = ()
) -> dict[str, dict[str, str]]:
    """Save figures as files of the run and return them as images for the page; those in `files_only` are only saved."""
    return {
        name: figures.save_figure(view.path / f"{prefix}{name}.png", figure, page=name not in files_only)
        for name, figure in plots.items()
    }


def _tables(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Convert lists of flat dicts, and dicts of flat dicts, to tables."""
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
    """Format a value for the page.

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
