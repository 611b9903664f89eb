"""Many findings in a few lines: the first ones of each kind in a file, and how many more there are."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from unmask.data.records import Finding

KEPT = 100  # findings of one kind that a run keeps


def kind_of(finding: Finding) -> str:
    """Findings whose words differ in numbers and quoted things alone are of one kind."""
    return finding.kind or re.sub(r"'[^']*'|\"[^\"]*\"|\d[\d,.]*", "…", finding.what)


def condense(findings: Sequence[Finding], per_kind: int) -> list[Finding]:
    """
    >>> for finding in condense([Finding(f"a.csv:{n}", "no label", kind="no label") for n in (3, 5, 9)], 1): print(finding)
    a.csv:3: no label
    a.csv: 2 more like this (no label)
    """
    kinds: dict[tuple[bool, str, str], list[Finding]] = defaultdict(list)
    for finding in findings:
        kinds[not finding.error, kind_of(finding), finding.at.rpartition(":")[0]].append(finding)
    out: list[Finding] = []
    for (_, kind, file), several in sorted(kinds.items(), key=lambda item: item[0][0]):  # errors first
        out += several[:per_kind]
        if len(several) > per_kind:
            what = f"{len(several) - per_kind:,} more like this ({kind})"
            out.append(Finding(file, what, error=several[0].error, kind=kind))
    return out


def as_rows(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """For a run's findings.json."""
    return [asdict(finding) | {"kind": kind_of(finding)} for finding in condense(findings, KEPT)]
