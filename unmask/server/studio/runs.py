"""Runs: the run folders below one folder, read while training writes them. Nothing outside of that folder is opened.

A run is identified by its path below the folder, such as `pretrain/bert-tiny-1`. The list of runs reads recipes and the ends
of logs; a growing log is read from the last offset.
"""

import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from unmask.errors import UserError, nearest
from unmask.files import open_regular, parse_json, read_bytes, read_object
from unmask.recipe import Recipe
from unmask.train.run import Run
from unmask.train.run_files import current_keys

MAX_DEPTH = 3  # folders below the root in which runs are searched: command, name, seed
MAX_RUNS = 2000  # that are listed
MAX_NAME_CHARS = 1000  # in the list
TAIL_BYTES = 1 << 16  # the progress of a run is read from this many bytes at the end of its log
CHUNK_BYTES = 1 << 20  # a log is read in chunks of this size
MAX_REPORT_BYTES = 256 << 20
# A listed run is read again when one of these files has changed.
WATCHED = ("recipe.yaml", "log.jsonl", "plan.json", "results.json", "model/config.json", "report.html")


class Runs:
    """
    >>> import tempfile
    >>> Runs(tempfile.mkdtemp()).entries()
    []
    """

    def __init__(self, root: str | Path):
        self.root = Path(root).expanduser().resolve()
        if not self.root.is_dir():
            raise UserError(f"{root} is not a folder", expected="a folder with runs in it", hint="unmask studio runs/")
        self._cache: dict[str, tuple[Any, dict[str, Any]]] = {}  # name → stamp of its files, entry

    def entries(self) -> list[dict[str, Any]]:
        """Return an entry per run, the most recently changed first."""
        paths: list[Path] = []
        self._find(self.root, MAX_DEPTH, paths)
        return sorted((self._entry(path) for path in paths), key=lambda e: -e["changed"])

    def open(self, name: str) -> Run:
        """Open a run by name. A name that leads out of the root, also through a symlink, is rejected."""
        path = self.root / name
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts or not self._is_run(path):
            names = [str(entry["name"]) for entry in self.entries()]
            raise UserError(f"no run {name!r:.120} here{nearest(name, names)}", expected=", ".join(names[:8]) or "none")
        return Run(path)

    def details(self, name: str) -> dict[str, Any]:
        """Return the entry of a run with its recipe, environment and results."""
        run = self.open(name)
        return self._entry(run.path) | {
            "recipe": self._recipe(run),
            "environment": self._json(run, "environment.json"),
            "results": self._json(run, "results.json"),
            "batch": bool(self._json(run, "data.json").get("store")),
        }

    def log(self, name: str, offset: int = 0, file: str = "") -> dict[str, Any]:
        """Return the log's events after byte `offset` of the file with the identity `file`, at most CHUNK_BYTES of them.

        A resumed run writes a new file, which is read from its beginning (`fresh`).
        """
        path = self._file(self.open(name), "log.jsonl")
        if not path.exists():
            return {"events": [], "offset": 0, "file": "", "fresh": True, "more": False}
        with open_regular(path) as handle:
            stat = os.fstat(handle.fileno())
            identity = f"{stat.st_dev:x}-{stat.st_ino:x}"
            fresh = identity != file or not 0 <= offset <= stat.st_size
            start = 0 if fresh else offset
            handle.seek(start)
            data = handle.read(CHUNK_BYTES)
        complete = data[: data.rfind(b"\n") + 1]  # the last line may be incomplete
        if not complete and len(data) == CHUNK_BYTES:
            complete = data  # a line that long is not a log's: skip it
        end = start + len(complete)
        more = len(data) == CHUNK_BYTES and end < stat.st_size
        return {"events": parse_events(complete), "offset": end, "file": identity, "fresh": fresh, "more": more}

    def batch(self, name: str, rows: int = 4) -> dict[str, Any]:
        """Return the first rows of a pre-training run as its objective corrupts them."""
        from unmask.inference.examples import show_batch

        run = self.open(name)
        store = self._json(run, "data.json").get("store")
        if not isinstance(store, str):
            raise UserError(
                f"{name} has no masked batch", expected="a run of unmask pretrain that has started to train"
            )
        if not (Path(store) / "meta.json").exists():
            raise UserError(f"the tokens of {name} are no longer in the cache", hint="unmask prepare CORPUS")
        return show_batch(store, Recipe.build(self._recipe(run)), rows).as_dict()

    def compare(self, a: str, b: str) -> list[dict[str, Any]]:
        """Return the settings that differ: [{"key", "a", "b"}, …], in the recipe's order."""
        first, second = (flatten(self._recipe(self.open(name))) for name in (a, b))
        rows = [{"key": key, "a": first.get(key), "b": second.get(key)} for key in dict.fromkeys([*first, *second])]
        return [row for row in rows if row["a"] != row["b"]]

    def report(self, name: str) -> bytes:
        """Return the run's report.html."""
        path = self._file(self.open(name), "report.html")
        if not path.exists():
            raise UserError(f"{name} has no report yet", expected="a finished run")
        return read_bytes(path, MAX_REPORT_BYTES)

    def models(self, limit: int) -> list[str]:
        """Return the models of the newest finished runs as NAME=FOLDER; of two with the same name, the newer one.

        Runs that are parts of one (of a quickstart) count as one run, its best model first.
        """
        models: dict[str, str] = {}
        for entry in self._best_first(self.entries()):
            path = self.root / entry["name"]
            name = re.sub(r"[^\w.-]", "-", path.name)
            if len(models) < limit and entry["state"] == "finished" and entry["model"] and self._inside(path / "model"):
                models.setdefault(name, f"{name}={path}")
        return list(models.values())

    # ---------------------------------------------------------------------------------------------- internal

    def _best_first(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Keep the order of the entries, but group parts of one run and sort them by score."""
        groups: dict[Path, list[dict[str, Any]]] = {}
        for entry in entries:
            path = self.root / entry["name"]
            groups.setdefault(path.parent if (path.parent / "results.json").is_file() else path, []).append(entry)

        def score(entry: dict[str, Any]) -> float:
            return (entry.get("score") or {"value": -math.inf})["value"]

        return [entry for parts in groups.values() for entry in sorted(parts, key=score, reverse=True)]

    def _find(self, folder: Path, depth: int, runs: list[Path]) -> None:
        if len(runs) >= MAX_RUNS or not self._inside(folder):
            return
        if self._is_run(folder) and Run(folder).kind() != "quickstart":  # whose parts are listed instead
            runs.append(folder)
        elif depth:
            with suppress(OSError):  # deleted, or not readable
                for child in sorted(folder.iterdir()):
                    if os.path.isdir(child) and not child.name.startswith("."):
                        self._find(child, depth - 1, runs)

    def _inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError):  # a symlink to itself
            return False

    def _is_run(self, path: Path) -> bool:
        """Return whether a folder has a recipe. One that cannot be read (a pipe, a broken symlink) counts: the list shows why."""
        recipe = path / "recipe.yaml"
        return self._inside(path) and os.path.lexists(recipe) and not os.path.isdir(recipe)

    def _file(self, run: Run, name: str) -> Path:
        """Return the path of a run's file; reject a symlink that leads out of the root."""
        path = run.path / name
        if not self._inside(path):
            raise UserError(f"{path.relative_to(self.root)} is a link that leads out of {self.root.name}/")
        return path

    def _recipe(self, run: Run) -> dict[str, Any]:
        return Recipe.read(self._file(run, "recipe.yaml"))

    def _json(self, run: Run, name: str) -> dict[str, Any]:
        """Read a file of the run; {} if it does not exist. Raise UserError if it cannot be read."""
        path = self._file(run, name)
        return current_keys(name, read_object(path, finite=False)) if os.path.lexists(path) else {}

    def _entry(self, path: Path) -> dict[str, Any]:
        """Return the entry of a run; its files are read again only if one of them has changed."""
        run, name = Run(path), replace_surrogates(path.relative_to(self.root).as_posix())
        stamp = [_stamp(path / file) for file in WATCHED]
        if name not in self._cache or self._cache[name][0] != stamp:
            try:
                if path.relative_to(self.root).as_posix() != name:
                    raise UserError("the name of its folder is not UTF-8")
                entry = self._read(run)
            except Exception as error:  # one bad run must not hide the others
                reason = error.message if isinstance(error, UserError) else f"cannot be read ({type(error).__name__})"
                problem = replace_surrogates(reason.replace(f"{self.root}{os.sep}", ""))
                entry = {"verb": "", "what": "", "state": "failed", "model": False, "problem": problem}
            self._cache[name] = stamp, entry
        entry = self._cache[name][1]
        if entry["state"] != "finished" and run.in_use():
            entry = entry | {"state": "running"}
        return {"name": name, "changed": max(s[0] for s in stamp)} | entry

    def _read(self, run: Run) -> dict[str, Any]:
        recipe, results, events = self._recipe(run), self._json(run, "results.json"), self._tail(run)
        task = recipe.get("task") or {}
        verb = run.command_name()
        steps = [e["step"] for e in events if type(e.get("step")) is int]
        ended = bool(results) or any(e.get("event") == "end" for e in events)
        failed = bool(events) and events[-1].get("event") == "error"
        kind = task.get("name") if isinstance(task, dict) else None
        return {
            "verb": verb,
            "what": str((kind if verb != "pretrain" else recipe.get("objective")) or "")[:MAX_NAME_CHARS],
            "start": _short_path(str(recipe.get("init_from") or recipe.get("preset") or "")[:MAX_NAME_CHARS]),
            "state": "finished" if ended else "failed" if failed else "interrupted",
            "steps": {"done": max(steps, default=0), "total": _num_steps(self._json(run, "plan.json"))},
            "train": _last_numbers(events, "train"),
            "eval": _last_numbers(events, "eval"),
            "score": _score(results),
            "warnings": [str(e.get("text")) for e in events if e.get("event") in ("warning", "error")][-5:],
            "report": (run.path / "report.html").is_file(),
            "model": (run.model / "config.json").is_file(),
        }

    def _tail(self, run: Run) -> list[dict[str, Any]]:
        path = self._file(run, "log.jsonl")
        if not os.path.lexists(path):
            return []
        with open_regular(path) as handle:
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size - TAIL_BYTES))
            data = handle.read(TAIL_BYTES)
        return parse_events(data if size <= TAIL_BYTES else data[data.find(b"\n") + 1 :])


def replace_surrogates(name: str) -> str:
    """Make a file name valid for JSON: bytes that are not UTF-8 become "?".

    >>> replace_surrogates("a\\udcff"), replace_surrogates("à")
    ('a?', 'à')
    """
    return name.encode("utf-8", "replace").decode()


def parse_events(data: bytes) -> list[dict[str, Any]]:
    """Parse a part of a log; skip lines that are not JSON objects.

    >>> parse_events(b'{"step": 1}' + bytes([10]) + b'{"ste')
    [{'step': 1}]
    """
    events = []
    for line in filter(None, data.split(b"\n")):
        with suppress(ValueError):
            events.append(parse_json(line, finite=False))
    return [event for event in events if isinstance(event, dict)]


def flatten(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """
    >>> flatten({"train": {"lr": 1e-3}, "seed": 0})
    {'train.lr': 0.001, 'seed': 0}
    """
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {f"{prefix}{key}": value}
    return out


def _short_path(path: str) -> str:
    """
    >>> _short_path("/home/ann/runs/pretrain/mini/model"), _short_path("owner/bert")
    ('pretrain/mini', 'owner/bert')
    """
    return "/".join([part for part in Path(path).parts if part != "model"][-2:])


def _num_steps(plan: dict[str, Any]) -> int | None:
    with suppress(KeyError, TypeError, IndexError):
        last = plan["length_phases"][-1]
        if type(last["start"]) is int and type(last["steps"]) is int:
            return last["start"] + last["steps"]
    return None


def _last_numbers(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """Return the numbers of the last event of a kind."""
    last: dict[str, Any] = next((e for e in reversed(events) if e.get("event") == kind), {})
    return {key: value for key, value in last.items() if isinstance(value, int | float)}


def _score(results: dict[str, Any]) -> dict[str, Any] | None:
    """Return the score of a finished run on the test set, or on the dev set if there is no test set.

    >>> _score({"metric": "accuracy", "dev": {"accuracy": 0.5}, "test": {"accuracy": 0.75}})
    {'split': 'test', 'metric': 'accuracy', 'value': 0.75}
    >>> _score({"metric": "accuracy", "dev": []})
    """
    metric = results.get("metric")
    for split in ("test", "dev"):
        scores = results.get(split)
        value = scores.get(metric) if isinstance(scores, dict) and isinstance(metric, str) else None
        if isinstance(value, int | float) and math.isfinite(value):
            return {"split": split, "metric": metric, "value": value}
    return None


def _stamp(path: Path) -> tuple[float, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0.0, 0)
    return (stat.st_mtime, stat.st_size)
