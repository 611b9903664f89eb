"""A cache of labeled files for all runs of a loop, since parsing them and searching for duplicates takes long."""

from dataclasses import replace
from typing import Any

from unmask.labels.fields import RecordSpec
from unmask.labels.record_sets import RecordSets, read_sets
from unmask.recipe import TaskRecipe

Cache = dict[str, tuple[RecordSpec, RecordSets]]
# Settings that do not affect how files are read.
NON_DATA_FIELDS = {
    "num_seeds", "baseline", "baseline_lr", "dev_seed", "dev_fraction", "init", "freeze", "patience", "selection_margin", "aux_mlm", "augment_mlm", "teacher",
}  # fmt: skip


def read_cached(settings: TaskRecipe, cache: Cache | None = None) -> tuple[RecordSpec, RecordSets]:
    """Return the spec of the task and its records, in new lists that the caller may split."""
    if cache is None:
        return read_sets(settings)
    key = settings.model_dump_json(exclude=NON_DATA_FIELDS)
    if key not in cache:
        cache[key] = read_sets(settings)
    spec, sets = cache[key]
    other_fields: dict[str, Any] = {name: getattr(settings, name) for name in NON_DATA_FIELDS}
    lists: dict[str, Any] = {name: list(getattr(sets, name)) for name in ("train", "dev", "test", "findings")}
    return spec, replace(sets, **lists, settings=sets.settings and sets.settings.model_copy(update=other_fields))
