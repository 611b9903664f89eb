"""Run the app on granian in this process until SIGTERM or Ctrl-C, then finish the requests in progress (graceful shutdown).

granian reads the headers and disconnects clients that send them slowly. uvicorn kept such sockets open for more than 40 s, and
hung at SIGTERM on a body that never ended.

The process exits within its shutdown timeout, even if threads are still computing: `_exit` does not wait for them. A thread in
a C call that holds the GIL, so that no Python code runs at all, is handled by `watchdog.py`.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unmask.console import Console
from unmask.errors import UserError
from unmask.server import watchdog
from unmask.server.limits import DEFAULT, LOOPBACK, Limits
from unmask.server.middleware import RequestMiddleware

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

MAX_CONNECTIONS = 4096  # maximum number of open connections, including idle ones
MAX_HEADER_BYTES = 64 << 10
KILL_DELAY = 3.0  # seconds after the shutdown timeout until the process is killed


@dataclass(frozen=True)
class Access:
    """Where the server listens, and who may use it."""

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = None
    cors_origins: Sequence[str] = ()
    allowed_hosts: Sequence[str] | None = None  # additional Host headers; None: any, if `host` is not a local address

    def host_headers(self) -> Sequence[str] | None:
        """Return the Host headers that are accepted; None: any."""
        restricted = is_local(self.host) or self.allowed_hosts
        return (*LOOPBACK, self.host, *(self.allowed_hosts or ())) if restricted else None


def run(
    models: Mapping[str, "Predictor"],
    access: Access,
    *,
    runs: Path | None = None,
    limits: Limits = DEFAULT,
    shutdown_timeout: float = 30.0,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until a signal arrives. `on_ready` is called with the URL when the server accepts connections."""
    from unmask.server.app import make_app  # imports torch

    app = make_app(
        models,
        runs=runs,
        limits=limits,
        api_key=access.api_key,
        cors_origins=access.cors_origins,
        allowed_hosts=access.host_headers(),
    )
    run_app(app, access, shutdown_timeout, on_ready)


def run_app(
    app: RequestMiddleware,
    access: Access,
    shutdown_timeout: float,
    on_ready: Callable[[str], None] | None = None,
    on_stop: Callable[[], None] | None = None,
) -> None:
    """Serve an app until a signal arrives. `on_stop` is called when all requests are finished, before the process exits."""
    host, port = access.host, pick_free_port(access.host, access.port)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    watchdog.start(shutdown_timeout + KILL_DELAY)
    asyncio.run(_serve(app, host, port, shutdown_timeout, on_ready, on_stop))


async def _serve(
    app: RequestMiddleware,
    host: str,
    port: int,
    shutdown_timeout: float,
    on_ready: Callable[[str], None] | None,
    on_stop: Callable[[], None] | None,
) -> None:
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    header_timeout = int(app.limits.read_timeout * 1000)  # ms
    server = Server(
        app,
        host,
        port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=1024,
        backpressure=MAX_CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=header_timeout, max_buffer_size=MAX_HEADER_BYTES),
        log_enabled=False,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not loop.add_signal_handler: it would replace the wakeup file descriptor that the watchdog reads.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(_request_stop, stop))
    serving = asyncio.ensure_future(server.serve())
    announcing = asyncio.ensure_future(_announce_ready(host, port, on_ready))
    stopping = asyncio.ensure_future(_wait_for_stop(stop))
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    announcing.cancel()
    app.draining = True
    deadline = loop.time() + shutdown_timeout
    while app.num_active and loop.time() < deadline:
        await asyncio.sleep(0.02)
    cancelled = app.num_active
    app.cancel_all()
    server.stop()
    try:
        await asyncio.wait_for(serving, 1.0)
    except TimeoutError:  # a socket that is neither read nor closed
        cancelled = cancelled or 1
    if cancelled:
        plural = "" if cancelled == 1 else "s"
        Console().say(f"{cancelled} request{plural} cancelled after {shutdown_timeout:g} seconds")
    if on_stop:
        on_stop()
    if stop.is_set() or cancelled:
        _exit()


def _exit() -> None:
    """End the process without finalizing the interpreter: threads that still compute would delay it, and a granian thread that
    calls into Python during finalization aborts the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _wait_for_stop(stop: asyncio.Event) -> None:
    """Poll: a signal that another thread received does not wake the loop."""
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)


def _request_stop(stop: asyncio.Event) -> None:
    if stop.is_set():  # the second signal: exit immediately
        os._exit(1)
    stop.set()


async def _announce_ready(host: str, port: int, on_ready: Callable[[str], None] | None) -> None:
    local = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while True:
        try:
            _, writer = await asyncio.open_connection(local, port)
            break
        except OSError:
            await asyncio.sleep(0.05)
    writer.close()
    if on_ready:
        on_ready(f"http://{f'[{local}]' if ':' in local else local}:{port}")


def is_local(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def pick_free_port(host: str, port: int) -> int:
    """Return `port`, or a free port for 0; raise UserError if the port cannot be used."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        raise UserError(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}",
            hint="use --port 0 to choose a free port",
        ) from None
