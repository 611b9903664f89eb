"""score: how likely each token of a text is, so that an odd word stands out.

| method | what a token's probability is given |
|---|---|
| pll | all other tokens (pseudo-log-likelihood, Salazar et al. 1910.14659) |
| within-word | all others but the later pieces of its own word, which give it away (Kauf & Ivanova 2305.10588) |
| left-to-right | the tokens before it: the only way of a model that predicts the next token |
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

SURPRISAL_THRESHOLD = 1.5  # standard deviations below a text's mean at which a token is called odd
Method = Literal["pll", "within-word"]


def is_left_to_right(engine: Engine) -> bool:
    """Whether the model scores a token by those before it alone."""
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
        raise UserError(f"method {method!r}", expected=", ".join(get_args(Method)))
    t, left = reader.tokenizer, is_left_to_right(engine)
    encodings, where = reader.encode(texts, overflow), []
    for number, encoding in enumerate(encodings):
        if t.mask in encoding.ids and not left:
            raise UserError(
                f"a mask in {describe_item(texts, number)}: a hidden word has no score",
                hint=f'unmask fill MODEL "{shorten(texts[number])}"',
            )
        where.append([i for i, id in enumerate(encoding.ids) if id == t.unk or not t.special[id]])
        if not where[-1]:
            raise UserError(f"no word in {describe_item(texts, number)}: {shorten(texts[number])!r}")
    if left:
        known = _causal_logprobs(engine, reader, [encoding.ids for encoding in encodings], update)
        parts = [logprobs[positions] for logprobs, positions in zip(known, where)]
    else:
        ends = [
            word_ends(e, texts[n]) if method == "within-word" else range(1, len(e) + 1) for n, e in enumerate(encodings)
        ]
        hidden = [Hidden(n, i, ends[n][i]) for n, positions in enumerate(where) for i in positions]
        lengths = [min(len(encodings[h.text]), reader.max_text_tokens) for h in hidden]
        found = map_in_chunks(hidden, lengths, lambda some: _masked_logprobs(engine, reader, encodings, some), update)
        parts = np.split(np.array(found), np.cumsum([len(positions) for positions in where])[:-1])
    name = "left-to-right" if left else method
    return [_score(reader, name, *answer) for answer in zip(texts, encodings, where, parts)]


class Hidden(NamedTuple):
    """Tokens [first, end) of a text that are hidden when the first of them is scored."""

    text: int
    first: int
    end: int


def word_ends(encoding: Encoding, text: str) -> list[int]:
    """For each token the end of its word, in tokens: words are the tokenizer's own, as transformers' `word_ids`.

    Where each character is a token, a word is a run of letters and digits.
    """
    ids, n = encoding.word_ids, len(encoding)
    alone = len(set(ids)) == n and all(end - start <= 1 for start, end in encoding.offsets)
    out = list(range(1, n + 1))
    for i in range(n - 2, -1, -1):
        (a, b), (c, d) = encoding.offsets[i : i + 2]
        letters = text[a:b].isalnum() and text[c:d].isalnum() and b == c
        run = letters and not is_ideograph(text[a:b]) and not is_ideograph(text[c:d])
        if run if alone else ids[i] is not None and ids[i] == ids[i + 1]:
            out[i] = out[i + 1]
    return out


def _masked_logprobs(engine: Engine, reader: Reader, encodings: list[Encoding], hidden: list[Hidden]) -> list[float]:
    """The log-probability of each one's first token, given what is not hidden; a long text is read around it."""
    rows: list[Example] = []
    for h in hidden:
        ids = encodings[h.text].ids
        start, end = reader.window(len(ids), h.first, h.first + 1, 0, "the text", "window")
        row = reader.row(ids[start:end], positions=[h.first - start])
        position = int(row.labels["mlm.positions"][0])
        row.labels["mlm.targets"] = row.input_ids[[position]]
        row.input_ids[position : min(position + h.end - h.first, len(row) - 1)] = reader.tokenizer.mask
        rows.append(row)
    return [float(found[0]) for found in engine.token_logprobs("mlm", rows)]


def _causal_logprobs(engine: Engine, reader: Reader, texts: list[list[int]], update: Update | None) -> list[np.ndarray]:
    """Log-probabilities of all tokens after those before them; of a long text at least half a row of them is seen."""
    windows: list[
        tuple[int, list[int], int]
    ] = []  # number of the text, tokens, and how many of them were scored before
    for number, ids in enumerate(texts):
        start = done = 0
        while done < len(ids):
            end = min(len(ids), start + reader.max_text_tokens)
            windows.append((number, ids[start:end], done - start))
            done, start = end, end - reader.max_text_tokens // 2
    rows = [ids for _, ids, _ in windows]
    found = map_in_chunks(
        rows, [len(ids) for ids in rows], lambda some: causal.log_likelihoods(engine, reader.tokenizer, some), update
    )
    new: list[list[np.ndarray]] = [[] for _ in texts]
    for (number, _, seen), values in zip(windows, found):
        new[number].append(values[seen:])
    return [np.concatenate(values) for values in new]


def _score(reader: Reader, method: str, text: str, encoding: Encoding, where: list[int], logprobs: np.ndarray) -> Score:
    floor = float(logprobs.mean() - SURPRISAL_THRESHOLD * logprobs.std())
    per_token = []
    for i, logprob in zip(where, logprobs.tolist()):
        id, (start, end) = encoding.ids[i], encoding.offsets[i]
        per_token.append(TokenScore(display_token(reader.tokenizer, id), id, logprob, start, end, logprob < floor))
    total, perplexity = float(logprobs.sum()), float(np.exp(-logprobs.mean()))
    return Score(text, total, perplexity, per_token, method != "left-to-right", method)
