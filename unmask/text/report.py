"""Count what was skipped or repaired while reading a corpus, with file and line; bounded in size."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from unmask.metrics import format_count

MAX_LOCATED = 20  # problems per kind that are saved with their location; all are counted
MAX_PRINTED = 5  # problems per kind that are printed with their location

KINDS = {
    "skipped_files": "files skipped",
    "damaged_files": "files damaged or truncated: the readable part was used",
    "empty_files": "files without text",
    "repaired_bytes": "bytes that are invalid in the file's encoding, replaced by U+FFFD",
    "repaired_surrogates": "lone surrogates, replaced by U+FFFD",
    "control_characters": "control characters removed or repaired",
    "split_documents": "documents too long, split into several",
    "long_records": "records too long to read, skipped",
    "bad_json": "lines that are not JSON, skipped",
    "ragged_rows": "rows with fewer fields than the header",
    "extra_fields": "rows with more fields than the header",
    "missing_values": "records without the column, skipped",
    "not_text": "values that are not text, skipped",
    "empty_records": "records without text, skipped",
}


@dataclass(frozen=True)
class Problem:
    kind: str
    source: str
    line: int  # 0: the whole file
    message: str

    def __str__(self) -> str:
        """
        >>> print(Problem("bad_json", "a.jsonl", 7, "not JSON"))
        a.jsonl:7: not JSON
        """
        return f"{self.source}:{self.line}: {self.message}" if self.line else f"{self.source}: {self.message}"


@dataclass
class Report:
    """
    >>> report = Report(files=1, documents=2, characters=30, bytes=32)
    >>> report.add("bad_json", "a.jsonl", 7, "not JSON")
    >>> print(report)
    1 file, 2 documents, 30 characters, 32 bytes read
    1 lines that are not JSON, skipped
      a.jsonl:7: not JSON
    """

    files: int = 0
    documents: int = 0
    characters: int = 0
    bytes: int = 0  # read so far, as stored on disk (compressed)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    _located: Counter[str] = field(default_factory=Counter, repr=False)

    def add(self, kind: str, source: str, line: int, message: str, count: int = 1) -> None:
        assert kind in KINDS, kind
        self.counts[kind] += count
        if self._located[kind] < MAX_LOCATED:
            self._located[kind] += 1
            self.problems.append(Problem(kind, source, line, message))

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return lines for display: totals, then each kind of problem with its first locations."""
        lines = [
            ", ".join(
                format_count(getattr(self, f"{noun}s"), noun) for noun in ("file", "document", "character", "byte")
            )
            + " read"
        ]
        for kind, label in KINDS.items():
            if self.counts[kind]:
                lines.append(f"{self.counts[kind]:,} {label}")
                located = [f"  {problem}" for problem in self.problems if problem.kind == kind]
                lines += located[:MAX_PRINTED] + ["  …"] * (len(located) > MAX_PRINTED)
        return lines

    def as_dict(self) -> dict[str, Any]:
        """Return all counts, and the located problems as text, for results files."""
        return {
            "files": self.files,
            "documents": self.documents,
            "characters": self.characters,
            "bytes": self.bytes,
            **{kind: self.counts[kind] for kind in KINDS if self.counts[kind]},
            "problems": [str(problem) for problem in self.problems],
        }
