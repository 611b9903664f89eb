"""Findings for people: a line per kind with its count and first places, the most serious kind last, where a terminal is read.

`doctor --json` gives all of them; a run keeps the first ones of each kind (`as_rows`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unmask.labels.records import Finding

MAX_KEPT_PER_KIND = 100  # findings of one kind that a run keeps
PLACES = 3  # of one kind that are shown
LEAKS = ("near leakage", "dev leakage", "same file", "leakage")  # kinds that make scores worthless, the worst last
ORDER = (  # of warnings, the most serious last; kinds that are not named come before them
    "length", "duplicate", "rare label", "imbalance", "encoding", "order of tags", "labels alike", "missing label",
    "several labels", "answer length", "header", "text column", "label column", "contradiction", *LEAKS,
)  # fmt: skip


def kind_of(finding: Finding) -> str:
    """Findings whose words differ in numbers and quoted things alone are of one kind."""
    return finding.kind or re.sub(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*", "…", finding.message)


def severity(finding: Finding) -> tuple[bool, int]:
    """To sort by: errors are the most serious, then what is last in ORDER."""
    return finding.error, ORDER.index(finding.kind) if finding.kind in ORDER else -1


@dataclass(frozen=True)
class Group:
    """All findings of one kind, by the first of them.

    >>> print(*by_kind([Finding(f"a.csv:{n}", "no label", "fill it in", kind="no label") for n in (3, 5, 9, 12)]))
    4 × no label: a.csv:3: no label; fill it in; also a.csv:5, a.csv:9 …
    """

    first: Finding
    count: int
    places: tuple[str, ...]  # the first ones

    @property
    def serious(self) -> bool:
        return self.first.error or self.first.kind in LEAKS

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        also = f"; also {', '.join(self.places[1:])}" if self.places[1:] else ""
        more = " …" if self.count > len(self.places) else ""
        kind = self.first.kind.replace("_", " ") or "like this"
        return f"{self.count:,} × {kind}: {self.first}{also}{more}"


def by_kind(findings: Iterable[Finding]) -> list[Group]:
    """A group per kind, the most serious last."""
    kinds: dict[tuple[bool, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        kinds[finding.error, kind_of(finding)].append(finding)
    groups = []
    for several in kinds.values():
        places = [f.location for f in several if f.count == 1] or [several[0].location]
        groups.append(Group(several[0], sum(f.count for f in several), tuple(dict.fromkeys(places))[:PLACES]))
    return sorted(groups, key=lambda group: severity(group.first))


def condense(findings: Sequence[Finding], per_kind: int) -> list[Finding]:
    """The first findings of each kind in a file, and one that says how many more there are; the most serious last.

    >>> for finding in condense([Finding(f"a.csv:{n}", "no label", kind="no label") for n in (3, 5, 9)], 1): print(finding)
    a.csv:3: no label
    a.csv: 2 more like this (no label)
    """
    kinds: dict[tuple[bool, str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        kinds[finding.error, kind_of(finding), finding.location.rpartition(":")[0]].append(finding)
    out: list[Finding] = []
    for (_, kind, file), several in sorted(kinds.items(), key=lambda item: severity(item[1][0])):
        out += several[:per_kind]
        if left := sum(finding.count for finding in several[per_kind:]):
            out.append(
                Finding(file, f"{left:,} more like this ({kind})", error=several[0].error, kind=kind, count=left)
            )
    return out


# Keys of a finding in a file, and what they were called before version 0.2.
KEYS = (("location", "at"), ("message", "what"), ("hint", "fix"), ("kind", "kind"))


def as_rows(findings: Sequence[Finding], per_kind: int | None = None) -> list[dict[str, Any]]:
    """Plain values, the most serious last: all findings, or the first of each kind in a file."""
    chosen = sorted(findings, key=severity) if per_kind is None else condense(findings, per_kind)
    return [asdict(finding) | {"kind": kind_of(finding)} for finding in chosen]


def from_rows(rows: Iterable[Any]) -> list[Finding]:
    """What `as_rows` gave, read from a file that anybody may have changed: rows of other shapes are left out."""
    found = []
    for row in rows:
        if isinstance(row, dict):
            at, what, hint, kind = (str(row.get(new) or row.get(old) or "") for new, old in KEYS)
            count = row.get("count")
            count = count if isinstance(count, int) and count > 0 else 1
            found.append(Finding(at, what, hint, row.get("error") is True, kind, count))
    return found
