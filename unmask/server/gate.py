"""The outermost layer: who may come in, how much may be brought in, and what is on every answer.

An ASGI app around the app, since what it refuses must not reach FastAPI at all. In this order: draining → host → origin → key →
body. Then the app runs; when its client goes away it is cancelled, and what waits for a model is taken out of the line.
"""

import asyncio
import base64
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from unmask.server import current
from unmask.server.body import Bodies, ClientGone, Receive
from unmask.server.errors import Refused, in_a_header
from unmask.server.limits import Limits
from unmask.server.metrics import Metrics

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
log = logging.getLogger("unmask.serve")

OPEN = ("/health",)  # answers without a key, and then says no more than whether it does
ALWAYS = ("/health", "/metrics")  # answer while draining
PART = 256 << 10  # bytes of a response that are sent at a time
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "server": "unmask",
}


class Gate:
    def __init__(
        self,
        app: App,
        limits: Limits,
        metrics: Metrics,
        *,
        hosts: Sequence[str] | None,
        key: str | None,
        cors: Sequence[str],
    ):
        self.app, self.limits, self.metrics = app, limits, metrics
        self.hosts, self.key, self.cors = hosts, key, cors
        self.bodies, self.responses = Bodies(limits), current.Budget(limits.responses)
        self.draining = False
        self.active = 0  # requests that are being answered
        self.answering: set[asyncio.Future] = set()

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no websockets; nothing to do at start and end
            return
        visit = Visit(self, scope, send)
        self.active += 1
        self.metrics.active.set(self.active)
        try:
            await self._enter(visit, receive)
        except Refused as refused:
            await visit.refuse(refused)
        except ClientGone:
            visit.status = visit.status or 499
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await visit.refuse(Refused(500, "internal", "the server failed; its log says where"))
        finally:
            self.active -= 1
            self.metrics.active.set(self.active)
            visit.count()

    async def _enter(self, visit: "Visit", receive: Receive) -> None:
        headers, scope = visit.headers, visit.scope
        if self.draining and scope["path"] not in ALWAYS:
            raise Refused(
                503, "draining", "the server is stopping", headers={"retry-after": "5", "connection": "close"}
            )
        self._check_host(headers)
        self._check_origin(visit)
        if scope["method"] == "OPTIONS" and visit.origin:
            return await visit.preflight()
        if scope["path"] not in OPEN:
            self._check_key(headers)
        if scope["method"] in METHODS[:3]:
            if scope["method"] == "HEAD":  # as GET; granian leaves the body out
                scope["method"] = "GET"
            return await self.app(scope, receive, visit.send)
        async with self.bodies.reading(headers, receive) as body:
            kept = [
                (k, v)
                for k, v in scope["headers"]
                if k not in (b"content-encoding", b"content-length", b"content-type")
            ]
            # Bodies are JSON here, whatever curl -d calls them.
            scope["headers"] = [*kept, (b"content-type", b"application/json")]
            with current.open_request(self.responses) as visit.request:
                await self._answer(visit, body, receive)

    async def _answer(self, visit: "Visit", body: bytes, receive: Receive) -> None:
        """The app, until it has answered, its time is over, or its client is gone."""
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        gone = asyncio.ensure_future(_until_gone(receive))

        async def replay() -> Message:
            if first:
                return first.pop()
            await asyncio.shield(gone)
            return {"type": "http.disconnect"}

        answering = asyncio.ensure_future(self.app(visit.scope, replay, visit.send))
        self.answering.add(answering)
        try:
            await asyncio.wait((answering, gone), timeout=self.limits.wait, return_when=asyncio.FIRST_COMPLETED)
            if visit.status:  # being sent: every part has a time limit of its own
                await asyncio.wait((answering, gone), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and gone.done():
                raise ClientGone
            if not answering.done():
                said = f"no answer within {self.limits.wait:g} seconds"
                raise Refused(503, "timeout", said, hint="ask for less, or again later")
            if answering.cancelled():
                raise Refused(503, "draining", "the server stopped before this was done")
            await answering
        finally:
            self.answering.discard(answering)
            for task in (answering, gone):
                task.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)

    def give_up(self) -> None:
        """Tell everyone who still waits that there will be no answer."""
        for task in self.answering:
            task.cancel()

    # ------------------------------------------------------------------------------------------------ checks

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Against DNS rebinding: a page elsewhere whose name was made to point here."""
        if self.hosts is None:
            return
        name = host_name(headers.get(b"host", b"").decode("latin-1"))
        if name not in self.hosts:
            valid = ", ".join(dict.fromkeys(self.hosts))
            raise Refused(421, "host", f"Host {name!r:.80}", expected=valid, hint="--allow-host NAME")

    def _check_origin(self, visit: "Visit") -> None:
        origin = visit.headers.get(b"origin", b"").decode("latin-1")
        host = visit.headers.get(b"host", b"").decode("latin-1")
        if not origin or origin.partition("://")[2].lower() == host.lower():
            return
        if origin not in self.cors and "*" not in self.cors:
            raise Refused(403, "origin", f"a page of {origin!r:.80} may not ask", hint="start with --cors ORIGIN")
        visit.origin = origin

    def _check_key(self, headers: dict[bytes, bytes]) -> None:
        if not self.knows_key(headers):
            raise Refused(
                401,
                "key",
                "the API key is missing or wrong",
                hint="Authorization: Bearer KEY",
                headers={"www-authenticate": 'Bearer, Basic realm="unmask", charset="UTF-8"'},
            )

    def knows_key(self, headers: Mapping[bytes, bytes]) -> bool:
        """`Bearer KEY`, or in a browser any name with the key as password; anyone where there is no key."""
        kind, _, value = headers.get(b"authorization", b"").partition(b" ")
        given = value.strip()
        if kind.lower() == b"basic":
            try:
                given = base64.b64decode(given, validate=True).partition(b":")[2]
            except ValueError:
                given = b""
        elif kind.lower() != b"bearer":
            given = b""
        return self.key is None or hmac.compare_digest(given, self.key.encode())


class Visit:
    """One request: what was sent of its answer, and what is counted at its end."""

    def __init__(self, gate: Gate, scope: MutableMapping[str, Any], send: Send):
        self.gate, self.scope, self._send = gate, scope, send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.status, self.code, self.origin = 0, "", ""
        self.request: current.Current | None = None
        self.method = scope["method"] if scope["method"] in METHODS else "other"
        self.started = time.perf_counter()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._dress(message.get("headers", ()))
        if len(message.get("body", b"")) <= PART:
            await self._send(message)
        else:
            await self._send_in_parts(message)

    async def _send_in_parts(self, message: Message) -> None:
        """What a client does not read stays here, where it is counted, and not in the buffers of its connection."""
        body, more = message["body"], message.get("more_body", False)
        for start in range(0, len(body), PART):
            left = more or start + PART < len(body)
            part = {"type": "http.response.body", "body": bytes(body[start : start + PART]), "more_body": left}
            try:
                await asyncio.wait_for(self._send(part), self.gate.limits.slow)
            except TimeoutError:
                raise ClientGone from None

    def _dress(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        has = {name.lower() for name, _ in headers}
        added = dict(HEADERS)
        if self.origin:
            added |= {"access-control-allow-origin": self.origin, "vary": "origin"}
            added["cross-origin-resource-policy"] = "cross-origin"
            added["access-control-expose-headers"] = "x-error-message, x-unmask-warning"
        if self.request and self.request.warnings:
            added["x-unmask-warning"] = in_a_header("; ".join(self.request.warnings))
        return [*headers, *((k.encode(), v.encode()) for k, v in added.items() if k.encode() not in has)]

    async def preflight(self) -> None:
        allowed = {
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": "600",
        }
        await self._whole(204, allowed, b"")

    async def refuse(self, refused: Refused) -> None:
        self.code = refused.code
        if not self.status:
            await self._whole(refused.status, refused.all_headers(), refused.body())

    async def _whole(self, status: int, headers: dict[str, str], body: bytes) -> None:
        listed = [(k.encode(), v.encode("latin-1")) for k, v in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": listed})
        await self.send({"type": "http.response.body", "body": body})

    def count(self) -> None:
        route = getattr(self.scope.get("route"), "path", "none")
        metrics = self.gate.metrics
        metrics.requests.labels(route, self.method, str(self.status)).inc()
        metrics.seconds.labels(route).observe(time.perf_counter() - self.started)
        code = self.code or self.scope.get("unmask.refused", "")
        if code or self.status >= 400:
            metrics.errors.labels(code or str(self.status)).inc()


def host_name(host: str) -> str:
    """
    >>> host_name("LOCALHOST:8000"), host_name("[::1]:8000"), host_name("a.b")
    ('localhost', '::1', 'a.b')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
