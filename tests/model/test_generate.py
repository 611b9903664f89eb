"""Decoding algorithms in numpy: compared with brute force and with transformers, for models given as a function and for torch models
with a cache."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from near import gap

from unmask.batch import Batch
from unmask.errors import UserError
from unmask.model.config import change, preset
from unmask.model.generate import generate
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import GenerationState, GraphGenerationState, lm_head_name
from unmask.model.model import Model
from unmask.model.scores import (
    FOLD_SIZE,
    SUM_BLOCK,
    filter_logits,
    log_softmax,
    sample_index,
    sample_tokens,
    top_indices,
)
from unmask.seeds import generator

VOCAB, END = 24, 2
FAMILIES = ("gpt2-mini", "t5-mini", "bart-mini")


def tiny(name, seed=0, **changes):
    """A model with large random weights, for which the end token is likely from time to time."""
    full = preset(name)
    shape = {"layers": 2, "hidden": 32, "heads": 4, "vocab_size": VOCAB, "pad_id": 1, "cls_id": 0, "sep_id": END}
    shape |= {"decoder_layers": 2} if full.decoder_layers else {}
    shape |= {"head_size": 8} if full.head_size else {}
    shape |= {"intermediate": 64} if full.intermediate else {}
    shape |= {"max_positions": 64} if full.positions != "relative" else {}
    model = Model(preset(name, **(shape | changes)), ["lm"]).init(seed).eval()
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for value in model.parameters():
            if value.ndim == 2:
                value.normal_(0.0, 0.4, generator=numbers)
        model.embedding[END] *= 1.6
    return model


def prompts(lengths=(7, 3, 7, 1)):
    numbers = generator(0, "prompts")
    return [numbers.integers(3, VOCAB, n).tolist() for n in lengths]


class Graph:
    """A model given as a function of whole sequences, like an exported graph."""

    def __init__(self, model):
        self.model, self.config, self.heads, self.generation = model, model.config, list(model.heads), {}
        self.seen = []

    def start_generation(self, prompts, how, cache=True):
        return GraphGenerationState(self.config, prompts, how, self.last)

    @torch.no_grad()
    def last(self, ids, mask, decoder):
        self.seen.append((ids, mask, decoder))
        batch = Batch(torch.from_numpy(ids), torch.from_numpy(mask))
        hidden = self.model.encode(batch)
        if decoder is not None:
            batch.decoder_input_ids = torch.from_numpy(decoder)
            hidden = self.model.decode(batch, hidden)
        return self.model.logits("lm", hidden[:, -1]).numpy()


class Table:
    """A model whose next token depends only on the last one: logits (V, V)."""

    heads, generation = ("lm",), {}

    def __init__(self, logits):
        self.logits = logits.astype(np.float32)
        self.config = change(preset("gpt2-mini"), vocab_size=len(logits), sep_id=END, pad_id=0, max_positions=64)

    def start_generation(self, prompts, how, cache=True):
        return GraphGenerationState(self.config, prompts, how, lambda ids, mask, decoder: self.logits[ids[:, -1]])


SETTINGS = {
    "greedy": {},
    "num_beams": {"num_beams": 3},
    "drawn": {"do_sample": True, "seed": 3, "temperature": 1.3},
    "top-k": {"do_sample": True, "top_k": 5},
    "top-p": {"do_sample": True, "top_p": 0.8},
    "penalties": {"num_beams": 2, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_new_tokens": 4},
}


@pytest.mark.parametrize("how", SETTINGS)
@pytest.mark.parametrize("name", FAMILIES)
def test_graph_generates_the_same_as_torch(name, how):
    model, rows = tiny(name), prompts()
    graph = Graph(model)
    generated = generate(graph, rows, max_new_tokens=10, **SETTINGS[how])
    assert generated == generate(model, rows, max_new_tokens=10, **SETTINGS[how])
    assert len({tuple(new) for new in generated}) > 1
    for ids, mask, decoder in graph.seen:
        assert ids.dtype == np.int64 and mask.dtype == bool and ids.shape == mask.shape
        assert (decoder is not None) == (name != "gpt2-mini")
        if decoder is None:
            assert mask.all()  # never padded
    if decoder is not None:
        assert len({id(ids) for ids, _, _ in graph.seen}) == 1  # so that an encoder may cache its output
        assert not mask.all()


def test_graph_without_a_prefix_mask_raises():
    config = change(preset("bert-tiny", vocab_size=VOCAB), logit_position="next")
    graph = Graph(Model(config, ["mlm"]))
    with pytest.raises(UserError, match="prefix mask"):
        generate(graph, [[5]], max_new_tokens=2)


def test_generation_does_not_need_torch():
    code = """
import sys
sys.modules["torch"] = None
import numpy as np
from unmask.model.config import preset
from unmask.model.generate import generate
from unmask.model.generation_state import GraphGenerationState
import unmask.inference.causal, unmask.tasks.generate.task

class Counts:
    config, heads, generation = preset("gpt2-mini", vocab_size=9, sep_id=8), ["lm"], {}
    def start_generation(self, prompts, how, cache=True):
        return GraphGenerationState(self.config, prompts, how, lambda ids, mask, decoder: 9 * np.eye(9, dtype=np.float32)[(ids[:, -1] + 1) % 9])

for settings in ({}, {"num_beams": 2}, {"do_sample": True, "temperature": 0.1}):
    assert generate(Counts(), [[3], [5, 6]], **settings) == [[4, 5, 6, 7, 8], [7, 8]], settings
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# ------------------------------------------------------------------------------------------------------------- search


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_wide_beam_search_equals_brute_force(penalty):
    """Compare with all texts of up to four tokens."""
    logits = generator(1, "table").normal(0, 2, (5, 5))
    logprobs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    scores = {}
    for length in range(1, 5):
        for text in itertools.product(range(5), repeat=length):
            if END in text[:-1] or (length < 4 and text[-1] != END):
                continue
            total = sum(logprobs[a, b] for a, b in itertools.pairwise((3, *text)))
            scores[text] = total / length**penalty
    expected = max(scores, key=scores.get)
    settings = {"num_beams": 125, "max_new_tokens": 4, "length_penalty": penalty, "early_stopping": "never"}
    assert generate(Table(logits), [[3]], **settings) == [list(expected)]


def test_greedy_and_beam_search_differ():
    logits = np.full((5, 5), -20.0)
    logits[3, [0, 1]] = np.log([0.6, 0.4])  # 0 is more likely now,
    logits[0, [0, 1, 3, 4]] = np.log(0.25)
    logits[1, END] = 0.0  # but 1 has a certain continuation
    logits[[2, 4]] = 0.0
    assert generate(Table(logits), [[3]], max_new_tokens=2)[0][0] == 0
    assert generate(Table(logits), [[3]], max_new_tokens=2, num_beams=2) == [[1, END]]


def test_generation_continues_if_every_token_is_forbidden():
    """Every token of the vocabulary was used, and none may be repeated."""
    for settings in ({}, {"do_sample": True}, {"do_sample": True, "top_k": 2, "top_p": 0.5}):
        table = Table(np.zeros((4, 4)))
        (new,) = generate(table, [[0]], max_new_tokens=6, min_new_tokens=6, no_repeat_ngram_size=1, **settings)
        assert len(new) == 6 and set(new) <= {0, 1, 3} | {END}


def test_generate_disables_dropout_and_restores_training_mode():
    model, rows = tiny("gpt2-mini", dropout=0.5), prompts()
    expected = generate(model, rows, max_new_tokens=8)
    model.train()
    assert generate(model, rows, max_new_tokens=8) == expected
    assert model.training and model.encoder.training
    with pytest.raises(UserError):
        generate(model, rows, max_new_tokens=100)
    assert model.training


# --------------------------------------------------------------------------------------------------------------- sampling


@pytest.mark.parametrize("size", [1, 5, FOLD_SIZE - 1, FOLD_SIZE, 3 * FOLD_SIZE + 7, 5000])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_top_indices_equal_a_stable_sort(size, count):
    numbers = generator(size, "best", count)
    for scores in (
        numbers.normal(size=size),
        numbers.integers(0, 4, size).astype(float),  # ties
        np.where(numbers.random(size) < 0.9, -np.inf, numbers.normal(size=size)),
        np.full(size, -np.inf),
    ):
        expected = np.argsort(-scores, kind="stable")[:count]
        assert top_indices(scores, count).tolist() == expected.tolist()


def test_log_softmax_equals_torch():
    scores = generator(0, "softmax").normal(0, 30, (3, 500)).astype(np.float32)
    expected = torch.from_numpy(scores).double().log_softmax(-1).numpy()
    assert gap(log_softmax(scores), expected) <= 1e-5


@pytest.mark.parametrize("top_k", [0, 1, 7, 900])
@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("spread", [0.01, 4.0])
def test_top_k_and_top_p_equal_transformers(top_k, top_p, spread):
    scores = generator(3, "likely").normal(0, spread, 800).astype(np.float32)
    filtered = torch.from_numpy(scores)[None]
    if top_k:
        filtered = transformers.TopKLogitsWarper(top_k)(None, filtered)
    if top_p < 1:
        filtered = transformers.TopPLogitsWarper(top_p)(None, filtered)
    expected = filtered[0].softmax(-1).numpy()
    tokens, weights = filter_logits(scores, GenerationConfig(top_k=top_k, top_p=top_p))
    probabilities = np.zeros(800)
    probabilities[tokens] = weights / weights.sum()
    assert (probabilities > 0).sum() == (expected > 0).sum()
    assert gap(probabilities, expected) < 1e-5


def test_ties_in_top_p_and_top_k():
    assert filter_logits(np.zeros(10, np.float32), GenerationConfig(top_p=0.45))[0].tolist() == [0, 1, 2, 3, 4]
    assert (
        len(filter_logits(np.zeros(10, np.float32), GenerationConfig(top_k=3))[0]) == 10
    )  # as in transformers: ties are kept


@pytest.mark.parametrize("size", [3, SUM_BLOCK, 5 * SUM_BLOCK + 3])
def test_sample_index_follows_the_weights(size):
    weights = generator(size, "weights").random(size).astype(np.float32) ** 8
    weights[::3] = 0.0
    edges = np.cumsum(weights, dtype=np.float64) / weights.sum(dtype=np.float64)
    for number in generator(size, "lots").random(2000):
        assert sample_index(weights, number) == np.searchsorted(edges, number, side="right")
    for seed in range(30):  # after rounding, the last number may equal or exceed the sum
        weights = np.pad(generator(seed, "last").random(size).astype(np.float32), (1, 1))
        assert [sample_index(weights, number) for number in (0.0, 1 - 2**-53)] == [1, size]


def test_sampling_depends_on_seed_sequence_and_step():
    scores = generator(0, "flat").normal(size=(1, 3000)).astype(np.float32)

    def sample(seed, number, step):
        return int(sample_tokens(scores.copy(), GenerationConfig(seed=seed), [number], step)[0])

    keys = list(itertools.product((0, 1), (0, 1, 2), (0, 1, 2)))
    sampled = [sample(*key) for key in keys]
    assert sampled == [sample(*key) for key in keys]
    assert len(set(sampled)) >= len(keys) - 2  # two may sample the same token
    both = sample_tokens(scores.repeat(2, 0), GenerationConfig(seed=1), [2, 0], 1)
    assert both.tolist() == [sample(1, 2, 1), sample(1, 0, 1)]


def test_tiny_temperature_is_greedy():
    scores = generator(0, "cold").normal(0, 30, (2, 100)).astype(np.float32)
    with np.errstate(all="raise", under="ignore"):
        for temperature in (1e-6, 5e-324):
            sampled = sample_tokens(scores.copy(), GenerationConfig(temperature=temperature), [0, 1], 0)
            assert sampled.tolist() == scores.argmax(-1).tolist()
        scores[:, 1:] = -np.inf
        assert sample_tokens(scores.copy(), GenerationConfig(temperature=1e308), [0, 1], 0).tolist() == [0, 0]
        assert sample_tokens(scores.copy(), GenerationConfig(top_p=5e-324), [0, 1], 0).tolist() == [0, 0]


# ------------------------------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("max_new_tokens", "5", "whole number"),
        ("max_new_tokens", 2.5, "whole number"),
        ("max_new_tokens", True, "whole number"),
        ("num_beams", [2], "whole number"),
        ("temperature", "warm", "a number"),
        ("temperature", math.inf, "a number"),
        ("length_penalty", math.nan, "a number"),
        ("do_sample", "yes", "true or false"),
        ("early_stopping", "soon", "true, false or never"),
        ("eos_token_id", [2, "x"], "a list"),
        ("forced_bos_token_id", VOCAB, "the model's vocabulary"),
        ("forced_eos_token_id", -1, "the model's vocabulary"),
        ("seed", 0.5, "whole number"),
        ("length_penalty", 1e308, "-10 to 10"),
        ("repetition_penalty", 1e300, "0.01 to 100"),
        ("temperature", 0.7, "do_sample=True"),
        ("top_k", 5, "do_sample=True"),
    ],
    ids=str,
)
def test_invalid_values_raise(name, value, message):
    with pytest.raises(UserError, match=name) as caught:
        generate(tiny("gpt2-mini"), [[5]], **{name: value})
    assert message in str(caught.value)


def test_saved_temperature_without_sampling_is_accepted():
    """Files of transformers may contain one with do_sample: false."""
    assert GenerationConfig.from_settings({"temperature": 0.6, "top_k": 50, "do_sample": False}).temperature == 0.6
    assert GenerationConfig.from_settings({"do_sample": True}, temperature=0.6).do_sample
    assert (
        GenerationConfig.from_settings({}, temperature=1.0, top_k=0, top_p=1.0, seed=3).seed == 3
    )  # default values change nothing


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_logits_raise(bad, beams):
    logits = np.zeros((5, 5))
    logits[4, 0] = bad
    with pytest.raises(UserError, match="not finite"):
        generate(Table(logits), [[4]], num_beams=beams, max_new_tokens=3)


def test_end_token_outside_the_vocabulary_is_never_generated():
    assert len(generate(Table(np.zeros((5, 5))), [[3]], eos_token_id=999, max_new_tokens=3, min_new_tokens=2)[0]) == 3


def test_models_without_an_lm_head_raise():
    assert lm_head_name(tiny("t5-mini")) == "lm"
    with pytest.raises(UserError, match="its heads are pooler"):
        lm_head_name(Model(preset("bert-tiny", vocab_size=VOCAB), ["pooler"]))
    with pytest.raises(NotImplementedError):
        GenerationState(preset("gpt2-mini"), np.zeros((1, 1), np.int64)).logits()
