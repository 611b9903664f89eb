"""What a Predictor answers when it was fine-tuned for a task: the methods that the tasks give it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from unmask.errors import UserError
from unmask.inference.engine import Engine
from unmask.inference.inputs import is_batch
from unmask.inference.predict import predict
from unmask.inference.progress import Update
from unmask.labels.detect_task import all_specs
from unmask.registry import TASKS
from unmask.tasks.task import Task

Prediction = dict[str, Any]
Texts = str | Iterable[str]


class TaskMethods:
    engine: Engine
    task: Task | None
    warn_if_unknown: Callable[[Any], None]

    def __call__(self, *parts: Any) -> Any:
        """The answer of a fine-tuned model to what its task asks: a text, a text and its pair, a question and a passage …

        A dict is a record; a list of texts or records gives a list of answers.
        """
        if len(parts) == 1 and isinstance(parts[0], list):
            return self.predict(parts[0])
        return self.predict([parts[0] if len(parts) == 1 else parts])[0]

    def predict(
        self, records: Iterable[Any], update: Update | None = None, overflow: str | None = None
    ) -> list[Prediction]:
        """Answers to many records or texts, in their order.

        `overflow` for texts longer than max_length: "window" (split and aggregate), "truncate" or "error". Default: as in training.
        """
        return predict(self, records, update, overflow).predictions

    def __getattr__(self, name: str) -> Any:
        """The name of a third party's task is a method, as `classify` is: it takes what the task asks."""
        if name.startswith("_") or name not in TASKS.names():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return partial(self._ask, name)

    # Each of these answers one question, or for lists as many as there are in them.

    def classify(self, text: Texts, pair: Texts | None = None, overflow: str | None = None) -> Any:
        """The label of a text, or of a text and its pair, with probabilities."""
        return self._ask("classify", *(text,) if pair is None else (text, pair), overflow=overflow)

    def tag(self, text: Texts, overflow: str | None = None, predicate: Any = None) -> Any:
        """Entities, or parts of speech: {"entities", "tags", "words"}, with places in the text as it was given.

        `predicate`, for a model of semantic roles: a word of the text, `run#2` for its second occurrence, or [start, end]; for a
        list of texts, one for all of them.
        """
        self.require_task("tag")
        if predicate is None:
            return self._ask("tag", text, overflow=overflow)
        if not is_batch(text):
            return self.predict([{"text": text, "predicate": predicate}], overflow=overflow)[0]
        return self.predict([{"text": each, "predicate": predicate} for each in text], overflow=overflow)

    def answer(self, question: Texts, context: Texts, overflow: str | None = None) -> Any:
        """The span of the context that answers the question; "" when there is none."""
        return self._ask("answer", question, context, overflow=overflow)

    def choose(self, text: Texts, choices: Sequence[Any], context: Texts | None = None) -> Any:
        """Which of the choices goes with the text, and how likely each is; for a list of texts, a list of choices each."""
        if not is_batch(text):
            return self._ask("choose", text, _listed(choices, "choices"), context or "")
        texts = list(text)
        each = [_listed(some, "choices") for some in choices]
        return self._ask("choose", texts, each, [""] * len(texts) if context is None else context)

    def rank(self, query: Texts, passages: Sequence[Any]) -> Any:
        """The passages by how well they answer the query, best first: [{"index", "score", "text"}]; for a list of queries,
        a list of passages each."""
        if not is_batch(query):
            alone: Any = query
            return self.rank([alone], [passages])[0]
        each = [_listed(some, "passages") for some in passages]
        return [
            [{"index": i, "score": found["scores"][i], "text": listed[i]} for i in found["order"]]
            for found, listed in zip(self._ask("rank", query, each), each)
        ]

    def require_task(self, name: str | None = None) -> Task:
        """The task that the model was fine-tuned for; an error when it was not, or not for the one that is named."""
        if self.task is None:
            raise UserError(
                f"this model is not fine-tuned for a task; its heads: {', '.join(self.engine.heads) or 'none'}",
                hint="unmask finetune MODEL --train FILE",
            )
        if name is not None and self.task.name != name:
            raise UserError(
                f"this model is fine-tuned for the task {self.task.name}, not for {name}",
                hint=f"unmask finetune MODEL --task {name} --train FILE",
            )
        return self.task

    def require_pipeline(self, name: str) -> Task:
        """The task, where its predictions are those of a pipeline of the hub: "text-ranking". An error where they are not."""
        task = self.require_task()
        if task.SPEC.usage.served_pipeline == name:
            return task
        return self.require_task(task_for(name))

    def _ask(self, name: str, *parts: Any, overflow: str | None = None) -> Any:
        self.require_task(name)
        if not is_batch(parts[0]):
            return self.predict([parts], overflow=overflow)[0]
        columns = [list(part) if is_batch(part) else [] for part in parts]
        if len({len(column) for column in columns}) > 1:
            counts = ", ".join(f"{len(c):,}" if is_batch(p) else "one text" for c, p in zip(columns, parts))
            raise UserError(f"lists that do not go together: {counts}", expected="lists of one length")
        return self.predict(columns[0] if len(columns) == 1 else zip(*columns), overflow=overflow)


def task_for(pipeline: str) -> str:
    """The task whose models answer a pipeline of the hub; the pipeline itself where none does."""
    specs: dict[str, Any] = all_specs()
    return next((name for name, spec in specs.items() if spec.usage.served_pipeline == pipeline), pipeline)


def _listed(texts: Any, what: str) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"the {what} are {type(texts).__name__}: {texts!r:.60}", expected="a list of texts")
    return list(texts)
