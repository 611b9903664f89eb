"""Draws of labeled records, and the results: one row per data set, method, start weights, number of labels and draw.

The rows of a data set and a method are one file, docs/results/few_labels/DATASET/METHOD.jsonl. A line is appended when its row is
finished, so a stopped run continues with the next row.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from few_labels.datasets import Record

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "few_labels"


@dataclass(frozen=True)
class Key:
    dataset: str
    method: str
    start: str  # weights at the start of training: none, downloaded, random or folder
    labels: int
    draw: int


@dataclass(frozen=True)
class Row:
    key: Key
    score: float  # accuracy or macro F1, see datasets.py
    cpu_seconds: float  # of one fit, all threads
    notes: dict[str, Any] = field(default_factory=dict)  # versions, steps, …

    def as_json(self) -> str:
        values = {"score": round(self.score, 5), "cpu_seconds": round(self.cpu_seconds, 2), **self.notes}
        return json.dumps({**asdict(self.key), **values}, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, line: str) -> "Row":
        values = json.loads(line)
        key = Key(**{name: values.pop(name) for name in Key.__dataclass_fields__})
        return cls(key, values.pop("score"), values.pop("cpu_seconds"), values)


def read_rows(folder: Path = RESULTS) -> dict[Key, Row]:
    lines = (line for path in sorted(folder.glob("*/*.jsonl")) for line in path.read_text("utf-8").splitlines())
    rows = [Row.from_json(line) for line in lines if line.strip()]
    return {row.key: row for row in rows}


def append_row(row: Row, folder: Path = RESULTS) -> None:
    path = folder / row.key.dataset / f"{row.key.method}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        file.write(row.as_json())


def draw_records(pool: Sequence[Record], count: int, draw: int) -> tuple[list[Record], list[Record]]:
    """Return `count` labeled records and the rest of the pool. Every label occurs; a larger count adds records to a smaller one.

    >>> pool = [{"text": str(n), "label": "rare" if n == 7 else "usual"} for n in range(50)]
    >>> small, rest = draw_records(pool, 2, draw=0)
    >>> sorted(r["label"] for r in small), len(rest), draw_records(pool, 9, draw=0)[0][:2] == small
    (['rare', 'usual'], 48, True)
    """
    order = list(pool)
    random.Random(f"draw {draw}").shuffle(order)
    first = {record["label"]: n for n, record in reversed(list(enumerate(order)))}  # label → its first position
    if count < len(first):
        raise ValueError(f"{count} records cannot have all {len(first)} labels")
    front = set(first.values())
    order = [order[n] for n in sorted(front)] + [record for n, record in enumerate(order) if n not in front]
    return order[:count], order[count:]
