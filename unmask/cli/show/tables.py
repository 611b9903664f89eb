"""Tables in the terminal: samples, cache, tokenizer report, dry run, results, findings."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.text import Text

from unmask.console import make_table as _table
from unmask.console import write as _print
from unmask.errors import quote
from unmask.labels.findings import by_kind, from_rows
from unmask.metrics import format_count
from unmask.report.words import duration


def samples_table(samples: Sequence[dict[str, Any]]) -> None:
    table = _table("name", "what", "MB>", "license", "installed")
    for s in samples:
        table.add_row(
            f"sample:{s['name']}", s["what"], f"{s['size']:g}", s["licence"], "yes" if s["present"] else s["pip"]
        )
    _print(table, "\nunmask pretrain sample:python-docs --minutes 5")


def tokenizer_report(report: dict[str, Any]) -> None:
    trained = report["trained_on"]
    print_facts([
        ("vocabulary", f"{report['vocabulary']:,} ({report['type']}), {report['vocabulary_used']:.1%} of it used"),
        ("tokens per word", f"{report['tokens_per_word']:.3f}"),
        ("characters per token", f"{report['characters_per_token']:.2f}"),
        ("[UNK]", f"{report['unk_rate']:.3%} of the tokens"),
        ("measured on", report["measured_on"]),
        ("trained on", f"{trained['used_bytes'] / 1e6:,.1f} of {trained['read_bytes'] / 1e6:,.1f} MB read"),
        ("special tokens", " ".join(report["special_tokens"])),
        ("longest", " ".join(report["longest"][:6])),
        ("saved in", report["path"]),
    ])  # fmt: skip


def dry_run_text(estimate: dict[str, Any]) -> str:
    seconds = ", ".join(f"{s:.2f} s at {n} tokens per row" for n, s in estimate["seconds_per_step"].items())
    extension = estimate.get("extension")
    return "\n".join(
        [
            yaml.safe_dump(estimate["recipe"], sort_keys=False, allow_unicode=True).rstrip(),
            "---",
            f"architecture  {estimate['architecture']}",
            f"parameters    {estimate['parameters']:,}",
            f"memory        {_memory(estimate['memory_bytes'])}",
            *([extension["text"]] if extension else []),
            f"text          {estimate['text_tokens']:,} tokens ({estimate['text_tokens_from']})",
            f"steps         {estimate['steps']:,} ({estimate['tokens']:,} tokens, {estimate['epochs']:.2f} epochs)",
            f"precision     {_precision(estimate['precision'])}",
            f"time          {_time(estimate['minutes'])} on this machine ({seconds}; {estimate['measured']['basis']}); nothing was written",
        ]
    )


def _time(minutes: float) -> str:
    return f"about {duration(max(1.0, 60 * minutes))}"


def _precision(value: str) -> str:
    return "fp32 or bf16, chosen by a trial when the run starts; the time is for fp32" if value == "trial" else value


def _memory(parts: dict[str, int]) -> str:
    listed = ", ".join(f"{name} {value / 1e6:,.0f}" for name, value in parts.items())
    return f"about {sum(parts.values()) / 1e6:,.0f} MB ({listed}), plus about 400 MB for Python and torch"


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print (label, text) pairs as two columns."""
    table = _table("", "")
    for label, text in facts:
        table.add_row(label, text)
    _print(table)


def learn_dry_run_lines(estimate: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (label, text) pairs of `unmask learn --dry-run`."""
    return [
        ("records", ", ".join(f"{count:,} {name}" for name, count in estimate["counts"].items())),
        *[("note", text) for text in estimate["notes"]],
        *[("step", f"{row['step']}: about {row['minutes']:.1f} minutes") for row in estimate["steps"]],
        ("total", f"about {estimate['minutes']:g} minutes"),
    ]


def finetune_dry_run_lines(estimate: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (label, text) pairs of `unmask finetune --dry-run`."""
    out: list[tuple[str, str]] = []
    for name, part in estimate["tasks"].items():
        tokens, prefix = part["tokens"], "" if name == part["task"] else f"{name}: "
        columns = ", ".join(f"{role} ← {column}" for role, column in part["columns"].items())
        trained = (
            ""
            if part["trainable_parameters"] == part["parameters"]
            else f", {part['trainable_parameters']:,} trainable"
        )
        overflow = (
            f"; {part['num_overflowing']:,} records are longer: {part['overflow_action']}"
            if part["num_overflowing"]
            else ""
        )
        out += [
            ("task", prefix + part["task"] + (f" ({columns})" if columns else "")),
            ("records", ", ".join(f"{n:,} {split}" for split, n in part["records"].items() if n)),
            ("labels", part["text"]),
            ("tokens", f"rows have {tokens['median']:,} tokens (median), {tokens['p95']:,} (95th percentile), {tokens['longest']:,} (longest); "
             f"at most {tokens['row']:,} fit{overflow}"),
            ("model", f"{estimate['init_from']} ({part['family']}), {part['parameters']:,} parameters{trained}"),
            *[("note", text) for text in part["notes"]],
            *[("warning", str(group)) for group in by_kind(from_rows(part["findings"]))],
        ]  # fmt: skip
    seeds = f" for {estimate['seeds']} seeds" if estimate["seeds"] > 1 else ""
    excluded = (
        f"; not counted: {', '.join(estimate['excluded_from_estimate'])}" if estimate["excluded_from_estimate"] else ""
    )
    out += [
        ("steps", f"{estimate['steps']:,} with {estimate['batch']:,} rows each ({estimate['epochs']:g} epochs), learning rate {estimate['lr']:.2g}, "
         f"{estimate['evaluations']} evaluations"),
        ("memory", f"up to {_memory(estimate['memory_bytes'])}"),
        ("precision", _precision(estimate["precision"])),
        ("time", f"{_time(estimate['minutes'])} on this machine{seeds} ({estimate['seconds_per_step']:.2f} s per step){excluded}; "
         "nothing was written"),
    ]  # fmt: skip
    return [(label, text) for label, text in out if text]


def cache_table(entries: Sequence[Any]) -> None:
    if not entries:
        return _print("the cache is empty")
    table = _table("kind", "MB>", "last used", "complete", "path")
    for e in entries:
        days = (time.time() - e.last_used) / 86400
        table.add_row(
            e.kind, f"{e.bytes / 1e6:,.1f}", f"{days:.1f} days ago", "yes" if e.complete else "no", str(e.path)
        )
    _print(table, f"\n{sum(e.bytes for e in entries) / 1e6:,.1f} MB in total; unmask cache prune --older-than 30")


def task_results(results: dict[str, Any]) -> None:
    """Print the metrics of a fine-tuned model on its evaluation sets."""
    for name, part in (results.get("tasks") or {}).items():
        _print(f"{name}:")
        task_results(part)
    if results.get("tasks"):
        _print(*[results["report"]] if "report" in results else ())
        return
    other_columns: dict[str, dict[str, str]] = {}  # further column → {"set metric": cell}
    has_interval = any(row["low"] is not None for row in results.get("seed_summary", ()))
    for row in results.get("seed_summary", ()):
        spread = f" ± {row['sd']:.4f}" if row["sd"] is not None else ""
        spread += f" ({row['low']:.4f} – {row['high']:.4f})" if row["low"] is not None else ""
        other_columns.setdefault("mean ± std (95% CI)" if has_interval else "mean ± std", {})[
            f"{row['set']} {row['score']}"
        ] = f"{row['mean']:.4f}{spread}"
    for row in [*results.get("components", ()), *results.get("baselines", ())]:
        cells = {f"{row['split']} {key}": f"{value:.4f}" for key, value in row.items() if isinstance(value, float)}
        other_columns.setdefault(row["baseline"], {}).update(cells)
    table = _table(
        "set",
        "records>",
        "metric",
        "median seed>" if results.get("seeds") else "blend>" if results.get("components") else ">",
        *(f"{o}>" for o in other_columns),
    )
    for name in ("dev", "test"):
        for key, value in (results.get(name) or {}).items():
            if key != "records":
                other_cells = [column.get(f"{name} {key}", "") for column in other_columns.values()]
                table.add_row(
                    name, f"{results[name]['records']:,}", key.replace("_", " "), f"{value:.4f}", *other_cells
                )
    _print(table if table.rows else "no metrics: there is neither a dev nor a test set")
    rates = {row["baseline"]: row["lr"] for row in results.get("baselines", ()) if row.get("lr")}
    if rates and results.get("lr"):
        baselines = "".join(f"; {name}: {rate:.2g}" for name, rate in rates.items())
        _print(f"learning rate: {results['lr']:.2g}{baselines}")
    _print(f"\n{_predict_command(Path(results['model']))}", *[results["report"]] if "report" in results else ())


def _predict_command(folder: Path) -> str:
    """Return a command with placeholders for the inputs of the task."""
    from unmask.report.usage import typed_inputs
    from unmask.tasks.folder import FILE, read_spec

    inputs = typed_inputs(read_spec(folder)) if (folder / FILE).exists() else "FILE"
    return f"unmask predict {quote(folder)} {inputs}"


def scores(results: dict[str, Any]) -> None:
    table = _table("metric", ">")
    for key, value in results.items():
        if isinstance(value, float):
            table.add_row(key.replace("_", " "), f"{value:.4f}")
    skipped = f", {results['skipped']:,} rows skipped" if results.get("skipped") else ""
    _print(
        table if table.rows else "no metric can be computed from these records",
        f"{results['records']:,} records{skipped}",
    )


def findings(report: dict[str, Any]) -> None:
    """Print the findings of `unmask doctor`, the most serious last."""
    _print(*(Text(text, style) for text, style in finding_lines(report)))


def finding_lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (text, style) pairs: the files of each split, one line per kind of finding, and the counts."""
    out = [
        (f"{role + ':':6} {', '.join(files)} ({report['records'][role]:,} records)", "")
        for role, files in report["files"].items()
        if files
    ]
    groups = by_kind(from_rows(report["findings"]))
    for group in groups:
        error = group.first.error
        style = "bold red" if error else "bold yellow" if group.serious else ""
        out.append((f"{'error' if error else 'warning'}: {group}", style))
    counts = ", ".join(format_count(report[f"{level}s"], level) for level in ("error", "warning"))
    note = "; --json lists each of them" if any(group.count > len(group.locations) for group in groups) else ""
    return [*out, (f"{report['task']}: {counts}{note}", "")]
