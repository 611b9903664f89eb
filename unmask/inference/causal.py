"""What a model answers that predicts the next token: continuations, and how likely a text is from left to right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference.answers import Continuation
from unmask.inference.inputs import describe_item
from unmask.inference.progress import Update, progress_callback
from unmask.model.generate import generate
from unmask.tasks.task import Outputs, Task

if TYPE_CHECKING:
    from unmask.inference.engine import Engine
    from unmask.inference.reader import Reader
    from unmask.text.tokenizer import Tokenizer


def prompt(engine: Engine, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """As rows are in training: what begins a text, the text, and for an encoder–decoder what ends it."""
    begin = [] if tokenizer.cls in (None, tokenizer.sep) else [int(tokenizer.cls or 0)]
    if engine.config.decoder_layers:
        return [*begin, *ids, tokenizer.sep]
    return [*begin, *ids] or [tokenizer.sep]  # GPT-2 has one token for both: nothing to go on from is an end


def continuations(
    engine: Engine, reader: Reader, texts: list[str], update: Update | None = None, **settings: Any
) -> list[Continuation]:
    rows = [prompt(engine, reader.tokenizer, encoding.ids) for encoding in reader.encode(texts)]
    with progress_callback(update) as tell:
        made = generate(engine, rows, update=tell, **settings)
    return [_continuation(engine, reader.tokenizer, *parts) for parts in zip(texts, rows, made, strict=True)]


def answers(
    engine: Engine, task: Task, texts: list[str], update: Update | None = None, **settings: Any
) -> list[Continuation]:
    """What a model writes that is fine-tuned to: with its prefix, its separator and, where none are given, its settings."""
    prompts, t = [task_prompt(task, text) for text in texts], task.tokenizer
    for number, prompt in enumerate(prompts):
        if prompt.metadata:
            raise UserError(
                f"{describe_item(texts, number)} is {prompt.metadata:,} tokens too long; nothing is cut off silently",
                hint="unmask predict cuts it at its end, and says so",
            )
    own = {k: v for k, v in task.bound.generation.items() if not (settings.get("max_length") and k == "max_new_tokens")}
    how = own | {k: v for k, v in settings.items() if v is not None}
    with progress_callback(update) as tell:
        made = generate(engine, [prompt.input_ids.tolist() for prompt in prompts], update=tell, **how)
    return [
        Continuation(
            text, task_text(task, prompt, new)["output"], [t.token(i) for i in new], finish_reason(t, new), False
        )
        for text, prompt, new in zip(texts, prompts, made, strict=True)
    ]


def task_prompt(task: Task, text: str) -> Example:
    """What a model reads that is fine-tuned to write; `about`: tokens at the text's end that had no room."""
    return task.encode({task.spec.inputs[0].key: text}, labeled=False)[0]


def task_target(task: Task, text: str, target: str) -> list[int]:
    """The tokens of what it should write, as it learnt them: the end too."""
    field = next(f for f in task.spec.fields if f.use == "target")
    (row,) = task.encode({task.spec.inputs[0].key: text, field.key: target})
    return row.labels[f"{task.spec.terms[0]}.targets"].tolist()


def task_text(task: Task, prompt: Example, new: Sequence[int]) -> dict[str, Any]:
    """Its prediction, once these tokens are written."""
    return task.decode(Outputs([np.array(new, np.int64)], [prompt], np.zeros(1, np.int64)))[0]


def unseen(engine: Engine, tokenizer: Tokenizer) -> set[int | None]:
    """Tokens that are not part of what is written."""
    return {tokenizer.pad, tokenizer.cls, tokenizer.sep, engine.config.start_id}


def finish_reason(tokenizer: Tokenizer, new: Sequence[int]) -> str:
    return "eos" if new and new[-1] == tokenizer.sep else "length"


def _continuation(engine: Engine, tokenizer: Tokenizer, text: str, row: list[int], new: list[int]) -> Continuation:
    silent = unseen(engine, tokenizer)
    progress_callback = [
        i for i in new if i not in silent
    ]  # sentinels and the user's own special tokens are part of the answer
    if engine.config.decoder_layers:
        written = tokenizer.decode(progress_callback).strip()
    else:  # decoded together, as the pieces may join the prompt's last word
        before = tokenizer.decode([i for i in row if i not in silent])
        whole = tokenizer.decode([i for i in [*row, *new] if i not in silent])
        written = whole[len(before) :] if whole.startswith(before) else tokenizer.decode(progress_callback)
    return Continuation(
        text,
        written,
        [tokenizer.token(i) for i in new],
        finish_reason(tokenizer, new),
        not engine.config.decoder_layers,
    )


def log_likelihoods(engine: Engine, tokenizer: Tokenizer, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each text, the logarithm of every token's probability after those before it; the first comes after [CLS],
    or where there is none, after the token that ends a text. An encoder that sees both sides is given the causal mask."""
    head, prefix = ("lm", None) if engine.config.causal else ("mlm", 0)
    first = tokenizer.sep if tokenizer.cls is None else tokenizer.cls
    rows = []
    for ids in texts:
        labels = {"mlm.positions": np.arange(1, len(ids) + 1), "mlm.targets": np.array(ids, np.int64)}
        rows.append(Example(np.array([first, *ids], np.int64), prefix_length=prefix, labels=labels))
    return engine.token_logprobs(head, rows)
