"""Methods of a Predictor for the tasks that a model is fine-tuned for."""

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
        """Return the prediction for the inputs of the task: a text, a text and its pair, a question and a passage, …

        A dict is a record. A list of texts or records returns a list of predictions.
        """
        if len(parts) == 1 and isinstance(parts[0], list):
            return self.predict(parts[0])
        return self.predict([parts[0] if len(parts) == 1 else parts])[0]

    def predict(
        self, records: Iterable[Any], update: Update | None = None, overflow: str | None = None
    ) -> list[Prediction]:
        """Return the predictions for texts or records, in order.

        `overflow` for texts longer than max_length: "window" (split and aggregate), "truncate" or "error". Default: as in training.
        """
        return predict(self, records, update, overflow).predictions

    def __getattr__(self, name: str) -> Any:
        """Return a method for a third-party task, named like the task. It takes the inputs of the task."""
        if name.startswith("_") or name not in TASKS.names():
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return partial(self._predict_task, name)

    # The methods below return one prediction, or a list of predictions for lists.

    def classify(self, text: Texts, pair: Texts | None = None, overflow: str | None = None) -> Any:
        """Return the label of a text, or of a text and its pair, with probabilities."""
        return self._predict_task("classify", *(text,) if pair is None else (text, pair), overflow=overflow)

    def tag(self, text: Texts, overflow: str | None = None, predicate: Any = None) -> Any:
        """Return entities or tags of words: {"entities", "tags", "words"}, with character offsets into the text.

        `predicate`, for semantic roles: a word of the text, `run#2` for its second occurrence, or [start, end]. For a list of texts,
        it applies to all of them.
        """
        self.require_task("tag")
        if predicate is None:
            return self._predict_task("tag", text, overflow=overflow)
        if not is_batch(text):
            return self.predict([{"text": text, "predicate": predicate}], overflow=overflow)[0]
        return self.predict([{"text": item, "predicate": predicate} for item in text], overflow=overflow)

    def answer(self, question: Texts, context: Texts, overflow: str | None = None) -> Any:
        """Return the span of the context that answers the question, or "" if there is none."""
        return self._predict_task("answer", question, context, overflow=overflow)

    def choose(self, text: Texts, choices: Sequence[Any], context: Texts | None = None) -> Any:
        """Return the best choice for the text, with probabilities. A list of texts needs a list of choices for each."""
        if not is_batch(text):
            return self._predict_task("choose", text, _as_list(choices, "choices"), context or "")
        texts = list(text)
        choice_lists = [_as_list(item, "choices") for item in choices]
        return self._predict_task("choose", texts, choice_lists, [""] * len(texts) if context is None else context)

    def rank(self, query: Texts, passages: Sequence[Any]) -> Any:
        """Return the passages, most relevant first: [{"index", "score", "text"}]. A list of queries needs passages for each."""
        if not is_batch(query):
            single: Any = query
            return self.rank([single], [passages])[0]
        passage_lists = [_as_list(item, "passages") for item in passages]
        return [
            [{"index": i, "score": prediction["scores"][i], "text": texts[i]} for i in prediction["order"]]
            for prediction, texts in zip(self._predict_task("rank", query, passage_lists), passage_lists)
        ]

    def require_task(self, name: str | None = None) -> Task:
        """Return the task of the model. Raise UserError if it is not fine-tuned, or not for the task `name`."""
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
        """Return the task if its predictions have the format of a hub pipeline ("text-ranking"), else raise UserError."""
        task = self.require_task()
        if task.SPEC.usage.served_pipeline == name:
            return task
        return self.require_task(task_for(name))

    def _predict_task(self, name: str, *parts: Any, overflow: str | None = None) -> Any:
        self.require_task(name)
        if not is_batch(parts[0]):
            return self.predict([parts], overflow=overflow)[0]
        columns = [list(part) if is_batch(part) else [] for part in parts]
        if len({len(column) for column in columns}) > 1:
            counts = ", ".join(f"{len(c):,}" if is_batch(p) else "one text" for c, p in zip(columns, parts))
            raise UserError(f"inputs of different lengths: {counts}", expected="lists of the same length")
        return self.predict(columns[0] if len(columns) == 1 else zip(*columns), overflow=overflow)


def task_for(pipeline: str) -> str:
    """Return the task with the format of a hub pipeline, or the name of the pipeline if there is none."""
    specs: dict[str, Any] = all_specs()
    return next((name for name, spec in specs.items() if spec.usage.served_pipeline == pipeline), pipeline)


def _as_list(texts: Any, name: str) -> list[str]:
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise UserError(f"the {name} are {type(texts).__name__}: {texts!r:.60}", expected="a list of texts")
    return list(texts)
