"""Every encoder family × every class it has in transformers, both directions: logits, loss, keys, and bits."""

import pytest
import torch
import torch.nn.functional as F
import transformers
from near import gap
from parity.reference import (
    ENCODER_PRESETS,
    ENCODERS,
    LENGTHS,
    TOLERANCE,
    assert_comes_back,
    assert_opens_here,
    assert_opens_there,
    build_theirs,
    compare,
    differing,
    rows,
    small,
    stir,
    their_class,
    theirs,
)

from unmask.model import hf
from unmask.model.config import preset
from unmask.model.families import FAMILIES
from unmask.model.model import Model, count_parameters, with_dependencies

LABELS = {"labels": ("no", "yes", "maybe")}
CASES = [(family, name) for family in ENCODERS for name in FAMILIES[family].architectures]


def first_preset(family):
    return next(iter(FAMILIES[family].presets))


def tiny(family, heads=(), **changes):
    labels = LABELS if {"classify", "tag"} & set(heads) else {}
    name = first_preset(family)
    shape = {"layers": preset(name).global_every + 1, "hidden": 32, "heads": 2}  # both kinds of layers
    return small(name, **(shape | labels | changes))


@pytest.mark.parametrize(("family", "architecture"), CASES)
def test_a_folder_of_transformers_opens_here(family, architecture, tmp_path):
    heads = FAMILIES[family].architectures[architecture]
    config = tiny(family, heads)
    reference = stir(build_theirs(config, architecture))
    assert_opens_here(reference, tmp_path, heads)


@pytest.mark.parametrize(("family", "architecture"), CASES)
def test_a_folder_written_here_opens_there_and_comes_back_bit_for_bit(family, architecture, tmp_path):
    heads = FAMILIES[family].architectures[architecture]
    assert assert_comes_back(stir(Model(tiny(family, heads), heads)), tmp_path) == architecture


TRAITS = [
    ("roberta", ["mlm"], {"pad_id": 1}),
    ("roberta", ["mlm"], {"segments": 2, "activation": "relu", "norm_eps": 1e-6}),
    ("roberta", ["mlm"], {"tie": False}),
    ("albert", ["mlm", "sop"], {"tie": False, "activation": "relu"}),
    ("albert", ["mlm"], {"embedding": 32, "layers": 3}),  # as wide as hidden, and projected all the same
    ("electra", ["mlm"], {"embedding": 32, "tie": False}),
    ("electra", ["rtd"], {"activation": "relu"}),
    ("electra", ["classify"], LABELS | {"activation": "relu", "classifier_dropout": 0.3}),
    ("distilbert", ["mlm"], {"tie": False, "activation": "relu"}),
    ("distilbert", ["classify"], LABELS | {"classifier_dropout": 0.3}),
    ("modernbert", ["tag"], LABELS | {"head_activation": "silu", "head_bias": True, "norm_bias": True}),
    ("modernbert", ["choose"], {"pooling": "mean"}),
]


@pytest.mark.parametrize(("family", "heads", "changes"), TRAITS)
def test_other_traits(family, heads, changes, tmp_path):
    assert_comes_back(stir(Model(tiny(family, **changes), heads)), tmp_path)


@pytest.mark.parametrize(
    ("family", "heads", "changes"),
    [
        ("roberta", ["mlm"], {"pad_id": 1, "max_positions": 63}),  # positions read one row further
        ("roberta", ["mlm"], {"activation": "relu"}),
        ("albert", ["mlm"], {"layers": 3}),  # the one layer once more
        ("albert", ["mlm"], {"activation": "gelu"}),
        ("electra", ["rtd"], {"activation": "relu"}),
        ("distilbert", ["mlm"], {"activation": "relu"}),
    ],
)
def test_the_comparison_sees_a_wrong_trait(family, heads, changes, tmp_path):
    """These tests can fail: the same weights under one trait changed are not within the tolerance."""
    config = tiny(family)
    reference = stir(build_theirs(config, config.architecture(heads)))
    reference.save_pretrained(tmp_path)
    assert compare(hf.load(tmp_path).model, reference) <= TOLERANCE
    assert compare(hf.load(tmp_path, changes=changes).model, reference) > TOLERANCE


@pytest.mark.parametrize("family", ENCODERS)
def test_every_hidden_state(family, tmp_path):
    model = stir(Model(tiny(family, layers=3), ["mlm"]))
    hf.save(model, tmp_path)
    reference = assert_opens_there(tmp_path, model)
    ids, mask, segments = rows()
    with torch.no_grad():
        states: list[torch.Tensor] = []
        model.encoder(ids, mask, segments, states=states)
        out = theirs(reference, output_hidden_states=True)
    assert len(states) == len(out.hidden_states) == model.config.layers + 1
    for ours, other in zip(states, out.hidden_states, strict=True):
        assert gap(ours[mask], other[mask]) <= TOLERANCE


def losses(model, architecture, lengths):
    """Our loss, and the labels that transformers' class wants for its own."""
    ids, mask, segments = rows(lengths)
    hidden = model(ids, mask, segments)
    chosen = mask & (torch.arange(ids.shape[1])[None] % 4 == 1)
    kind = torch.tensor([0, 1, 0])
    terms, labels = [], {}
    for head in model.heads:
        match head:
            case "mlm":
                terms.append(F.cross_entropy(model.logits("mlm", hidden[chosen]), ids[chosen]))
                labels["labels"] = torch.where(chosen, ids, -100)
            case "nsp" | "sop":
                terms.append(F.cross_entropy(model.logits(head, hidden, mask), kind))
                labels[{"nsp": "next_sentence_label", "sop": "sentence_order_label"}[head]] = kind
            case "rtd":
                logits = model.logits("rtd", hidden[mask])
                terms.append(F.binary_cross_entropy_with_logits(logits, chosen[mask].to(logits)))
                labels["labels"] = chosen.long()
            case "classify":
                terms.append(F.cross_entropy(model.logits("classify", hidden, mask), kind))
                labels["labels"] = kind
            case "tag":
                terms.append(F.cross_entropy(model.logits("tag", hidden[chosen]), ids[chosen] % 3))
                labels["labels"] = torch.where(chosen, ids % 3, -100)
            case "answer":
                begin, end = model.logits("answer", hidden).unbind(-1)
                terms.append((F.cross_entropy(begin, kind + 1) + F.cross_entropy(end, kind + 2)) / 2)
                labels |= {"start_positions": kind + 1, "end_positions": kind + 2}
            case "choose":
                terms.append(F.cross_entropy(model.logits("choose", hidden, mask)[None], torch.tensor([1])))
                labels["labels"] = torch.tensor([1])
    if architecture.endswith("NextSentencePrediction"):
        labels = {"labels": kind}
    return sum(terms), labels


@pytest.mark.parametrize(("family", "architecture"), [(f, a) for f, a in CASES if not a.endswith("Model")])
def test_loss_and_gradient(family, architecture, tmp_path):
    """transformers' loss, and every gradient, in float64."""
    heads = FAMILIES[family].architectures[architecture]
    model = stir(Model(tiny(family, heads, dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0), heads))
    hf.save(model, tmp_path)
    reference = assert_opens_there(tmp_path, model).double()
    # transformers lets an answer begin at padding, whose hidden states mean nothing.
    lengths = (48, 48, 48) if "answer" in heads else LENGTHS
    loss, labels = losses(model.double(), architecture, lengths)
    out = theirs(reference, lengths, **labels)
    assert loss.item() == pytest.approx(out.loss.item(), rel=1e-6)
    out.loss.backward()
    loss.backward()
    gradients = {key: value.grad for key, value in reference.named_parameters(remove_duplicate=False)}
    for key, value in model.named_parameters():
        other = torch.cat([gradients[k] for k in hf.hf_tensor_names(FAMILIES[family], key, model.config, architecture)])
        assert (value.grad - other).norm() <= 1e-6 * (other.norm() + 1e-3), key


@pytest.mark.parametrize("name", [n for n in ENCODER_PRESETS if not n.startswith(("bert", "modernbert"))])
def test_as_many_parameters_as_transformers(name):
    config = preset(name)
    heads = with_dependencies(config.default_objective.split("+"))
    with torch.device("meta"):
        kind = their_class(config.architecture(heads))
        reference = kind(kind.config_class(**hf.write_config(config)))
        reference.tie_weights()
    assert count_parameters(config, heads) == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize(
    ("name", "theirs", "beside"),
    [  # what the published config.json has beside transformers' defaults
        (
            "roberta-base",
            transformers.RobertaConfig,
            {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5},
        ),
        (
            "xlm-roberta-base",
            transformers.XLMRobertaConfig,
            {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5, "vocab_size": 250002},
        ),
        ("albert-xxlarge-v2", transformers.AlbertConfig, {}),
        (
            "albert-base-v2",
            transformers.AlbertConfig,
            {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
        ),
        ("distilbert-base", transformers.DistilBertConfig, {}),
        ("electra-small", transformers.ElectraConfig, {"generator_size": 0.25}),
        (
            "electra-base",
            transformers.ElectraConfig,
            {
                "embedding_size": 768,
                "hidden_size": 768,
                "num_attention_heads": 12,
                "intermediate_size": 3072,
                "generator_size": 1 / 3,
            },
        ),
    ],
)
def test_published_sizes(name, theirs, beside):
    ours, defaults = hf.write_config(preset(name)), theirs()
    assert {k: v for k, v in ours.items() if v != getattr(defaults, k, None)} == beside
    read = hf.read_config({"model_type": preset(name).family} | beside)
    assert read == preset(name)


@pytest.mark.parametrize("family", ENCODERS)
def test_first_weights_are_spread_as_in_transformers(family):
    heads = small(first_preset(family)).default_objective.split("+")
    config = small(first_preset(family), layers=2, vocab_size=500)
    model = Model(config, heads).init(0)
    architecture = config.architecture(model.heads)
    torch.manual_seed(0)
    kind = their_class(architecture)
    reference = kind(kind.config_class(**hf.write_config(config))).state_dict()
    for key, value in model.named_parameters():
        other = torch.cat([reference[k] for k in hf.hf_tensor_names(FAMILIES[family], key, config, architecture)])
        if value.ndim < 2:
            assert torch.equal(value, other), key
            continue
        spread, count = other.std().item(), value.numel()
        assert value.std().item() == pytest.approx(spread, rel=6 / count**0.5), key  # standard errors, of two draws
        assert value.mean().item() == pytest.approx(0, abs=7 * spread / count**0.5), key


def test_a_generator_opens_there_too(tmp_path):
    """The folder is the discriminator, the folder inside it the generator; both hold the shared vectors."""
    model = stir(Model(small("electra-mini", layers=2), ["rtd", "generator"]))
    generator = model.heads["generator"]
    assert generator.config.hidden == 16 and generator.config.heads == 1
    assert hf.save(model, tmp_path / "a") == "ElectraForPreTraining"
    reference = assert_opens_there(tmp_path / "a", model)
    inside = assert_opens_there(tmp_path / "a" / "generator", generator)
    assert type(inside).__name__ == "ElectraForMaskedLM"
    for part in ("word", "position"):
        name = f"electra.embeddings.{part}_embeddings.weight"
        assert torch.equal(reference.state_dict()[name], inside.state_dict()[name])
    reference.save_pretrained(tmp_path / "b")
    inside.save_pretrained(tmp_path / "b" / "generator")
    loaded = hf.load(tmp_path / "b", changes={"generator": 0.25})
    assert (loaded.missing, loaded.unexpected) == ([], [])
    assert differing(loaded.model, model) == []
