"""A model folder says which heads it has and which not; nothing answers with a head that was drawn at random."""

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
    """A bare BERT: no heads but the pooler."""
    tokenizer = Tokenizer.train(["a cab, a cab"], TokenizerRecipe(type="char"))
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size, hidden=32, intermediate=64), ["pooler"]).init(0)
    hf.save(model, tmp_path, tokenizer)
    return tmp_path


def test_info_says_what_is_there_and_what_is_not(folder):
    found = unmask.info(folder)
    assert (found["kind"], found["family"], found["architecture"]) == ("model", "bert", "BertModel")
    assert found["heads"] == ["pooler"]
    assert {"mlm", "nsp", "classify"} <= set(found["missing_heads"])
    assert found["tokenizer"]["special"]["mask"] == "[MASK]"
    text = dict(description_lines(found))
    assert "mlm" in text["missing heads"]
    (folder / "tokenizer.json").unlink()
    assert "no tokenizer in" in unmask.info(folder)["tokenizer"]["error"]


def test_on_the_command_line(folder):
    out = CliRunner().invoke(app, ["info", str(folder), "--json"])
    assert json.loads(out.stdout)["heads"] == ["pooler"]
    assert "missing heads" in CliRunner().invoke(app, ["info", str(folder)]).stdout


def test_no_head_is_drawn_in_silence(folder):
    predictor = unmask.load(folder)
    with pytest.raises(UserError, match="cannot fill a mask: its heads are pooler"):
        predictor.fill("a [MASK]")
    with pytest.raises(UserError, match=r"cannot .*: its heads are pooler"):
        predictor.next_sentence("a", "cab")
