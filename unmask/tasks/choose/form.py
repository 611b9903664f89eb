"""Texts with several choices, of which one is right (choices.py reads the many ways in which choices and labels are written)."""

from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field, usual_columns
from unmask.labels.formats.choices import (
    LIST_COLUMNS,
    add_label_indices,
    check_choices,
    choice_columns,
    has_choices,
    parse_choices,
)
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe
from unmask.text.columns import map_columns, normalize_name


class ChooseForm(DataFormat):
    fields = (
        Field("text", ("question", "text", "prompt", "sent2", "query", "goal", "sentence", "startphrase", "premise", "stem")),
        Field("context", ("context", "passage", "article", "sent1", "paragraph"), required=False),
        Field("choices", (*LIST_COLUMNS, "answers"), "texts", min_count=2, caption="CHOICE"),
        Field("label", ("label", "answer", "answerkey", "answer_key", "gold", "correct", "target", "answer_index",
                        "gold_label"), "index", "target"),
    )  # fmt: skip

    def matches(self, source: Source) -> bool:
        names = source.names
        usual = usual_columns(self.fields)
        text = names & {*usual["text"], *usual["context"]}
        return bool(text and names & set(usual["label"])) and has_choices(source)

    def read(
        self, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True
    ) -> list[Record]:
        apart = choice_columns(source.columns) if "choices" not in settings.columns else []
        roles = {role: names for role, names in usual_columns(self.fields).items() if role != "choices" or not apart}
        left = [name for name in source.columns if name not in apart]
        plain = set(map(normalize_name, left)) & set(roles["text"]) or "text" in settings.columns
        if not plain:  # a file whose only text is called a context
            roles = roles | {"text": roles["context"], "context": ()}
        needed = ("text", *(() if apart else ("choices",)), *(("label",) if labelled else ()))
        columns = map_columns(left, roles, settings.columns, needed, source.path)
        records, labels = [], []
        for at, row in table_rows(source, "csv, tsv, jsonl or parquet with text, choices and label"):
            record: Record = {"location": at, "text": parse_text(row.get(columns["text"]), at, "text", findings)}
            if columns.get("context") and row.get(columns["context"]) not in (None, ""):
                record["context"] = parse_text(row[columns["context"]], at, "context", findings)
            names: list[str] = []
            if apart:
                cells = [row.get(name) for name in apart]
                while cells and cells[-1] in (None, ""):  # records differ in how many they have
                    cells.pop()
            else:
                cells, names = parse_choices(row.get(columns["choices"])) or ([], [])
            record["choices"] = check_choices(cells, at, findings)
            records.append(record)
            labels.append((row.get(columns["label"]) if "label" in columns else None, names))
        if labelled:
            add_label_indices(records, labels, findings)
        return records
