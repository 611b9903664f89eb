"""GPT, GPT-2, T5 and BART compared with transformers in both directions: equal logits and loss, no missing or unexpected keys."""

import json

import pytest
import torch
import torch.nn.functional as F
import transformers
from near import gap
from parity.reference import (
    TOLERANCE,
    VOCAB,
    assert_loads_from_transformers,
    assert_loads_in_transformers,
    assert_round_trip,
)
from safetensors.torch import load_file

from unmask.batch import Batch
from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import change, preset, presets
from unmask.model.families import FAMILIES
from unmask.model.model import Model, count_parameters

CAUSAL = ("openai-gpt", "gpt2")
OURS = (*CAUSAL, "t5", "bart")
NAMES = [name for name in presets() if preset(name).family in OURS]
SMALL = ("gpt-mini", "gpt2-mini", "t5-mini", "t5-v1.1-mini", "bart-mini")
CONFIGS = {
    "openai-gpt": transformers.OpenAIGPTConfig,
    "gpt2": transformers.GPT2Config,
    "t5": transformers.T5Config,
    "bart": transformers.BartConfig,
}


def small(name, **changes):
    """Return the preset with two layers (three in the decoder, so that the two cannot be confused) and 8 dimensions per head."""
    full = preset(name, vocab_size=VOCAB, pad_id=1, cls_id=0, sep_id=2)
    shape = {"layers": 2, "hidden": 32, "heads": 4, "max_positions": 80}
    if full.intermediate:
        shape["intermediate"] = 48
    if full.decoder_layers:
        shape["decoder_layers"] = 3
    if full.head_size:
        shape |= {"head_size": 6, "buckets": 8, "bucket_reach": 20}
    return change(full, **(shape | changes))


def build_reference(config, architecture):
    """Build the transformers model of this shape, with a config written here, independent of our conversion table."""
    ids = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
    if config.family in CAUSAL:
        values = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 80}
    elif config.family == "t5":
        values = {"d_model": 32, "d_kv": 6, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4}
        values |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
        values |= {"feed_forward_proj": "gated-gelu" if config.gated else "relu", "decoder_start_token_id": 1}
        values |= {"tie_word_embeddings": config.tie, "n_positions": 80}
    else:
        values = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "max_position_embeddings": 80}
        values |= {
            f"{half}_{key}": n
            for half in ("encoder", "decoder")
            for key, n in (("attention_heads", 4), ("ffn_dim", 48))
        }
        values |= {"decoder_start_token_id": 2, "forced_eos_token_id": 2}
    model = getattr(transformers, architecture)(CONFIGS[config.family](vocab_size=VOCAB, **ids, **values))
    if config.family == "t5" and not config.tie and hasattr(model, "lm_head"):
        # transformers 5 ties every new T5, but keeps two matrices found in a directory, as in v1.1.
        model.lm_head.weight = torch.nn.Parameter(torch.empty(VOCAB, 32))
        model.all_tied_weights_keys.pop("lm_head.weight")
    return model


def randomize_weights(model, seed=0):
    """Replace all weights by random values, without zero biases or unit norms, so that a swapped or missing tensor is detected."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, value in [*model.named_parameters(), *model.named_buffers()]:
            if not value.is_floating_point() or (name.endswith(".attn.bias") and value.ndim == 4):
                continue
            norm = any(part in name.lower() for part in ("norm", "ln_")) and name.endswith("weight")
            value.normal_(1.0 if norm else 0.0, 0.1, generator=generator)
    return model.eval()


def rows(lengths=(40, 23, 5), seed=1):
    width = max(lengths)
    mask = torch.arange(width)[None] < torch.tensor(lengths)[:, None]
    ids = torch.randint(5, VOCAB, (len(lengths), width), generator=torch.Generator().manual_seed(seed))
    return torch.where(mask, ids, 1), mask


def run_ours(model, ids, mask, decoder=None):
    """Return our final hidden states."""
    batch = Batch(ids, mask, decoder_input_ids=decoder)
    hidden = model.encode(batch)
    return hidden if decoder is None else model.decode(batch, hidden)


def run_reference(reference, ids, mask, decoder=None):
    more = {} if decoder is None else {"decoder_input_ids": decoder}
    return reference(input_ids=ids, attention_mask=mask.long(), **more)


def compare(model, reference):
    """Return the largest relative difference over all outputs at tokens that are not padding."""
    ids, mask = rows()
    decoder, output_mask = rows((30, 7, 19), seed=2) if model.decoder else (None, mask)
    with torch.no_grad():
        hidden = run_ours(model, ids, mask, decoder)
        out = run_reference(reference, ids, mask, decoder)
    if "logits" in out:
        return gap(model.logits("lm", hidden)[output_mask], out.logits[output_mask])
    return gap(hidden[output_mask], out.last_hidden_state[output_mask])


CASES = [(name, heads) for name in SMALL for heads in (["lm"], [])]


@pytest.mark.parametrize(("name", "heads"), CASES)
def test_transformers_directory_loads_here(name, heads, tmp_path):
    config = small(name)
    reference = randomize_weights(build_reference(config, config.architecture(heads)))
    loaded = assert_loads_from_transformers(reference, tmp_path, heads, compare)
    assert loaded.config == (config if heads else change(config, tie=True))  # a bare model has no logits to untie


@pytest.mark.parametrize(("name", "heads"), CASES)
def test_saved_directory_loads_in_transformers_and_round_trips(name, heads, tmp_path):
    assert_round_trip(randomize_weights(Model(small(name), heads)), tmp_path, compare)


OTHERS = [
    ("gpt-mini", {"tie": False, "activation": "relu"}),
    ("gpt2-mini", {"tie": False, "intermediate": 40, "activation": "gelu", "pad_id": None}),
    ("t5-mini", {"gated": True, "activation": "silu"}),
    ("t5-mini", {"scale_logits": False}),
    ("t5-v1.1-mini", {"decoder_start_id": 3, "decoder_layers": 1}),
    ("bart-mini", {"embedding_scale": True, "activation": "relu", "decoder_start_id": 0}),
    ("bart-mini", {"intermediate": 40}),
]


@pytest.mark.parametrize(("name", "changes"), OTHERS)
def test_other_settings_round_trip(name, changes, tmp_path):
    assert_round_trip(randomize_weights(Model(small(name, **changes), ["lm"])), tmp_path, compare)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gpt2-mini", {"norm_eps": 0.1}),
        ("t5-mini", {"bucket_reach": 30}),
        ("t5-mini", {"scale_logits": False}),
        ("t5-v1.1-mini", {"activation": "relu"}),
        ("bart-mini", {"embedding_scale": True}),
    ],
)
def test_comparison_detects_a_wrong_setting(name, changes, tmp_path):
    reference = randomize_weights(build_reference(small(name), small(name).architecture(["lm"])))
    reference.save_pretrained(tmp_path)
    assert compare(hf.load(tmp_path).model, reference) <= TOLERANCE
    assert compare(hf.load(tmp_path, changes=changes).model, reference) > TOLERANCE


@pytest.mark.parametrize("name", SMALL)
def test_loss_and_gradients_equal_transformers(name, tmp_path):
    """Compare the mean over the target tokens and every gradient, in float64; one row is padded."""
    model = randomize_weights(Model(small(name, dropout=0.0, attention_dropout=0.0), ["lm"]))
    hf.save(model, tmp_path)
    reference = assert_loads_in_transformers(tmp_path, model, compare).double()
    model = model.double()
    ids, mask = rows((20, 20, 9))
    if model.decoder is None:
        out = reference(input_ids=ids, attention_mask=mask.long(), labels=torch.where(mask, ids, -100))
        hidden, targets, chosen = run_ours(model, ids, mask)[:, :-1], ids[:, 1:], mask[:, 1:]
    else:
        targets, chosen = rows((12, 5, 12), seed=3)
        out = reference(input_ids=ids, attention_mask=mask.long(), labels=torch.where(chosen, targets, -100))
        start = torch.full((3, 1), model.config.start_id)
        hidden = run_ours(model, ids, mask, torch.cat([start, targets[:, :-1]], 1))
    loss = F.cross_entropy(model.logits("lm", hidden[chosen]), targets[chosen])
    assert loss.item() == pytest.approx(out.loss.item(), rel=1e-6)
    out.loss.backward()
    loss.backward()
    family, gradients = FAMILIES[model.config.family], {key: p.grad for key, p in reference.named_parameters()}
    for key, value in model.named_parameters():
        parts = [gradients[k] for k in hf.hf_tensor_names(family, key, model.config)]
        other = torch.cat([part.t() for part in parts] if hf._is_transposed(family, key) else parts)
        assert (value.grad - other).norm() <= 1e-6 * (other.norm() + 1e-3), key


@pytest.mark.parametrize("name", NAMES)
def test_parameter_count_equals_transformers(name):
    config = preset(name)
    with torch.device("meta"):
        kind = getattr(transformers, config.architecture(["lm"]))
        reference = kind(CONFIGS[config.family](**hf.write_config(config)))
        reference.tie_weights()
    count = sum(p.numel() for p in reference.parameters())
    if not config.tie:  # transformers 5 unties T5 v1.1 if the directory contains two matrices
        count += reference.lm_head.weight.numel()
    assert count_parameters(config, ["lm"]) == count


@pytest.mark.parametrize(
    ("name", "millions"),
    [  # as published
        ("openai-gpt", 116.5),
        ("gpt2", 124.4),
        ("gpt2-medium", 354.8),
        ("t5-small", 60.5),
        ("t5-base", 222.9),
        ("t5-v1.1-small", 77.0),
        ("t5-v1.1-base", 247.6),
        ("bart-base", 139.4),
        ("bart-large", 406.3),
    ],
)
def test_published_parameter_counts(name, millions):
    assert count_parameters(preset(name), ["lm"]) / 1e6 == pytest.approx(millions, abs=0.06)


def test_published_sizes_equal_transformers_defaults():
    for name, reference in (
        ("openai-gpt", transformers.OpenAIGPTConfig()),
        ("gpt2", transformers.GPT2Config()),
        ("t5-small", transformers.T5Config()),
        ("bart-large", transformers.BartConfig()),
    ):
        written = hf.write_config(preset(name))
        ignored = {"n_positions", "attention_dropout_rate", "decoder_start_token_id"} if name == "t5-small" else set()
        differ = {k: v for k, v in written.items() if v != getattr(reference, k, None) and k not in ignored}
        assert differ == {}, name


@pytest.mark.parametrize("name", SMALL)
def test_initial_weights_have_the_std_of_transformers(name):
    config = preset(name, vocab_size=500, max_positions=128)
    model = Model(config, ["lm"]).init(0)
    torch.manual_seed(0)
    reference = getattr(transformers, config.architecture(["lm"]))(CONFIGS[config.family](**hf.write_config(config)))
    tensors, family = reference.state_dict(), FAMILIES[config.family]
    for key, value in model.named_parameters():
        if (
            key == "heads.lm.decoder.weight"
        ):  # transformers initializes v1.1 with the std of embeddings, which gives first losses of 45
            assert value.std().item() == pytest.approx(config.hidden**-0.5, rel=0.05)
            continue
        names = hf.hf_tensor_names(family, key, config)
        for name, part in zip(names, value.chunk(len(names)), strict=True):
            other, count = tensors[name], part.numel()
            spread = other.std().item()
            assert part.std().item() == pytest.approx(spread, rel=5 / count**0.5), (key, name)
            assert part.mean().item() == pytest.approx(other.mean().item(), abs=7 * spread / count**0.5), key


def test_published_gpt2_directory_without_prefix(tmp_path):
    """gpt2 on the hub: names without a prefix, buffers among the weights, GPT2LMHeadModel declared."""
    model = randomize_weights(Model(small("gpt2-mini"), ["lm"]))
    hf.save(model, tmp_path)
    tensors = {k.removeprefix("transformer."): v for k, v in load_file(tmp_path / "model.safetensors").items()}
    tensors |= {f"h.{i}.attn.bias": torch.ones(1, 1, 80, 80) for i in range(2)}
    (tmp_path / "model.safetensors").unlink()
    torch.save(tensors, tmp_path / "pytorch_model.bin")
    loaded = hf.load(tmp_path)
    assert (loaded.missing, loaded.unexpected, list(loaded.model.heads)) == ([], [], ["lm"])
    assert all(torch.equal(v, loaded.model.state_dict()[k]) for k, v in model.state_dict().items())


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("gpt2-mini", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ("gpt-mini", {"afn": "tanh"}, "afn"),
        ("t5-mini", {"feed_forward_proj": "moe-relu"}, "feed_forward_proj"),
        ("bart-mini", {"decoder_ffn_dim": 7}, "decoder_ffn_dim"),
        ("bart-mini", {"normalize_before": True}, "normalize_before"),
    ],
)
def test_unsupported_config_raises(name, wrong, message, tmp_path):
    hf.save(Model(small(name), ["lm"]), tmp_path)
    raw = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(raw | wrong))
    with pytest.raises(UserError, match=message):
        hf.load(tmp_path)
