"""Read and check the labeled files of a run. All errors are raised together."""

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
from unmask.metrics import format_count
from unmask.recipe import TaskRecipe
from unmask.stopping import activity

MAX_SHOWN_PER_KIND = 10  # errors printed per kind


@dataclass
class RecordSets:
    train: list[Record]
    dev: list[Record]
    test: list[Record]
    findings: list[Finding] = field(default_factory=list)
    settings: TaskRecipe | None = None  # with `auto` values resolved from the files
    columns: dict[str, str] = field(default_factory=dict)  # role → column of the training file

    def fingerprint(self) -> str:
        """Hash everything that training reads, so that a resumed run can check that it is unchanged."""
        # "at" is what runs of version 0.1 hashed for a record's location
        sets = [[{"at" if k == "location" else k: v for k, v in r.items()} for r in s] for s in (self.train, self.dev)]
        text = json.dumps(sets, sort_keys=True, default=str, ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def open_files(settings: TaskRecipe, findings: list[Finding]) -> dict[str, list[Source]]:
    """Open the files of a task: train, dev and test."""
    if not settings.train:
        raise UserError(
            "no training file given",
            expected="a csv, tsv, jsonl, parquet, CoNLL or SQuAD json file",
            hint="pass --train FILE",
        )
    return {
        name: [open_source(path, findings, columns=settings.columns) for path in getattr(settings, name)]
        for name in ("train", "dev", "test")
    }


@activity("reading the labeled files")
def read_sets(settings: TaskRecipe) -> tuple[RecordSpec, RecordSets]:
    """Return the spec of the task and the records of the files. Errors are raised together, with file and line."""
    findings: list[Finding] = []
    sources = open_files(settings, findings)
    try:
        spec = pick_task(settings, sources["train"])
    except UserError as error:  # errors in the files may explain why no task fits
        empty = any(source.empty for source in sources["train"])
        raise_errors(findings, hint="" if empty else error.hint or "")
        raise
    columns = detected_columns(spec.fields, sources["train"][0], settings)
    settings = spec.data_format.resolve_auto(sources["train"], settings)
    records = {
        name: [r for source in files for r in read_source(spec, source, settings, findings)]
        for name, files in sources.items()
    }
    findings += doctor.check_records(records, spec, label_names(spec, settings.labels))
    return spec, RecordSets(records["train"], records["dev"], records["test"], findings, settings, columns)


def read_source(spec: RecordSpec, source: Source, settings: TaskRecipe, findings: list[Finding]) -> list[Record]:
    """Return the records of a file, or [] and a finding if it cannot be read for this task, so that the other files are checked too."""
    if source.empty:
        return []
    try:
        return spec.data_format.read(source, settings, findings)
    except UserError as error:
        if not error.message.startswith(source.path):
            raise
        error = with_column_proposals(error, source, spec, settings)
        message = error.message.removeprefix(source.path).lstrip("0123456789: ")
        hint = "; ".join(text for text in (error.expected and f"expected: {error.expected}", error.hint) if text)
        findings.append(Finding(source.location(1), message, hint, kind="not of the task"))
        return []


def raise_errors(findings: Sequence[Finding], hint: str | None = None) -> None:
    """Raise a UserError that lists all errors, if there are any. The default hint tells how to list errors that are not shown."""
    errors = [f for f in findings if f.error]
    if errors:
        listed = condense(errors, MAX_SHOWN_PER_KIND)
        if hint is None and any(f not in errors for f in listed):  # a finding that summarizes others
            hint = "run `unmask doctor FILE --json` for the full list"
        lines = "\n".join(map(str, listed))
        count = format_count(len(errors), "problem")
        raise UserError(f"{count} in the labeled files:\n{lines}", hint=hint or None)


def log_warnings(findings: Sequence[Finding], console: Console) -> None:
    """Log one line per kind of warning, the most serious last; long texts are reported when they are tokenized."""
    for group in by_kind(f for f in findings if f.kind != "length"):
        console.warn(str(group))


def set_sizes(sets: RecordSets) -> dict[str, int]:
    return {"train": len(sets.train), "dev": len(sets.dev), "test": len(sets.test)}
