"""Read tables of texts or text pairs with a label, several labels, or a number. `cells.py` parses the label cells."""

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
        classify, values = settings.classify, []
        for source in sources:
            column = assign_columns(self.fields, source, settings).get("label")
            values += [row.get(column) for _, row in source.rows] if column else []
        problem_type, separator = cells.resolve_auto(values, classify.problem_type, classify.label_separator)
        resolved = classify.model_copy(update={"problem_type": problem_type, "label_separator": separator})
        labels = settings.labels
        if problem_type == "single_label":
            labels = [cells.strip_decimals(label) for label in labels]
        return settings.model_copy(update={"classify": resolved, "labels": labels})

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        columns = assign_columns(self.fields, source, settings, required_fields(self.fields, labeled))
        problem_type, separator = settings.classify.problem_type, settings.classify.label_separator
        if labeled and "auto" in (problem_type, separator):
            return self.read(source, self.resolve_auto([source], settings), findings, labeled)
        records: list[Record] = []
        for location, row in table_rows(source, "csv, tsv, jsonl or parquet with the columns text and label"):
            record: Record = {"location": location}
            record["text"] = parse_text(row.get(columns["text"]), location, "text", findings)
            if "pair" in columns:
                record["pair"] = parse_text(row.get(columns["pair"]), location, "pair", findings)
            if labeled:
                record["label"] = cells.parse_cell(
                    row.get(columns["label"]), problem_type, separator, location, findings
                )
            records.append(record)
        if labeled and problem_type == "single_label":
            label_cells = [(source.location(line), row.get(columns["label"])) for line, row in source.rows]
            findings += cells.unsplit_label_findings(label_cells) + cells.numeric_label_findings(label_cells)
        return records
