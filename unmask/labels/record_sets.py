"""The labelled files of a run: read whole, examined, and refused with everything that is wrong with them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from unmask.console import Console
from unmask.errors import UserError
from unmask.labels import doctor
from unmask.labels.detect_task import pick_task, with_column_proposals
from unmask.labels.fields import RecordSpec, detected_columns, label_names
from unmask.labels.findings import by_kind, condense
from unmask.labels.records import Finding, Record, Source, open_source
from unmask.recipe import TaskRecipe
from unmask.stopping import during

SHOWN = 10  # errors of one kind that are printed


@dataclass
class RecordSets:
    train: list[Record]
    dev: list[Record]
    test: list[Record]
    findings: list[Finding] = field(default_factory=list)
    settings: TaskRecipe | None = None  # with what the files decided
    columns: dict[str, str] = field(default_factory=dict)  # role → column of the training file

    def fingerprint(self) -> str:
        """Of everything that training reads: a resumed run has to find the same."""
        # "at" is what runs of version 0.1 hashed for a record's location
        sets = [[{"at" if k == "location" else k: v for k, v in r.items()} for r in s] for s in (self.train, self.dev)]
        text = json.dumps(sets, sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def open_files(settings: TaskRecipe, findings: list[Finding]) -> dict[str, list[Source]]:
    """The files of a task by their role, read but not yet understood."""
    if not settings.train:
        raise UserError("no file to learn from", expected="--train FILE: csv, tsv, jsonl, parquet, CoNLL or SQuAD json")
    return {
        name: [open_source(path, findings, columns=settings.columns) for path in getattr(settings, name)]
        for name in ("train", "dev", "test")
    }


@during("reading the labelled files")
def read_sets(settings: TaskRecipe) -> tuple[RecordSpec, RecordSets]:
    """The spec of their task, and the files as records. Errors in them are all said at once, with file and line."""
    findings: list[Finding] = []
    parts = open_files(settings, findings)
    try:
        spec = pick_task(settings, parts["train"])
    except UserError as error:  # errors in the files may say why no task fits
        empty = any(source.empty for source in parts["train"])
        raise_errors(findings, hint="" if empty else error.hint or "")
        raise
    columns = detected_columns(spec.fields, parts["train"][0], settings)
    settings = spec.data_format.resolve_auto(parts["train"], settings)
    records = {
        name: [r for source in sources for r in read_source(spec, source, settings, findings)]
        for name, sources in parts.items()
    }
    findings += doctor.check_records(records, spec, label_names(spec, settings.labels))
    return spec, RecordSets(records["train"], records["dev"], records["test"], findings, settings, columns)


def read_source(spec: RecordSpec, source: Source, settings: TaskRecipe, findings: list[Finding]) -> list[Record]:
    """A file's records; none when it is not such a file at all, which is a finding too: others may have faults as well."""
    if source.empty:
        return []
    try:
        return spec.data_format.read(source, settings, findings)
    except UserError as error:
        if not error.message.startswith(source.path):
            raise
        error = with_column_proposals(error, source, spec, settings)
        what = error.message.removeprefix(source.path).lstrip("0123456789: ")
        help = "; ".join(text for text in (error.expected and f"expected: {error.expected}", error.hint) if text)
        findings.append(Finding(source.location(1), what, help, kind="not of the task"))
        return []


def raise_errors(findings: Sequence[Finding], hint: str | None = None) -> None:
    """Stop when a finding is an error, with all of them. `hint`: what to do beside that; by default, how to list those not shown."""
    errors = [f for f in findings if f.error]
    if errors:
        shown = condense(errors, SHOWN)
        if hint is None and any(f not in errors for f in shown):  # one that stands for others
            hint = "unmask doctor FILE --json gives all of them"
        lines = "\n".join(map(str, shown))
        count = f"{len(errors):,} problem{'s' * (len(errors) > 1)}"
        raise UserError(f"{count} in the labelled files:\n{lines}", hint=hint or None)


def log_warnings(findings: Sequence[Finding], console: Console) -> None:
    """A line per kind of warning, the most serious last; how many texts are too long is said where they are read."""
    for group in by_kind(f for f in findings if f.kind != "length"):
        console.warn(str(group))


def set_sizes(sets: RecordSets) -> dict[str, int]:
    return {"train": len(sets.train), "dev": len(sets.dev), "test": len(sets.test)}
