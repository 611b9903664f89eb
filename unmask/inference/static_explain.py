"""Token attributions of a static model. They are exact, because its output is a sum over the tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unmask.errors import UserError
from unmask.inference.answers import Attribution, Explanation, Token
from unmask.inference.reader import Reader
from unmask.inference.static_engine import StaticEngine
from unmask.tasks import inputs
from unmask.tasks.task import Task
from unmask.text.token_text import display_token


def explain(
    engine: StaticEngine, reader: Reader, task: Task, parts: Sequence[Any], target: str | None, steps: int
) -> Explanation:
    """Explain an output of one text. `steps` belongs to integrated gradients and is not used."""
    if engine.pairs:
        raise UserError(
            "explain is not available for a static model of text pairs: it multiplies the vectors of the two texts",
            hint="explain the model that it was exported from",
        )
    record = inputs.check_record(task.spec, parts[0] if len(parts) == 1 else tuple(parts), 1)
    outputs = task.compute_outputs(engine, [record])
    selected = task.explain_target(outputs, record, target)
    example, output = outputs.examples[selected.row], selected.indices[0][0]
    scores = engine.contributions(example, output)
    value, bias = float(outputs.values[selected.row][output]), float(engine.weights.bias[output])
    tokens = [
        Attribution(k.token, k.start, k.end, k.segment, float(score))
        for k, score in zip(_tokens(reader, example), scores)
    ]
    delta = float(scores.sum()) - (value - bias)
    return Explanation(tokens, selected.name, value, bias, "contribution of each token to the output", delta)


def _tokens(reader: Reader, example: Any) -> list[Token]:
    """Return the tokens of a row, with offsets if the row has its texts."""
    if example.texts:
        row, tokens = reader.encode_row(example.texts)
        if row.input_ids.tolist() == example.input_ids.tolist():
            return tokens
    return [Token(display_token(reader.tokenizer, id), 0, 0, 0) for id in example.input_ids.tolist()]
