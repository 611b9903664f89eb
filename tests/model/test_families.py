"""Properties of each encoder family, and those common to all: masked tokens do not leak, packed documents are separate."""

import json
import shutil

import numpy as np
import pytest
import torch
from near import gap

from unmask.batch import Batch, Example, StepConfig, collate
from unmask.model import hf
from unmask.model.config import change, preset
from unmask.model.families import FAMILIES
from unmask.model.model import TIED, Model, count_parameters
from unmask.objectives.objective import build
from unmask.recipe import Recipe, TokenizerRecipe
from unmask.seeds import generator
from unmask.text.tokenizer import Tokenizer

ENCODERS = ("bert", "roberta", "xlm-roberta", "albert", "distilbert", "electra", "modernbert")
TOKENIZER = Tokenizer.train(["a"], TokenizerRecipe(type="byte"))
families = pytest.mark.parametrize("family", ENCODERS)


def tiny(family, **changes):
    name = next(iter(FAMILIES[family].presets))
    shape = {"vocab_size": 60, "hidden": 32, "heads": 2, "layers": 4, "intermediate": 48, "max_positions": 40}
    if "embedding" in FAMILIES[family].fields:
        shape["embedding"] = 16
    if family == "modernbert":
        shape["local_window"] = 6
    return preset(name, **(shape | changes))


def random_ids(*shape, seed=0, vocab=60):
    return torch.randint(5, vocab, shape, generator=torch.Generator().manual_seed(seed))


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def masked_logits(model, ids, recipe):
    objective = build(recipe, TOKENIZER)
    corrupted = objective.corrupt(Example(ids), generator(0), StepConfig(0, len(ids), 0.15))
    batch = collate([corrupted], TOKENIZER.pad)
    with torch.no_grad():
        return model.logits("mlm", model.encode(batch).flatten(0, 1)), corrupted.labels["mlm.positions"]


@families
@pytest.mark.parametrize("leak", [False, True])
def test_masked_token_does_not_leak(family, leak):
    """With kept tokens (`leak`) the same change does change the logits, so the test can fail."""
    mlm = {"mask": 0, "random": 0, "keep": 1} if leak else {"mask": 1, "random": 0, "keep": 0}
    recipe = Recipe.build({"objective": "mlm", "mlm": mlm})
    model = Model(tiny(family, vocab_size=TOKENIZER.size, pad_id=TOKENIZER.pad), ["mlm"]).init(0).eval()
    ids = generator("leak").choice(np.flatnonzero(~TOKENIZER.special), 40)
    before, positions = masked_logits(model, ids, recipe)
    other = ids.copy()
    other[positions] = (other[positions] - 5 + 17) % 256 + 5
    assert (other[positions] != ids[positions]).all()
    after, _ = masked_logits(model, other, recipe)
    assert torch.equal(before, after) != leak


@families
def test_packed_documents_do_not_attend_to_each_other(family):
    model = Model(tiny(family), ["mlm"]).init(0).eval()
    ids = random_ids(2, 30)
    documents = (torch.arange(30)[None] >= torch.tensor([[11], [17]])).long()
    other = torch.where(documents == 1, random_ids(2, 30, seed=1), ids)
    with torch.no_grad():
        first = [model.logits("mlm", model.encode(Batch(x, document_ids=documents))) for x in (ids, other)]
        without_ids = [model.logits("mlm", model.encode(Batch(x))) for x in (ids, other)]
    assert torch.equal(first[0][documents == 0], first[1][documents == 0])
    assert not torch.equal(first[0][documents == 1], first[1][documents == 1])
    assert not torch.equal(
        without_ids[0][documents == 0], without_ids[1][documents == 0]
    )  # without document IDs the result differs


@families
def test_padding_does_not_change_hidden_states(family):
    model = Model(tiny(family), ["mlm"]).init(0).eval()
    row = random_ids(1, 20)
    padded = torch.cat([row, torch.full((1, 15), model.config.pad_id)], 1)
    with torch.no_grad():
        alone, inside = model(row), model(padded, torch.arange(35)[None] < 20)
    assert gap(alone, inside[:, :20]) < 1e-5


@families
def test_encoding_selected_positions(family):
    model = Model(tiny(family), ["mlm"]).init(0).eval()
    batch, positions = Batch(random_ids(2, 12)), torch.tensor([1, 7, 20])
    with torch.no_grad():
        assert gap(model.encode(batch, positions), model.encode(batch).flatten(0, 1)[positions]) <= 1e-5


@families
def test_logits_shape_of_every_head(family):
    heads = ["mlm", "nsp", "sop", "rtd", "classify", "tag", "answer", "choose"]
    model = Model(tiny(family, labels=("a", "b", "c")), heads).init(0).eval()
    hidden = model(random_ids(2, 9))
    shapes = {name: tuple(model.logits(name, hidden).shape) for name in heads}
    assert shapes == {
        "mlm": (2, 9, 60),
        "nsp": (2, 2),
        "sop": (2, 2),
        "rtd": (2, 9),
        "classify": (2, 3),
        "tag": (2, 9, 3),
        "answer": (2, 9, 2),
        "choose": (2,),
    }


def test_albert_shares_one_layer():
    counts = [count_parameters(tiny("albert", layers=layers)) for layers in (1, 4, 12)]
    assert len(set(counts)) == 1
    model = Model(tiny("albert"), ["mlm"]).init(0).eval()
    assert len(model.encoder.layers) == 1
    states: list[torch.Tensor] = []
    model.encoder(random_ids(1, 9), states=states)
    assert len(states) == 5
    assert not torch.allclose(states[1], states[4])
    model.zero_grad()
    model.encoder(random_ids(1, 9)).sum().backward()
    assert all(p.grad is not None for p in model.encoder.layers.parameters())


@pytest.mark.parametrize("pad", [0, 1, 7])
def test_roberta_positions_start_after_the_padding_index(pad):
    """Position embeddings up to index pad_id are never used; all later ones are."""
    config = tiny("roberta", pad_id=pad)
    assert (config.max_positions, hf.write_config(config)["max_position_embeddings"]) == (40, 41 + pad)
    model = Model(config, ["mlm"]).init(0)
    model.logits("mlm", model(random_ids(1, 40) + 3 * (random_ids(1, 40) == pad))).square().sum().backward()
    used = model.encoder.embeddings.positions.weight.grad.any(-1)
    assert used.tolist() == [False] * (pad + 1) + [True] * 40


def test_roberta_uses_one_segment_embedding():
    model = Model(tiny("roberta"), ["mlm"]).init(0).eval()
    assert torch.equal(model(random_ids(1, 9)), model(random_ids(1, 9), None, torch.ones(1, 9, dtype=torch.long)))


def test_albert_with_several_hidden_groups_raises():
    raw = hf.write_config(tiny("albert")) | {"model_type": "albert"}
    for key in ("num_hidden_groups", "inner_group_num"):
        with pytest.raises(Exception, match=f"{key}: 2"):
            hf.read_config(raw | {key: 2})


@pytest.mark.parametrize(
    ("name", "shape"),
    [  # hidden, layers, heads, intermediate, embedding; as in table 6 of the paper
        ("electra-small", (64, 12, 1, 256, 128)),
        ("electra-base", (256, 12, 4, 1024, 768)),
        ("electra-large", (256, 24, 4, 1024, 1024)),
        ("electra-mini", (64, 4, 1, 256, 128)),
        ("modernbert-mini", (256, 1, 4, 512, 256)),  # the embeddings have no separate size, so it has fewer layers
    ],
)
def test_generator_size(name, shape):
    g = preset(name).generator_config()
    assert (g.hidden, g.layers, g.heads, g.intermediate, g.embedding_size) == shape


def electra(**changes):
    return tiny("electra", heads=4, **changes)


def test_generator_shares_its_embeddings():
    model = Model(electra(), ["rtd", "generator"]).init(0)
    small = model.heads["generator"]
    assert small.embedding is model.embedding
    assert small.encoder.embeddings.positions.weight is model.encoder.embeddings.positions.weight
    assert small.encoder.embeddings.segments.weight is not model.encoder.embeddings.segments.weight
    names = [name for name, _ in model.named_parameters()]
    assert not set(TIED) & set(names)
    assert set(TIED) <= set(model.state_dict())
    ids, positions = random_ids(2, 9), torch.tensor([1, 12])
    logits = small.logits("mlm", small.encode(Batch(ids), positions))
    assert logits.shape == (2, 60)
    logits.sum().backward()
    assert model.embedding.grad.any()
    assert model.encoder.layers[0].mlp.up.weight.grad is None


def test_initial_weights_of_a_generator():
    """They depend on the seed and the parameter name: adding the head changes no other weight, and its weights are not copies."""
    alone, both = Model(electra(), ["rtd"]).init(3), Model(electra(), ["rtd", "generator"]).init(3)
    assert all(torch.equal(value, both.state_dict()[key]) for key, value in alone.state_dict().items())
    small = both.heads["generator"]
    assert small.encoder.layers[0].mlp.up.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert not torch.equal(small.encoder.embeddings.segments.weight, both.encoder.embeddings.segments.weight)
    scaled = Model(tiny("modernbert", generator=0.5), ["rtd", "generator"]).init(0)  # 2 of 4 layers
    spread = [m.encoder.layers[1].mlp.down.weight.std().item() for m in (scaled, scaled.heads["generator"])]
    assert spread[1] / spread[0] == pytest.approx(2**0.5, rel=0.1)


@pytest.mark.parametrize("config", [electra(), electra(embedding=32, generator=0.5), tiny("modernbert")])
def test_generator_is_saved_in_a_subdirectory_and_tied_again(config, tmp_path):
    model = Model(config, ["rtd", "generator"]).init(0)
    hf.save(model, tmp_path / "a")
    assert json.loads((tmp_path / "a/generator/config.json").read_text())["architectures"][0].endswith("ForMaskedLM")
    again = hf.load(tmp_path / "a")
    assert (again.missing, again.unexpected, again.config) == ([], [], config)
    assert same(again.model, model)
    assert again.model.heads["generator"].embedding is again.model.embedding
    hf.save(again.model, tmp_path / "b")
    files = [f.relative_to(tmp_path / "a") for f in (tmp_path / "a").rglob("*.*") if f.name != hf.HEADS_FILE]
    assert len(files) >= 4
    assert all((tmp_path / "a" / f).read_bytes() == (tmp_path / "b" / f).read_bytes() for f in files)


def test_embeddings_of_the_discriminator_take_precedence(tmp_path):
    model = Model(electra(), ["rtd", "generator"]).init(0)
    hf.save(model, tmp_path)
    hf.save(Model(model.heads["generator"].config).init(1), tmp_path / "generator")
    loaded = hf.load(tmp_path).model
    assert torch.equal(loaded.embedding, model.embedding)
    assert torch.equal(loaded.encoder.embeddings.positions.weight, model.encoder.embeddings.positions.weight)


def test_missing_generator_is_initialized_and_reported(tmp_path):
    hf.save(Model(electra(), ["rtd", "generator"]).init(0), tmp_path)
    assert list(hf.load(tmp_path, heads=["rtd"]).model.heads) == ["rtd"]
    wider = hf.load(tmp_path, changes={"generator": 0.5})  # a different size is initialized randomly
    assert "heads.generator.encoder.layers.0.mlp.up.weight" in wider.missing
    shutil.rmtree(tmp_path / "generator")
    loaded = hf.load(tmp_path, heads=["rtd", "generator"], seed=4)
    expected = Model(electra(), ["rtd", "generator"]).init(4).state_dict()
    assert {name.split(".")[1] for name in loaded.missing} == {"generator"}
    assert not set(TIED) & set(loaded.missing)
    assert all(torch.equal(loaded.model.state_dict()[key], expected[key]) for key in loaded.missing)


def test_roberta_classifier_keeps_its_dense_layer(tmp_path):
    """The classifier of RoBERTa has its own dense layer, which is not loaded from the pooler of the bare model."""
    config = tiny("roberta", labels=("a", "b"))
    classifier = Model(config, ["classify"]).init(0)
    hf.save(classifier, tmp_path)
    tensors = hf.read_tensors(tmp_path / "model.safetensors")
    assert {"classifier.dense.weight", "classifier.out_proj.weight"} <= set(tensors)
    assert not any("pooler" in key for key in tensors)
    loaded = hf.load(tmp_path, heads=["classify"], changes={"labels": ("x", "y", "z")})
    assert loaded.missing == ["heads.classify.out.weight", "heads.classify.out.bias"]
    assert torch.equal(loaded.model.heads["pooler"].dense.weight, classifier.heads["pooler"].dense.weight)


def test_labels_are_saved_only_for_heads_with_labels(tmp_path):
    """With three label names, a question-answering class would have three outputs."""
    hf.save(Model(change(tiny("bert"), labels=("a", "b", "c")), ["answer"]).init(0), tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    hf.save(Model(change(tiny("bert"), labels=("a", "b", "c")), ["tag"]).init(0), tmp_path)
    assert hf.load(tmp_path).config.labels == ("a", "b", "c")
