"""word2vec's encoder: a token has one vector, wherever it stands; folders and answers as of any other model."""

import numpy as np
import pytest
import torch

from unmask.batch import Batch
from unmask.data.store import TokenStore
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.serve.predictor import Predictor

TINY = preset("cbow-mini", vocab_size=60, hidden=32, labels=("a", "b"))


def test_vectors_are_static(store: TokenStore) -> None:
    config = preset("cbow-mini", vocab_size=store.tokenizer.size, hidden=32)
    predictor = Predictor(Model(config, ["cbow"]).init(0), store.tokenizer)
    a, b = predictor.embed(["the module", "import a module of the package now"], "token")
    ids = [store.tokenizer.encode(text) for text in ("the module", "import a module of the package now")]
    shared = set(ids[0]) & set(ids[1])
    assert len(shared) > 1
    for token in shared:
        assert np.array_equal(a[ids[0].index(token) + 1], b[ids[1].index(token) + 1])
    assert not np.array_equal(a[1], a[2])


@torch.no_grad()
def test_called_as_any_encoder() -> None:
    model = Model(TINY, ["cbow"]).init(0).eval()
    ids, at = torch.tensor([[2, 9, 8, 3], [2, 7, 3, 0]]), torch.tensor([6, 1])
    whole = model(ids, ids != 0)
    assert torch.equal(whole, model.embedding[ids])
    assert torch.equal(model.encode(Batch(ids), at), whole.flatten(0, 1)[at])
    x, states = model.encoder(ids, layers=True)
    assert torch.equal(x, whole)
    assert len(states) == 1


@pytest.mark.parametrize("heads", [["cbow"], ["classify"], ["tag"], ["cbow", "classify"], []])
def test_folder(heads: list[str], tmp_path) -> None:
    model = Model(TINY, heads).init(0).eval()
    hf.save(model, tmp_path)
    found = hf.load(tmp_path, heads=heads, changes={"labels": ("a", "b")})
    assert not found.missing
    assert not found.unexpected
    assert found.config == TINY
    for name, value in model.state_dict().items():
        assert torch.equal(found.model.state_dict()[name], value), name


def test_it_answers_what_it_can(store: TokenStore) -> None:
    config = preset("cbow-mini", vocab_size=store.tokenizer.size)
    predictor = Predictor(Model(config, ["cbow"]).init(0), store.tokenizer)
    with pytest.raises(UserError, match="cannot fill a mask: its heads are cbow"):
        predictor.fill("the [MASK]")


def test_a_row_is_the_mean_of_its_words() -> None:
    """[CLS] has one vector in every row, so a classifier that read it would know nothing."""
    with pytest.raises(UserError, match="pooling"):
        preset("cbow-mini", pooling="cls")


def test_an_untied_output(store: TokenStore) -> None:
    model = Model(TINY, ["cbow"]).init(0)
    model.logits("cbow", torch.ones(2, 32)).sum().backward()
    assert model.embedding.grad is None


def test_a_frozen_encoder_classifies(store: TokenStore, tmp_path) -> None:
    """The head alone is trained, through the same door as everything else."""
    from unmask.lab.finetune import answer, finetune
    from unmask.recipe import Recipe
    from unmask.tasks.classify import Classify
    from unmask.train.log import Console
    from unmask.train.run import Run

    train = {"epochs": 10, "batch": 8, "length": 16, "optimizer": "adamw", "lr": 1e-2}
    recipe = Recipe.build({"train": train})
    records = [
        {"text": f"sorted list of {i}" if i % 2 else f"class with methods {i}", "label": str(i % 2)} for i in range(24)
    ]
    task = Classify(recipe, store.tokenizer, ["0", "1"], 16)
    config = preset("cbow-mini", vocab_size=store.tokenizer.size, hidden=32, intermediate=32, labels=("0", "1"))
    model = Model(config, ["classify"]).init(0)
    for name, p in model.encoder.named_parameters():
        p.requires_grad_(name.startswith("mix."))
    before = model.embedding.clone()
    finetune(model, task, records, recipe, Run.create(tmp_path / "run", "finetune", "x"), Console(quiet=True), "x")
    assert task.score(answer(model, task, records), records)["accuracy"] > 0.9
    assert torch.equal(model.embedding, before)
    again = hf.load(tmp_path / "run" / "model").model
    assert list(again.heads) == ["pooler", "classify"]
    assert answer(again, task, records) == answer(model, task, records)
