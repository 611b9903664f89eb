"""Detect the task of labeled files: the one in the recipe, or else the only one whose format matches."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command, nearest, quote
from unmask.labels.fields import (
    RecordSpec,
    assign_columns,
    file_fields,
    required_fields,
    required_targets,
    usual_columns,
)
from unmask.labels.propose import format_flags, guess_columns, propose_flags
from unmask.labels.records import Source
from unmask.recipe import TaskRecipe
from unmask.registry import TASKS
from unmask.text.columns import MissingColumn, column_error, find_column, list_columns, normalize_name

SAMPLE_ROWS = 200  # used to recognize the format of a table


def all_specs() -> dict[str, RecordSpec]:
    """Return the spec of every task that can be loaded."""
    return {name: kind.SPEC for name, kind in TASKS.working()}


def pick_task(settings: TaskRecipe, sources: Sequence[Source]) -> RecordSpec:
    """Return the spec of the task in the recipe, or else of the only task whose format matches the files."""
    if settings.name != "auto":
        return TASKS[settings.name].SPEC
    specs = all_specs()
    if source := next((source for source in sources if source.layout.ambiguous), None):
        raise UserError(
            f"{source.path}: cannot tell whether this is a table or plain text: {source.layout.reason}",
            expected=f"a table with a header line, such as text,label; or plain text, for {plain_text_flags(specs)}",
            hint=f"{command('unmask doctor', Path(source.path))} {plain_text_flags(specs)} (if it is plain text)",
        )
    by_role = {name: spec for name, spec in specs.items() if set(settings.columns) <= set(usual_columns(spec.fields))}
    fitting = [
        name
        for name, spec in (by_role or specs).items()
        if all(spec.data_format.matches(rename_columns(s, spec, settings)) for s in sources)
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
    raise ambiguous_task_error(first, fitting) if fitting else no_task_error(first, settings, specs)


def plain_text_flags(specs: Mapping[str, RecordSpec]) -> str:
    """Return the flags of tasks whose only required field is a text."""
    return " or ".join(f"--task {name}" for name, spec in specs.items() if required_fields(spec.fields) == ("text",))


def ambiguous_task_error(source: Source, fitting: Sequence[str]) -> UserError:
    message = f"{source.path}: {' and '.join(fitting)} both match its content (columns {list_columns(source.columns)})"
    return UserError(message, expected=", ".join(fitting), hint=" or ".join(f"--task {name}" for name in fitting))


def no_task_error(source: Source, settings: TaskRecipe, specs: Mapping[str, RecordSpec]) -> UserError:
    """Return an error that explains why no task matches a file, with a command that reads it if its content suggests one."""
    message = f"{source.path}: no task matches its content"
    if source.file_format == "json":
        return nested_json_error(source, message)
    if source.file_format == "text":
        plain = plain_text_flags(specs)
        valid = f"csv, tsv, jsonl, parquet or json with columns; CoNLL; plain text of whole sentences for {plain}"
        return UserError(f"{message} (lines of text, not a table)", expected=valid)
    roles = list(dict.fromkeys(name for spec in specs.values() for name in usual_columns(spec.fields)))
    unknown = next((role for role in settings.columns if role not in roles), None)
    if unknown is not None:
        message = f"--column {unknown}={settings.columns[unknown]}: unknown role {unknown!r}{nearest(unknown, roles)}"
        return UserError(message, expected=f"ROLE=NAME, where ROLE is one of {', '.join(roles)}")
    reason = f"; {source.layout.reason}: it has no header line" if source.layout.columns else ""
    guesses = guess_columns(source)
    described = "; ".join(str(guess) for guess in guesses if guess.kind != "other")
    doctor = command("unmask doctor", Path(source.path))
    commands = [f"{doctor} {flag}" for flag in propose_flags(specs.values(), guesses, settings.columns, source.columns)]
    hint = ", or ".join(commands) + " (finetune accepts the same --task and --column)" if commands else None
    return UserError(
        f"{message} (columns {list_columns(source.columns)}{reason})" + (f"; {described}" if described else ""),
        expected="a text column and a label column, or the columns of another task (docs/classify.md lists their names)",
        hint=hint or f"pass --task TASK --column ROLE=NAME, where TASK is one of {', '.join(TASKS.names())}",
    )


def with_column_proposals(error: UserError, source: Source, spec: RecordSpec, settings: TaskRecipe) -> UserError:
    """Add columns that could be meant, by their content, to an error about columns."""
    if not isinstance(error, MissingColumn) or source.file_format != "table":
        return error
    guesses = guess_columns(source)
    proposals = propose_flags([spec], guesses, settings.columns, source.columns)
    texts = [guess.column for guess in guesses if guess.kind == "text"]
    if not proposals and error.role == "text" and len(texts) == 1:
        proposals = [format_flags(spec.name, {**settings.columns, "text": texts[0]})]
    if not proposals:
        return error
    described = "; ".join(str(guess) for guess in guesses if guess.kind != "other")
    return UserError(f"{error.message}; {described}", expected=error.expected, hint=proposals[0].split(" ", 2)[2])


def nested_json_error(source: Source, message: str) -> UserError:
    """Return an error for nested records or a list per column, with a command that writes one record per line."""
    value = source.value
    path_keys = path_to_records(value)
    if path_keys is not None:
        path = "".join(f"[{json.dumps(key, ensure_ascii=False)}]" for key in path_keys)
        loop, reason = f"for r in json.load(sys.stdin){path}", f"its records are in {' → '.join(path_keys)}"
    elif isinstance(value, dict) and value and all(isinstance(v, dict | list) for v in value.values()):
        lists = "(c.values() if isinstance(c, dict) else c for c in d.values())"
        loop = f"for d in [json.load(sys.stdin)] for v in zip(*{lists}) for r in [dict(zip(d, v))]"
        reason = f"each of {list_columns(list(value))} is a column"
    else:
        valid = '[{"text": "…", "label": "…"}, …]'
        return UserError(f"{message} (a JSON {type(value).__name__} without records)", expected=valid)
    code = f"import json, sys; [print(json.dumps(r)) {loop}]"
    files = [quote(name) for name in (Path(source.path), Path(source.path).with_suffix(".jsonl"))]
    hint = f"python -c {quote(code)} < {files[0]} > {files[1]}" if source.path.lower().endswith(".json") else None
    return UserError(
        f"{message} (nested JSON: {reason})", expected="one record per line, or one list of records", hint=hint
    )


def path_to_records(value: Any, path: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """Return the keys that lead to the first list of objects."""
    if path and isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return path
    items = value.items() if isinstance(value, dict) and len(path) < 4 else ()
    return next((keys for key, item in items if (keys := path_to_records(item, (*path, key)))), None)


def rename_columns(source: Source, spec: RecordSpec, settings: TaskRecipe) -> Source:
    """Return the first rows of a table, with the columns that the user named renamed to names that the task expects."""
    if source.file_format != "table" or not settings.columns:
        return source
    chosen_columns = {role: find_column(source.columns, name) or name for role, name in settings.columns.items()}
    usual = usual_columns(spec.fields)
    new = {column: next(iter(usual.get(role, ())), role) for role, column in chosen_columns.items()}
    kept = [c for c in source.columns if c in new or normalize_name(c) not in new.values()]
    rows = [(line, {new.get(c, c): row[c] for c in kept if c in row}) for line, row in source.rows[:SAMPLE_ROWS]]
    return replace(source, columns=[new.get(c, c) for c in kept], rows=rows)


def fits_roles(spec: RecordSpec, settings: TaskRecipe, sources: Sequence[Source]) -> bool:
    """Return whether all required fields have a column, named by the user or by its usual name."""
    needed = set(required_fields(spec.fields))
    try:
        return all(needed <= set(assign_columns(spec.fields, s, settings)) for s in sources)
    except UserError:  # no such column: raised when the file is read
        return False
