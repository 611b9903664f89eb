"""The token under a [MASK] cannot change any logit: it is not in the batch at all, in any form."""

import numpy as np
import pytest
import torch

from unmask.batch import Example, StepConfig, collate
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.objective import build
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.seeds import generator
from unmask.text.tokenizer import Tokenizer

TOKENIZER = Tokenizer.train(["a"], TokenizerRecipe(type="byte"))
SHAPE = {"vocab_size": TOKENIZER.size, "hidden": 32, "heads": 2, "layers": 2, "intermediate": 64}


def logits(name: str, ids: np.ndarray, recipe: Recipe) -> tuple[torch.Tensor, np.ndarray]:
    objective = build(recipe, TOKENIZER)
    corrupted = objective.corrupt(Example(ids), generator(0), StepConfig(0, len(ids), 0.15))
    model = Model(preset(name, **SHAPE), objective.heads).init(0).eval()
    batch = collate([corrupted], TOKENIZER.pad)
    with torch.no_grad():
        hidden = model.encoder(batch.input_ids, batch.attention_mask, batch.token_type_ids)
        return model.logits("mlm", hidden.flatten(0, 1)), corrupted.labels["mlm.positions"]


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
def test_hidden_token_changes_nothing(name: str) -> None:
    recipe = Recipe.build({"objective": "mlm", "mlm": {"mask": 1, "random": 0, "keep": 0}})
    ids = generator("leak").choice(np.flatnonzero(~TOKENIZER.special), 40)
    before, positions = logits(name, ids, recipe)
    other = ids.copy()
    other[positions] = (other[positions] - 5 + 17) % 256 + 5
    assert (other[positions] != ids[positions]).all()
    after, _ = logits(name, other, recipe)
    assert torch.equal(before, after)


def test_the_test_sees_a_leak() -> None:
    """With kept tokens the same change does move the logits, so equality above is no accident."""
    recipe = Recipe.build({"objective": "mlm", "mlm": {"mask": 0, "random": 0, "keep": 1}})
    ids = generator("leak").choice(np.flatnonzero(~TOKENIZER.special), 40)
    before, positions = logits("bert-tiny", ids, recipe)
    other = ids.copy()
    other[positions] = (other[positions] - 5 + 17) % 256 + 5
    after, _ = logits("bert-tiny", other, recipe)
    assert not torch.equal(before, after)
