"""generate: prompts → continuations, greedy, by beam search, or drawn at random; the tokens that transformers gives.

Every model that predicts a next token can: a causal model (GPT) and an encoder–decoder (T5, BART) compute only the new
token in each step, the rest is in a cache; an encoder trained with a prefix mask, and an exported graph, read their
row again in each step. The searches are numpy and know neither torch nor a graph, only `GenerationState`.

Prompts of unequal length: an encoder's are padded together, a causal model's are grouped by length, so that nothing
is padded on the left and a row's text does not depend on its neighbours.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unmask.errors import UserError
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import GenerationState, GenerativeModel, lm_head_name
from unmask.model.scores import log_softmax, process_logits, sample_tokens, top_indices

MAX_TOKENS_IN_MEMORY = 4096  # of prompts, padding included, and what is written after them, that are in memory together
IMPOSSIBLE_SCORE = -1.0e9  # the score of what is not there


def generate(
    model: GenerativeModel,
    prompts: Sequence[Sequence[int]],
    cache: bool = True,
    update: Callable[[float, float, str], None] | None = None,
    **settings: Any,
) -> list[list[int]]:
    """The new tokens of each prompt, the end token included where it came. `settings`: see `GenerationConfig`.
    `update` is told (prompts done, prompts, "").

    >>> from unmask.model.config import preset
    >>> from unmask.model.model import Model
    >>> model = Model(preset("gpt2-mini", vocab_size=50, layers=1), ["lm"]).init(0)
    >>> [len(new) for new in generate(model, [[5, 6], [7, 8, 9]], max_new_tokens=4)]
    [4, 4]
    """
    config = model.config
    ids = {"eos_token_id": config.sep_id, "pad_token_id": config.pad_id, "decoder_start_token_id": config.start_id}
    how = GenerationConfig.from_settings(ids | {k: v for k, v in model.generation.items() if v is not None}, **settings)
    how.check_ids(config.vocab_size)
    lm_head_name(model)  # or an error that says why it cannot
    if not all(len(prompt) for prompt in prompts):
        raise UserError("an empty prompt", expected="one token or more")
    out: list[list[int]] = [[] for _ in prompts]
    done = 0
    for group in _groups([len(prompt) for prompt in prompts], how, config.decoder_layers > 0):
        with model.start_generation([prompts[i] for i in group], how, cache) as steps:
            new = _beams(steps, how) if how.num_beams > 1 else _one_by_one(steps, how, group)
        for i, tokens in zip(group, new, strict=True):
            out[i] = tokens
        done += len(group)
        if update:
            update(done, len(prompts), "")
    return out


def _groups(lengths: Sequence[int], how: GenerationConfig, decoder: bool) -> list[list[int]]:
    """Indices of prompts of these lengths that go through the model together: longest first, at most MAX_TOKENS_IN_MEMORY, counting
    padding, beams and all that may be written; without a decoder, of one length.

    >>> how = GenerationConfig(max_new_tokens=1000)
    >>> _groups([8, 9, 8, 8, 8, 8], how, decoder=False), _groups([8, 9, 8, 8, 8, 8], how, decoder=True)
    ([[1], [0, 2, 3, 4], [5]], [[1, 0, 2, 3], [4, 5]])
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        width = lengths[groups[-1][0]] if groups else 0
        whole = (
            width + how.max_row_length(1) if decoder else how.max_row_length(width)
        )  # a decoder's row begins with one token
        fits = bool(groups) and whole * how.num_beams * (len(groups[-1]) + 1) <= MAX_TOKENS_IN_MEMORY
        if fits and (decoder or width == lengths[i]):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _next(steps: GenerationState) -> np.ndarray:
    """Logits (N, V) of the next token."""
    scores = steps.logits()
    if not np.isfinite(scores.max()):
        raise UserError(
            "the model's logits are not finite numbers: its weights are broken, or too large for its precision",
            hint="copy or download the folder again",
        )
    return scores


def _one_by_one(steps: GenerationState, how: GenerationConfig, numbers: list[int]) -> list[list[int]]:
    """The likeliest token each time, or a drawn one. `numbers`: the prompts', which address what is drawn."""
    count, start, longest = len(steps.rows), steps.start, steps.max_row_length(how)
    new: list[list[int]] = [[] for _ in range(count)]
    open_rows = set(range(count))
    while open_rows and steps.rows.shape[1] < longest:
        scores = _next(steps)
        process_logits(scores, steps.rows, how, start, longest)
        chosen = (
            sample_tokens(scores, how, numbers, steps.rows.shape[1] - start) if how.do_sample else scores.argmax(-1)
        )
        for row, token in enumerate(chosen.tolist()):
            if row in open_rows:
                new[row].append(token)
                if token in how.eos_token_ids:
                    open_rows.remove(row)
        steps.append_tokens(chosen)
    return new


class _Search:
    """Beam search for one prompt: which beams go on, and the best texts that ended."""

    def __init__(self, how: GenerationConfig, start: int, longest: int):
        self.how, self.start, self.longest = how, start, longest
        self.width = how.num_beams
        # All beams are equal at first: only one of them may be continued.
        self.scores = [0.0] + [IMPOSSIBLE_SCORE] * (self.width - 1)
        self.finished: list[tuple[float, list[int]]] = []  # best first
        self.open = True  # whether a beam may still become better than what ended

    def step(self, scores: list[float], parents: list[int], tokens: list[int], rows: list[list[int]]) -> list[int]:
        """The best candidates, best first, and the beams' rows so far → indices of the candidates that go on."""
        how, made = self.how, len(rows[0]) + 1 - self.start
        ends = [token in how.eos_token_ids or len(rows[0]) + 1 >= self.longest for token in tokens]
        full = len(self.finished) == self.width
        if self.open and not (full and how.early_stopping is True):
            for i in range(self.width):  # a candidate behind the first `width` only waits to go on
                if ends[i] and scores[i] > IMPOSSIBLE_SCORE:
                    text = [*rows[parents[i]][self.start :], tokens[i]]
                    self.finished.append((scores[i] / made**how.length_penalty, text))
            self.finished = sorted(self.finished, key=lambda pair: -pair[0])[: self.width]
        kept = sorted(range(len(tokens)), key=lambda i: ends[i])[: self.width]  # stable: best first, then what ended
        self.scores = [scores[i] + (IMPOSSIBLE_SCORE if ends[i] else 0.0) for i in kept]
        if len(self.finished) == self.width:
            # A score falls with every token, unless the penalty lifts it: then "never" reckons with the longest text.
            far = how.early_stopping == "never" and how.length_penalty > 0
            hoped = self.scores[0] / (self.longest - self.start if far else made) ** how.length_penalty
            self.open = self.open and hoped > self.finished[-1][0]
            self.open = self.open and how.early_stopping is not True
        return kept


def _beams(steps: GenerationState, how: GenerationConfig) -> list[list[int]]:
    width, count, start = how.num_beams, len(steps.rows), steps.start
    longest = steps.max_row_length(how)
    searches = [_Search(how, start, longest) for _ in range(count)]
    steps.expand_beams(width)
    while any(search.open for search in searches) and steps.rows.shape[1] < longest:
        chances = log_softmax(_next(steps))  # (N · width, V)
        process_logits(chances, steps.rows, how, start, longest)
        size = chances.shape[1]
        # An end leaves the beam: so many candidates that enough others are among them.
        wanted = min(max(2, 1 + len(how.eos_token_ids)) * width, width * size)
        tokens, parents = [], []
        for n, search in enumerate(searches):
            beams = slice(n * width, (n + 1) * width)
            chances[beams] += np.array(search.scores, np.float32)[:, None]
            sums = chances[beams].reshape(-1)
            flat = top_indices(sums, wanted)
            froms, news = (flat // size).tolist(), (flat % size).tolist()
            kept = search.step(sums[flat].tolist(), froms, news, steps.rows[beams].tolist())
            tokens += [news[i] for i in kept]
            parents += [n * width + froms[i] for i in kept]
        steps.append_tokens(np.array(tokens), np.array(parents))
    return [search.finished[0][1] if search.finished else [] for search in searches]
