"""What a third party's package adds works as what is built in, and a broken package breaks nothing but itself."""

import json
import sys
import warnings

import numpy as np
import pytest
import torch
from third_party import installed

import unmask
from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference.torch_engine import TorchEngine
from unmask.labels.detect_task import pick_task
from unmask.labels.records import open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.families import FAMILIES
from unmask.model.head_spec import HEADS
from unmask.model.model import Model
from unmask.recipe import Recipe, TaskRecipe, TrainRecipe
from unmask.registry import OBJECTIVES, TASKS
from unmask.train.optim import Optimizers

HEAD = """
from torch import nn
from unmask.model.head_spec import HeadSpec

ROW = HeadSpec("strangers:Row", "row", needs=("pooler",), labelled=True)
WORD = HeadSpec("strangers:Row", "tokens")

class Row(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.out = nn.Linear(config.hidden, len(config.labels))

    def forward(self, states):
        return self.out(states)
"""
BROKEN = {"broken": "import a_package_that_is_not_there\n"}


@pytest.mark.parametrize("family", ["bert-tiny", "distilbert-mini", "gpt2-mini"])
def test_a_head_is_built_saved_and_loaded(tmp_path, family):
    points = {"heads": {"theirs": "strangers:ROW", "words": "strangers:WORD", "mlm": "strangers:ROW"}}
    with installed(tmp_path, {"strangers": HEAD}, points):
        config = preset(family, vocab_size=50, labels=("a", "b", "c"))
        own = FAMILY_HEADS[family]
        model = Model(config, ["theirs", "words", *own]).init(0).eval()
        assert set(model.heads) == {"pooler", "theirs", "words", *own}
        rows = [Example(np.array([2, 7, 9, 3])), Example(np.array([2, 3]))]
        before = [TorchEngine(model, "cpu").logits(head, rows) for head in ("theirs", "words")]
        assert [v.shape for v in before[0] + before[1]] == [(3,), (3,), (4, 3), (2, 3)]
        hf.save(model, tmp_path / "model")
        loaded = hf.load(tmp_path / "model")
        assert not loaded.missing and not loaded.unexpected
        assert loaded.config.labels == config.labels
        after = [TorchEngine(loaded.model, "cpu").logits(head, rows) for head in ("theirs", "words")]
        for a, b in zip(before[0] + before[1], after[0] + after[1], strict=True):
            assert np.array_equal(a, b)
        assert HEADS["mlm"].module == "unmask.model.heads:MLM", "a name that is taken stays ours"
    assert "theirs" not in HEADS
    assert hf.load(tmp_path / "model").unexpected, "without the package, the head is said to be unread"


FAMILY_HEADS = {"bert-tiny": ["mlm"], "distilbert-mini": ["mlm"], "gpt2-mini": ["lm"]}


def test_a_broken_package_is_named_and_breaks_nothing_else(tmp_path):
    (tmp_path / "a.csv").write_text("text,label\ngood film,yes\nbad film,no\n")
    with installed(tmp_path, BROKEN, {"tasks": {"theirs": "broken:Theirs"}, "objectives": {"odd": "strangers:Gone"}}):
        with pytest.raises(UserError, match=r"the package strangers is broken: its entry point theirs = broken:Theirs"):
            TASKS["theirs"]
        with pytest.raises(UserError, match=r"odd = strangers:Gone in unmask\.objectives"):
            OBJECTIVES["odd"]
        assert "theirs" in TASKS.names()
        source = open_source(str(tmp_path / "a.csv"), [])
        with pytest.warns(UserWarning, match="the package strangers is broken"):
            assert pick_task(TaskRecipe(), [source]).name == "classify"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert pick_task(TaskRecipe(), [source]).name == "classify", "it is said once"


def test_what_a_head_is_needs_no_torch():
    import subprocess

    code = "import sys; from unmask.model.head_spec import HEADS; print(HEADS['tag'].labelled, 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["True", "False"]


def test_every_head_is_the_module_that_its_value_names():
    config = preset("bert-tiny", vocab_size=50, labels=("a", "b"))
    with torch.device("meta"):
        for name in HEADS:
            assert isinstance(HEADS[name].build(config), torch.nn.Module)


PACKAGE = '''
from dataclasses import replace

import torch

from unmask.model.families import bert
from unmask.model.head_spec import HeadSpec
from unmask.objectives.mlm import MLM

FAMILY = replace(
    bert.FAMILY,
    presets={"theirs-tiny": {**bert.FAMILY.presets["bert-tiny"], "layers": 1, "hidden": 32, "heads": 2, "intermediate": 32}},
    base="theirs-tiny",
)


class Even(torch.nn.Linear):
    def __init__(self, config):
        super().__init__(config.hidden, 2)


EVEN = HeadSpec("package:Even", "tokens")


class Theirs(MLM):
    """Also whether the number of a hidden token is even, which a head of its own says."""

    name = "theirs"
    terms = ("mlm", "even")
    heads = ("mlm", "even")

    def outputs(self, model, hidden, batch):
        found = super().outputs(model, hidden, batch)
        return found | {"even": (model.logits("even", hidden), found["mlm"][1] % 2)}

    def counts(self, batch):
        found = super().counts(batch)
        return found | {"even": found["mlm"]}


class Signs(torch.optim.Optimizer):
    """Steps by the sign of a gradient that is remembered a little, with a number per row beside it."""

    def __init__(self, groups, lr):
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                memory = self.state[p].setdefault("memory", torch.zeros_like(p))
                self.state[p]["rows"] = memory.lerp_(p.grad, 0.5).flatten(1).norm(dim=1) if p.ndim > 1 else None
                p.sub_(memory.sign(), alpha=group["lr"])


def signs(trained, settings):
    lr = settings.lr or 1e-3
    return [Signs([{"params": [t.parameter], "lr": lr * t.share} for t in trained], lr)]


def read(path):
    """Lines of LABEL|TEXT."""
    for line in path.read_text("utf-8").splitlines():
        label, _, text = line.partition("|")
        yield {"label": label, "text": text}
'''
POINTS = {
    "heads": {"even": "package:EVEN"},
    "objectives": {"theirs": "package:Theirs"},
    "families": {"theirs": "package:FAMILY", "bert": "package:FAMILY"},
    "optimizers": {"signs": "package:signs"},
    "formats": {"recs": "package:read", "csv": "package:read"},
}


def test_an_objective_a_family_an_optimizer_and_a_format_take_part_in_a_run(tmp_path):
    texts = [(("good", "bad")[n % 2], f"a {('fine', 'dull')[n % 2]} film about number {n}") for n in range(80)]
    data = tmp_path / "texts.recs"
    data.write_text("".join(f"{label}|{text}\n" for label, text in texts))
    common = {"preset": "theirs-tiny", "objective": "theirs", "batch": 8, "length": 16}
    sets = ["train.optimizer=signs", "train.evaluations=1"]
    with installed(tmp_path, {"package": PACKAGE}, POINTS):
        run = unmask.pretrain(data, steps=4, out=tmp_path / "run", sets=sets, **common)
        config = json.loads((run.model / "config.json").read_text())
        assert (config["model_type"], config["hidden_size"]) == ("theirs", 32)
        assert "other" in str(json.loads((run.path / "data.json").read_text()))
        loaded = hf.load(run.model)
        assert not loaded.missing and not loaded.unexpected
        first = Model(loaded.config, loaded.model.heads).init(0)
        assert not torch.equal(loaded.model.heads["even"].weight, first.heads["even"].weight), "it has learnt"
        model = unmask.load(run.path)
        assert model.engine.config.family == "theirs" and len(model.fill("a fine [MASK]", top=3).masks) == 1
        tuned = unmask.finetune(run.path, train=data, steps=4, batch=8, length=16, out=tmp_path / "tuned", sets=sets)
        assert {answer["label"] for answer in unmask.predict(tuned.path, ["a dull film"])} <= {"good", "bad"}
        assert FAMILIES["bert"].base == "bert-base", "a name that is taken stays ours"
        table = tmp_path / "a.csv"
        table.write_text("text,label\nfine,good\n")
        assert open_source(str(table), []).columns == ["text", "label"]
    with pytest.raises(UserError, match="Input should be 'muon' or 'adamw'"):
        Recipe.build({"train": {"optimizer": "signs"}})
    with pytest.raises(UserError, match="unknown preset 'theirs-tiny'"):
        preset("theirs-tiny")


def test_a_third_party_optimizer_goes_on_where_it_was(tmp_path):
    with installed(tmp_path, {"package": PACKAGE}, POINTS):
        settings = TrainRecipe(optimizer="signs")
        whole, halved = (Model(preset("theirs-tiny", vocab_size=50)).init(0).eval() for _ in range(2))

        def train(model, optimizers, steps):
            for step in steps:
                optimizers.zero_grad()
                ids = torch.tensor([[2, step + 5, 3]])
                model.logits("mlm", model(ids)[0]).square().sum().backward()
                optimizers.step(1.0)

        train(whole, Optimizers(whole, settings, dict(whole.named_parameters())), range(4))
        first = Optimizers(halved, settings, dict(halved.named_parameters()))
        train(halved, first, range(2))
        again = Optimizers(halved, settings, dict(halved.named_parameters()))
        again.load_state(first.state())
        train(halved, again, range(2, 4))
        for a, b in zip(whole.parameters(), halved.parameters(), strict=True):
            assert torch.equal(a, b)
