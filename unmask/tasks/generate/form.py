"""Files of texts and what is to be written to them, as records {text, target}.

A list of sentences (`source` of SciTLDR) is joined by blanks. Of a list of targets the first is learnt, and all are references.
"""

from typing import Any

from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field, assign_columns, required_fields, usual_columns
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe
from unmask.text.columns import normalize_name
from unmask.text.segmentation import scoring_words

LOOKED = 200  # rows at which a file is recognised
WORDS = 3  # of a target, on average; fewer are labels or names
OTHERS = {"context", "question", "choices", "passages", "label", "pair"}  # two of these: the file is another task's


class GenerateForm(DataFormat):
    fields = (
        Field("text", ("text", "document", "source", "article", "input", "question", "prompt", "context", "instruction",
                       "dialogue")),
        Field("target", ("target", "summary", "output", "response", "reply", "completion", "answer", "highlights"),
              "text", "target"),
    )  # fmt: skip

    def matches(self, source: Source) -> bool:
        """Both columns are there, and the targets are texts: nearly all different, of several words."""
        names = {normalize_name(name): name for name in source.columns}
        if len(OTHERS & set(names)) > 1 or not super().matches(source):
            return False
        column = names[next(name for name in usual_columns(self.fields)["target"] if name in names)]
        seen = [_list(row[column])[0] for _, row in source.rows[:LOOKED] if row.get(column)]
        texts = [text for text in seen if isinstance(text, str)]
        wordy = sum(len(scoring_words(text, "other")) for text in texts) >= WORDS * len(texts)
        return wordy and 2 * len(set(texts)) > len(seen)

    def read(
        self, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True
    ) -> list[Record]:
        columns = assign_columns(self.fields, source, settings, required_fields(self.fields, labelled))
        records: list[Record] = []
        for at, row in table_rows(source, "csv, tsv, jsonl or parquet with the columns text and target"):
            text = row.get(columns["text"])
            if isinstance(text, list) and all(isinstance(part, str) for part in text):
                text = " ".join(part.strip() for part in text)
            record: Record = {"location": at, "text": parse_text(text, at, "text", findings)}
            if labelled:
                wanted = [parse_text(one, at, "target", findings) for one in _list(row.get(columns["target"]))]
                record["target"] = wanted[0]
                if len(wanted) > 1:
                    record["references"] = wanted
            records.append(record)
        return records


def references(record: Record) -> list[str]:
    return record.get("references") or [record["target"]]


def _list(value: Any) -> list[Any]:
    return (value or [None]) if isinstance(value, list) else [value]
