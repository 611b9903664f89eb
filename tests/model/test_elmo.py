"""The ELMo encoder: compared with torch.nn.LSTM, visibility per direction, padding, layer mix, characters, saving."""

import pytest
import torch
from near import gap
from torch import nn

from unmask.batch import Batch
from unmask.errors import UserError
from unmask.inference.predictor import Predictor
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.lstm import END, PAD, WORD_START
from unmask.model.model import Model, count_parameters
from unmask.text.store import TokenStore
from unmask.text.token_bytes import token_bytes

TINY = preset("elmo-mini", vocab_size=60, hidden=32, intermediate=48, max_positions=64)
HALF = TINY.hidden // 2


@pytest.fixture
def model() -> Model:
    return Model(TINY, ["bilm"]).init(3).eval()


def random_ids(batch: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(5, 60, (batch, length), generator=torch.Generator().manual_seed(seed))


def top_states(model: Model, ids: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
    return model.encoder(ids, mask, top=True)  # type: ignore[call-overload]


def reference_states(model: Model, row: torch.Tensor) -> list[torch.Tensor]:
    """Reference: all states of one sequence (T,), from plain LSTMs per direction."""
    encoder = model.encoder
    x = encoder.embeddings.tokens.weight[row]
    states, stacks = [torch.cat([x, x], -1)], {"forwards": x, "backwards": x.flip(0)}
    for i in range(TINY.layers):
        for name in stacks:
            lstm = nn.LSTM(HALF, TINY.intermediate, proj_size=HALF)
            lstm.load_state_dict(getattr(encoder.layers[i], name).state_dict())
            out = lstm(stacks[name][:, None])[0][:, 0]
            stacks[name] = out + stacks[name] if i else out
        states.append(torch.cat([stacks["forwards"], stacks["backwards"].flip(0)], -1))
    return states


@torch.no_grad()
def test_stacks_equal_torch_lstms(model: Model) -> None:
    ids = random_ids(3, 9)
    ids[1, 6:] = ids[2, 3:] = 0
    lengths = [9, 6, 3]
    mask = torch.arange(9)[None] < torch.tensor(lengths)[:, None]
    states: list[torch.Tensor] = []
    model.encoder(ids, mask, states=states)
    model.encoder.mix.weights.copy_(torch.tensor([0.3, -1.0, 2.0]))  # type: ignore[union-attr]
    model.encoder.mix.scale.fill_(1.7)  # type: ignore[union-attr]
    mixed = model.encoder(ids, mask)
    shares = torch.tensor([0.3, -1.0, 2.0]).softmax(0)
    for b, n in enumerate(lengths):
        expected = reference_states(model, ids[b, :n])
        for j, state in enumerate(expected):
            assert gap(states[j][b, :n], state) < 1e-5
        assert gap(top_states(model, ids, mask)[b, :n], expected[-1]) < 1e-5
        mix = 1.7 * sum(s * h for s, h in zip(shares, expected))
        assert gap(mixed[b, :n], mix) < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("position", [0, 4, 8, 10])
def test_each_direction_sees_only_one_side(model: Model, position: int) -> None:
    """Changing one token changes no forward state before it and no backward state after it, bit for bit."""
    before = random_ids(2, 11)
    after = before.clone()
    after[:, position] = (after[:, position] - 4) % 55 + 5
    a, b = top_states(model, before), top_states(model, after)
    assert torch.equal(a[:, :position, :HALF], b[:, :position, :HALF])
    assert torch.equal(a[:, position + 1 :, HALF:], b[:, position + 1 :, HALF:])
    assert (a[:, position:, :HALF] != b[:, position:, :HALF]).any(-1).all()
    assert (a[:, : position + 1, HALF:] != b[:, : position + 1, HALF:]).any(-1).all()


@torch.no_grad()
def test_padding_does_not_leak(model: Model) -> None:
    ids = random_ids(2, 12)
    mask = torch.arange(12)[None] < torch.tensor([[12], [7]])
    other = torch.where(mask, ids, 9)
    assert torch.equal(model(ids, mask)[mask], model(other, mask)[mask])
    alone = model(ids[1:, :7])[0]
    assert gap(model(ids, mask)[1, :7], alone) < 1e-5


@torch.no_grad()
def test_encoding_selected_positions(model: Model) -> None:
    ids, positions = random_ids(2, 5), torch.tensor([7, 0, 3])
    hidden = model(ids).flatten(0, 1)[positions]
    assert torch.equal(model.encode(Batch(ids), positions), hidden)
    assert model.encoder(ids, positions=positions, top=True).shape == (3, 32)  # type: ignore[call-overload]


@pytest.mark.parametrize("options", [{"prefix": torch.tensor([2])}, {"documents": torch.zeros(1, 4)}])
def test_prefix_and_document_masks_raise(model: Model, options: dict) -> None:
    with pytest.raises(UserError, match="model of LSTMs"):
        model.encoder(random_ids(1, 4), **options)


def test_initial_weights(model: Model) -> None:
    again = Model(TINY, ["bilm", "pooler"]).init(3).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    bias = again["encoder.layers.1.backwards.bias_ih_l0"].view(4, -1)
    assert bias[1].eq(1).all()
    assert not bias[[0, 2, 3]].any()
    assert again["encoder.mix.weights"].tolist() == [0, 0, 0]
    assert again["encoder.mix.scale"].tolist() == [1]
    assert not again["encoder.embeddings.tokens.weight"][0].any()


def test_layer_mix_gets_gradients_from_a_task() -> None:
    model = Model(preset("elmo-mini", vocab_size=60, labels=("a", "b")), ["classify"]).init(0)
    model.logits("classify", model(random_ids(2, 6))).square().sum().backward()
    assert model.encoder.mix.weights.grad.any()  # type: ignore[union-attr]
    assert model.encoder.mix.scale.grad.any()  # type: ignore[union-attr]


def test_published_parameter_count() -> None:
    # 93.6 million in the paper; LSTMs of torch have a second bias
    assert count_parameters(preset("elmo-original"), ()) / 1e6 == pytest.approx(93.6, abs=0.1)


@pytest.mark.parametrize("changes", [{"hidden": 33}, {"intermediate": 8}, {"encoder": "transformer"}])
def test_invalid_config_raises(changes: dict) -> None:
    with pytest.raises(UserError):
        preset("elmo-mini", **changes)


@pytest.mark.parametrize("characters", [False, True])
@pytest.mark.parametrize("heads", [["bilm"], ["classify"], ["tag"], ["bilm", "classify"], []])
def test_save_and_load_round_trip(heads: list[str], characters: bool, store: TokenStore, tmp_path) -> None:
    size = {"hidden": 32, "intermediate": 48, "vocab_size": store.tokenizer.size}
    model = Model(preset("elmo-mini", characters=characters, labels=("a", "b"), **size), heads).init(0).eval()
    model.set_token_bytes(token_bytes(store.tokenizer))
    hf.save(model, tmp_path, store.tokenizer)
    loaded = hf.load(tmp_path, heads=heads, changes={"labels": ("a", "b")})
    assert not loaded.missing
    assert not loaded.unexpected
    assert loaded.config == model.config
    assert set(loaded.model.state_dict()) == set(model.state_dict())
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.model.state_dict()[name], value), name
    ids = random_ids(2, 6)
    with torch.no_grad():
        assert torch.equal(loaded.model(ids), model(ids))


def test_character_embeddings(store: TokenStore) -> None:
    config = preset("elmo-mini", characters=True, hidden=32, intermediate=48, vocab_size=store.tokenizer.size)
    model = Model(config, ["bilm"]).init(0).eval()
    with pytest.raises(UserError, match="spelled"):
        model(random_ids(1, 4))
    spelled = token_bytes(store.tokenizer)
    model.set_token_bytes(spelled)
    table = model.encoder.embeddings.tokens.spelling  # type: ignore[attr-defined]
    word, inside = spelled.index(b" the"), next(i for i, s in enumerate(spelled) if s == b"s")
    assert table[word, :6].tolist() == [WORD_START, ord("t") + 1, ord("h") + 1, ord("e") + 1, END, PAD]
    assert table[inside, :3].tolist() == [ord("s") + 1, END, PAD]
    with torch.no_grad():
        vectors = model.encoder.embeddings(torch.tensor([[word, inside, word, 7]]))[0]  # type: ignore[call-arg]
        alone = model.encoder.embeddings(torch.tensor([[word]]))[0, 0]  # type: ignore[call-arg]
        table[8] = table[word]  # two tokens with the same spelling
        twins = model.encoder.embeddings(torch.tensor([[word, 8, 9]]))[0]  # type: ignore[call-arg]
    assert torch.equal(vectors[0], vectors[2])
    assert gap(vectors[0], alone) < 1e-5  # independent of the rest of the batch
    assert (vectors[0] - vectors[1]).abs().max() > 1e-3
    assert gap(twins[0], twins[1]) < 1e-5
    assert (twins[0] - twins[2]).abs().max() > 1e-3


def test_embed_works_and_fill_raises(store: TokenStore) -> None:
    config = preset("elmo-mini", vocab_size=store.tokenizer.size, hidden=32, intermediate=48)
    predictor = Predictor(Model(config, ["bilm"]).init(0), store.tokenizer)
    assert predictor.embed(["the import statement", "a"]).shape == (2, 32)
    with pytest.raises(UserError, match="cannot fill a mask: its heads are bilm"):
        predictor.fill("the [MASK]")


@pytest.mark.parametrize("name", ["elmo-mini", "cbow-mini"])
def test_fine_tuning_with_a_frozen_encoder(name: str, store: TokenStore, tmp_path) -> None:
    """Only the head and the layer mix of ELMo are trained, through the common training code."""
    from runs.tiny import train as train_part

    from unmask.labels.record_sets import RecordSets
    from unmask.recipe import Recipe
    from unmask.runs.part import Part
    from unmask.tasks.classify.task import Classify

    train = {"epochs": 10, "batch_size": 8, "optimizer": "adamw", "lr": 1e-2}
    recipe = Recipe.build({"train": train})
    records = [
        {
            "location": f"made:{i}",
            "text": f"sorted list of {i}" if i % 2 else f"class with methods {i}",
            "label": str(i % 2),
        }
        for i in range(24)
    ]
    task = Classify(recipe, store.tokenizer, {"labels": ["0", "1"], "length": 16, "target": "single_label"})
    config = preset(name, vocab_size=store.tokenizer.size, hidden=32, intermediate=32, labels=("0", "1"))
    model = Model(config, ["classify"]).init(0)
    model.freeze()
    before = model.embedding.clone()
    train_part(Part(recipe, task, model, RecordSets(records, [], []), []), tmp_path / "run")
    assert task.score(task.predict(model, records), records)["accuracy"] > 0.9
    assert torch.equal(model.embedding, before)
    again = hf.load(tmp_path / "run" / "model").model
    assert list(again.heads) == ["pooler", "classify"]
    assert task.predict(again, records) == task.predict(model, records)
