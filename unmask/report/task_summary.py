"""What a fine-tuning run is, did and reached: `unmask info RUN`, and the first table of its report.

Read from the run folder alone, at any moment of a run's life; what is not there is left out.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command, quote
from unmask.files import read_object
from unmask.labels.findings import by_kind, from_rows
from unmask.metrics import metric
from unmask.recipe import Recipe
from unmask.report.curves import finite
from unmask.report.summary import describe_model, describe_steps, dig, duration, events, hardware, jsonable, shape
from unmask.train.run import Run

FIRST = ("raw_text_f1",)  # scores that are shown before the one that chose the model
# What `unmask predict` is given, by task.
ASKS = {
    "answer": '"QUESTION" "PASSAGE"',
    "choose": '"TEXT" "CHOICE" "CHOICE"',
    "rank": '"QUERY" "PASSAGE" "PASSAGE"',
}


def asks(kind: str | None, second: str = "") -> str:
    return ASKS.get(str(kind), f'"TEXT" "{second}"' if second else '"TEXT"')


def second_text(folder: Path) -> str:
    """What the model of a folder reads beside a text: "SECOND TEXT", "PREDICATE", or nothing."""
    try:
        learnt = read_object(folder / "unmask.json")["learnt"]
        return "SECOND TEXT" if learnt.get("pair") is True else "PREDICATE" if learnt.get("predicate") is True else ""
    except (UserError, KeyError, AttributeError):
        return ""


def paired(folder: Path) -> bool:
    """Whether the model of a folder learnt from pairs of texts."""
    return second_text(folder) == "SECOND TEXT"


def task_summary(run: Run) -> dict[str, Any]:
    def read(name: str) -> dict[str, Any]:
        try:
            value = run.read_json(name) if (run.path / name).exists() else {}
        except UserError:
            return {}
        return value if isinstance(value, dict) else {}

    recipe, plan = Recipe.read(run.path / "recipe.yaml"), read("plan.json")
    results, learnt = read("results.json"), read("learnt.json")
    log = events(run)
    last = (plan.get("stretches") or [{}])[-1]
    total = last.get("start", 0) + last.get("steps", 0) or None
    several = recipe.get("tasks") or {}
    kinds = {name: dig(settings, "kind") for name, settings in several.items()} or {"": dig(recipe, "task", "kind")}
    state, searched = _state(run, log, bool(results)), (run.path / "tune.json").exists()
    verb = "tune" if searched else "finetune"
    models = {name: run.model / name if name else run.model for name in kinds}
    return jsonable(
        {
            "kind": "finetune",
            "run": str(run.path),
            "state": state,
            "task": results.get("task") or next(iter(kinds.values())),
            "tasks": kinds if several else {},
            "metric": results.get("metric"),
            "start": recipe.get("start"),
            "steps": {"done": int(max((e["step"] for e in log if finite(e.get("step"))), default=0)), "total": total},
            "seconds": max((e["elapsed"] for e in log if finite(e.get("elapsed"))), default=0.0),
            "files": {name: _files(settings) for name, settings in several.items()}
            or {"": _files(recipe.get("task") or {})},
            "records": read("data.json").get("records") or {},
            "labels": {name: _labels(learnt.get(name) if several else learnt) for name in kinds},
            "best": results.get("best") or _best(log, results.get("metric")),
            "scores": _scores(results),
            "kept_seed": results.get("median"),
            "over_seeds": results.get("over_seeds") or [],
            "lr": results.get("lr") if finite(results.get("lr")) else dig(recipe, "train", "lr"),
            "baselines": results.get("baselines") or [],
            "model": shape(next(iter(models.values()))),
            "device": dig(recipe, "train", "device"),
            "environment": read("environment.json"),
            "trials": len(results.get("trials") or []) or None,
            "warnings": _said(log, "warning") + findings(run) + _said(log, "error"),
            "continue": command(f"unmask {verb} --resume", run.path) if state == "interrupted" else None,
            "use": [
                f"unmask predict {quote(folder)} {asks(kinds[name], second_text(folder))}"
                for name, folder in models.items()
            ]
            if state == "finished"
            else None,
        }
    )


def _state(run: Run, log: list[dict[str, Any]], done: bool) -> str:
    if done:
        return "finished"
    if run.in_use():
        return "running"
    return "failed" if log and log[-1].get("event") == "error" else "interrupted"


def _files(settings: dict[str, Any]) -> dict[str, list[str]]:
    return {name: list(settings.get(name) or []) for name in ("train", "dev", "test") if settings.get(name)}


def _labels(learnt: Any) -> list[str]:
    found = (learnt or {}).get("labels")
    return [str(label) for label in found] if isinstance(found, list) else []


def _best(log: list[dict[str, Any]], metric: str | None) -> dict[str, Any] | None:
    """The last evaluation of a run that has not ended: what it would say of itself."""
    evals = [e for e in log if e.get("event") == "eval"]
    if metric:
        evals = sorted((e for e in evals if finite(e.get(metric))), key=lambda e: e[metric])
    return {k: v for k, v in evals[-1].items() if k not in ("event", "time")} if evals else None


def _scores(results: dict[str, Any]) -> list[dict[str, Any]]:
    """A row per task, set and score."""
    parts = results.get("tasks") or {"": results}
    rows = []
    for name, part in parts.items():
        for split in ("dev", "test"):
            values = part.get(split) or {}
            for key, value in values.items():
                if metric(key).kind != "count" and finite(value):
                    between = dig(part, "intervals", split, key)
                    rows.append(
                        {"task": name, "set": split, "records": values.get("records"), "score": key, "value": value,
                         "low": between[0] if between else None, "high": between[1] if between else None,
                         "decides": key == part.get("metric"), "shown": key in (part.get("metric"), *FIRST)}
                    )  # fmt: skip
    return rows


def findings(run: Run) -> list[dict[str, Any]]:
    """What the doctor found in the labelled files: a line per kind, the most serious last."""
    try:
        found = run.read_json("findings.json")
    except UserError:
        return []
    groups = by_kind(from_rows(found if isinstance(found, list) else []))
    return [{"step": None, "text": str(group), "serious": group.serious} for group in groups]


def _said(log: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    """The warnings, or the errors, of training."""
    serious = event == "error"
    return [{"step": e.get("step"), "text": e.get("text"), "serious": serious} for e in log if e.get("event") == event]


def task_facts(s: dict[str, Any]) -> list[tuple[str, str]]:
    """A summary as labelled lines."""
    records = s["records"]
    several = isinstance(next(iter(records.values()), None), dict)
    rows: list[tuple[str, Any]] = [
        ("state", s["state"]),
        ("task", ", ".join(f"{name} ({kind})" for name, kind in s["tasks"].items()) or s["task"]),
        ("model", describe_model(s | {"preset": None})),
        *[(f"files{_of(name)}", _join(files)) for name, files in s["files"].items()],
        *[(f"records{_of(n)}", _counts(r)) for n, r in (records.items() if several else [("", records)])],
        *[(f"labels{_of(name)}", _list(labels)) for name, labels in s["labels"].items()],
        *[(f"f1 and auc{_of(name)}", f"of the label {positive}") for name, positive in _positives(s).items()],
        ("steps", describe_steps(s)),
        ("learning rate", f"{s['lr']:.2g}" if finite(s["lr"]) and s["lr"] else None),
        ("time", duration(s["seconds"])),
        ("trials", f"{s['trials']}" if s["trials"] else None),
        ("on dev while training", describe_best(s)),
        *[(f"{r['task']} {r['set']}".strip(), describe_score(r)) for r in s["scores"] if r["shown"]],
        *[
            (f"{r['set']}, {r['runs']} seeds", describe_seeds(r))
            for r in s["over_seeds"]
            if r["score"] in (s["metric"], *FIRST)
        ],
        ("kept seed", f"{s['kept_seed']}, the middle one on dev" if s["over_seeds"] else None),
        *[(f"{b['on']}, {b['baseline']}", describe_baseline(b, s["metric"])) for b in s["baselines"]],
        ("hardware", hardware(s)),
        ("go on", s["continue"]),
        *[("use", command) for command in s["use"] or []],
    ]
    return [(label, text) for label, text in rows if text]


def _positives(s: dict[str, Any]) -> dict[str, str]:
    """Task → the label that f1 and auc are of (`tasks/classify/targets.py`), where a classifier has two."""
    kinds = s["tasks"] or {"": s["task"]}
    scored = {r["task"] for r in s["scores"] if r["score"] == "f1"}
    two = {name: labels for name, labels in s["labels"].items() if len(labels) == 2}
    return {name: labels[1] for name, labels in two.items() if name in scored and kinds.get(name) == "classify"}


def describe_best(s: dict[str, Any]) -> str:
    best, metric = s["best"] or {}, s["metric"]
    shown = {metric: best.get(metric)} if metric else {k: v for k, v in best.items() if k not in ("step", "elapsed")}
    text = ", ".join(f"{key.replace('_', ' ')} {value:.4f}" for key, value in shown.items() if finite(value))
    return f"{text} (step {best['step']:,})" if text and finite(best.get("step")) else text


def describe_score(row: dict[str, Any]) -> str:
    """
    >>> describe_score({"score": "macro_f1", "value": 0.5, "low": 0.4, "high": 0.6, "records": 1200})
    'macro f1 0.5000 (95 %: 0.400 to 0.600), 1,200 records'
    """
    between = f" (95 %: {row['low']:.3f} to {row['high']:.3f})" if finite(row["low"]) else ""
    return f"{row['score'].replace('_', ' ')} {row['value']:.4f}{between}, {row['records']:,} records"


def raw_text_note(rows: Sequence[dict[str, Any]]) -> str:
    """What the two figures of a tagger mean; empty for other tasks."""
    if not any(row["score"] in FIRST for row in rows):
        return ""
    return "Raw text f1: the model was given each sentence as text, as `unmask predict` is. The other scores: with the words of the file."


def describe_seeds(row: dict[str, Any]) -> str:
    """
    >>> describe_seeds({"score": "accuracy", "mean": 0.5, "sd": 0.01, "low": 0.475, "high": 0.525, "runs": 3})
    'accuracy 0.5000 ± 0.0100 (95 %: 0.475 to 0.525)'
    """
    spread = f" ± {row['sd']:.4f}" if finite(row["sd"]) else ""
    between = f" (95 %: {row['low']:.3f} to {row['high']:.3f})" if finite(row["low"]) else ""
    return f"{row['score'].replace('_', ' ')} {row['mean']:.4f}{spread}{between}"


def describe_baseline(row: dict[str, Any], metric: str) -> str:
    """
    >>> describe_baseline({"macro_f1": 0.5, "lr": 1e-3}, "macro_f1")
    'macro f1 0.5000 (learning rate 0.001)'
    """
    if not finite(row.get(metric)):
        return ""
    rate = f" (learning rate {row['lr']:.2g})" if finite(row.get("lr")) else ""
    return f"{metric.replace('_', ' ')} {row[metric]:.4f}{rate}"


def _of(name: str) -> str:
    return f" of {name}" if name else ""


def _counts(records: dict[str, Any]) -> str:
    return ", ".join(f"{n:,} {name}" for name, n in records.items() if finite(n) and n)


def _join(files: dict[str, list[str]]) -> str:
    return "; ".join(f"{name} {', '.join(paths)}" for name, paths in files.items())


def _list(labels: list[str], most: int = 20) -> str:
    more = f" … ({len(labels):,} in all)" if len(labels) > most else ""
    return ", ".join(labels[:most]) + more
