"""The shape of every preset compared with transformers in both directions: equal logits and loss, no missing or unexpected keys."""

import pytest
import torch
import torch.nn.functional as F
import transformers
from near import gap
from parity.reference import (
    TOLERANCE,
    assert_loads_from_transformers,
    assert_loads_in_transformers,
    assert_round_trip,
    build_reference,
    compare,
    randomize_weights,
    reference_class,
    rows,
    run_reference,
    small,
)

from unmask.model import hf
from unmask.model.config import preset, presets
from unmask.model.families import FAMILIES
from unmask.model.model import Model, count_parameters, with_dependencies

NAMES = [name for name, fields in presets().items() if fields["family"] in ("bert", "modernbert")]
CASES = [
    (name, heads) for name in NAMES for heads in ([["mlm", "nsp"], ["mlm"]] if name.startswith("bert") else [["mlm"]])
]


@pytest.mark.parametrize(("name", "heads"), CASES)
def test_transformers_directory_loads_here(name, heads, tmp_path):
    config = small(name)
    reference = randomize_weights(build_reference(config, config.architecture(with_dependencies(heads))))
    assert_loads_from_transformers(reference, tmp_path, heads)


@pytest.mark.parametrize(("name", "heads"), CASES)
def test_saved_directory_loads_in_transformers_and_round_trips(name, heads, tmp_path):
    assert_round_trip(randomize_weights(Model(small(name), heads)), tmp_path)


OTHERS = [
    ("bert-tiny", ["nsp"], {}),
    ("bert-tiny", ["pooler"], {}),
    ("bert-tiny", ["classify"], {"labels": ("no", "yes", "maybe")}),
    ("bert-tiny", ["mlm"], {"tie": False}),
    ("bert-tiny", ["mlm", "nsp"], {"tie": False, "activation": "gelu_new", "pad_id": None}),
    ("bert-tiny", ["mlm"], {"activation": "relu", "norm_eps": 1e-5, "segments": 3}),
    ("modernbert-mini", [], {}),
    ("modernbert-mini", ["classify"], {"labels": ("no", "yes")}),
    ("modernbert-mini", ["classify"], {"labels": ("a", "b", "c"), "pooling": "mean"}),
    ("modernbert-mini", ["mlm"], {"tie": False, "decoder_bias": False}),
    ("modernbert-mini", ["mlm"], {"norm_bias": True, "attention_bias": True, "mlp_bias": True, "head_bias": True}),
    ("modernbert-mini", ["mlm"], {"global_every": 1, "rope_theta": 5_000.0}),
    ("modernbert-mini", ["mlm"], {"global_every": 2, "local_rope_theta": 500.0, "head_activation": "silu"}),
    ("modernbert-mini", ["mlm"], {"local_window": 7, "activation": "silu", "max_positions": 48}),
]


@pytest.mark.parametrize(("name", "heads", "changes"), OTHERS)
def test_other_heads_and_settings_round_trip(name, heads, changes, tmp_path):
    assert_round_trip(randomize_weights(Model(small(name, **changes), heads)), tmp_path)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("bert-tiny", {"activation": "relu"}),
        ("bert-tiny", {"norm_eps": 1e-3}),
        ("modernbert-mini", {"local_window": 8}),
        ("modernbert-mini", {"global_every": 2}),
        ("modernbert-mini", {"rope_theta": 10_000.0}),
        ("modernbert-mini", {"local_rope_theta": 20_000.0}),
        ("modernbert-mini", {"head_activation": "relu"}),
    ],
)
def test_comparison_detects_a_wrong_setting(name, changes, tmp_path):
    """These tests can fail: the same weights with one setting changed exceed the tolerance."""
    reference = randomize_weights(build_reference(small(name), small(name).architecture(["mlm"])))
    reference.save_pretrained(tmp_path)
    assert compare(hf.load(tmp_path).model, reference) <= TOLERANCE
    assert compare(hf.load(tmp_path, changes=changes).model, reference) > TOLERANCE


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
def test_every_hidden_state_equals_transformers(name, tmp_path):
    model = randomize_weights(Model(small(name), ["mlm"]))
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


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
def test_loss_and_gradients_equal_transformers(name, tmp_path):
    """Compare the mean over the chosen positions and the norm of every gradient, in float64."""
    heads = small(name).default_objective.split("+")
    model = randomize_weights(Model(small(name, dropout=0.0, attention_dropout=0.0), heads))
    hf.save(model, tmp_path)
    reference = assert_loads_in_transformers(tmp_path, model).double()
    model = model.double()
    ids, mask, segments = rows()
    chosen = mask & (torch.arange(ids.shape[1])[None] % 4 == 1)
    follows = torch.tensor([0, 1, 0])
    labels = {"labels": torch.where(chosen, ids, -100)}
    if "nsp" in heads:
        labels["next_sentence_label"] = follows
    out = run_reference(reference, **labels)

    hidden = model(ids, mask, segments)
    loss = F.cross_entropy(model.logits("mlm", hidden[chosen]), ids[chosen])
    if "nsp" in heads:
        loss = loss + F.cross_entropy(model.logits("nsp", hidden, mask), follows)
    assert loss.item() == pytest.approx(out.loss.item(), rel=1e-6)
    out.loss.backward()
    loss.backward()
    gradients = {key: value.grad for key, value in reference.named_parameters()}
    for key, value in model.named_parameters():
        other = torch.cat([gradients[k] for k in hf.hf_tensor_names(FAMILIES[model.config.family], key)])
        assert (value.grad - other).norm() <= 1e-6 * (other.norm() + 1e-3), key


@pytest.mark.parametrize("name", NAMES)
def test_parameter_count_equals_transformers(name):
    config = preset(name)
    heads = with_dependencies(config.default_objective.split("+"))
    raw = hf.write_config(config)
    with torch.device("meta"):
        kind = {"bert": transformers.BertConfig, "modernbert": transformers.ModernBertConfig}[config.family]
        reference = reference_class(config.architecture(heads))(kind(**raw))
        reference.tie_weights()
    assert count_parameters(config, heads) == sum(p.numel() for p in reference.parameters())


def test_published_sizes_equal_transformers_defaults():
    for name, reference in (
        ("bert-base", transformers.BertConfig()),
        ("modernbert-base", transformers.ModernBertConfig()),
    ):
        ours = hf.write_config(preset(name))
        # The published BERT config has no [CLS] and [SEP] ids: we write them only if known.
        differ = {k: v for k, v in ours.items() if v != getattr(reference, k, None)}
        assert differ == {}


@pytest.mark.parametrize("name", ["bert-tiny", "modernbert-mini"])
def test_initial_weights_have_the_std_of_transformers(name):
    config = preset(name, vocab_size=500, max_positions=128)
    model = Model(config, ["mlm"]).init(0)
    kind = {"bert": transformers.BertConfig, "modernbert": transformers.ModernBertConfig}[config.family]
    torch.manual_seed(0)
    reference = reference_class(config.architecture(["mlm"]))(kind(**hf.write_config(config))).state_dict()
    for key, value in model.named_parameters():
        other = torch.cat([reference[k] for k in hf.hf_tensor_names(FAMILIES[config.family], key)])
        spread, count = other.std().item(), value.numel()
        assert value.std().item() == pytest.approx(spread, rel=5 / count**0.5), key  # five standard errors
        assert value.mean().item() == pytest.approx(other.mean().item(), abs=7 * spread / count**0.5), key
        if config.init_cutoff and value.ndim == 2:
            assert value.abs().max() <= other.abs().max() * 1.01, key
