"""run: the app on granian, in this process, until SIGTERM or Ctrl-C; then what is in flight is finished.

granian reads heads and cuts clients that are slow with them; uvicorn was measured to keep such sockets for more than 40 s, and to hang at
SIGTERM on a body that never ends.

Told to stop, the process ends within its grace period whatever its threads do. One that computes is left behind (`_leave`); one that
is inside a C call and does not let go of the interpreter, so that no Python runs at all, is what `killer.py` is for.
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
from unmask.server import killer
from unmask.server.app import make_app
from unmask.server.gate import Gate
from unmask.server.limits import DEFAULT, LOOPBACK, Limits

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

CONNECTIONS = 4096  # at a time, idle ones too
HEAD = 64 << 10  # bytes of a request's head
LATE = 3.0  # seconds beyond the grace period after which the process is killed


@dataclass(frozen=True)
class Access:
    """Where the server listens, and who may ask."""

    host: str = "127.0.0.1"
    port: int = 8000
    key: str | None = None
    cors: Sequence[str] = ()
    hosts: Sequence[str] | None = None  # further names it may be called by; on another than a local address, all


def run(
    models: Mapping[str, "Predictor"],
    access: Access,
    *,
    runs: Path | None = None,
    limits: Limits = DEFAULT,
    grace: float = 30.0,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serve until it is told to stop."""
    host, hosts = access.host, access.hosts
    port = free_port(host, access.port)
    known = (*LOOPBACK, host, *(hosts or ())) if is_local(host) or hosts else None
    gate = make_app(models, runs=runs, limits=limits, key=access.key, cors=access.cors, hosts=known)
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    killer.start(grace + LATE)
    asyncio.run(_serve(gate, host, port, limits, grace, ready))


async def _serve(
    gate: Gate, host: str, port: int, limits: Limits, grace: float, ready: Callable[[str], None] | None
) -> None:
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.server.embed import Server

    server = Server(
        gate,
        host,
        port,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backlog=1024,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=int(limits.slow * 1000), max_buffer_size=HEAD),
        log_enabled=False,
    )
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not loop.add_signal_handler, which would take the wakeup descriptor that the killer reads.
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(_told, stop))
    serving = asyncio.ensure_future(server.serve())
    telling = asyncio.ensure_future(_tell(host, port, ready))
    stopping = asyncio.ensure_future(_until(stop))
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    telling.cancel()
    gate.draining = True
    deadline = loop.time() + grace
    while gate.active and loop.time() < deadline:
        await asyncio.sleep(0.02)
    unanswered = gate.active
    gate.give_up()
    server.stop()
    try:
        await asyncio.wait_for(serving, 1.0)
    except TimeoutError:  # a socket that is neither read nor closed
        unanswered = unanswered or 1
    if stop.is_set() or unanswered:
        _leave(f"{unanswered} unanswered after {grace:g} seconds" if unanswered else "")


def _leave(said: str) -> None:
    """End the process without ending the interpreter: threads that still compute would delay it, and a thread of
    granian that calls into Python meanwhile aborts the process."""
    if said:
        Console().say(said)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


async def _until(stop: asyncio.Event) -> None:
    """Looks now and then: a signal that another thread received does not wake the loop."""
    while not stop.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)


def _told(stop: asyncio.Event) -> None:
    if stop.is_set():  # told twice: at once
        os._exit(1)
    stop.set()


async def _tell(host: str, port: int, ready: Callable[[str], None] | None) -> None:
    near = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    while True:
        try:
            _, writer = await asyncio.open_connection(near, port)
            break
        except OSError:
            await asyncio.sleep(0.05)
    writer.close()
    if ready:
        ready(f"http://{f'[{near}]' if ':' in near else near}:{port}")


def is_local(host: str) -> bool:
    return host in LOOPBACK or host.startswith("127.")


def free_port(host: str, port: int) -> int:
    """The port, or a free one for 0; an error where another program listens."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except (OSError, OverflowError) as error:
        raise UserError(
            f"cannot listen on {host} port {port}: {getattr(error, 'strerror', None) or error}",
            hint="--port 0 takes a free one",
        ) from None
