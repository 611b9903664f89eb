"""What a Predictor answers when it was fine-tuned for a task: the methods that the tasks give it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from unmask.errors import UserError
from unmask.serve.engine import Engine
from unmask.serve.progress import Update, shown
from unmask.tasks import asking
from unmask.tasks.task import Task

Answer = dict[str, Any]


class TaskMethods:
    engine: Engine
    task: Task | None

    def __call__(self, *parts: Any) -> Any:
        """The answer of a fine-tuned model to what its task asks: a text, a text and its pair, a question and a passage …

        A dict is a record; a list of texts or records gives a list of answers.
        """
        if len(parts) == 1 and isinstance(parts[0], list):
            return self.predict(parts[0])
        return self.predict([parts[0] if len(parts) == 1 else parts])[0]

    def predict(self, records: Iterable[Any], update: Update | None = None) -> list[Answer]:
        """Answers to many records or texts, in their order."""
        task = self.need_task()
        given = asking.records(task, records)
        with shown(update) as tell:
            return task.answer(self.engine, given, tell)

    def classify(self, text: str | Iterable[str], pair: str | Iterable[str] | None = None) -> Any:
        """The label of a text, or of a text and its pair, with probabilities; a list of answers for lists."""
        if not _many(text):
            return self._ask("classify", text) if pair is None else self._ask("classify", text, pair)
        self.need_task("classify")
        if pair is None:
            return self.predict(text)
        texts, pairs = list(text), list(pair) if _many(pair) else []
        if len(texts) != len(pairs):
            raise UserError("texts and pairs that do not go together", valid="two texts, or two lists of one length")
        return self.predict(zip(texts, pairs))

    def tag(self, text: str | Iterable[str]) -> Any:
        """Entities, or parts of speech: {"entities", "tags", "words"}, with places in the text as it was given."""
        if not _many(text):
            return self._ask("tag", text)
        self.need_task("tag")
        return self.predict(text)

    def answer(self, question: str, context: str) -> Answer:
        """The span of the context that answers the question; "" when there is none."""
        return self._ask("answer", question, context)

    def choose(self, text: str, choices: Sequence[str], context: str = "") -> Answer:
        """Which of the choices goes with the text, and how likely each is."""
        return self._ask("choose", text, _listed(choices, "choices"), context)

    def rank(self, query: str, passages: Sequence[str]) -> list[Answer]:
        """The passages by how well they answer the query, best first: [{"index", "score", "text"}]."""
        listed = _listed(passages, "passages")
        found = self._ask("rank", query, listed)
        return [{"index": i, "score": found["scores"][i], "text": listed[i]} for i in found["order"]]

    def need_task(self, name: str | None = None) -> Task:
        """The task that the model was fine-tuned for; an error when it was not, or not for the one that is named."""
        if self.task is None:
            raise UserError(
                f"this model is not fine-tuned for a task; its heads: {', '.join(self.engine.heads) or 'none'}",
                fix="unmask finetune MODEL --train FILE",
            )
        if name is not None and self.task.name != name:
            raise UserError(
                f"this model is fine-tuned for the task {self.task.name}, not for {name}",
                fix=f"unmask finetune MODEL --task {name} --train FILE",
            )
        return self.task

    def _ask(self, name: str, *parts: Any) -> Answer:
        self.need_task(name)
        return self.predict([parts])[0]


def _many(text: Any) -> bool:
    return isinstance(text, Iterable) and not isinstance(text, str | bytes | dict)


def _listed(texts: Any, what: str) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"the {what} are {type(texts).__name__}: {texts!r:.60}", valid="a list of texts")
    return list(texts)
