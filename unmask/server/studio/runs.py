"""Runs: the run folders below one folder, read while others write them. Nothing outside of that folder is opened.

A run goes by its path below the folder, as `pretrain/bert-tiny-1`. A list of runs reads their recipes and the ends of
their logs; a log that grows is read from where the reader stopped.
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

DEEP = 3  # folders below the root in which runs are looked for: verb, name, seed
MOST = 2000  # runs that are listed
SHOWN = 1000  # characters of a name in the list
TAIL = 1 << 16  # bytes at the end of a log that say how far a run is
CHUNK = 1 << 20  # bytes of a log that are read at once
REPORT = 256 << 20  # bytes of a report, at most
LEAST = {"value": -math.inf}  # the score of a run that has none
OWN = ("plan.json", "results.json", "model/config.json", "report.html")  # what changes how a run is listed


class Runs:
    """
    >>> import tempfile
    >>> Runs(tempfile.mkdtemp()).entries()
    []
    """

    def __init__(self, root: str | Path):
        self.root = Path(root).expanduser().resolve()
        if not self.root.is_dir():
            raise UserError(f"{root} is no folder", expected="a folder with runs in it", hint="unmask studio runs/")
        self._known: dict[str, tuple[Any, dict[str, Any]]] = {}  # name → what it was read from, and what was found

    def entries(self) -> list[dict[str, Any]]:
        """Every run, the one that was changed last first."""
        found: list[Path] = []
        self._find(self.root, DEEP, found)
        return sorted((self._entry(path) for path in found), key=lambda e: -e["changed"])

    def open(self, name: str) -> Run:
        """The run of that name. A name that leads out of the root, also by a link, is no run here."""
        path = self.root / name
        if "\0" in name or Path(name).is_absolute() or ".." in Path(name).parts or not self._is_run(path):
            names = [str(entry["name"]) for entry in self.entries()]
            raise UserError(f"no run {name!r:.120} here{nearest(name, names)}", expected=", ".join(names[:8]) or "none")
        return Run(path)

    def details(self, name: str) -> dict[str, Any]:
        """How a run is listed, its settings, and what its files say of its end."""
        run = self.open(name)
        return self._entry(run.path) | {
            "recipe": Recipe.read(self._own(run, "recipe.yaml")),
            "environment": self._json(run, "environment.json"),
            "results": self._json(run, "results.json"),
            "batch": bool(self._json(run, "data.json").get("store")),
        }

    def log(self, name: str, offset: int = 0, file: str = "") -> dict[str, Any]:
        """Lines of the log after byte `offset` of the file with the identity `file`, so many as are read at once.

        A run that is resumed gets another file, which is read from its beginning (`fresh`).
        """
        path = self._own(self.open(name), "log.jsonl")
        if not path.exists():
            return {"events": [], "offset": 0, "file": "", "fresh": True, "more": False}
        with open_regular(path) as handle:
            stat = os.fstat(handle.fileno())
            identity = f"{stat.st_dev:x}-{stat.st_ino:x}"
            fresh = identity != file or not 0 <= offset <= stat.st_size
            start = 0 if fresh else offset
            handle.seek(start)
            data = handle.read(CHUNK)
        whole = data[: data.rfind(b"\n") + 1]  # a line may be half written
        if not whole and len(data) == CHUNK:
            whole = data  # no log has such a line: pass it over
        end = start + len(whole)
        more = len(data) == CHUNK and end < stat.st_size
        return {"events": lines(whole), "offset": end, "file": identity, "fresh": fresh, "more": more}

    def batch(self, name: str, rows: int = 4) -> dict[str, Any]:
        """The first rows of a pre-training run as its objective corrupts them."""
        from unmask.inference.examples import show_batch

        run = self.open(name)
        store = self._json(run, "data.json").get("store")
        if not isinstance(store, str):
            raise UserError(f"{name} has no masked batch", expected="a run of unmask pretrain that has begun to train")
        if not (Path(store) / "meta.json").exists():
            raise UserError(f"the tokens of {name} are gone from the cache", hint="unmask prepare CORPUS")
        return show_batch(store, Recipe.build(Recipe.read(self._own(run, "recipe.yaml"))), rows).as_dict()

    def compare(self, a: str, b: str) -> list[dict[str, Any]]:
        """Settings that differ: [{"key", "a", "b"}, …] in the recipe's order."""
        first, second = (flat(Recipe.read(self._own(self.open(name), "recipe.yaml"))) for name in (a, b))
        keys = dict.fromkeys([*first, *second])
        return [
            {"key": key, "a": first.get(key), "b": second.get(key)} for key in keys if first.get(key) != second.get(key)
        ]

    def report(self, name: str) -> bytes:
        """The run's report.html."""
        path = self._own(self.open(name), "report.html")
        if not path.exists():
            raise UserError(f"{name} has no report yet", expected="a run that has ended")
        return read_bytes(path, REPORT)

    def models(self, most: int) -> list[str]:
        """The newest finished runs' models as NAME=FOLDER, at most `most`; of two with the same name, the newer one.

        Runs that are parts of one (of a quickstart) count as one run, its best model first.
        """
        found: dict[str, str] = {}
        for entry in self._best_first(self.entries()):
            path = self.root / entry["name"]
            name = re.sub(r"[^\w.-]", "-", path.name)
            if len(found) < most and entry["state"] == "finished" and entry["model"] and self._inside(path / "model"):
                found.setdefault(name, f"{name}={path}")
        return list(found.values())

    # ---------------------------------------------------------------------------------------------- inside

    def _best_first(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The entries in their order, but parts of one run together and by their score."""
        wholes: dict[Path, list[dict[str, Any]]] = {}
        for entry in entries:
            path = self.root / entry["name"]
            whole = path.parent if (path.parent / "results.json").is_file() else path
            wholes.setdefault(whole, []).append(entry)
        worth = [sorted(parts, key=lambda e: -(e.get("score") or LEAST)["value"]) for parts in wholes.values()]
        return [entry for parts in worth for entry in parts]

    def _find(self, folder: Path, deep: int, found: list[Path]) -> None:
        if len(found) >= MOST or not self._inside(folder):
            return
        if self._is_run(folder) and Run(folder).kind() != "quickstart":  # of which the runs inside are listed
            found.append(folder)
        elif deep:
            with suppress(OSError):  # gone, or not ours to read
                for child in sorted(folder.iterdir()):
                    if os.path.isdir(child) and not child.name.startswith("."):
                        self._find(child, deep - 1, found)

    def _inside(self, path: Path) -> bool:
        try:
            return path.resolve().is_relative_to(self.root)
        except (OSError, RuntimeError):  # a link to itself
            return False

    def _is_run(self, path: Path) -> bool:
        """A recipe that cannot be read (a pipe, a link to nothing) makes a run too: it is listed with the reason."""
        recipe = path / "recipe.yaml"
        return self._inside(path) and os.path.lexists(recipe) and not os.path.isdir(recipe)

    def _own(self, run: Run, name: str) -> Path:
        """A file of a run; one that is a link out of the root is refused."""
        path = run.path / name
        if not self._inside(path):
            raise UserError(f"{path.relative_to(self.root)} is a link that leads out of {self.root.name}/")
        return path

    def _json(self, run: Run, name: str) -> dict[str, Any]:
        """A file of the run; {} when it is not there. One that cannot be read is a UserError with the reason."""
        path = self._own(run, name)
        return read_object(path, finite=False) if os.path.lexists(path) else {}

    def _entry(self, path: Path) -> dict[str, Any]:
        """What the list says of a run; read again only when one of its files has changed."""
        run, name = Run(path), readable(path.relative_to(self.root).as_posix())
        stamp = [_stamp(path / file) for file in ("recipe.yaml", "log.jsonl", *OWN)]
        if name not in self._known or self._known[name][0] != stamp:
            try:
                if path.relative_to(self.root).as_posix() != name:
                    raise UserError("the name of its folder is not UTF-8")
                self._known[name] = stamp, self._read(run)
            except Exception as error:  # whatever is wrong with one run, the others are listed
                why = error.message if isinstance(error, UserError) else f"it cannot be read ({type(error).__name__})"
                problem = readable(why.replace(f"{self.root}{os.sep}", ""))
                self._known[name] = (
                    stamp,
                    {"verb": "", "what": "", "state": "failed", "model": False, "problem": problem},
                )
        entry = self._known[name][1]
        if entry["state"] != "finished":
            entry = entry | {"state": "running" if run.in_use() else entry["state"]}
        return {"name": name, "changed": max(s[0] for s in stamp)} | entry

    def _read(self, run: Run) -> dict[str, Any]:
        recipe, plan, results = (
            Recipe.read(self._own(run, "recipe.yaml")), self._json(run, "plan.json"), self._json(run, "results.json"),
        )  # fmt: skip
        events = self._tail(run)
        task = recipe.get("task") or {}
        verb = run.verb()
        steps = [e["step"] for e in events if type(e.get("step")) is int]
        done, total = max(steps, default=0), _steps(plan)
        ended = bool(results) or any(e.get("event") == "end" for e in events)
        failed = bool(events) and events[-1].get("event") == "error"
        kind = task.get("kind") if isinstance(task, dict) else None
        return {
            "verb": verb,
            "what": str((kind if verb != "pretrain" else recipe.get("objective")) or "")[:SHOWN],
            "start": _named(str(recipe.get("start") or recipe.get("preset") or "")[:SHOWN]),
            "state": "finished" if ended else "failed" if failed else "interrupted",
            "steps": {"done": done, "total": total},
            "train": _last(events, "train"),
            "eval": _last(events, "eval"),
            "score": _score(results),
            "warnings": [str(e.get("text")) for e in events if e.get("event") in ("warning", "error")][-5:],
            "report": (run.path / "report.html").is_file(),
            "model": (run.model / "config.json").is_file(),
        }

    def _tail(self, run: Run) -> list[dict[str, Any]]:
        path = self._own(run, "log.jsonl")
        if not os.path.lexists(path):
            return []
        with open_regular(path) as handle:
            size = os.fstat(handle.fileno()).st_size
            handle.seek(max(0, size - TAIL))
            data = handle.read(TAIL)
        return lines(data if size <= TAIL else data[data.find(b"\n") + 1 :])


def readable(name: str) -> str:
    """A name whose bytes are no UTF-8, as JSON can say it.

    >>> readable("a\\udcff"), readable("à")
    ('a?', 'à')
    """
    return name.encode("utf-8", "replace").decode()


def lines(data: bytes) -> list[dict[str, Any]]:
    """The events of a piece of a log; what is no JSON is passed over.

    >>> lines(b'{"step": 1}' + bytes([10]) + b'{"ste')
    [{'step': 1}]
    """
    out = []
    for line in filter(None, data.split(b"\n")):
        with suppress(ValueError):
            event = parse_json(line, finite=False)
            if isinstance(event, dict):
                out.append(event)
    return out


def flat(values: dict[str, Any], before: str = "") -> dict[str, Any]:
    """
    >>> flat({"train": {"lr": 1e-3}, "seed": 0})
    {'train.lr': 0.001, 'seed': 0}
    """
    out: dict[str, Any] = {}
    for key, value in values.items():
        out |= flat(value, f"{before}{key}.") if isinstance(value, dict) and value else {f"{before}{key}": value}
    return out


def _named(start: str) -> str:
    """
    >>> _named("/home/ann/runs/pretrain/mini/model"), _named("owner/bert")
    ('pretrain/mini', 'owner/bert')
    """
    return "/".join([part for part in Path(start).parts if part != "model"][-2:])


def _steps(plan: dict[str, Any]) -> int | None:
    with suppress(KeyError, TypeError, IndexError):
        last = plan["stretches"][-1]
        if type(last["start"]) is int and type(last["steps"]) is int:
            return last["start"] + last["steps"]
    return None


def _last(events: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The numbers of the last event of a kind."""
    found: dict[str, Any] = next((e for e in reversed(events) if e.get("event") == kind), {})
    return {key: value for key, value in found.items() if isinstance(value, int | float) and key != "event"}


def _score(results: dict[str, Any]) -> dict[str, Any] | None:
    """What a finished run reached on the test records, or on the dev records where there are none.

    >>> _score({"metric": "accuracy", "dev": {"accuracy": 0.5}, "test": {"accuracy": 0.75}})
    {'on': 'test', 'metric': 'accuracy', 'value': 0.75}
    >>> _score({"metric": "accuracy", "dev": []})
    """
    metric = results.get("metric")
    for on in ("test", "dev"):
        scores = results.get(on)
        value = scores.get(metric) if isinstance(scores, dict) and isinstance(metric, str) else None
        if isinstance(value, int | float) and math.isfinite(value):
            return {"on": on, "metric": metric, "value": value}
    return None


def _stamp(path: Path) -> tuple[float, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0.0, 0)
    return (stat.st_mtime, stat.st_size)
