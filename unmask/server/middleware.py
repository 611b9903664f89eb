"""ASGI middleware around the app: host, origin and API-key checks, body limits, timeouts, security headers, metrics.

It wraps FastAPI instead of running inside it, because rejected requests must not reach FastAPI. Checks run in this order:
draining → host → origin → API key → body. If the client disconnects, the app's task is cancelled, which also removes its
items from the batcher's queue.
"""

import asyncio
import base64
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any

from starlette.requests import ClientDisconnect

from unmask.server.body import BodyReader, Receive
from unmask.server.errors import RequestError, internal_error, sanitize_header
from unmask.server.limits import Limits
from unmask.server.metrics import Metrics
from unmask.server.request_usage import RequestUsage, ResponseBudget, track_request

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]
log = logging.getLogger("unmask.serve")

PUBLIC_PATHS = ("/health",)  # need no API key; without one, /health does not list the models
DRAIN_PATHS = ("/health", "/metrics")  # work while the server shuts down
SEND_BYTES = 256 << 10  # of a response, per chunk
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
BODY_HEADERS = (b"content-encoding", b"content-length", b"content-type")
SECURITY_HEADERS = {
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


class RequestMiddleware:
    def __init__(
        self,
        app: App,
        limits: Limits,
        metrics: Metrics,
        *,
        allowed_hosts: Sequence[str] | None,
        api_key: str | None,
        cors_origins: Sequence[str],
    ):
        self.app, self.limits, self.metrics = app, limits, metrics
        self.allowed_hosts, self.api_key, self.cors_origins = allowed_hosts, api_key, cors_origins
        self.bodies, self.responses = BodyReader(limits), ResponseBudget(limits.max_total_response_bytes)
        self.draining = False
        self.num_active = 0  # requests in progress
        self.tasks: set[asyncio.Future] = set()  # that compute a response

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # no websockets, and no lifespan events
            return
        context = RequestContext(self, scope, send)
        self.num_active += 1
        self.metrics.active.set(self.num_active)
        try:
            await self._handle(context, receive)
        except RequestError as error:
            await context.send_error(error)
        except ClientDisconnect:
            context.status = context.status or 499
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            await context.send_error(internal_error())
        finally:
            self.num_active -= 1
            self.metrics.active.set(self.num_active)
            context.record_metrics()

    async def _handle(self, context: "RequestContext", receive: Receive) -> None:
        headers, scope = context.headers, context.scope
        if self.draining and scope["path"] not in DRAIN_PATHS:
            retry = {"retry-after": "5", "connection": "close"}
            raise RequestError(503, "draining", "the server is shutting down", headers=retry)
        self._check_host(headers)
        self._check_origin(context)
        if scope["method"] == "OPTIONS" and context.origin:
            return await context.send_preflight()
        if scope["path"] not in PUBLIC_PATHS and not self.is_authorized(headers):
            raise RequestError(
                401,
                "key",
                "the API key is missing or wrong",
                hint="send the header Authorization: Bearer KEY",
                headers={"www-authenticate": 'Bearer, Basic realm="unmask", charset="UTF-8"'},
            )
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            if scope["method"] == "HEAD":  # handled as GET; granian omits the body
                scope["method"] = "GET"
            return await self.app(scope, receive, context.send)
        async with self.bodies.read(headers, receive) as body:
            # Every body is JSON here, even if its Content-Type is the default of curl -d.
            kept = [(name, value) for name, value in scope["headers"] if name not in BODY_HEADERS]
            scope["headers"] = [*kept, (b"content-type", b"application/json")]
            with track_request(self.responses) as context.usage:
                await self._run_app(context, body, receive)

    async def _run_app(self, context: "RequestContext", body: bytes, receive: Receive) -> None:
        """Run the app until it has responded, the request times out, or the client disconnects."""
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        disconnect = asyncio.ensure_future(_wait_for_disconnect(receive))

        async def replay() -> Message:
            if messages:
                return messages.pop()
            await asyncio.shield(disconnect)
            return {"type": "http.disconnect"}

        task = asyncio.ensure_future(self.app(context.scope, replay, context.send))
        self.tasks.add(task)
        timeout = self.limits.request_timeout
        try:
            await asyncio.wait((task, disconnect), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if context.status:  # the response has started: each chunk has its own timeout
                await asyncio.wait((task, disconnect), return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and disconnect.done():
                raise ClientDisconnect
            if not task.done():
                hint = "send a smaller request or retry later"
                raise RequestError(503, "timeout", f"no response within {timeout:g} seconds", hint=hint)
            if task.cancelled():
                raise RequestError(503, "draining", "the server shut down before the request finished")
            await task
        finally:
            self.tasks.discard(task)
            for pending in (task, disconnect):
                pending.cancel()
            await asyncio.gather(task, disconnect, return_exceptions=True)

    def cancel_all(self) -> None:
        """Cancel all requests in progress; their clients get a 503."""
        for task in self.tasks:
            task.cancel()

    # ------------------------------------------------------------------------------------------------ checks

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """Check the Host header, against DNS rebinding (a page of another site whose domain resolves to this machine)."""
        if self.allowed_hosts is None:
            return
        name = host_name(headers.get(b"host", b"").decode("latin-1"))
        if name not in self.allowed_hosts:
            expected = ", ".join(dict.fromkeys(self.allowed_hosts))
            hint = "start the server with --allowed-host NAME"
            raise RequestError(421, "host", f"Host {name!r:.80} is not allowed", expected=expected, hint=hint)

    def _check_origin(self, context: "RequestContext") -> None:
        origin = context.headers.get(b"origin", b"").decode("latin-1")
        host = context.headers.get(b"host", b"").decode("latin-1")
        if not origin or origin.partition("://")[2].lower() == host.lower():
            return
        if origin not in self.cors_origins and "*" not in self.cors_origins:
            hint = "start the server with --cors-origin ORIGIN"
            raise RequestError(403, "origin", f"origin {origin!r:.80} is not allowed", hint=hint)
        context.origin = origin

    def is_authorized(self, headers: Mapping[bytes, bytes]) -> bool:
        """Check the API key: `Bearer KEY`, or `Basic` (as browsers send it) with any name and the key as password."""
        scheme, _, value = headers.get(b"authorization", b"").partition(b" ")
        sent = value.strip()
        if scheme.lower() == b"basic":
            try:
                sent = base64.b64decode(sent, validate=True).partition(b":")[2]
            except ValueError:
                sent = b""
        elif scheme.lower() != b"bearer":
            sent = b""
        return self.api_key is None or hmac.compare_digest(sent, self.api_key.encode())


class RequestContext:
    """One request: sends its response and records its metrics."""

    def __init__(self, middleware: RequestMiddleware, scope: MutableMapping[str, Any], send: Send):
        self.middleware, self.scope, self._send = middleware, scope, send
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.status, self.error_code, self.origin = 0, "", ""
        self.usage: RequestUsage | None = None
        self.method = scope["method"] if scope["method"] in METHODS else "other"
        self.start_time = time.perf_counter()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = self._add_headers(message.get("headers", ()))
        if len(message.get("body", b"")) <= SEND_BYTES:
            await self._send(message)
        else:
            await self._send_in_chunks(message)

    async def _send_in_chunks(self, message: Message) -> None:
        """Send a large body in chunks, so that unread bytes stay here, where they are counted, and not in socket buffers."""
        body, more = message["body"], message.get("more_body", False)
        for start in range(0, len(body), SEND_BYTES):
            end = start + SEND_BYTES
            chunk = {
                "type": "http.response.body",
                "body": bytes(body[start:end]),
                "more_body": more or end < len(body),
            }
            try:
                await asyncio.wait_for(self._send(chunk), self.middleware.limits.read_timeout)
            except TimeoutError:
                raise ClientDisconnect from None

    def _add_headers(self, headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        present = {name.lower() for name, _ in headers}
        added = dict(SECURITY_HEADERS)
        if self.origin:
            added |= {"access-control-allow-origin": self.origin, "vary": "origin"}
            added["cross-origin-resource-policy"] = "cross-origin"
            added["access-control-expose-headers"] = "x-error-message, x-unmask-warning"
        if self.usage and self.usage.warnings:
            added["x-unmask-warning"] = sanitize_header("; ".join(self.usage.warnings))
        return [*headers, *((k.encode(), v.encode()) for k, v in added.items() if k.encode() not in present)]

    async def send_preflight(self) -> None:
        """Answer a CORS preflight request."""
        allowed = {
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": "authorization, content-type",
            "access-control-max-age": "600",
        }
        await self._send_response(204, allowed, b"")

    async def send_error(self, error: RequestError) -> None:
        self.error_code = error.code
        if not self.status:
            await self._send_response(error.status, error.response_headers(), error.body())

    async def _send_response(self, status: int, headers: dict[str, str], body: bytes) -> None:
        encoded = [(k.encode(), v.encode("latin-1")) for k, v in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})
        await self.send({"type": "http.response.body", "body": body})

    def record_metrics(self) -> None:
        route = getattr(self.scope.get("route"), "path", "none")
        metrics = self.middleware.metrics
        metrics.requests.labels(route, self.method, str(self.status)).inc()
        metrics.request_seconds.labels(route).observe(time.perf_counter() - self.start_time)
        code = self.error_code or self.scope.get("unmask.error_code", "")
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


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
