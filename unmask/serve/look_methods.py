"""How a Predictor lets one look inside its model: attention, and which words made an answer. Both need torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unmask.errors import UserError
from unmask.serve.answers import Attention, Explanation
from unmask.serve.engine import Engine
from unmask.serve.reader import Reader
from unmask.serve.texts import several
from unmask.tasks.task import Task

if TYPE_CHECKING:
    from unmask.model.model import Model
    from unmask.serve.torch_engine import TorchEngine

STEPS = 50  # forward and backward passes of an explanation


class LookMethods:
    engine: Engine
    reader: Reader
    task: Task | None

    @property
    def model(self) -> Model:
        """torch's module, where torch is what computes."""
        return self._torch("the module").model

    def attention(self, text: str, pair: str | None = None) -> Attention:
        """How much each token takes from each other, in every layer and head."""
        engine = self._torch("attention")
        example, tokens = self.reader.whole(several([text] if pair is None else [text, pair]))
        return Attention(tokens, engine.attention(example))

    def explain(self, *parts: Any, target: str | None = None, steps: int = STEPS) -> Explanation:
        """Which tokens made the model answer as it does: to what its task asks, at a [MASK], or of two texts' likeness.

        `target`: another label, tag (WORD=TAG), answer, choice, passage or word than the model's own. See explain.py.
        """
        engine = self._torch("explain")
        from unmask.serve.explain import explain

        return explain(engine, self.reader, self.task, parts, target, steps)

    def _torch(self, method: str) -> TorchEngine:
        if self.engine.kind != "torch":
            raise UserError(
                f"{method} of a model loaded with backend {self.engine.kind}", fix='load(…, backend="torch")'
            )
        engine: Any = self.engine
        return engine
