"""Over the registry: every objective trains, its loss falls, it saves, and what it saved opens bit for bit."""

from pathlib import Path

import pytest
import torch

from unmask.data.rows import Rows
from unmask.data.store import TokenStore
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.objectives.objective import build
from unmask.recipe import Recipe
from unmask.registry import OBJECTIVES
from unmask.train.distributed import World
from unmask.train.loader import Loader
from unmask.train.schedule import plan
from unmask.train.trainer import Trainer

NAMES = [*OBJECTIVES.names(), "mlm+nsp"]
SMALL = {"hidden": 32, "heads": 2, "layers": 2, "intermediate": 64}


@pytest.mark.parametrize("family", ["bert-tiny", "modernbert-mini"])
@pytest.mark.parametrize("name", NAMES)
def test_objective(name: str, family: str, store: TokenStore, tmp_path: Path) -> None:
    recipe = Recipe.build({"objective": name, "train": {"steps": 60, "batch": 8, "length": 48, "schedule": "constant"}})
    objective = build(recipe, store.tokenizer)
    model = Model(preset(family, vocab_size=store.tokenizer.size, **SMALL), objective.heads).init(1)
    rows = Rows(store.train, store.tokenizer, 1, objective.rows)
    p = plan(recipe, {48: rows.count(48)})
    loader = Loader(rows, objective, 1)
    trainer = Trainer(model, objective, recipe.train, p, 1, World(0, 1))
    batch = loader.batch(0, 8, p.phase(0))
    assert set(objective.counts(batch)) == set(objective.terms)
    losses = [trainer.step(s, [(0, batch)]).values["loss"] for s in range(60)]
    assert losses[-1] < 0.7 * losses[0]
    hf.save(model, tmp_path / "model", store.tokenizer)
    again = hf.load(tmp_path / "model", heads=objective.heads)
    assert not again.missing
    assert not again.unexpected
    for key, value in model.state_dict().items():
        assert torch.equal(value, again.model.state_dict()[key]), key
    model.eval()
    first, second = (objective.evaluate(m, batch) for m in (model, again.model))
    assert {k: float(v) for k, (v, _) in first.items()} == {k: float(v) for k, (v, _) in second.items()}
