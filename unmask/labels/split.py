"""Hold out a dev set from a training file: stratified, grouped and determined by the seed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from unmask.labels.fields import RecordSpec, group_key, inputs_of
from unmask.labels.records import Record
from unmask.seeds import generator


def split(
    spec: RecordSpec, records: Sequence[Record], stratum_names: Sequence[str], fraction: float, seed: int
) -> tuple[list[Record], list[Record]]:
    """Return (train, dev), with the same fraction of every stratum (`stratum_names`: one per record) and each group on one side.

    With too few groups to hold one out, only records with equal inputs are kept together.
    """
    groups = _groups([group_key(spec, record) for record in records])
    if fraction * len(groups) < 1:
        groups = _groups([inputs_of(spec, record) for record in records])
    strata: dict[str, list[list[int]]] = defaultdict(list)
    for group in groups:
        strata[stratum_names[group[0]]].append(group)
    rng, dev = generator(seed, "dev"), set()
    counts = quotas({name: len(strata[name]) for name in sorted(strata)}, fraction, generator(seed, "dev", "rest"))
    for name, count in counts.items():
        for n in rng.permutation(len(strata[name]))[:count]:
            dev |= set(strata[name][n])
    return [r for n, r in enumerate(records) if n not in dev], [records[n] for n in sorted(dev)]


def quotas(sizes: Mapping[str, int], fraction: float, rng: np.random.Generator) -> dict[str, int]:
    """Return the number of held-out groups per stratum (largest-remainder method); in total at least one and not all.

    >>> quotas({"a": 24, "b": 13, "c": 4}, 0.1, np.random.default_rng(0))
    {'a': 2, 'b': 1, 'c': 1}
    >>> sum(quotas({str(n): 5 for n in range(150)}, 0.1, np.random.default_rng(0)).values())
    75
    """
    total = sum(sizes.values())
    target_total = min(max(1, round(fraction * total)), max(0, total - 1))
    exact = np.array([fraction * size for size in sizes.values()])
    counts = np.floor(exact + 1e-9).astype(int)
    shuffled = rng.permutation(len(counts))  # breaks ties between equal remainders
    order = shuffled[np.argsort(np.round(counts - exact, 9)[shuffled], kind="stable")]
    counts[order[: max(0, target_total - int(counts.sum()))]] += 1
    return dict(zip(sizes, np.minimum(counts, list(sizes.values())).tolist()))


def _groups(keys: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """Return the indices of the records with equal keys, per key."""
    indices: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for n, key in enumerate(keys):
        indices[key].append(n)
    return list(indices.values())
