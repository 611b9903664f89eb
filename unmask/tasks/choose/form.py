"""Data format of `choose`: texts with several choices, one of them correct (`labels/formats/choices.py` parses choices and labels)."""

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
        has_text = names & {*usual["text"], *usual["context"]}
        return bool(has_text and names & set(usual["label"])) and has_choices(source)

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        per_choice = choice_columns(source.columns) if "choices" not in settings.columns else []  # a column per choice
        roles = {
            role: names for role, names in usual_columns(self.fields).items() if role != "choices" or not per_choice
        }
        others = [name for name in source.columns if name not in per_choice]
        has_text = set(map(normalize_name, others)) & set(roles["text"]) or "text" in settings.columns
        if not has_text:  # the only text column is called "context"
            roles = roles | {"text": roles["context"], "context": ()}
        required = ("text", *(() if per_choice else ("choices",)), *(("label",) if labeled else ()))
        columns = map_columns(others, roles, settings.columns, required, source.path)
        records, labels = [], []
        for location, row in table_rows(source, "csv, tsv, jsonl or parquet with text, choices and label"):
            text = parse_text(row.get(columns["text"]), location, "text", findings)
            record: Record = {"location": location, "text": text}
            if columns.get("context") and row.get(columns["context"]) not in (None, ""):
                record["context"] = parse_text(row[columns["context"]], location, "context", findings)
            names: list[str] = []
            if per_choice:
                cells = [row.get(name) for name in per_choice]
                while cells and cells[-1] in (None, ""):  # the number of choices may differ between records
                    cells.pop()
            else:
                cells, names = parse_choices(row.get(columns["choices"])) or ([], [])
            record["choices"] = check_choices(cells, location, findings)
            records.append(record)
            labels.append((row.get(columns["label"]) if "label" in columns else None, names))
        if labeled:
            add_label_indices(records, labels, findings)
        return records
