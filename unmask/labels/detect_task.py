"""Which task labelled files are for: the one that the recipe names, else the only one that recognises them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command, quote
from unmask.labels.propose import flags, looks, written
from unmask.labels.records import Source
from unmask.recipe import TaskRecipe
from unmask.registry import TASKS
from unmask.tasks.rank.form import FILES
from unmask.tasks.task import Task
from unmask.text.columns import Unassigned, assign, find_column, no_column, plain_name, shown

LOOKED_AT = 200  # rows by which a table is recognised


def pick_task(settings: TaskRecipe, sources: Sequence[Source]) -> type[Task]:
    """The task that the recipe names, else the only one that recognises the files."""
    if settings.kind != "auto":
        return TASKS[settings.kind]
    if unsure := next((source for source in sources if source.layout.doubt), None):
        raise UserError(
            f"{unsure.path}: a table or plain text? {unsure.layout.why}",
            valid="a table with a line of column names, such as text and label; or plain text, for --task embed",
            fix=f"{command('unmask doctor', Path(unsure.path))} --task embed (if it is plain text)",
        )
    kinds = dict(sorted(TASKS.working()))
    by_role = {name: kind for name, kind in kinds.items() if set(settings.columns) <= set(kind.roles)}
    fitting = [
        name
        for name, kind in (by_role or kinds).items()
        if all(kind.recognises(named(s, kind, settings)) for s in sources)
    ]
    if settings.columns and not fitting:  # roles that the user gave, and usual names, may say enough
        fitting = [name for name, kind in by_role.items() if kind.target and fits_roles(kind, settings, sources)]
    if len(fitting) == 1:
        return TASKS[fitting[0]]
    first = sources[0]
    for role, name in settings.columns.items() if first.form == "table" and not fitting else ():
        if role not in FILES and find_column(first.columns, name) is None:
            raise no_column(first.path, name, first.columns)
    raise several_fit(first, fitting) if fitting else none_fits(first, settings)


def several_fit(source: Source, fitting: Sequence[str]) -> UserError:
    what = f"{source.path}: {' and '.join(fitting)} both fit what is in it (the columns {shown(source.columns)})"
    return UserError(what, valid=", ".join(fitting), fix=" or ".join(f"--task {name}" for name in fitting))


def none_fits(source: Source, settings: TaskRecipe) -> UserError:
    """Why no task fits a file, and, where its content says it, the command that reads it."""
    what = f"{source.path}: no task fits what is in it"
    if source.form == "json":
        return nested_json(source, what)
    if source.form == "text":
        valid = "csv, tsv, jsonl, parquet or json with columns; CoNLL; plain text of whole sentences for --task embed"
        return UserError(f"{what} (lines of text, no table)", valid=valid)
    why = f"; {source.layout.why}: its first line names no columns" if source.layout.columns else ""
    seen = looks(source)
    said = "; ".join(str(look) for look in seen if look.kind != "other")
    doctor = command("unmask doctor", Path(source.path))
    commands = [f"{doctor} {flag}" for flag in flags(seen, settings.columns, source.columns)]
    fix = ", or ".join(commands) + " (finetune takes the same --task and --column)" if commands else None
    return UserError(
        f"{what} (the columns {shown(source.columns)}{why})",
        valid=said or "a column of texts and one of labels, or what another task reads: docs/classify.md lists names",
        fix=fix or f"--task TASK --column ROLE=NAME, where TASK is one of {', '.join(TASKS.names())}",
    )


def explained(error: UserError, source: Source, kind: type[Task], settings: TaskRecipe) -> UserError:
    """An error of a file's columns, with the columns that could be meant by what they hold."""
    if not isinstance(error, Unassigned) or source.form != "table":
        return error
    seen = looks(source)
    fitting = [flag for flag in flags(seen, settings.columns, source.columns) if flag.split()[1] == kind.name]
    texts = [look.column for look in seen if look.kind == "text"]
    if not fitting and error.role == "text" and len(texts) == 1:
        fitting = [written(kind.name, {**settings.columns, "text": texts[0]})]
    if not fitting:
        return error
    said = "; ".join(str(look) for look in seen if look.kind != "other")
    return UserError(error.got, valid=f"{error.valid}; {said}", fix=fitting[0].split(" ", 2)[2])


def nested_json(source: Source, what: str) -> UserError:
    """A JSON value whose records lie deeper, or that has a list for each column: a command writes one record per line."""
    value = source.value
    inside = records_in(value)
    if inside is not None:
        path = "".join(f"[{json.dumps(key, ensure_ascii=False)}]" for key in inside)
        each, says = f"for r in json.load(sys.stdin){path}", f"the records are in {' → '.join(inside)}"
    elif isinstance(value, dict) and value and all(isinstance(v, dict | list) for v in value.values()):
        lists = "(c.values() if isinstance(c, dict) else c for c in d.values())"
        each = f"for d in [json.load(sys.stdin)] for v in zip(*{lists}) for r in [dict(zip(d, v))]"
        says = f"each of {shown(list(value))} holds a column"
    else:
        valid = '[{"text": "…", "label": "…"}, …]'
        return UserError(f"{what} (a JSON {type(value).__name__} without records)", valid=valid)
    code = f"import json, sys; [print(json.dumps(r)) {each}]"
    files = [quote(name) for name in (Path(source.path), Path(source.path).with_suffix(".jsonl"))]
    fix = f"python -c {quote(code)} < {files[0]} > {files[1]}" if source.path.lower().endswith(".json") else None
    return UserError(f"{what} (nested JSON: {says})", valid="a record on each line, or one list of records", fix=fix)


def records_in(value: Any, path: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    """The keys that lead to the first list of objects."""
    if path and isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return path
    inside = value.items() if isinstance(value, dict) and len(path) < 4 else ()
    return next((found for key, item in inside if (found := records_in(item, (*path, key)))), None)


def named(source: Source, kind: type[Task], settings: TaskRecipe) -> Source:
    """The beginning of a table with the columns that the user named under the names that the task knows."""
    if source.form != "table" or not settings.columns:
        return source
    given = {role: find_column(source.columns, name) or name for role, name in settings.columns.items()}
    new = {column: next(iter(kind.roles.get(role, ())), role) for role, column in given.items()}
    kept = [c for c in source.columns if c in new or plain_name(c) not in new.values()]
    rows = [(line, {new.get(c, c): row[c] for c in kept if c in row}) for line, row in source.rows[:LOOKED_AT]]
    return replace(source, columns=[new.get(c, c) for c in kept], rows=rows)


def fits_roles(kind: type[Task], settings: TaskRecipe, sources: Sequence[Source]) -> bool:
    """Whether there are columns for all that the task needs, by the user's word or by their usual names."""
    needed = {*kind.needed, *kind.target}
    try:
        return all(needed <= set(assign(s.columns, kind.roles, settings.columns, (), s.path)) for s in sources)
    except UserError:  # no such column: said when the file is read
        return False
