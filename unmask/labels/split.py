"""A dev set out of a training file: a share of every stratum, whole groups, the same for the same seed."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from unmask.labels.fields import RecordSpec, group_key, inputs_of
from unmask.labels.records import Record
from unmask.seeds import generator


def split(
    spec: RecordSpec, records: Sequence[Record], names: Sequence[str], share: float, seed: int
) -> tuple[list[Record], list[Record]]:
    """(train, dev): the same share of every stratum (`names`: that of each record); records of one group stand on one side.

    Where there are so few groups that the share is none of them, only records that ask the same are kept together.
    """
    groups = _groups([group_key(spec, record) for record in records])
    if share * len(groups) < 1:
        groups = _groups([inputs_of(spec, record) for record in records])
    strata: dict[str, list[list[int]]] = defaultdict(list)
    for numbers in groups:
        strata[names[numbers[0]]].append(numbers)
    rng, held = generator(seed, "dev"), set()
    counts = quotas({name: len(strata[name]) for name in sorted(strata)}, share, generator(seed, "dev", "rest"))
    for name, count in counts.items():
        for n in rng.permutation(len(strata[name]))[:count]:
            held |= set(strata[name][n])
    return [r for n, r in enumerate(records) if n not in held], [records[n] for n in sorted(held)]


def quotas(sizes: Mapping[str, int], share: float, rng: np.random.Generator) -> dict[str, int]:
    """How many of each stratum: its share, rounded so that the sum is the share of all (largest remainders), never none or all.

    >>> quotas({"a": 24, "b": 13, "c": 4}, 0.1, np.random.default_rng(0))
    {'a': 2, 'b': 1, 'c': 1}
    >>> sum(quotas({str(n): 5 for n in range(150)}, 0.1, np.random.default_rng(0)).values())
    75
    """
    total = sum(sizes.values())
    wanted = min(max(1, round(share * total)), max(0, total - 1))
    exact = np.array([share * size for size in sizes.values()])
    counts = np.floor(exact + 1e-9).astype(int)
    drawn = rng.permutation(len(counts))  # who comes first among equal remainders
    order = drawn[np.argsort(np.round(counts - exact, 9)[drawn], kind="stable")]
    counts[order[: max(0, wanted - int(counts.sum()))]] += 1
    return dict(zip(sizes, np.minimum(counts, list(sizes.values())).tolist()))


def _groups(keys: Sequence[tuple[str, ...]]) -> list[list[int]]:
    """The numbers of the records that are equal, for each."""
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for n, key in enumerate(keys):
        found[key].append(n)
    return list(found.values())
