"""Group findings for display: one line per kind with its count and first locations, the most serious kind last.

`doctor --json` prints all findings; a run keeps the first of each kind (`as_rows`).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from unmask.labels.records import Finding

MAX_KEPT_PER_KIND = 100  # findings of one kind kept in a run folder
MAX_LOCATIONS = 3  # shown per kind
LEAKS = ("near leakage", "dev leakage", "same file", "leakage")  # kinds that make scores worthless, the worst last
ORDER = (  # order of warnings, the most serious last; kinds that are not listed come first
    "length", "duplicate", "rare label", "imbalance", "encoding", "order of tags", "labels alike", "missing label",
    "several labels", "answer length", "header", "text column", "label column", "contradiction", *LEAKS,
)  # fmt: skip


def kind_of(finding: Finding) -> str:
    """Return the kind of a finding; without one, its message with numbers and quoted text removed."""
    return finding.kind or re.sub(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*", "…", finding.message)


def severity(finding: Finding) -> tuple[bool, int]:
    """Return a sort key: errors last, before them warnings in the order of ORDER."""
    return finding.error, ORDER.index(finding.kind) if finding.kind in ORDER else -1


@dataclass(frozen=True)
class Group:
    """The findings of one kind: the first one, their number and first locations.

    >>> print(*by_kind([Finding(f"a.csv:{n}", "no label", "fill it in", kind="no label") for n in (3, 5, 9, 12)]))
    4 × no label: a.csv:3: no label; fill it in; also a.csv:5, a.csv:9 …
    """

    first: Finding
    count: int
    locations: tuple[str, ...]  # the first MAX_LOCATIONS

    @property
    def serious(self) -> bool:
        return self.first.error or self.first.kind in LEAKS

    def __str__(self) -> str:
        if self.count == 1:
            return str(self.first)
        also = f"; also {', '.join(self.locations[1:])}" if self.locations[1:] else ""
        more = " …" if self.count > len(self.locations) else ""
        kind = self.first.kind.replace("_", " ") or "like this"
        return f"{self.count:,} × {kind}: {self.first}{also}{more}"


def by_kind(findings: Iterable[Finding]) -> list[Group]:
    """Group findings by kind, the most serious last."""
    kinds: dict[tuple[bool, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        kinds[finding.error, kind_of(finding)].append(finding)
    groups = []
    for group in kinds.values():
        locations = [f.location for f in group if f.count == 1] or [group[0].location]
        groups.append(Group(group[0], sum(f.count for f in group), tuple(dict.fromkeys(locations))[:MAX_LOCATIONS]))
    return sorted(groups, key=lambda group: severity(group.first))


def condense(findings: Sequence[Finding], per_kind: int) -> list[Finding]:
    """Keep the first findings of each kind per file and count the others in one more finding; the most serious last.

    >>> for finding in condense([Finding(f"a.csv:{n}", "no label", kind="no label") for n in (3, 5, 9)], 1): print(finding)
    a.csv:3: no label
    a.csv: 2 more like this (no label)
    """
    kinds: dict[tuple[bool, str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        kinds[finding.error, kind_of(finding), finding.location.rpartition(":")[0]].append(finding)
    out: list[Finding] = []
    for (_, kind, file), group in sorted(kinds.items(), key=lambda item: severity(item[1][0])):
        out += group[:per_kind]
        if left := sum(finding.count for finding in group[per_kind:]):
            out.append(Finding(file, f"{left:,} more like this ({kind})", error=group[0].error, kind=kind, count=left))
    return out


# Keys of a finding in a file, and their names before version 0.2.
KEYS = (("location", "at"), ("message", "what"), ("hint", "fix"), ("kind", "kind"))


def as_rows(findings: Sequence[Finding], per_kind: int | None = None) -> list[dict[str, Any]]:
    """Convert findings to JSON values, the most serious last: all, or the first ones of each kind per file."""
    chosen = sorted(findings, key=severity) if per_kind is None else condense(findings, per_kind)
    return [asdict(finding) | {"kind": kind_of(finding)} for finding in chosen]


def from_rows(rows: Iterable[Any]) -> list[Finding]:
    """Parse the output of `as_rows` from a file that may have been edited; invalid rows are ignored."""
    findings = []
    for row in rows:
        if isinstance(row, dict):
            location, message, hint, kind = (str(row.get(new) or row.get(old) or "") for new, old in KEYS)
            count = row.get("count")
            count = count if isinstance(count, int) and count > 0 else 1
            findings.append(Finding(location, message, hint, row.get("error") is True, kind, count))
    return findings
