import pytest
import torch
from near import gap

from unmask.errors import UserError
from unmask.model.config import preset
from unmask.model.model import Model

TINY = preset("bert-tiny", vocab_size=60, max_positions=32)
MODERN = preset("modernbert-mini", vocab_size=60, hidden=64, heads=4, intermediate=48, max_positions=32)


@pytest.mark.parametrize("config", [TINY, MODERN])
def test_initial_weights_depend_only_on_seed_and_name(config):
    torch.manual_seed(1)
    a = Model(config, ["mlm"]).init(7).state_dict()
    torch.manual_seed(2)
    b = Model(config, ["mlm", "nsp"]).init(7).state_dict()  # another head changes nothing
    c = Model(config, ["mlm"]).init(8).state_dict()
    assert all(torch.equal(a[key], b[key]) for key in a)
    matrices = [key for key in a if a[key].ndim == 2]
    assert matrices
    assert not any(torch.equal(a[key], c[key]) for key in matrices)
    assert len({a[key].flatten()[-1].item() for key in matrices}) == len(matrices)


def test_init_does_not_use_the_global_generator():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    Model(TINY, ["mlm", "nsp"]).init(0)
    assert torch.equal(torch.rand(3), expected)


def test_init_of_selected_parameters():
    model = Model(TINY, ["mlm", "nsp"]).init(0)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    model.init(1, only=["heads.nsp.out.weight"])
    changed = [key for key, value in model.state_dict().items() if not torch.equal(value, before[key])]
    assert changed == ["heads.nsp.out.weight"]


def test_padding_embedding_is_zero_and_gets_no_gradient():
    model = Model(TINY, ["pooler"]).init(0)
    assert not model.embedding[0].any()
    hidden = model(torch.tensor([[2, 9, 0, 0]]))
    # A plain sum would have only rounding errors as a gradient: the last layer norm keeps it constant.
    (hidden * torch.randn(hidden.shape, generator=torch.Generator().manual_seed(0))).sum().backward()
    assert not model.embedding.grad[0].any()
    assert model.embedding.grad[9].abs().max() > 1e-3


def test_tied_logits_train_the_embedding():
    for tie in (True, False):
        model = Model(preset("bert-tiny", vocab_size=60, tie=tie)).init(0)
        model.logits("mlm", torch.ones(2, 128)).sum().backward()
        assert (model.embedding.grad is not None) == tie


def test_logits_at_selected_positions_equal_all_logits():
    model = Model(TINY, ["mlm", "nsp"]).init(0).eval()
    hidden = model(torch.randint(5, 60, (3, 10), generator=torch.Generator().manual_seed(0)))
    chosen = torch.tensor([0, 7, 29])
    some = model.logits("mlm", hidden.flatten(0, 1)[chosen])
    assert gap(some, model.logits("mlm", hidden).flatten(0, 1)[chosen]) < 1e-5
    assert model.logits("nsp", hidden).shape == (3, 2)


def test_mean_pooling_ignores_padding():
    config = preset("modernbert-mini", vocab_size=60, labels=("a", "b"), pooling="mean")
    model = Model(config, ["classify"]).init(0).eval()
    row = torch.randn(1, 4, 256, generator=torch.Generator().manual_seed(0))
    padded = torch.cat([row, torch.full((1, 2, 256), 9.0)], 1)
    mask = torch.tensor([[True] * 4 + [False] * 2])
    assert gap(model.logits("classify", row), model.logits("classify", padded, mask)) < 1e-5
    assert (model.logits("classify", row) - model.logits("classify", padded)).abs().max() > 1e-3


@pytest.mark.parametrize(("heads", "message"), [(["mln"], "did you mean mlm"), (["classify"], "without labels")])
def test_invalid_heads_raise(heads, message):
    with pytest.raises(UserError, match=message):
        Model(TINY, heads)


def test_dropout_is_only_active_in_training():
    model = Model(TINY).init(0)
    ids = torch.tensor([[2, 9, 8, 3]])
    assert not torch.equal(model.train()(ids), model(ids))  # dropout 0.1
    assert torch.equal(model.eval()(ids), model(ids))
