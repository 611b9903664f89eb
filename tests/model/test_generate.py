"""The searches of generation, on numpy alone: against brute force, against transformers' own rules, and for a model that is
only a function as for torch's with its cache."""

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
    """A model with opinions: large weights, and an end that is likely now and then."""
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
    """A model behind one function that reads whole rows, as an exported graph is."""

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
    """The next token depends on the last one alone: logits (V, V)."""

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
def test_a_graph_writes_what_torch_writes(name, how):
    model, rows = tiny(name), prompts()
    graph = Graph(model)
    made = generate(graph, rows, max_new_tokens=10, **SETTINGS[how])
    assert made == generate(model, rows, max_new_tokens=10, **SETTINGS[how])
    assert len({tuple(new) for new in made}) > 1
    for ids, mask, decoder in graph.seen:
        assert ids.dtype == np.int64 and mask.dtype == bool and ids.shape == mask.shape
        assert (decoder is not None) == (name != "gpt2-mini")
        if decoder is None:
            assert mask.all()  # never padded
    if decoder is not None:
        assert len({id(ids) for ids, _, _ in graph.seen}) == 1  # so that an encoder may keep what it read
        assert not mask.all()


def test_a_graph_without_a_prefix_mask_says_so():
    config = change(preset("bert-tiny", vocab_size=VOCAB), logit_position="next")
    graph = Graph(Model(config, ["mlm"]))
    with pytest.raises(UserError, match="prefix mask"):
        generate(graph, [[5]], max_new_tokens=2)


def test_it_needs_no_torch():
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


# ------------------------------------------------------------------------------------------------------------- the searches


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0])
def test_wide_beams_find_the_best_text_there_is(penalty):
    """Against all texts of up to four tokens."""
    logits = generator(1, "table").normal(0, 2, (5, 5))
    chances = logits - np.log(np.exp(logits).sum(1, keepdims=True))
    scores = {}
    for length in range(1, 5):
        for text in itertools.product(range(5), repeat=length):
            if END in text[:-1] or (length < 4 and text[-1] != END):
                continue
            total = sum(chances[a, b] for a, b in itertools.pairwise((3, *text)))
            scores[text] = total / length**penalty
    wanted = max(scores, key=scores.get)
    settings = {"num_beams": 125, "max_new_tokens": 4, "length_penalty": penalty, "early_stopping": "never"}
    assert generate(Table(logits), [[3]], **settings) == [list(wanted)]


def test_greedy_takes_the_likeliest_and_beams_look_further():
    logits = np.full((5, 5), -20.0)
    logits[3, [0, 1]] = np.log([0.6, 0.4])  # 0 is likelier now,
    logits[0, [0, 1, 3, 4]] = np.log(0.25)
    logits[1, END] = 0.0  # and 1 is sure of what comes then
    logits[[2, 4]] = 0.0
    assert generate(Table(logits), [[3]], max_new_tokens=2)[0][0] == 0
    assert generate(Table(logits), [[3]], max_new_tokens=2, num_beams=2) == [[1, END]]


def test_when_nothing_is_allowed_any_token_comes():
    """A vocabulary in which every token was used, and none may be repeated."""
    for settings in ({}, {"do_sample": True}, {"do_sample": True, "top_k": 2, "top_p": 0.5}):
        table = Table(np.zeros((4, 4)))
        (new,) = generate(table, [[0]], max_new_tokens=6, min_new_tokens=6, no_repeat_ngram_size=1, **settings)
        assert len(new) == 6 and set(new) <= {0, 1, 3} | {END}


def test_dropout_sleeps_and_wakes_again():
    model, rows = tiny("gpt2-mini", dropout=0.5), prompts()
    quiet = generate(model, rows, max_new_tokens=8)
    model.train()
    assert generate(model, rows, max_new_tokens=8) == quiet
    assert model.training and model.encoder.training
    with pytest.raises(UserError):
        generate(model, rows, max_new_tokens=100)
    assert model.training


# --------------------------------------------------------------------------------------------------------------- the scores


@pytest.mark.parametrize("size", [1, 5, FOLD_SIZE - 1, FOLD_SIZE, 3 * FOLD_SIZE + 7, 5000])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_best_is_a_sort(size, count):
    numbers = generator(size, "best", count)
    for scores in (
        numbers.normal(size=size),
        numbers.integers(0, 4, size).astype(float),  # ties
        np.where(numbers.random(size) < 0.9, -np.inf, numbers.normal(size=size)),
        np.full(size, -np.inf),
    ):
        wanted = np.argsort(-scores, kind="stable")[:count]
        assert top_indices(scores, count).tolist() == wanted.tolist()


def test_log_softmax():
    scores = generator(0, "softmax").normal(0, 30, (3, 500)).astype(np.float32)
    wanted = torch.from_numpy(scores).double().log_softmax(-1).numpy()
    assert gap(log_softmax(scores), wanted) <= 1e-5


@pytest.mark.parametrize("top_k", [0, 1, 7, 900])
@pytest.mark.parametrize("top_p", [1e-9, 0.3, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("spread", [0.01, 4.0])
def test_what_may_be_drawn_is_what_transformers_allows(top_k, top_p, spread):
    scores = generator(3, "likely").normal(0, spread, 800).astype(np.float32)
    kept = torch.from_numpy(scores)[None]
    if top_k:
        kept = transformers.TopKLogitsWarper(top_k)(None, kept)
    if top_p < 1:
        kept = transformers.TopPLogitsWarper(top_p)(None, kept)
    wanted = kept[0].softmax(-1).numpy()
    tokens, weights = filter_logits(scores, GenerationConfig(top_k=top_k, top_p=top_p))
    found = np.zeros(800)
    found[tokens] = weights / weights.sum()
    assert (found > 0).sum() == (wanted > 0).sum()
    assert gap(found, wanted) < 1e-5


def test_of_equal_tokens_the_first_are_likely():
    assert filter_logits(np.zeros(10, np.float32), GenerationConfig(top_p=0.45))[0].tolist() == [0, 1, 2, 3, 4]
    assert (
        len(filter_logits(np.zeros(10, np.float32), GenerationConfig(top_k=3))[0]) == 10
    )  # as transformers: ties stay


@pytest.mark.parametrize("size", [3, SUM_BLOCK, 5 * SUM_BLOCK + 3])
def test_a_lot_falls_on_a_token_as_often_as_it_weighs(size):
    weights = generator(size, "weights").random(size).astype(np.float32) ** 8
    weights[::3] = 0.0
    edges = np.cumsum(weights, dtype=np.float64) / weights.sum(dtype=np.float64)
    for lot in generator(size, "lots").random(2000):
        assert sample_index(weights, lot) == np.searchsorted(edges, lot, side="right")
    for seed in range(30):  # rounded, the last lot may be the sum itself, or a little above
        weights = np.pad(generator(seed, "last").random(size).astype(np.float32), (1, 1))
        assert [sample_index(weights, lot) for lot in (0.0, 1 - 2**-53)] == [1, size]


def test_what_is_drawn_has_an_address():
    scores = generator(0, "flat").normal(size=(1, 3000)).astype(np.float32)

    def at(seed, number, step):
        return int(sample_tokens(scores.copy(), GenerationConfig(seed=seed), [number], step)[0])

    places = list(itertools.product((0, 1), (0, 1, 2), (0, 1, 2)))
    found = [at(*place) for place in places]
    assert found == [at(*place) for place in places]
    assert len(set(found)) >= len(places) - 2  # two may fall on one token
    both = sample_tokens(scores.repeat(2, 0), GenerationConfig(seed=1), [2, 0], 1)
    assert both.tolist() == [at(1, 2, 1), at(1, 0, 1)]


def test_a_temperature_of_almost_nothing_is_greedy():
    scores = generator(0, "cold").normal(0, 30, (2, 100)).astype(np.float32)
    with np.errstate(all="raise", under="ignore"):
        for cold in (1e-6, 5e-324):
            drawn = sample_tokens(scores.copy(), GenerationConfig(temperature=cold), [0, 1], 0)
            assert drawn.tolist() == scores.argmax(-1).tolist()
        scores[:, 1:] = -np.inf
        assert sample_tokens(scores.copy(), GenerationConfig(temperature=1e308), [0, 1], 0).tolist() == [0, 0]
        assert sample_tokens(scores.copy(), GenerationConfig(top_p=5e-324), [0, 1], 0).tolist() == [0, 0]


# ------------------------------------------------------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("name", "value", "said"),
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
def test_a_wrong_value_is_explained(name, value, said):
    with pytest.raises(UserError, match=name) as caught:
        generate(tiny("gpt2-mini"), [[5]], **{name: value})
    assert said in str(caught.value)


def test_a_folders_own_temperature_is_no_mistake():
    """Files of transformers hold one beside do_sample: false."""
    assert GenerationConfig.from_settings({"temperature": 0.6, "top_k": 50, "do_sample": False}).temperature == 0.6
    assert GenerationConfig.from_settings({"do_sample": True}, temperature=0.6).do_sample
    assert (
        GenerationConfig.from_settings({}, temperature=1.0, top_k=0, top_p=1.0, seed=3).seed == 3
    )  # these change nothing


@pytest.mark.parametrize("beams", [1, 2])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers(bad, beams):
    logits = np.zeros((5, 5))
    logits[4, 0] = bad
    with pytest.raises(UserError, match="not finite"):
        generate(Table(logits), [[4]], num_beams=beams, max_new_tokens=3)


def test_an_end_outside_the_vocabulary_never_comes():
    assert len(generate(Table(np.zeros((5, 5))), [[3]], eos_token_id=999, max_new_tokens=3, min_new_tokens=2)[0]) == 3


def test_who_cannot_write():
    assert lm_head_name(tiny("t5-mini")) == "lm"
    with pytest.raises(UserError, match="its heads are pooler"):
        lm_head_name(Model(preset("bert-tiny", vocab_size=VOCAB), ["pooler"]))
    with pytest.raises(NotImplementedError):
        GenerationState(preset("gpt2-mini"), np.zeros((1, 1), np.int64)).logits()
