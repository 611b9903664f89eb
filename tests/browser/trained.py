"""A folder of runs and the models that they made: a masked model, a causal one and a model per task, each trained for seconds."""

import json
from pathlib import Path
from typing import Any

from unmask import api

NAMES = ["Ann", "Ben", "Cleo", "Dan", "Eve", "Finn"]
TOWNS = ["Rome", "Paris", "Oslo", "Bonn", "Riga", "Bern"]
SMALL = ["model.hidden=64", "model.heads=4", "model.layers=2", "model.intermediate=128", "model.max_positions=64"]


def fact(n: int) -> tuple[str, str, str]:
    name, town = NAMES[n % 6], TOWNS[(n + n // 6) % 6]
    return f"{name} lives in {town} and works in a {('bank', 'school')[n % 2]} .", name, town


def corpus(path: Path) -> Path:
    """Documents of a few sentences."""
    lines = ["the list is long .", "a river runs through the town .", "the old bank of the river is green ."]
    path.write_text(
        "\n\n".join("\n".join([f"story number {n} .", fact(n)[0], lines[n % 3], fact(n + 1)[0]]) for n in range(600))
    )
    return path


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def labelled(task: str, folder: Path) -> Path:
    rows: list[dict[str, Any]] = []
    for n in range(36):
        text, name, town = fact(n)
        if task == "classify":
            rows.append({"text": text, "label": ("bank", "school")[n % 2]})
        elif task == "tag":
            at = text.index(town)
            spans = [
                {"start": 0, "end": len(name), "label": "PER"},
                {"start": at, "end": at + len(town), "label": "LOC"},
            ]
            rows.append({"text": text, "spans": spans})
        elif task == "answer":
            answers = [{"text": town, "start": text.index(town)}]
            rows.append({"id": str(n), "question": f"where does {name} live ?", "context": text, "answers": answers})
        elif task == "choose":
            rows.append({"text": f"{name} lives in", "choices": [town, "the list", "a river"], "label": 0})
        else:
            others = [fact(n + k)[0] for k in (1, 2, 3)]
            rows.append({"query": f"where does {name} live ?", "positive": text, "negatives": others})
    return write(folder / f"{task}.jsonl", rows)


def train(root: Path) -> Path:
    """runs/ with pretrain/mini, pretrain/gpt and finetune/TASK."""
    text, runs = corpus(root / "text.txt"), root / "runs"
    common = ["train.threads=1", "train.max_eval_examples=32", "train.num_evals=3", *SMALL]
    api.pretrain(
        text, preset="bert-tiny", objective="mlm+nsp", steps=80, batch_size=16, max_length=32,
        out=runs / "pretrain" / "mini", overrides=[*common, "train.lr=3e-3"],
    )  # fmt: skip
    api.pretrain(
        text, preset="gpt2-mini", steps=30, batch_size=16, max_length=32, vocab_size=400, out=runs / "pretrain" / "gpt", overrides=common
    )  # fmt: skip
    for task in ("classify", "tag", "answer", "choose", "rank"):
        api.finetune(
            runs / "pretrain" / "mini", task=task, train=labelled(task, root), steps=30, batch_size=12, lr=3e-3,
            out=runs / "finetune" / task, overrides=["train.threads=1", "train.num_evals=2"],
        )  # fmt: skip
    return runs
