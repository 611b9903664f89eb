"""Models of every family and head, as small as they can be, and their exports."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unmask.batch import Example
from unmask.data.tokenizer import Tokenizer
from unmask.model import hf
from unmask.model.config import PRESETS, change, preset
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe

TEXTS = ["a cab , a cab !", "the list is sorted", "今天天气很好"]
LABELS = ("no", "perhaps", "yes")
SMALL = {"hidden": 32, "heads": 2, "layers": 1, "intermediate": 48, "max_positions": 320}
LOCAL = {"modernbert": {"layers": 2, "global_every": 2, "local_window": 16}}  # rows far longer than a window


def smallest(family: str) -> str:
    return next(name for name, values in PRESETS.items() if values["family"] == family)


def new_model(family: str, heads: tuple[str, ...], vocab_size: int = 60, **more: int) -> Model:
    """First weights, moved about, so that no bias is zero and no logits are all alike."""
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
    """Every family that is exported × the heads of every class that it has in transformers; none twice."""
    found = []
    for family, about in FAMILIES.items():
        config = preset(smallest(family))
        if config.encoder == "transformer":
            classes = dict.fromkeys(about.architectures.values())
            found += [(family, heads) for heads in classes if "lm" in heads or not config.decoder_layers]
    return found


def new_folder(folder: Path, family: str, heads: tuple[str, ...], **more: int) -> Path:
    tokenizer = Tokenizer.train(TEXTS, TokenizerRecipe(kind="char"))
    hf.save(new_model(family, heads, tokenizer.size, **more), folder, tokenizer)
    return folder


def sentences(file: Path, folder: Path, count: int = 60) -> Path:
    """A labelled file to which the model in the folder gives every right answer: the labels are its own."""
    import csv

    import unmask

    texts = drawn_texts(count)
    answers = unmask.load(folder, backend="torch").predict(texts)
    with open(file, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["text", "label"])
        writer.writerows((text, answer["label"]) for text, answer in zip(texts, answers))
    return file


def classifier(folder: Path, spoilt: bool = False) -> Path:
    """A classifier that gives every label to some text. `spoilt`: one activation, which nothing reads, is far above the others."""
    import torch

    new_folder(folder, "bert", ("pooler", "classify"))
    loaded, tokenizer = hf.load(folder), Tokenizer.load(folder)
    heads: Any = loaded.model.heads
    rows = [Example(np.array(tokenizer.surround(tokenizer.encode(text))[0])) for text in drawn_texts(60)]
    with torch.no_grad():
        if spoilt:
            heads["pooler"].dense.weight[:, 0] = 0.0
            loaded.model.encoder.layers[-1].mlp_norm.bias[0] = 3000.0
        forward = lambda model, batch: model.logits("classify", model.encode(batch), batch.mask)  # noqa: E731
        logits = np.stack(loaded.model.run(forward, rows, tokenizer.pad))
        heads["classify"].out.weight.div_(torch.from_numpy(logits.std(0)).mean())
        heads["classify"].out.bias.sub_(torch.from_numpy(logits.mean(0))).div_(float(logits.std(0).mean()))
    hf.save(loaded.model, folder, tokenizer)
    return folder


def drawn_texts(count: int) -> list[str]:
    draw = np.random.default_rng(0)
    return ["".join(draw.choice(list("acbthelisord "), 12)).strip() for _ in range(count)]


def same(ours: Any, theirs: Any) -> None:
    """Equal but for the last digits of numbers."""
    if isinstance(ours, dict):
        assert ours.keys() == theirs.keys()
        for key in ours:
            same(ours[key], theirs[key])
    elif isinstance(ours, list | tuple):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs):
            same(a, b)
    elif isinstance(ours, float):
        assert ours == pytest.approx(theirs, abs=1e-4, rel=1e-4)
    else:
        assert ours == theirs
