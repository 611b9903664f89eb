"""Replay: mix rows of other texts into the corpus, so that a model trained on a new domain does not forget the old one.

The source of a row depends only on its number and is found in O(1). Rows of each text are spaced evenly, so every batch
has its fraction. The rows of the corpus itself keep the order that they have without replay.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from unmask.errors import UserError


@dataclass(frozen=True)
class ReplayPart:
    name: str  # in logs and reports
    source: str  # path, folder, glob, sample:NAME or a prepared store
    share: Fraction  # of all rows


def parse_replay(mix: list[str]) -> list[ReplayPart]:
    """
    >>> parse_replay(["general/news.txt:0.2", "sample:sotu:0.1"])
    [ReplayPart(name='news', source='general/news.txt', share=Fraction(1, 5)), ReplayPart(name='sotu', source='sample:sotu', share=Fraction(1, 10))]
    """
    out: list[ReplayPart] = []
    for text in mix:
        source, _, number = text.rpartition(":")
        try:
            share = Fraction(number) if "/" not in number else Fraction(0)
        except (ValueError, ZeroDivisionError):
            share = Fraction(0)
        if not source or not 0 < share < 1:
            raise UserError(
                f"invalid --replay {text}",
                expected="PATH:SHARE, with a share of the rows above 0 and below 1",
                hint="--replay PATH:0.2",
            )
        name = Path(source.removeprefix("sample:")).stem or "mix"
        taken = {p.name for p in out}
        names = [name, *(f"{name}-{n}" for n in range(2, len(taken) + 2))]
        out.append(ReplayPart(next(n for n in names if n not in taken), source, share))
    total = sum(p.share for p in out)
    if total >= 1:
        raise UserError(
            f"--replay: the shares add up to {float(total):g}, which leaves no row to the corpus itself",
            expected="fractions that add up to less than 1",
        )
    return out


class InterleaveSchedule:
    """Find the source of a row: (0, n) is row n of the corpus, (j, n) is row n of part j.

    >>> schedule = InterleaveSchedule([Fraction(1, 4)])
    >>> [schedule.locate(n) for n in range(8)]
    [(0, 0), (0, 1), (0, 2), (1, 0), (0, 3), (0, 4), (0, 5), (1, 1)]
    """

    def __init__(self, shares: list[Fraction]):
        self.corpus_share = 1 - sum(shares, Fraction(0))
        left = Fraction(1)
        self.steps: list[tuple[int, int]] = []  # per part: its share of the rows that earlier parts leave, as p / q
        for share in shares:
            step = share / left
            self.steps.append((step.numerator, step.denominator))
            left -= share

    def locate(self, number: int) -> tuple[int, int]:
        for j, (p, q) in enumerate(self.steps, 1):
            before = number * p // q
            if (number + 1) * p // q > before:
                return j, before
            number -= before
        return 0, number

    def rows(self, corpus_rows: int) -> int:
        """Return the total number of rows if the corpus has `corpus_rows`."""
        return math.ceil(corpus_rows / self.corpus_share)
