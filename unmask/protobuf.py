"""Read protobuf messages without a schema or a library, for the files of TensorFlow and SentencePiece."""

from collections.abc import Iterator
from typing import Any

MAX_VARINT_BYTES = 10  # 64 bits, seven per byte


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (field number, int or bytes) in the order of the file; fixed-size numbers are unsigned integers.

    >>> list(fields(bytes([8, 150, 1, 18, 2, 104, 105])))
    [(1, 150), (2, b'hi')]
    """
    offset = 0
    while offset < len(data):
        tag, offset = read_varint(data, offset)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, offset = read_varint(data, offset)
            yield number, value
            continue
        if wire == 2:
            length, offset = read_varint(data, offset)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of the unknown kind {wire}")
        part = data[offset : offset + length]
        if len(part) < length:
            raise ValueError("it ends in the middle of a field")
        yield number, part if wire == 2 else int.from_bytes(part, "little")
        offset += length


def read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a variable-length integer (seven bits per byte) and the offset after it.

    >>> read_varint(bytes([172, 2]), 0)
    (300, 2)
    """
    value = 0
    for index, byte in enumerate(data[offset : offset + MAX_VARINT_BYTES]):
        value |= (byte & 127) << 7 * index
        if byte < 128:
            return value, offset + index + 1
    cut = offset + MAX_VARINT_BYTES > len(data)
    raise ValueError("it ends in the middle of a number" if cut else f"a number of more than {MAX_VARINT_BYTES} bytes")
