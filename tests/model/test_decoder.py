"""Causal models and decoders: later tokens do not change earlier outputs, and a KV cache changes nothing."""

import pytest
import torch
from near import gap

from unmask.batch import Batch
from unmask.errors import UserError
from unmask.model.cache import KVCache
from unmask.model.config import preset
from unmask.model.model import Model

CAUSAL = ("gpt-mini", "gpt2-mini")
DECODERS = ("t5-mini", "t5-v1.1-mini", "bart-mini")
VOCAB = 60


def tiny(name, heads=("lm",), **changes):
    full = preset(name)
    shape = {"vocab_size": VOCAB, "layers": 3, "hidden": 32, "heads": 4, "max_positions": 40, "sep_id": 2}
    shape |= {"decoder_layers": 3} if full.decoder_layers else {}
    shape |= {"head_size": 8, "buckets": 8, "bucket_reach": 16} if full.head_size else {}
    shape |= {"intermediate": 48} if full.intermediate else {}
    shape |= {"local_window": 8} if full.local_window else {}
    model = Model(preset(name, **(shape | changes)), heads).init(0).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # large weights: with initial weights attention is nearly uniform
        for value in model.parameters():
            if value.ndim == 2:
                value.normal_(0.0, 0.2, generator=generator)
    return model


def random_ids(*shape, seed=0):
    return torch.randint(5, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def logits(model, ids, prefix=None):
    """Return the logits of a sequence: of the decoder if present, else of the encoder."""
    head = "lm" if "lm" in model.heads else "mlm"
    with torch.no_grad():
        if model.decoder is None:
            return model.logits(head, model.encode(Batch(ids, prefix_lengths=prefix)))
        batch = Batch(random_ids(len(ids), 9, seed=7), decoder_input_ids=ids)
        return model.logits(head, model.decode(batch, model.encode(batch)))


@pytest.mark.parametrize("name", [*CAUSAL, *DECODERS])
def test_later_tokens_do_not_change_earlier_logits(name):
    model, ids = tiny(name), random_ids(2, 30)
    before = logits(model, ids)
    for position in (1, 17, 29):
        changed = ids.clone()
        changed[:, position:] = random_ids(2, 30 - position, seed=9)
        after = logits(model, changed)
        assert torch.equal(before[:, :position], after[:, :position])
        assert not torch.equal(before[:, position:], after[:, position:])


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini", "gpt2-mini"])
def test_prefix_lm_later_tokens_do_not_change_earlier_logits(name):
    """Tokens in the prefix are visible to all; later tokens only to those after them."""
    model = tiny(name, ["lm"] if name in CAUSAL else ["mlm"])
    ids, prefix = random_ids(2, 30), torch.tensor([10, 4])
    before = logits(model, ids, prefix)
    changed = ids.clone()
    changed[:, 20:] = random_ids(2, 10, seed=9)
    after = logits(model, changed, prefix)
    assert torch.equal(before[:, :20], after[:, :20])
    changed = ids.clone()
    changed[:, 3] = (ids[:, 3] + 1).clamp(max=VOCAB - 1)
    after = logits(model, changed, prefix)
    assert not torch.equal(before[:, 0], after[:, 0])  # the first token sees the last token of the prefix
    assert torch.equal(logits(model, ids, prefix * 0)[:, :3], logits(model, changed, prefix * 0)[:, :3])


@pytest.mark.parametrize("name", CAUSAL)
def test_causal_model_with_a_cache_equals_a_full_pass(name):
    """Process a prompt, then one token at a time, and compare with the logits of the whole sequence."""
    model, ids = tiny(name), random_ids(3, 20)
    full, cache, parts = logits(model, ids), KVCache(3), []
    with torch.no_grad():
        for a, b in [(0, 12), *((i, i + 1) for i in range(12, 20))]:
            parts.append(model.logits("lm", model.encoder(ids[:, a:b], cache=cache)))
            assert cache.length == b
    assert gap(torch.cat(parts, 1), full) <= 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_decoder_with_a_cache_equals_a_full_pass(name):
    model, ids = tiny(name), random_ids(2, 20)
    texts = random_ids(2, 15, seed=3)
    batch = Batch(texts, torch.arange(15)[None] < torch.tensor([[15], [6]]), decoder_input_ids=ids)
    cache, parts = KVCache(3), []
    with torch.no_grad():
        states = model.encode(batch)
        full = model.logits("lm", model.decode(batch, states))
        for a, b in [(0, 3), *((i, i + 1) for i in range(3, 20))]:
            batch.decoder_input_ids = ids[:, a:b]
            parts.append(model.logits("lm", model.decode(batch, states, cache=cache)))
    assert gap(torch.cat(parts, 1), full) <= 1e-5


def test_cache_is_reordered_with_beams():
    model, ids = tiny("gpt2-mini"), random_ids(3, 12)
    cache, order = KVCache(3), torch.tensor([2, 0, 0])
    with torch.no_grad():
        model.encoder(ids, cache=cache)
        cache.reorder(order)
        step = model.encoder(random_ids(3, 1, seed=4), cache=cache)
        full = model.encoder(torch.cat([ids[order], random_ids(3, 1, seed=4)], 1))
    assert gap(step[:, 0], full[:, -1]) <= 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_decoding_selected_positions_equals_a_full_pass(name):
    model = tiny(name)
    batch = Batch(random_ids(2, 9), decoder_input_ids=random_ids(2, 7, seed=1))
    positions = torch.tensor([0, 5, 9, 13])
    with torch.no_grad():
        hidden = model.encode(batch)
        some, full = model.decode(batch, hidden, positions), model.decode(batch, hidden)
    assert some.shape == (4, 32)
    assert gap(some, full.flatten(0, 1)[positions]) < 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_padding_does_not_change_decoder_states(name):
    model = tiny(name)
    texts, out = random_ids(1, 6), random_ids(1, 5, seed=1)
    padded, mask = torch.cat([texts, torch.zeros(1, 4, dtype=torch.long)], 1), (torch.arange(10) < 6)[None]
    longer = torch.cat([out, torch.zeros(1, 3, dtype=torch.long)], 1)
    with torch.no_grad():
        alone, batch = Batch(texts, decoder_input_ids=out), Batch(padded, mask, decoder_input_ids=longer)
        a, b = model.decode(alone, model.encode(alone)), model.decode(batch, model.encode(batch))
        batch.attention_mask = None  # without the mask the result differs
        c = model.decode(batch, model.encode(batch))
    assert gap(a, b[:, :5]) < 1e-5
    assert (a - c[:, :5]).abs().max() > 1e-4


@pytest.mark.parametrize("name", [*CAUSAL, *DECODERS])
def test_gradient_checkpointing_gives_the_same_gradients(name):
    model, results = tiny(name, dropout=0.2, attention_dropout=0.2).train(), []
    batch = Batch(random_ids(2, 9), decoder_input_ids=random_ids(2, 7, seed=1))
    for on in (False, True):
        model.encoder.checkpointing = on
        if model.decoder is not None:
            model.decoder.checkpointing = on
        model.zero_grad()
        torch.manual_seed(3)
        hidden = model.encode(batch)
        loss = (hidden if model.decoder is None else model.decode(batch, hidden)).square().mean()
        loss.backward()
        results.append([loss.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_t5_decoder_start_token_gets_a_gradient():
    """It equals the padding token, which gets no gradient as an encoder input."""
    model = tiny("t5-v1.1-mini")
    assert model.config.start_id == model.config.pad_id == 0
    batch = Batch(random_ids(1, 5), decoder_input_ids=torch.tensor([[0, 7]]))
    model.decode(batch, model.encode(batch)).sum().backward()
    assert model.embedding.grad[0].any()
    model = tiny("bart-mini")
    batch = Batch(torch.tensor([[5, 6, 0]]), decoder_input_ids=torch.tensor([[2, 7]]))
    model.decode(batch, model.encode(batch)).sum().backward()
    assert not model.embedding.grad[0].any()


def test_relative_positions_have_no_maximum_length():
    ids = random_ids(1, 50)
    assert logits(tiny("t5-mini"), ids).shape == (1, 50, VOCAB)
    with pytest.raises(UserError, match="50 tokens"):
        logits(tiny("bart-mini"), ids)
    with pytest.raises(UserError, match="50 tokens"):
        logits(tiny("gpt2-mini"), ids)


@pytest.mark.parametrize("name", ["gpt2-mini", "t5-mini"])
def test_compiles_to_one_graph(name):
    model, ids = tiny(name), random_ids(2, 8)
    traced = torch.compile(model.decoder or model.encoder, backend="eager", fullgraph=True)
    with torch.no_grad():
        if model.decoder is None:
            assert torch.equal(traced(ids), model.encoder(ids))
        else:
            inputs = (ids, model.encoder.embeddings.tokens, model(random_ids(2, 5)))
            assert torch.equal(traced(*inputs), model.decoder(*inputs))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("bert-tiny", {"decoder_layers": 2}, "is not possible for the family bert"),
        ("gpt2-mini", {"causal": False}, "is not possible for the family gpt2"),
        ("gpt-mini", {"intermediate": 100}, "is not possible for the family openai-gpt"),
        ("t5-mini", {"norm_kind": "layer"}, "is not possible for the family t5"),
        ("bart-mini", {"position_offset": 0}, "is not possible for the family bart"),
        ("t5-mini", {"decoder_start_id": 9000}, "below vocab_size"),
    ],
)
def test_invalid_config_raises(name, changes, message):
    with pytest.raises(UserError, match=message):
        preset(name, **changes)
