"""Model directories of every age: TensorFlow checkpoints, written here in the format of TensorFlow; old pickles; damage is detected."""

import json
import os
import pickle
import struct

import numpy as np
import pytest
import torch

from unmask.errors import UserError
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.model.tensorflow import Entry, _read_variable, crc32c, mask_crc, read_checkpoint, read_index, rename
from unmask.model.weights import read_weights

NAME = "bert_model.ckpt"
CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "vocab_size": 23,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "directionality": "bidi",
}


# ----------------------------------------------------------------------------- a writer after the format specification


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value)


def block(entries, file, restart=3, kind=0):
    """Append a block to `file` and return its handle. Keys share prefixes, except for every third one."""
    data, restarts, before = b"", [], b""
    for n, (key, value) in enumerate(entries):
        shared = 0
        if n % restart == 0:
            restarts.append(len(data))
        else:
            shared = next((i for i, (a, b) in enumerate(zip(before, key)) if a != b), min(len(before), len(key)))
        data += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    data += b"".join(struct.pack("<I", r) for r in restarts or [0]) + struct.pack("<I", len(restarts) or 1)
    handle = varint(len(file)) + varint(len(data))
    file += data + bytes([kind]) + struct.pack("<I", mask_crc(crc32c(data + bytes([kind]))))
    return handle


def write_checkpoint(folder, variables, name=NAME, per_block=7, kind=0):
    """Write {name: array} as a checkpoint with one shard."""
    folder.mkdir(exist_ok=True)
    data, entries = b"", [(b"", field(1, 1) + field(3, field(1, 1)))]
    for variable, array in sorted(variables.items()):
        array = np.ascontiguousarray(array)
        raw = array.tobytes()
        dtype = {"float32": 1, "float64": 2, "int64": 9, "float16": 19, "uint16": 14}[array.dtype.name]
        shape = b"".join(field(2, field(1, n)) for n in array.shape)
        entry = field(1, dtype) + field(2, shape) + field(4, len(data)) + field(5, len(raw))
        entries.append((variable.encode(), entry + varint(6 << 3 | 5) + struct.pack("<I", mask_crc(crc32c(raw)))))
        data += raw
    index = bytearray()
    handles = []
    for n in range(0, len(entries), per_block):
        part = entries[n : n + per_block]
        handles.append((part[-1][0] + b"~", block(part, index, kind=kind)))
    meta, top = block([], index), block(handles, index)
    index += (meta + top).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    (folder / f"{name}.index").write_bytes(bytes(index))
    (folder / f"{name}.data-00000-of-00001").write_bytes(data)


def google_variables(model):
    """Return the tensors of a model under Google's names: the inverse of reading, written by hand."""
    out = {}
    for parameter, value in model.state_dict().items():
        targets = hf.hf_tensor_names(hf.FAMILIES["bert"], parameter)
        for target, part in zip(targets, value.chunk(len(targets))):
            part = part.numpy()
            stem, _, kind = target.rpartition(".")
            stem = stem.replace("layer.", "layer_").replace(".", "/")
            if stem == "cls/predictions":
                out[f"{stem}/output_bias"] = part
            elif stem == "cls/seq_relationship":
                out[f"{stem}/output_{'weights' if kind == 'weight' else 'bias'}"] = part
            elif stem.endswith("_embeddings"):
                out[stem] = part
            elif stem.endswith("LayerNorm"):
                out[f"{stem}/{'gamma' if kind == 'weight' else 'beta'}"] = part
            elif kind == "weight":
                out[f"{stem}/kernel"] = part.T
            else:
                out[f"{stem}/bias"] = part
    return out


@pytest.fixture
def checkpoint(tmp_path):
    shape = {"hidden": 32, "layers": 2, "heads": 2, "intermediate": 48, "vocab_size": 23, "max_positions": 16}
    model = Model(preset("bert-tiny", **shape), ["mlm", "nsp"]).init(3)
    variables = google_variables(model)
    slots = {f"{name}/adam_{x}": np.zeros_like(value) for name, value in variables.items() for x in "mv"}
    write_checkpoint(tmp_path, variables | slots | {"global_step": np.array(7)})
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    return tmp_path, model, variables


def test_tensorflow_checkpoint_loads_the_same_weights(checkpoint):
    folder, model, variables = checkpoint
    entries, shards = read_index(folder / f"{NAME}.index")
    assert (len(entries), shards) == (3 * len(variables) + 1, 1)
    loaded = hf.load(folder)
    assert (loaded.missing, loaded.unexpected) == ([], [])  # and nothing of the optimizer
    assert set(loaded.model.heads) == {"mlm", "nsp", "pooler"}
    expected = model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in loaded.model.state_dict().items())
    assert len(expected) == len(loaded.model.state_dict())
    architecture = hf.save(loaded.model, folder / "new")
    assert architecture == "BertForPreTraining"


def test_other_dtypes_are_converted(tmp_path):
    value = np.array([[1.5, -2.0], [0.25, 3.0]])
    half = (value.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)  # bfloat16
    kinds = {"a": value, "b": value.astype(np.float16), "c": half, "d": value.astype(np.float32)}
    write_checkpoint(tmp_path, kinds | {"counter": np.arange(3)})
    tensors = read_checkpoint(tmp_path / f"{NAME}.index")
    assert set(tensors) == set(kinds)
    assert all(
        tensor.dtype == torch.float32 and tensor.numpy().tolist() == value.tolist() for tensor in tensors.values()
    )


def test_tensorflow_names_are_mapped():
    assert rename("cls/seq_relationship/output_weights") == ("cls.seq_relationship.weight", False)
    assert rename("bert/encoder/layer_11/output/LayerNorm/gamma") == (
        "bert.encoder.layer.11.output.LayerNorm.gamma",
        False,
    )


def test_flipped_bits_are_detected(checkpoint):
    folder, _, variables = checkpoint
    data = folder / f"{NAME}.data-00000-of-00001"
    good, rng = data.read_bytes(), np.random.default_rng(0)
    entries, _ = read_index(folder / f"{NAME}.index")
    for variable in rng.choice(sorted(variables), 5, replace=False):
        entry = entries[variable]
        bad = bytearray(good)
        bad[entry.offset + int(rng.integers(entry.size))] ^= 1 << int(rng.integers(8))
        data.write_bytes(bytes(bad))
        with pytest.raises(UserError, match=f"cannot read {variable} .*checksum"):
            hf.load(folder)
    data.write_bytes(good)
    index = folder / f"{NAME}.index"
    table = index.read_bytes()
    # The last 200 bytes before the footer are an empty block that is never read.
    for offset in rng.choice(len(table) - 48 - 200, 20, replace=False):
        bad = bytearray(table)
        bad[offset] ^= 1 << int(rng.integers(8))
        index.write_bytes(bytes(bad))
        with pytest.raises(UserError, match="cannot read"):
            read_index(index)


def test_truncated_files_raise(checkpoint):
    folder, _, _ = checkpoint
    data, index = folder / f"{NAME}.data-00000-of-00001", folder / f"{NAME}.index"
    good = data.read_bytes()
    data.write_bytes(good[: len(good) // 2])
    with pytest.raises(UserError, match="the file ends after"):
        hf.load(folder)
    data.write_bytes(good)
    index.write_bytes(index.read_bytes()[:-10])
    with pytest.raises(UserError, match="does not end like the index"):
        hf.load(folder)
    index.write_bytes(b"")
    with pytest.raises(UserError, match="does not end like the index"):
        hf.load(folder)
    data.unlink()
    with pytest.raises(UserError, match="no weights in"):
        hf.load(folder)


def test_unsupported_checkpoints_raise(tmp_path):
    write_checkpoint(tmp_path, {"a": np.zeros(3, np.float32)}, kind=1)
    (tmp_path / "bert_config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(UserError, match="compressed"):
        hf.load(tmp_path)
    write_checkpoint(tmp_path, {"a": np.zeros(3, np.float32)}, name="model.ckpt-1")
    (tmp_path / f"{NAME}.index").rename(tmp_path / "model.ckpt-2.index")
    (tmp_path / f"{NAME}.data-00000-of-00001").rename(tmp_path / "model.ckpt-2.data-00000-of-00001")
    with pytest.raises(UserError, match=r"2 checkpoints: model\.ckpt-1, model\.ckpt-2"):
        hf.load(tmp_path)


def test_varint_without_an_end_raises():
    from unmask.protobuf import fields
    from unmask.protobuf import read_varint as read_varint

    assert read_varint(varint(2**64 - 1), 0) == (2**64 - 1, 10)
    for data in (b"\xff" * 11, b"\x80" * 10 + b"\0"):
        with pytest.raises(ValueError, match="more than 10 bytes"):
            read_varint(data, 0)
    with pytest.raises(ValueError, match="ends in the middle"):
        read_varint(b"\xff" * 9, 0)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        list(fields(b"\x08" + b"\xff" * 3_000_000))


@pytest.mark.parametrize(
    "entry",
    [
        {"size": 2**40},
        {"size": 2**64 - 1},
        {"size": 2**64},
        {"shape": (2**32, 2**32), "size": 0},
        {"shape": (0, 2**63), "size": 0},
        {"shape": (2**38,), "size": 2**40},
        {"offset": 2**64},
        {"offset": 8},
        {"offset": 2**64, "shape": (0,), "size": 0},
    ],
)
def test_index_entry_outside_the_file_raises(entry, tmp_path):
    write_checkpoint(tmp_path, {"a": np.zeros(3, np.float32)})
    good = Entry(1, (3,), 0, 0, 12, mask_crc(crc32c(bytes(12))))
    index = tmp_path / f"{NAME}.index"
    assert _read_variable(index, "a", good, 1).tolist() == [0, 0, 0]
    with pytest.raises(UserError, match="cannot read a from"):
        _read_variable(index, "a", good._replace(crc=mask_crc(crc32c(b"")))._replace(**entry), 1)


@pytest.mark.parametrize("number", [1, 3, 4, 5, 6, "shape", "header"])
def test_index_with_a_wrong_field_type_raises(number, tmp_path):
    shape = field(2, field(2, field(1, b"x" if number == "shape" else 3)))
    entry = field(1, 1) + shape + field(4, 0) + field(5, 12)
    entry += field(number, b"x") if isinstance(number, int) else b""
    file = bytearray()
    handle = block([(b"", field(1, b"x" if number == "header" else 1)), (b"a", entry)], file)
    meta, top = block([], file), block([(b"b", handle)], file)
    path = tmp_path / f"{NAME}.index"
    path.write_bytes(bytes(file) + (meta + top).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57))
    with pytest.raises(UserError, match="cannot read"):
        read_index(path)


@pytest.mark.parametrize(
    "weight_map", [["a.bin"], {"a": "../a.bin"}, {"a": "/tmp/a.bin"}, {"a": 3}, {"a": ".."}, {"a": ""}]
)
def test_index_with_invalid_file_names_raises(weight_map, tmp_path):
    torch.save({"a": torch.zeros(1)}, tmp_path / "a.bin")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(UserError, match=r"weight_map is not an object|names the file"):
        read_weights(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"vocab_size": 10**12},
        {"vocab_size": 10**30},
        {"hidden_size": 2 * 10**12},
        {"intermediate_size": 10**18},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": 10**5},
        {"vocab_size": 10**6, "hidden_size": 10**6, "intermediate_size": 10**6},
        {"max_position_embeddings": 10**12},
    ],
)
def test_config_sizes_beyond_memory_raise(changes, tmp_path):
    model = Model(preset("bert-tiny", hidden=32, layers=2, vocab_size=23, max_positions=16), ["mlm"]).init(0)
    hf.save(model, tmp_path)
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(UserError):
        hf.load(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 9, 4095, 4096, 4097, 30_000])
def test_checksum_equals_the_definition(size):
    data = np.random.default_rng(size).bytes(size)
    register = 0xFFFFFFFF  # reference implementation, bit by bit
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = (register >> 1) ^ (0x82F63B78 if register & 1 else 0)
    assert crc32c(data) == register ^ 0xFFFFFFFF


class Evil:
    def __reduce__(self):
        return os.system, ("touch was-run",)


@pytest.mark.parametrize("how", ["torch", "pickle"])
def test_pickle_that_executes_code_is_rejected(how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "bert"}))
    file = tmp_path / "pytorch_model.bin"
    if how == "torch":
        torch.save({"a": Evil()}, file)
    else:
        file.write_bytes(pickle.dumps({"a": Evil()}, protocol=2))
    with pytest.raises(UserError, match=r"refusing to unpickle it, because it would execute \w+\.system"):
        hf.load(tmp_path)
    assert not (tmp_path / "was-run").exists()


def test_damaged_and_empty_pickles_raise(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG | {"model_type": "bert"}))
    file = tmp_path / "pytorch_model.bin"
    for data in (b"", b"nonsense", pickle.dumps([1, 2])[:-3]):
        file.write_bytes(data)
        with pytest.raises(UserError, match="cannot read"):
            hf.load(tmp_path)
    torch.save([torch.zeros(2)], file)
    with pytest.raises(UserError, match="no named tensors"):
        hf.load(tmp_path)


def test_old_pytorch_directories_load_the_same_weights(checkpoint, tmp_path):
    """Names of 2018 (gamma, beta), in one file and in shards, give the same weights."""
    folder, _, _ = checkpoint
    tensors = read_checkpoint(folder / f"{NAME}.index")
    expected = hf.load(folder).model.state_dict()
    for shards in (1, 2):
        old = tmp_path / str(shards)
        old.mkdir()
        (old / "config.json").write_text(json.dumps(CONFIG | {"model_type": "bert"}))
        if shards == 1:
            torch.save(tensors, old / "pytorch_model.bin")
        else:
            weight_map = {key: f"pytorch_model-{n % 2}.bin" for n, key in enumerate(tensors)}
            for file in set(weight_map.values()):
                torch.save({key: tensors[key] for key in tensors if weight_map[key] == file}, old / file)
            (old / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))
        loaded = hf.load(old).model.state_dict()
        assert all(torch.equal(loaded[key], expected[key]) for key in expected)
