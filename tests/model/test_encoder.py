import os
import subprocess
import sys

import pytest
import torch
from near import gap

from unmask.errors import UserError
from unmask.model.config import change, preset
from unmask.model.model import Model

TINY = {
    "bert": preset("bert-tiny", vocab_size=60, layers=3, max_positions=64),
    "modernbert": preset(
        "modernbert-mini", vocab_size=60, hidden=64, heads=4, intermediate=48, max_positions=64, local_window=8
    ),
}
both = pytest.mark.parametrize("family", list(TINY))


def random_ids(*shape, seed=0):
    return torch.randint(5, 60, shape, generator=torch.Generator().manual_seed(seed))


@both
@pytest.mark.parametrize("long", [8, 50])
def test_padding_does_not_change_hidden_states(family, long):
    """A sequence alone, and padded far beyond the local window: equal and finite hidden states."""
    model = Model(TINY[family]).init(0).eval()
    row = random_ids(1, long)
    padded = torch.cat([row, torch.zeros(1, 60 - long, dtype=torch.long)], 1)
    mask = (torch.arange(60) < long)[None]
    with torch.no_grad():
        alone, inside = model(row), model(padded, mask)
    assert inside.isfinite().all()
    assert gap(alone, inside[:, :long]) < 1e-5
    with torch.no_grad():  # without the mask the result differs
        assert (alone - model(padded)[:, :long]).abs().max() > 1e-4


@both
def test_gradients_are_finite_with_padding(family):
    model = Model(TINY[family]).init(0).train()
    mask = torch.arange(60)[None] < torch.tensor([[60], [3]])
    hidden = model(random_ids(2, 60) * mask, mask)
    hidden[mask].square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.encoder.parameters() if p.grad is not None)


def test_local_layer_sees_only_its_window():
    encoder = Model(TINY["modernbert"], ()).init(0).eval().encoder
    x = torch.randn(2, 40, 64, generator=torch.Generator().manual_seed(0))
    x[1] = x[0]
    x[1, 20] = x[0, 3]  # two sequences that differ in one token
    window, rope = encoder._local_mask(random_ids(2, 40), None), encoder.local_rotary(40)
    for i, affected in (
        (0, range(40)),
        (1, range(16, 25)),
    ):  # layer 0 is global; layer 1 is local with 4 tokens to each side
        with torch.no_grad():
            out = encoder.layers[i](x, window if encoder.config.is_local(i) else None, rope)
        changed = (out[0] - out[1]).abs().amax(-1) > 0
        assert changed.nonzero().flatten().tolist() == list(affected)


@pytest.mark.parametrize("length", [4, 5, 6])
def test_no_window_mask_for_short_sequences(length):
    encoder = Model(TINY["modernbert"], ()).encoder
    window = encoder._local_mask(random_ids(2, length), None)
    assert (window is None) == (length <= 5)  # with 4 tokens to each side, all of 5 tokens see each other
    if window is not None:
        assert not window.all()


@both
def test_gradient_checkpointing_repeats_dropout(family):
    model = Model(change(TINY[family], dropout=0.2, attention_dropout=0.2)).init(0).train()
    ids, results = random_ids(3, 20), []
    for on in (False, True):
        model.encoder.checkpointing = on
        model.zero_grad()
        torch.manual_seed(3)
        loss = model(ids).square().mean()
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.encoder.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    torch.manual_seed(4)  # dropout was active
    assert not torch.equal(results[0][0], model(ids).square().mean())


@both
def test_sequence_beyond_max_positions_raises(family):
    with pytest.raises(UserError, match=r"65 tokens[\s\S]*at most 64"):
        Model(TINY[family])(random_ids(1, 65))


def test_segments():
    ids, zeros, ones = random_ids(2, 9), torch.zeros(2, 9, dtype=torch.long), torch.ones(2, 9, dtype=torch.long)
    with torch.no_grad():
        model = Model(TINY["bert"]).init(0).eval()
        assert torch.equal(model(ids), model(ids, None, zeros))
        assert not torch.allclose(model(ids), model(ids, None, ones))
        model = Model(TINY["modernbert"]).init(0).eval()  # ModernBERT has no segments and ignores them
        assert torch.equal(model(ids), model(ids, None, ones))


@both
def test_layers(family):
    model = Model(TINY[family]).init(0).eval()
    states: list[torch.Tensor] = []
    hidden = model.encoder(random_ids(2, 9), states=states)
    assert len(states) == model.config.layers + 1
    assert states[-1] is hidden
    assert all(s.shape == (2, 9, model.config.hidden) for s in states)


AUTOCAST = """
import torch
from unmask.model.config import preset
from unmask.model.model import Model

for name in ("bert-tiny", "modernbert-mini"):
    model = Model(preset(name, vocab_size=60, max_positions=64)).init(0).eval()
    ids = torch.randint(5, 60, (2, 30))
    mask = torch.arange(30)[None] < torch.tensor([[30], [9]])
    with torch.no_grad():
        full = model(ids, mask)
        with torch.autocast("cpu", torch.bfloat16):
            low = model(ids, mask)
    assert 0 < (low.float() - full)[mask].abs().max() < 0.1, name
"""


def test_bfloat16_autocast():
    """Run in a subprocess: some virtual CPUs report AMX support but crash on its instructions."""
    environment = os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
    done = subprocess.run(
        [sys.executable, "-c", AUTOCAST], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@both
def test_compiles_to_one_graph(family):
    """torch.compile finds no graph break (only traced: no C++ compiler is needed)."""
    model = Model(TINY[family]).init(0).eval()
    mask = torch.arange(30)[None] < torch.tensor([[30], [9]])
    traced = torch.compile(model.encoder, backend="eager", fullgraph=True)
    with torch.no_grad():
        assert torch.equal(traced(random_ids(2, 30), mask), model(random_ids(2, 30), mask))
