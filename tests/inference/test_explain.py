"""Explanations equal those of captum on the transformers model, attributions add up, and every kind of prediction can be explained."""

import json
import sys
import threading

import numpy as np
import pytest
import torch
from captum.attr import LayerIntegratedGradients
from inference.tiny_models import make_folder, train
from near import gap, near
from runs.tiny import SHAPE
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForMaskedLM,
    BertForSequenceClassification,
)
from typer.testing import CliRunner

from unmask.cli import app
from unmask.errors import UserError
from unmask.inference import causal
from unmask.inference.predictor import Predictor, load
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.tasks.answer.task import Answer
from unmask.tasks.choose.task import Choose
from unmask.tasks.classify.task import Classify
from unmask.tasks.embed.task import Embed
from unmask.tasks.rank.task import Rank
from unmask.tasks.tag.task import Tag
from unmask.tasks.task import Task
from unmask.text.token_bytes import token_bytes

TEXT = "the president spoke to the lakes"
TOKENIZER = train()


def fine_tuned(case: str) -> Predictor:
    kind, head, task_state, _, labels = CASES[case]
    config = preset("bert-tiny", vocab_size=TOKENIZER.size, labels=labels, initializer_range=0.3, **SHAPE)
    task = kind(Recipe(), TOKENIZER, {"length": 64} | task_state)
    return Predictor(Model(config, [head] if head else []).init(0), TOKENIZER, "cpu", task)


CLASSIFY = {"labels": ["neg", "pos"], "target": "single_label"}
TAG = ("B-LOC", "I-LOC", "O")
CASES = {
    "classify": (Classify, "classify", CLASSIFY, (TEXT,), ("neg", "pos")),
    "pair": (Classify, "classify", CLASSIFY | {"pair": True}, (TEXT, "北京"), ("neg", "pos")),
    "rank": (Rank, "classify", {"most": 1.0}, ("the lakes", "we played", TEXT), ("relevance",)),
    "choose": (Choose, "choose", {}, ("the lakes", "we played", "北京"), ("one",)),
    "answer": (Answer, "answer", {"none": False, "threshold": None}, ("the states spoke", TEXT), ("one",)),
    "tag": (Tag, "tag", {"labels": list(TAG), "scheme": "bio"}, (TEXT,), TAG),
    "embed": (
        Embed,
        "",
        {"pooling": "mean", "normalised": True, "lower": False, "prompt": "", "loss": "pairs"},
        (TEXT, "we played at the lakes"),
        ("one",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_attributions_add_up_for_every_task(case):
    parts, predictor = CASES[case][3], fine_tuned(case)
    explanation = predictor.explain(*parts, steps=100)
    total = sum(t.score for t in explanation.tokens)
    assert explanation.delta == near(total - (explanation.value - explanation.baseline), 1e-4)
    assert abs(explanation.delta) < 0.02 * max(1.0, abs(explanation.value - explanation.baseline))
    assert abs(explanation.value - explanation.baseline) > 1e-3  # so that the sum is meaningful
    assert max(abs(t.score) for t in explanation.tokens) > 1e-3
    texts = {"rank": (parts[0], explanation.target), "choose": (parts[0], explanation.target), "embed": parts[:1]}.get(
        case, parts
    )
    for t in explanation.tokens:
        if t.end > t.start:
            assert texts[t.segment][t.start : t.end].lower().startswith(t.token.removeprefix("##")[:1])
    json.dumps(explanation.as_dict())
    assert "explain" in predictor.methods()


@pytest.mark.parametrize("name", ["gpt2-mini", "t5-mini", "bart-mini", "elmo-mini", "cbow-mini", "modernbert-mini"])
def test_similarity_is_explained_for_every_family(name):
    tokenizer = train("bpe")
    model = Model(preset(name, vocab_size=tokenizer.size), []).init(0)
    model.set_token_bytes(token_bytes(tokenizer))
    explanation = Predictor(model, tokenizer, "cpu").explain("the lakes of the union", "we played", steps=20)
    assert abs(explanation.value - explanation.baseline) > 0.01
    assert abs(explanation.delta) < 0.01


def test_classifier_explanation_equals_captum_on_transformers(tmp_path):
    folder = make_folder(tmp_path, TOKENIZER, BertForSequenceClassification, spread=0.3, num_labels=3)
    model = AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval()
    ids = AutoTokenizer.from_pretrained(folder)(TEXT, return_tensors="pt")["input_ids"]
    base = torch.where(torch.from_numpy(TOKENIZER.special)[ids], ids, TOKENIZER.mask)
    method = LayerIntegratedGradients(lambda ids: model(ids).logits[:, 1], model.bert.embeddings)
    expected = method.attribute(ids, base, n_steps=50)[0].sum(-1).detach().numpy()
    explanation = load(folder).explain(TEXT, target="LABEL_1")
    assert gap([t.score for t in explanation.tokens], expected) <= 1e-4
    with torch.no_grad():
        assert explanation.value == near(float(model(ids).logits[0, 1]), 1e-5)
        assert explanation.baseline == near(float(model(base).logits[0, 1]), 1e-5)
    own = load(folder).explain(TEXT)
    assert own.target == load(folder).classify(TEXT)["label"]


def test_explain_accepts_a_target():
    classify = fine_tuned("classify")
    assert [classify.explain(TEXT, target=label).target for label in ("neg", "pos")] == ["neg", "pos"]
    tag = fine_tuned("tag")
    assert tag.explain(TEXT, target="lakes=B-LOC").target == "lakes=B-LOC"
    assert tag.explain(TEXT, target="lakes").target.startswith("lakes=")
    answer = fine_tuned("answer")
    explanation = answer.explain("who spoke?", TEXT, target="the president")
    assert explanation.target == "the president"
    logits = answer.engine.logits("answer", [answer.reader.encode_row(["who spoke?", TEXT])[0]])[0]
    own = [
        n
        for n, t in enumerate(explanation.tokens)
        if t.segment == 1 and t.end > t.start and t.end <= len("the president")
    ]
    assert explanation.value == near(float(logits[own[0], 0] + logits[own[-1], 1]), 1e-5)
    choose = fine_tuned("choose")
    assert choose.explain("the lakes", ["we played", "北京"], target="北京").target == "北京"
    for call, message in (
        (lambda: classify.explain(TEXT, target="po"), "no label 'po'"),
        (lambda: tag.explain(TEXT, target="lake"), "no word 'lake'"),
        (lambda: answer.explain("who?", TEXT, target="nobody"), "is not in the context"),
        (lambda: choose.explain("a", ["b", "c"], target="d"), "no choice 'd'"),
        (lambda: classify.explain(TEXT, steps=0), "steps 0"),
        (lambda: classify.explain(TEXT, target=1), "target 1 is int"),
        (lambda: tag.explain(" "), "the text has no words"),
        (lambda: fine_tuned("embed").embed(TEXT, overflow="cut"), "overflow 'cut'"),
        (lambda: classify.explain("the " * 70), "the model reads 64"),
    ):
        with pytest.raises(UserError, match=message):
            call()


@pytest.mark.parametrize(("case", "target"), [("tag", "I-LOC"), ("answer", None)])
def test_task_without_explain_target_is_explained_by_its_spec(case, target):
    """A third-party task: without the code of `Tag` and `Answer`, only the spec defines what is explained."""
    predictor = fine_tuned(case)
    kind = type(predictor.task)
    predictor.task.__class__ = type("Other", (kind,), {"explain_target": Task.explain_target})
    explanation = predictor.explain(*CASES[case][3], target=target, steps=100)
    assert abs(explanation.delta) < 0.02 * max(1.0, abs(explanation.value - explanation.baseline))
    assert explanation.target == target or explanation.target
    values = predictor.engine.logits(case, [predictor.reader.encode_row(CASES[case][3])[0]])[0]
    start = values[:, 0].argmax()
    span = values[start, 0] + values[start:, 1].max()
    assert explanation.value == near(float(values[:, 1].max() if target else span), 1e-5)


def test_mask_prediction_is_explained(tmp_path):
    predictor = load(make_folder(tmp_path, TOKENIZER, BertForMaskedLM, spread=0.3))
    text = "the [MASK] of the united states"
    best = predictor.fill(text, top_k=1).masks[0].candidates[0]
    explanation = predictor.explain(text)
    assert explanation.target == best.token
    assert np.exp(explanation.value) == pytest.approx(best.probability, rel=1e-4)
    other = predictor.explain(text, target="the")
    assert other.target == "the" and other.value <= explanation.value
    similarity = predictor.explain(TEXT, "we played at the lakes")
    assert similarity.value == near(predictor.similarity(TEXT, "we played at the lakes"), 1e-5)
    for parts, target, message in (
        (("the lakes",), None, "no mask in the text"),
        (("the [MASK]",), "unitedness", "not a single token"),
        (("a", "b", "c"), None, "nothing to explain"),
        (("a", "b"), "c", "target 'c'"),
    ):
        with pytest.raises(UserError, match=message):
            predictor.explain(*parts, target=target)


def generative_predictor(name, heads=("lm",), **more):
    tokenizer = train("bpe")
    config = preset(
        name, vocab_size=tokenizer.size, pad_id=tokenizer.pad, sep_id=tokenizer.sep, initializer_range=0.05, **more
    )
    return Predictor(Model(config, heads).init(0), tokenizer, "cpu")


@pytest.mark.parametrize(
    ("name", "heads", "more"),
    [
        ("gpt2-mini", ("lm",), {}),
        ("t5-mini", ("lm",), {}),
        ("bart-mini", ("lm",), {}),
        ("bert-tiny", ("mlm",), {"logit_position": "next"}),
    ],
    ids=["gpt2", "t5", "bart", "prefix"],
)
def test_generated_text_is_explained(name, heads, more):
    predictor = generative_predictor(name, heads, **more)
    explanation = predictor.explain(TEXT, target="the lakes of the union", steps=100)
    assert explanation.target == "the lakes of the union"
    assert abs(explanation.delta) < 0.05 * max(1.0, abs(explanation.value - explanation.baseline))
    prompt = [t for t in explanation.tokens if t.segment == 0]
    assert "".join(TEXT[t.start : t.end] for t in prompt).replace(" ", "") == TEXT.replace(" ", "")
    generated = [t for t in explanation.tokens if t.segment == 1]  # generated tokens get no attribution
    assert all(t.score == 0 for t in generated) and bool(generated) != bool(predictor.config.decoder_layers)
    assert max(abs(t.score) for t in prompt) > 1e-3
    best = predictor.explain(TEXT, steps=4)
    length = {} if predictor.config.decoder_layers else {"max_new_tokens": 1}
    new = predictor.generate(TEXT, **length).generated_text.split()
    assert best.target.split() == new or (not new and best.target.startswith("["))  # only a special token was generated
    again = predictor.explain(TEXT, target=best.target, steps=4)
    assert best.target.lower() == again.target.lower() or not new
    if length:
        assert best.value >= predictor.explain(TEXT, target="the", steps=4).value


def test_causal_lm_explanation_equals_captum_on_transformers(tmp_path):
    predictor = generative_predictor("gpt2-mini")
    hf.save(predictor.model, tmp_path, predictor.tokenizer)
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    explanation = predictor.explain(TEXT, target=" the lakes")
    t = predictor.tokenizer
    row, new = predictor.reader.encode([TEXT])[0].ids, t.encode(" the lakes")
    row = causal.build_prompt(predictor.engine, t, row)
    ids = torch.tensor([[*row, *new]])
    base = torch.where(torch.from_numpy(t.special)[ids], ids, t.pad if t.mask is None else t.mask)
    base[:, len(row) :] = ids[:, len(row) :]

    def value(ids):
        logprobs = theirs(ids).logits[:, len(row) - 1 : -1].log_softmax(-1)
        return logprobs.gather(-1, torch.tensor(new)[None, :, None].expand(len(ids), -1, -1)).sum((1, 2))

    method = LayerIntegratedGradients(value, theirs.transformer.wte)
    expected = method.attribute(ids, base, n_steps=50)[0].sum(-1).detach().numpy()
    np.testing.assert_allclose(
        [k.score for k in explanation.tokens], expected[: len(explanation.tokens)], rtol=1e-3, atol=1e-4
    )
    with torch.no_grad():
        assert explanation.value == near(float(value(ids)), 1e-4)


def test_explaining_does_not_affect_concurrent_predictions():
    """captum registers hooks on the network, which must not affect predictions of other threads."""
    predictor = fine_tuned("classify")
    expected, results, stop = predictor.classify(TEXT)["scores"], [], threading.Event()

    def classify():
        while not stop.is_set():
            results.append(predictor.classify(TEXT)["scores"])

    thread = threading.Thread(target=classify)
    thread.start()
    for _ in range(5):
        predictor.explain(TEXT, steps=30)
    stop.set()
    thread.join(30)
    assert len(results) > 5 and all(scores == near(expected, 1e-5) for scores in results)


def test_missing_captum_raises_with_the_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    with pytest.raises(UserError) as caught:
        fine_tuned("classify").explain(TEXT)
    assert caught.value.hint == "pip install 'unmask[explain]'"


def test_explain_command_prints_token_scores(tmp_path):
    folder = make_folder(tmp_path, TOKENIZER, BertForSequenceClassification, spread=0.3, num_labels=3)
    result = CliRunner().invoke(app, ["explain", str(folder), TEXT, "--target", "LABEL_2", "--steps", "20"])
    assert result.exit_code == 0, result.output
    explanation = load(folder).explain(TEXT, target="LABEL_2", steps=20)
    assert f"LABEL_2: {explanation.value:.3f}" in result.output
    assert all(f"{t.token}({t.score:+.2f})" in result.output for t in explanation.tokens)
    shown = CliRunner().invoke(app, ["explain", str(folder), TEXT, "--json"])
    assert len(json.loads(shown.stdout)["tokens"]) == len(explanation.tokens)
