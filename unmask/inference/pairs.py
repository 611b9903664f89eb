"""Minimal pairs (BLiMP 1912.00582): the grammatical one of two similar sentences should have the higher likelihood.

A file has one row per pair, with `sentence_good`, `sentence_bad`, and optionally the tested phenomenon: `linguistics_term` or `UID`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from unmask.errors import UserError
from unmask.inference.answers import AccuracyInterval, MinimalPairs, Pair, Score
from unmask.labels.records import Finding, is_table, open_source, parse_text, table_rows
from unmask.numeric import wilson_interval
from unmask.text.columns import map_columns

ROLES: Mapping[str, Sequence[str]] = {
    "good": ("sentence_good", "good", "grammatical"),
    "bad": ("sentence_bad", "bad", "ungrammatical"),
    "phenomenon": ("linguistics_term", "phenomenon", "uid", "category"),
}
FORMAT = (
    'rows with sentence_good and sentence_bad: {"sentence_good": "the cats sleep", "sentence_bad": "the cats sleeps"}'
)


def read_pairs(source: str | PathLike[str] | Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Read a file, a folder of files, or rows. Return (good, bad, phenomenon) of each pair."""
    if not isinstance(source, str | PathLike):
        return _parse([(f"row {n}", row) for n, row in enumerate(source, 1)], "the rows")
    folder = Path(source).expanduser()
    files = sorted(str(p) for p in folder.glob("*") if is_table(p.name)) if folder.is_dir() else [str(source)]
    if not files:
        raise UserError(f"{folder}: no files with pairs", expected="jsonl, csv, tsv, json or parquet files")
    out: list[tuple[str, str, str]] = []
    for file in files:
        findings: list[Finding] = []
        table = open_source(file, findings)
        if error := next((f for f in findings if f.error), None):
            raise UserError(str(error))
        out += _parse(list(table_rows(table, FORMAT)), file)
    return out


def _parse(rows: Sequence[tuple[str, Mapping[str, Any]]], source: str) -> list[tuple[str, str, str]]:
    for location, row in rows:
        if not isinstance(row, Mapping):
            raise UserError(f"{location}: {row!r:.60} is {type(row).__name__}, not a mapping", expected=FORMAT)
    columns = list(dict.fromkeys(key for _, row in rows for key in row))
    if not columns:
        raise UserError(f"{source}: no pairs", expected=FORMAT)
    names = map_columns(columns, ROLES, {}, ("good", "bad"), source)
    out, findings = [], list[Finding]()
    for location, row in rows:
        good, bad = (parse_text(row.get(names[role]), location, role, findings) for role in ("good", "bad"))
        out.append((good, bad, str(row.get(names.get("phenomenon", "")) or "")))
    if error := next((f for f in findings if f.error), None):
        raise UserError(str(error), expected=FORMAT)
    return out


def evaluate_pairs(pairs: Sequence[tuple[str, str, str]], score: Callable[[list[str]], list[Score]]) -> MinimalPairs:
    """Return the accuracy. A pair is correct if the good sentence has the higher log-likelihood; ties are wrong."""
    scores = score([text for good, bad, _ in pairs for text in (good, bad)])
    scored = [
        Pair(good, bad, a.total, b.total, a.total > b.total)
        for (good, bad, _), a, b in zip(pairs, scores[::2], scores[1::2], strict=True)
    ]
    groups: dict[str, list[bool]] = {}
    for pair, (_, _, name) in zip(scored, pairs):
        groups.setdefault(name, []).append(pair.right)
    total = accuracy_interval([pair.right for pair in scored])
    by = {name: accuracy_interval(right) for name, right in sorted(groups.items()) if name}
    return MinimalPairs(total.accuracy, total.count, total.interval, scores[0].method, by, scored)


def accuracy_interval(right: Sequence[bool]) -> AccuracyInterval:
    """
    >>> accuracy_interval([True] * 8 + [False] * 2)
    AccuracyInterval(accuracy=0.8, count=10, interval=(0.49, 0.943))
    """
    low, high = wilson_interval(sum(right), len(right))
    return AccuracyInterval(sum(right) / len(right), len(right), (round(low, 3), round(high, 3)))
