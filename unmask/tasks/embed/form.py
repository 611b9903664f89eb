"""Data format of `embed`: plain text, or tables of texts that belong together."""

from typing import Any

import numpy as np

from unmask.labels.data_format import DataFormat, parse_number
from unmask.labels.fields import Field, assign_columns, usual_columns
from unmask.labels.formats import roles
from unmask.labels.formats.conll import is_conll
from unmask.labels.formats.trec import is_qrels
from unmask.labels.records import Finding, Record, Source, parse_text, table_rows
from unmask.recipe import TaskRecipe


class EmbedForm(DataFormat):
    fields = (
        Field("text", ("anchor", "text", "query", "sentence1", "sentence", "question", "premise", "text1", "sentence_a")),
        Field("positive", ("positive", "positives", "pos", "sentence2", "text2", "answer", "sentence_b", "paraphrase"),
              required=False, caption="SECOND TEXT"),
        Field("negatives", ("negatives", "negative", "neg", "hard_negatives", "hard_negative"), "texts", "other"),
        Field("score", ("score", "similarity"), "number", "target", required=False),
    )  # fmt: skip

    def matches(self, source: Source) -> bool:
        if source.file_format == "text":
            words = [len(line.split()) for _, line in source.lines[:200] if line.strip()]
            return (
                not is_qrels(source)
                and not is_conll(source)
                and not roles.detect_format(source)
                and bool(words)
                and float(np.mean(words)) >= 4
                and len(set(words)) > 1
            )
        names, usual = source.names, usual_columns(self.fields)
        if source.file_format != "table" or {"passage", "passages", "positives"} & names:
            return False
        second = names & {"positive", "pos"} or (names & set(usual["score"]) and names & set(usual["positive"]))
        alone = len(names - {"id", "_id"}) == 1
        return bool(names & set(usual["text"]) and (second or alone))

    def read(self, source: Source, settings: TaskRecipe, findings: list[Finding], labeled: bool = True) -> list[Record]:
        if source.file_format == "text":
            return [{"location": source.location(n), "text": line.strip()} for n, line in source.lines if line.strip()]
        columns = assign_columns(self.fields, source, settings, ("text",))
        if not labeled:
            columns = {role: name for role, name in columns.items() if role in ("text", "positive")}
        if "score" in columns:  # the similarity of two texts
            columns = assign_columns(self.fields, source, settings, ("text", "positive"))
        records: list[Record] = []
        for location, row in table_rows(source, "csv, tsv, jsonl or parquet with anchor and positive, or plain text"):
            text = parse_text(row.get(columns["text"]), location, "text", findings)
            record: Record = {"location": location, "text": text}
            if "score" in columns:
                cell = row.get(columns["score"])
                record["score"] = parse_number(cell, location, "score", findings, "write the similarity, e.g. 0 to 5")
            if "negatives" in columns and row.get(columns["negatives"]):
                record["negatives"] = _texts(row[columns["negatives"]], location, "negative", findings)
            if "positive" in columns:
                positives = _texts(row.get(columns["positive"]), location, "positive", findings)
                records += [record | {"positive": positive} for positive in positives]
            else:
                records.append(record)
        return records


def _texts(cell: Any, location: str, role: str, findings: list[Finding]) -> list[str]:
    values = cell if isinstance(cell, list) and cell else [cell]
    return [parse_text(value, location, role, findings) for value in values]
