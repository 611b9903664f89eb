"""Reports of a run of any kind: report.html with its figures, the model card, and `unmask info`.

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
    """Write report.html, its figures and the model card; return the path of report.html."""
    from unmask.report import page

    return page.write(run)


def summary(run: "Run") -> dict[str, Any]:
    """Return the settings, progress and scores of a run as JSON."""
    from unmask.report.info import summary
    from unmask.report.view import RunView

    return summary(RunView(run))


def facts(s: dict[str, Any]) -> list[tuple[str, str]]:
    """Format a summary as (label, text) lines."""
    from unmask.report.info import facts

    return facts(s)
