"""The report of a `learn` run in words: what each step gave, what more labels would give, what to label next.

All functions read the results.json of such a run. Missing or damaged keys are omitted.

    summary_lines(results)    # for the terminal: a table of the steps, then the sentences
    sentences(results)        # the result and the decision
"""

import textwrap
from typing import Any

from rich.cells import cell_len, set_cell_size

from unmask.console import clock
from unmask.metrics import finite, format_count, metric
from unmask.report import words
from unmask.report.view import RunView

WIDTH = 80  # of the terminal summary
MAX_STEP_WIDTH = 36
SHOWN_ROWS, MAX_TEXT_CHARS = 10, 300  # rows of a table that are not folded; longer texts are in the file
TIMES = {2: "Twice as many labels", 4: "four times as many"}
Row = dict[str, Any]


def clean(results: Row) -> Row:
    """Return the results with all keys and only usable rows: numbers are finite, texts are strings."""
    curve, to_label, suspects = (_dict(results.get(key)) for key in ("curve", "to_label", "suspects"))
    counts = {key: value for key, value in _dict(results.get("counts")).items() if finite(value)}
    texts, records = _rows(to_label.get("texts")), _rows(suspects.get("records"))
    return {
        "metric": str(results.get("metric") or "score"),
        "labels": [str(label) for label in _list(results.get("labels"))],
        "model": str(results.get("model") or ""),
        "counts": counts,
        "steps": [row | {"name": str(row.get("name") or "model")} for row in _rows(results.get("steps"), "score")],
        "curve": {
            "points": _rows(curve.get("points"), "labels", "score"),
            "now": next(iter(_rows([curve.get("now")], "labels", "score")), {}),
            "predicted": _rows(curve.get("predicted"), "labels", "score"),
            "fitted": _rows(curve.get("fitted"), "labels", "score", "low", "high"),
            "level": curve["level"] if finite(curve.get("level")) else 0.8,
            "step": str(curve.get("step") or ""),
            "metric": str(curve.get("metric") or results.get("metric") or "score"),
            "note": str(curve.get("note") or ""),
        },
        "to_label": {"file": str(to_label.get("file") or ""), "texts": texts},
        "suspects": {"file": str(suspects.get("file") or ""), "records": records, "searched": "suspects" in results},
        "copies": _rows(results.get("copies")),
        "commands": [str(line) for line in _list(results.get("commands")) if line],
        "seconds": results["seconds"] if finite(results.get("seconds")) else None,
    }


def _dict(value: Any) -> Row:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any, *numbers: str) -> list[Row]:
    """Return the dicts of a list in which all `numbers` are finite."""
    return [row for row in _list(value) if isinstance(row, dict) and all(finite(row.get(key)) for key in numbers)]


# ------------------------------------------------------------------------------------------------------ sentences


def sentences(results: Row) -> list[str]:
    """Return the result, what more labels would give, and what to do next."""
    r = clean(results)
    return [text for text in ("".join(result_parts(r)), _more_labels(r), _next(r)) if text]


def result_parts(r: Row) -> tuple[str, str, str]:
    """Return the first sentences in three parts, of which the second is the score of the final model."""
    if not r["steps"]:
        return "", "", ""
    first, final = r["steps"][0], r["steps"][-1]
    labeled, unlabeled = r["counts"].get("labeled"), r["counts"].get("unlabeled")
    data = ""
    if labeled is not None:
        data = f"With {format_count(labeled, 'label')}" if labeled else "Without labels"
        data += f"{' and' if labeled else ', with'} {format_count(unlabeled, 'unlabeled text')}" if unlabeled else ""
    name = words.spaced(r["metric"])
    before = f"{data}: {name} " if data else f"{name.capitalize()} "
    after = f"{interval(r, final)}{_where(final, r['counts'])}."
    if len(r["steps"]) > 1:
        same = " with the same labels" if labeled else ""
        other_set = _where(first, {}) if first.get("split") != final.get("split") else ""
        after += f" {first['name'][:1].upper()}{first['name'][1:]}{same}: {score(r, first)}{other_set}."
    comparable = [row for row in r["steps"][1:-1] if row.get("split") == final.get("split")]
    better = [row for row in comparable if _is_better(r["metric"], row["score"], final["score"])]
    if better:
        best = max(better, key=lambda row: row["score"] * (1 if metric(r["metric"]).higher_is_better else -1))
        after += f" An earlier step scored higher: {best['name']}, {score(r, best)}."
    return before, score(r, final), after


def _is_better(name: str, value: float, other: float) -> bool:
    return value > other if metric(name).higher_is_better else value < other


def _where(step: Row, counts: Row) -> str:
    """
    >>> _where({"split": "test"}, {"test": 2000}), _where({"split": "cross-validation"}, {})
    (' on 2,000 test records', ' in cross-validation')
    """
    split = str(step.get("split") or "")
    if split == "cross-validation":
        return " in cross-validation"
    if split and counts.get(split):
        return f" on {format_count(counts[split], f'{split} record')}"
    return f" on the {split} set" if split else ""


def score(r: Row, row: Row) -> str:
    return metric(r["metric"]).format(row["score"])


def interval(r: Row, row: Row, name: str = "95% CI: ") -> str:
    """
    >>> interval({"metric": "accuracy"}, {"low": 0.794, "high": 0.829})
    ' (95% CI: 79.4% to 82.9%)'
    """
    if not (finite(row.get("low")) and finite(row.get("high"))):
        return ""
    low, high = (metric(r["metric"]).format(row[key]) for key in ("low", "high"))
    return f" ({name}{low} to {high})"


def _more_labels(r: Row) -> str:
    curve, labeled = r["curve"], r["counts"].get("labeled")
    own_metric = curve["metric"] != r["metric"]
    r = r | {"metric": curve["metric"]}
    if not curve["predicted"]:
        return f"What more labels would give is not known: {curve['note']}." if curve["note"] else ""
    parts: list[str] = []
    for row in curve["predicted"]:
        level = "" if parts else f"{curve['level']:.0%} interval: "
        times = TIMES.get(round(row["labels"] / labeled, 2)) if labeled else None
        count = f"{row['labels']:,}"
        amount = f"{times} ({count})" if times else f"{count} labels" if not parts else count
        would = " would give" if not parts else ""
        parts.append(f"{amount}{would} about {score(r, row)}{interval(r, row, level)}")
    text, final = ", ".join(parts), r["steps"][-1]["name"] if r["steps"] else ""
    text = f"{text[0].upper()}{text[1:]}."
    if curve["step"] not in ("", final):  # the curve of the final model would take too long
        now = f", now about {score(r, curve['now'])}" if curve["now"] else ""
        values = f"values of the {words.spaced(curve['metric'])}" if own_metric else "scores"
        text += f" These are {values} of {curve['step']}{now}."
    return text


def _next(r: Row) -> str:
    texts, suspects = r["to_label"], r["suspects"]
    text = ""
    if texts["texts"]:
        text += f"Label next: the {format_count(len(texts['texts']), 'text')} in {texts['file'] or 'the table'}."
    if suspects["records"]:
        count = len(suspects["records"])
        looks = f"{format_count(count, 'label')} look{'s' * (count == 1)} wrong"
        text += f" {looks}: check {suspects['file'] or 'the table'}."
    elif suspects["searched"]:
        text += " No label looks wrong."
    return text.strip()


# ------------------------------------------------------------------------------------------------------- terminal


def summary_lines(results: Row) -> str:
    """Return a table of the steps, at most 80 columns wide, and the sentences."""
    r = clean(results)
    paragraphs = [_wrap(text) for text in sentences(results)]
    if not r["steps"]:
        return "\n\n".join(paragraphs)
    splits = {row.get("split") for row in r["steps"]}
    header = ["step", words.spaced(r["metric"]), "95% CI", *(["set"] if len(splits) > 1 else []), "time"]
    table = [header, *(_cells(r, row, len(splits) > 1) for row in r["steps"])]
    if not any(row[-1] for row in table[1:]):
        table = [row[:-1] for row in table]
    widths = [min(MAX_STEP_WIDTH, max(cell_len(row[n]) for row in table)) for n in range(len(table[0]))]
    lines = ["  ".join(_fit(cell, width, n) for n, (cell, width) in enumerate(zip(row, widths))) for row in table]
    return "\n\n".join(["\n".join(line.rstrip() for line in lines), *paragraphs])


def _wrap(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)


def _cells(r: Row, row: Row, with_set: bool) -> list[str]:
    split = {"cross-validation": "cv"}.get(str(row.get("split")), str(row.get("split") or ""))
    time = clock(row["seconds"]) if finite(row.get("seconds")) else ""
    return [row["name"], score(r, row), interval(r, row, "").strip(" ()"), *([split] if with_set else []), time]


def _fit(cell: str, width: int, column: int) -> str:
    """Pad or cut a cell to a width; the first column is aligned to the left, numbers to the right."""
    if cell_len(cell) > width:
        return set_cell_size(cell, width - 1) + "…"
    space = " " * (width - cell_len(cell))
    return cell + space if column == 0 else space + cell


# --------------------------------------------------------------------------------------------- info and the page


def summary(view: RunView) -> Row:
    """Return what `unmask info` shows of a learn run; the texts of the tables stay in results.json."""
    r = clean(view.results)
    return {
        "kind": "learn",
        "results": r
        | {"to_label": {**r["to_label"], "texts": len(r["to_label"]["texts"])}}
        | {"suspects": {**r["suspects"], "records": len(r["suspects"]["records"])}},
        "decision": sentences(view.results),
        "seconds": r["seconds"] or view.seconds,
        "warnings": [{"step": None, "text": text} for text in view.problems],
        "example_command": r["commands"] if view.state == "finished" else None,
    }


def lines(s: Row) -> list[tuple[str, Any]]:
    """Format the summary as (label, text) lines."""
    r = s["results"]
    return [
        ("labels", ", ".join(r["labels"])),
        ("records", words.record_counts(r["counts"])),
        *[(row["name"], f"{score(r, row)}{interval(r, row)}{_where(row, {})}") for row in r["steps"]],
        *[("decision", text) for text in s["decision"]],
        ("model", r["model"]),
        ("time", words.duration(s["seconds"]) if s["seconds"] else None),
    ]


def sections(results: Row) -> Row:
    """Return the content of the page, without its figures."""
    r = clean(results)
    title, has_times = words.spaced(r["metric"]), any(finite(row.get("seconds")) for row in r["steps"])
    steps = [
        {
            "step": row["name"],
            "set": str(row.get("split") or ""),
            title: score(r, row),
            "95% CI": interval(r, row, "").strip(" ()"),
            **({"time": clock(row["seconds"]) if finite(row.get("seconds")) else ""} if has_times else {}),
            "note": str(row.get("note") or ""),
        }
        for row in r["steps"]
    ]
    return {
        "result": result_parts(r),
        "sentences": [text for text in (_more_labels(r), _next(r)) if text],
        "steps": steps,
        "columns": list(steps[0]) if steps else [],
        "note": r["curve"]["note"],
        "level": f"{r['curve']['level']:.0%}",
        "to_label": [_shown(row, "text", "suggested", "probability") for row in r["to_label"]["texts"]],
        "suspects": [
            _shown(row, "location", "text", "label", "suggested", "probability") for row in r["suspects"]["records"]
        ],
        "files": {"to_label": r["to_label"]["file"], "suspects": r["suspects"]["file"]},
        "copies": [_copy(r, row) for row in r["copies"]],
        "shown": SHOWN_ROWS,
        "commands": r["commands"],
    }


def _shown(row: Row, *keys: str) -> Row:
    cells = {key: "" if row.get(key) is None else str(row[key]) for key in keys}
    if finite(row.get("probability")):
        cells["probability"] = f"{row['probability']:.0%}"
    text = " ".join(cells["text"].split())
    return cells | {"text": text if len(text) <= MAX_TEXT_CHARS else text[:MAX_TEXT_CHARS].rstrip() + " …"}


def _copy(r: Row, row: Row) -> Row:
    size, speed = row.get("megabytes"), row.get("texts_per_second")
    return {
        "name": str(row.get("name") or "model"),
        "score": score(r, row) if finite(row.get("score")) else "–",
        "loss": f"{100 * row['loss']:+.1f}" if finite(row.get("loss")) and metric(r["metric"]).percent else "–",
        "size": f"{size:,.1f} MB" if finite(size) else "–",
        "speed": f"{speed:,.0f}" if finite(speed) else "–",
        "path": str(row.get("path") or ""),
    }
