"""Text generation: greedy search, beam search and sampling, with the same tokens as transformers.

Causal models (GPT) and encoder–decoders (T5, BART) compute only the new token in each step and read the rest from a
key-value cache. An encoder trained with a prefix mask and an exported graph read the whole row again in each step.
The searches use numpy and see only `GenerationState`, so they work for torch models and for exported graphs.

Prompts of different lengths: an encoder's prompts are padded together. A causal model's prompts are grouped by length,
so that there is no left padding and the text of a row does not depend on the other rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from unmask.errors import UserError
from unmask.model.generation import GenerationConfig
from unmask.model.generation_state import GenerationState, GenerativeModel, lm_head_name
from unmask.model.scores import log_softmax, process_logits, sample_tokens, top_indices

MAX_TOKENS_IN_MEMORY = 4096  # per group of prompts: prompts, padding and new tokens
IMPOSSIBLE_SCORE = -1.0e9  # score of a beam that must not be continued


def generate(
    model: GenerativeModel,
    prompts: Sequence[Sequence[int]],
    cache: bool = True,
    update: Callable[[float, float, str], None] | None = None,
    **settings: Any,
) -> list[list[int]]:
    """Return the new tokens of each prompt, with the end token if it was reached. `settings`: see `GenerationConfig`.

    `update` is called with (prompts done, total prompts, "") after each group of prompts.

    >>> from unmask.model.config import preset
    >>> from unmask.model.model import Model
    >>> model = Model(preset("gpt2-mini", vocab_size=50, layers=1), ["lm"]).init(0)
    >>> [len(new) for new in generate(model, [[5, 6], [7, 8, 9]], max_new_tokens=4)]
    [4, 4]
    """
    config = model.config
    ids = {"eos_token_id": config.sep_id, "pad_token_id": config.pad_id, "decoder_start_token_id": config.start_id}
    defaults = ids | {key: value for key, value in model.generation.items() if value is not None}
    options = GenerationConfig.from_settings(defaults, **settings)
    options.check_ids(config.vocab_size)
    lm_head_name(model)  # raises a UserError if the model cannot generate
    if not all(len(prompt) for prompt in prompts):
        raise UserError("cannot generate from an empty prompt", expected="at least one token per prompt")
    outputs: list[list[int]] = [[] for _ in prompts]
    done = 0
    for group in _group_prompts([len(prompt) for prompt in prompts], options, config.decoder_layers > 0):
        with model.start_generation([prompts[i] for i in group], options, cache) as state:
            new = _beam_search(state, options) if options.num_beams > 1 else _greedy_or_sample(state, options, group)
        for i, tokens in zip(group, new, strict=True):
            outputs[i] = tokens
        done += len(group)
        if update:
            update(done, len(prompts), "")
    return outputs


def _group_prompts(lengths: Sequence[int], options: GenerationConfig, decoder: bool) -> list[list[int]]:
    """Group the indices of prompts that go through the model together, longest prompts first.

    A group has at most MAX_TOKENS_IN_MEMORY tokens: padding, beams and the maximum number of new tokens included.
    Without a decoder, all prompts of a group have the same length.

    >>> options = GenerationConfig(max_new_tokens=1000)
    >>> _group_prompts([8, 9, 8, 8, 8, 8], options, decoder=False), _group_prompts([8, 9, 8, 8, 8, 8], options, decoder=True)
    ([[1], [0, 2, 3, 4], [5]], [[1, 0, 2, 3], [4, 5]])
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        width = lengths[groups[-1][0]] if groups else 0
        # A decoder's row starts with one token, and the encoder reads the prompt.
        row_tokens = width + options.max_row_length(1) if decoder else options.max_row_length(width)
        fits = bool(groups) and row_tokens * options.num_beams * (len(groups[-1]) + 1) <= MAX_TOKENS_IN_MEMORY
        if fits and (decoder or width == lengths[i]):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


def _next_logits(state: GenerationState) -> np.ndarray:
    """Return the logits (N, V) of the next token; raise UserError if they are not finite."""
    logits = state.logits()
    if not np.isfinite(logits.max()):
        raise UserError(
            "the model's logits are not finite: its weights are damaged, or too large for its precision",
            hint="copy or download the model folder again",
        )
    return logits


def _greedy_or_sample(state: GenerationState, options: GenerationConfig, prompt_numbers: list[int]) -> list[list[int]]:
    """Append the most likely token, or a sampled one, until every row has ended.

    `prompt_numbers` are part of the random seeds, so a sample does not depend on how prompts are grouped.
    """
    count, start, max_length = len(state.rows), state.start, state.max_row_length(options)
    new: list[list[int]] = [[] for _ in range(count)]
    open_rows = set(range(count))
    while open_rows and state.rows.shape[1] < max_length:
        scores = _next_logits(state)
        process_logits(scores, state.rows, options, start, max_length)
        if options.do_sample:
            chosen = sample_tokens(scores, options, prompt_numbers, state.rows.shape[1] - start)
        else:
            chosen = scores.argmax(-1)
        for row, token in enumerate(chosen.tolist()):
            if row in open_rows:
                new[row].append(token)
                if token in options.eos_token_ids:
                    open_rows.remove(row)
        state.append_tokens(chosen)
    return new


class _BeamSearch:
    """Beam search for one prompt: the scores of its beams, and the best finished texts."""

    def __init__(self, options: GenerationConfig, start: int, max_length: int):
        self.options, self.start, self.max_length = options, start, max_length
        self.width = options.num_beams
        # All beams are equal at first, so only one of them may be continued.
        self.scores = [0.0] + [IMPOSSIBLE_SCORE] * (self.width - 1)
        self.finished: list[tuple[float, list[int]]] = []  # best first
        self.open = True  # whether a beam may still become better than the finished texts

    def step(self, scores: list[float], parents: list[int], tokens: list[int], rows: list[list[int]]) -> list[int]:
        """Return the indices of the candidates that are continued.

        `scores`, `parents` and `tokens` describe the best candidates, best first; `rows` are the beams so far.
        """
        options, num_new = self.options, len(rows[0]) + 1 - self.start
        ends = [token in options.eos_token_ids or len(rows[0]) + 1 >= self.max_length for token in tokens]
        full = len(self.finished) == self.width
        if self.open and not (full and options.early_stopping is True):
            for i in range(self.width):  # candidates after the first `width` only replace beams that ended
                if ends[i] and scores[i] > IMPOSSIBLE_SCORE:
                    text = [*rows[parents[i]][self.start :], tokens[i]]
                    self.finished.append((scores[i] / num_new**options.length_penalty, text))
            self.finished = sorted(self.finished, key=lambda pair: -pair[0])[: self.width]
        selected = sorted(range(len(tokens)), key=lambda i: ends[i])[
            : self.width
        ]  # stable: open ones first, best first
        self.scores = [scores[i] + (IMPOSSIBLE_SCORE if ends[i] else 0.0) for i in selected]
        if len(self.finished) == self.width:
            # A sum of log-probabilities falls with every token, but a length penalty above 0 can raise the score of a
            # longer text. "never" therefore compares with the score at the maximum length.
            at_max_length = options.early_stopping == "never" and options.length_penalty > 0
            length = self.max_length - self.start if at_max_length else num_new
            best_possible = self.scores[0] / length**options.length_penalty
            better = best_possible > self.finished[-1][0]
            self.open = self.open and better and options.early_stopping is not True
        return selected


def _beam_search(state: GenerationState, options: GenerationConfig) -> list[list[int]]:
    """Return the best text of each prompt."""
    width, start, max_length = options.num_beams, state.start, state.max_row_length(options)
    searches = [_BeamSearch(options, start, max_length) for _ in range(len(state.rows))]
    state.expand_beams(width)
    while any(search.open for search in searches) and state.rows.shape[1] < max_length:
        logprobs = log_softmax(_next_logits(state))  # (N · width, V)
        process_logits(logprobs, state.rows, options, start, max_length)
        vocab_size = logprobs.shape[1]
        # Each beam can end in every end token. This many candidates always leave `width` that continue.
        num_candidates = min(max(2, 1 + len(options.eos_token_ids)) * width, width * vocab_size)
        tokens, parents = [], []
        for n, search in enumerate(searches):
            beams = slice(n * width, (n + 1) * width)
            logprobs[beams] += np.array(search.scores, np.float32)[:, None]
            totals = logprobs[beams].reshape(-1)
            best = top_indices(totals, num_candidates)
            best_parents, best_tokens = (best // vocab_size).tolist(), (best % vocab_size).tolist()
            selected = search.step(totals[best].tolist(), best_parents, best_tokens, state.rows[beams].tolist())
            tokens += [best_tokens[i] for i in selected]
            parents += [n * width + best_parents[i] for i in selected]
        state.append_tokens(np.array(tokens), np.array(parents))
    return [search.finished[0][1] if search.finished else [] for search in searches]
