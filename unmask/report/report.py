"""What is drawn and written when a run ends: curves.png, report.html and (in `card`) the model card."""

import base64
import io
from pathlib import Path
from typing import Any

import yaml

from unmask.errors import UserError, command
from unmask.files import write_bytes, write_text
from unmask.report.card import example, pipeline, snippet, write_card
from unmask.report.curves import accuracies, figure, finite, term_name
from unmask.report.summary import events, facts, jsonable, render, summary
from unmask.text.report import KINDS
from unmask.train.log import FIXED_TEXT, fixed_of, is_sum
from unmask.train.run import Run

__all__ = ["draw_curves", "facts", "summary", "write_card", "write_report"]


def draw_curves(run: Run) -> Path:
    """curves.png in the run folder."""
    s, path = summary(run), run.path / "curves.png"
    write_bytes(path, _image(run, s, "png", "light"))
    return path


def write_report(run: Run) -> Path:
    """report.html in the run folder: one file, no scripts, nothing fetched, light or dark by the system."""
    s = summary(run)
    images = {theme: base64.b64encode(_image(run, s, "svg", theme)).decode() for theme in ("light", "dark")}
    evals = events(run, "eval")
    html = render(
        "report.html",
        s=s,
        name=run.path.resolve().name,
        facts=facts(s),
        images=images,
        evals=jsonable(evals),
        accuracies=accuracies(evals),
        sums=any(is_sum(e) for e in evals),
        fixed=any(map(fixed_of, evals)),
        fixed_text=FIXED_TEXT,
        term_name=term_name,
        finite=finite,
        fills=_fills(run),
        problems=_problems(s["data"]["corpus"]),
        recipe=(run.path / "recipe.yaml").read_text("utf-8"),
        environment=yaml.safe_dump(s["environment"], sort_keys=False, allow_unicode=True),
        can_fill=pipeline(s["model"])[0] == "fill-mask",
        command=command("unmask fill", run.model, _example(run, s)),
        snippet=snippet(s["model"], str(run.model), _example(run, s)),
    )
    path = run.path / "report.html"
    write_text(path, html)
    return path


def _image(run: Run, s: dict[str, Any], kind: str, theme: str) -> bytes:
    picture = figure(events(run), s["data"]["unigram_entropy"], s["steps"]["total"], theme)
    buffer = io.BytesIO()
    picture.savefig(buffer, format=kind, dpi=120, metadata={"Date": None} if kind == "svg" else None)
    return buffer.getvalue()


def _fills(run: Run) -> list[dict[str, Any]]:
    """The example fills; [] before they were made, and for a model that fills nothing."""
    try:
        found = run.read_json("fills.json")
    except UserError:
        return []
    return [f | {"fills": [x for x in f["fills"] if finite(x.get("probability"))]} for f in found]


def _problems(corpus: dict[str, Any]) -> dict[str, Any]:
    """What reading the text skipped or repaired: counts with their words, and the places."""
    report = corpus.get("report") or {}
    counts = [(KINDS[kind], report[kind]) for kind in KINDS if finite(report.get(kind))]
    return {"counts": counts, "places": [str(p) for p in report.get("problems") or []]}


def _example(run: Run, s: dict[str, Any]) -> str:
    """A sentence to try: the first of the run's own fills, else a plain one of its language."""
    texts = [f["text"] for f in _fills(run) if "[MASK]" in f["text"] and len(f["text"]) < 200]
    return texts[0] if texts else example(s)
