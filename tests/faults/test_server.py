"""Robustness of the server: bodies that are not JSON, too large or decompression bombs; slow or unauthorized clients; shutdown during
requests. Most tests run the real command in a subprocess."""

import asyncio
import gzip
import json
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
import zstandard
from server.serving import FACTS, Server, base_model, server
from typer.testing import CliRunner

import unmask
from unmask.cli import app
from unmask.server.app import make_app

MB = 1 << 20
GOOD = json.dumps({"inputs": "Ann [MASK] ."}).encode()
BAD = {
    "nan": b'{"inputs": NaN}',
    "infinity": b'{"inputs": "a", "normalize": -Infinity}',
    "infinite": b'{"inputs": "Ann [MASK]", "parameters": {"temperature": 1e999}}',
    "long-number": b'{"inputs": "a", "dimensions": ' + b"9" * 5000 + b"}",
    "lone-surrogate": b'{"inputs": "\\ud800 [MASK]"}',
    "raw-surrogate": b'{"inputs": "\xed\xa0\x80 [MASK]"}',
    "nul": b'{"inputs": "\\u0000 [MASK]"}',
    "nul-key": b'{"inputs": "[MASK]", "\\u0000": 1}',
    "raw-nul": b'{"inputs": "\x00"}',
    "depth": b'{"inputs": ' + b"[" * 1000 + b"]" * 1000 + b"}",
    "not-utf8": b'{"inputs": "\xff\xfe"}',
    "cut": b'{"inputs": "a',
    "empty": b"",
    "list": b"[]",
    "text": b'"a"',
    "null": b"null",
    "number": b'{"inputs": 5}',
    "mixed": b'{"inputs": ["a", 5]}',
    "nested": b'{"inputs": [["a"], {"b": 1}]}',
    "object": b'{"inputs": {"question": 1}}',
    "no-inputs": b"{}",
    "none": b'{"inputs": []}',
    "odd-key": '{"inputs": "a", "☃ \\u0019 \\u2028": 5}'.encode(),
    "unknown": b'{"inputs": "a", "topk": 5}',
    "settings": b'{"inputs": "a", "parameters": {"top_k": "5", "max_new_tokens": -1, "dimensions": 0}}',
}
PATHS = (
    "/models/mlm",
    "/models/mlm/pipeline/fill-mask",
    "/models/mlm/pipeline/feature-extraction",
    "/models/gpt/pipeline/text-generation",
    "/v1/embeddings",
    "/embed",
    "/rerank",
    "/predict",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    base_model(root / "mlm")
    base_model(root / "gpt", "gpt2-mini", ("lm",))
    return root


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Server]:
    with server(str(folder / "mlm"), str(folder / "gpt"), "--read-timeout", "3") as running:
        httpx.post(f"{running.url}/models/mlm", content=GOOD)
        yield running
        assert not running.complained, running.complained


def error_of(answer: httpx.Response) -> dict[str, Any]:
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "expected", "hint"} and error["message"], error
    assert answer.headers["x-error-message"]
    return error


# ------------------------------------------------------------------------------------------------------------ bodies


@pytest.mark.parametrize("kind", BAD)
def test_invalid_body_returns_a_client_error(kind: str, running: Server) -> None:
    for path in PATHS:
        answer = httpx.post(running.url + path, content=BAD[kind])
        assert answer.status_code in (400, 422), (path, answer.status_code, answer.text)
        error_of(answer)


def test_compressed_bodies_are_decoded(running: Server) -> None:
    raw_deflate = zlib.compressobj(wbits=-15)
    bodies = {
        "gzip": gzip.compress(GOOD),
        "deflate": zlib.compress(GOOD),
        "zstd": zstandard.compress(GOOD),
        "identity": GOOD,
        "DEFLATE": raw_deflate.compress(GOOD) + raw_deflate.flush(),
    }
    for encoding, body in bodies.items():
        answer = httpx.post(f"{running.url}/models/mlm", content=body, headers={"content-encoding": encoding})
        assert answer.status_code == 200, (encoding, answer.text)


@pytest.mark.parametrize(
    ("encoding", "body", "status"),
    [
        ("gzip", GOOD, 400),
        ("gzip", gzip.compress(GOOD)[:-12], 400),
        ("gzip", gzip.compress(GOOD) + b"more", 400),
        ("zstd", GOOD, 400),
        ("br", GOOD, 415),
        ("gzip, gzip", gzip.compress(gzip.compress(GOOD)), 415),
    ],
    ids=["not-gzip", "cut", "more", "not-zstd", "unknown", "twice"],
)
def test_invalid_content_encoding_is_rejected(encoding: str, body: bytes, status: int, running: Server) -> None:
    answer = httpx.post(f"{running.url}/models/mlm", content=body, headers={"content-encoding": encoding})
    assert answer.status_code == status and error_of(answer)["code"] == "encoding"


class PeakMemory:
    """Peak memory of a process during a block, above its memory at the start."""

    def __init__(self, process: int):
        self.target, self.peak, self.stopped = psutil.Process(process), 0, threading.Event()

    def __enter__(self) -> "PeakMemory":
        self.before = self.target.memory_info().rss
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def _watch(self) -> None:
        while not self.stopped.wait(0.005):
            self.peak = max(self.peak, self.target.memory_info().rss - self.before)

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self.thread.join()


def chunks(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield b"a" * MB


@pytest.mark.parametrize("kind", ["length", "chunks", "gzip", "zstd"])
def test_body_of_200_mb_is_rejected_without_buffering_it(kind: str, running: Server) -> None:
    headers = {
        "length": {"content-length": str(200 * MB)},
        "gzip": {"content-encoding": "gzip"},
        "zstd": {"content-encoding": "zstd"},
    }.get(kind, {})
    compressor = zlib.compressobj(9, wbits=31)
    body: Any = {
        "gzip": lambda: b"".join([*(compressor.compress(chunk) for chunk in chunks(200)), compressor.flush()]),
        "zstd": lambda: zstandard.compress(b"a" * (200 * MB)),
    }.get(kind, lambda: chunks(200))()
    if isinstance(body, bytes):
        assert len(body) < MB
    with PeakMemory(running.process.pid) as memory:
        answer = httpx.post(f"{running.url}/models/mlm", content=body, headers=headers, timeout=60)
    assert answer.status_code == 413 and error_of(answer)["code"] == "body_too_large"
    assert memory.peak < 20 * MB, f"{memory.peak / MB:.1f} MB"


def test_too_many_inputs_or_tokens_are_rejected(running: Server) -> None:
    many = httpx.post(f"{running.url}/embed", json={"inputs": ["a"] * 1025})
    assert many.status_code == 413 and error_of(many)["expected"] == "at most 1,024 in a request"
    long = {"inputs": "a", "parameters": {"max_new_tokens": 100_000, "num_beams": 64}}
    answer = httpx.post(f"{running.url}/models/gpt", json=long)
    assert answer.status_code == 413 and error_of(answer)["code"] == "too_many_tokens"


def test_request_headers_are_limited(running: Server) -> None:
    answer = httpx.get(f"{running.url}/health", headers={"x": "a" * 200_000})
    assert answer.status_code in (400, 431)


# ------------------------------------------------------------------------------------------------------ slow clients


def connect(running: Server, data: bytes) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", running.port), timeout=30)
    client.sendall(data)
    return client


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-", b""),
        (b"", b""),
        (b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{", b"HTTP/1.1 408"),
        (b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4611686018427387904\r\n\r\n{", b"HTTP/1.1 413"),
        (b"POST /embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", b"HTTP/1.1 408"),
    ],
    ids=["head", "nothing", "body", "promise", "chunks"],
)
def test_slow_client_is_disconnected(data: bytes, answer: bytes, running: Server) -> None:
    with connect(running, data) as client:
        started, received = time.monotonic(), b""
        while part := client.recv(4096):
            received += part
        assert (
            received.startswith(answer) and time.monotonic() - started < 12
        )  # the limit is 3 s; the machine may be busy


@pytest.mark.slow  # measures latency, which a busy machine distorts
def test_200_slow_clients_do_not_delay_others(running: Server) -> None:
    slow = [
        connect(running, b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n\r\n{")
        for _ in range(100)
    ]
    slow += [connect(running, b"GET /health HTTP/1.1\r\nHost: loc") for _ in range(100)]
    seconds = []
    with httpx.Client(base_url=running.url) as client:
        for n in range(200):
            for one in slow[n % 20 :: 20]:
                with suppress(OSError):  # a disconnected client cannot send any more
                    one.sendall(b"a")
            started = time.perf_counter()
            assert client.get("/health").status_code == 200
            seconds.append(time.perf_counter() - started)
    for one in slow:
        one.close()
    assert np.quantile(seconds, 0.99) < 0.1, f"p99 {np.quantile(seconds, 0.99) * 1000:.0f} ms"


def test_requests_of_disconnected_clients_are_cancelled(running: Server) -> None:
    """Its request leaves the queue, so the next client does not wait for it."""
    heavy = json.dumps({"inputs": ["Ann"] * 1000, "parameters": {"max_new_tokens": 50}}).encode()
    head = f"POST /models/gpt HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(heavy)}\r\n\r\n".encode()
    for _ in range(20):
        connect(running, head + heavy).close()
    deadline = time.monotonic() + 30
    while "unmask_queue_tokens 0.0" not in (text := httpx.get(f"{running.url}/metrics").text):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    answered = sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith('unmask_batch_size_sum{method="generate"')
    )
    assert answered < 10_000


# ------------------------------------------------------------------------------------------------------------ shutdown


def test_shutdown_completes_requests_in_flight(folder: Path) -> None:
    many = {"inputs": FACTS * 80, "model": "mlm"}
    with server(str(folder / "mlm"), "--shutdown-timeout", "60") as running, ThreadPoolExecutor(12) as pool:
        httpx.post(f"{running.url}/embed", json=many | {"inputs": "Ann"})
        requests = [pool.submit(httpx.post, f"{running.url}/embed", json=many, timeout=90) for _ in range(8)]
        deadline = time.monotonic() + 30
        while (
            "unmask_active_requests 9.0" not in httpx.get(f"{running.url}/metrics").text and time.monotonic() < deadline
        ):
            if any(one.done() for one in requests):
                break
        assert running.stop(60) == 0
        codes = []
        for one in requests:
            try:
                codes.append(one.result().status_code)
            except httpx.ConnectError:  # not yet connected when the server stopped listening
                codes.append(0)
        assert 200 in codes and set(codes) <= {0, 200, 503}, codes
        assert all(len(one.result().json()) == len(FACTS) * 80 for one, code in zip(requests, codes) if code == 200)
        assert not running.complained and "sesame" not in "".join(running.said)


def test_shutdown_cancels_requests_after_the_timeout(folder: Path) -> None:
    heavy = {"inputs": ["Ann"] * 1000, "parameters": {"max_new_tokens": 60, "num_beams": 4}}
    with server(str(folder / "gpt"), "--shutdown-timeout", "1") as running, ThreadPoolExecutor(1) as pool:
        request = pool.submit(httpx.post, f"{running.url}/models/gpt", json=heavy, timeout=60)
        while "unmask_active_requests 2.0" not in httpx.get(f"{running.url}/metrics").text:
            assert not request.done()
        started = time.monotonic()
        assert running.stop(30) == 0 and time.monotonic() - started < 10  # the limit is 1 s; the machine may be busy
        assert request.result().status_code == 503 and error_of(request.result())["code"] == "draining"
        assert "1 request cancelled" in "".join(running.complained)


# ------------------------------------------------------------------------------------------------------ access control


@pytest.fixture(scope="module")
def guarded(folder: Path) -> "InProcessClient":
    return InProcessClient(
        make_app({"mlm": unmask.load(folder / "mlm")}, api_key="sesame", cors_origins=["https://example.org"])
    )


class InProcessClient:
    """Calls an ASGI app in this process, for tests that do not need sockets."""

    def __init__(self, app: Any):
        self.app = app

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def main() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as client:
                return await client.request(method, path, **options)

        return asyncio.run(main())


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Basic !!!"}, 401),
        ({"authorization": "Digest sesame"}, 401),
        ({"authorization": "Bearer sesamesesame"}, 401),
        ({"authorization": "Bearer sesame"}, 200),
        ({"authorization": "Basic YW55b25lOnNlc2FtZQ=="}, 200),
    ],
    ids=["none", "wrong", "empty", "not-base64", "digest", "longer", "bearer", "basic"],
)
def test_api_key_is_required(headers: dict[str, str], status: int, guarded: InProcessClient) -> None:
    for path in ("/models", "/metrics", "/docs", "/openapi.json", "/v1/models"):
        answer = guarded.request("GET", path, headers=headers)
        assert answer.status_code == status, path
        assert ("www-authenticate" in answer.headers) == (status == 401)
    health = guarded.request("GET", "/health", headers=headers)
    assert health.status_code == 200
    assert health.json() == {"status": "ok"} | ({"models": ["mlm"]} if status == 200 else {})


def test_api_key_is_read_from_environment_or_file_and_hidden_from_the_process_list(
    folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "key"
    file.write_text("sesame\n")
    key = {"authorization": "Bearer sesame"}
    with server(str(folder / "mlm"), "--api-key-file", str(file), UNMASK_API_KEY="other") as running:
        assert "sesame" not in " ".join(psutil.Process(running.process.pid).cmdline())
        assert httpx.get(f"{running.url}/models", headers=key).status_code == 200
        assert httpx.get(f"{running.url}/models", headers={"authorization": "Bearer other"}).status_code == 401
        assert not running.complained
    with server(str(folder / "mlm"), UNMASK_API_KEY="sesame") as running:
        assert httpx.get(f"{running.url}/models", headers=key).status_code == 200
        assert httpx.get(f"{running.url}/models").status_code == 401 and not running.complained
    with server(str(folder / "mlm"), "--api-key", "sesame") as running:
        assert httpx.get(f"{running.url}/models", headers=key).status_code == 200
        assert "process list" in running.complained[0] and "--api-key-file" in running.complained[1]


def test_cross_origin_requests_are_rejected(guarded: InProcessClient, running: Server) -> None:
    own = {"origin": running.url}
    assert httpx.post(f"{running.url}/models/mlm", content=GOOD, headers=own).status_code == 200
    for origin in ("https://example.org", "null", "http://127.0.0.1:1"):
        answer = httpx.post(f"{running.url}/models/mlm", content=GOOD, headers={"origin": origin})
        assert answer.status_code == 403 and error_of(answer)["code"] == "origin"
    key = {"authorization": "Bearer sesame"}
    allowed = guarded.request("POST", "/models/mlm", content=GOOD, headers=key | {"origin": "https://example.org"})
    assert allowed.status_code == 200 and allowed.headers["access-control-allow-origin"] == "https://example.org"
    preflight = {"origin": "https://example.org", "access-control-request-method": "POST"}
    reply = guarded.request("OPTIONS", "/models/mlm", headers=preflight)
    assert reply.status_code == 204 and "authorization" in reply.headers["access-control-allow-headers"]
    assert guarded.request("OPTIONS", "/models/mlm", headers={"origin": "https://other.org"}).status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.nip.io", ""]
)
def test_unknown_host_header_is_rejected(host: str, running: Server) -> None:
    answer = httpx.get(f"{running.url}/models", headers={"host": host})
    assert answer.status_code == 421 and error_of(answer)["code"] == "host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80"])
def test_local_host_headers_are_accepted(host: str, running: Server) -> None:
    assert httpx.get(f"{running.url}/models", headers={"host": host}).status_code == 200


# -------------------------------------------------------------------------------------------------------- the command


def test_invalid_arguments_raise_before_serving(folder: Path, running: Server) -> None:
    mlm, taken = str(folder / "mlm"), ["--port", str(running.port)]
    for arguments, message in (
        ([mlm, *taken], "--port 0"),
        ([mlm, "--host", "0.0.0.0", *taken], "--api-key-file FILE"),  # after a warning
        ([mlm, mlm], "two models are called mlm"),
        ([f"a/b={mlm}"], "no model name"),
        ([str(folder / "none")], "none"),
        ([mlm, "--backend", "paper"], "torch"),
        ([mlm, "--max-body", "0"], "max_body_bytes is 0"),
        ([mlm, "--api-key", ""], "an empty API key"),
        ([mlm, "--api-key", "a b"], "an API key with spaces"),
        ([mlm, "--api-key-file", str(folder / "none")], "cannot read the API key"),
        ([mlm, "--api-key-file", str(folder)], "cannot read the API key"),
        ([mlm, "--api-key-file", str(folder / "mlm" / "model.safetensors")], "more than 4,096 bytes"),
        ([mlm, "--api-key", "a", "--api-key-file", str(folder)], "both --api-key and --api-key-file"),
    ):
        result = CliRunner().invoke(app, ["serve", *arguments])
        assert result.exit_code == 2 and message in result.output, (arguments, result.output)


def test_host_check_can_be_disabled(folder: Path) -> None:
    public = InProcessClient(make_app({}, allowed_hosts=None))
    assert public.request("GET", "/models", headers={"host": "any.name"}).json() == {}


def test_missing_extras_raise_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    from unmask.cli.serving import require_server_extras
    from unmask.errors import UserError

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "granian" else real(name))
    with pytest.raises(UserError, match="granian") as caught:
        require_server_extras()
    assert caught.value.hint == "pip install 'unmask[serve]'"


def test_total_size_of_buffered_bodies_is_limited() -> None:
    from unmask.server.body import BodyReader
    from unmask.server.errors import RequestError
    from unmask.server.limits import Limits

    bodies = BodyReader(Limits(max_body_bytes=100, max_buffered_bytes=150))

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"a" * 100}

    async def main() -> None:
        async with bodies.read({}, receive) as first:
            assert len(first) == bodies.buffered == 100
            with pytest.raises(RequestError) as caught:
                async with bodies.read({}, receive):
                    pass
            assert caught.value.status == 503 and bodies.buffered == 100
        assert bodies.buffered == 0

    asyncio.run(main())
