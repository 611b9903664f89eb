"""Read questions, passages and answers from SQuAD's JSON or from a table. `squad.py` builds the records."""

from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field, assign_columns, required_fields
from unmask.labels.formats.choices import has_choices
from unmask.labels.records import Finding, Record, Source, table_rows
from unmask.recipe import TaskRecipe
from unmask.tasks.answer import squad


class AnswerForm(DataFormat):
    fields = (
        Field("id", ("id", "qid", "question_id"), "id", "other"),
        Field("question", ("question", "query", "q")),
        Field("context", ("context", "passage", "paragraph", "document", "article", "text"), caption="PASSAGE"),
        Field("answers", ("answers", "answer", "answer_text", "answer_texts"), "answers", "target"),
        Field("start", ("answer_start", "start", "answer_starts"), "index", "target", required=False),
        Field("impossible", ("is_impossible", "impossible"), "label", "target", required=False),
    )

    def matches(self, source: Source) -> bool:
        if source.file_format == "json":
            return squad.is_squad(source.value)
        return super().matches(source) and not has_choices(source)

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        if source.file_format == "json" and squad.is_squad(source.value):
            return squad.build_records(squad.iter_questions(source, findings), squad.COLUMNS, labeled, findings)
        columns = assign_columns(self.fields, source, settings, required_fields(self.fields, labeled))
        rows = table_rows(
            source, "SQuAD's json, or csv, jsonl or parquet with the columns question, context and answers"
        )
        return squad.build_records(rows, columns, labeled, findings)
