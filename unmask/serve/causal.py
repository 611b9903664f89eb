"""What a model answers that predicts the next token: continuations, and how likely a text is from left to right."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from unmask.batch import Example, collate, groups
from unmask.data.tokenizer import Tokenizer
from unmask.errors import UserError
from unmask.model.generate import generate
from unmask.model.model import Model
from unmask.serve.answers import Continuation
from unmask.serve.texts import which
from unmask.tasks.generate import Generate

AT_ONCE = 512  # positions whose vocabulary logits exist at a time


def prompt(model: Model, tokenizer: Tokenizer, ids: Sequence[int]) -> list[int]:
    """As rows are in training: what begins a text, the text, and for an encoder–decoder what ends it."""
    begin = [] if tokenizer.cls in (None, tokenizer.sep) else [int(tokenizer.cls or 0)]
    if model.decoder is not None:
        return [*begin, *ids, tokenizer.sep]
    return [*begin, *ids] or [tokenizer.sep]  # GPT-2 has one token for both: nothing to go on from is an end


def continuations(
    model: Model, tokenizer: Tokenizer, texts: list[str], rows: list[list[int]], **settings: Any
) -> list[Continuation]:
    """`rows`: the texts' tokens, as `prompt` makes them."""
    made = generate(model, rows, **settings)
    return [_continuation(model, tokenizer, *parts) for parts in zip(texts, rows, made, strict=True)]


def answers(model: Model, task: Generate, texts: list[str], **settings: Any) -> list[Continuation]:
    """What a model writes that is fine-tuned to: with its prefix, its separator and, where none are given, its settings."""
    rows, t = [], task.tokenizer
    for number, text in enumerate(texts):
        row, cut = task.prompt({"text": text})
        if cut:
            raise UserError(
                f"{which(texts, number)} is {cut:,} tokens too long; nothing is cut off silently",
                fix="unmask predict cuts it at its end, and says so",
            )
        rows.append(row)
    own = {k: v for k, v in task.how.items() if not (settings.get("max_length") and k == "max_new_tokens")}
    made = generate(model, rows, **(own | {k: v for k, v in settings.items() if v is not None}))
    return [
        Continuation(text, task.write(new), [t.token(i) for i in new], new[-1:] == [t.sep], False)
        for text, new in zip(texts, made, strict=True)
    ]


def _continuation(model: Model, tokenizer: Tokenizer, text: str, row: list[int], new: list[int]) -> Continuation:
    unseen = {tokenizer.pad, tokenizer.cls, tokenizer.sep, model.config.start_id}
    shown = [i for i in new if i not in unseen]  # sentinels and the user's own special tokens are part of the answer
    if model.decoder is not None:
        written = tokenizer.decode(shown).strip()
    else:  # decoded together, as the pieces may join the prompt's last word
        before = tokenizer.decode([i for i in row if i not in unseen])
        whole = tokenizer.decode([i for i in [*row, *new] if i not in unseen])
        written = whole[len(before) :] if whole.startswith(before) else tokenizer.decode(shown)
    ended = bool(new) and new[-1] == tokenizer.sep
    return Continuation(text, written, [tokenizer.token(i) for i in new], ended, model.decoder is None)


@torch.inference_mode()
def log_likelihoods(model: Model, tokenizer: Tokenizer, texts: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """For each text, the logarithm of every token's probability after those before it; the first comes after [CLS],
    or where there is none, after the token that ends a text. An encoder that sees both sides is given the causal mask."""
    head, prefix = ("lm", None) if model.config.causal else ("mlm", 0)
    first = tokenizer.sep if tokenizer.cls is None else tokenizer.cls
    out = [np.empty(0)] * len(texts)
    device = model.embedding.device
    for group in groups([len(ids) + 1 for ids in texts]):
        rows = [Example(np.array([first, *texts[i]], np.int64), prefix=prefix) for i in group]
        batch = collate(rows, tokenizer.pad).to(device)
        hidden = model.encode(batch)
        for i, states, ids in zip(group, hidden, batch.ids, strict=True):
            n = len(texts[i])
            parts = []
            for some, targets in zip(states[:n].split(AT_ONCE), ids[1 : n + 1].split(AT_ONCE), strict=True):
                logprobs = model.logits(head, some).float().log_softmax(-1)
                parts.append(logprobs.gather(1, targets[:, None])[:, 0].cpu().numpy())
            out[i] = np.concatenate(parts)
    return out
