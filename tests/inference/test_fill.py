"""Filling masks jointly, with multi-subword words and with given candidates, compared with exhaustive search."""

import itertools
import math

import numpy as np
import pytest
import torch
from inference.tiny_models import logits_of, make_folder, train
from near import near
from transformers import BertForMaskedLM

from unmask.errors import UserError
from unmask.inference.predictor import Predictor, load
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.text.token_text import is_ideograph, tokens_to_text


@pytest.fixture(scope="module")
def tokenizer():
    return train()


@pytest.fixture(scope="module")
def bert(tmp_path_factory, tokenizer):
    return make_folder(tmp_path_factory.mktemp("bert"), tokenizer, BertForMaskedLM)


def predictor(kind, seed=0):
    tokenizer = train(kind)
    config = preset("bert-tiny", vocab_size=tokenizer.size, hidden=32, heads=2, initializer_range=0.6)
    return Predictor(Model(config, heads=["mlm"]).init(seed), tokenizer, "cpu")


def log_p(folder, ids):
    return logits_of(folder, ids).log_softmax(-1)


def test_joint_fill_equals_exhaustive_search(bert, tokenizer):
    """A beam as wide as the vocabulary finds the result of exhaustive search, and `best` is the first of `joint`."""
    p, t = load(bert), tokenizer
    text = "北京[MASK]中国[MASK]首"
    ids = [t.cls, *t.encode(text), t.sep]
    first, second = [i for i, id in enumerate(ids) if id == t.mask]
    allowed = np.flatnonzero(~t.special).tolist()
    left = log_p(bert, ids)[first]
    totals = {}
    for a in allowed:
        right = log_p(bert, [*ids[:first], a, *ids[first + 1 :]])[second]
        totals |= {(a, b): float(left[a] + right[b]) for b in allowed}
    expected = sorted(totals.items(), key=lambda item: -item[1])[:5]
    filling = p.fill(text, top_k=5, num_beams=len(allowed))
    assert [j.logprob for j in filling.joint] == near([value for _, value in expected], 1e-4)
    assert [j.tokens for j in filling.joint] == [[t.token(a), t.token(b)] for (a, b), _ in expected]
    assert (filling.best, filling.best_spans) == (filling.joint[0].text, filling.joint[0].spans)
    narrow = p.fill(text, top_k=5, num_beams=3)
    assert len(narrow.joint) == 3
    assert narrow.joint[0].logprob <= filling.joint[0].logprob + 1e-5
    alone = tuple(m.candidates[0].id for m in filling.masks)
    assert alone != expected[0][0]  # otherwise masks filled independently would pass


def test_joint_fill_is_optional_and_works_for_batches(bert):
    p = load(bert)
    assert p.fill("the [MASK] [MASK]").joint == []
    texts = ["the [MASK]", "北[MASK][MASK]京[MASK]", "[MASK] [MASK]"]
    together = p.fill(texts, num_beams=4)
    for text, filling in zip(texts, together, strict=True):
        alone = p.fill(text, num_beams=4)
        assert [j.text for j in filling.joint] == [j.text for j in alone.joint]
        assert [j.logprob for j in filling.joint] == near([j.logprob for j in alone.joint], 1e-4)
        assert [j.logprob for j in filling.joint] == sorted(
            (j.logprob for j in filling.joint), reverse=True
        )  # one token each
    single = together[0]
    assert [j.tokens for j in single.joint] == [[c.token] for c in single.masks[0].candidates[:4]]


def two_token_words(tokenizer):
    """Yield every two-token word that the tokenizer encodes so: a start and a continuation, or two Chinese characters."""
    ordinary = np.flatnonzero(~tokenizer.special).tolist()
    ideographs = {i for i in ordinary if is_ideograph(tokenizer.token(i))}
    for pair in itertools.product(ordinary, ordinary):
        is_continuation = tokenizer.token(pair[1]).startswith("##") and pair[0] not in ideographs
        if (is_continuation or set(pair) <= ideographs) and tokenizer.encode(tokens_to_text(tokenizer, pair)) == list(
            pair
        ):
            yield pair


def test_multi_token_fill_equals_exhaustive_search(bert, tokenizer):
    p, t = load(bert), tokenizer
    text = "the united [MASK] spoke"
    ids = [t.cls, *t.encode(text), t.sep]
    position = ids.index(t.mask)
    one = {(i,): float(log_p(bert, ids)[position][i]) for i in np.flatnonzero(~t.special).tolist()}
    two_masks = [*ids[:position], t.mask, t.mask, *ids[position + 1 :]]
    first, then = log_p(bert, two_masks)[position], {}
    two = {}
    for a, b in two_token_words(t):
        if a not in then:
            then[a] = log_p(bert, [*ids[:position], a, t.mask, *ids[position + 1 :]])[position + 1]
        two[a, b] = float(first[a] + then[a][b])
    assert len(two) > 100
    expected = sorted((one | two).items(), key=lambda item: -item[1] / len(item[0]))[:12]  # by the mean over tokens
    assert any(len(word) == 2 for word, _ in expected)
    (mask,) = p.fill(text, top_k=400, max_subwords=2).masks  # wide enough that no candidate is pruned
    assert [c.ids for c in mask.candidates[:12]] == [word for word, _ in expected]
    assert [math.log(c.probability) for c in mask.candidates[:12]] == near([v for _, v in expected], 1e-4)
    for c in mask.candidates[:40]:
        if len(c.ids) == 2:
            assert t.encode(c.text) == [*t.encode("the united"), *c.ids, *t.encode("spoke")]


def test_multi_token_candidates_are_whole_words():
    for kind in ("wordpiece", "bpe", "unigram", "char", "byte"):
        p = predictor(kind)
        for text in ("the united [MASK] spoke", "北京是[MASK]的首都"):
            filling = p.fill(text, top_k=60, max_subwords=3)
            assert "[MASK]" not in filling.best
            texts = [c.text for c in filling.masks[0].candidates if len(c.ids) > 1]
            assert texts and len(set(texts)) == len(texts)  # no duplicates, however tokenized
            for c in filling.masks[0].candidates:
                if len(c.ids) > 1:
                    assert not c.token.strip().count(" "), c.token
                    assert p.tokenizer.encode(tokens_to_text(p.tokenizer, c.ids)) == list(c.ids)
    p = predictor("wordpiece")
    multi_token = [
        c for c in p.fill("北京是[MASK]的首都", top_k=60, max_subwords=2).masks[0].candidates if len(c.ids) == 2
    ]
    assert any(
        all(p.tokenizer.token(i) in "北京是中国的首都我们都喜欢去看长城今天气很好" for i in c.ids) for c in multi_token
    )


def test_several_masks_are_filled_with_multi_token_words():
    p = predictor("wordpiece")
    text = "the [MASK] of the [MASK] states"
    for joint in (0, 3):
        filling = p.fill(text, max_subwords=3, num_beams=joint)
        assert len(filling.best_spans) == 2
        assert filling.best.startswith("the") and filling.best[filling.best_spans[1][1] :].strip() == "states"
        assert " of the" in filling.best


def test_candidates_are_scored_over_all_their_tokens(bert, tokenizer):
    p, t = load(bert), tokenizer
    text, words = "the united [MASK] spoke", ["states", "kingdom", "presidents", "lakes"]
    ids = [t.cls, *t.encode(text), t.sep]
    position, expected = ids.index(t.mask), {}
    for word in words:
        tokens, total = t.encode(word), 0.0
        for n, token in enumerate(tokens):
            row = [*ids[:position], *tokens[:n], *[t.mask] * (len(tokens) - n), *ids[position + 1 :]]
            total += float(log_p(bert, row)[position + n][token])
        expected[word] = total
    assert {len(t.encode(word)) for word in words} > {1}  # some have several tokens
    (mask,) = p.fill(text, top_k=9, candidates=words).masks
    logprobs = {c.text.split()[2]: math.log(c.probability) for c in mask.candidates}
    assert list(logprobs) == sorted(words, key=lambda w: -expected[w] / len(t.encode(w)))
    assert [c.mean_token_probability for c in mask.candidates] == sorted(
        (c.mean_token_probability for c in mask.candidates), reverse=True
    )
    assert logprobs == near(expected, 1e-4)
    one = next(word for word in words if len(t.encode(word)) == 1)
    plain = next(c for c in p.fill(text, top_k=200).masks[0].candidates if c.token == one)
    assert math.exp(expected[one]) == pytest.approx(plain.probability, rel=1e-3)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char", "byte"])
def test_candidates_work_for_every_tokenizer_type(kind):
    p = predictor(kind)
    filling = p.fill("北京是[MASK]国的首都", candidates=["中", "长", "中国"], num_beams=2)
    assert {c.text for c in filling.masks[0].candidates} == {
        "北京是中国的首都",
        "北京是长国的首都",
        "北京是中国国的首都",
    }
    assert filling.best in {c.text for c in filling.masks[0].candidates}
    english = p.fill("the united [MASK] and the [MASK]", candidates=["states", "kingdom"])
    assert {c.text for c in english.masks[0].candidates} == {
        f"the united {word} and the {p.tokenizer.mask_token}" for word in ("states", "kingdom")
    }
    assert english.best.split()[2] in ("states", "kingdom")


def test_long_text_is_filled_in_a_window_around_its_masks(bert):
    p = load(bert)
    far, near = "the " * 200, "we played at the [MASK] and she"
    with pytest.raises(UserError, match="tokens and 2 special"):
        p.fill(far + near + far)
    filling = p.fill(f"{far}{near} {far}", overflow="window")
    (mask,) = filling.masks
    assert filling.text[mask.start : mask.end] == "[MASK]"
    row = p.tokenizer.encode(f"{far}{near} {far}")
    position = row.index(p.tokenizer.mask)
    start = position - 62 // 2
    ids = [p.tokenizer.cls, *row[start : start + 62], p.tokenizer.sep]
    expected = log_p(bert, ids)[position - start + 1].softmax(-1)
    assert mask.candidates[0].probability == pytest.approx(float(expected[mask.candidates[0].id]), rel=1e-3)
    with pytest.raises(UserError, match="tokens and 2 special"):
        p.fill(f"[MASK] {far} [MASK]", overflow="window")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_beams": -1}, "num_beams -1"),
        ({"max_subwords": 0}, "max_subwords 0"),
        ({"max_subwords": 2, "candidates": ["the"]}, "both max_subwords and candidates"),
        ({"candidates": []}, "candidates"),
        ({"candidates": "states"}, "candidates 'states'"),
        ({"candidates": ["[CLS]"]}, "cannot encode the candidate"),
        ({"candidates": ["☃"]}, "cannot encode the candidate"),
        ({"overflow": "cut"}, "overflow 'cut'"),
    ],
)
def test_invalid_arguments_raise(bert, settings, message):
    with pytest.raises(UserError, match=message):
        load(bert).fill("the [MASK]", **settings)


def test_fill_accepts_a_generator_and_reports_progress(bert):
    progress = []
    fillings = load(bert).fill((f"{w} [MASK]" for w in ("the", "we", "the")), update=lambda *a: progress.append(a))
    assert [f.text for f in fillings] == ["the [MASK]", "we [MASK]", "the [MASK]"]
    assert progress[-1][:2] == (3, 3)
    assert torch.is_grad_enabled()
