"""The body of a request, whole, or a refusal: counted while it comes, unpacked no further than it may be, given up when it is slow.

What is too long is read to its end without being kept (for a few seconds): a client that is still sending would otherwise see a
broken connection instead of the answer.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from unmask.server.errors import Refused
from unmask.server.limits import Limits

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
LINGER = 10.0  # seconds in which the rest of a body that is too long is thrown away
PACKED = ("gzip", "deflate", "zstd", "identity")
WINDOW = 8 << 20  # bytes that zstd may look back: its own recommendation for senders


class ClientGone(Exception):
    """It closed the connection: there is nobody to answer."""


class Bodies:
    """Reads bodies, and knows how many bytes of them are held at a time."""

    def __init__(self, limits: Limits):
        self.limits, self.held = limits, 0

    @asynccontextmanager
    async def reading(self, headers: Mapping[bytes, bytes], receive: Receive) -> AsyncIterator[bytes]:
        """The body, which counts as held until the end of the block."""
        own = 0

        def take(count: int) -> None:
            nonlocal own
            if self.held + count > self.limits.held:
                raise Refused(503, "busy", "too many requests at a time", headers={"retry-after": "1"})
            own, self.held = own + count, self.held + count

        try:
            yield await self._read(headers, receive, take)
        finally:
            self.held -= own

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive, take: Callable[[int], None]) -> bytes:
        raw, ended = bytearray(), False
        try:
            self._check_head(headers)
            async with asyncio.timeout(self.limits.slow):
                async for part in parts(receive):
                    if len(raw) + len(part) > self.limits.body:
                        raise self._too_long(f"the body has more than {self.limits.body:,} bytes")
                    take(len(part))
                    raw += part
            ended = True
            body = self.unpack(bytes(raw), _encoding(headers))
            take(max(0, len(body) - len(raw)))
            return body
        except TimeoutError:
            slow = f"the body did not come within {self.limits.slow:g} seconds"
            raise Refused(408, "slow", slow, headers={"connection": "close"}) from None
        except Refused:
            raw.clear()
            if not ended:
                await self._throw_away(receive)
            raise

    def _check_head(self, headers: Mapping[bytes, bytes]) -> None:
        size = headers.get(b"content-length", b"")
        if size.isdigit() and int(size[:20]) > self.limits.body:
            raise self._too_long(f"the body has {int(size[:20]):,} bytes")
        if _encoding(headers) not in PACKED:
            raise Refused(415, "encoding", f"Content-Encoding {_encoding(headers)!r:.40}", expected=", ".join(PACKED))

    def unpack(self, raw: bytes, encoding: str) -> bytes:
        """
        >>> Bodies(Limits(body=10)).unpack(zlib.compress(b"abc"), "deflate")
        b'abc'
        """
        if encoding == "identity":
            return raw
        most = self.limits.body
        out = _unpack_zstd(raw, most + 1) if encoding == "zstd" else _unpack_zlib(raw, most + 1, encoding)
        if len(out) > most:
            raise self._too_long("the body is too long once it is unpacked")
        return out

    def _too_long(self, what: str) -> Refused:
        return Refused(
            413,
            "body_too_large",
            what,
            expected=f"at most {self.limits.body:,} bytes, also once it is unpacked",
            hint="send it in parts, or start the server with a greater --max-body",
            headers={"connection": "close"},
        )

    async def _throw_away(self, receive: Receive) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(LINGER, self.limits.slow)):
                async for _ in parts(receive):
                    pass


async def parts(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


def _encoding(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"content-encoding", b"").decode("latin-1").strip().lower() or "identity"


def _unpack_zlib(raw: bytes, most: int, encoding: str) -> bytes:
    """At most `most` bytes. `deflate` is zlib's form by the standard; some clients send it bare."""
    wrapped = len(raw) > 1 and raw[0] & 15 == 8 and (raw[0] << 8 | raw[1]) % 31 == 0
    unpacking = zlib.decompressobj(wbits=31 if encoding == "gzip" else 15 if wrapped else -15)
    try:
        out = unpacking.decompress(raw, most)
    except zlib.error as error:
        raise Refused(400, "encoding", f"the body is not {encoding}: {error}") from None
    if len(out) < most and (not unpacking.eof or unpacking.unused_data):
        raise Refused(400, "encoding", f"the body ends too early, or too late, for {encoding}")
    return out


def _unpack_zstd(raw: bytes, most: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=WINDOW).stream_reader(raw) as stream:
            return stream.read(most)
    except zstandard.ZstdError as error:
        raise Refused(400, "encoding", f"the body is not zstd: {error}") from None
