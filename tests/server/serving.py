"""A running server for tests: tiny untrained models with every head, and the real command in a subprocess."""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unmask import api
from unmask.model import hf
from unmask.model.config import preset, with_tokenizer
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.runs.part import prepare
from unmask.text.tokenizer import Tokenizer

TOWNS = ("Rome", "Paris", "Oslo", "Bonn")
FACTS = [f"{name} lives in {town} ." for name in ("Ann", "Ben", "Cleo") for town in TOWNS]
SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "max_positions": 64, "dropout": 0.0}
ROWS = {  # task → name and lines of a file
    "classify": ("rows.jsonl", [{"text": fact, "label": "north" if n % 2 else "south"} for n, fact in enumerate(FACTS)]),
    "pairs": ("rows.jsonl", [{"text": f, "pair": "so", "label": "yes" if n % 2 else "no"} for n, f in enumerate(FACTS)]),
    "tag": ("rows.jsonl", [{"text": f, "spans": [{"start": 0, "end": f.index(" "), "label": "PER"}]} for f in FACTS]),
    "answer": (
        "rows.jsonl",
        [
            {"question": "where ?", "context": f, "answers": [{"text": f.split()[3], "start": f.index(f.split()[3])}]}
            for f in FACTS
        ],
    ),
    "choose": ("rows.jsonl", [{"text": f, "choices": ["so", "no"], "label": n % 2} for n, f in enumerate(FACTS)]),
    "embed": ("rows.jsonl", [{"text": f, "positive": f"so {f}"} for f in FACTS]),
    "rank": ("rows.jsonl", [{"query": "who", "passages": [f, "the sea"], "relevance": [1, 0]} for f in FACTS]),
    "generate": ("rows.jsonl", [{"text": f, "target": "in Rome"} for f in FACTS]),
}  # fmt: skip


def base_model(folder: Path, name: str = "bert-tiny", heads: tuple[str, ...] = ("mlm",), **shape: int) -> Path:
    """An untrained model: its predictions are meaningless but have the right format."""
    settings = with_tokenizer(Recipe.build({"preset": name})).tokenizer
    tokenizer = Tokenizer.train(FACTS * 4, settings.model_copy(update={"vocab_size": 0, "min_frequency": 1}))
    changes = SHAPE | shape | {"vocab_size": tokenizer.size, "pad_id": tokenizer.pad}
    hf.save(Model(preset(name, **changes), heads).init(0), folder, tokenizer)
    return folder


def task_model(folder: Path, start: Path, name: str) -> Path:
    file, rows = ROWS[name]
    folder.mkdir(parents=True)
    (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = "classify" if name == "pairs" else name
    sets = ["train.steps=1", "task.generate.max_new_tokens=8"]
    prepare(api.task_recipe(str(start), task=task, train=folder / file, overrides=sets)).save(folder)
    return folder


@dataclass
class Server:
    url: str
    process: subprocess.Popen
    said: list[str]  # lines of its standard output so far
    complained: list[str]  # of its standard error

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def stop(self, seconds: float = 40) -> int:
        self.process.terminate()
        return self.process.wait(seconds)


@contextmanager
def server(*arguments: str, verb: str = "serve", **environment: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "unmask", verb, *arguments, "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | environment
    ) as process:
        output: list[str] = []
        errors: list[str] = []
        threading.Thread(target=_gather, args=(process.stderr, errors), daemon=True).start()
        try:
            assert process.stdout
            for line in process.stdout:
                output.append(line)
                if "Ctrl-C" in line:
                    break
            else:
                raise AssertionError(f"it did not start: {''.join(output)}{''.join(errors)}")
            match = re.search(r"http://\S+", output[0])
            assert match, output
            threading.Thread(target=_gather, args=(process.stdout, output), daemon=True).start()
            yield Server(match[0], process, output, errors)
        finally:
            if process.poll() is None:
                process.kill()


def _gather(stream, lines: list[str]) -> None:
    for line in stream:
        lines.append(line)
