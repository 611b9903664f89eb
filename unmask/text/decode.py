"""Bytes to clean text: compression, encoding, repair. Streamed in pieces of 1 MiB.

UTF-8 first (with or without BOM), UTF-16 and UTF-32 by their BOM, anything else detected on the first piece
that is not ASCII. A byte that cannot be decoded becomes U+FFFD, control characters go, a line ends in `\\n`;
every repair is noted with its line.
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

CHUNK = 1 << 20  # bytes

# (kind of problem, line, what happened, how many)
Note = Callable[[str, int, str, int], None]

_BOMS = (  # UTF-32 first: its BOM begins with that of UTF-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# What is guessed at, in order of preference where several read the bytes equally well.
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

# An undecodable byte passes through decoding as a lone surrogate, which no decoder makes; `clean` finds it.
_MARK = "\udc80"


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return _MARK * (error.end - error.start), error.end


codecs.register_error("unmask.mark", _mark)


def decompress(raw: BinaryIO) -> BinaryIO:
    """The contents of `raw`, decompressed as its first bytes (not its name) say: gz, zst, bz2, xz."""
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
    """Frames of zst one after another. zstandard's own reader takes a frame that is cut off for the end."""

    INPUT = 1 << 10  # bytes at once: what comes out is held whole, and is up to 32,768 times as long

    def __init__(self, raw: BinaryIO):
        import zstandard

        self.raw, self.context = raw, zstandard.ZstdDecompressor()
        self.frame = self.context.decompressobj()
        self.started = False  # some bytes of the frame were read
        self.data, self.at = b"", 0  # what came out, and how much of it was taken

    def read1(self, size: int) -> bytes:
        while self.at == len(self.data):
            compressed = self.frame.unused_data
            if self.frame.eof:
                self.frame, self.started = self.context.decompressobj(), False
            compressed = compressed or self.raw.read(self.INPUT)
            if not compressed:
                if self.started:
                    raise EOFError("Compressed file ended before the end of the zst frame was reached")
                return b""
            self.started = True
            self.data, self.at = self.frame.decompress(compressed), 0
        taken = self.data[self.at : self.at + size]
        self.at += len(taken)
        return taken


def read_errors() -> tuple[type[Exception], ...]:
    """What reading a damaged or cut-off compressed file raises."""
    import zlib

    import zstandard

    return (EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """`size` bytes; fewer only at the end, or in front of damage, which the next call then meets."""
    parts: list[bytes] = []
    left = size
    while left:
        try:
            data = stream.read1(left)  # type: ignore[attr-defined]
        except read_errors():
            if not parts:
                raise
            break
        if not data:
            break
        parts.append(data)
        left -= len(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def detect_binary(sample: bytes) -> str | None:
    """What the bytes are if they are not text, else None. A stray NUL in a text is not enough.

    >>> detect_binary(b"a text with one NUL \\0 in it"), detect_binary(bytes(range(256)))
    (None, 'binary')
    """
    if any(sample.startswith(bom) for bom, _ in _BOMS):
        return None
    for magic, what in _MAGIC:
        if sample.startswith(magic):
            return what
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if not (controls > len(sample) / 10 or (controls >= 8 and controls > len(sample) / 100)):
        return None
    codec = guess_utf16(sample)
    return f"binary, or UTF-16 without a byte order mark (--encoding {codec})" if codec else "binary"


def guess_utf16(sample: bytes) -> str:
    """The codec that reads `sample`, which looks binary and has no byte order mark, as writing; '' if none.

    >>> guess_utf16("文本 and text".encode("utf-16-be")), guess_utf16(bytes(range(256)))
    ('utf-16-be', '')
    """
    # A script takes few values of the higher byte and many of the lower.
    name = "utf-16-le" if len(set(sample[1::2])) <= len(set(sample[0::2])) else "utf-16-be"
    text = codecs.getincrementaldecoder(name)("replace").decode(sample)  # incremental: the end may be cut
    bad = sum(char == "\ufffd" or not (char.isprintable() or char.isspace()) for char in text)
    return name if text and bad <= len(text) / 100 else ""


def normalize_encoding(name: str) -> str:
    """`name` as Python spells it, "auto" as it is; an unknown one is a user's mistake."""
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
            hint="--set data.encoding=auto",
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
    decoder = codecs.getincrementaldecoder("utf-8")("unmask.mark")  # incremental: the end may be cut inside a character
    text = decoder.decode(sample)
    bad = text.count(_MARK)
    good = sum(len(run) for run in re.findall(r"[^\x00-\x7f\udc80]+", text))
    if good >= bad:
        return "utf-8"  # with some broken bytes, if any
    # Only lines with such bytes tell anything, and a few of them are enough.
    lines = b"\n".join(line for line in re.split(rb"[\r\n]+", sample) if not line.isascii())[: 1 << 16]
    return _detect_legacy(lines) or "utf-8"


def _detect_legacy(lines: bytes) -> str | None:
    """None when no encoding reads the bytes as writing: then they are damage in a UTF-8 file."""
    from charset_normalizer import from_bytes

    guesses = [
        (guess.chaos, -guess.coherence, _LEGACY.index(name), name)
        for guess in from_bytes(lines, cp_isolation=_LEGACY, preemptive_behaviour=False)
        for name in guess.could_be_from_charset  # those that read these bytes alike
    ]
    if not guesses:
        return None
    name = min(guesses)[-1]
    text = lines.decode(name, "replace")
    foreign = re.findall(r"[^\x00-\x7f]", text)
    # ÿ and þ are 0xff and 0xfe, frequent in damage and rare in writing. Letters stand beside letters, mostly.
    plausible = re.findall(
        r"(?<=[^\W\d_])[^\W\d_\x00-\x7fÿþ]|[^\W\d_\x00-\x7fÿþ](?=[^\W\d_])|[’‘“”–—…£€°§©®«»\xa0、。，！？]", text
    )
    return name if len(plausible) >= 0.7 * len(foreign) else None


def decode(stream: BinaryIO, encoding: str, note: Note) -> Iterator[str]:
    """Clean text in pieces. `encoding`: a codec, "auto", or "ascii": nothing else seen yet, so still open."""
    newlines = io.IncrementalNewlineDecoder(None, translate=True)
    decoder: codecs.IncrementalDecoder | None = None
    line, fixed = 1, encoding not in ("auto", "ascii")
    while True:
        data = read_exactly(stream, CHUNK)
        if decoder is None and (fixed or not data.isascii()):
            name = encoding if fixed else detect_encoding(data)
            # utf-8-sig takes the BOM away; the BOM of UTF-16 and UTF-32 also tells the byte order
            decoder = codecs.getincrementaldecoder("utf-8-sig" if name == "utf-8" else name)("unmask.mark")
        text = decoder.decode(data, not data) if decoder else data.decode("ascii")
        text = newlines.decode(text, not data)  # type: ignore[arg-type]
        if text:
            yield clean(text, line, note, "repaired_bytes", "bytes that are no text in this encoding")
            line += text.count("\n")
        if not data:
            return


_DIRT = re.compile("[\ud800-\udfff]+|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
# C1 controls in real text are Windows-1252 characters once read as Latin-1: U+0097 is a dash. As in HTML.
_C1 = {chr(byte): bytes([byte]).decode("cp1252", "ignore") for byte in range(0x80, 0xA0)}


def clean(text: str, line: int, note: Note, kind: str, what: str) -> str:
    """A run of lone surrogates becomes one U+FFFD (noted as `kind`), control characters go, those that
    separate (form feed, vertical tab) become a space, C1 controls what they were meant to be. `line` is where
    `text` begins.

    >>> clean("a\\x00b\\x0cc \\x97 d", 1, print, "", "")
    control_characters 1 U+0000 removed 1
    control_characters 1 U+000C removed 1
    control_characters 1 U+0097 read as '—' 1
    'ab c — d'
    """
    # The first test is four times as fast, the second is exact: a no-break space is not printable.
    if text.replace("\n", "").isprintable() or not _DIRT.search(text):
        return text
    parts, done = [], 0
    for match in _DIRT.finditer(text):
        before, char = text[done : match.start()], match[0]
        done = match.end()
        line += before.count("\n")
        parts.append(before)
        if char >= "\ud800":
            note(kind, line, what, len(char))
            parts.append("\ufffd")  # one for the run
        elif meant := _C1.get(char):
            note("control_characters", line, f"U+{ord(char):04X} read as {meant!r}", 1)
            parts.append(meant)
        else:
            note("control_characters", line, f"U+{ord(char):04X} removed", 1)
            parts.append(" " if char.isspace() else "")
    parts.append(text[done:])
    return "".join(parts)
