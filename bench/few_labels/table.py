"""Tables of bench/few_labels.py from its rows.

A cell is a data set and a number of labels. Only methods with enough draws count in a cell, and only the draws that all of them have.
"The error" of a difference between two methods is the standard error of its mean over these draws (paired).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy.stats import t as student_t

from few_labels.rows import Row

BASELINE = "tfidf"
TABLES = {  # start weights (see Key.start) → title
    ("none", "downloaded"): "With downloaded weights",
    ("none", "random", "folder"): "Without downloaded weights",
}


@dataclass(frozen=True)
class Cell:
    dataset: str
    labels: int
    scores: dict[str, list[float]]  # column → score of each draw, the same draws for all

    def mean(self, column: str) -> float:
        return fmean(self.scores[column])

    @property
    def best(self) -> str:
        return max(self.scores, key=self.mean)

    def rank(self, column: str) -> float:
        """Return 1 for the highest mean. Equal means share the mean of their ranks."""
        means = [round(self.mean(each), 9) for each in self.scores]
        mine = round(self.mean(column), 9)
        return 1 + sum(mean > mine for mean in means) + (means.count(mine) - 1) / 2

    def is_within_error_of_best(self, column: str) -> bool:
        return not self.is_worse(column, self.best)

    def is_worse(self, column: str, other: str) -> bool:
        """Whether the mean difference to another column is larger than its error."""
        differences = [b - a for a, b in zip(self.scores[column], self.scores[other])]
        return fmean(differences) > standard_error(differences) + 1e-9


def standard_error(values: Sequence[float]) -> float:
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0


def interval(values: Sequence[float]) -> str:
    """Return the mean in percent and its 95% interval.

    >>> interval([0.5, 0.6, 0.7]), interval([0.5])
    ('60.0 ± 24.8', '50.0')
    """
    mean = f"{100 * fmean(values):.1f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {100 * standard_error(values) * student_t.ppf(0.975, len(values) - 1):.1f}"


def column_of(row: Row) -> str:
    """Return the column of a row: the method, and the start weights if a table has several kinds of them."""
    return f"{row.key.method} ({row.key.start})" if row.key.start in ("random", "folder") else row.key.method


def make_cells(rows: Iterable[Row], min_draws: int) -> list[Cell]:
    by_cell: dict[tuple[str, int], dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        by_cell[row.key.dataset, row.key.labels][column_of(row)][row.key.draw] = row.score
    cells = []
    for (dataset, labels), columns in sorted(by_cell.items()):
        columns = {name: draws for name, draws in columns.items() if len(draws) >= min_draws}
        common = sorted(set.intersection(*map(set, columns.values()))) if columns else []
        if len(common) >= min_draws:
            cells.append(Cell(dataset, labels, {n: [draws[d] for d in common] for n, draws in columns.items()}))
    return cells


def summarize(cells: Sequence[Cell], columns: Sequence[str]) -> tuple[list[list[str]], int]:
    """Return a line per column and the number of cells, which are those that have every column."""
    shared = [cell for cell in cells if set(columns) <= set(cell.scores)]
    lines = []
    for column in columns if shared else ():
        near_best = sum(cell.is_within_error_of_best(column) for cell in shared)
        worse = sum(cell.is_worse(column, BASELINE) for cell in shared) if BASELINE in columns else 0
        mean_rank = fmean(cell.rank(column) for cell in shared)
        lines.append([column, f"{mean_rank:.2f}", f"{near_best / len(shared):.0%}", f"{worse} of {len(shared)}"])
    return lines, len(shared)


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """
    >>> print(markdown(["a", "b"], [["1", "2"]]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    rule = "|" + "---|" * len(header)
    return "\n".join(["| " + " | ".join(header) + " |", rule, *("| " + " | ".join(line) + " |" for line in lines)])


def scores_table(cells: Sequence[Cell], columns: Sequence[str]) -> str:
    def entry(cell: Cell, column: str) -> str:
        if column not in cell.scores:
            return ""
        mean, error = 100 * cell.mean(column), 100 * standard_error(cell.scores[column])
        return f"{mean:.1f} ± {error:.1f} ({cell.rank(column):g})"

    lines = [
        [cell.dataset, f"{cell.labels:,}", str(len(cell.scores[cell.best])), *(entry(cell, name) for name in columns)]
        for cell in cells
    ]
    return markdown(["data", "labels", "draws", *columns], lines)


def cpu_table(rows: Sequence[Row], cells: Sequence[Cell], columns: Sequence[str]) -> str:
    """Mean CPU seconds per fit, over the cells that have every column: data sets differ in the length of their texts."""
    shared = {(cell.dataset, cell.labels) for cell in cells if set(columns) <= set(cell.scores)}
    seconds = defaultdict(list)
    for row in rows:
        if (row.key.dataset, row.key.labels) in shared:
            seconds[column_of(row), row.key.labels].append(row.cpu_seconds)
    sizes = sorted({labels for _, labels in shared})
    lines = [[column, *(f"{fmean(seconds[column, size]):.3g}" for size in sizes)] for column in columns]
    return markdown(["CPU seconds per fit", *(f"{size:,} labels" for size in sizes)], lines)


def render(rows: Sequence[Row], min_draws: int, order: Sequence[str]) -> str:
    """Return both tables as markdown. `order`: the methods, which are also the order of the columns."""
    parts = []
    for starts, title in TABLES.items():
        chosen = [row for row in rows if row.key.start in starts and row.key.method in order]
        columns = sorted({column_of(row) for row in chosen}, key=lambda name: (order.index(name.split(" ")[0]), name))
        cells = make_cells(chosen, min_draws)
        columns = [name for name in columns if any(name in cell.scores for cell in cells)]
        if not cells:
            continue
        lines, shared = summarize(cells, columns)
        note = f"{shared} of {len(cells)} cells have every method above"
        parts += [f"## {title}", "Mean score in percent ± standard error (rank).", scores_table(cells, columns)]
        if not shared:
            parts.append(f"{note}: choose fewer methods with --method.")
            continue
        header = ["method", "mean rank", "best or within the error", "worse than TF-IDF beyond the error"]
        parts += [f"{note}; these are compared:", markdown(header, lines), cpu_table(chosen, cells, columns)]
    return "\n\n".join(parts)
