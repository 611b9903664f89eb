"""Methods of a Predictor that inspect the model: attention weights and token attributions. Both need torch, except for the
attributions of a static model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, overload

from unmask.errors import UserError
from unmask.inference.answers import Attention
from unmask.inference.engine import Engine
from unmask.inference.inputs import as_texts, is_batch
from unmask.inference.reader import Reader
from unmask.tasks.task import Task

if TYPE_CHECKING:
    from unmask.inference.torch_engine import TorchEngine
    from unmask.model.model import Model

STEPS = 50  # steps of integrated gradients; each is a forward and a backward pass


class IntrospectionMixin:
    engine: Engine
    reader: Reader
    task: Task | None
    warn_if_unknown: Callable[[Any], None]

    @property
    def model(self) -> Model:
        """Return the torch module."""
        return self._torch("model").model

    @overload
    def attention(self, text: str, pair: str | None = None) -> Attention: ...  # type: ignore[overload-overlap]
    @overload
    def attention(self, text: Iterable[str], pair: Iterable[str] | None = None) -> list[Attention]: ...
    def attention(
        self, text: str | Iterable[str], pair: str | Iterable[str] | None = None
    ) -> Attention | list[Attention]:
        """Return the attention weights between all tokens, of every layer and head."""
        engine = self._torch("attention")
        if not isinstance(text, str):
            texts = as_texts(text)
            pairs: Sequence[str | None] = [None] * len(texts) if pair is None else as_texts(pair)
            if len(texts) != len(pairs):
                raise UserError(f"{len(texts)} texts and {len(pairs)} pairs", expected="the same number of each")
            return [self.attention(a, b) for a, b in zip(texts, pairs)]
        if pair is not None and not isinstance(pair, str):
            raise UserError("one text, but a list of pairs", expected="two texts, or two lists of the same length")
        texts = as_texts([text] if pair is None else [text, pair])
        self.warn_if_unknown(texts)
        example, tokens = self.reader.encode_row(texts)
        return Attention(tokens, engine.attention(example))

    def explain(self, *parts: Any, target: str | None = None, steps: int = STEPS) -> Any:
        """Return an Explanation: the contribution of each token to a task's prediction, to the word at a [MASK], to generated
        text, or to the similarity of two texts. A list of inputs (texts, tuples or records) returns a list.

        `target`: a label, tag (WORD=TAG), answer, choice, passage or word to explain instead of the predicted one. See explain.py.
        """
        explain: Callable[..., Any]
        if self.engine.kind == "static":
            from unmask.inference.static_explain import explain

            engine: Any = self.engine
        else:
            engine = self._torch("explain")
            from unmask.inference.explain import explain
        self.warn_if_unknown(parts)

        if len(parts) == 1 and is_batch(parts[0]) and not isinstance(parts[0], tuple):
            items = [item if isinstance(item, tuple) else (item,) for item in parts[0]]
            return [explain(engine, self.reader, self.task, item, target, steps) for item in items]
        return explain(engine, self.reader, self.task, parts, target, steps)

    def _torch(self, method: str) -> TorchEngine:
        if self.engine.kind != "torch":
            raise UserError(
                f"{method} is not available with backend {self.engine.kind}",
                hint='load the folder it was exported from: unmask.load(folder, backend="torch")',
            )
        engine: Any = self.engine
        return engine
