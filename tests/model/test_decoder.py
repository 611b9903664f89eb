"""Causal models and decoders: what comes later changes nothing before it, and a cache changes nothing at all."""

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
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():  # attention that attends: with first weights everything is nearly equal
        for value in model.parameters():
            if value.ndim == 2:
                value.normal_(0.0, 0.2, generator=draw)
    return model


def draw(*shape, seed=0):
    return torch.randint(5, VOCAB, shape, generator=torch.Generator().manual_seed(seed))


def logits(model, ids, prefix=None):
    """Of a row's own tokens: the decoder's, or the encoder's."""
    head = "lm" if "lm" in model.heads else "mlm"
    with torch.no_grad():
        if model.decoder is None:
            return model.logits(head, model.encode(Batch(ids, prefix_lengths=prefix)))
        batch = Batch(draw(len(ids), 9, seed=7), decoder_input_ids=ids)
        return model.logits(head, model.decode(batch, model.encode(batch)))


@pytest.mark.parametrize("name", [*CAUSAL, *DECODERS])
def test_later_tokens_leave_earlier_logits_bit_equal(name):
    model, ids = tiny(name), draw(2, 30)
    before = logits(model, ids)
    for place in (1, 17, 29):
        changed = ids.clone()
        changed[:, place:] = draw(2, 30 - place, seed=9)
        after = logits(model, changed)
        assert torch.equal(before[:, :place], after[:, :place])
        assert not torch.equal(before[:, place:], after[:, place:])


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini", "gpt2-mini"])
def test_after_a_prefix_later_tokens_leave_earlier_logits_bit_equal(name):
    """Inside the prefix every token is seen by all; after it, only by what follows."""
    model = tiny(name, ["lm"] if name in CAUSAL else ["mlm"])
    ids, prefix = draw(2, 30), torch.tensor([10, 4])
    before = logits(model, ids, prefix)
    changed = ids.clone()
    changed[:, 20:] = draw(2, 10, seed=9)
    after = logits(model, changed, prefix)
    assert torch.equal(before[:, :20], after[:, :20])
    changed = ids.clone()
    changed[:, 3] = (ids[:, 3] + 1).clamp(max=VOCAB - 1)
    after = logits(model, changed, prefix)
    assert not torch.equal(before[:, 0], after[:, 0])  # the first token sees the last of the prefix
    assert torch.equal(logits(model, ids, prefix * 0)[:, :3], logits(model, changed, prefix * 0)[:, :3])


@pytest.mark.parametrize("name", CAUSAL)
def test_a_causal_model_with_a_cache(name):
    """A prompt, then one token at a time: the logits of the whole row."""
    model, ids = tiny(name), draw(3, 20)
    whole, cache, parts = logits(model, ids), KVCache(3), []
    with torch.no_grad():
        for a, b in [(0, 12), *((i, i + 1) for i in range(12, 20))]:
            parts.append(model.logits("lm", model.encoder(ids[:, a:b], cache=cache)))
            assert cache.length == b
    assert gap(torch.cat(parts, 1), whole) <= 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_with_a_cache(name):
    model, ids = tiny(name), draw(2, 20)
    texts = draw(2, 15, seed=3)
    batch = Batch(texts, torch.arange(15)[None] < torch.tensor([[15], [6]]), decoder_input_ids=ids)
    cache, parts = KVCache(3), []
    with torch.no_grad():
        states = model.encode(batch)
        whole = model.logits("lm", model.decode(batch, states))
        for a, b in [(0, 3), *((i, i + 1) for i in range(3, 20))]:
            batch.decoder_input_ids = ids[:, a:b]
            parts.append(model.logits("lm", model.decode(batch, states, cache=cache)))
    assert gap(torch.cat(parts, 1), whole) <= 1e-5


def test_a_cache_follows_its_beams():
    model, ids = tiny("gpt2-mini"), draw(3, 12)
    cache, order = KVCache(3), torch.tensor([2, 0, 0])
    with torch.no_grad():
        model.encoder(ids, cache=cache)
        cache.reorder(order)
        step = model.encoder(draw(3, 1, seed=4), cache=cache)
        whole = model.encoder(torch.cat([ids[order], draw(3, 1, seed=4)], 1))
    assert gap(step[:, 0], whole[:, -1]) <= 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_states_at_chosen_positions_are_those_of_the_whole(name):
    model = tiny(name)
    batch = Batch(draw(2, 9), decoder_input_ids=draw(2, 7, seed=1))
    at = torch.tensor([0, 5, 9, 13])
    with torch.no_grad():
        hidden = model.encode(batch)
        some, whole = model.decode(batch, hidden, at), model.decode(batch, hidden)
    assert some.shape == (4, 32)
    assert gap(some, whole.flatten(0, 1)[at]) < 1e-5


@pytest.mark.parametrize("name", DECODERS)
def test_padding_of_text_and_output_changes_nothing(name):
    model = tiny(name)
    texts, out = draw(1, 6), draw(1, 5, seed=1)
    padded, mask = torch.cat([texts, torch.zeros(1, 4, dtype=torch.long)], 1), (torch.arange(10) < 6)[None]
    longer = torch.cat([out, torch.zeros(1, 3, dtype=torch.long)], 1)
    with torch.no_grad():
        alone, batch = Batch(texts, decoder_input_ids=out), Batch(padded, mask, decoder_input_ids=longer)
        a, b = model.decode(alone, model.encode(alone)), model.decode(batch, model.encode(batch))
        batch.attention_mask = None  # the mask is what does it
        c = model.decode(batch, model.encode(batch))
    assert gap(a, b[:, :5]) < 1e-5
    assert (a - c[:, :5]).abs().max() > 1e-4


@pytest.mark.parametrize("name", [*CAUSAL, *DECODERS])
def test_checkpointing_gives_the_same_gradients(name):
    model, results = tiny(name, dropout=0.2, attention_dropout=0.2).train(), []
    batch = Batch(draw(2, 9), decoder_input_ids=draw(2, 7, seed=1))
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


def test_t5s_first_decoder_token_learns():
    """It is the padding, which elsewhere gets no gradient as an input."""
    model = tiny("t5-v1.1-mini")
    assert model.config.start_id == model.config.pad_id == 0
    batch = Batch(draw(1, 5), decoder_input_ids=torch.tensor([[0, 7]]))
    model.decode(batch, model.encode(batch)).sum().backward()
    assert model.embedding.grad[0].any()
    model = tiny("bart-mini")
    batch = Batch(torch.tensor([[5, 6, 0]]), decoder_input_ids=torch.tensor([[2, 7]]))
    model.decode(batch, model.encode(batch)).sum().backward()
    assert not model.embedding.grad[0].any()


def test_relative_positions_have_no_longest_row():
    ids = draw(1, 50)
    assert logits(tiny("t5-mini"), ids).shape == (1, 50, VOCAB)
    with pytest.raises(UserError, match="50 tokens"):
        logits(tiny("bart-mini"), ids)
    with pytest.raises(UserError, match="50 tokens"):
        logits(tiny("gpt2-mini"), ids)


@pytest.mark.parametrize("name", ["gpt2-mini", "t5-mini"])
def test_one_graph_for_the_compiler(name):
    model, ids = tiny(name), draw(2, 8)
    traced = torch.compile(model.decoder or model.encoder, backend="eager", fullgraph=True)
    with torch.no_grad():
        if model.decoder is None:
            assert torch.equal(traced(ids), model.encoder(ids))
        else:
            given = (ids, model.encoder.embeddings.tokens, model(draw(2, 5)))
            assert torch.equal(traced(*given), model.decoder(*given))


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("bert-tiny", {"decoder_layers": 2}, "is not possible for the family bert"),
        ("gpt2-mini", {"causal": False}, "is not possible for the family gpt2"),
        ("gpt-mini", {"intermediate": 100}, "is not possible for the family openai-gpt"),
        ("t5-mini", {"norm_kind": "layer"}, "is not possible for the family t5"),
        ("bart-mini", {"position_offset": 0}, "is not possible for the family bart"),
        ("t5-mini", {"decoder_start_id": 9000}, "below vocab_size"),
    ],
)
def test_a_mistake_is_explained(name, changes, said):
    with pytest.raises(UserError, match=said):
        preset(name, **changes)
