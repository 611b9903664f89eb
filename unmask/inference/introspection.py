"""How a Predictor lets one look inside its model: attention, and which words made an answer. Both need torch."""

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

STEPS = 50  # forward and backward passes of an explanation


class IntrospectionMixin:
    engine: Engine
    reader: Reader
    task: Task | None
    warn_if_unknown: Callable[[Any], None]

    @property
    def model(self) -> Model:
        """torch's module, where torch is what computes."""
        return self._torch("the module").model

    @overload
    def attention(self, text: str, pair: str | None = None) -> Attention: ...  # type: ignore[overload-overlap]
    @overload
    def attention(self, text: Iterable[str], pair: Iterable[str] | None = None) -> list[Attention]: ...
    def attention(
        self, text: str | Iterable[str], pair: str | Iterable[str] | None = None
    ) -> Attention | list[Attention]:
        """How much each token takes from each other, in every layer and head."""
        engine = self._torch("attention")
        if not isinstance(text, str):
            texts = as_texts(text)
            pairs: Sequence[str | None] = [None] * len(texts) if pair is None else as_texts(pair)
            if len(texts) != len(pairs):
                raise UserError(f"{len(texts)} texts and {len(pairs)} pairs", expected="as many of each")
            return [self.attention(a, b) for a, b in zip(texts, pairs)]
        if pair is not None and not isinstance(pair, str):
            raise UserError("one text and a list of pairs", expected="two texts, or two lists of one length")
        texts = as_texts([text] if pair is None else [text, pair])
        self.warn_if_unknown(texts)
        example, tokens = self.reader.encode_row(texts)
        return Attention(tokens, engine.attention(example))

    def explain(self, *parts: Any, target: str | None = None, steps: int = STEPS) -> Any:
        """Which tokens made the model answer as it does: to what its task asks, at a [MASK], when it writes, or of
        two texts' likeness.

        `target`: another label, tag (WORD=TAG), answer, choice, passage or word than the model's own. See explain.py.
        An Explanation; a list of questions (texts, tuples of parts, or records) gives a list of them.
        """
        engine = self._torch("explain")
        from unmask.inference.explain import explain

        self.warn_if_unknown(parts)

        if len(parts) == 1 and is_batch(parts[0]) and not isinstance(parts[0], tuple):
            questions = [part if isinstance(part, tuple) else (part,) for part in parts[0]]
            return [explain(engine, self.reader, self.task, each, target, steps) for each in questions]
        return explain(engine, self.reader, self.task, parts, target, steps)

    def _torch(self, method: str) -> TorchEngine:
        if self.engine.kind != "torch":
            raise UserError(
                f"{method} of a model loaded with backend {self.engine.kind}", hint='load(…, backend="torch")'
            )
        engine: Any = self.engine
        return engine
