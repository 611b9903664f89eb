"""The fields of a protobuf message, read without a schema or a library: TensorFlow's and SentencePiece's files are such."""

from collections.abc import Iterator
from typing import Any

MAX_VARINT_BYTES = 10  # bytes of a number: 64 bits, seven in each


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """(number, int or bytes) in the order of the file; numbers of four and eight bytes as unsigned integers.

    >>> list(fields(bytes([8, 150, 1, 18, 2, 104, 105])))
    [(1, 150), (2, b'hi')]
    """
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            value, at = read_varint(data, at)
            yield number, value
            continue
        if wire == 2:
            length, at = read_varint(data, at)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"a field of the unknown kind {wire}")
        part = data[at : at + length]
        if len(part) < length:
            raise ValueError("it ends in the middle of a field")
        yield number, part if wire == 2 else int.from_bytes(part, "little")
        at += length


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and where the next thing begins.

    >>> read_varint(bytes([172, 2]), 0)
    (300, 2)
    """
    value = 0
    for place, byte in enumerate(data[at : at + MAX_VARINT_BYTES]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    cut = at + MAX_VARINT_BYTES > len(data)
    raise ValueError("it ends in the middle of a number" if cut else f"a number of more than {MAX_VARINT_BYTES} bytes")
