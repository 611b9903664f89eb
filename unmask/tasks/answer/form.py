"""Questions, the passages that answer them, and the answers with their places: SQuAD's json (squad.py), or a table."""

from typing import Any

from unmask.errors import UserError
from unmask.labels.fields import Field
from unmask.labels.form import Form
from unmask.labels.formats.choices import has_choices
from unmask.labels.records import Finding, Record, Source, table_rows
from unmask.recipe import TaskRecipe
from unmask.tasks.answer import squad
from unmask.text.columns import assign


class AnswerForm(Form):
    fields = (
        Field("id", ("id", "qid", "question_id"), "id", "other"),
        Field("question", ("question", "query", "q")),
        Field("context", ("context", "passage", "paragraph", "document", "article", "text"), caption="PASSAGE"),
        Field("answers", ("answers", "answer", "answer_text", "answer_texts"), "answers", "target"),
        Field("start", ("answer_start", "start", "answer_starts"), "index", "target", required=False),
        Field("impossible", ("is_impossible", "impossible"), "label", "target", required=False),
    )

    @classmethod
    def recognises(cls, source: Source) -> bool:
        names = source.names
        if source.form == "table":
            there = all(names & set(cls.roles[role]) for role in ("question", "context", "answers"))
            return there and not has_choices(source)
        return source.form == "json" and squad.is_squad(source.value)

    @classmethod
    def read(cls, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True) -> list[Record]:
        if source.form == "json" and squad.is_squad(source.value):
            return squad.records(squad.questions(source, findings), squad.COLUMNS, labelled, findings)
        needed = cls.needed + (cls.target if labelled else ())
        columns = assign(source.columns, cls.roles, settings.columns, needed, source.path)
        rows = table_rows(source, "SQuAD's json, or csv, jsonl, parquet with question, context and answers")
        return squad.records(rows, columns, labelled, findings)

    @classmethod
    def ask(cls, *parts: Any) -> Record:
        record = dict(zip(cls.needed, parts))
        if empty := next((role for role, text in record.items() if not text.strip()), None):
            raise UserError(f"the {empty} is empty", valid='a question and a context: "who?" "It was Ann."')
        return record

    @classmethod
    def asked(cls, record: Record) -> tuple[str, ...]:
        return record["question"], record["context"]

    @classmethod
    def inseparable(cls, record: Record) -> tuple[str, ...]:
        return (record["context"],)

    @classmethod
    def answered(cls, record: Record) -> str | None:
        if "answers" not in record:
            return None
        return " / ".join(sorted({answer["text"] for answer in record["answers"]})) or "no answer"
