"""Run folder `runs/<command>/<name>-<n>/`: recipe, logs, checkpoints, model and report of a run. Never overwritten.

run.json  recipe.yaml  environment.json  plan.json  log.jsonl  checkpoints/  model/  curves.png  report.html
"""

import fcntl
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command
from unmask.files import open_regular, parse_json, read_json, read_object, write_json, write_lines
from unmask.json_checks import STRING, check
from unmask.recipe import Recipe
from unmask.train.run_files import TASK_STATE_FILES, current_keys

MAX_LINE_BYTES = 16 << 20  # of log.jsonl
KIND_FILE = "run.json"  # {"version": 1, "kind": "pretrain"}
COMMANDS = {"seeds": "finetune"}  # kinds of runs whose command has another name


class Run:
    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.model = self.path / "model"
        self.checkpoints = self.path / "checkpoints"
        self.log = self.path / "log.jsonl"
        self.locked = False  # by this object

    @classmethod
    def create(cls, out: str | Path | None, parent: str, name: str) -> "Run":
        """Create `out`, or `runs/<parent>/<name>-<n>` with the next free number."""
        if out is not None:
            cls.ensure_new(out)
            return cls._make(Path(out))
        base = Path("runs") / parent
        while True:  # another run may take the number first
            numbers = [
                int(m[1]) for p in base.glob(f"{name}-*") if (m := re.fullmatch(rf"{re.escape(name)}-(\d+)", p.name))
            ]
            with suppress(FileExistsError):
                return cls._make(base / f"{name}-{max(numbers, default=0) + 1}", exist_ok=False)

    @classmethod
    def ensure_new(cls, out: str | Path) -> None:
        path = Path(out)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            name = cls(path).command_name()
            resume = f", or resume it: {command(f'unmask {name} --resume', path)}" if name else ""
            raise UserError(
                f"{path} already exists; runs are never overwritten", hint=f"choose a different --out{resume}"
            )

    def kind(self) -> str:
        """Return the kind in run.json: "pretrain", "finetune", "seeds", "tune" or "quickstart"; "" if this is not a run."""
        if (self.path / KIND_FILE).exists():
            kind = read_object(self.path / KIND_FILE).get("kind")
            check(self.path / KIND_FILE, "kind", kind, STRING)
            return str(kind)
        return self._infer_kind()

    def _infer_kind(self) -> str:
        """Return the kind of an old run without a run.json, judging from its other files."""
        if (self.path / "tune.json").exists():
            return "tune"
        try:
            values = Recipe.read(self.path / "recipe.yaml")
        except UserError:
            return ""
        task = values.get("task")
        task = task if isinstance(task, dict) else {}
        seeds = task.get("num_seeds")
        if isinstance(seeds, int) and seeds > 1:
            return "seeds"
        # recipes of the classifiers of an old quickstart have a task name, but no files
        has_task = values.get("tasks") or task.get("train") or task.get("name", "auto") != "auto"
        return "finetune" if has_task or (self.path / self.task_state_file).exists() else "pretrain"

    def command_name(self) -> str:
        """Return the command whose --resume continues the run; "" if this is not a run."""
        kind = self.kind()
        return COMMANDS.get(kind, kind)

    def resume_command(self) -> str:
        """Return the command that continues the run; "" while files that it needs are missing."""
        return command(f"unmask {self.command_name()} --resume", self.path) if self.is_resumable() else ""

    def is_resumable(self) -> bool:
        """Return whether all files that resuming needs are written. recipe.yaml is written last."""
        has_start_file = any((self.path / name).is_file() for name in (KIND_FILE, "data.json", "tune.json"))
        return (self.path / "recipe.yaml").is_file() and (has_start_file or self.kind() == "seeds")

    def is_finished(self) -> bool:
        """Return whether training and evaluation are complete.

        Old pre-training runs, which have no run.json, wrote no results, but an `end` event in the log.
        """
        if (self.path / "results.json").exists() or (self.path / KIND_FILE).exists():
            return (self.path / "results.json").exists()
        return self.kind() == "pretrain" and any(e.get("event") == "end" for e in self.events())

    def write_start_files(self, kind: str, recipe: Recipe, files: Mapping[str, Any]) -> None:
        """Write the files that resuming needs, before the first step."""
        self.write_kind(kind)
        self.write_json("environment.json", environment())
        for name, value in files.items():
            self.write_json(name, value)
        self.write_recipe(recipe)

    def results(self) -> dict[str, Any]:
        """Return the content of results.json; {} if there is none, as in old pre-training runs."""
        return self.read_json("results.json") if (self.path / "results.json").exists() else {}

    def write_recipe(self, recipe: Recipe) -> None:
        recipe.write(self.path / "recipe.yaml")

    @classmethod
    def _make(cls, path: Path, exist_ok: bool = True) -> "Run":
        try:
            path.mkdir(parents=True, exist_ok=exist_ok)
        except FileExistsError:
            raise
        except OSError as error:
            raise UserError(
                f"cannot create the run folder {path}: {error.strerror}", hint="choose a different --out"
            ) from None
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        run = cls(path)
        if not (run.path / "recipe.yaml").exists():
            message = f"no such run folder: {path}"
            if run.path.exists():
                message = f"{path} is not a run folder: it has no recipe.yaml"
            expected = "a folder that unmask pretrain, finetune, tune or quickstart wrote"
            raise UserError(message, expected=expected, hint="list your runs with: ls -d runs/*/*/")
        return run

    def recipe(self) -> Recipe:
        return Recipe.build(Recipe.read(self.path / "recipe.yaml"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Allow one process at a time to write into the folder. The lock is released when the process ends, even by a kill.

        If the folder is deleted or moved while it is locked, errors are replaced by one that says so.
        """
        try:
            # In an untrusted folder, following a link would truncate another file, and opening a pipe would block forever.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.fdopen(os.open(self.path / "lock", flags, 0o666), "a+")
        except OSError as error:
            reason = error.strerror or "lock is not a regular file"
            raise UserError(f"cannot write into {self.path}: {reason}", hint="choose a different --out") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            owner = handle.read().strip() or "another process"
            handle.close()
            raise UserError(
                f"{self.path} is in use by {owner}", hint="wait until it ends, or choose a different --out"
            ) from None
        try:
            handle.truncate(0)
            handle.write(f"process {os.getpid()} on {platform.node()}")
            handle.flush()
            self.locked = True
            yield
        except (OSError, UserError):
            self.ensure_exists()
            raise
        finally:
            self.locked = False
            handle.close()

    def ensure_exists(self) -> None:
        """Raise a UserError if the folder was deleted or moved. Otherwise further writes would recreate part of it."""
        if not (self.path / "lock" if self.locked else self.path).exists():
            raise UserError(
                f"{self.path} was deleted or moved while a run was writing into it",
                hint="restore the folder and continue with --resume, or start a new run with a different --out",
            ) from None

    def in_use(self) -> bool:
        """Return whether a process holds the lock, by trying to take a shared one."""
        try:
            with open_regular(self.path / "lock") as handle:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except (OSError, UserError):  # never locked, or a file system without locks
            pass
        return False

    def write_json(self, name: str, value: Any) -> None:
        write_json(self.path / name, value)

    def write_kind(self, kind: str) -> None:
        self.write_json(KIND_FILE, {"version": 1, "kind": kind})

    @property
    def task_state_file(self) -> str:
        """Name of the file with the state of the run's tasks."""
        new, old = TASK_STATE_FILES
        return old if (self.path / old).exists() else new

    def read_json(self, name: str) -> Any:
        return current_keys(name, read_json(self.path / name, finite=False))

    def pin_checksum(self, name: str, checksum: str, is_main: bool) -> None:
        """Record the checksum of an external file in data.json; on resume, raise a UserError if it differs."""
        data = self.read_json("data.json") if (self.path / "data.json").exists() else {}
        files = data.get("files", {})
        if files.get(name, checksum) != checksum:
            raise UserError(
                f"{name} has changed since the run {self.path} started",
                hint="restore the original, or start a new run with a different --out",
            )
        if is_main and name not in files:
            self.write_json("data.json", data | {"files": files | {name: checksum}})

    def events(self) -> list[dict[str, Any]]:
        """Return the events of the log, without a last line that a kill cut short."""
        events: list[dict[str, Any]] = []
        if not self.log.exists():
            return events
        with open_regular(self.log) as handle:
            # Read bytes and split at b"\n" only: a kill may cut a character in two, and strings may contain other line separators.
            while line := handle.readline(MAX_LINE_BYTES):
                if not line.strip():
                    continue
                try:
                    event = parse_json(line, finite=False)
                except ValueError:
                    break
                if not isinstance(event, dict):
                    break
                events.append(event)
        return events

    def truncate_log(self, step: int | None) -> None:
        """Remove the events after `step` from the log, since these steps are repeated. None: remove all events."""
        events = [] if step is None else self.events()
        kept = [e for e in events if e.get("step", 0) <= (step or 0) and e.get("event") != "end"]
        write_lines(self.log, kept)


def environment() -> dict[str, Any]:
    """Return what the results of a run depend on: versions, threads, CPU, GPU."""
    import torch

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    cpu = platform.processor() or platform.machine()
    with suppress(OSError):
        info = Path("/proc/cpuinfo").read_text()
        cpu = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), cpu)
    packages = ("unmask", "torch", "numpy", "tokenizers", "safetensors", "transformers")
    return {
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": {name: installed(name) for name in packages},
    }
