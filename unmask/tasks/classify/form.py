"""Texts, or pairs of them, with a label, several labels, or a number (see cells.py for how a label's cell is read)."""

from collections.abc import Sequence

from unmask.labels.data_format import DataFormat
from unmask.labels.fields import Field, assign_columns, required_fields
from unmask.labels.formats.choices import has_choices
from unmask.labels.formats.entity_tables import has_entities
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe
from unmask.tasks.classify import cells


class ClassifyForm(DataFormat):
    fields = (
        Field("text", ("text", "sentence", "sentence1", "text1", "premise", "question1", "review", "content", "body",
                       "message", "comment", "title", "query", "document", "article")),
        Field("pair", ("pair", "sentence2", "text2", "hypothesis", "question2", "second"), required=False,
              caption="SECOND TEXT"),
        Field("label", ("label", "labels", "class", "category", "gold_label", "target", "sentiment", "intent", "topic",
                        "score"), "label", "target"),
    )  # fmt: skip

    def matches(self, source: Source) -> bool:
        return super().matches(source) and not has_entities(source) and not has_choices(source)

    def resolve_auto(self, sources: Sequence[Source], settings: TaskRecipe) -> TaskRecipe:
        given, values = settings.classify, []
        for source in sources:
            column = assign_columns(self.fields, source, settings).get("label")
            values += [row.get(column) for _, row in source.rows] if column else []
        target, separator = cells.resolve_auto(values, given.problem_type, given.label_separator)
        found = given.model_copy(update={"problem_type": target, "label_separator": separator})
        labels = (
            [cells.strip_decimals(label) for label in settings.labels] if target == "single_label" else settings.labels
        )
        return settings.model_copy(update={"classify": found, "labels": labels})

    def read(
        self, source: Source, settings: TaskRecipe, findings: list[Finding], labelled: bool = True
    ) -> list[Record]:
        columns = assign_columns(self.fields, source, settings, required_fields(self.fields, labelled))
        target, separator = settings.classify.problem_type, settings.classify.label_separator
        if labelled and "auto" in (target, separator):
            return self.read(source, self.resolve_auto([source], settings), findings, labelled)
        records: list[Record] = []
        for at, row in table_rows(source, "csv, tsv, jsonl or parquet with the columns text and label"):
            record: Record = {"location": at, "text": parse_text(row.get(columns["text"]), at, "text", findings)}
            if "pair" in columns:
                record["pair"] = parse_text(row.get(columns["pair"]), at, "pair", findings)
            if labelled:
                record["label"] = cells.parse_cell(row.get(columns["label"]), target, separator, at, findings)
            records.append(record)
        if labelled and target == "single_label":
            written = [(source.location(line), row.get(columns["label"])) for line, row in source.rows]
            findings += cells.unsplit_label_findings(written) + cells.numeric_label_findings(written)
        return records
