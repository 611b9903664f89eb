"""Minimal models of every family and head, and their exports."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from near import near

from unmask.model import hf
from unmask.model.config import change, preset, presets
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer

TEXTS = ["a cab , a cab !", "the list is sorted", "今天天气很好"]
LABELS = ("no", "perhaps", "yes")
SMALL = {"hidden": 32, "heads": 2, "layers": 1, "intermediate": 48, "max_positions": 320}
LOCAL = {"modernbert": {"layers": 2, "global_every": 2, "local_window": 16}}  # windows much shorter than the sequences


def smallest(family: str) -> str:
    return next(name for name, values in presets().items() if values["family"] == family)


def new_model(family: str, heads: tuple[str, ...], vocab_size: int = 60, **more: int) -> Model:
    """Return a model with perturbed initial weights, so that no bias is zero and logits differ."""
    import torch

    shape = SMALL | LOCAL.get(family, {}) | more
    if preset(smallest(family)).decoder_layers:
        shape["decoder_layers"] = shape["layers"]
    free = {name: value for name, value in shape.items() if name not in FAMILIES[family].fixed}
    config = preset(smallest(family), vocab_size=vocab_size, **free)
    if {"classify", "tag"} & set(heads):
        config = change(config, labels=LABELS)
    model = Model(config, heads).init(0).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.05 * torch.randn_like(value))
    return model


def combinations() -> list[tuple[str, tuple[str, ...]]]:
    """Return each exportable family × the heads of each of its transformers classes, without duplicates."""
    pairs = []
    for family, about in FAMILIES.working():
        config = preset(smallest(family))
        if config.encoder == "transformer":
            classes = dict.fromkeys(about.architectures.values())
            pairs += [(family, heads) for heads in classes if "lm" in heads or not config.decoder_layers]
    return pairs


def new_folder(folder: Path, family: str, heads: tuple[str, ...], **more: int) -> Path:
    tokenizer = Tokenizer.train(TEXTS, TokenizerRecipe(type="char"))
    hf.save(new_model(family, heads, tokenizer.size, **more), folder, tokenizer)
    return folder


def sentences(file: Path, folder: Path, count: int = 60) -> Path:
    """Write a labeled file whose labels are the model's own predictions."""
    import csv

    import unmask

    texts = random_texts(count)
    answers = unmask.load(folder, backend="torch").predict(texts)
    with open(file, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label"])
        writer.writerows((text, answer["label"]) for text, answer in zip(texts, answers))
    return file


def classifier(folder: Path) -> tuple[Path, Path]:
    """Fine-tune a sentiment classifier. Return its directory and a labeled test file."""
    from runs import tiny

    import unmask

    train, test = tiny.labeled(folder / "train.csv", 120), tiny.labeled(folder / "test.csv", 60, first=500)
    base = tiny.model_folder(folder / "base")
    run = unmask.finetune(
        base, train=[train], epochs=6, batch_size=8, lr=3e-3, out=folder / "run", overrides=["train.threads=1"]
    )
    return run.model, test


def spoil(folder: Path, out: Path) -> Path:
    """Copy the model with one unused activation scaled by 1,000, an outlier that breaks int8 quantization."""
    import torch

    shutil.copytree(folder, out)
    model: Any = hf.load(out).model
    with torch.no_grad():
        model.heads["pooler"].dense.weight[:, 0] = 0.0
        model.encoder.layers[-1].mlp_norm.bias[0] = 3000.0
    hf.save(model, out, Tokenizer.load(out))
    return out


def random_texts(count: int) -> list[str]:
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("acbthelisord "), 12)).strip() for _ in range(count)]


def assert_same(ours: Any, theirs: Any) -> None:
    """Assert equality up to rounding of numbers."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert_same(ours[key], theirs[key])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            assert_same(a, b)
    elif isinstance(ours, float):
        assert ours == near(theirs, 1e-4)
    else:
        assert ours == theirs
