"""SIGTERM stops a server within its shutdown timeout, whatever its threads are doing. Each test runs it in a subprocess."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest
from server.serving import base_model

SHUTDOWN_TIMEOUT = 1
SERVER = """
import re, sys
import unmask
from unmask.server.run import Access, run

model = unmask.load(sys.argv[1])
WORK = {
    "c-call": lambda: re.match(r"(a+)+$", "a" * 60 + "b"),  # runs for years without releasing the GIL
    "python": lambda: all(True for _ in iter(int, 1)),
}
def embed(texts, **settings):
    print("working", flush=True)
    WORK[sys.argv[2]]()
model.embed = embed
run({"mlm": model}, Access(port=0), shutdown_timeout=float(sys.argv[3]), on_ready=lambda url: print(url, flush=True))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base_model(tmp_path_factory.mktemp("stopped") / "mlm")


@contextmanager
def busy_server(folder: Path, work: str, stay: bool) -> Iterator[subprocess.Popen]:
    """Start a server with a busy thread, for a client that is waiting (`stay`) or has disconnected."""
    command = [sys.executable, "-c", SERVER, str(folder), work, str(SHUTDOWN_TIMEOUT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            url = process.stdout.readline().strip()

            def send_request() -> None:
                with suppress(httpx.HTTPError):
                    httpx.post(f"{url}/embed", json={"inputs": "Ann"}, timeout=300 if stay else 1)

            client = threading.Thread(target=send_request, daemon=True)
            client.start()
            assert process.stdout.readline().strip() == "working"
            if stay:
                time.sleep(0.3)
            else:
                client.join(60)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


@pytest.mark.parametrize(("work", "stay"), [("c-call", True), ("python", False)])
def test_sigterm_ends_a_server_with_a_busy_thread(work: str, stay: bool, folder: Path) -> None:
    with busy_server(folder, work, stay) as process:
        children = psutil.Process(process.pid).children(recursive=True)
        process.terminate()
        code = process.wait(30)  # the limit is 1 s, then 3 s until SIGKILL; the machine may be busy
        assert code == (-9 if work == "c-call" else 0)
        _, left = psutil.wait_procs(children, timeout=30)
        assert not left
