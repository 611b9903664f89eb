"""Model directories: old formats, heads without a transformers class, missing heads, and clear errors."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from unmask.errors import UserError
from unmask.hub import resolve
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model

BERT = preset("bert-tiny", vocab_size=60, max_positions=32)
MODERN = preset("modernbert-mini", vocab_size=60, hidden=64, heads=4, intermediate=48, max_positions=32)


def saved(folder, config=BERT, heads=("mlm", "nsp"), seed=0):
    model = Model(config, heads).init(seed)
    hf.save(model, folder)
    return model


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def test_head_without_a_transformers_class_is_saved_in_a_separate_file(tmp_path):
    model = saved(tmp_path, MODERN, ["mlm", "nsp"])
    assert json.loads((tmp_path / "config.json").read_text())["architectures"] == ["ModernBertForMaskedLM"]
    extra_heads = load_file(tmp_path / "heads.safetensors")
    assert {key.split(".")[1] for key in extra_heads} == {"nsp", "pooler"}
    assert not {"nsp", "pooler"} & {key.split(".")[0] for key in load_file(tmp_path / "model.safetensors")}
    loaded = hf.load(tmp_path)
    assert same(loaded.model, model)
    assert (loaded.missing, loaded.unexpected) == ([], [])


def test_missing_head_is_reported_and_initialized_from_the_seed(tmp_path):
    saved(tmp_path, BERT, ["mlm"])
    loaded = hf.load(tmp_path, heads=["mlm", "nsp"], seed=5)
    assert {name.split(".")[1] for name in loaded.missing} == {"pooler", "nsp"}
    expected = Model(BERT, ["nsp"]).init(5).state_dict()
    assert all(torch.equal(loaded.model.state_dict()[key], expected[key]) for key in loaded.missing)
    assert hf.load(tmp_path).missing == []


def test_load_only_the_requested_heads(tmp_path):
    saved(tmp_path)
    loaded = hf.load(tmp_path, heads=())
    assert (list(loaded.model.heads), loaded.missing, loaded.unexpected) == ([], [], [])


def test_new_labels_initialize_the_classifier_and_keep_the_pooler(tmp_path):
    config = preset("bert-tiny", vocab_size=60, labels=("a", "b"))
    model = saved(tmp_path, config, ["classify"])
    loaded = hf.load(tmp_path)
    assert same(loaded.model, model)
    assert loaded.config.labels == ("a", "b")
    loaded = hf.load(tmp_path, heads=["classify"], changes={"labels": ("x", "y", "z")})
    assert loaded.missing == ["heads.classify.out.weight", "heads.classify.out.bias"]
    assert loaded.unexpected == []
    assert torch.equal(loaded.model.heads["pooler"].dense.weight, model.heads["pooler"].dense.weight)


def test_unexpected_tensors_are_reported(tmp_path):
    saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file(tensors | {"extra.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    assert hf.load(tmp_path).unexpected == ["extra.weight"]


def test_model_directory_of_2018(tmp_path):
    """pytorch_model.bin, LayerNorms with gamma and beta, buffers and tied copies among the weights, half precision."""
    model = saved(tmp_path)
    old = {}
    for key, value in load_file(tmp_path / "model.safetensors").items():
        key = key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        old[key] = value.half()
    old["bert.embeddings.position_ids"] = torch.arange(32)[None]
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"]
    old["cls.predictions.decoder.bias"] = old["cls.predictions.bias"]
    (tmp_path / "model.safetensors").unlink()
    torch.save(old, tmp_path / "pytorch_model.bin")
    config = json.loads((tmp_path / "config.json").read_text())
    for key in ("architectures", "dtype", "tie_word_embeddings", "cls_token_id", "sep_token_id", "layer_norm_eps"):
        config.pop(key)
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = hf.load(tmp_path)
    assert (loaded.missing, loaded.unexpected, loaded.config) == ([], [], BERT)
    assert {value.dtype for value in loaded.model.state_dict().values()} == {torch.float32}
    assert same(loaded.model, model.half().float())


def test_old_modernbert_config():
    """As in the published directories, which were written before transformers 5."""
    raw = hf.write_config(preset("modernbert-base", global_every=4, rope_theta=1e6, local_rope_theta=5e3))
    del raw["layer_types"], raw["rope_parameters"]
    raw |= {"global_attn_every_n_layers": 4, "global_rope_theta": 1e6, "local_rope_theta": 5e3}
    read = hf.read_config(raw | {"model_type": "modernbert"})
    assert (read.global_every, read.rope_theta, read.local_rope_theta) == (4, 1e6, 5e3)
    assert hf.read_config({"model_type": "modernbert"}) == preset("modernbert-base")
    assert hf.read_config({"model_type": "bert"}) == preset("bert-base")


def test_sharded_weights(tmp_path):
    model = saved(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, keys in parts.items():
        save_file({key: tensors[key] for key in keys}, tmp_path / file)
    index = {"weight_map": {key: file for file, keys in parts.items() for key in keys}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert same(hf.load(tmp_path).model, model)
    (tmp_path / "model-2.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-2\.safetensors is missing"):
        hf.load(tmp_path)


def test_token_classification_is_not_loaded_as_a_classifier(tmp_path):
    config = preset("modernbert-mini", vocab_size=60, labels=("a", "b"))
    saved(tmp_path, config, ["classify"])
    raw = json.loads((tmp_path / "config.json").read_text())
    raw["architectures"] = ["ModernBertForTokenClassification"]
    (tmp_path / "config.json").write_text(json.dumps(raw))
    loaded = hf.load(tmp_path)
    assert list(loaded.model.heads) == ["tag"]
    assert loaded.config.labels == ("a", "b")
    raw["architectures"] = ["ModernBertForMaskedLM"]  # not declared, so it is neither
    (tmp_path / "config.json").write_text(json.dumps(raw))
    loaded = hf.load(tmp_path)
    assert list(loaded.model.heads) == []
    assert "classifier.weight" in loaded.unexpected


def test_extra_settings_and_the_tokenizer_are_saved(tmp_path):
    class Text:
        def save(self, folder, **settings):
            (folder / "tokenizer.json").write_text("{}")

    hf.save(Model(BERT).init(0), tmp_path, Text(), extra={"problem_type": "regression"})
    assert (tmp_path / "tokenizer.json").exists()
    assert hf.load(tmp_path).settings["problem_type"] == "regression"


class Evil:
    def __reduce__(self):
        return (print, ("unpickled",))


def damage_folder(folder, damage):
    config = folder / "config.json"
    weights = folder / "model.safetensors"
    raw = json.loads(config.read_text())
    match damage:
        case "no config":
            config.unlink()
        case "bad json":
            config.write_text("{")
        case "family":
            config.write_text(json.dumps(raw | {"model_type": "gpt_neox"}))
        case "no family":
            del raw["model_type"]
            config.write_text(json.dumps(raw))
        case "decoder":
            config.write_text(json.dumps(raw | {"is_decoder": True}))
        case "no weights":
            weights.unlink()
        case "cut":
            weights.write_bytes(weights.read_bytes()[:5000])
        case "pickle":
            weights.unlink()
            torch.save({"x": Evil()}, folder / "pytorch_model.bin")
        case "shape":
            config.write_text(json.dumps(raw | {"vocab_size": 61}))
        case "layer":
            config.write_text(json.dumps(raw | {"num_hidden_layers": 3}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("no config", "no config.json"),
        ("bad json", "cannot read"),
        ("family", r"'gpt_neox'[\s\S]*bert, [\s\S]*modernbert"),
        ("no family", r"model_type is null[\s\S]*bert, [\s\S]*modernbert"),
        ("decoder", "is_decoder"),
        ("no weights", "no weights"),
        ("cut", r"cannot read .*model\.safetensors"),
        ("pickle", r"cannot read .*pytorch_model\.bin"),
        ("shape", r"word_embeddings.*\(60, 128\)[\s\S]*\(61, 128\)"),
        ("layer", r"layer\.2.*is missing"),
    ],
)
def test_damaged_model_directory_raises(damage, message, tmp_path, capsys):
    saved(tmp_path)
    damage_folder(tmp_path, damage)
    with pytest.raises(UserError, match=message):
        hf.load(tmp_path)
    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "change",
    [
        {"layer_types": ["sliding_attention", "full_attention", "full_attention", "full_attention"]},
        {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
    ],
)
def test_unsupported_modernbert_raises(change):
    raw = hf.write_config(MODERN) | {"model_type": "modernbert"} | change
    with pytest.raises(UserError, match=r"layer_types|rope_type"):
        hf.read_config(raw)


def test_missing_directory_raises():
    with pytest.raises(UserError, match="no such file or folder: not-there"):
        hf.load("not-there")


def test_unreachable_hub_raises(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match="the hub could not be reached"):
        resolve("owner-of-nothing/nothing", ["*.json"])
