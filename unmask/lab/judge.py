"""A fine-tuned model on a user's file: its scores where labels are, its answers where they are not."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unmask.data.records import Finding, Record, is_table, open_source
from unmask.errors import UserError
from unmask.lab.finetune import refuse
from unmask.serve.predictor import Predictor
from unmask.train.log import Console


def read(predictor: Predictor, paths: Sequence[str], columns: dict[str, str], labelled: bool) -> list[Record]:
    task = predictor._task()
    settings = task.settings.model_copy(update={"columns": task.settings.columns | columns})
    findings: list[Finding] = []
    records: list[Record] = []
    for path in paths:
        source = open_source(path, findings)
        if source.form == "text" and not labelled and len(task.needed) == 1 and Path(path).suffix.lower() == ".txt":
            records += [task.ask(text) | {"at": source.at(line)} for line, text in source.lines if text.strip()]
            continue
        names = {source.at(line): row["id"] for line, row in source.rows if row.get("id") not in (None, "")}
        for record in task.read(source, settings, findings, labelled):
            records.append({"id": names[record["at"]]} | record if record["at"] in names else record)
    refuse(findings)
    return records


def evaluate(predictor: Predictor, paths: Sequence[str], columns: dict[str, str], console: Console) -> dict[str, Any]:
    task = predictor._task()
    records = read(predictor, paths, columns, labelled=True)
    task.judge_by(records)
    with console.bar("evaluate") as update:
        answers = predictor.predict(records, update)
    return {
        "task": task.name,
        "metric": task.metric,
        "records": len(records),
        **task.score(answers, records),
        "details": task.details(answers, records),
    }


def predict(predictor: Predictor, given: Any, columns: dict[str, str], console: Console) -> list[dict[str, Any]]:
    """`given`: a file, a text, a record, or a list of texts or records."""
    task = predictor._task()
    items = [given] if isinstance(given, str | Path | dict) else list(given)
    if len(items) == 1 and not isinstance(items[0], dict) and _is_file(items[0]):
        records = read(predictor, [str(items[0])], columns, labelled=False)
    else:
        if len(items) == 1 and isinstance(items[0], str | Path) and _looks_like_file(str(items[0])):
            raise UserError(f"{items[0]}: no such file", valid="a text, or the name of a file that is there")
        records = [item if isinstance(item, dict) else task.ask(*_parts(item)) for item in items]
    for n, record in enumerate(records, 1):
        lacking = next((role for role in task.needed if role not in record), None)
        if lacking is not None:
            raise UserError(
                f"record {n} has no {lacking!r}: {record!r:.80}", valid=f"the keys {', '.join(task.needed)}"
            )
    shown = {"at", "id", *task.needed, *task.roles} - set(task.target)
    with console.bar("predict") as update:
        answers = predictor.predict(records, update)
    return [
        {key: value for key, value in record.items() if key in shown} | answer
        for record, answer in zip(records, answers)
    ]


def _parts(item: Any) -> Sequence[Any]:
    return item if isinstance(item, tuple | list) else (item,)


def _looks_like_file(text: str) -> bool:
    return len(text) < 500 and is_table(text) and not any(map(str.isspace, text))


def _is_file(item: Any) -> bool:
    try:
        return Path(str(item)).is_file()
    except (OSError, ValueError):  # a text that is too long, or has a NUL, is no file name
        return False
