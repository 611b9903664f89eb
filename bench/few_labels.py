"""Few labels: `unmask learn` compared with what a user would choose instead, on eight data sets.

    make bench-peers
    python bench/few_labels.py run --method tfidf,tfidf_sklearn --draws 5 --limit-minutes 30
    python bench/few_labels.py run --dataset sms,flows --method setfit --labels 20,100 --draws 3
    python bench/defaults.py pretrain --minutes 3        # a model on the text of each data set, for all methods
    python bench/few_labels.py run --method unmask_learn,setfit,trainer --weights folder --start "runs/defaults/{dataset}-auto/model"
    python bench/few_labels.py table --method tfidf,st_lr,model2vec

`run` computes the rows that are missing in docs/results/few_labels and appends each one when it is finished. All methods get the same
labeled records in a draw; the other texts of the pool are unlabeled. `table` prints the comparison as markdown.
The parts are in bench/few_labels/.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from few_labels.datasets import DATASETS
from few_labels.methods import METHODS, Options, Runner
from few_labels.rows import RESULTS, Key, Row, append_row, read_rows
from few_labels.table import render

from unmask.console import write

SIZES = (20, 100, 500, 2000)


def wanted(
    datasets: Sequence[str], methods: Sequence[str], weights: Sequence[str], labels: Sequence[int], draws: int
) -> Iterator[Key]:
    """Yield the keys of the rows, all draws of a cell in sequence."""
    for method in methods:
        for start in METHODS[method].starts:
            if start in ("none", *weights):
                for dataset in datasets:
                    for size in labels:
                        yield from (Key(dataset, method, start, size, draw) for draw in range(draws))


def compute(keys: Iterable[Key], run: Callable[[Key], Row], folder: Path, limit_minutes: float) -> list[str]:
    """Compute the rows that are missing in `folder`, until the time is over; return what failed."""
    done, failed, start = read_rows(folder), [], time.monotonic()
    for key in keys:
        if key in done:
            continue
        name = f"{key.dataset} {key.method} ({key.start}), {key.labels:,} labels, draw {key.draw}"
        if time.monotonic() - start > 60 * limit_minutes:
            write(f"stopped after {limit_minutes:g} minutes; next: {name}")
            break
        try:
            row = run(key)
        except Exception as error:
            failed.append(f"{name}: {type(error).__name__}: {error}")
            write(failed[-1])
            continue
        append_row(row, folder)
        write(f"{name}: {100 * row.score:.1f}, {row.cpu_seconds:.1f} CPU seconds")
    return failed


def run_rows(args: argparse.Namespace) -> int:
    with Runner(Options(args.data, args.start, args.setfit_seconds, args.minutes)) as runner:
        keys = wanted(args.dataset, args.method, args.weights, args.labels, args.draws)
        possible = (key for key in keys if runner.can_run(key))
        failed = compute(possible, runner.run, args.out, args.limit_minutes)
    if failed:
        write(f"{len(failed)} rows failed:", *failed)
    return bool(failed)


def show_table(args: argparse.Namespace) -> int:
    rows = [
        row for row in read_rows(args.out).values() if row.key.dataset in args.dataset and row.key.labels in args.labels
    ]
    write(render(rows, args.min_draws, args.method))
    return 0


def names_of(known: Iterable[str]) -> Callable[[str], list[str]]:
    """Return an argument type: names separated by commas."""

    def parse(text: str) -> list[str]:
        if unknown := sorted(set(text.split(",")) - set(known)):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return text.split(",")

    return parse


def sizes(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run, table = (commands.add_parser(name) for name in ("run", "table"))
    for command in (run, table):
        command.add_argument("--dataset", type=names_of(DATASETS), default=list(DATASETS))
        command.add_argument("--method", type=names_of(METHODS), default=list(METHODS))
        command.add_argument("--labels", type=sizes, default=list(SIZES))
        command.add_argument("--out", type=Path, default=RESULTS, help="folder of the rows")
    run.add_argument("--draws", type=int, default=3)
    run.add_argument("--weights", type=names_of(("downloaded", "random", "folder")), default=["downloaded"])
    run.add_argument("--start", type=Path, help="model folder for --weights folder; may contain {dataset}")
    run.add_argument("--data", type=Path, default=Path("../shared/data"))
    run.add_argument("--limit-minutes", type=float, default=float("inf"), help="start no further row after this time")
    run.add_argument("--setfit-seconds", type=float, default=600, help="CPU time of SetFit with 500 labels or more")
    run.add_argument("--minutes", type=float, default=10, help="of unmask learn")
    run.set_defaults(call=run_rows)
    table.add_argument("--min-draws", type=int, default=3, help="methods with fewer draws are left out of a cell")
    table.set_defaults(call=show_table)
    args = parser.parse_args()
    return args.call(args)


if __name__ == "__main__":
    sys.exit(main())
