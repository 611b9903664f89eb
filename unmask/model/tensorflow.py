"""BERT checkpoints of TensorFlow, read without it: `bert_model.ckpt.index`, `.data-00000-of-00001`, `bert_config.json`.

The index is a sorted table in LevelDB's format: blocks of (name → where and what), keys written as what differs from
the key before; its footer says where the block of blocks lies. A value is a small protobuf: type, shape, shard, offset,
size, checksum. The data files are the tensors' bytes, little-endian, one after the other. Every checksum (CRC-32C) of
what is read is compared, as a file cut short by a download would otherwise give a model of noise.

Variables come out under the names transformers has for them; what the optimizer kept beside them is left out.
"""

import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from unmask.errors import UserError
from unmask.files import open_regular, read_bytes, size_of
from unmask.protobuf import fields, read_varint

MAGIC = 0xDB4775248B80FB57  # the table's last eight bytes
INDEX = 64 << 20  # bytes of an index, at most
FOOTER, TRAILER = 48, 5  # bytes; the trailer of a block is its compression and its checksum
FLOAT_TYPES = {1: "<f4", 2: "<f8", 14: "bf16", 19: "<f2"}  # TensorFlow's number for a type → numpy's name
OPTIMIZER = re.compile(r"(.*/)?(adam_[mv]|AdamWeightDecayOptimizer\w*|Adam(_1)?|global_step|m|v|good_steps|loss_scale)")

# The few variables whose place in transformers does not follow from their name.
SPECIAL = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
# A BERT whose embeddings are narrower than its layers (SimBERT's small ones) has ELECTRA's names there.
NARROW = "bert/encoder/embedding_hidden_mapping_in/kernel"
NARROW_NAMES = {
    "bert.encoder.embedding_hidden_mapping_in.": "electra.embeddings_project.",
    "bert.": "electra.",
    "cls.predictions.transform.": "generator_predictions.",
    "cls.predictions.bias": "generator_lm_head.bias",
}


class Entry(NamedTuple):
    """Where a variable lies, as the index says it."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int  # bytes
    crc: int


def checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a folder, by their .index files; Google's own name first.

    >>> checkpoints(Path("no-such-folder"))
    []
    """
    found = [file for file in folder.glob("*.index") if list(folder.glob(f"{file.stem}.data-*"))]
    return sorted(found, key=lambda file: (file.name != "bert_model.ckpt.index", file.name))


def read_checkpoint(index: Path) -> dict[str, Tensor]:
    """Every weight under its name in transformers, as transformers lays it out."""
    entries, shards = read_index(index)
    out = {}
    for variable, entry in entries.items():
        if OPTIMIZER.fullmatch(variable):
            continue
        if entry.dtype not in FLOAT_TYPES:  # a counter
            continue
        name, transposed = rename(variable)
        if NARROW in entries:
            start = next((start for start in NARROW_NAMES if name.startswith(start)), "")
            name = NARROW_NAMES.get(start, "") + name.removeprefix(start)
        value = torch.from_numpy(_read(index, variable, entry, shards))
        out[name] = value.T.contiguous() if transposed else value
    return out


def rename(variable: str) -> tuple[str, bool]:
    """A variable's name → its name in transformers, and whether it is transposed: TensorFlow multiplies from the left.

    >>> rename("bert/encoder/layer_3/attention/self/query/kernel")
    ('bert.encoder.layer.3.attention.self.query.weight', True)
    >>> rename("bert/embeddings/word_embeddings")
    ('bert.embeddings.word_embeddings.weight', False)
    """
    if variable in SPECIAL:
        return SPECIAL[variable], False
    name = re.sub(r"\blayer_(\d+)\b", r"layer.\1", variable).replace("/", ".")
    if name.endswith("_embeddings"):
        return f"{name}.weight", False
    return re.sub(r"\.kernel$", ".weight", name), name.endswith(".kernel")


def read_index(path: Path) -> tuple[dict[str, Entry], int]:
    """Every variable that the index names, and the number of data files."""
    try:
        data = read_bytes(path, INDEX)
        if len(data) < FOOTER or int.from_bytes(data[-8:], "little") != MAGIC:
            raise ValueError("it does not end as the index of a TensorFlow checkpoint does")
        _, at = _handle(data, len(data) - FOOTER)
        top, _ = _handle(data, at)
        entries, shards = {}, 1
        for _, value in _block(data, *top):
            for key, entry in _block(data, *_handle(value, 0)[0]):
                found = dict(fields(entry))
                if not key:  # the header
                    shards = found.get(1, 1)
                    if not isinstance(shards, int):
                        raise ValueError("its header is not one")
                    if found.get(2, 0):
                        raise ValueError("its numbers are big-endian")
                elif 7 in found:
                    raise ValueError(f"{key.decode()} is stored in slices")
                else:
                    shape = tuple(dict(fields(dim)).get(1, 0) for n, dim in fields(found.get(2, b"")) if n == 2)
                    values = [found.get(n, 0) for n in (1, 3, 4, 5, 6)]
                    if not all(isinstance(number, int) for number in (*values, *shape)):
                        raise ValueError(f"the entry of {key.decode()} has text where a number belongs")
                    entries[key.decode()] = Entry(values[0], shape, *values[1:])
        return entries, shards
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise UserError(
            f"cannot read {path}: {error or type(error).__name__}",
            expected="the .index of a TensorFlow checkpoint, version 2, not compressed",
            hint="copy or download the file again",
        ) from None


def _read(index: Path, variable: str, entry: Entry, shards: int) -> np.ndarray:
    path = index.with_suffix(f".data-{entry.shard:05d}-of-{shards:05d}")
    kind = FLOAT_TYPES[entry.dtype]
    width = 2 if kind == "bf16" else int(kind[-1])
    try:
        # Before anything is read: a damaged entry may ask for more than there is memory.
        if entry.size != math.prod(entry.shape) * width:
            raise ValueError(f"{entry.size:,} bytes for the shape {entry.shape}")
        if entry.offset + entry.size > (size := size_of(path)):
            raise ValueError(f"the file ends after {size:,} bytes")
        with open_regular(path) as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
        if masked(crc32c(data)) != entry.crc:
            raise ValueError("its bytes do not fit its checksum")
        if kind == "bf16":  # the upper half of a float32
            return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(entry.shape)
        return np.frombuffer(data, kind).astype(np.float32).reshape(entry.shape)
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"cannot read {variable} from {path}: {getattr(error, 'strerror', None) or error}",
            hint="copy or download the file again",
        ) from None


# -------------------------------------------------------------------------------------------- the table


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    """(offset, size) of a block, and where the next thing begins."""
    offset, at = read_varint(data, at)
    size, at = read_varint(data, at)
    return (offset, size), at


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block."""
    block, trailer = data[offset : offset + size], data[offset + size : offset + size + TRAILER]
    if len(block) < max(size, 4) or len(trailer) < TRAILER:
        raise ValueError("a block lies outside the file")
    if trailer[0]:
        raise ValueError("its blocks are compressed (snappy)")
    if masked(crc32c(block + trailer[:1])) != int.from_bytes(trailer[1:], "little"):
        raise ValueError("a block does not fit its checksum")
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)  # the restart points stand behind the entries
    at, key = 0, b""
    while at < end:
        shared, at = read_varint(block, at)
        own, at = read_varint(block, at)
        length, at = read_varint(block, at)
        key = key[:shared] + block[at : at + own]
        yield key, block[at + own : at + own + length]
        at += own + length


# ------------------------------------------------------------------------------------------ the checksum

LANE = 4096  # bytes; long data is cut into lanes that numpy carries forward side by side


@cache
def _tables() -> np.ndarray:
    """(4, 256) the effect of a byte on the CRC-32C register, after 0 to 3 further zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    tables = [table]
    for _ in range(3):
        tables.append(table[tables[-1] & 255] ^ (tables[-1] >> 8))
    return np.stack(tables)


@cache
def _skip_lane() -> list[list[int]]:
    """4 × 256: the register after LANE zero bytes, by the bytes it had; the register's update is linear."""
    first = _tables()[0].tolist()
    columns = [first[(1 << bit) & 255] ^ ((1 << bit) >> 8) for bit in range(32)]  # one zero byte

    def apply(value: int) -> int:
        out = 0
        for bit in range(32):
            out ^= columns[bit] if value >> bit & 1 else 0
        return out

    for _ in range(LANE.bit_length() - 1):  # twice as many zero bytes each time
        columns = [apply(column) for column in columns]
    return [[apply(byte << 8 * place) for byte in range(256)] for place in range(4)]


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli).

    >>> hex(crc32c(b"123456789")), hex(crc32c(b"123456789" * 1000))
    ('0xe3069283', '0xd601351d')
    """
    register, lanes = 0xFFFFFFFF, len(data) // LANE
    if lanes:
        tables, skip = _tables(), _skip_lane()
        words = np.frombuffer(data, "<u4", lanes * LANE // 4).reshape(lanes, -1).T
        state = np.zeros(lanes, np.uint32)
        for word in np.ascontiguousarray(words):  # four bytes of every lane
            state ^= word
            state = (
                tables[3][state & 255]
                ^ tables[2][state >> 8 & 255]
                ^ tables[1][state >> 16 & 255]
                ^ tables[0][state >> 24]
            )
        for lane in state.tolist():
            register = (
                skip[0][register & 255]
                ^ skip[1][register >> 8 & 255]
                ^ skip[2][register >> 16 & 255]
                ^ skip[3][register >> 24]
                ^ lane
            )
    first = _tables()[0].tolist()
    for byte in data[lanes * LANE :]:
        register = first[(register ^ byte) & 255] ^ (register >> 8)
    return register ^ 0xFFFFFFFF


def masked(crc: int) -> int:
    """A checksum as it is stored: turned and moved, so that a checksum of checksums is not a trivial one."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
