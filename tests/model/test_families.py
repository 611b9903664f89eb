"""What is particular of each encoder family, and what holds for all: nothing leaks, documents of a row are apart."""

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


def draw(*shape, seed=0, vocab=60):
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
def test_the_hidden_token_changes_nothing(family, leak):
    """With kept tokens (`leak`) the same change does move the logits, so equality is no accident."""
    lots = {"mask": 0, "random": 0, "keep": 1} if leak else {"mask": 1, "random": 0, "keep": 0}
    recipe = Recipe.build({"objective": "mlm", "mlm": lots})
    model = Model(tiny(family, vocab_size=TOKENIZER.size, pad_id=TOKENIZER.pad), ["mlm"]).init(0).eval()
    ids = generator("leak").choice(np.flatnonzero(~TOKENIZER.special), 40)
    before, positions = masked_logits(model, ids, recipe)
    other = ids.copy()
    other[positions] = (other[positions] - 5 + 17) % 256 + 5
    assert (other[positions] != ids[positions]).all()
    after, _ = masked_logits(model, other, recipe)
    assert torch.equal(before, after) != leak


@families
def test_packed_documents_do_not_see_each_other(family):
    model = Model(tiny(family), ["mlm"]).init(0).eval()
    ids = draw(2, 30)
    documents = (torch.arange(30)[None] >= torch.tensor([[11], [17]])).long()
    other = torch.where(documents == 1, draw(2, 30, seed=1), ids)
    with torch.no_grad():
        first = [model.logits("mlm", model.encode(Batch(x, document_ids=documents))) for x in (ids, other)]
        open_rows = [model.logits("mlm", model.encode(Batch(x))) for x in (ids, other)]
    assert torch.equal(first[0][documents == 0], first[1][documents == 0])
    assert not torch.equal(first[0][documents == 1], first[1][documents == 1])
    assert not torch.equal(open_rows[0][documents == 0], open_rows[1][documents == 0])  # the numbers are what does it


@families
def test_padding_changes_nothing(family):
    model = Model(tiny(family), ["mlm"]).init(0).eval()
    row = draw(1, 20)
    padded = torch.cat([row, torch.full((1, 15), model.config.pad_id)], 1)
    with torch.no_grad():
        alone, inside = model(row), model(padded, torch.arange(35)[None] < 20)
    assert gap(alone, inside[:, :20]) < 1e-5


@families
def test_only_the_positions_asked_for(family):
    model = Model(tiny(family), ["mlm"]).init(0).eval()
    batch, at = Batch(draw(2, 12)), torch.tensor([1, 7, 20])
    with torch.no_grad():
        assert gap(model.encode(batch, at), model.encode(batch).flatten(0, 1)[at]) <= 1e-5


@families
def test_the_shapes_of_every_head(family):
    heads = ["mlm", "nsp", "sop", "rtd", "classify", "tag", "answer", "choose"]
    model = Model(tiny(family, labels=("a", "b", "c")), heads).init(0).eval()
    hidden = model(draw(2, 9))
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


def test_one_layer_used_many_times():
    counts = [count_parameters(tiny("albert", layers=layers)) for layers in (1, 4, 12)]
    assert len(set(counts)) == 1
    model = Model(tiny("albert"), ["mlm"]).init(0).eval()
    assert len(model.encoder.layers) == 1
    states: list[torch.Tensor] = []
    model.encoder(draw(1, 9), states=states)
    assert len(states) == 5
    assert not torch.allclose(states[1], states[4])
    model.zero_grad()
    model.encoder(draw(1, 9)).sum().backward()
    assert all(p.grad is not None for p in model.encoder.layers.parameters())


@pytest.mark.parametrize("pad", [0, 1, 7])
def test_positions_are_counted_from_the_padding(pad):
    """Rows up to the padding's own are never read, and every row after it can be."""
    config = tiny("roberta", pad_id=pad)
    assert (config.max_positions, hf.write_config(config)["max_position_embeddings"]) == (40, 41 + pad)
    model = Model(config, ["mlm"]).init(0)
    model.logits("mlm", model(draw(1, 40) + 3 * (draw(1, 40) == pad))).square().sum().backward()
    read = model.encoder.embeddings.positions.weight.grad.any(-1)
    assert read.tolist() == [False] * (pad + 1) + [True] * 40


def test_one_segment_vector_serves_every_segment():
    model = Model(tiny("roberta"), ["mlm"]).init(0).eval()
    assert torch.equal(model(draw(1, 9)), model(draw(1, 9), None, torch.ones(1, 9, dtype=torch.long)))


def test_an_albert_of_several_groups_is_refused():
    raw = hf.write_config(tiny("albert")) | {"model_type": "albert"}
    for key in ("num_hidden_groups", "inner_group_num"):
        with pytest.raises(Exception, match=f"{key}: 2"):
            hf.read_config(raw | {key: 2})


@pytest.mark.parametrize(
    ("name", "shape"),
    [  # width, layers, heads, intermediate, embedding; those of the paper's table 6
        ("electra-small", (64, 12, 1, 256, 128)),
        ("electra-base", (256, 12, 4, 1024, 768)),
        ("electra-large", (256, 24, 4, 1024, 1024)),
        ("electra-mini", (64, 4, 1, 256, 128)),
        ("modernbert-mini", (256, 1, 4, 512, 256)),  # no width of their own for embeddings: fewer layers
    ],
)
def test_the_size_of_a_generator(name, shape):
    g = preset(name).generator_config()
    assert (g.hidden, g.layers, g.heads, g.intermediate, g.embedding_size) == shape


def electra(**changes):
    return tiny("electra", heads=4, **changes)


def test_a_generator_shares_its_vectors():
    model = Model(electra(), ["rtd", "generator"]).init(0)
    small = model.heads["generator"]
    assert small.embedding is model.embedding
    assert small.encoder.embeddings.positions.weight is model.encoder.embeddings.positions.weight
    assert small.encoder.embeddings.segments.weight is not model.encoder.embeddings.segments.weight
    names = [name for name, _ in model.named_parameters()]
    assert not set(TIED) & set(names)
    assert set(TIED) <= set(model.state_dict())
    ids, at = draw(2, 9), torch.tensor([1, 12])
    logits = small.logits("mlm", small.encode(Batch(ids), at))
    assert logits.shape == (2, 60)
    logits.sum().backward()
    assert model.embedding.grad.any()
    assert model.encoder.layers[0].mlp.up.weight.grad is None


def test_the_first_weights_of_a_generator():
    """A function of the seed and the whole name: adding the head moves nothing, and it is no copy of the model."""
    alone, both = Model(electra(), ["rtd"]).init(3), Model(electra(), ["rtd", "generator"]).init(3)
    assert all(torch.equal(value, both.state_dict()[key]) for key, value in alone.state_dict().items())
    small = both.heads["generator"]
    assert small.encoder.layers[0].mlp.up.weight.std().item() == pytest.approx(0.02, rel=0.2)
    assert not torch.equal(small.encoder.embeddings.segments.weight, both.encoder.embeddings.segments.weight)
    scaled = Model(tiny("modernbert", generator=0.5), ["rtd", "generator"]).init(0)  # 2 of 4 layers
    spread = [m.encoder.layers[1].mlp.down.weight.std().item() for m in (scaled, scaled.heads["generator"])]
    assert spread[1] / spread[0] == pytest.approx(2**0.5, rel=0.1)


@pytest.mark.parametrize("config", [electra(), electra(embedding=32, generator=0.5), tiny("modernbert")])
def test_a_generator_is_saved_inside_and_tied_again(config, tmp_path):
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


def test_the_vectors_are_those_of_the_model_where_a_generator_has_others(tmp_path):
    model = Model(electra(), ["rtd", "generator"]).init(0)
    hf.save(model, tmp_path)
    hf.save(Model(model.heads["generator"].config).init(1), tmp_path / "generator")
    loaded = hf.load(tmp_path).model
    assert torch.equal(loaded.embedding, model.embedding)
    assert torch.equal(loaded.encoder.embeddings.positions.weight, model.encoder.embeddings.positions.weight)


def test_a_folder_without_a_generator_gets_a_new_one_and_says_so(tmp_path):
    hf.save(Model(electra(), ["rtd", "generator"]).init(0), tmp_path)
    assert list(hf.load(tmp_path, heads=["rtd"]).model.heads) == ["rtd"]
    wider = hf.load(tmp_path, changes={"generator": 0.5})  # another size does not fit: drawn anew
    assert "heads.generator.encoder.layers.0.mlp.up.weight" in wider.missing
    shutil.rmtree(tmp_path / "generator")
    loaded = hf.load(tmp_path, heads=["rtd", "generator"], seed=4)
    expected = Model(electra(), ["rtd", "generator"]).init(4).state_dict()
    assert {name.split(".")[1] for name in loaded.missing} == {"generator"}
    assert not set(TIED) & set(loaded.missing)
    assert all(torch.equal(loaded.model.state_dict()[key], expected[key]) for key in loaded.missing)


def test_a_classifier_of_another_class_keeps_its_pooler_apart(tmp_path):
    """RoBERTa's classifier has a dense layer of its own; the pooler of the bare model is not taken for it."""
    config = tiny("roberta", labels=("a", "b"))
    classifier = Model(config, ["classify"]).init(0)
    hf.save(classifier, tmp_path)
    tensors = hf.read_tensors(tmp_path / "model.safetensors")
    assert {"classifier.dense.weight", "classifier.out_proj.weight"} <= set(tensors)
    assert not any("pooler" in key for key in tensors)
    loaded = hf.load(tmp_path, heads=["classify"], changes={"labels": ("x", "y", "z")})
    assert loaded.missing == ["heads.classify.out.weight", "heads.classify.out.bias"]
    assert torch.equal(loaded.model.heads["pooler"].dense.weight, classifier.heads["pooler"].dense.weight)


def test_labels_are_written_for_those_who_have_them(tmp_path):
    """Three names of labels would give a question-answering class three outputs."""
    hf.save(Model(change(tiny("bert"), labels=("a", "b", "c")), ["answer"]).init(0), tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    hf.save(Model(change(tiny("bert"), labels=("a", "b", "c")), ["tag"]).init(0), tmp_path)
    assert hf.load(tmp_path).config.labels == ("a", "b", "c")
