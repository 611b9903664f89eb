"""`info` lists the available and the missing heads of a model; no prediction uses a randomly initialized head."""

import json

import pytest
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.errors import UserError
from unmask.inference.describe import description_lines
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.text.tokenizer import Tokenizer


@pytest.fixture
def folder(tmp_path):
    """A bare BERT, whose only head is the pooler."""
    tokenizer = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(type="char"))
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size, hidden=32, intermediate=64), ["pooler"]).init(0)
    hf.save(model, tmp_path, tokenizer)
    return tmp_path


def test_info_lists_available_and_missing_heads(folder):
    info = unmask.info(folder)
    assert (info["kind"], info["family"], info["architecture"]) == ("model", "bert", "BertModel")
    assert info["heads"] == ["pooler"]
    assert {"mlm", "nsp", "classify"} <= set(info["missing_heads"])
    assert info["tokenizer"]["special"]["mask"] == "[MASK]"
    text = dict(description_lines(info))
    assert "mlm" in text["missing heads"]
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer in" in unmask.info(folder)["tokenizer"]["error"]


def test_info_command(folder):
    out = CliRunner().invoke(app, ["info", str(folder), "--json"])
    assert json.loads(out.stdout)["heads"] == ["pooler"]
    assert "missing heads" in CliRunner().invoke(app, ["info", str(folder)]).stdout


def test_missing_head_raises_instead_of_being_initialized(folder):
    predictor = unmask.load(folder)
    with pytest.raises(UserError, match="cannot fill a mask: its heads are pooler"):
        predictor.fill("a [MASK]")
    with pytest.raises(UserError, match=r"cannot .*: its heads are pooler"):
        predictor.next_sentence("a", "cab")
