"""Dynamic batching: inputs that wait for the same model, method and settings are computed by one call of the Predictor.

While a batch runs in a thread, new inputs are queued; the next batch takes as many as fit into `max_batch_tokens`. Nothing waits
while the model is idle, so a single client loses no time, and many clients get the throughput of batches.

A call that lasts longer than `long_call_seconds` keeps running while the next ones start. Two forward passes at once would
compete for the cores, so all threads and models share one lock (fair_lock.py): a short request waits for one forward pass of a
long request, not for all of it. One worker is reserved for short requests; calls whose clients have all disconnected are
cancelled.

An input that fails does not fail the rest of its batch: the batch is split in half until the bad input is alone.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from unmask.errors import UserError
from unmask.inference import unknown
from unmask.inference.inputs import texts_in
from unmask.inference.methods import BATCHED_METHODS, GENERATE, UNBATCHED_METHODS
from unmask.server import cost, response_size
from unmask.server.counting import count_tokens
from unmask.server.errors import RequestError
from unmask.server.fair_lock import FairLock, RequestAbandoned
from unmask.server.limits import Limits
from unmask.server.metrics import Metrics
from unmask.server.request_usage import current_request

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

TEXTS_PER_INPUT = 8  # maximum of a request's mean; an input can have several texts (choices, passages)
NUM_WORKERS = 4  # threads; one of them runs a forward pass at a time


class BatchKey(NamedTuple):
    """Inputs with the same key can be computed by one call."""

    model: str
    method: str
    settings: str
    unbatched: int  # 0, or a unique number for a call that is not batched with others


@dataclass(eq=False)
class QueuedInput:
    item: Any
    tokens: int
    settings: Mapping[str, Any]
    result: asyncio.Future


class Batcher:
    """Routes call `submit`; everything else is internal."""

    long_call_seconds = 0.25

    def __init__(self, models: Mapping[str, "Predictor"], limits: Limits, metrics: Metrics):
        self.models, self.limits, self.metrics = models, limits, metrics
        self.queues: dict[BatchKey, deque[QueuedInput]] = {}
        self.pending_tokens = 0  # queued or running
        self.workers = ThreadPoolExecutor(NUM_WORKERS, thread_name_prefix="unmask-predict")
        self.running: dict[asyncio.Task, bool] = {}  # call → whether it is a long one
        self.current: asyncio.Task | None = (
            None  # started less than `long_call_seconds` ago; the next batch waits for it
        )
        self.num_unbatched = 0
        self.lock = FairLock()
        for predictor in models.values():
            predictor.engine.forward_lock = self.lock.acquire
            predictor.warns = False  # warnings go to the client instead (`_count_tokens`)

    async def submit(self, model: str, method: str, *args: Any, **settings: Any) -> Any:
        """Return what `models[model].method(*args, **settings)` returns: one result, or a list for a list of inputs.

        Raises UserError for an error of the Predictor, and RequestError for an error of the server.
        """
        predictor = find_model(self.models, model)
        if method not in (*BATCHED_METHODS, *UNBATCHED_METHODS):
            raise UserError(f"unknown method {method!r}", expected=", ".join((*BATCHED_METHODS, *UNBATCHED_METHODS)))
        is_list, items = split_inputs(method, args)
        if not items:
            return []
        costs = await self._reserve(predictor, method, items, settings)
        if is_batchable(predictor, method, settings):
            results = await self._enqueue(model, method, items, costs, settings)
        else:
            item = items if method in BATCHED_METHODS else args
            (results,) = await self._enqueue(model, method, [item], [sum(costs)], settings, unbatched=True)
        return results if is_list or method in UNBATCHED_METHODS else results[0]

    # ------------------------------------------------------------------------------------------------ limits

    async def _reserve(
        self, predictor: "Predictor", method: str, items: Sequence[Any], settings: Mapping[str, Any]
    ) -> list[int]:
        """Check the limits, reserve memory for the response, and return the tokens that the model reads for each input."""
        num_texts = sum(1 for item in items for _ in texts_in(item))
        max_inputs = self.limits.max_inputs
        for count, noun, limit in (
            (len(items), "inputs", max_inputs),
            (num_texts, "texts", TEXTS_PER_INPUT * max_inputs),
        ):
            if count > limit:
                message = f"the request has {count:,} {noun}"
                raise RequestError(413, "too_many_inputs", message, expected=f"at most {limit:,} in a request")
        cost.check_characters(predictor, method, items)
        # The number of characters alone may exceed the limit: checked first, because tokenizing takes time.
        self._token_costs(predictor, method, items, [0] * len(items), settings)
        counts = await self._count_tokens(predictor, items)
        costs = self._token_costs(predictor, method, items, counts, settings)
        if self.pending_tokens and self.pending_tokens + sum(costs) > self.limits.max_queue_tokens:
            message = f"queue full: {self.pending_tokens:,} tokens pending"
            raise RequestError(429, "busy", message, hint="retry later", headers={"retry-after": "1"})
        size = response_size.estimate(predictor, method, items, counts, settings)
        if size > self.limits.max_response_bytes:
            raise RequestError(
                413,
                "response_too_large",
                f"the response would have about {size:,} bytes",
                expected=f"at most {self.limits.max_response_bytes:,} bytes",
                hint="ask for fewer candidates, send fewer or shorter texts, or start the server with a larger --max-response",
            )
        current_request().reserve(size)
        return costs

    def _token_costs(
        self,
        predictor: "Predictor",
        method: str,
        items: Sequence[Any],
        counts: Sequence[int],
        settings: Mapping[str, Any],
    ) -> list[int]:
        """Return the tokens that the model reads for each input; raise RequestError if they are too many."""
        costs = [
            cost.tokens_read(predictor, method, item, cost.charged_tokens(count, item), settings)
            for item, count in zip(items, counts, strict=True)
        ]
        if sum(costs) > self.limits.max_request_tokens:
            raise RequestError(
                413,
                "too_many_tokens",
                f"the model would read at least {sum(costs):,} tokens for this request",
                expected=f"at most {self.limits.max_request_tokens:,} in a request",
                hint="split the request, or start the server with a larger --max-tokens",
            )
        return costs

    async def _count_tokens(self, predictor: "Predictor", items: Sequence[Any]) -> list[int]:
        """Count the tokens of each input's texts; warn the client if the tokenizer does not know their words."""
        texts = [list(texts_in(item)) for item in items]
        flat = [text for part in texts for text in part]
        counts = await count_tokens(predictor.tokenizer, flat, self.limits.max_request_tokens)
        request = current_request()
        request.tokens += sum(count.tokens for count in counts)
        worst = max((count.unknown for count in counts), default=0.0)
        if worst >= unknown.WARN_FRACTION:
            subject = "the text" if len(counts) == 1 else "a text"
            request.warnings[f"unknown_tokens: {unknown.describe(predictor.tokenizer, worst, subject)}"] = None
        remaining = iter(counts)
        return [sum(next(remaining).tokens for _ in part) for part in texts]

    # ------------------------------------------------------------------------------------------------ the queue

    async def _enqueue(
        self,
        model: str,
        method: str,
        items: Sequence[Any],
        costs: Sequence[int],
        settings: Mapping[str, Any],
        unbatched: bool = False,
    ) -> list[Any]:
        """Queue inputs and wait for their results."""
        loop = asyncio.get_running_loop()
        self.num_unbatched += unbatched
        key = BatchKey(model, method, repr(sorted(settings.items())), self.num_unbatched if unbatched else 0)
        inputs = [QueuedInput(item, n, settings, loop.create_future()) for item, n in zip(items, costs, strict=True)]
        self.queues.setdefault(key, deque()).extend(inputs)
        self._add_pending(sum(costs))
        self._start_next()
        results = await asyncio.gather(*(queued.result for queued in inputs), return_exceptions=True)
        for number, result in enumerate(results, 1):
            if isinstance(result, UserError) and len(items) > 1:
                message = f"input {number} of {len(items)}: {result.message}"
                raise UserError(message, expected=result.expected, hint=result.hint)
            if isinstance(result, BaseException):
                raise result
        return results

    def _start_next(self) -> None:
        """Start the next batch, unless all workers are busy or the last call may still turn out to be short."""
        if self.current is not None or len(self.running) == NUM_WORKERS:
            return
        batch = self._next_batch()
        if batch is None:
            return
        loop = asyncio.get_running_loop()
        self.current = call = loop.create_task(self._run(*batch))
        self.running[call] = self._is_long(batch[1][0])
        loop.call_later(self.long_call_seconds, self._release_slot, call)
        call.add_done_callback(self._finish)

    def _finish(self, call: asyncio.Task) -> None:
        del self.running[call]
        self._release_slot(call)

    def _release_slot(self, call: asyncio.Task) -> None:
        """Let the next batch start: this call is done, or takes long."""
        if self.current is call:
            self.current = None
        self._start_next()

    async def _run(self, key: BatchKey, inputs: Sequence[QueuedInput]) -> None:
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self.workers, self._compute, key, inputs)
        finally:
            self._add_pending(-sum(queued.tokens for queued in inputs))
        for queued, result in zip(inputs, results, strict=True):
            if queued.result.done():
                continue
            if isinstance(result, Exception):
                queued.result.set_exception(result)
            else:
                queued.result.set_result(result)

    def _is_long(self, queued: QueuedInput) -> bool:
        return queued.tokens > self.limits.max_batch_tokens

    def _next_batch(self) -> tuple[BatchKey, list[QueuedInput]] | None:
        """Take a batch from the queue that has waited longest. If inputs remain, the queue moves to the end (round robin)."""
        only_short = sum(self.running.values()) == NUM_WORKERS - 1  # the last worker is reserved for short requests
        for key, queue in list(self.queues.items()):
            del self.queues[key]
            batch: list[QueuedInput] = []
            skipped: list[QueuedInput] = []  # long inputs that wait for another worker
            tokens = 0
            while queue and (not batch or tokens + queue[0].tokens <= self.limits.max_batch_tokens):
                queued = queue.popleft()
                if queued.result.done():  # its client has disconnected or timed out
                    self._add_pending(-queued.tokens)
                elif only_short and self._is_long(queued):
                    skipped.append(queued)
                else:
                    batch.append(queued)
                    tokens += queued.tokens
            queue.extendleft(reversed(skipped))
            if queue:
                self.queues[key] = queue
            if batch:
                return key, batch
        return None

    def _add_pending(self, tokens: int) -> None:
        self.pending_tokens += tokens
        self.metrics.queue_tokens.set(self.pending_tokens)

    def _compute(self, key: BatchKey, inputs: Sequence[QueuedInput]) -> list[Any]:
        """Return a result or an exception for each input. Runs in a worker thread."""
        start_time = time.perf_counter()
        items = [queued.item for queued in inputs]
        with self.lock.cancel_if_abandoned(lambda: all(queued.result.done() for queued in inputs)):
            results = run_batch(self.models[key.model], key.method, items, inputs[0].settings, bool(key.unbatched))
        labels = key.model, key.method
        self.metrics.batch_seconds.labels(*labels).observe(time.perf_counter() - start_time)
        self.metrics.batch_size.labels(*labels).observe(len(inputs))
        self.metrics.batch_tokens.labels(*labels).observe(sum(queued.tokens for queued in inputs))
        return results


def find_model(models: Mapping[str, "Predictor"], name: str) -> "Predictor":
    if name not in models:
        raise RequestError(404, "model_not_found", f"no model {name!r:.80}", expected=", ".join(models) or "none")
    return models[name]


def is_batchable(predictor: "Predictor", method: str, settings: Mapping[str, Any]) -> bool:
    """Return whether a result does not depend on the rest of its batch."""
    if method == "predict" and predictor.task is not None:
        spec = predictor.task.spec  # some tasks rank a record among all records of its call, or sample text
        return not spec.ranked_field and spec.output != "text"
    if method == GENERATE:  # samples depend on the index of the prompt
        return not settings.get("do_sample", predictor.engine.generation.get("do_sample"))
    return method in BATCHED_METHODS


def split_inputs(method: str, args: Sequence[Any]) -> tuple[bool, list[Any]]:
    """Return whether the arguments are a list of inputs, and the inputs.

    >>> split_inputs("fill", (["a", "b"],)), split_inputs("next_sentence", ("a", "b")), split_inputs("similarity", ("q", ["a", "b"]))
    ((True, ['a', 'b']), (False, [('a', 'b')]), (False, [('q', ['a', 'b'])]))
    """
    if method == "next_sentence":
        first, second = args
        is_list = not isinstance(first, str)
        return is_list, list(zip(first, second, strict=True)) if is_list else [(first, second)]
    if method in UNBATCHED_METHODS:
        return False, [tuple(args)]
    (inputs,) = args
    return (True, inputs) if isinstance(inputs, list) else (False, [inputs])


def run_batch(
    predictor: "Predictor", method: str, items: Sequence[Any], settings: Mapping[str, Any], unbatched: bool = False
) -> list[Any]:
    """Return a result per item, or the exception that this item raises."""
    try:
        call = getattr(predictor, method)
        if method in UNBATCHED_METHODS:
            return [call(*items[0], **settings)]
        if unbatched:  # one item: a list whose results depend on each other
            return [list(call(items[0], **settings))]
        if method == "next_sentence":
            return list(call([a for a, _ in items], [b for _, b in items], **settings))
        return list(call(list(items), **settings))
    except Exception as error:
        if len(items) == 1 or isinstance(error, RequestAbandoned):
            return [error] * len(items)
        half = len(items) // 2
        return [
            result for part in (items[:half], items[half:]) for result in run_batch(predictor, method, part, settings)
        ]
