"""Log-probability of each token of a text.

| method | a token is conditioned on |
|---|---|
| pll | all other tokens (pseudo-log-likelihood, Salazar et al. 1910.14659) |
| within-word | all other tokens except the later subwords of its word, which reveal it (Kauf & Ivanova 2305.10588) |
| left-to-right | the tokens before it; always used for a model that predicts the next token |
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

import numpy as np
from tokenizers import Encoding

from unmask.batch import Example
from unmask.errors import UserError
from unmask.inference import causal
from unmask.inference.answers import Score, TokenScore
from unmask.inference.engine import Engine
from unmask.inference.inputs import describe_item, shorten
from unmask.inference.progress import Update, map_in_chunks
from unmask.inference.reader import Overflow, Reader
from unmask.text.token_text import display_token, is_ideograph
from unmask.text.tokenizer import Tokenizer

SURPRISAL_THRESHOLD = 1.5  # standard deviations below the mean of the text
Method = Literal["pll", "within-word"]


def is_left_to_right(engine: Engine) -> bool:
    """Return whether the model predicts the next token."""
    return "lm" in engine.heads if engine.config.causal else engine.config.logit_position == "next"


def score(
    engine: Engine,
    reader: Reader,
    texts: list[str],
    method: Method = "pll",
    overflow: Overflow = "error",
    update: Update | None = None,
) -> list[Score]:
    if method not in get_args(Method):
        raise UserError(f"invalid method {method!r}", expected=", ".join(get_args(Method)))
    t, left_to_right = reader.tokenizer, is_left_to_right(engine)
    encodings, scored = reader.encode(texts, overflow), []  # scored: positions of each text
    for number, encoding in enumerate(encodings):
        if t.mask in encoding.ids and not left_to_right:
            raise UserError(
                f"a mask in {describe_item(texts, number)}: a masked word has no score",
                hint=f'unmask fill MODEL "{shorten(texts[number])}"',
            )
        scored.append([i for i, id in enumerate(encoding.ids) if id == t.unk or not t.special[id]])
        if not scored[-1]:
            raise UserError(f"no word in {describe_item(texts, number)}: {shorten(texts[number])!r}")
    if left_to_right:
        all_logprobs = _causal_logprobs(engine, reader, [encoding.ids for encoding in encodings], update)
        logprobs = [values[positions] for values, positions in zip(all_logprobs, scored)]
    else:
        by_word = method == "within-word"
        ends = [word_ends(e, texts[n]) if by_word else range(1, len(e) + 1) for n, e in enumerate(encodings)]
        spans = [MaskedSpan(n, i, ends[n][i]) for n, positions in enumerate(scored) for i in positions]
        lengths = [min(len(encodings[span.text]), reader.max_text_tokens) for span in spans]
        values = map_in_chunks(spans, lengths, lambda chunk: _masked_logprobs(engine, reader, encodings, chunk), update)
        logprobs = np.split(np.array(values), np.cumsum([len(positions) for positions in scored])[:-1])
    name = "left-to-right" if left_to_right else method
    return [_score(t, name, *parts) for parts in zip(texts, encodings, scored, logprobs)]


class MaskedSpan(NamedTuple):
    """Tokens [first, end) of a text that are masked while the first of them is scored."""

    text: int  # index
    first: int
    end: int


def word_ends(encoding: Encoding, text: str) -> list[int]:
    """Return for each token the end of its word, in tokens. Words are those of the tokenizer (transformers' `word_ids`).

    If each character is a token, a word is a run of letters and digits.
    """
    ids, n = encoding.word_ids, len(encoding)
    by_character = len(set(ids)) == n and all(end - start <= 1 for start, end in encoding.offsets)
    out = list(range(1, n + 1))
    for i in range(n - 2, -1, -1):
        if by_character:
            (a, b), (c, d) = encoding.offsets[i : i + 2]
            same_word = b == c and all(x.isalnum() and not is_ideograph(x) for x in (text[a:b], text[c:d]))
        else:
            same_word = ids[i] is not None and ids[i] == ids[i + 1]
        if same_word:
            out[i] = out[i + 1]
    return out


def _masked_logprobs(engine: Engine, reader: Reader, encodings: list[Encoding], spans: list[MaskedSpan]) -> list[float]:
    """Return the log-probability of the first token of each span. A long text is read in a window around it."""
    rows: list[Example] = []
    for span in spans:
        ids = encodings[span.text].ids
        start, end = reader.window(len(ids), span.first, span.first + 1, 0, "the text", "window")
        row = reader.row(ids[start:end], positions=[span.first - start])
        position = int(row.labels["mlm.positions"][0])
        row.labels["mlm.targets"] = row.input_ids[[position]]
        row.input_ids[position : min(position + span.end - span.first, len(row) - 1)] = reader.tokenizer.mask
        rows.append(row)
    return [float(values[0]) for values in engine.token_logprobs("mlm", rows)]


def _causal_logprobs(engine: Engine, reader: Reader, texts: list[list[int]], update: Update | None) -> list[np.ndarray]:
    """Return (T,) per text. A long text is read in overlapping windows: a token has at least half a window of context."""
    windows: list[tuple[int, list[int], int]] = []  # index of the text, tokens, how many of them are already scored
    for number, ids in enumerate(texts):
        start = done = 0
        while done < len(ids):
            end = min(len(ids), start + reader.max_text_tokens)
            windows.append((number, ids[start:end], done - start))
            done, start = end, end - reader.max_text_tokens // 2
    rows = [ids for _, ids, _ in windows]
    logprobs = map_in_chunks(
        rows,
        [len(ids) for ids in rows],
        lambda some: causal.next_token_logprobs(engine, reader.tokenizer, some),
        update,
    )
    parts: list[list[np.ndarray]] = [[] for _ in texts]
    for (number, _, done), values in zip(windows, logprobs):
        parts[number].append(values[done:])
    return [np.concatenate(values) for values in parts]


def _score(
    t: Tokenizer, method: str, text: str, encoding: Encoding, positions: list[int], logprobs: np.ndarray
) -> Score:
    threshold = float(logprobs.mean() - SURPRISAL_THRESHOLD * logprobs.std())
    per_token = []
    for i, logprob in zip(positions, logprobs.tolist()):
        id, (start, end) = encoding.ids[i], encoding.offsets[i]
        per_token.append(TokenScore(display_token(t, id), id, logprob, start, end, logprob < threshold))
    total, perplexity = float(logprobs.sum()), float(np.exp(-logprobs.mean()))
    return Score(text, total, perplexity, per_token, method != "left-to-right", method)
