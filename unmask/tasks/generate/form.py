"""Data format of `generate`: files of texts and targets, as records {text, target}.

A list of sentences (`source` of SciTLDR) is joined with spaces. If a cell has a list of targets, the model is trained on the first and
scored against all of them (`references`).
"""

from typing import Any

from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field, assign_columns, required_fields, usual_columns
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe
from unmask.text.columns import normalize_name
from unmask.text.segmentation import scoring_words

MAX_SAMPLED_ROWS = 200  # rows that `matches` reads
MIN_MEAN_WORDS = 3  # words per target; shorter targets are labels or names
OTHER_TASKS_COLUMNS = {
    "context",
    "question",
    "choices",
    "passages",
    "label",
    "pair",
}  # two of them: another task's file


class GenerateForm(DataFormat):
    fields = (
        Field("text", ("text", "document", "source", "article", "input", "question", "prompt", "context", "instruction",
                       "dialogue")),
        Field("target", ("target", "summary", "output", "response", "reply", "completion", "answer", "highlights"),
              "text", "target"),
    )  # fmt: skip

    def matches(self, source: Source) -> bool:
        """Return whether the file has both columns and its targets are texts: several words each, most of them distinct."""
        names = {normalize_name(name): name for name in source.columns}
        if len(OTHER_TASKS_COLUMNS & set(names)) > 1 or not super().matches(source):
            return False
        column = names[next(name for name in usual_columns(self.fields)["target"] if name in names)]
        targets = [_list(row[column])[0] for _, row in source.rows[:MAX_SAMPLED_ROWS] if row.get(column)]
        texts = [text for text in targets if isinstance(text, str)]
        num_words = sum(len(scoring_words(text, "other")) for text in texts)
        return num_words >= MIN_MEAN_WORDS * len(texts) and 2 * len(set(texts)) > len(targets)

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        columns = assign_columns(self.fields, source, settings, required_fields(self.fields, labeled))
        records: list[Record] = []
        for location, row in table_rows(source, "csv, tsv, jsonl or parquet with the columns text and target"):
            text = row.get(columns["text"])
            if isinstance(text, list) and all(isinstance(part, str) for part in text):
                text = " ".join(part.strip() for part in text)
            record: Record = {"location": location, "text": parse_text(text, location, "text", findings)}
            if labeled:
                targets = [parse_text(cell, location, "target", findings) for cell in _list(row.get(columns["target"]))]
                record["target"] = targets[0]
                if len(targets) > 1:
                    record["references"] = targets
            records.append(record)
        return records


def references(record: Record) -> list[str]:
    return record.get("references") or [record["target"]]


def _list(value: Any) -> list[Any]:
    return (value or [None]) if isinstance(value, list) else [value]
