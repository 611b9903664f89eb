"""Text generation, and log-probabilities from left to right, for models that predict the next token."""

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


def build_prompt(engine: Engine, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """Add the special tokens of training: [CLS] before the text, and for an encoder–decoder [SEP] after it."""
    start = [] if tokenizer.cls in (None, tokenizer.sep) else [int(tokenizer.cls or 0)]
    if engine.config.decoder_layers:
        return [*start, *ids, tokenizer.sep]
    return [*start, *ids] or [tokenizer.sep]  # GPT-2 has one token for start and end; it continues an empty text


def generate_continuations(
    engine: Engine, reader: Reader, texts: list[str], update: Update | None = None, **settings: Any
) -> list[Continuation]:
    prompts = [build_prompt(engine, reader.tokenizer, encoding.ids) for encoding in reader.encode(texts)]
    with progress_callback(update) as report:
        generated = generate(engine, prompts, update=report, **settings)
    return [_continuation(engine, reader.tokenizer, *parts) for parts in zip(texts, prompts, generated, strict=True)]


def generate_task_outputs(
    engine: Engine, task: Task, texts: list[str], update: Update | None = None, **settings: Any
) -> list[Continuation]:
    """Generate with a model fine-tuned for it: with the task's prefix and separator, and its settings as defaults."""
    prompts, t = [encode_task_prompt(task, text) for text in texts], task.tokenizer
    for number, prompt in enumerate(prompts):
        if prompt.metadata:
            raise UserError(
                f"{describe_item(texts, number)} is {prompt.metadata:,} tokens too long for the model",
                hint="shorten it, or run unmask predict, which truncates it with a warning",
            )
    defaults = dict(task.bound.generation)
    if settings.get("max_length"):
        defaults.pop("max_new_tokens", None)
    options = defaults | {name: value for name, value in settings.items() if value is not None}
    with progress_callback(update) as report:
        generated = generate(engine, [prompt.input_ids.tolist() for prompt in prompts], update=report, **options)
    return [
        Continuation(
            text,
            decode_task_output(task, prompt, ids)["output"],
            [t.token(i) for i in ids],
            finish_reason(t, ids),
            False,
        )
        for text, prompt, ids in zip(texts, prompts, generated, strict=True)
    ]


def encode_task_prompt(task: Task, text: str) -> Example:
    """Encode the input of a generation task. `metadata` is the number of tokens truncated at the end."""
    return task.encode({task.spec.inputs[0].key: text}, labeled=False)[0]


def encode_task_target(task: Task, text: str, target: str) -> list[int]:
    """Return the target tokens as in training, including the end-of-sequence token."""
    field = next(f for f in task.spec.fields if f.use == "target")
    (row,) = task.encode({task.spec.inputs[0].key: text, field.key: target})
    return row.labels[f"{task.spec.terms[0]}.targets"].tolist()


def decode_task_output(task: Task, prompt: Example, ids: Sequence[int]) -> dict[str, Any]:
    """Return the prediction for generated tokens."""
    return task.decode(Outputs([np.array(ids, np.int64)], [prompt], np.zeros(1, np.int64)))[0]


def non_text_ids(engine: Engine, tokenizer: Tokenizer) -> set[int | None]:
    """Return the special tokens that are not part of generated text. Sentinels and the user's special tokens are part of it."""
    return {tokenizer.pad, tokenizer.cls, tokenizer.sep, engine.config.start_id}


def finish_reason(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return "eos" if ids and ids[-1] == tokenizer.sep else "length"


def _continuation(engine: Engine, tokenizer: Tokenizer, text: str, prompt: list[int], ids: list[int]) -> Continuation:
    has_decoder, skipped = engine.config.decoder_layers > 0, non_text_ids(engine, tokenizer)

    def decode(ids: list[int]) -> str:
        return tokenizer.decode([i for i in ids if i not in skipped])

    if has_decoder:
        generated = decode(ids).strip()
    else:  # decoded with the prompt, because the first new token may continue the prompt's last word
        before, full_text = decode(prompt), decode([*prompt, *ids])
        generated = full_text[len(before) :] if full_text.startswith(before) else decode(ids)
    tokens = [tokenizer.token(i) for i in ids]
    return Continuation(text, generated, tokens, finish_reason(tokenizer, ids), not has_decoder)


def next_token_logprobs(engine: Engine, tokenizer: Tokenizer, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Return (T,) per text: the log-probability of each token given the tokens before it.

    The first token is conditioned on [CLS], or on the end-of-text token if there is no [CLS]. A bidirectional encoder gets a
    causal mask.
    """
    head, prefix_length = ("lm", None) if engine.config.causal else ("mlm", 0)
    first = tokenizer.sep if tokenizer.cls is None else tokenizer.cls
    rows = []
    for ids in texts:
        labels = {"mlm.positions": np.arange(1, len(ids) + 1), "mlm.targets": np.array(ids, np.int64)}
        rows.append(Example(np.array([first, *ids], np.int64), prefix_length=prefix_length, labels=labels))
    return engine.token_logprobs(head, rows)
