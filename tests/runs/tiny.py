"""A model with a few thousand weights, and labeled files that it learns in seconds."""

import csv
import json
from dataclasses import replace
from pathlib import Path

from unmask.console import Console
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.runs.context import Context
from unmask.runs.finetune import Finetune
from unmask.runs.lifecycle import ResumeState, execute
from unmask.runs.part import Part
from unmask.text.tokenizer import Tokenizer
from unmask.train.fit import EvalCallback
from unmask.train.run import Run
from unmask.train.schedule import Plan, plan


def train(part: Part, out: Path, watch: EvalCallback | None = None, console: Console | None = None) -> Run:
    """Train a prepared part and evaluate it in a new run directory."""

    class Prepared(Finetune):
        def check(self, recipe: Recipe, ctx: Context) -> Recipe:
            return recipe

        def parts(self, recipe: Recipe, ctx: Context, resume_state: ResumeState | None) -> dict[str, Part]:
            return {"": part}

    return execute(Prepared(), part.recipe, replace(Context.single_process(console), eval_callback=watch), out)


def plan_of(recipe: Recipe, length: int, rows: int) -> Plan:
    """Return the plan for fine-tuning on `rows` rows, the longest with `length` tokens."""
    train = recipe.train.model_copy(update={"max_length": max(8, length)})
    return plan(recipe.model_copy(update={"train": train}), {max(8, length): rows})


GOOD, BAD = ("good", "fine", "lovely", "great"), ("bad", "awful", "dull", "poor")
WORDS = [
    "list",
    "tuple",
    "class",
    "method",
    "module",
    "string",
    "number",
    "import",
    "except",
    "return",
    "yield",
    "lambda",
]
NAMES = ("anna", "bob", "carla", "dora")
SHAPE = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64, "max_positions": 64, "dropout": 0.0}


def sentence(n: int) -> tuple[str, str]:
    words, label = (GOOD, "pos") if n % 2 else (BAD, "neg")
    return f"{NAMES[n % 3]} saw a {words[n % 4]} film number {n % 7} .", label


def model_folder(folder: Path, name: str = "bert-tiny", seed: int = 0) -> Path:
    texts = [sentence(n)[0] for n in range(50)]
    tokenizer = Tokenizer.train(texts, TokenizerRecipe(vocab_size=80, min_frequency=1))
    changes = {"attention_dropout": 0.0} if name.startswith("bert") else {}
    model = Model(preset(name, vocab_size=tokenizer.size, **SHAPE, **changes), ("mlm",)).init(seed)
    hf.save(model, folder, tokenizer)
    return folder


def labeled(path: Path, count: int, first: int = 0) -> Path:
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        writer.writerows(sentence(n) for n in range(first, first + count))
    return path


def tagged(path: Path, count: int) -> Path:
    """Write people and films as entities with character offsets."""
    lines = []
    for n in range(count):
        text = sentence(n)[0]
        name, film = text.split()[0], text.index("film")
        spans = [{"start": 0, "end": len(name), "label": "PER"}, {"start": film, "end": film + 4, "label": "WORK"}]
        lines.append({"text": text, "spans": spans})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
