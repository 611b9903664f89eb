"""Dynamic batching: pending requests are computed together, each gets its own result or error, and results are never
mixed up."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import httpx
import numpy as np
import pytest
from near import gap, near
from server.serving import FACTS, base_model, task_model

import unmask
from unmask.errors import UserError
from unmask.inference.predictor import Predictor
from unmask.server.app import make_app
from unmask.server.batching import NUM_WORKERS, Batcher
from unmask.server.errors import RequestError
from unmask.server.fair_lock import FairLock
from unmask.server.limits import DEFAULT, Limits
from unmask.server.metrics import Metrics


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    root = tmp_path_factory.mktemp("batched")
    base_model(root / "mlm", heads=("mlm", "nsp"))
    base_model(root / "gpt", "gpt2-mini", ("lm",))
    task_model(root / "classify", root / "mlm", "classify")
    return {name: unmask.load(root / name) for name in ("mlm", "gpt", "classify")}


class RecordingBatcher(Batcher):
    """A batcher that records its calls and blocks the first one until the others are queued."""

    long_call_seconds = 60.0

    def __init__(self, models: dict[str, Predictor], limits: Limits = DEFAULT):
        super().__init__(models, limits, Metrics())
        self.recorded_calls: list[tuple[str, list[Any]]] = []
        self.open = threading.Event()

    def _compute(self, key: Any, inputs: Any) -> list[Any]:
        self.recorded_calls.append((key.method, [each.item for each in inputs]))
        assert self.open.wait(30)
        return super()._compute(key, inputs)


def together(batcher: RecordingBatcher, *requests: tuple) -> list[Any]:
    """Submit all requests, (model, method, args, settings) each, while a first call is blocked. Return results or
    exceptions."""

    async def main() -> list[Any]:
        first = asyncio.ensure_future(batcher.submit("mlm", "embed", "first"))
        await asyncio.sleep(0.05)
        waiting = [
            asyncio.ensure_future(batcher.submit(m, method, *args, **settings))
            for m, method, args, settings in requests
        ]
        await asyncio.sleep(0.05)
        batcher.open.set()
        await first
        return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(main())


def test_pending_requests_are_computed_in_one_call(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models)
    results = together(batcher, *(("mlm", "embed", (fact,), {}) for fact in FACTS))
    assert [method for method, _ in batcher.recorded_calls] == ["embed", "embed"] and batcher.recorded_calls[1][
        1
    ] == FACTS
    assert gap(results, models["mlm"].embed(FACTS)) <= 1e-5
    assert batcher.pending_tokens == 0


def test_different_settings_methods_and_models_are_not_batched_together(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models)
    masked = "Ann [MASK] ."
    requests = [
        ("mlm", "fill", (masked,), {"top_k": 2}),
        ("mlm", "fill", (masked,), {"top_k": 3}),
        ("mlm", "score", (FACTS[0],), {}),
        ("mlm", "next_sentence", ("Ann", "lives"), {}),
        ("classify", "predict", (FACTS[0],), {}),
        ("mlm", "fill", (masked,), {"top_k": 2}),
        ("mlm", "next_sentence", ("Ben", "lives"), {}),
    ]
    results = together(batcher, *requests)
    assert [len(items) for _, items in batcher.recorded_calls] == [1, 2, 1, 1, 2, 1]
    assert [len(f.masks[0].candidates) for f in (results[0], results[1], results[5])] == [2, 3, 2]
    assert results[2].total == near(models["mlm"].score(FACTS[0]).total, 1e-4)
    assert results[3] == near(models["mlm"].next_sentence("Ann", "lives"), 1e-5)
    assert results[4]["label"] == models["classify"].predict([FACTS[0]])[0]["label"]


def test_invalid_request_does_not_fail_its_batch(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models)
    texts = [f"{fact} [MASK]" for fact in FACTS]
    texts[5], texts[8] = "nothing is hidden", "word " * 100 + "[MASK]"
    results = together(batcher, *(("mlm", "fill", (text,), {}) for text in texts))
    bad = [n for n, answer in enumerate(results) if isinstance(answer, UserError)]
    assert bad == [5, 8] and "no mask" in results[5].message and "tokens" in results[8].message
    for n, answer in enumerate(results):
        assert n in bad or answer.text.startswith(FACTS[n]), answer


def test_error_names_the_invalid_input(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models)
    (error,) = together(batcher, ("mlm", "fill", (["[MASK]", "none", "[MASK]"],), {}))
    assert isinstance(error, UserError) and error.message.startswith("input 2 of 3: no mask")


def test_internal_error_affects_only_its_request(models: dict[str, Predictor], monkeypatch: pytest.MonkeyPatch) -> None:
    real = models["mlm"].embed

    def embed(texts: list[str], **settings: Any) -> Any:
        if "bomb" in texts:
            raise RuntimeError("out of memory")
        return real(texts, **settings)

    monkeypatch.setattr(models["mlm"], "embed", embed)
    results = together(RecordingBatcher(models), *(("mlm", "embed", (text,), {}) for text in ("Ann", "bomb", "Ben")))
    assert isinstance(results[1], RuntimeError) and results[0].shape == results[2].shape == (32,)


def test_batches_are_limited_in_tokens_and_methods_alternate(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models, Limits(max_batch_tokens=40))
    results = together(batcher, ("mlm", "embed", (FACTS,), {}), ("mlm", "score", ("Ann",), {}))
    assert gap(results[0], models["mlm"].embed(FACTS)) <= 1e-5
    calls = [method for method, _ in batcher.recorded_calls]
    assert len(calls) > 4 and calls.index("score") == 2  # not after all embed requests
    assert all(len(items) <= 5 for _, items in batcher.recorded_calls)


def test_sampled_texts_do_not_depend_on_the_batch(models: dict[str, Predictor]) -> None:
    settings = {"do_sample": True, "seed": 3, "max_new_tokens": 6}
    alone = models["gpt"].generate(["Ann", "Ben"], **settings)
    results = together(RecordingBatcher(models), *(("gpt", "generate", (["Ann", "Ben"],), settings) for _ in range(3)))
    assert all([a.generated_text for a in one] == [a.generated_text for a in alone] for one in results)
    with pytest.MonkeyPatch.context() as patch:  # as generation_config.json may request
        patch.setitem(models["gpt"].engine.generation, "do_sample", True)
        settings_with_seed = {"seed": 3, "max_new_tokens": 6}
        results = together(
            RecordingBatcher(models), *(("gpt", "generate", (["Ann", "Ben"],), settings_with_seed) for _ in range(3))
        )
    assert all([a.generated_text for a in one] == [a.generated_text for a in alone] for one in results)


@pytest.mark.parametrize(
    ("limits", "status", "submit"),
    [
        (Limits(max_inputs=3), 413, lambda b: b.submit("mlm", "embed", FACTS)),
        (Limits(max_request_tokens=50), 413, lambda b: b.submit("mlm", "embed", FACTS)),
        (Limits(max_request_tokens=40), 413, lambda b: b.submit("mlm", "score", FACTS[0])),
        (
            Limits(max_request_tokens=500),
            413,
            lambda b: b.submit("gpt", "generate", "Ann", max_new_tokens=100, num_beams=8),
        ),
        (Limits(), 404, lambda b: b.submit("other", "embed", "Ann")),
    ],
    ids=["inputs", "tokens", "score", "beams", "model"],
)
def test_requests_over_a_limit_raise(
    models: dict[str, Predictor], limits: Limits, status: int, submit: Callable
) -> None:
    with pytest.raises(RequestError) as caught:
        asyncio.run(submit(Batcher(models, limits, Metrics())))
    assert caught.value.status == status and caught.value.expected


def test_full_queue_rejects_requests_and_recovers(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models, Limits(max_queue_tokens=100))
    results = together(batcher, *(("mlm", "embed", (FACTS[0],), {}) for _ in range(40)))
    refused = [a for a in results if isinstance(a, RequestError)]
    assert 0 < len(refused) < 40 and all(a.status == 429 and a.headers["retry-after"] for a in refused)
    assert batcher.pending_tokens == 0
    assert asyncio.run(batcher.submit("mlm", "embed", "Ann")).shape == (32,)


def test_slow_request_times_out(models: dict[str, Predictor], monkeypatch: pytest.MonkeyPatch) -> None:
    opened = threading.Event()
    monkeypatch.setattr(models["mlm"], "embed", lambda texts, **_: opened.wait(60) and [np.zeros(32)] * len(texts))
    app = make_app(models, limits=Limits(request_timeout=0.2))

    async def main() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            try:
                return await client.post("/embed", json={"inputs": "Ann", "model": "mlm"})
            finally:
                opened.set()

    answer = asyncio.run(main())
    assert answer.status_code == 503 and answer.json()["error"]["code"] == "timeout"


def test_cancelled_pending_requests_are_not_computed(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models)

    async def main() -> None:
        first = asyncio.ensure_future(batcher.submit("mlm", "embed", "first"))
        await asyncio.sleep(0.05)
        cancelled, kept = (asyncio.ensure_future(batcher.submit("mlm", "embed", text)) for text in ("gone", "kept"))
        await asyncio.sleep(0.05)
        cancelled.cancel()
        await asyncio.sleep(0)
        batcher.open.set()
        await asyncio.gather(first, kept)

    asyncio.run(main())
    assert [items for _, items in batcher.recorded_calls] == [["first"], ["kept"]]


def test_event_loop_is_not_blocked_by_a_forward_pass(models: dict[str, Predictor]) -> None:
    batcher = RecordingBatcher(models)

    async def main() -> int:
        request = asyncio.ensure_future(batcher.submit("mlm", "embed", "Ann"))
        ticks = 0
        while not request.done():
            await asyncio.sleep(0.01)
            ticks += 1
            if ticks == 10:
                batcher.open.set()
        return ticks

    assert asyncio.run(main()) >= 10


def record_forward_passes(models: dict[str, Predictor], batcher: Batcher, started: threading.Event) -> list[int]:
    """Make every forward pass take at least 20 ms, and record the threads that ran one."""
    log: list[int] = []

    def take() -> AbstractContextManager[None]:
        log.append(threading.get_ident())
        started.set()
        time.sleep(0.02)
        return batcher.lock.acquire()

    for predictor in models.values():
        predictor.engine.forward_lock = take
    return log


LONG = {"max_new_tokens": 50, "min_new_tokens": 50}  # one forward pass per token


def test_long_request_does_not_block_a_short_one(models: dict[str, Predictor]) -> None:
    batcher = Batcher(models, Limits(max_batch_tokens=40), Metrics())
    batcher.long_call_seconds = 0.05
    started = threading.Event()
    log = record_forward_passes(models, batcher, started)

    async def main() -> None:
        long = [asyncio.ensure_future(batcher.submit("gpt", "generate", "Ann", **LONG)) for _ in range(NUM_WORKERS + 2)]
        await asyncio.to_thread(started.wait, 30)
        await asyncio.sleep(0.3)  # by now the maximum number of long requests is running
        for text in ("Ben", "Cid"):
            assert (await batcher.submit("mlm", "embed", text)).shape == (32,)
        assert not any(question.done() for question in long)
        assert len(batcher.running) == NUM_WORKERS - 1 and len(set(log)) == NUM_WORKERS
        results = await asyncio.gather(*long)
        assert all(answer.generated_text == models["gpt"].generate("Ann", **LONG).generated_text for answer in results)

    asyncio.run(main())
    assert batcher.pending_tokens == 0 and not batcher.running


def test_cancelled_running_request_is_aborted(models: dict[str, Predictor]) -> None:
    batcher = Batcher(models, DEFAULT, Metrics())
    started = threading.Event()
    log = record_forward_passes(models, batcher, started)

    async def main() -> None:
        long = asyncio.ensure_future(batcher.submit("gpt", "generate", "Ann", **LONG))
        await asyncio.to_thread(started.wait, 30)
        long.cancel()
        await asyncio.gather(long, return_exceptions=True)
        while batcher.running:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert 0 < len(log) < 50 and batcher.pending_tokens == 0


def test_lock_is_released_after_a_failed_forward_pass(
    models: dict[str, Predictor], monkeypatch: pytest.MonkeyPatch
) -> None:
    batcher = RecordingBatcher(models)
    real = models["mlm"].model.encode

    def encode(batch: Any, *more: Any) -> Any:
        if len(batch.input_ids) > 1:
            raise RuntimeError("out of memory")
        return real(batch, *more)

    monkeypatch.setattr(models["mlm"].model, "encode", encode)
    results = together(batcher, *(("mlm", "embed", (fact,), {}) for fact in FACTS[:4]))
    assert all(vector.shape == (32,) for vector in results)  # the batch was halved until each item was alone
    with batcher.lock.acquire():  # the lock is free
        assert not batcher.lock._queue


def test_lock_is_exclusive_and_first_come_first_served() -> None:
    turns, order, inside = FairLock(), [], []

    def work(number: int) -> None:
        with turns.acquire():
            inside.append(number)
            assert len(inside) == 1
            time.sleep(0.001)
            order.append(number)
            inside.remove(number)

    with turns.acquire():
        threads = []
        for number in range(8):
            threads.append(threading.Thread(target=work, args=(number,)))
            threads[-1].start()
            while len(turns._queue) <= number:
                time.sleep(0.001)
    for thread in threads:
        thread.join(30)
    assert order == list(range(8))
