"""What people look at of a run, of whatever kind: report.html with its pictures, the model card, and `unmask info`.

    from unmask import report

    report.write(run)                    # report.html, png files, the model's README.md
    report.facts(report.summary(run))    # the lines of `unmask info`

Only the run's folder is read (`view.py`). Importing this package imports nothing heavy.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unmask.train.run import Run


def write(run: "Run") -> Path:
    """Everything that is drawn and written when a run has ended; the path of report.html."""
    from unmask.report import page

    return page.write(run)


def summary(run: "Run") -> dict[str, Any]:
    """What a run is, did and reached, as JSON."""
    from unmask.report.info import summary
    from unmask.report.view import RunView

    return summary(RunView(run))


def facts(s: dict[str, Any]) -> list[tuple[str, str]]:
    """A summary as labelled lines."""
    from unmask.report.info import facts

    return facts(s)
