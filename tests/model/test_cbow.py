"""word2vec's encoder: a token has one vector, wherever it stands; folders and answers as of any other model."""

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
    states: list[torch.Tensor] = []
    x = model.encoder(ids, states=states)
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
