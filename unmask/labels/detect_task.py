"""Detect the task of labeled files: the one in the recipe, or else the only one whose format matches."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command, quote
from unmask.labels.fields import (
    RecordSpec,
    assign_columns,
    file_fields,
    required_fields,
    required_targets,
    usual_columns,
)
from unmask.labels.propose import flags, looks, written
from unmask.labels.records import Source
from unmask.recipe import TaskRecipe
from unmask.registry import TASKS
from unmask.text.columns import MissingColumn, column_error, find_column, list_columns, normalize_name

LOOKED_AT = 200  # rows used to recognize a table


def all_specs() -> dict[str, RecordSpec]:
    """Return the spec of every task that can be loaded."""
    return {name: kind.SPEC for name, kind in TASKS.working()}


def pick_task(settings: TaskRecipe, sources: Sequence[Source]) -> RecordSpec:
    """Return the spec of the task in the recipe, or else of the only task whose format matches the files."""
    if settings.name != "auto":
        return TASKS[settings.name].SPEC
    specs = all_specs()
    if unsure := next((source for source in sources if source.layout.ambiguous), None):
        raise UserError(
            f"{unsure.path}: cannot tell whether this is a table or plain text: {unsure.layout.reason}",
            expected=f"a table with a header line, such as text,label; or plain text, for {of_plain_text(specs)}",
            hint=f"{command('unmask doctor', Path(unsure.path))} {of_plain_text(specs)} (if it is plain text)",
        )
    by_role = {name: spec for name, spec in specs.items() if set(settings.columns) <= set(usual_columns(spec.fields))}
    fitting = [
        name
        for name, spec in (by_role or specs).items()
        if all(spec.data_format.matches(named(s, spec, settings)) for s in sources)
    ]
    if settings.columns and not fitting:  # columns given by the user plus usual names may be enough
        fitting = [
            n for n, spec in by_role.items() if required_targets(spec.fields) and fits_roles(spec, settings, sources)
        ]
    if len(fitting) == 1:
        return specs[fitting[0]]
    first = sources[0]
    may_be_files = {name for spec in specs.values() for name in file_fields(spec.fields)}
    for role, name in settings.columns.items() if first.file_format == "table" and not fitting else ():
        if role not in may_be_files and find_column(first.columns, name) is None:
            raise column_error(first.path, name, first.columns)
    raise several_fit(first, fitting) if fitting else none_fits(first, settings, specs)


def of_plain_text(specs: Mapping[str, RecordSpec]) -> str:
    """Return the flags of tasks whose only required field is a text."""
    return " or ".join(f"--task {name}" for name, spec in specs.items() if required_fields(spec.fields) == ("text",))


def several_fit(source: Source, fitting: Sequence[str]) -> UserError:
    what = f"{source.path}: {' and '.join(fitting)} both match its content (columns {list_columns(source.columns)})"
    return UserError(what, expected=", ".join(fitting), hint=" or ".join(f"--task {name}" for name in fitting))


def none_fits(source: Source, settings: TaskRecipe, specs: Mapping[str, RecordSpec]) -> UserError:
    """Return an error that explains why no task matches a file, with a command that reads it if its content suggests one."""
    what = f"{source.path}: no task matches its content"
    if source.file_format == "json":
        return nested_json(source, what)
    if source.file_format == "text":
        plain = of_plain_text(specs)
        valid = f"csv, tsv, jsonl, parquet or json with columns; CoNLL; plain text of whole sentences for {plain}"
        return UserError(f"{what} (lines of text, not a table)", expected=valid)
    why = f"; {source.layout.reason}: it has no header line" if source.layout.columns else ""
    seen = looks(source)
    said = "; ".join(str(look) for look in seen if look.kind != "other")
    doctor = command("unmask doctor", Path(source.path))
    commands = [f"{doctor} {flag}" for flag in flags(specs.values(), seen, settings.columns, source.columns)]
    hint = ", or ".join(commands) + " (finetune accepts the same --task and --column)" if commands else None
    return UserError(
        f"{what} (columns {list_columns(source.columns)}{why})",
        expected=said
        or "a text column and a label column, or the columns of another task (docs/classify.md lists their names)",
        hint=hint or f"pass --task TASK --column ROLE=NAME, where TASK is one of {', '.join(TASKS.names())}",
    )


def with_column_proposals(error: UserError, source: Source, spec: RecordSpec, settings: TaskRecipe) -> UserError:
    """Add columns that could be meant, by their content, to an error about columns."""
    if not isinstance(error, MissingColumn) or source.file_format != "table":
        return error
    seen = looks(source)
    fitting = flags([spec], seen, settings.columns, source.columns)
    texts = [look.column for look in seen if look.kind == "text"]
    if not fitting and error.role == "text" and len(texts) == 1:
        fitting = [written(spec.name, {**settings.columns, "text": texts[0]})]
    if not fitting:
        return error
    said = "; ".join(str(look) for look in seen if look.kind != "other")
    return UserError(error.message, expected=f"{error.expected}; {said}", hint=fitting[0].split(" ", 2)[2])


def nested_json(source: Source, what: str) -> UserError:
    """Return an error for nested records or a list per column, with a command that writes one record per line."""
    value = source.value
    inside = records_in(value)
    if inside is not None:
        path = "".join(f"[{json.dumps(key, ensure_ascii=False)}]" for key in inside)
        each, says = f"for r in json.load(sys.stdin){path}", f"its records are in {' → '.join(inside)}"
    elif isinstance(value, dict) and value and all(isinstance(v, dict | list) for v in value.values()):
        lists = "(c.values() if isinstance(c, dict) else c for c in d.values())"
        each = f"for d in [json.load(sys.stdin)] for v in zip(*{lists}) for r in [dict(zip(d, v))]"
        says = f"each of {list_columns(list(value))} is a column"
    else:
        valid = '[{"text": "…", "label": "…"}, …]'
        return UserError(f"{what} (a JSON {type(value).__name__} without records)", expected=valid)
    code = f"import json, sys; [print(json.dumps(r)) {each}]"
    files = [quote(name) for name in (Path(source.path), Path(source.path).with_suffix(".jsonl"))]
    hint = f"python -c {quote(code)} < {files[0]} > {files[1]}" if source.path.lower().endswith(".json") else None
    return UserError(f"{what} (nested JSON: {says})", expected="one record per line, or one list of records", hint=hint)


def records_in(value: Any, path: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the keys that lead to the first list of objects."""
    if path and isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return path
    inside = value.items() if isinstance(value, dict) and len(path) < 4 else ()
    return next((found for key, item in inside if (found := records_in(item, (*path, key)))), None)


def named(source: Source, spec: RecordSpec, settings: TaskRecipe) -> Source:
    """Return the first rows of a table, with the columns that the user named renamed to what the task expects."""
    if source.file_format != "table" or not settings.columns:
        return source
    given = {role: find_column(source.columns, name) or name for role, name in settings.columns.items()}
    usual = usual_columns(spec.fields)
    new = {column: next(iter(usual.get(role, ())), role) for role, column in given.items()}
    kept = [c for c in source.columns if c in new or normalize_name(c) not in new.values()]
    rows = [(line, {new.get(c, c): row[c] for c in kept if c in row}) for line, row in source.rows[:LOOKED_AT]]
    return replace(source, columns=[new.get(c, c) for c in kept], rows=rows)


def fits_roles(spec: RecordSpec, settings: TaskRecipe, sources: Sequence[Source]) -> bool:
    """Return whether all required fields have a column, named by the user or by its usual name."""
    needed = set(required_fields(spec.fields))
    try:
        return all(needed <= set(assign_columns(spec.fields, s, settings)) for s in sources)
    except UserError:  # no such column: raised when the file is read
        return False
