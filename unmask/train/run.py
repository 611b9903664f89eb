"""Run: a folder `runs/<verb>/<name>-<n>/` with everything a run was told, did and made. Never overwritten.

run.json  recipe.yaml  environment.json  plan.json  log.jsonl  checkpoints/  model/  curves.png  report.html
"""

import fcntl
import os
import platform
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unmask.errors import UserError, command
from unmask.files import open_regular, parse_json, read_json, read_object, write_json, write_lines
from unmask.json_checks import STRING, check
from unmask.recipe import Recipe
from unmask.train.run_files import current_keys

MAX_LINE_BYTES = 16 << 20  # bytes of a line of the log
KIND_FILE = "run.json"  # {"version": 1, "kind": "pretrain"}
COMMANDS = {"seeds": "finetune"}  # kinds of runs whose command is called otherwise


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
            taken = [
                int(m[1]) for p in base.glob(f"{name}-*") if (m := re.fullmatch(rf"{re.escape(name)}-(\d+)", p.name))
            ]
            try:
                return cls._make(base / f"{name}-{max(taken, default=0) + 1}", exist_ok=False)
            except FileExistsError:
                continue

    @classmethod
    def ensure_new(cls, out: str | Path) -> None:
        path = Path(out)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            name = cls(path).command_name()
            resume = f", or resume it: {command(f'unmask {name} --resume', path)}" if name else ""
            raise UserError(f"{path} already exists; runs are never overwritten", hint=f"use another --out{resume}")

    def kind(self) -> str:
        """What the folder holds: "pretrain", "finetune", "seeds", "tune", "quickstart", as run.json says; "" when it is no run."""
        if (self.path / KIND_FILE).exists():
            kind = read_object(self.path / KIND_FILE).get("kind")
            check(self.path / KIND_FILE, "kind", kind, STRING)
            return str(kind)
        return self._infer_kind()

    def _infer_kind(self) -> str:
        """The kind of a run that was begun before there was a run.json, by its other files."""
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
        # the classifiers of an old quickstart name no files, but a kind of task
        labelled = values.get("tasks") or task.get("train") or task.get("name", "auto") != "auto"
        return "finetune" if labelled or (self.path / self.task_state_file).exists() else "pretrain"

    def command_name(self) -> str:
        """The command whose --resume goes on with the run; "" when it is no run."""
        kind = self.kind()
        return COMMANDS.get(kind, kind)

    def resume_command(self) -> str:
        """The command that goes on with the run; "" as long as not everything that it needs is written."""
        return command(f"unmask {self.command_name()} --resume", self.path) if self.is_resumable() else ""

    def is_resumable(self) -> bool:
        """Whether everything is written that going on needs: the recipe is the last of it."""
        known = any((self.path / name).is_file() for name in (KIND_FILE, "data.json", "tune.json"))
        return (self.path / "recipe.yaml").is_file() and (known or self.kind() == "seeds")

    def is_finished(self) -> bool:
        """Nothing is left to train or to judge. Before there was a run.json, pre-training wrote no results, but the end of its log."""
        if (self.path / "results.json").exists() or (self.path / KIND_FILE).exists():
            return (self.path / "results.json").exists()
        return self.kind() == "pretrain" and any(e.get("event") == "end" for e in self.events())

    def write_start_files(self, kind: str, recipe: Recipe, files: Mapping[str, Any]) -> None:
        """What a resumed run has to find, written before the first step."""
        self.write_kind(kind)
        self.write_json("environment.json", environment())
        for name, value in files.items():
            self.write_json(name, value)
        self.write_recipe(recipe)

    def results(self) -> dict[str, Any]:
        """results.json; {} of a pre-training run of a time when it had none."""
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
            raise UserError(f"cannot make the run folder {path}: {error.strerror}", hint="another --out") from None
        return cls(path)

    @classmethod
    def open(cls, path: str | Path) -> "Run":
        run = cls(path)
        if not (run.path / "recipe.yaml").exists():
            raise UserError(f"{path} is not a run folder (no recipe.yaml in it)", hint="ls runs/*/ shows yours")
        return run

    def recipe(self) -> Recipe:
        return Recipe.build(Recipe.read(self.path / "recipe.yaml"))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """One process at a time writes into the folder. The lock ends with the process, however it ends.

        If something fails because the folder was deleted or moved meanwhile, the error says so.
        """
        try:
            # A link or a pipe in a folder of somebody else's would have another file emptied, or wait for ever.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.fdopen(os.open(self.path / "lock", flags, 0o666), "a+")
        except OSError as error:
            why = error.strerror or "lock is not a regular file"
            raise UserError(f"cannot write into {self.path}: {why}", hint="another --out") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            owner = handle.read().strip() or "another process"
            handle.close()
            raise UserError(
                f"{self.path} is in use by {owner}", hint="wait until it ends, or give another folder with --out"
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
        """UserError when the folder was deleted or moved. Writing on would recreate half of it."""
        if not (self.path / "lock" if self.locked else self.path).exists():
            raise UserError(
                f"{self.path} was deleted or moved while a run was writing into it",
                hint="put it back and continue with --resume, or begin again with another --out",
            ) from None

    def in_use(self) -> bool:
        """Does a process hold the lock? A shared one is tried and let go at once."""
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
        """Name of the file with the state of the run's tasks; version 0.1 called it learnt.json."""
        return "learnt.json" if (self.path / "learnt.json").exists() else "task_state.json"

    def read_json(self, name: str) -> Any:
        return current_keys(name, read_json(self.path / name, finite=False))

    def pin_checksum(self, name: str, found: str, is_main: bool) -> None:
        """Note the checksum of what the run reads beside its own files; when it goes on, it has to be the same."""
        known = self.read_json("data.json") if (self.path / "data.json").exists() else {}
        files = known.get("files", {})
        if files.get(name, found) != found:
            raise UserError(
                f"{name} has changed since {self.path} was begun",
                hint="put back what it was, or a new run with another --out",
            )
        if is_main and name not in files:
            self.write_json("data.json", known | {"files": files | {name: found}})

    def events(self) -> list[dict[str, Any]]:
        """The log's lines; a last line cut short by a kill is passed over."""
        out: list[dict[str, Any]] = []
        if not self.log.exists():
            return out
        with open_regular(self.log) as handle:
            # bytes, and b"\n" alone: a kill may cut a character in two, and a string may hold other line separators
            while line := handle.readline(MAX_LINE_BYTES):
                if not line.strip():
                    continue
                try:
                    event = parse_json(line, finite=False)
                except ValueError:
                    break
                if not isinstance(event, dict):
                    break
                out.append(event)
        return out

    def truncate_log(self, step: int | None) -> None:
        """Drop what the log says of steps after `step`, which are about to be done again; None: of everything."""
        events = [] if step is None else self.events()
        kept = [e for e in events if e.get("step", 0) <= (step or 0) and e.get("event") != "end"]
        write_lines(self.log, kept)


def environment() -> dict[str, Any]:
    """What a figure of this run depends on: versions, threads, CPU."""
    import torch

    def installed(name: str) -> str | None:
        try:
            return version(name)
        except PackageNotFoundError:
            return None

    cpu = platform.processor() or platform.machine()
    try:
        info = Path("/proc/cpuinfo").read_text()
        cpu = next((line.split(":", 1)[1].strip() for line in info.splitlines() if line.startswith("model name")), cpu)
    except OSError:
        pass
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
