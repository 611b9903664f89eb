"""Decompress, decode and clean text, in chunks of 1 MiB.

The encoding is detected in the first chunk that is not ASCII: UTF-8 with or without BOM, UTF-16 and UTF-32 with BOM, or else a legacy
encoding. Undecodable bytes become U+FFFD, control characters are removed, and lines end in `\\n`. Every repair is reported with its line.
"""

import bz2
import codecs
import gzip
import io
import lzma
import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

from unmask.errors import UserError, nearest

CHUNK_BYTES = 1 << 20

# Callback for problems: kind, line, message, count.
Note = Callable[[str, int, str, int], None]

_BOMS = (  # UTF-32 first: its BOM starts with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Candidates of detection, in order of preference if several fit equally well.
_LEGACY = [
    "gb18030",
    "big5",
    "shift_jis",
    "euc_jp",
    "euc_kr",
    "cp1252",
    "cp1250",
    "cp1251",
    "koi8_r",
    "cp1253",
    "cp1254",
]
_MAGIC = (
    (b"%PDF", "a PDF; extract its text first, e.g. with pdftotext"),
    (b"PK\x03\x04", "a zip archive (or a docx, xlsx, epub); unpack it or export its text first"),
    (b"\x7fELF", "a program"),
    (b"\x89PNG", "an image"),
    (b"\xff\xd8\xff", "an image"),
    (b"GIF8", "an image"),
    (b"SQLite format 3\0", "a database"),
    (b"\xd0\xcf\x11\xe0", "an old Office document; export its text first"),
    (b"7z\xbc\xaf", "a 7z archive; unpack it first"),
)
_CONTROLS = bytes(b for b in range(32) if b not in b"\t\n\r\f\x1b") + b"\x7f"

# An undecodable byte is decoded as this lone surrogate, which no decoder produces; `clean` replaces it.
_MARK = "\udc80"


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _MARK * (error.end - error.start), error.end


codecs.register_error("unmask.mark", _mark)


def decompress(raw: BinaryIO) -> BinaryIO:
    """Return a stream that decompresses `raw` if its first bytes are those of gz, zst, bz2 or xz."""
    head = raw.read(6)
    raw.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)  # type: ignore[return-value]
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        return _Zst(raw)  # type: ignore[return-value]
    if head.startswith(b"BZh"):
        return bz2.BZ2File(raw)  # type: ignore[return-value]
    if head == b"\xfd7zXZ\x00":
        return lzma.LZMAFile(raw)  # type: ignore[return-value]
    return raw


class _Zst:
    """Reader of concatenated zst frames. Unlike zstandard's own reader, it raises EOFError if a frame is truncated."""

    INPUT_BYTES = 1 << 10  # per step: the output is held in memory, and is up to 32,768 times as long

    def __init__(self, raw: BinaryIO):
        import zstandard

        self.raw, self.context = raw, zstandard.ZstdDecompressor()
        self.frame = self.context.decompressobj()
        self.started = False  # whether some bytes of the frame were read
        self.data, self.at = b"", 0  # decompressed bytes, and the offset of the first unread one

    def read1(self, size: int) -> bytes:
        while self.at == len(self.data):
            compressed = self.frame.unused_data
            if self.frame.eof:
                self.frame, self.started = self.context.decompressobj(), False
            compressed = compressed or self.raw.read(self.INPUT_BYTES)
            if not compressed:
                if self.started:
                    raise EOFError("Compressed file ended before the end of the zst frame was reached")
                return b""
            self.started = True
            self.data, self.at = self.frame.decompress(compressed), 0
        output = self.data[self.at : self.at + size]
        self.at += len(output)
        return output


def read_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a damaged or truncated file can raise."""
    import zlib

    import zstandard

    return (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Read `size` bytes, or fewer at the end or before a damaged part. The next call then raises the error."""
    parts: list[bytes] = []
    remaining = size
    while remaining:
        try:
            data = stream.read1(remaining)  # type: ignore[attr-defined]
        except read_errors():
            if not parts:
                raise
            break
        if not data:
            break
        parts.append(data)
        remaining -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def detect_binary(sample: bytes) -> str | None:
    """Return what the bytes are if they are not text, else None. A few NUL bytes in a text are ignored.

    >>> detect_binary(b"a text with one NUL \\0 in it"), detect_binary(bytes(range(256)))
    (None, 'binary')
    """
    if any(sample.startswith(bom) for bom, _ in _BOMS):
        return None
    for magic, description in _MAGIC:
        if sample.startswith(magic):
            return description
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if not (controls > len(sample) / 10 or (controls >= 8 and controls > len(sample) / 100)):
        return None
    codec = guess_utf16(sample)
    return f"binary, or UTF-16 without a byte order mark (--encoding {codec})" if codec else "binary"


def guess_utf16(sample: bytes) -> str:
    """Return the byte order (utf-16-le or utf-16-be) in which binary-looking bytes are text, or "".

    >>> guess_utf16("文本 and text".encode("utf-16-be")), guess_utf16(bytes(range(256)))
    ('utf-16-be', '')
    """
    # In most scripts, the high byte has few different values and the low byte has many.
    name = "utf-16-le" if len(set(sample[1::2])) <= len(set(sample[0::2])) else "utf-16-be"
    text = codecs.getincrementaldecoder(name)("replace").decode(sample)  # incremental: the end may be incomplete
    bad = sum(char == "\ufffd" or not (char.isprintable() or char.isspace()) for char in text)
    return name if text and bad <= len(text) / 100 else ""


def normalize_encoding(name: str) -> str:
    """Return the codec name in Python's spelling, or "auto". Raise UserError if the encoding is unknown."""
    if name == "auto":
        return name
    try:
        codec = codecs.lookup(name)
        if not codec._is_text_encoding:  # "base64" is a codec too
            raise LookupError
    except LookupError:
        valid = ["auto", "utf-8", "utf-16", "gb18030", "big5", "cp1252", "latin-1", "shift_jis", "euc-kr", "koi8-r"]
        raise UserError(
            f"unknown encoding {name!r}{nearest(name, valid)}",
            expected=f"{', '.join(valid)}, … (any Python codec)",
            hint="pass --set data.encoding=auto",
        ) from None
    return "utf-8" if codec.name in ("utf-8", "utf-8-sig", "ascii") else codec.name


def detect_encoding(sample: bytes) -> str:
    """
    >>> detect_encoding(b"plain"), detect_encoding("caf\\u00e9, d\\u00e9j\\u00e0 vu".encode("cp1252"))
    ('ascii', 'cp1252')
    """
    for bom, name in _BOMS:
        if sample.startswith(bom):
            return name
    if sample.isascii():
        return "ascii"
    decoder = codecs.getincrementaldecoder("utf-8")("unmask.mark")  # incremental: the sample may end inside a character
    text = decoder.decode(sample)
    bad = text.count(_MARK)
    good = sum(len(run) for run in re.findall(r"[^\x00-\x7f\udc80]+", text))
    if good >= bad:
        return "utf-8"  # possibly with a few broken bytes
    # Only lines with non-ASCII bytes are informative, and 64 KiB of them are enough.
    lines = b"\n".join(line for line in re.split(rb"[\r\n]+", sample) if not line.isascii())[: 1 << 16]
    return _detect_legacy(lines) or "utf-8"


def _detect_legacy(lines: bytes) -> str | None:
    """Return the best legacy encoding, or None if none gives plausible text: then the bytes are errors in a UTF-8 file."""
    from charset_normalizer import from_bytes

    guesses = [
        (guess.chaos, -guess.coherence, _LEGACY.index(name), name)
        for guess in from_bytes(lines, cp_isolation=_LEGACY, preemptive_behaviour=False)
        for name in guess.could_be_from_charset  # encodings that decode these bytes identically
    ]
    if not guesses:
        return None
    name = min(guesses)[-1]
    text = lines.decode(name, "replace")
    foreign = re.findall(r"[^\x00-\x7f]", text)
    # ÿ and þ are 0xff and 0xfe, frequent in damaged data and rare in text. Letters usually occur next to letters.
    plausible = re.findall(
        r"(?<=[^\W\d_])[^\W\d_\x00-\x7fÿþ]|[^\W\d_\x00-\x7fÿþ](?=[^\W\d_])|[’‘“”–—…£€°§©®«»\xa0、。，！？]", text
    )
    return name if len(plausible) >= 0.7 * len(foreign) else None


def decode(stream: BinaryIO, encoding: str, note: Note) -> Iterator[str]:
    """Yield clean text in chunks. `encoding`: a codec, or "auto" or "ascii" to detect it at the first non-ASCII byte."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    decoder: codecs.IncrementalDecoder | None = None
    line, known = 1, encoding not in ("auto", "ascii")
    while True:
        data = read_exactly(stream, CHUNK_BYTES)
        if decoder is None and (known or not data.isascii()):
            name = encoding if known else detect_encoding(data)
            # utf-8-sig removes the BOM; the BOM of UTF-16 and UTF-32 also gives the byte order
            decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)("unmask.mark")
        text = decoder.decode(data, not data) if decoder else data.decode("ascii")
        text = newlines.decode(text, not data)  # type: ignore[arg-type]
        if text:
            yield clean(text, line, note, "repaired_bytes", "bytes that are not text in this encoding")
            line += text.count("\n")
        if not data:
            return


_UNWANTED = re.compile("[\ud800-\udfff]+|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# C1 controls in real text are Windows-1252 characters that were decoded as Latin-1: U+0097 is a dash. HTML does the same.
_C1 = {chr(byte): bytes([byte]).decode("cp1252", "ignore") for byte in range(0x80, 0xA0)}


def clean(text: str, line: int, note: Note, kind: str, message: str) -> str:
    """Replace lone surrogates and control characters, and report each of them with its line. `line`: of the start of `text`.

    A run of lone surrogates becomes one U+FFFD (reported as `kind`). Form feed and vertical tab become a space, C1 controls become the
    Windows-1252 character, and other control characters are removed.

    >>> clean("a\\x00b\\x0cc \\x97 d", 1, print, "", "")
    control_characters 1 U+0000 removed 1
    control_characters 1 U+000C removed 1
    control_characters 1 U+0097 read as '—' 1
    'ab c — d'
    """
    # The first test is 4x faster; the second is exact: a no-break space is not printable but clean.
    if text.replace("\n", "").isprintable() or not _UNWANTED.search(text):
        return text
    parts, done = [], 0
    for match in _UNWANTED.finditer(text):
        before, char = text[done : match.start()], match[0]
        done = match.end()
        line += before.count("\n")
        parts.append(before)
        if char >= "\ud800":
            note(kind, line, message, len(char))
            parts.append("\ufffd")  # one per run
        elif replacement := _C1.get(char):
            note("control_characters", line, f"U+{ord(char):04X} read as {replacement!r}", 1)
            parts.append(replacement)
        else:
            note("control_characters", line, f"U+{ord(char):04X} removed", 1)
            parts.append(" " if char.isspace() else "")
    parts.append(text[done:])
    return "".join(parts)
