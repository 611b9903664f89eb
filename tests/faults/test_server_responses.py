"""Small requests with large effects: an oversized response is rejected before it is computed, a large allowed one does not block other
clients, and long texts do not delay short ones. Most tests run the real command in a subprocess."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from server.serving import FACTS, Server, base_model, server, task_model

import unmask
from unmask.model import hf
from unmask.model.config import preset
from unmask.model.model import Model
from unmask.recipe import TokenizerRecipe
from unmask.server.app import make_app
from unmask.server.limits import Limits
from unmask.text.tokenizer import Tokenizer

MB = 1 << 20
WORDS = [f"w{n}x" for n in range(1200)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`wide` has more than 1,000 whole words, so that `top_k: 1000` returns 1,000 candidates."""
    root = tmp_path_factory.mktemp("served")
    tokenizer = Tokenizer.train([" ".join(WORDS)] * 3, TokenizerRecipe(type="wordpiece", vocab_size=0, min_frequency=1))
    shape = {"hidden": 16, "heads": 2, "layers": 1, "intermediate": 16, "max_positions": 512, "dropout": 0.0}
    config = preset("bert-tiny", **shape, vocab_size=tokenizer.size, pad_id=tokenizer.pad)
    hf.save(Model(config, ("mlm",)).init(0), root / "wide", tokenizer)
    task_model(root / "classify", base_model(root / "mlm"), "classify")
    return root


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Server]:
    with server(str(folder / "wide"), str(folder / "classify"), "--max-tokens", "2000000") as running:
        httpx.post(f"{running.url}/models/wide", json={"inputs": "w1x [MASK]"})
        yield running
        assert not running.complained, running.complained


class ServerMonitor:
    """Memory growth of a server and the latency of /health during a block."""

    def __init__(self, running: Server):
        self.url, self.process = running.url, psutil.Process(running.process.pid)
        self.stopped, self.memory, self.slowest = threading.Event(), 0, 0.0

    def __enter__(self) -> "ServerMonitor":
        self.before = self.process.memory_info().rss
        self.threads = [threading.Thread(target=call) for call in (self._poll_memory, self._poll_health)]
        for thread in self.threads:
            thread.start()
        return self

    def _poll_memory(self) -> None:
        while not self.stopped.wait(0.02):
            self.memory = max(self.memory, self.process.memory_info().rss - self.before)

    def _poll_health(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self.stopped.wait(0.05):
                started = time.monotonic()
                assert client.get(f"{self.url}/health").status_code == 200
                self.slowest = max(self.slowest, time.monotonic() - started)

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self.threads:
            thread.join()


WRONG = {  # bodies of 2 MB with a million values of the wrong type
    "inputs": ("/models/wide/pipeline/fill-mask", b'{"inputs": [' + b"1," * 900_000 + b"1]}"),
    "lists": ("/embed", b'{"inputs": [' + b"[]," * 600_000 + b"[]]}"),
    "keys": ("/embed", b'{"inputs": "a"' + b"".join(b',"%d":1' % n for n in range(150_000)) + b"}"),
    "fewer keys": ("/embed", b'{"inputs": "a"' + b"".join(b',"%d":1' % n for n in range(90_000)) + b"}"),
    "fewer inputs": ("/models/wide/pipeline/fill-mask", b'{"inputs": [' + b"1," * 90_000 + b"1]}"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_body_with_many_invalid_values_does_not_block_the_server(kind: str, running: Server) -> None:
    path, body = WRONG[kind]
    with ServerMonitor(running) as monitor:
        answer = httpx.post(f"{running.url}{path}", content=body, timeout=60)
    assert answer.status_code == (422 if "fewer" in kind else 413), answer.text[:300]
    assert monitor.slowest < 1, f"{monitor.slowest:.2f} s"
    assert monitor.memory < 100 * MB, f"{monitor.memory / MB:.0f} MB"


def test_commas_inside_texts_are_not_counted_as_values(running: Server) -> None:
    texts = ['a, "b" [c] {d} ' * 20] * 1000
    answer = httpx.post(f"{running.url}/embed", json={"model": "wide", "inputs": texts, "truncate": True}, timeout=60)
    assert answer.status_code == 200, answer.text[:300]


MANY = ["w1x " * 60 + "[MASK]"] * 500
LARGE = {
    "inputs": {"inputs": MANY, "parameters": {"top_k": 1000}},
    "masks": {"inputs": "[MASK] " * 300 + "w1x" * 6000, "parameters": {"top_k": 1000}},
    "blanks": {"inputs": ["[MASK] w1x" + " " * 30_000] * 4, "parameters": {"top_k": 1000}},
    "targets": {"inputs": ["[MASK] " + "é" * 20_000] * 4, "parameters": {"top_k": 1000, "targets": WORDS}},
}


@pytest.mark.parametrize("kind", LARGE)
def test_oversized_response_is_rejected_before_it_is_computed(kind: str, running: Server) -> None:
    with ServerMonitor(running) as monitor:
        answer = httpx.post(f"{running.url}/models/wide/pipeline/fill-mask", json=LARGE[kind], timeout=300)
    assert answer.status_code == 413, answer.text[:300]
    error = answer.json()["error"]
    assert error["code"] == "response_too_large" and error["expected"] == f"at most {32 * MB:,} bytes"
    size = int(error["message"].split("about ")[1].split()[0].replace(",", ""))
    assert size > 100 * MB / 2
    assert monitor.memory < 100 * MB, f"{monitor.memory / MB:.0f} MB"


def test_large_responses_do_not_delay_health_checks(running: Server) -> None:
    """Four concurrent responses of about 20 MB."""
    body = {"inputs": MANY[:40], "parameters": {"top_k": 1000}}
    with ServerMonitor(running) as monitor, ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: httpx.post(f"{running.url}/models/wide", json=body, timeout=300), range(4)))
    assert {a.status_code for a in answers} == {200}
    assert all(len(a.content) > 10 * MB for a in answers) and len(answers[0].json()[39]) == 1000
    assert monitor.memory < 800 * MB, f"{monitor.memory / MB:.0f} MB"
    assert monitor.slowest < 10, f"{monitor.slowest:.1f} s"


def test_reserved_response_size_is_an_upper_bound(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For every route that calls a model, the reserved size is at least the size sent, and less than 100 times as much."""
    app = make_app({name: unmask.load(folder / name) for name in ("wide", "classify", "mlm")}, allowed_hosts=None)
    reserved: list[int] = []
    real = type(app.responses).reserve

    def reserve(budget: Any, count: int) -> None:
        reserved.append(count)
        real(budget, count)

    monkeypatch.setattr(type(app.responses), "reserve", reserve)
    text = "w1x w2x w3x " * 20
    bodies = {
        "/models/wide": {"inputs": [text + "[MASK] \n\x01 é"] * 3, "parameters": {"top_k": 50}},
        "/models/wide/pipeline/feature-extraction": {"inputs": [text] * 9},
        "/models/classify": {"inputs": FACTS},
        "/v1/embeddings": {"input": [text] * 9, "model": "wide"},
        "/embed": {"inputs": [text] * 9, "model": "wide"},
        "/predict": {"inputs": [[fact] for fact in FACTS]},
        "/studio/fill": {"model": "wide", "text": "[MASK] " + text + "[MASK]", "top_k": 20, "num_beams": 5},
        "/studio/score": {"model": "wide", "text": text},
        "/studio/attention": {"model": "wide", "text": text},
        "/studio/explain": {"model": "classify", "parts": [FACTS[0]]},
        "/studio/word": {"model": "wide", "word": "w1x", "sentences": [text] * 5},
        "/studio/similarity": {"model": "wide", "sentences": [text] * 30},
    }

    async def main() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
            for path, body in bodies.items():
                reserved.clear()
                answer = await client.post(path, json=body, timeout=120)
                assert answer.status_code == 200, (path, answer.text)
                assert len(answer.content) <= sum(reserved) < 100 * len(answer.content), path
        assert app.responses.reserved == 0

    asyncio.run(main())


def test_total_size_of_pending_responses_is_limited(folder: Path) -> None:
    """A client that does not read its response is disconnected, and its reservation is released."""
    app = make_app(
        {"wide": unmask.load(folder / "wide")},
        allowed_hosts=None,
        limits=Limits(max_total_response_bytes=MB, read_timeout=1.0),
    )
    body = json.dumps({"inputs": MANY[:2], "parameters": {"top_k": 1000}}).encode()
    statuses: list[int] = []

    async def client() -> None:
        sent = [{"type": "http.request", "body": body}]

        async def receive() -> Any:
            return sent.pop() if sent else await asyncio.Event().wait()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
            elif message.get("more_body"):
                await asyncio.Event().wait()  # never reads

        scope = {"type": "http", "method": "POST", "path": "/models/wide", "headers": [], "query_string": b""}
        await app(scope | {"raw_path": b"", "root_path": "", "scheme": "http"}, receive, send)

    async def main() -> None:
        await asyncio.wait_for(asyncio.gather(*(client() for _ in range(3))), 60)
        assert sorted(statuses) == [200, 503, 503]
        assert app.responses.reserved == 0

    asyncio.run(main())


# ---------------------------------------------------------------------------------------------------------- long texts


def test_text_with_too_many_characters_is_rejected_before_tokenization(running: Server) -> None:
    for text in ("w" * 1_900_000 + " [MASK]", "w1x " * 400_000 + "[MASK]"):
        answer = httpx.post(f"{running.url}/models/wide", json={"inputs": text}, timeout=60)
        error = answer.json()["error"]
        assert answer.status_code == 413 and error["code"] == "too_long", answer.text
        assert "512 tokens" in error["message"] and error["expected"].startswith(f"at most {512 * 64:,} characters")


def test_short_text_does_not_wait_for_tokenization_of_long_ones(running: Server) -> None:
    """A classifier reads long texts in windows, so all of their tokens have to be counted."""
    texts = {"long": "Ann lives in Rome . " * 95_000, "short": "Ann lives in Rome . " * 250}

    async def main() -> None:
        async with httpx.AsyncClient(base_url=running.url, timeout=300) as client:
            body = {kind: {"inputs": text} for kind, text in texts.items()}
            long = [asyncio.ensure_future(client.post("/models/classify", json=body["long"])) for _ in range(4)]
            await asyncio.sleep(0.5)
            assert (await client.post("/models/classify", json=body["short"])).status_code == 200
            assert not any(one.done() for one in long)
            for one in long:
                one.cancel()

    asyncio.run(main())


def test_request_timeout_includes_tokenization(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = unmask.load(folder / "classify")
    app = make_app({"classify": predictor}, allowed_hosts=None, limits=Limits(request_timeout=1.0))
    real, released, delays = (
        predictor.tokenizer.encode_batch,
        threading.Event(),
        [5.0],
    )  # delay of the first call in seconds

    def encode_batch(texts: Any) -> Any:
        if delays:
            released.wait(delays.pop())
        return real(texts)

    monkeypatch.setattr(predictor.tokenizer, "encode_batch", encode_batch)

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
            try:
                return await client.post("/models/classify", json={"inputs": "Ann lives in Rome . " * 250})
            finally:
                released.set()

    answer = asyncio.run(main())
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "timeout"


def test_too_many_texts_in_a_request_are_rejected(running: Server) -> None:
    """The event loop would need seconds to check 400,000 texts in 2 MB."""
    body = {"inputs": [["a"] * 2] * 1024, "model": "classify"}
    answer = httpx.post(f"{running.url}/predict", json=body, timeout=120)
    assert answer.status_code != 413
    many = {"model": "classify", "record": {"text": ["a"] * 9000}}
    answer = httpx.post(f"{running.url}/studio/task", json=many, timeout=120)
    assert answer.status_code == 413 and answer.json()["error"]["message"] == "the request has 9,000 texts", answer.text


def test_explanation_of_a_long_text_is_rejected_without_tokenization(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An explanation reads its text a hundred times."""
    predictor = unmask.load(folder / "classify")
    app = make_app({"classify": predictor}, allowed_hosts=None)
    monkeypatch.setattr(predictor, "tokenizer", None)  # any attempt to tokenize would fail

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
            return await client.post("/studio/explain", json={"model": "classify", "parts": ["Ann . " * 16_000] * 3})

    answer = asyncio.run(main())
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "too_many_tokens", answer.text
