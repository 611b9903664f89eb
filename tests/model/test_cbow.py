"""The word2vec CBOW encoder: a token has the same vector at every position; saving and predicting work as for any model."""

import numpy as np
import pytest
import torch

from unmask.batch import Batch
from unmask.errors import UserError
from unmask.inference.predictor import Predictor
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.text.store import TokenStore

TINY = preset("cbow-mini", vocab_size=60, hidden=32, labels=("a", "b"))


def test_token_vectors_are_static(store: TokenStore) -> None:
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
def test_encoder_interface() -> None:
    model = Model(TINY, ["cbow"]).init(0).eval()
    ids, positions = torch.tensor([[2, 9, 8, 3], [2, 7, 3, 0]]), torch.tensor([6, 1])
    hidden = model(ids, ids != 0)
    assert torch.equal(hidden, model.embedding[ids])
    assert torch.equal(model.encode(Batch(ids), positions), hidden.flatten(0, 1)[positions])
    states: list[torch.Tensor] = []
    x = model.encoder(ids, states=states)
    assert torch.equal(x, hidden)
    assert len(states) == 1


@pytest.mark.parametrize("heads", [["cbow"], ["classify"], ["tag"], ["cbow", "classify"], []])
def test_save_and_load_round_trip(heads: list[str], tmp_path) -> None:
    model = Model(TINY, heads).init(0).eval()
    hf.save(model, tmp_path)
    loaded = hf.load(tmp_path, heads=heads, changes={"labels": ("a", "b")})
    assert not loaded.missing
    assert not loaded.unexpected
    assert loaded.config == TINY
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value), name


def test_fill_without_mlm_head_raises(store: TokenStore) -> None:
    config = preset("cbow-mini", vocab_size=store.tokenizer.size)
    predictor = Predictor(Model(config, ["cbow"]).init(0), store.tokenizer)
    with pytest.raises(UserError, match="cannot fill a mask: its heads are cbow"):
        predictor.fill("the [MASK]")


def test_cls_pooling_raises() -> None:
    """[CLS] has the same vector in every sequence, so a classifier could learn nothing from it."""
    with pytest.raises(UserError, match="pooling"):
        preset("cbow-mini", pooling="cls")


def test_output_embeddings_are_untied(store: TokenStore) -> None:
    model = Model(TINY, ["cbow"]).init(0)
    model.logits("cbow", torch.ones(2, 32)).sum().backward()
    assert model.embedding.grad is None
