"""Texts with several choices, of which one is right (choices.py reads the many ways in which choices and labels are written)."""

from typing import Any

from unmask.errors import UserError
from unmask.labels.fields import Field
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

    @classmethod
    def recognises(cls, source: Source) -> bool:
        names = source.names
        text = names & {*cls.roles["text"], *cls.roles["context"]}
        return bool(text and names & set(cls.roles["label"])) and has_choices(source)

    @classmethod
    def read(cls, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True) -> list[Record]:
        apart = columns_of(source.columns) if "choices" not in settings.columns else []
        roles = {role: names for role, names in cls.roles.items() if role != "choices" or not apart}
        left = [name for name in source.columns if name not in apart]
        plain = set(map(plain_name, left)) & set(roles["text"]) or "text" in settings.columns
        if not plain:  # a file whose only text is called a context
            roles = roles | {"text": roles["context"], "context": ()}
        needed = ("text", *(() if apart else ("choices",)), *(cls.target if labelled else ()))
        columns = assign(left, roles, settings.columns, needed, source.path)
        records, labels = [], []
        for at, row in table_rows(source, "csv, tsv, jsonl or parquet with text, choices and label"):
            record: Record = {"at": at, "text": text_of(row.get(columns["text"]), at, "text", findings)}
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

    @classmethod
    def ask(cls, *parts: Any) -> Record:
        text, choices = parts[0] if parts else "", list(parts[1:])
        if len(choices) in (1, 2) and isinstance(choices[0], list | tuple):
            record: Record = {"text": text, "choices": [str(c) for c in choices[0]]}
            record |= {"context": choices[1]} if len(choices) == 2 and choices[1] else {}
        else:
            record = {"text": text, "choices": [str(c) for c in choices]}
        if len(record["choices"]) < 2:
            raise UserError(
                f"{len(record['choices'])} choices", valid='a text and two choices or more: "2 + 2 =" "4" "5"'
            )
        return record

    @classmethod
    def together(cls, record: Record) -> list[tuple[str, ...]]:
        text, context = record["text"], record.get("context")
        return [(text, c) if context is None else (context, f"{text} {c}") for c in record["choices"]]

    @classmethod
    def inseparable(cls, record: Record) -> tuple[str, ...]:
        """Questions of one context stay together, as RACE's of one article."""
        return (record["context"],) if "context" in record else cls.asked(record)
