"""Tables of the command line: samples, cache, tokenizer report, dry run, a run's summary. Text for people; JSON is elsewhere."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from rich.text import Text

from unmask.console import make_table as _table
from unmask.console import write as _print
from unmask.errors import quote


def samples_table(found: Sequence[dict[str, Any]]) -> None:
    table = _table("name", "what", "MB>", "licence", "here?")
    for s in found:
        table.add_row(
            f"sample:{s['name']}", s["what"], f"{s['size']:g}", s["licence"], "yes" if s["present"] else s["pip"]
        )
    _print(table, "\nunmask pretrain sample:python-docs --minutes 5")


def tokenizer_report(report: dict[str, Any]) -> None:
    table = _table("", "")
    table.add_row(
        "vocabulary", f"{report['vocabulary']:,} ({report['kind']}), {report['vocabulary_used']:.1%} of it used"
    )
    table.add_row("tokens per word", f"{report['tokens_per_word']:.3f}")
    table.add_row("characters per token", f"{report['characters_per_token']:.2f}")
    table.add_row("[UNK]", f"{report['unk_rate']:.3%} of the tokens")
    table.add_row("measured on", report["measured_on"])
    trained = report["trained_on"]
    table.add_row("trained on", f"{trained['used_bytes'] / 1e6:,.1f} of {trained['read_bytes'] / 1e6:,.1f} MB read")
    table.add_row("special tokens", " ".join(report["special_tokens"]))
    table.add_row("longest", " ".join(report["longest"][:6]))
    table.add_row("saved in", report["path"])
    _print(table)


def dry_run_text(expected: dict[str, Any]) -> str:
    memory = expected["memory_bytes"]
    parts = ", ".join(f"{name} {value / 1e6:,.0f}" for name, value in memory.items())
    seconds = ", ".join(f"{s:.2f} s at {n} tokens a row" for n, s in expected["seconds_per_step"].items())
    new = expected.get("extension")
    return "\n".join(
        [
            yaml.safe_dump(expected["recipe"], sort_keys=False, allow_unicode=True).rstrip(),
            "---",
            f"architecture  {expected['architecture']}",
            f"parameters    {expected['parameters']:,}",
            f"memory        about {sum(memory.values()) / 1e6:,.0f} MB ({parts}), beside about 400 MB of Python and torch",
            *([new["text"]] if new else []),
            f"text          {expected['text_tokens']:,} tokens ({expected['text_tokens_from']})",
            f"steps         {expected['steps']:,} = {expected['tokens']:,} tokens = {expected['epochs']:.2f} passes over the text",
            f"time          about {expected['minutes']:.1f} minutes on this machine ({seconds}; {expected['measured']['basis']}); nothing was written",
        ]
    )


def _facts(found: Sequence[tuple[str, str]]) -> None:
    table = _table("", "")
    for label, text in found:
        table.add_row(label, text)
    _print(table)


def rehearsal(found: dict[str, Any]) -> None:
    """What `unmask finetune --dry-run` found."""
    from unmask.runs.dry_run import lines

    _facts(lines(found))


def run_summary(found: dict[str, Any]) -> None:
    from unmask.report import facts

    _facts(facts(found))


def model_summary(found: dict[str, Any]) -> None:
    from unmask.inference.describe import lines

    _facts(lines(found))


def cache_table(entries: Sequence[Any]) -> None:
    if not entries:
        return _print("the cache is empty")
    table = _table("kind", "MB>", "last used", "whole?", "path")
    for e in entries:
        days = (time.time() - e.last_used) / 86400
        table.add_row(
            e.kind, f"{e.bytes / 1e6:,.1f}", f"{days:.1f} days ago", "yes" if e.complete else "no", str(e.path)
        )
    _print(table, f"\n{sum(e.bytes for e in entries) / 1e6:,.1f} MB in all; unmask cache prune --older-than 30")


def task_results(results: dict[str, Any]) -> None:
    """What a fine-tuned model reached, on the sets it was judged by."""
    for name, part in (results.get("tasks") or {}).items():
        _print(f"{name}:")
        task_results(part)
    if results.get("tasks"):
        _print(*[results["report"]] if "report" in results else ())
        return
    others: dict[str, dict[str, str]] = {}  # further columns → "set score" → what stands there
    sure = any(row["low"] is not None for row in results.get("over_seeds", ()))
    for row in results.get("over_seeds", ()):
        spread = f" ± {row['sd']:.4f}" if row["sd"] is not None else ""
        spread += f" ({row['low']:.4f} – {row['high']:.4f})" if row["low"] is not None else ""
        others.setdefault("mean ± sd (95 %)" if sure else "mean ± sd", {})[f"{row['set']} {row['score']}"] = (
            f"{row['mean']:.4f}{spread}"
        )
    for row in results.get("baselines", ()):
        found = {f"{row['on']} {key}": f"{value:.4f}" for key, value in row.items() if isinstance(value, float)}
        others[row["baseline"]] = found
    table = _table(
        "set", "records>", "score", "median seed>" if results.get("seeds") else ">", *(f"{o}>" for o in others)
    )
    for name in ("dev", "test"):
        for key, value in (results.get(name) or {}).items():
            if key != "records":
                more = [column.get(f"{name} {key}", "") for column in others.values()]
                table.add_row(name, f"{results[name]['records']:,}", key.replace("_", " "), f"{value:.4f}", *more)
    _print(table if table.rows else "no scores: there is neither a dev nor a test set")
    rates = {row["baseline"]: row["lr"] for row in results.get("baselines", ()) if row.get("lr")}
    if rates and results.get("lr"):
        own = "".join(f"; {name}: {rate:.2g}" for name, rate in rates.items())
        _print(f"learning rate: {results['lr']:.2g}{own}")
    _print(f"\nunmask predict {quote(Path(results['model']))} …", *[results["report"]] if "report" in results else ())


def scores(results: dict[str, Any]) -> None:
    table = _table("score", ">")
    for key, value in results.items():
        if isinstance(value, float):
            table.add_row(key.replace("_", " "), f"{value:.4f}")
    skipped = f", {results['skipped']:,} rows skipped" if results.get("skipped") else ""
    _print(
        table if table.rows else "no score can be told from these records", f"{results['records']:,} records{skipped}"
    )


def text_scores(results: dict[str, Any]) -> None:
    """What a pre-trained model reached on a text."""
    from unmask.inference.on_text import lines

    _facts(lines(results))


def findings(found: dict[str, Any]) -> None:
    """What the data doctor found: what each file is for, then a line per kind of finding, the most serious last."""
    from unmask.runs.validate import lines

    _print(*(Text(text, style) for text, style in lines(found)))
