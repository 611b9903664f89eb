"""Extensions of third-party packages work like built-in ones, and a broken package breaks nothing else."""

import sys
import warnings

import numpy as np
import pytest
import torch
from third_party import installed

from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference.torch_engine import TorchEngine
from unmask.labels.detect_task import pick_task
from unmask.labels.records import open_source
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.head_spec import HEADS
from unmask.model.model import Model
from unmask.recipe import TaskRecipe
from unmask.registry import OBJECTIVES, TASKS

HEAD = """
from torch import nn
from unmask.model.head_spec import HeadSpec

ROW = HeadSpec("strangers:Row", "row", requires=("pooler",), labeled=True)
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
def test_third_party_head_is_built_saved_and_loaded(tmp_path, family):
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
        assert HEADS["mlm"].module == "unmask.model.heads:MLM", "built-in names take precedence"
    assert "theirs" not in HEADS
    assert hf.load(tmp_path / "model").unexpected, "without the package, the head is reported as unexpected"


FAMILY_HEADS = {"bert-tiny": ["mlm"], "distilbert-mini": ["mlm"], "gpt2-mini": ["lm"]}


def test_broken_package_raises_and_breaks_nothing_else(tmp_path):
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
            assert pick_task(TaskRecipe(), [source]).name == "classify", "the warning is given once"


def test_head_specs_do_not_import_torch():
    import subprocess

    code = "import sys; from unmask.model.head_spec import HEADS; print(HEADS['tag'].labeled, 'torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["True", "False"]


def test_every_head_spec_builds_a_module():
    config = preset("bert-tiny", vocab_size=50, labels=("a", "b"))
    with torch.device("meta"):
        for name in HEADS:
            assert isinstance(HEADS[name].build(config), torch.nn.Module)
