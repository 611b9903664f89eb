"""Read TensorFlow checkpoints of BERT without TensorFlow: `bert_model.ckpt.index`, `.data-00000-of-00001`, `bert_config.json`.

The index is a sorted table in LevelDB's format. A block contains (name, entry) pairs with prefix-compressed names, and the
footer of the file points to the block that lists all blocks. An entry is a small protobuf: type, shape, shard, offset, size,
checksum. The data files contain the bytes of the tensors, little-endian. All checksums (CRC-32C) are verified, because an
incomplete download would otherwise load as noise.

Variables are renamed as in transformers; the optimizer's variables are skipped.
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
from unmask.files import COPY_AGAIN, file_size, open_regular, read_bytes
from unmask.protobuf import fields, read_varint

MAGIC = 0xDB4775248B80FB57  # the table's last eight bytes
MAX_INDEX_BYTES = 64 << 20
FOOTER_BYTES, TRAILER_BYTES = 48, 5  # the trailer of a block is its compression type and its checksum
FLOAT_TYPES = {1: "<f4", 2: "<f8", 14: "bf16", 19: "<f2"}  # type number of TensorFlow → name in numpy
OPTIMIZER = re.compile(r"(.*/)?(adam_[mv]|AdamWeightDecayOptimizer\w*|Adam(_1)?|global_step|m|v|good_steps|loss_scale)")

# Variables whose name in transformers does not follow from the rules of `rename`.
SPECIAL = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
# transformers represents a BERT with narrower embeddings (the small SimBERT models) as an ELECTRA model.
NARROW = "bert/encoder/embedding_hidden_mapping_in/kernel"
NARROW_NAMES = {
    "bert.encoder.embedding_hidden_mapping_in.": "electra.embeddings_project.",
    "bert.": "electra.",
    "cls.predictions.transform.": "generator_predictions.",
    "cls.predictions.bias": "generator_lm_head.bias",
}


class Entry(NamedTuple):
    """Location and type of a variable, from the index."""

    dtype: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int  # bytes
    crc: int


def checkpoints(folder: Path) -> list[Path]:
    """Return the .index files of the checkpoints in a folder; the name that Google uses comes first.

    >>> checkpoints(Path("no-such-folder"))
    []
    """
    indexes = [file for file in folder.glob("*.index") if list(folder.glob(f"{file.stem}.data-*"))]
    return sorted(indexes, key=lambda file: (file.name != "bert_model.ckpt.index", file.name))


def read_checkpoint(index: Path) -> dict[str, Tensor]:
    """Return all weights with their names and layout in transformers."""
    entries, shards = read_index(index)
    tensors = {}
    for variable, entry in entries.items():
        if OPTIMIZER.fullmatch(variable) or entry.dtype not in FLOAT_TYPES:  # integers are counters
            continue
        name, transposed = rename(variable)
        if NARROW in entries:
            start = next((start for start in NARROW_NAMES if name.startswith(start)), "")
            name = NARROW_NAMES.get(start, "") + name.removeprefix(start)
        value = torch.from_numpy(_read_variable(index, variable, entry, shards))
        tensors[name] = value.T.contiguous() if transposed else value
    return tensors


def rename(variable: str) -> tuple[str, bool]:
    """Return the name of a variable in transformers, and whether to transpose it: TensorFlow computes x @ W.

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
    """Return the entries of all variables, and the number of data files."""
    try:
        data = read_bytes(path, MAX_INDEX_BYTES)
        if len(data) < FOOTER_BYTES or int.from_bytes(data[-8:], "little") != MAGIC:
            raise ValueError("it does not end like the index of a TensorFlow checkpoint")
        _, position = _read_block_handle(data, len(data) - FOOTER_BYTES)
        block_list, _ = _read_block_handle(data, position)
        entries, shards = {}, 1
        for _, value in _read_block(data, *block_list):
            for key, entry in _read_block(data, *_read_block_handle(value, 0)[0]):
                message = dict(fields(entry))
                if not key:  # the header
                    shards = message.get(1, 1)
                    if not isinstance(shards, int):
                        raise ValueError("its header is damaged")
                    if message.get(2, 0):
                        raise ValueError("its numbers are big-endian")
                elif 7 in message:
                    raise ValueError(f"{key.decode()} is stored in slices")
                else:
                    shape = tuple(dict(fields(dim)).get(1, 0) for n, dim in fields(message.get(2, b"")) if n == 2)
                    values = [message.get(n, 0) for n in (1, 3, 4, 5, 6)]
                    if not all(isinstance(number, int) for number in (*values, *shape)):
                        raise ValueError(f"the entry of {key.decode()} has text instead of a number")
                    entries[key.decode()] = Entry(values[0], shape, *values[1:])
        return entries, shards
    except (OSError, ValueError, IndexError, TypeError) as error:
        raise UserError(
            f"cannot read {path}: {error or type(error).__name__}",
            expected="the uncompressed .index of a TensorFlow checkpoint, version 2",
            hint=COPY_AGAIN,
        ) from None


def _read_variable(index: Path, variable: str, entry: Entry, shards: int) -> np.ndarray:
    path = index.with_suffix(f".data-{entry.shard:05d}-of-{shards:05d}")
    kind = FLOAT_TYPES[entry.dtype]
    width = 2 if kind == "bf16" else int(kind[-1])
    try:
        # Checked before reading, because a damaged entry could exhaust the memory.
        if entry.size != math.prod(entry.shape) * width:
            raise ValueError(f"it has {entry.size:,} bytes, which does not match the shape {entry.shape}")
        if entry.offset + entry.size > (size := file_size(path)):
            raise ValueError(f"the file ends after {size:,} bytes")
        with open_regular(path) as file:
            file.seek(entry.offset)
            data = file.read(entry.size)
        if mask_crc(crc32c(data)) != entry.crc:
            raise ValueError("its checksum does not match")
        if kind == "bf16":  # bf16 is the upper half of a float32
            return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(entry.shape)
        return np.frombuffer(data, kind).astype(np.float32).reshape(entry.shape)
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(
            f"cannot read {variable} from {path}: {getattr(error, 'strerror', None) or error}", hint=COPY_AGAIN
        ) from None


# -------------------------------------------------------------------------------------------- the table


def _read_block_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Return (offset, size) of a block, and the position after the handle."""
    offset, position = read_varint(data, position)
    size, position = read_varint(data, position)
    return (offset, size), position


def _read_block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block."""
    block, trailer = data[offset : offset + size], data[offset + size : offset + size + TRAILER_BYTES]
    if len(block) < max(size, 4) or len(trailer) < TRAILER_BYTES:
        raise ValueError("a block is outside the file")
    if trailer[0]:
        raise ValueError("its blocks are compressed (snappy)")
    if mask_crc(crc32c(block + trailer[:1])) != int.from_bytes(trailer[1:], "little"):
        raise ValueError("the checksum of a block does not match")
    end = size - 4 * (int.from_bytes(block[-4:], "little") + 1)  # the restart points follow the entries
    position, key = 0, b""
    while position < end:
        shared, position = read_varint(block, position)  # bytes that the key shares with the previous key
        unshared, position = read_varint(block, position)
        length, position = read_varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length


# ------------------------------------------------------------------------------------------ the checksum

LANE = 4096  # bytes; long data is split into lanes that numpy processes in parallel


@cache
def _tables() -> np.ndarray:
    """Return (4, 256): the effect of a byte on the CRC-32C register, after 0 to 3 further zero bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0x82F63B78), table >> 1)
    tables = [table]
    for _ in range(3):
        tables.append(table[tables[-1] & 255] ^ (tables[-1] >> 8))
    return np.stack(tables)


@cache
def _skip_lane() -> list[list[int]]:
    """Return 4 × 256: the register after LANE zero bytes, for each value of its four bytes. The update is linear."""
    first = _tables()[0].tolist()
    columns = [first[(1 << bit) & 255] ^ ((1 << bit) >> 8) for bit in range(32)]  # one zero byte

    def apply(value: int) -> int:
        out = 0
        for bit in range(32):
            out ^= columns[bit] if value >> bit & 1 else 0
        return out

    for _ in range(LANE.bit_length() - 1):  # each round doubles the number of zero bytes
        columns = [apply(column) for column in columns]
    return [[apply(byte << 8 * index) for byte in range(256)] for index in range(4)]


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) checksum.

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


def mask_crc(crc: int) -> int:
    """Return a checksum as LevelDB stores it: rotated and shifted, because CRCs of data with embedded CRCs are weak."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
