"""Read request bodies: limit their size as sent and after decompression, and the time a client takes to send one.

A body over the limit is read to its end and discarded (for a few seconds): a client that is still sending would otherwise
see a broken connection instead of the error response.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from starlette.requests import ClientDisconnect

from unmask.server.errors import RequestError
from unmask.server.limits import Limits

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
DRAIN_SECONDS = 10.0  # for which the rest of a body over the limit is read and discarded
CONTENT_ENCODINGS = ("gzip", "deflate", "zstd", "identity")
ZSTD_WINDOW = 8 << 20  # bytes; RFC 8878 recommends that senders use no larger window


class BodyReader:
    """Reads request bodies and counts the bytes that are buffered for all requests together."""

    def __init__(self, limits: Limits):
        self.limits, self.buffered = limits, 0

    @asynccontextmanager
    async def read(self, headers: Mapping[bytes, bytes], receive: Receive) -> AsyncIterator[bytes]:
        """Yield the body. Its bytes count as buffered until the end of the block."""
        reserved = 0

        def reserve(count: int) -> None:
            nonlocal reserved
            if self.buffered + count > self.limits.max_buffered_bytes:
                raise RequestError(503, "busy", "too many concurrent requests", headers={"retry-after": "1"})
            reserved, self.buffered = reserved + count, self.buffered + count

        try:
            yield await self._read(headers, receive, reserve)
        finally:
            self.buffered -= reserved

    async def _read(self, headers: Mapping[bytes, bytes], receive: Receive, reserve: Callable[[int], None]) -> bytes:
        raw, complete = bytearray(), False
        try:
            self._check_headers(headers)
            async with asyncio.timeout(self.limits.read_timeout):
                async for chunk in body_chunks(receive):
                    if len(raw) + len(chunk) > self.limits.max_body_bytes:
                        raise self._too_large(f"the body has more than {self.limits.max_body_bytes:,} bytes")
                    reserve(len(chunk))
                    raw += chunk
            complete = True
            body = self.decompress(bytes(raw), _encoding(headers))
            reserve(max(0, len(body) - len(raw)))
            return body
        except TimeoutError:
            message = f"the body did not arrive within {self.limits.read_timeout:g} seconds"
            raise RequestError(408, "slow", message, headers={"connection": "close"}) from None
        except RequestError:
            raw.clear()
            if not complete:
                await self._drain(receive)
            raise

    def _check_headers(self, headers: Mapping[bytes, bytes]) -> None:
        size = headers.get(b"content-length", b"")
        if size.isdigit() and int(size[:20]) > self.limits.max_body_bytes:
            raise self._too_large(f"the body has {int(size[:20]):,} bytes")
        if (encoding := _encoding(headers)) not in CONTENT_ENCODINGS:
            message = f"unsupported Content-Encoding {encoding!r:.40}"
            raise RequestError(415, "encoding", message, expected=", ".join(CONTENT_ENCODINGS))

    def decompress(self, raw: bytes, encoding: str) -> bytes:
        """
        >>> BodyReader(Limits(max_body_bytes=10)).decompress(zlib.compress(b"abc"), "deflate")
        b'abc'
        """
        if encoding == "identity":
            return raw
        limit = self.limits.max_body_bytes
        out = _decompress_zstd(raw, limit + 1) if encoding == "zstd" else _decompress_zlib(raw, limit + 1, encoding)
        if len(out) > limit:
            raise self._too_large("the decompressed body is too large")
        return out

    def _too_large(self, message: str) -> RequestError:
        return RequestError(
            413,
            "body_too_large",
            message,
            expected=f"at most {self.limits.max_body_bytes:,} bytes, before and after decompression",
            hint="split the request, or start the server with a larger --max-body",
            headers={"connection": "close"},
        )

    async def _drain(self, receive: Receive) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(min(DRAIN_SECONDS, self.limits.read_timeout)):
                async for _ in body_chunks(receive):
                    pass


async def body_chunks(receive: Receive) -> AsyncIterator[bytes]:
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        yield message.get("body", b"")
        if not message.get("more_body"):
            return


def _encoding(headers: Mapping[bytes, bytes]) -> str:
    return headers.get(b"content-encoding", b"").decode("latin-1").strip().lower() or "identity"


def _decompress_zlib(raw: bytes, limit: int, encoding: str) -> bytes:
    """Return at most `limit` bytes. HTTP defines `deflate` as the zlib format; some clients send raw deflate."""
    has_zlib_header = len(raw) > 1 and raw[0] & 15 == 8 and (raw[0] << 8 | raw[1]) % 31 == 0
    decompressor = zlib.decompressobj(wbits=31 if encoding == "gzip" else 15 if has_zlib_header else -15)
    try:
        out = decompressor.decompress(raw, limit)
    except zlib.error as error:
        raise RequestError(400, "encoding", f"the body is not valid {encoding}: {error}") from None
    if len(out) < limit and (not decompressor.eof or decompressor.unused_data):
        raise RequestError(400, "encoding", f"the {encoding} body is truncated or has trailing data")
    return out


def _decompress_zstd(raw: bytes, limit: int) -> bytes:
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW).stream_reader(raw) as stream:
            return stream.read(limit)
    except zstandard.ZstdError as error:
        raise RequestError(400, "encoding", f"the body is not valid zstd: {error}") from None
