"""`summary` returns the settings, progress and scores of a run as JSON; `facts` formats them as lines, for `unmask info` and reports."""

from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from typing import Any

from unmask.errors import quote
from unmask.labels.findings import by_kind, from_rows
from unmask.metrics import finite, metric
from unmask.report import learning, usage, words
from unmask.report.view import RunView, get_nested, jsonable, shape, task_spec
from unmask.report.words import Row
from unmask.train.diagnostics import corpus_warnings


def summary(view: RunView) -> dict[str, Any]:
    """Return everything that `unmask info RUN` prints, as JSON; numbers that are not finite become null."""
    specific = learning.summary(view) if view.is_learning else _of_text(view) if view.on_text else _of_records(view)
    return jsonable(
        {
            **({} if view.on_text else {"kind": "finetune"}),
            "run": str(view.path),
            "state": view.state,
            "steps": {"done": view.done, "total": view.total},
            "seconds": view.seconds,
            "device": get_nested(view.recipe, "train", "device"),
            "environment": view.environment,
            "resume_command": view.resume,
            **specific,
        }
    )


def facts(s: dict[str, Any]) -> list[tuple[str, str]]:
    """Format a summary as (label, text) lines, for the command line and the report."""
    lines_of_kind = {"finetune": _lines_of_records, "learn": learning.lines}
    rows = lines_of_kind.get(s.get("kind", ""), _lines_of_text)(s)
    rows = [("state", s["state"]), *rows, ("hardware", words.hardware(s)), ("resume with", s["resume_command"])]
    use = s["example_command"] or []
    rows += [("use", line) for line in ([use] if isinstance(use, str) else use)]
    return [(label, text) for label, text in rows if text]


# ------------------------------------------------------------------------------------------- runs on plain text


def _of_text(view: RunView) -> dict[str, Any]:
    train, evals, recipe = view.logged("train"), view.logged("eval"), view.recipe
    scored = [e for e in evals if finite(e.get("loss"))]
    speeds = [e["tokens_per_second"] for e in train if finite(e.get("tokens_per_second"))]
    warnings = [*view.problems]
    with suppress(KeyError, TypeError):  # counts that a store of another version does not have
        warnings += corpus_warnings(view.data)
    logged = [{"step": e.get("step"), "text": e.get("text")} for e in view.logged("warning", "error")]
    model, tracks = shape(view.model), words.mixed_tracks(evals)
    return {
        "tokens": _tokens(train),
        "tokens_per_second": median(speeds) if speeds else None,
        "preset": recipe.get("preset"),
        "init_from": recipe.get("init_from") or None,
        "objective": recipe.get("objective"),
        "evaluation": {
            "first": scored[0] if scored else None,
            "last": scored[-1] if scored else None,
            "best": min(scored, key=lambda e: e["loss"]) if scored else None,
        },
        "mixed": {name: {"first": track[0], "last": track[-1]} for name, track in tracks.items()},  # is it forgotten?
        "model": model,
        "data": _data(view.data, recipe),
        "warnings": [*({"step": None, "text": text} for text in warnings), *logged],
        "example_command": usage.pretrained_command(view.model, model) if view.state == "finished" else None,
    }


def _tokens(train: Sequence[Row]) -> int:
    """Return the tokens read so far. With `train.logging_steps` above 1, a line counts for all steps since the last one."""
    total, before = 0, 0
    for e in train:
        if finite(e.get("step")) and finite(e.get("tokens")):
            total += e["tokens"] * (e["step"] - before)
            before = e["step"]
    return int(total)


def _data(meta: dict[str, Any], recipe: dict[str, Any]) -> dict[str, Any]:
    """Describe the text, from data.json (the meta.json of the token store)."""
    train = meta.get("train") or {}
    language = get_nested(recipe, "data", "language")
    tokens, unknown = train.get("tokens"), train.get("unk_tokens")
    return {
        "sources": list(get_nested(recipe, "data", "corpus") or []),
        "language": language if language != "auto" else None,
        "train": train,
        "eval": meta.get("heldout") or {},
        "unk_share": unknown / tokens if finite(unknown) and tokens else None,
        "vocabulary": meta.get("vocabulary"),
        "unigram_entropy": meta.get("unigram_entropy"),
        "duplicates": meta.get("duplicates") or {},
        "corpus": meta.get("corpus") or {},
    }


def _lines_of_text(s: dict[str, Any]) -> list[tuple[str, Any]]:
    best, last = s["evaluation"]["best"], s["evaluation"]["last"]
    entropy, unknown = s["data"]["unigram_entropy"], s["data"]["unk_share"]
    return [
        ("model", words.describe_model(s)),
        ("objective", s["objective"]),
        ("steps", words.describe_steps(s)),
        ("tokens read", f"{s['tokens']:,}" + words.epochs(s)),
        ("time", words.duration(s["seconds"])),
        ("speed", f"{s['tokens_per_second']:,.0f} tokens/s (median)" if s["tokens_per_second"] else None),
        ("validation", words.describe_scores(last) if last else None),
        ("fixed masking", words.describe_fixed(last) if last else None),
        ("best validation", f"{words.describe_scores(best)} (step {best['step']:,})" if best != last else None),
        *[
            (f"validation of {name}", words.describe_change(m["first"], m["last"]))
            for name, m in s.get("mixed", {}).items()
        ],
        ("unigram entropy", f"{entropy:.3f} nats" if finite(entropy) else None),
        ("text", ", ".join(s["data"]["sources"])),
        ("trained on", words.counts(s["data"]["train"])),
        ("validation text", words.counts(s["data"]["eval"])),
        ("[UNK]", f"{unknown:.3%} of the tokens" if finite(unknown) else None),
        ("duplicates", words.describe_duplicates(s["data"]["duplicates"])),
    ]


# ------------------------------------------------------------------------------------- runs on labeled records


def _of_records(view: RunView) -> dict[str, Any]:
    results, recipe, tasks = view.results, view.recipe, view.tasks
    problems = [{"step": None, "text": text, "serious": False} for text in view.problems]
    groups = by_kind(from_rows(view.read("findings.json", [])))
    findings = [{"step": None, "text": str(group), "serious": group.serious} for group in groups]
    use = [f"unmask predict {quote(view.folder(name))} {usage.typed_inputs(view.spec(name))}" for name in tasks]
    return {
        "task": results.get("task") or next(iter(tasks.values())),
        "tasks": tasks if view.several else {},
        "metric": results.get("metric"),
        "init_from": recipe.get("init_from"),
        "files": {name: _files(settings) for name, settings in view.settings.items()},
        "records": view.data.get("records") or {},
        "labels": {name: _labels(view.saved_state.get(name) if view.several else view.saved_state) for name in tasks},
        "best": results.get("best") or _best(view, results.get("metric")),
        "scores": _scores(results),
        "selected_seed": results.get("selected_seed"),
        "seed_summary": results.get("seed_summary") or [],
        "lr": results.get("lr") if finite(results.get("lr")) else get_nested(recipe, "train", "lr"),
        "baselines": [*results.get("components", ()), *results.get("baselines", ())],
        "model": shape(view.folder(next(iter(tasks)))),
        "trials": len(results.get("trials") or []) or None,
        "warnings": [*problems, *_logged(view, "warning"), *findings, *_logged(view, "error")],
        "example_command": use if view.state == "finished" else None,
    }


def _logged(view: RunView, event: str) -> list[Row]:
    """Return the warnings or errors that were logged during training."""
    serious = event == "error"
    return [{"step": e.get("step"), "text": e.get("text"), "serious": serious} for e in view.logged(event)]


def _files(settings: dict[str, Any]) -> dict[str, list[str]]:
    return {name: list(settings.get(name) or []) for name in ("train", "dev", "test") if settings.get(name)}


def _labels(state: Any) -> list[str]:
    labels = (state or {}).get("labels")
    return [str(label) for label in labels] if isinstance(labels, list) else []


def _best(view: RunView, decides: str | None) -> Row | None:
    """Return the best evaluation of an unfinished run, or the last one if the selection metric is unknown."""
    evals = view.logged("eval")
    if decides:
        known = metric(decides)
        evals = [e for e in evals if finite(e.get(decides))]
        evals.sort(key=lambda e: e[decides], reverse=not known.higher_is_better)
    return {k: v for k, v in evals[-1].items() if k not in ("event", "time")} if evals else None


def _scores(results: dict[str, Any]) -> list[Row]:
    """Return a row per task, split and score."""
    rows = []
    for name, part in (results.get("tasks") or {"": results}).items():
        for split in ("dev", "test"):
            values = part.get(split) or {}
            for key, value in values.items():
                if metric(key).kind != "count" and finite(value):
                    low, high = get_nested(part, "intervals", split, key) or (None, None)
                    decides = key == part.get("metric")
                    rows.append(
                        {"task": name, "set": split, "records": values.get("records"), "score": key, "value": value,
                         "low": low, "high": high, "decides": decides, "shown": decides or metric(key).headline}
                    )  # fmt: skip
    return rows


def _lines_of_records(s: dict[str, Any]) -> list[tuple[str, Any]]:
    records = s["records"]
    several = isinstance(next(iter(records.values()), None), dict)
    headlines = [r for r in s["seed_summary"] if r["score"] == s["metric"] or metric(r["score"]).headline]
    return [
        ("task", ", ".join(f"{name} ({kind})" for name, kind in s["tasks"].items()) or s["task"]),
        ("model", words.describe_model(s)),
        *[(f"files{_of(name)}", _join(files)) for name, files in s["files"].items()],
        *[(f"records{_of(n)}", words.record_counts(r)) for n, r in (records.items() if several else [("", records)])],
        *[(f"labels{_of(name)}", _list(labels)) for name, labels in s["labels"].items()],
        *[(f"f1 and auc{_of(name)}", f"of the label {positive}") for name, positive in _positives(s).items()],
        ("steps", words.describe_steps(s)),
        ("learning rate", f"{s['lr']:.2g}" if finite(s["lr"]) and s["lr"] else None),
        ("time", words.duration(s["seconds"])),
        ("trials", f"{s['trials']}" if s["trials"] else None),
        ("best dev score while training", words.describe_best(s)),
        *[(f"{r['task']} {r['set']}".strip(), words.describe_score(r)) for r in s["scores"] if r["shown"]],
        *[(f"{r['set']}, {r['runs']} seeds", words.describe_seeds(r)) for r in headlines],
        ("kept seed", f"{s['selected_seed']} (median on dev)" if s["seed_summary"] else None),
        *[(f"{b['split']}, {b['baseline']}", words.describe_baseline(b, s["metric"])) for b in s["baselines"]],
    ]


def _positives(s: dict[str, Any]) -> dict[str, str]:
    """Return, for each binary classification task, the positive label of f1 and auc (`tasks/classify/targets.py`)."""
    positives = {}
    for name, kind in (s["tasks"] or {"": s["task"]}).items():
        labels, spec = s["labels"].get(name) or [], task_spec(kind)
        scored = any(r["task"] == name and r["score"] == "f1" for r in s["scores"])
        if scored and len(labels) == 2 and spec and (spec.output, spec.output_per) == ("choice", "row"):
            positives[name] = labels[1]
    return positives


def _of(name: str) -> str:
    return f" of {name}" if name else ""


def _join(files: dict[str, list[str]]) -> str:
    return "; ".join(f"{name} {', '.join(paths)}" for name, paths in files.items())


def _list(labels: list[str], max_shown: int = 20) -> str:
    more = f" … ({len(labels):,} in total)" if len(labels) > max_shown else ""
    return ", ".join(labels[:max_shown]) + more
