"""Examples for display: every selected token shows what happened to it, and masked words are whole words."""

import re

import numpy as np
import pytest

from unmask.batch import Example, StepConfig
from unmask.inference.examples import masked_batch
from unmask.inference.predictor import Predictor
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.mlm import MLM
from unmask.recipe import DataRecipe, Recipe, TokenizerRecipe
from unmask.text.corpus import Corpus
from unmask.text.prepare import prepare
from unmask.text.tokenizer import Tokenizer

SENTENCES = [f"The {a} of the {b} saw a {c} in the garden." for a in ("king", "cat", "dog") for b in ("hill", "town")
             for c in ("bird", "tree", "house", "river")]  # fmt: skip


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_masked_batch_shows_the_state_of_each_token(kind):
    size = {"wordpiece": 60, "bpe": 290}[kind]
    tokenizer = Tokenizer.train(SENTENCES * 3, TokenizerRecipe(type=kind, vocab_size=size))
    objective = MLM(Recipe.build({"mlm": {"mask": 0.4, "random": 0.3, "keep": 0.3}}), tokenizer)
    seen = set()
    for seed in range(10):
        before = np.array([tokenizer.cls, *tokenizer.encode(" ".join(SENTENCES[:3])), tokenizer.sep])
        example = Example(before, labels={"nsp": np.array([seed % 2])})
        after = objective.corrupt(example, np.random.default_rng(seed), StepConfig(0, 128, 0.3))
        (row,) = masked_batch([after], tokenizer).rows
        states = [part.state for part in row.parts]
        positions = after.labels["mlm.positions"]
        assert states.count("masked") == int((after.input_ids == tokenizer.mask).sum())
        assert states.count("kept") == int((after.input_ids[positions] == before[positions]).sum())
        assert sum(states.count(s) for s in ("masked", "random", "kept")) == len(positions) == row.chosen
        assert (row.tokens, row.is_next) == (len(before), seed % 2 == 0)
        assert all((p.text == p.shown) == (p.state in ("kept", "text", "special")) for p in row.parts)
        text = "".join(p.text for p in row.parts).replace("[CLS]", "").replace("[SEP]", "")
        assert text.split() == " ".join(SENTENCES[:3]).lower().split()
        seen |= set(states)
    assert seen == {"masked", "random", "kept", "special", "text"}


def test_targets_are_counted_for_every_objective():
    """Includes objectives that mask nothing; an objective with sequence labels has no target tokens."""
    tokenizer = Tokenizer.train(SENTENCES * 3, TokenizerRecipe(vocab_size=60))
    ids = np.array([tokenizer.cls, *tokenizer.encode(SENTENCES[0]), tokenizer.sep])
    counted = {"mine.positions": np.array([2, 3]), "mine.targets": ids[[2, 3]]}
    rows = masked_batch([Example(ids, labels=counted), Example(ids, labels={"sop": np.array([1])})], tokenizer).rows
    assert [row.chosen for row in rows] == [2, 0]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_example_fills_mask_a_whole_word_of_held_out_text(tmp_path, kind):
    file = tmp_path / "text.txt"
    file.write_text("\n\n".join(SENTENCES))
    tokenizer = Tokenizer.train(SENTENCES, TokenizerRecipe(type=kind, vocab_size=300 if kind == "bpe" else 52))
    settings = DataRecipe(corpus=[str(file)], eval_fraction=0.3, workers=1)
    store = prepare(Corpus([str(file)], settings), tokenizer, settings, tmp_path / "store")
    model = Model(preset("bert-tiny", vocab_size=tokenizer.size)).init(0)
    fills = Predictor(model, tokenizer, "cpu").example_fills(store, count=8, top_k=4)
    assert 3 <= len(fills) <= 8
    sentences = {sentence.lower() for sentence in SENTENCES}
    for fill in fills:
        assert re.search(r"(^| )\[MASK\]( |\.|$)", fill["text"])  # not part of a word
        assert fill["answer"].strip().isalpha()
        whole = fill["text"].replace("[MASK]", fill["answer"].strip())
        assert whole.replace(" .", ".") in sentences
        assert len(fill["fills"]) == 4
        assert all(0 <= c["probability"] <= 1 and "[MASK]" not in c["text"] for c in fill["fills"])
