"""Mask selection and replacement, by statistics over a million tokens."""

import numpy as np
import pytest

from unmask.batch import Example, StepConfig
from unmask.objectives.mlm import MLM
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.seeds import generator
from unmask.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a"], TokenizerRecipe(type="byte", special_tokens=["<user>"]))


def corrupt_million(mlm: MLM, rate: float, length: int = 128) -> dict[str, float]:
    """Return the fractions over 10⁶ ordinary tokens in rows of random bytes that include special tokens."""
    t = mlm.tokenizer
    user = int(np.flatnonzero(t.special)[-1])
    ordinary = np.flatnonzero(~t.special)
    total = chosen = masked = swapped = kept = 0
    step_config = StepConfig(0, length, rate)
    for i in range(1_000_000 // (length - 3)):
        rng = generator("rows", i)
        body = rng.choice(ordinary, length - 3)
        ids = np.concatenate([[t.cls], body, [user, t.sep]])
        out = mlm.corrupt(Example(ids), generator("test", i), step_config)
        at, targets = out.labels["mlm.positions"], out.labels["mlm.targets"]
        assert not t.special[ids[at]].any(), "a special token was masked"
        assert (targets == ids[at]).all()
        rest = np.delete(np.arange(len(ids)), at)
        assert (out.input_ids[rest] == ids[rest]).all(), "an unmasked token changed"
        now = out.input_ids[at]
        assert not t.special[now[now != t.mask]].any(), "a random token is special"
        total += len(body)
        chosen += len(at)
        masked += int((now == t.mask).sum())
        swapped += int(((now != t.mask) & (now != targets)).sum())
        kept += int((now == targets).sum())
    return {"chosen": chosen / total, "mask": masked / chosen, "random": swapped / chosen, "keep": kept / chosen}


@pytest.mark.parametrize("count", ["exact", "bernoulli"])
def test_mask_rate_is_15_percent_with_80_10_10_replacement(tokenizer: Tokenizer, count: str) -> None:
    fractions = corrupt_million(MLM(Recipe.build({"mlm": {"sampling": count}}), tokenizer), 0.15)
    unchanged_by_chance = 0.1 / int((~tokenizer.special).sum())  # a random token may equal the original
    assert fractions["chosen"] == pytest.approx(0.15, abs=0.0015)
    assert fractions["mask"] == pytest.approx(0.8, abs=0.005)
    assert fractions["random"] == pytest.approx(0.1 - unchanged_by_chance, abs=0.005)
    assert fractions["keep"] == pytest.approx(0.1 + unchanged_by_chance, abs=0.005)


@pytest.mark.parametrize(("mask", "random", "keep"), [(1, 0, 0), (0.9, 0.1, 0), (0.9, 0, 0.1)])
def test_other_replacement_ratios(tokenizer: Tokenizer, mask: float, random: float, keep: float) -> None:
    recipe = Recipe.build({"mlm": {"mask": mask, "random": random, "keep": keep}})
    fractions = corrupt_million(MLM(recipe, tokenizer), 0.3, length=512)
    assert fractions["chosen"] == pytest.approx(0.3, abs=0.0015)
    assert fractions["mask"] == pytest.approx(mask, abs=0.005)
    assert fractions["random"] == pytest.approx(random, abs=0.005)


def test_exact_sampling_varies_by_at_most_one_and_bernoulli_by_more(tokenizer: Tokenizer) -> None:
    ids = np.concatenate([[tokenizer.cls], np.full(101, int(np.flatnonzero(~tokenizer.special)[7])), [tokenizer.sep]])

    def counts(kind: str) -> set[int]:
        mlm = MLM(Recipe.build({"mlm": {"sampling": kind}}), tokenizer)
        rows = (mlm.corrupt(Example(ids), generator(i), StepConfig(0, 103, 0.15)) for i in range(300))
        return {len(r.labels["mlm.targets"]) for r in rows}

    assert counts("exact") == {15, 16}  # 15.15 on average
    assert len(counts("bernoulli")) > 10


def test_row_of_special_tokens_has_no_masks(tokenizer: Tokenizer) -> None:
    mlm = MLM(Recipe.build({}), tokenizer)
    out = mlm.corrupt(Example(np.array([tokenizer.cls, tokenizer.sep])), generator(0), StepConfig(0, 8, 0.15))
    assert len(out.labels["mlm.targets"]) == 0
