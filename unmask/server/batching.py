"""Questions that wait for the same model, method and settings are answered by one call of the Predictor.

While a call computes, in a thread, others gather; the next call takes as many as fit into `limits.batch` tokens. Nothing waits
when nothing computes, so a single client loses no time, and many clients get the speed of a batch.

A call that lasts longer than `patience` is left to go on beside the next ones. Two forward passes at once would only fight for
the cores, so all threads and models take turns (turns.py): a short question waits for one forward pass of a long one, not for all
of it. One thread is kept for short questions; what all clients of a call have left is given up.

A question that fails does not fail its neighbours: the batch is halved until the bad one is alone.
"""

import asyncio
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unmask.errors import UserError
from unmask.inference import unknown
from unmask.inference.inputs import texts_in
from unmask.inference.methods import ALONE, GENERATE, TOGETHER
from unmask.server import cost, counting, current, sizes
from unmask.server.errors import Refused
from unmask.server.limits import Limits
from unmask.server.metrics import Metrics
from unmask.server.turns import Gone, Turns

if TYPE_CHECKING:
    from unmask.inference.predictor import Predictor

TEXTS = 8  # texts of an input, on average: choices, passages
THREADS = 4  # calls at a time, of which one forward pass computes
Key = tuple[str, str, str, int]  # model, method, settings, 0 or the number of a question that is answered alone


@dataclass(eq=False)
class Question:
    item: Any
    tokens: int
    settings: Mapping[str, Any]
    done: asyncio.Future


class Batcher:
    """`ask` is all that routes need; the rest is how it is answered."""

    patience = 0.25  # seconds

    def __init__(self, models: Mapping[str, "Predictor"], limits: Limits, metrics: Metrics):
        self.models, self.limits, self.metrics = models, limits, metrics
        self.waiting: dict[Key, deque[Question]] = {}
        self.tokens = 0  # of all that waits or is computed
        self.threads = ThreadPoolExecutor(THREADS, thread_name_prefix="unmask-predict")
        self.calls: dict[asyncio.Task, bool] = {}  # those that compute: whether it is a long one
        self.newest: asyncio.Task | None = None  # the one that others wait for, while it is young
        self.alone = 0
        self.turns = Turns()
        for predictor in models.values():
            predictor.engine.turn = self.turns.take
            predictor.warns = False  # clients are warned here

    async def ask(self, model: str, method: str, *args: Any, **settings: Any) -> Any:
        """One question, its answer, as `models[model].method(*args, **settings)` gives it; a list of them, a list.

        Raises UserError for what the Predictor refuses, Refused for what the server does.
        """
        predictor = find(self.models, model)
        if method not in (*TOGETHER, *ALONE):
            raise UserError(f"unknown method {method!r}", expected=", ".join((*TOGETHER, *ALONE)))
        many, items = unfold(method, args)
        if not items:
            return []
        costs = await self.weigh(predictor, method, items, settings)
        if self.mixes(predictor, method, settings):
            answers = await self.put(model, method, items, costs, settings)
        else:
            item = items if method in TOGETHER else args
            (answers,) = await self.put(model, method, [item], [sum(costs)], settings, apart=True)
        return answers if many or method in ALONE else answers[0]

    @staticmethod
    def mixes(predictor: "Predictor", method: str, settings: Mapping[str, Any]) -> bool:
        """Whether an answer is the same whatever else is in its batch."""
        if method == "predict" and predictor.task is not None:
            spec = predictor.task.spec  # where a record is ranked among all others of its call, or text is drawn
            return not spec.ranked_among and spec.output != "text"
        if method == GENERATE:  # what is drawn depends on the number of the prompt
            return not settings.get("do_sample", predictor.engine.generation.get("do_sample"))
        return method in TOGETHER

    async def weigh(
        self, predictor: "Predictor", method: str, items: Sequence[Any], settings: Mapping[str, Any]
    ) -> list[int]:
        """Tokens that the model will read for each; refuses what is too much."""
        texts = sum(1 for item in items for _ in texts_in(item))
        for found, what, most in (
            (len(items), "inputs", self.limits.inputs),
            (texts, "texts", TEXTS * self.limits.inputs),
        ):
            if found > most:
                raise Refused(413, "too_many_inputs", f"{found:,} {what}", expected=f"at most {most:,} in a request")
        cost.check_characters(predictor, method, items)
        self.costs(predictor, method, items, [0] * len(items), settings)  # too many already by their characters?
        counts = await self.count(predictor, items)
        costs = self.costs(predictor, method, items, counts, settings)
        if self.tokens and self.tokens + sum(costs) > self.limits.queue:
            raise Refused(
                429, "busy", f"{self.tokens:,} tokens wait already", hint="ask again in a moment", headers={"retry-after": "1"}
            )  # fmt: skip
        self.reserve(sizes.estimate(predictor, method, items, counts, settings))
        return costs

    def costs(
        self,
        predictor: "Predictor",
        method: str,
        items: Sequence[Any],
        counts: Sequence[int],
        settings: Mapping[str, Any],
    ) -> list[int]:
        """Tokens that the model reads for each item, or a refusal."""
        charged = [cost.charged(n, item) for n, item in zip(counts, items, strict=True)]
        costs = [cost.read(predictor, method, item, n, settings) for item, n in zip(items, charged, strict=True)]
        if sum(costs) > self.limits.tokens:
            raise Refused(
                413,
                "too_many_tokens",
                f"the model would read at least {sum(costs):,} tokens for this",
                expected=f"at most {self.limits.tokens:,} in a request",
                hint="send it in parts, or start the server with a greater --max-tokens",
            )
        return costs

    async def count(self, predictor: "Predictor", items: Sequence[Any]) -> list[int]:
        """Tokens of each item's texts; the client is warned of those that the tokenizer does not know."""
        texts = [list(texts_in(item)) for item in items]
        found = await counting.count(predictor.tokenizer, [text for own in texts for text in own], self.limits.tokens)
        request = current.request()
        request.tokens += sum(each.tokens for each in found)
        worst = max((each.unknown for each in found), default=0.0)
        if worst >= unknown.UNKNOWN:
            where = "the text" if len(found) == 1 else "a text"
            request.warn(f"unknown_tokens: {unknown.describe(predictor.tokenizer, worst, where)}")
        counts = iter(found)
        return [sum(next(counts).tokens for _ in own) for own in texts]

    def reserve(self, size: int) -> None:
        """Memory for the answers, or a refusal."""
        if size > self.limits.response:
            raise Refused(
                413,
                "response_too_large",
                f"the response would have about {size:,} bytes",
                expected=f"at most {self.limits.response:,} bytes",
                hint="ask for fewer candidates, send fewer or shorter texts, or start the server with a greater --max-response",
            )
        current.request().reserve(size)

    async def put(
        self,
        model: str,
        method: str,
        items: Sequence[Any],
        costs: Sequence[int],
        settings: Mapping[str, Any],
        apart: bool = False,
    ) -> list[Any]:
        """Put questions in line and wait for their answers."""
        loop = asyncio.get_running_loop()
        self.alone += apart
        key = (model, method, repr(sorted(settings.items())), self.alone if apart else 0)
        questions = [Question(i, n, settings, loop.create_future()) for i, n in zip(items, costs, strict=True)]
        self.waiting.setdefault(key, deque()).extend(questions)
        self._count(sum(costs))
        self._begin()
        answers = await asyncio.gather(*(q.done for q in questions), return_exceptions=True)
        for number, answer in enumerate(answers, 1):
            if isinstance(answer, UserError) and len(items) > 1:
                where = f"input {number} of {len(items)}"
                raise UserError(f"{where}: {answer.message}", expected=answer.expected, hint=answer.hint)
            if isinstance(answer, BaseException):
                raise answer
        return answers

    # ------------------------------------------------------------------------------------------------ the worker

    def _begin(self) -> None:
        """The next call, if anything waits and no young call computes, whose end is worth waiting for."""
        if self.newest is not None or len(self.calls) == THREADS:
            return
        found = self._take()
        if found is None:
            return
        key, questions = found
        loop = asyncio.get_running_loop()
        self.newest = call = loop.create_task(self._call(key, questions))
        self.calls[call] = self._long(questions[0])
        loop.call_later(self.patience, self._put_aside, call)
        call.add_done_callback(self._end)

    def _end(self, call: asyncio.Task) -> None:
        del self.calls[call]
        self._put_aside(call)

    def _put_aside(self, call: asyncio.Task) -> None:
        """Others need no longer wait for it: it is done, or takes long."""
        if self.newest is call:
            self.newest = None
        self._begin()

    async def _call(self, key: Key, questions: Sequence[Question]) -> None:
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(self.threads, self._answer, key, questions)
        finally:
            self._count(-sum(q.tokens for q in questions))
        for question, answer in zip(questions, answers, strict=True):
            if question.done.done():
                continue
            if isinstance(answer, Exception):
                question.done.set_exception(answer)
            else:
                question.done.set_result(answer)

    def _long(self, question: Question) -> bool:
        return question.tokens > self.limits.batch

    def _take(self) -> tuple[Key, list[Question]] | None:
        """The next batch: of the kind that waits longest; one that has more left goes to the end of the line."""
        full = sum(self.calls.values()) == THREADS - 1  # of long ones: the last thread is for short questions
        for key, line in list(self.waiting.items()):
            del self.waiting[key]
            taken: list[Question] = []
            passed: list[Question] = []  # long ones, which wait for a thread
            tokens = 0
            while line and (not taken or tokens + line[0].tokens <= self.limits.batch):
                question = line.popleft()
                if question.done.done():  # its client is gone, or waited too long
                    self._count(-question.tokens)
                elif full and self._long(question):
                    passed.append(question)
                else:
                    taken.append(question)
                    tokens += question.tokens
            line.extendleft(reversed(passed))
            if line:
                self.waiting[key] = line
            if taken:
                return key, taken
        return None

    def _count(self, tokens: int) -> None:
        self.tokens += tokens
        self.metrics.waiting.set(self.tokens)

    def _answer(self, key: Key, questions: Sequence[Question]) -> list[Any]:
        """In the thread: an answer or an exception for each."""
        model, method, _, apart = key
        started = time.perf_counter()
        items = [q.item for q in questions]
        with self.turns.while_waited_for(lambda: not all(q.done.done() for q in questions)):
            found = answer_all(self.models[model], method, items, questions[0].settings, bool(apart))
        self.metrics.computing.labels(model, method).observe(time.perf_counter() - started)
        self.metrics.questions.labels(model, method).observe(len(questions))
        self.metrics.tokens.labels(model, method).observe(sum(q.tokens for q in questions))
        return found


def find(models: Mapping[str, "Predictor"], name: str) -> "Predictor":
    if name not in models:
        raise Refused(404, "model_not_found", f"no model {name!r:.80}", expected=", ".join(models) or "none")
    return models[name]


def unfold(method: str, args: Sequence[Any]) -> tuple[bool, list[Any]]:
    """Whether a list was asked, and the questions in it.

    >>> unfold("fill", (["a", "b"],)), unfold("next_sentence", ("a", "b")), unfold("similarity", ("q", ["a", "b"]))
    ((True, ['a', 'b']), (False, [('a', 'b')]), (False, [('q', ['a', 'b'])]))
    """
    if method == "next_sentence":
        first, second = args
        many = not isinstance(first, str)
        return many, list(zip(first, second, strict=True)) if many else [(first, second)]
    if method in ALONE:
        return False, [tuple(args)]
    (given,) = args
    return (True, given) if isinstance(given, list) else (False, [given])


def answer_all(
    predictor: "Predictor", method: str, items: Sequence[Any], settings: Mapping[str, Any], apart: bool = False
) -> list[Any]:
    """An answer per item, or the exception that it alone raises."""
    try:
        call = getattr(predictor, method)
        if method in ALONE:
            return [call(*items[0], **settings)]
        if apart:  # one item: a list whose answers depend on each other
            return [list(call(items[0], **settings))]
        if method == "next_sentence":
            return list(call([a for a, _ in items], [b for _, b in items], **settings))
        return list(call(list(items), **settings))
    except Exception as error:
        if len(items) == 1 or isinstance(error, Gone):
            return [error] * len(items)
        half = len(items) // 2
        first, second = (answer_all(predictor, method, part, settings) for part in (items[:half], items[half:]))
        return first + second
