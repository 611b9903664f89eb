"""The token behind a [MASK] cannot change any logit, because the batch does not contain it in any form."""

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
def test_masked_token_does_not_change_logits(name: str) -> None:
    recipe = Recipe.build({"objective": "mlm", "mlm": {"mask": 1, "random": 0, "keep": 0}})
    ids = generator("leak").choice(np.flatnonzero(~TOKENIZER.special), 40)
    before, positions = logits(name, ids, recipe)
    other = ids.copy()
    other[positions] = (other[positions] - 5 + 17) % 256 + 5
    assert (other[positions] != ids[positions]).all()
    after, _ = logits(name, other, recipe)
    assert torch.equal(before, after)


def test_leak_check_detects_kept_tokens() -> None:
    """With kept tokens the same change does move the logits, so the equality above is not a coincidence."""
    recipe = Recipe.build({"objective": "mlm", "mlm": {"mask": 0, "random": 0, "keep": 1}})
    ids = generator("leak").choice(np.flatnonzero(~TOKENIZER.special), 40)
    before, positions = logits("bert-tiny", ids, recipe)
    other = ids.copy()
    other[positions] = (other[positions] - 5 + 17) % 256 + 5
    after, _ = logits("bert-tiny", other, recipe)
    assert not torch.equal(before, after)
