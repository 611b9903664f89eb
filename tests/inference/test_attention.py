"""Attention weights per layer and head equal those of transformers, and returning them does not change other results."""

import json

import numpy as np
import pytest
import torch
from inference.tiny_models import make_folder, train
from near import gap
from transformers import AutoModel, AutoTokenizer, BertForMaskedLM, ModernBertForMaskedLM
from typer.testing import CliRunner

from unmask.cli import app
from unmask.errors import UserError
from unmask.inference.predictor import Predictor, load
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("bert"), train(), BertForMaskedLM)


def reference_attention(folder, *texts):
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    tokens = AutoTokenizer.from_pretrained(folder)(*texts, return_tensors="pt")
    with torch.inference_mode():
        return torch.stack(model(**tokens, output_attentions=True).attentions)[:, 0].numpy(), tokens


@pytest.mark.parametrize("architecture", [BertForMaskedLM, ModernBertForMaskedLM])
def test_attention_equals_transformers(tmp_path, architecture):
    folder = make_folder(tmp_path, train(), architecture)
    text = "the president of the united lakes spoke to 北京 and the congress"  # longer than the local window of 8
    attention = load(folder).attention(text)
    expected, tokens = reference_attention(folder, text)
    assert attention.weights.shape == expected.shape == (2, 2, len(tokens["input_ids"][0]), len(tokens["input_ids"][0]))
    assert gap(attention.weights, expected) <= 2e-5
    assert gap(attention.weights.sum(-1), 1.0) <= 1e-5
    assert expected.std() > 1e-2  # so that the comparison is meaningful
    assert (attention.weights == 0).any() == (architecture is ModernBertForMaskedLM)  # distant tokens are masked


def test_pair_is_encoded_as_one_sequence(bert):
    attention = load(bert).attention("the lakes", "北京 the")
    expected, _ = reference_attention(bert, "the lakes", "北京 the")
    assert gap(attention.weights, expected) <= 2e-5
    assert [t.segment for t in attention.tokens if t.end > t.start] == sorted(
        t.segment for t in attention.tokens if t.end > t.start
    )
    second = [("北京 the")[t.start : t.end] for t in attention.tokens if t.segment == 1 and t.end > t.start]
    assert second == ["北", "京", "the"]
    assert [t.token for t in attention.tokens if t.start == t.end] == ["[CLS]", "[SEP]", "[SEP]"]
    value = json.loads(json.dumps(attention.as_dict()))
    assert value["weights"][0][0][0][0] == round(float(attention.weights[0, 0, 0, 0]), 4)


@pytest.mark.parametrize(
    "name", ["albert-mini", "roberta-mini", "distilbert-mini", "electra-mini", "gpt2-mini", "t5-mini", "bart-mini"]
)
def test_attention_weights_sum_to_one_for_every_family(name):
    tokenizer = train("bpe")
    shape = {"hidden": 32, "heads": 2, "layers": 2, "max_positions": 32}
    model = Model(
        preset(name, vocab_size=tokenizer.size, **shape), ["lm"] if name[:2] in ("gp", "t5", "ba") else ["mlm"]
    )
    predictor = Predictor(model.init(0), tokenizer, "cpu")
    before = predictor.embed("the lakes")
    attention = predictor.attention("the lakes of the union")
    assert attention.weights.shape[:2] == (2, 2)
    assert gap(attention.weights.sum(-1), 1.0) <= 1e-5
    if model.config.causal:
        assert np.triu(attention.weights[0, 0], 1).max() == 0  # no token attends to a later one
    np.testing.assert_array_equal(predictor.embed("the lakes"), before)


def test_gpt2_attention_equals_transformers(tmp_path):
    from transformers import GPT2Model

    tokenizer = train("bpe")
    shape = {"hidden": 32, "heads": 2, "layers": 2, "max_positions": 32, "initializer_range": 0.4}
    hf.save(Model(preset("gpt2-mini", vocab_size=tokenizer.size, **shape), ["lm"]).init(0), tmp_path, tokenizer)
    ids = torch.tensor([tokenizer.build_inputs_with_special_tokens(tokenizer.encode("the lakes of the union"))[0]])
    model = GPT2Model.from_pretrained(tmp_path, attn_implementation="eager").eval()
    with torch.inference_mode():
        expected = torch.stack(model(ids, output_attentions=True).attentions)[:, 0].numpy()
    attention = load(tmp_path).attention("the lakes of the union")
    assert gap(attention.weights, expected) <= 2e-5


def test_model_without_attention_raises():
    tokenizer = train()
    predictor = Predictor(Model(preset("elmo-mini", vocab_size=tokenizer.size), ["bilm"]).init(0), tokenizer, "cpu")
    with pytest.raises(UserError, match="has no attention"):
        predictor.attention("the lakes")
    assert "attention" not in predictor.methods()


def test_attention_command_prints_weights(bert):
    run = CliRunner()
    result = run.invoke(app, ["attention", str(bert), "the lakes", "--layer", "1", "--head", "2"])
    assert result.exit_code == 0, result.output
    assert "layer 1 of 2, head 2 of 2" in result.output
    assert result.output.count("→") == len(load(bert).attention("the lakes").tokens)
    weights = load(bert).attention("the lakes").weights[0, 1]
    assert f"{weights[0].max():.1%}" in result.output
    assert run.invoke(app, ["attention", str(bert), "the lakes", "--layer", "3"]).exit_code == 2
    assert "tokens" in json.loads(run.invoke(app, ["attention", str(bert), "the", "lakes", "--json"]).stdout)
