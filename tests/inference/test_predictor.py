"""The predictor returns the results of the transformers classes for any batch, and raises clear errors."""

import json
import math
import shutil

import numpy as np
import pytest
import tokenizers
import torch
from hypothesis import given
from hypothesis import strategies as st
from inference.tiny_models import logits_of, make_folder, train
from near import gap, near
from tokenizers import AddedToken, models, pre_tokenizers
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForMaskedLM,
    BertForNextSentencePrediction,
    BertForPreTraining,
    BertLMHeadModel,
    BertModel,
    ModernBertForMaskedLM,
    pipeline,
)

from unmask.batch import TOKENS_PER_FORWARD, batch_by_length
from unmask.errors import UserError
from unmask.inference.predictor import Predictor, load
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import Recipe
from unmask.tasks.classify.task import Classify
from unmask.tasks.rank.task import Rank
from unmask.text.token_text import display_token, fill_spans, mask_spans, tokens_to_readable_text
from unmask.text.tokenizer import Tokenizer
from unmask.train import checkpoint

TEXTS = [
    "The president of the united [MASK] spoke to the [MASK].",
    "[MASK]",
    "北京是[MASK]国的[MASK][MASK]，we played at the lakes and she was playing in the united kingdom.",
    "unknown wörds qqq [MASK] too",
]
PLAIN = [
    "The president of the united lakes.",
    "北京是中国的首都",
    "we qqq",
    "the state of the union spoke to the congress!",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train()


@pytest.fixture(scope="module")
def bert(tmp_path_factory, tokenizer):
    return make_folder(tmp_path_factory.mktemp("bert"), tokenizer, BertForPreTraining)


@pytest.fixture(scope="module")
def modernbert(tmp_path_factory, tokenizer):
    return make_folder(tmp_path_factory.mktemp("modernbert"), tokenizer, ModernBertForMaskedLM)


@pytest.fixture(params=["bert", "modernbert"])
def folder(request):
    return request.getfixturevalue(request.param)


# ------------------------------------------------------------------------------------------------ parity


def test_fill_equals_the_transformers_pipeline(folder):
    predictor = load(folder)
    theirs = pipeline("fill-mask", model=str(folder), top_k=predictor.tokenizer.size, device="cpu")
    special = set(np.flatnonzero(predictor.tokenizer.special).tolist())
    fillings = predictor.fill(TEXTS, top_k=7)
    assert [f.text for f in fillings] == TEXTS
    compared = 0
    for filling in fillings:
        answers = theirs(filling.text)
        for mask, answer in zip(filling.masks, answers if len(filling.masks) > 1 else [answers], strict=True):
            words = [a for a in answer if a["token"] not in special and a["token"] < predictor.tokenizer.size]
            assert [c.id for c in mask.candidates] == [a["token"] for a in words[:7]]
            assert [c.probability for c in mask.candidates] == near([a["score"] for a in words[:7]], 1e-5)
            compared += 1
    assert compared == 7


def test_fill_returns_the_positions_of_the_masks(bert):
    predictor = load(bert)
    ids = AutoTokenizer.from_pretrained(bert)(TEXTS[0])["input_ids"]
    filling = predictor.fill(TEXTS[0])
    assert [m.position for m in filling.masks] == [i for i, id in enumerate(ids) if id == predictor.tokenizer.mask]
    assert [TEXTS[0][m.start : m.end] for m in filling.masks] == ["[MASK]", "[MASK]"]


def fill_all(folder, t, ids, choose):
    """Fill masks with transformers: repeatedly fill those that `choose` picks from {position: probability}, until none is left."""
    ids, left = list(ids), [i for i, id in enumerate(ids) if id == t.mask]
    allowed = torch.zeros(t.size + 5, dtype=torch.bool)
    allowed[: t.size] = torch.from_numpy(~t.special)
    while left:
        best, tokens = logits_of(folder, ids).softmax(-1).masked_fill(~allowed, 0.0).max(-1)
        for position in choose({i: float(best[i]) for i in left}):
            ids[position] = int(tokens[position])
            left.remove(position)
    return ids


def test_best_fills_the_most_confident_mask_first(folder):
    predictor = load(folder)
    t, differs = predictor.tokenizer, [0, 0]
    characters, rng = ["[MASK]", *"北京是中国的"], np.random.default_rng(0)
    texts = [TEXTS[2], *("".join(rng.choice(characters, 12)) + "[MASK]" for _ in range(8))]
    for text, filling in zip(texts, predictor.fill(texts), strict=True):
        encoding = t.encode_batch([text])[0]
        masks = [i for i, id in enumerate(encoding.ids) if id == t.mask]
        ids = [t.cls, *encoding.ids, t.sep]
        expected = fill_all(folder, t, ids, lambda probabilities: [max(probabilities, key=probabilities.get)])
        chosen = [expected[i + 1] for i in masks]
        best, spans = fill_spans(t, text, [encoding.offsets[i] for i in masks], chosen)
        assert (filling.best, filling.best_spans) == (best, spans)
        assert [best[a:b] for a, b in spans] == [t.token(id).removeprefix("##") for id in chosen]
        differs[0] += fill_all(folder, t, ids, lambda probabilities: [min(probabilities)]) != expected  # left to right
        differs[1] += fill_all(folder, t, ids, list) != expected  # all at once
    assert all(differs)  # otherwise another order would pass


@pytest.mark.parametrize("architecture", [BertForPreTraining, BertForNextSentencePrediction])
def test_next_sentence_equals_transformers(tmp_path, tokenizer, architecture):
    folder = make_folder(tmp_path, tokenizer, architecture, spread=0.3)
    model, theirs = architecture.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    firsts, seconds = ["the state spoke .", "北京", "we"], ["the union .", "we played at the lakes", "北京是中国的首都"]
    answers = load(folder).next_sentence(firsts, seconds)
    for a, b, answer in zip(firsts, seconds, answers, strict=True):
        with torch.inference_mode():
            output = model(**theirs(a, b, return_tensors="pt"))
        logits = output.seq_relationship_logits if architecture is BertForPreTraining else output.logits
        yes, no = logits[0].softmax(-1).tolist()
        assert (answer["next"], answer["other"]) == near((yes, no), 1e-5)
        assert load(folder).next_sentence(a, b) == near(answer, 1e-5)
    assert answers[0]["next"] != near(answers[1]["next"], 1e-3)  # the result depends on the texts


def test_score_equals_masking_each_token_with_transformers(folder):
    predictor = load(folder)
    theirs = AutoTokenizer.from_pretrained(folder)
    for text, score in zip(PLAIN, predictor.score(PLAIN), strict=True):
        ids, expected = theirs(text)["input_ids"], []
        for i in range(1, len(ids) - 1):
            hidden = [*ids[:i], predictor.tokenizer.mask, *ids[i + 1 :]]
            expected.append(float(logits_of(folder, hidden)[i].log_softmax(-1)[ids[i]]))
        assert [t.id for t in score.per_token] == ids[1:-1]
        assert [t.logprob for t in score.per_token] == near(expected, 1e-5)
        assert score.total == near(sum(expected), 1e-4)
        assert score.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-4)
        assert "".join(text[t.start : t.end] for t in score.per_token) == text.replace(" ", "")


def test_embed_equals_transformers(folder):
    predictor = load(folder)
    encoder, theirs = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    mean, cls, token = (predictor.embed(PLAIN, pooling) for pooling in ("mean", "cls", "token"))
    assert mean.shape == cls.shape == (len(PLAIN), 32)
    assert mean.dtype == np.float32
    for i, text in enumerate(PLAIN):
        with torch.inference_mode():
            hidden = encoder(**theirs(text, return_tensors="pt")).last_hidden_state[0].numpy()
        assert gap(token[i], hidden) <= 2e-5
        assert gap(mean[i], hidden.mean(0)) <= 2e-5
        assert gap(cls[i], hidden[0]) <= 2e-5
    assert predictor.embed(PLAIN[0]).shape == (32,)
    assert predictor.embed([]).shape == (0, 32)


# ------------------------------------------------------------------------------------------------ guarantees


def test_scored_token_is_masked(folder):
    """Different words at one position are scored with the same distribution, that of a mask at this position."""
    predictor, position, leaks = load(folder), 3, []
    t = predictor.tokenizer
    (mask,) = predictor.fill("北京是[MASK]国的", top_k=t.size).masks
    distribution = {c.id: math.log(c.probability) for c in mask.candidates}
    for word in "中首很":
        scored = predictor.score(f"北京是{word}国的").per_token[position]
        assert scored.token == word
        assert scored.logprob == near(distribution[scored.id], 1e-5)
        seen = logits_of(folder, [t.cls, *t.encode(f"北京是{word}国的"), t.sep])[position + 1].log_softmax(-1)
        leaks.append(abs(float(seen[scored.id]) - scored.logprob))
    assert min(leaks) > 1e-2  # otherwise an unmasked token would pass


def test_surprising_tokens_are_far_below_the_mean(bert):
    for score in load(bert).score(PLAIN):
        logprobs = np.array([t.logprob for t in score.per_token])
        floor = logprobs.mean() - 1.5 * logprobs.std()
        assert [t.is_surprising for t in score.per_token] == (logprobs < floor).tolist()
    assert any(t.is_surprising for score in load(bert).score(PLAIN) for t in score.per_token)


def test_batching_changes_neither_results_nor_order(bert):
    predictor = load(bert)
    rng = np.random.default_rng(0)
    texts = ["".join(rng.choice(list("北京是中国的首都"), n)) for n in rng.integers(1, 60, 200)]
    assert sum(map(len, texts)) > TOKENS_PER_FORWARD  # several forward passes
    vectors = predictor.embed(texts)
    for i in rng.choice(len(texts), 12, replace=False):
        assert gap(vectors[i], predictor.embed(texts[i])) <= 1e-5
    together = predictor.score(texts[:10])
    assert [s.text for s in together] == texts[:10]
    assert [s.total for s in together] == near([predictor.score(t).total for t in texts[:10]], 1e-3)
    masked = [f"{t}[MASK]" for t in texts]
    for i, filling in enumerate(predictor.fill(iter(masked), top_k=1)):
        assert filling.text == masked[i]
        assert filling.best.startswith(texts[i])


@given(st.lists(st.integers(1, 600), max_size=60), st.integers(1, 2000))
def test_batches_contain_every_item_once_within_the_token_limit(lengths, tokens):
    batches = list(batch_by_length(lengths, tokens))
    assert sorted(i for group in batches for i in group) == list(range(len(lengths)))
    for group in batches:
        assert len(group) == 1 or len(group) * max(lengths[i] for i in group) <= tokens


def test_candidates_exclude_special_tokens_and_vocabulary_padding(bert):
    predictor = load(bert)
    (mask,) = predictor.fill("the [MASK]", top_k=10_000).masks
    ids = [c.id for c in mask.candidates]
    assert (
        sorted(ids) == np.flatnonzero(~predictor.tokenizer.special).tolist()
    )  # without the five padding rows of the vocabulary
    assert sum(c.probability for c in mask.candidates) < 1  # not renormalized


def test_results_are_json_serializable(bert):
    predictor = load(bert)
    filling, score = predictor.fill(TEXTS[0], top_k=2), predictor.score(PLAIN[0])
    assert json.loads(json.dumps(filling.as_dict()))["masks"][1]["candidates"][0]["text"].startswith("The president")
    assert json.loads(json.dumps(score.as_dict()))["per_token"][0]["token"] == "the"
    json.dumps(predictor.next_sentence("a", "b"))


# ------------------------------------------------------------------------------------------------ inserting tokens


@pytest.mark.parametrize("text", ["the united [MASK] spoke", "the[MASK]spoke", "[MASK].", "北[MASK]京", "( [MASK] )"])
def test_filled_word_encodes_to_the_predicted_ids(tokenizer, text):
    encoding = tokenizer.encode_batch([text])[0]
    position = encoding.ids.index(tokenizer.mask)
    checked = 0
    for id in np.flatnonzero(~tokenizer.special).tolist():
        if tokenizer.token(id).startswith("##"):
            continue
        filled, _ = fill_spans(tokenizer, text, [encoding.offsets[position]], [id])
        assert tokenizer.encode(filled) == [*encoding.ids[:position], id, *encoding.ids[position + 1 :]], filled
        checked += 1
    assert checked > 40


def test_filled_subword_joins_the_previous_word(tokenizer):
    s = tokenizer.backend.token_to_id("##s")
    assert fill_spans(tokenizer, "the lake [MASK].", [(9, 15)], [s]) == ("the lakes.", [(8, 9)])
    assert fill_spans(tokenizer, "lake [MASK] [MASK]", [(5, 11), (12, 18)], [s, s]) == ("lakess", [(4, 5), (5, 6)])


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "byte"])
@pytest.mark.parametrize("text", ["the united [MASK] spoke", "[MASK] of", "the [MASK] [MASK]", "北[MASK][MASK]京"])
def test_filled_text_equals_decoded_ids(kind, text):
    tokenizer = train(kind)
    encoding = tokenizer.encode_batch([text])[0]
    positions = [i for i, id in enumerate(encoding.ids) if id == tokenizer.mask]
    spans = mask_spans(tokenizer, text, [encoding.offsets[i] for i in positions])
    rng = np.random.default_rng(0)
    for chosen in rng.choice(np.flatnonzero(~tokenizer.special), (40, len(positions))).tolist():
        ids = list(encoding.ids)
        for position, id in zip(positions, chosen):
            ids[position] = id
        filled, where = fill_spans(tokenizer, text, spans, chosen)
        assert filled.split() == tokenizer.decode(ids).split()
        assert all(0 <= a <= b <= len(filled) for a, b in where)


def test_filled_bytes_form_one_character():
    tokenizer = train("byte")
    text, bytes_of = "北[MASK][MASK][MASK]", tokenizer.encode("京")
    encoding = tokenizer.encode_batch([text])[0]
    assert fill_spans(tokenizer, text, encoding.offsets[-3:], bytes_of)[0] == "北京"
    assert [display_token(tokenizer, id) for id in bytes_of] == ["<0xE4>", "<0xBA>", "<0xAC>"]
    assert tokens_to_readable_text(tokenizer, [*tokenizer.encode("\\x北"), bytes_of[0]]) == "\\x北<0xE4>"


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char", "byte"])
def test_fill_and_score_work_for_every_tokenizer_type(kind):
    tokenizer = train(kind)
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size), heads=["mlm"]).init(0)
    predictor = Predictor(model, tokenizer, "cpu")
    filling = predictor.fill("the united [MASK] 北[MASK]", top_k=3)
    assert [len(m.candidates) for m in filling.masks] == [3, 3]
    assert "[MASK]" not in filling.best
    assert filling.best.startswith("the united")
    score = predictor.score("the states 北京\ud800")  # a lone surrogate, as a shell may pass it
    assert all(0 <= t.start <= t.end <= len(score.text) for t in score.per_token)
    json.dumps(score.as_dict()).encode()


def test_both_mask_spellings_are_accepted(bert, tmp_path):
    predictor = load(bert)
    assert predictor.fill("the <mask> spoke") == predictor.fill("the [MASK] spoke")

    roberta = tokenizers.Tokenizer(models.WordLevel({"<unk>": 0, "the": 1, "spoke": 2}, unk_token="<unk>"))
    roberta.pre_tokenizer = pre_tokenizers.Whitespace()
    names = ["<pad>", "<s>", "</s>", "<unk>"]
    roberta.add_special_tokens([*names, AddedToken("<mask>", special=True, lstrip=True)])
    tokenizer = Tokenizer(roberta)
    predictor = Predictor(Model(preset("bert-tiny", vocab_size=tokenizer.size)).init(0), tokenizer, "cpu")
    filling = predictor.fill("the [MASK] spoke")
    assert filling.text == "the <mask> spoke"
    assert filling == predictor.fill("the <mask> spoke")
    assert [c.token for c in filling.masks[0].candidates if c.token not in ("the", "spoke")] == []


# ------------------------------------------------------------------------------------------------ errors


def test_text_without_a_mask_raises_with_a_hint(bert):
    with pytest.raises(UserError, match=r"no mask in text 2 of 2: the \[mask\] spoke") as caught:
        load(bert).fill(["a [MASK]", "the [mask] spoke"])
    assert "[MASK]" in caught.value.hint


def test_text_beyond_the_maximum_length_raises_with_its_token_count(bert):
    predictor = load(bert)
    assert len(predictor.score(" ".join(["the"] * 62)).per_token) == 62
    for ask in (predictor.score, predictor.embed, lambda t: predictor.fill(t + " [MASK]")):
        with pytest.raises(UserError, match=r"the text has 6[34] tokens and 2 special tokens; the model reads 64"):
            ask(" ".join(["the"] * 63))
    with pytest.raises(UserError, match="the pair has 62 tokens and 3 special tokens"):
        predictor.next_sentence(" ".join(["the"] * 31), " ".join(["the"] * 31))


def test_missing_head_raises_with_the_training_command(tmp_path, modernbert, tokenizer):
    with pytest.raises(UserError, match="heads are mlm") as caught:
        load(modernbert).next_sentence("a", "b")
    assert caught.value.hint == "unmask pretrain CORPUS --preset bert-mini --objective mlm+nsp"
    headless = load(make_folder(tmp_path, tokenizer, BertModel))
    for ask in (headless.score, headless.fill):
        with pytest.raises(UserError, match="heads are pooler"):
            ask("the [MASK]")
    assert headless.embed("the").shape == (32,)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda p: p.fill("[MASK]", top_k=0), "top_k 0"),
        (lambda p: p.fill(["[MASK]", 7]), "7 is not text"),
        (lambda p: p.embed(None), "None is NoneType, not text"),
        (lambda p: p.score(b"the"), "is bytes, not text"),
        (lambda p: p.embed({"text": "the"}), "is dict, not text"),
        (lambda p: p.embed("the", overflow="cut"), "overflow 'cut'"),
        (lambda p: p.score("the [MASK]"), "a masked word has no score"),
        (lambda p: p.score(["the", " "]), "no word in text 2 of 2"),
        (lambda p: p.embed("the", "max"), "pooling 'max'"),
        (lambda p: p.next_sentence(["a", "b"], ["c"]), "2 first and 1 second"),
    ],
)
def test_invalid_arguments_raise(bert, ask, message):
    with pytest.raises(UserError, match=message):
        ask(load(bert))


def test_missing_or_mismatched_tokenizer_raises(tmp_path, bert, tokenizer):
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(bert / name, bare)
    with pytest.raises(UserError, match="no tokenizer in") as caught:
        load(bare)
    assert "tokenizer.json" in caught.value.hint
    train("bpe").save(bare)
    with pytest.raises(UserError, match=r"the tokenizer \(3\d\d tokens\) does not match the model \(115"):
        load(bare)


def test_unavailable_device_raises(tokenizer):
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size)).init(0)
    for device in ["quantum", *([] if torch.cuda.is_available() else ["cuda"])]:
        with pytest.raises(UserError, match=f"device {device}"):
            Predictor(model, tokenizer, device)


# ------------------------------------------------------------------------------------------------ loading


def make_run(path, bert, steps):
    path.mkdir()
    (path / "recipe.yaml").write_text("seed: 0\n")
    for step in steps:
        folder = path / "checkpoints" / f"step-{step:08d}"
        folder.parent.mkdir(exist_ok=True)
        checkpoint.write(folder, lambda out: shutil.copytree(bert, out), None, {"step": step})
    return path


def test_run_loads_its_model_or_its_last_valid_checkpoint(tmp_path, bert, capsys):
    run, messages = make_run(tmp_path / "run", bert, [10, 2000]), []
    expected = load(bert).embed("the union")
    np.testing.assert_array_equal(load(run, say=messages.append).embed("the union"), expected)
    assert messages == [f"{run} is not finished; loading its checkpoint from step 2,000"]
    load(run)
    assert "step 2,000" in capsys.readouterr().err

    damaged = run / "checkpoints" / "step-00002000" / "model" / "model.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-8] + b"\0" * 8)
    messages.clear()
    load(run, say=messages.append)
    assert "damaged" in messages[0]
    assert messages[1].endswith("step 10")

    messages.clear()
    load(run / "checkpoints" / "step-00000010", say=messages.append)
    shutil.copytree(bert, run / "model")
    load(str(run), say=messages.append)
    assert messages == []


def test_directories_without_a_model_raise(tmp_path, bert):
    with pytest.raises(UserError, match="neither a model nor a checkpoint yet") as caught:
        load(make_run(tmp_path / "run", bert, []))
    assert "--resume" in caught.value.hint
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"neither a model \(config.json\) nor a run"):
        load(tmp_path / "empty")
    with pytest.raises(UserError, match="no such file or folder"):
        load(tmp_path / "nowhere")


def test_head_with_a_wrong_shape_raises_instead_of_being_initialized(tmp_path, bert):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(bert, tmp_path / "model")
    tensors = load_file(folder / "model.safetensors")
    tensors["cls.predictions.bias"] = tensors["cls.predictions.bias"][:-1].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match=r"heads\.mlm\.bias"):
        load(folder)


def test_bert_with_one_head(tmp_path, tokenizer):
    predictor = load(make_folder(tmp_path, tokenizer, BertForMaskedLM))
    assert predictor.heads == ["mlm"]
    assert repr(predictor) == f"Predictor(bert 2 × 32, {tokenizer.size + 5} tokens, heads: mlm)"


def test_fill_respects_the_logit_position(tmp_path):
    """clm, prefix and hybrid train this way; the model directory stores it, and fill respects it."""
    tokenizer = train()
    config = preset("modernbert-mini", vocab_size=tokenizer.size, hidden=32, heads=2, layers=2, logit_position="next")
    model = Model(config, ("mlm",)).init(3).eval()
    hf.save(model, tmp_path, tokenizer)
    predictor = load(tmp_path)
    assert predictor.model.config.logit_position == "next"
    text = "the president of the [MASK] states"
    ids = [tokenizer.cls, *tokenizer.encode(text), tokenizer.sep]
    hidden = model(torch.tensor([ids]))[0]
    mask_position = ids.index(tokenizer.mask)
    expected = {
        position: model.logits("mlm", hidden[[position]]).softmax(-1)[0].max().item()
        for position in (mask_position - 1, mask_position)
    }
    probability = predictor.fill(text, top_k=1).as_dict()["masks"][0]["candidates"][0]["probability"]
    assert probability == pytest.approx(expected[mask_position - 1], rel=1e-4)
    assert probability != pytest.approx(expected[mask_position], rel=1e-4)


def test_score_of_a_next_token_encoder_is_causal(tmp_path):
    """Equal to BERT of transformers with a causal mask: the logits of a token are at the position before it, and later tokens are hidden."""
    tokenizer = train()
    config = preset("bert-tiny", vocab_size=tokenizer.size, hidden=32, heads=2, layers=2, logit_position="next")
    hf.save(Model(config, ("mlm",)).init(3), tmp_path, tokenizer)
    reference = BertLMHeadModel.from_pretrained(tmp_path, is_decoder=True).eval()
    texts = ["the president of the united states", "we played", "the united [MASK] spoke"]
    for text, score in zip(texts, load(tmp_path).score(texts), strict=True):
        ids = torch.tensor([[tokenizer.cls, *tokenizer.encode(text)]])
        with torch.no_grad():
            logprobs = reference(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])[:, 0]
        expected = logprobs[ids[0, 1:] != tokenizer.mask].tolist()
        assert [token.logprob for token in score.per_token] == near(expected, 1e-5)
        assert score.total == near(sum(expected), 1e-4)
        assert not score.pseudo


# ------------------------------------------------------------------------------------------------ tasks


def fine_tuned(kind, head, labels, task_state):
    tokenizer = train()
    config = preset("bert-tiny", vocab_size=tokenizer.size, hidden=32, heads=2, initializer_range=0.4, labels=labels)
    task = kind(Recipe(), tokenizer, {"length": 64} | task_state)
    return Predictor(Model(config, [head]).init(0), tokenizer, "cpu", task)


def test_classifier_accepts_texts_and_pairs_single_or_batched():
    p = fine_tuned(Classify, "classify", ("neg", "pos"), {"labels": ["neg", "pos"], "target": "single_label"})
    texts, pairs = ["the lakes", "we played", "北京"], ["the", "united", "北"]
    both = p.classify(iter(texts), iter(pairs))
    for text, pair, alone, together in zip(texts, pairs, p.classify(text for text in texts), both, strict=True):
        assert alone["scores"] == near(p.classify(text)["scores"], 1e-5)
        assert together["scores"] == near(p(text, pair)["scores"], 1e-5)
        assert alone["scores"] != near(together["scores"], 1e-3)
    assert set(p.methods()) >= {"classify", "predict", "explain", "attention"}
    for ask, message in (
        (lambda: p.classify(texts, ["a"]), "inputs of different lengths"),
        (lambda: p.rank("a", ["b"]), "for the task classify, not for rank"),
        (lambda: p.tag(["a"]), "for the task classify, not for tag"),
    ):
        with pytest.raises(UserError, match=message):
            ask()


def test_passages_are_ranked_best_first():
    p = fine_tuned(Rank, "classify", ("relevance",), {"most": 1.0})
    passages = ["we played at the lakes", "北京", "the united kingdom", "the"]
    ranked = p.rank("the lakes", passages)
    alone = [p.rank("the lakes", [passage])[0]["score"] for passage in passages]
    assert [item["index"] for item in ranked] == sorted(range(4), key=lambda i: -alone[i])
    assert [item["text"] for item in ranked] == [passages[item["index"]] for item in ranked]
    assert [item["score"] for item in ranked] == near(sorted(alone, reverse=True), 1e-5)
    assert "rank" in p.methods()
    with pytest.raises(UserError, match="the passages are str"):
        p.rank("the lakes", "the")


def test_batch_size_is_the_number_of_texts_per_forward_pass(folder, monkeypatch: pytest.MonkeyPatch) -> None:
    import unmask

    texts = [f"the list is {'sorted ' * (n % 5)}." for n in range(7)]
    expected = unmask.load(folder).embed(texts)
    predictor, sizes = unmask.load(folder, batch_size=3), []
    encode = type(predictor.engine.model).encode

    def recording_encode(self, batch, *more, **keywords):
        sizes.append(len(batch.input_ids))
        return encode(self, batch, *more, **keywords)

    monkeypatch.setattr(type(predictor.engine.model), "encode", recording_encode)
    assert gap(predictor.embed(texts), expected) < 1e-5
    assert sizes == [3, 3, 1]
    assert unmask.load(predictor) is predictor
    with pytest.raises(UserError, match="invalid batch_size 0"):
        unmask.load(folder, batch_size=0)
