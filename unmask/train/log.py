"""What a run remembers of what happened: `Log` appends a JSON line per event to the run's `log.jsonl`.

What a person sees meanwhile is printed by `unmask/console.py`, whose `Console` can be imported from here too.
"""

import json
from pathlib import Path
from typing import Any

from unmask.console import Console as Console
from unmask.console import Update as Update
from unmask.console import clock as clock


class Log:
    def __init__(self, path: Path):
        self._file = open(path, "a", encoding="utf-8", buffering=1)  # noqa: SIM115 – open as long as the run

    def write(self, event: str, **values: Any) -> None:
        self._file.write(json.dumps({"event": event, **values}, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()
