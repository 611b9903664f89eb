"""How the directories in `old/` were created, with the code of commit 617e772. Kept for reference: later code need not run it.

PYTHONPATH=tests python -m golden.make_old

common.tar.gz       the training files, a token store, a pre-trained model, recipes
unfinished.tar.gz   runs that were killed after a checkpoint: the log extends beyond the checkpoint
finished.tar.gz     a finished run of each kind
models.tar.gz       a model directory of each task and each family, and an export
expected.json       values of that code: losses and results of the resumed runs, `info --json`, predictions
"""

import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
from golden import old_folders, recordings
from golden.recordings import ALWAYS, TASKS, command

from unmask import api
from unmask.console import Console

SMALL = ["model.layers=1", "model.hidden=16", "model.heads=2", "model.intermediate=32", "model.max_positions=48"]
TEXT = [*recordings.TEXT, "train.checkpoint_every=4"]
TASK = [*ALWAYS, "train.evaluations=2", "train.checkpoint_every=4"]
FAMILIES: dict[str, tuple[list[str], int]] = {
    "albert-mini": ([*SMALL, "model.embedding=8"], 70),
    "bart-mini": ([*SMALL, "model.decoder_layers=1"], 300),
    "bert-tiny": (SMALL, 80),
    "cbow-mini": (["model.hidden=16"], 80),
    "distilbert-mini": (SMALL, 80),
    "electra-mini": ([*SMALL, "model.embedding=8", "model.generator=0.5"], 80),
    "elmo-mini": (["model.layers=1", "model.hidden=16", "model.intermediate=16"], 80),
    "gpt-mini": ([text for text in SMALL if "intermediate" not in text], 300),
    "gpt2-mini": (SMALL, 300),
    "modernbert-mini": (SMALL, 80),
    "roberta-mini": (SMALL, 300),
    "t5-mini": ([*(text for text in SMALL if "positions" not in text), "model.decoder_layers=1"], 170),
    "xlm-roberta-mini": (SMALL, 70),
}
MODELS: dict[str, dict[str, Any]] = {
    "classify": {"file": "one"},
    "several": {"file": "several", "sets": ["task.classify.target=several"]},
    "number": {"file": "number", "sets": ["task.classify.target=number"]},
    "pair": {"file": "pair"},
    "tag": {"file": "tag"},
    "answer": {"file": "answer"},
    "choose": {"file": "choose"},
    "generate": {"file": "generate", "task": "generate", "model": "families/t5-mini", "sets": ["task.generate.longest=6"]},
    "continue": {"file": "generate", "task": "generate", "model": "families/gpt2-mini", "sets": ["task.generate.longest=6"]},
    "embed": {"file": "embed", "task": "embed", "sets": ["task.embed.sizes=[8]"]},
    "rank": {"file": "rank"},
}  # fmt: skip
RECIPE = {
    "seed": 4,
    "preset": "bert-mini",
    "model": {"layers": 2, "hidden": 32, "heads": 2, "intermediate": 64, "dropout": 0.2},
    "objective": "mlm+nsp",
    "data": {"corpus": ["corpus.txt"], "documents": "block", "language": "en", "heldout": 0.1, "workers": 1, "mix": ["other.txt:0.25"]},
    "tokenizer": {"kind": "wordpiece", "vocab_size": 80, "lowercase": True, "special_tokens": ["[USER]"], "min_frequency": 1},
    "mlm": {"rate": "0.3:0.15", "mask": 0.7, "random": 0.2, "keep": 0.1, "count": "drawn", "masking": "static", "copies": 2, "unit": "word"},
    "span": {"mean": 2.0},
    "train": {"steps": 6, "batch": 8, "micro_batch": 4, "length": "16:0.5,32:0.5", "optimizer": "adamw", "lr": 0.001, "betas": [0.9, 0.95],
              "weight_decay": 0.1, "clip": 0.5, "schedule": "wsd", "warmup": 2, "decay": 0.3, "eval_every": 3, "keep": 2, "threads": 1, "embeddings": "random"},
}  # fmt: skip
TASK_RECIPE = {
    "seed": 4,
    "start": "bert/model",
    "task": {
        "kind": "classify", "train": ["one.train.jsonl"], "dev": ["one.dev.jsonl"], "test": ["one.test.jsonl"], "columns": {"text": "text", "label": 2},
        "labels": ["pos", "neg"], "length": 32, "long": "first", "hide": 0.1, "aux": "mlm:0.1", "patience": 3, "margin": 0.5, "classify": {"balance": "on"},
    },
    "train": {"epochs": 2, "batch": 8, "lr": 0.01, "layer_decay": 0.9, "warmup": 0.1, "threads": 1, "evaluations": 3},
}  # fmt: skip


class Killed(BaseException):
    """Not handled anywhere: the files of the run stay as they were."""


@contextmanager
def kill_after(after: int) -> Iterator[None]:
    """Kill a run after `after` training steps, counted over all seeds or trials."""
    left = after

    @contextmanager
    def bar(self: Console, title: str) -> Iterator[Callable[..., None]]:
        def update(*_: Any) -> None:
            nonlocal left
            left -= title in ("pretrain", "finetune")
            if not left:
                raise Killed

        yield update

    with mock.patch.object(Console, "bar", bar), suppress(Killed):
        yield
        raise SystemExit("the run was not killed")


def pretrain(out: str, preset: str) -> None:
    sets, size = FAMILIES[preset]
    api.pretrain("corpus.txt", out=out, preset=preset, steps=12, batch=8, length=32, seed=11, vocab_size=size, sets=[*TEXT, *sets])  # fmt: skip


def finetune(out: str, file: str, model: str = "bert", sets: list[str] | None = None, **more: Any) -> None:
    ending = "conll" if file == "tag" else "jsonl"
    files = {part: f"{file}.{part}.{ending}" for part in ("train", "dev", "test")}
    settings = {"steps": 14, "batch": 8, "lr": 1e-2, "seed": 3} | files | more
    api.finetune(model, out=out, sets=[*TASK, *(sets or [])], **settings)


def finetune_tasks(out: str) -> None:
    train = {"steps": 14, "batch": 8, "lr": 1e-2, "evaluations": 2, "threads": 1, "checkpoint_every": 4}
    recipe = {"seed": 3, "start": "bert/model", "tasks": TASKS, "train": train}
    api.finetune(recipe=recipe, out=out)


def tune(out: str) -> None:
    files = {"train": "one.train.jsonl", "dev": "one.dev.jsonl", "test": "one.test.jsonl"}
    api.tune("bert", trials=3, search=["lr", "batch"], out=out, steps=6, batch=8, lr=1e-2, seed=3, sets=[*TASK[:-1], "train.checkpoint_every=2"], **files)  # fmt: skip


RUNS: dict[str, tuple[Callable[[str], None], int]] = {  # kind → how to train it, and the step after which it is killed
    "pretrain": (lambda out: pretrain(out, "bert-tiny"), 10),
    "classify": (lambda out: finetune(out, "one"), 11),
    "tag": (lambda out: finetune(out, "tag", aux="mlm:0.1"), 11),
    "seeds": (lambda out: finetune(out, "one", seeds=2), 14 + 10),
    "tasks": (finetune_tasks, 11),
    "tune": (tune, 6 + 5),
}


def train_all() -> None:
    pretrain("bert", "bert-tiny")
    command("prepare", "corpus.txt", "--tokenizer", "bert/model", "--out", "store", "--quiet")
    Path("recipe.yaml").write_text(json.dumps(RECIPE, indent=1))
    Path("task.yaml").write_text(json.dumps(TASK_RECIPE, indent=1))
    for kind, (run, steps) in RUNS.items():
        with kill_after(steps):
            run(f"unfinished/{kind}")
        if kind != "tag":
            run(f"finished/{kind}")
    for family in FAMILIES:
        pretrain(f"families/{family}", family)
    for name, settings in MODELS.items():
        finetune(f"made/{name}", **settings)
    api.export("made/classify", out="models/onnx")
    for folder in (*Path("families").iterdir(), *Path("made").iterdir()):
        shutil.copytree(folder / "model", f"models/{folder.name}")


def remove_machine_values(folder: Path) -> None:
    """Remove machine-dependent values: make paths relative, clear lock owners and source locations in graphs. Delete checkpoints of finished runs."""
    for file in folder.rglob("*.onnx"):
        graph = onnx.load(file)
        for node in graph.graph.node:
            del node.metadata_props[:]
        onnx.save(graph, file)
    for file in [*folder.rglob("lock"), *folder.rglob("used")]:
        file.write_text("")
    for file in folder.rglob("environment.json"):
        environment = json.loads(file.read_text())
        file.write_text(json.dumps(environment | {"cpu": "x86_64", "platform": "Linux"}, indent=1) + "\n")
    for checkpoints in folder.glob("finished/**/checkpoints"):
        shutil.rmtree(checkpoints)
    for file in (file for file in folder.rglob("*") if file.is_file()):
        content = file.read_bytes()
        if str(folder).encode() in content:
            assert file.name in ("data.json", "meta.json") and "checkpoints" not in file.parts, file
            file.write_bytes(content.replace(f"{folder}/".encode(), b""))


def pack(folder: Path, name: str, parts: list[str]) -> None:
    def plain(about: tarfile.TarInfo) -> tarfile.TarInfo:
        about.uid = about.gid = about.mtime = 0
        about.uname = about.gname = ""
        return about

    with tarfile.open(old_folders.FOLDER / f"{name}.tar.gz", "w:gz") as archive:
        for part in parts:
            archive.add(folder / part, part, filter=plain)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, recordings.working_directory(Path(folder)):
        train_all()
        root = Path.cwd()
        shutil.copytree("bert/model", "kept")
        shutil.rmtree("bert")
        shutil.move("kept", "bert/model")
        remove_machine_values(root)
        old_folders.FOLDER.mkdir(exist_ok=True)
        files = [file.name for file in root.iterdir() if file.is_file()]
        stores = sorted({str(Path(json.loads(f.read_text())["store"])) for f in root.glob("*/pretrain/data.json")})
        pack(root, "common", [*sorted(files), "bert", "store", *stores])
        for name in ("unfinished", "finished", "models"):
            pack(root, name, [name])
    with tempfile.TemporaryDirectory() as folder:
        old_folders.unpack(Path(folder))
        with recordings.working_directory(Path(folder)):
            values = old_folders.all_values()
    (old_folders.FOLDER / "expected.json").write_text(recordings.text_of(values), "utf-8")
    sys.stdout.write(f"{old_folders.FOLDER} written\n")


if __name__ == "__main__":
    main()
