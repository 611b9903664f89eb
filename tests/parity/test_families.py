"""Every encoder family × every transformers class it supports, in both directions: logits, loss, keys, and bits."""

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
    assert_loads_from_transformers,
    assert_loads_in_transformers,
    assert_round_trip,
    build_reference,
    compare,
    differing_tensors,
    randomize_weights,
    reference_class,
    rows,
    run_reference,
    small,
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
    shape = {"layers": preset(name).global_every + 1, "hidden": 32, "heads": 2}  # global and local layers
    return small(name, **(shape | labels | changes))


@pytest.mark.parametrize(("family", "architecture"), CASES)
def test_transformers_directory_loads_here(family, architecture, tmp_path):
    heads = FAMILIES[family].architectures[architecture]
    config = tiny(family, heads)
    reference = randomize_weights(build_reference(config, architecture))
    assert_loads_from_transformers(reference, tmp_path, heads)


@pytest.mark.parametrize(("family", "architecture"), CASES)
def test_saved_directory_loads_in_transformers_and_round_trips(family, architecture, tmp_path):
    heads = FAMILIES[family].architectures[architecture]
    assert assert_round_trip(randomize_weights(Model(tiny(family, heads), heads)), tmp_path) == architecture


TRAITS = [
    ("roberta", ["mlm"], {"pad_id": 1}),
    ("roberta", ["mlm"], {"segments": 2, "activation": "relu", "norm_eps": 1e-6}),
    ("roberta", ["mlm"], {"tie": False}),
    ("albert", ["mlm", "sop"], {"tie": False, "activation": "relu"}),
    ("albert", ["mlm"], {"embedding": 32, "layers": 3}),  # as wide as hidden, but still projected
    ("electra", ["mlm"], {"embedding": 32, "tie": False}),
    ("electra", ["rtd"], {"activation": "relu"}),
    ("electra", ["classify"], LABELS | {"activation": "relu", "classifier_dropout": 0.3}),
    ("distilbert", ["mlm"], {"tie": False, "activation": "relu"}),
    ("distilbert", ["classify"], LABELS | {"classifier_dropout": 0.3}),
    ("modernbert", ["tag"], LABELS | {"head_activation": "silu", "head_bias": True, "norm_bias": True}),
    ("modernbert", ["choose"], {"pooling": "mean"}),
]


@pytest.mark.parametrize(("family", "heads", "changes"), TRAITS)
def test_other_settings_round_trip(family, heads, changes, tmp_path):
    assert_round_trip(randomize_weights(Model(tiny(family, **changes), heads)), tmp_path)


@pytest.mark.parametrize(
    ("family", "heads", "changes"),
    [
        ("roberta", ["mlm"], {"pad_id": 1, "max_positions": 63}),  # one more position embedding
        ("roberta", ["mlm"], {"activation": "relu"}),
        ("albert", ["mlm"], {"layers": 3}),  # the shared layer is applied once more
        ("albert", ["mlm"], {"activation": "gelu"}),
        ("electra", ["rtd"], {"activation": "relu"}),
        ("distilbert", ["mlm"], {"activation": "relu"}),
    ],
)
def test_comparison_detects_a_wrong_setting(family, heads, changes, tmp_path):
    """These tests can fail: the same weights with one setting changed exceed the tolerance."""
    config = tiny(family)
    reference = randomize_weights(build_reference(config, config.architecture(heads)))
    reference.save_pretrained(tmp_path)
    assert compare(hf.load(tmp_path).model, reference) <= TOLERANCE
    assert compare(hf.load(tmp_path, changes=changes).model, reference) > TOLERANCE


@pytest.mark.parametrize("family", ENCODERS)
def test_every_hidden_state_equals_transformers(family, tmp_path):
    model = randomize_weights(Model(tiny(family, layers=3), ["mlm"]))
    hf.save(model, tmp_path)
    reference = assert_loads_in_transformers(tmp_path, model)
    ids, mask, segments = rows()
    with torch.no_grad():
        states: list[torch.Tensor] = []
        model.encoder(ids, mask, segments, states=states)
        out = run_reference(reference, output_hidden_states=True)
    assert len(states) == len(out.hidden_states) == model.config.layers + 1
    for ours, other in zip(states, out.hidden_states, strict=True):
        assert gap(ours[mask], other[mask]) <= TOLERANCE


def losses(model, architecture, lengths):
    """Return our loss, and the labels with which the transformers class computes its own."""
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
                start_logits, end_logits = model.logits("answer", hidden).unbind(-1)
                terms.append((F.cross_entropy(start_logits, kind + 1) + F.cross_entropy(end_logits, kind + 2)) / 2)
                labels |= {"start_positions": kind + 1, "end_positions": kind + 2}
            case "choose":
                terms.append(F.cross_entropy(model.logits("choose", hidden, mask)[None], torch.tensor([1])))
                labels["labels"] = torch.tensor([1])
    if architecture.endswith("NextSentencePrediction"):
        labels = {"labels": kind}
    return sum(terms), labels


@pytest.mark.parametrize(("family", "architecture"), [(f, a) for f, a in CASES if not a.endswith("Model")])
def test_loss_and_gradients_equal_transformers(family, architecture, tmp_path):
    """Compare the loss and every gradient in float64."""
    heads = FAMILIES[family].architectures[architecture]
    model = randomize_weights(
        Model(tiny(family, heads, dropout=0.0, attention_dropout=0.0, classifier_dropout=0.0), heads)
    )
    hf.save(model, tmp_path)
    reference = assert_loads_in_transformers(tmp_path, model).double()
    # transformers allows an answer to start at padding, whose hidden states are undefined.
    lengths = (48, 48, 48) if "answer" in heads else LENGTHS
    loss, labels = losses(model.double(), architecture, lengths)
    out = run_reference(reference, lengths, **labels)
    assert loss.item() == pytest.approx(out.loss.item(), rel=1e-6)
    out.loss.backward()
    loss.backward()
    gradients = {key: value.grad for key, value in reference.named_parameters(remove_duplicate=False)}
    for key, value in model.named_parameters():
        other = torch.cat([gradients[k] for k in hf.hf_tensor_names(FAMILIES[family], key, model.config, architecture)])
        assert (value.grad - other).norm() <= 1e-6 * (other.norm() + 1e-3), key


@pytest.mark.parametrize("name", [n for n in ENCODER_PRESETS if not n.startswith(("bert", "modernbert"))])
def test_parameter_count_equals_transformers(name):
    config = preset(name)
    heads = with_dependencies(config.default_objective.split("+"))
    with torch.device("meta"):
        kind = reference_class(config.architecture(heads))
        reference = kind(kind.config_class(**hf.write_config(config)))
        reference.tie_weights()
    assert count_parameters(config, heads) == sum(p.numel() for p in reference.parameters())


@pytest.mark.parametrize(
    ("name", "config_class", "differences"),
    [  # fields of the published config.json that differ from the defaults of transformers
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
def test_published_sizes_equal_transformers(name, config_class, differences):
    ours, defaults = hf.write_config(preset(name)), config_class()
    assert {k: v for k, v in ours.items() if v != getattr(defaults, k, None)} == differences
    loaded = hf.read_config({"model_type": preset(name).family} | differences)
    assert loaded == preset(name)


@pytest.mark.parametrize("family", ENCODERS)
def test_initial_weights_have_the_std_of_transformers(family):
    heads = small(first_preset(family)).default_objective.split("+")
    config = small(first_preset(family), layers=2, vocab_size=500)
    model = Model(config, heads).init(0)
    architecture = config.architecture(model.heads)
    torch.manual_seed(0)
    kind = reference_class(architecture)
    reference = kind(kind.config_class(**hf.write_config(config))).state_dict()
    for key, value in model.named_parameters():
        other = torch.cat([reference[k] for k in hf.hf_tensor_names(FAMILIES[family], key, config, architecture)])
        if value.ndim < 2:
            assert torch.equal(value, other), key
            continue
        spread, count = other.std().item(), value.numel()
        assert value.std().item() == pytest.approx(spread, rel=6 / count**0.5), key  # standard errors of two samples
        assert value.mean().item() == pytest.approx(0, abs=7 * spread / count**0.5), key


def test_generator_loads_in_transformers(tmp_path):
    """The directory contains the discriminator, its subdirectory the generator; both have the shared embeddings."""
    model = randomize_weights(Model(small("electra-mini", layers=2), ["rtd", "generator"]))
    generator = model.heads["generator"]
    assert generator.config.hidden == 16 and generator.config.heads == 1
    assert hf.save(model, tmp_path / "a") == "ElectraForPreTraining"
    reference = assert_loads_in_transformers(tmp_path / "a", model)
    generator_reference = assert_loads_in_transformers(tmp_path / "a" / "generator", generator)
    assert type(generator_reference).__name__ == "ElectraForMaskedLM"
    for part in ("word", "position"):
        name = f"electra.embeddings.{part}_embeddings.weight"
        assert torch.equal(reference.state_dict()[name], generator_reference.state_dict()[name])
    reference.save_pretrained(tmp_path / "b")
    generator_reference.save_pretrained(tmp_path / "b" / "generator")
    loaded = hf.load(tmp_path / "b", changes={"generator": 0.25})
    assert (loaded.missing, loaded.unexpected) == ([], [])
    assert differing_tensors(loaded.model, model) == []
