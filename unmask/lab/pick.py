"""Which task labelled files are for: the one that the recipe names, else the only one that recognises them."""

from collections.abc import Sequence
from dataclasses import replace

from unmask.data.forms.rank import FILES
from unmask.data.records import Source, assign
from unmask.errors import UserError, nearest
from unmask.recipe import TaskRecipe
from unmask.registry import TASKS
from unmask.tasks.task import Task

LOOKED_AT = 200  # rows by which a table is recognised


def pick_task(settings: TaskRecipe, sources: Sequence[Source]) -> type[Task]:
    """The task that the recipe names, else the only one that recognises the files."""
    if settings.kind != "auto":
        return TASKS[settings.kind]
    kinds = {name: TASKS[name] for name in TASKS.names()}
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
        if role not in FILES and name not in first.columns:
            known = ", ".join(first.columns[:20])
            raise UserError(f"{first.path}: no column {name!r}{nearest(name, first.columns)}", valid=known)
    seen = f"the columns {', '.join(first.columns[:20])}" if first.form == "table" else f"{first.form}, no table"
    raise UserError(
        f"{first.path}: {'no task fits' if not fitting else ' and '.join(fitting) + ' both fit'} what is in it ({seen})",
        valid=", ".join(TASKS.names()),
        fix=f"--task {fitting[0] if fitting else 'classify'}, and --column ROLE=NAME for columns with other names",
    )


def named(source: Source, kind: type[Task], settings: TaskRecipe) -> Source:
    """The beginning of a table with the columns that the user named under the names that the task knows."""
    if source.form != "table" or not settings.columns:
        return source
    new = {column: next(iter(kind.roles.get(role, ())), role) for role, column in settings.columns.items()}
    kept = [c for c in source.columns if c in new or c.lower() not in new.values()]
    rows = [(line, {new.get(c, c): row[c] for c in kept if c in row}) for line, row in source.rows[:LOOKED_AT]]
    return replace(source, columns=[new.get(c, c) for c in kept], rows=rows)


def fits_roles(kind: type[Task], settings: TaskRecipe, sources: Sequence[Source]) -> bool:
    """Whether there are columns for all that the task needs, by the user's word or by their usual names."""
    needed = {*kind.needed, *kind.target}
    try:
        return all(needed <= set(assign(s.columns, kind.roles, settings.columns, (), s.path)) for s in sources)
    except UserError:  # no such column: said when the file is read
        return False
