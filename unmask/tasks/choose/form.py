"""Texts with several choices, of which one is right (choices.py reads the many ways in which choices and labels are written)."""

from unmask.labels.fields import Field, usual_columns
from unmask.labels.form import Form
from unmask.labels.formats.choices import NAMES, checked, columns_of, has_choices, label_all, listed
from unmask.labels.records import Finding, Record, Source, table_rows, text_of
from unmask.recipe import TaskRecipe
from unmask.text.columns import assign, plain_name


class ChooseForm(Form):
    fields = (
        Field("text", ("question", "text", "prompt", "sent2", "query", "goal", "sentence", "startphrase", "premise", "stem")),
        Field("context", ("context", "passage", "article", "sent1", "paragraph"), required=False),
        Field("choices", (*NAMES, "answers"), "texts", min_count=2, caption="CHOICE"),
        Field("label", ("label", "answer", "answerkey", "answer_key", "gold", "correct", "target", "answer_index",
                        "gold_label"), "index", "target"),
    )  # fmt: skip

    def recognises(self, source: Source) -> bool:
        names = source.names
        usual = usual_columns(self.fields)
        text = names & {*usual["text"], *usual["context"]}
        return bool(text and names & set(usual["label"])) and has_choices(source)

    def read(
        self, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True
    ) -> list[Record]:
        apart = columns_of(source.columns) if "choices" not in settings.columns else []
        roles = {role: names for role, names in usual_columns(self.fields).items() if role != "choices" or not apart}
        left = [name for name in source.columns if name not in apart]
        plain = set(map(plain_name, left)) & set(roles["text"]) or "text" in settings.columns
        if not plain:  # a file whose only text is called a context
            roles = roles | {"text": roles["context"], "context": ()}
        needed = ("text", *(() if apart else ("choices",)), *(("label",) if labelled else ()))
        columns = assign(left, roles, settings.columns, needed, source.path)
        records, labels = [], []
        for at, row in table_rows(source, "csv, tsv, jsonl or parquet with text, choices and label"):
            record: Record = {"location": at, "text": text_of(row.get(columns["text"]), at, "text", findings)}
            if columns.get("context") and row.get(columns["context"]) not in (None, ""):
                record["context"] = text_of(row[columns["context"]], at, "context", findings)
            names: list[str] = []
            if apart:
                cells = [row.get(name) for name in apart]
                while cells and cells[-1] in (None, ""):  # records differ in how many they have
                    cells.pop()
            else:
                cells, names = listed(row.get(columns["choices"])) or ([], [])
            record["choices"] = checked(cells, at, findings)
            records.append(record)
            labels.append((row.get(columns["label"]) if "label" in columns else None, names))
        if labelled:
            label_all(records, labels, findings)
        return records
