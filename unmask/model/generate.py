"""generate: prompts → continuations, greedy, by beam search, or drawn at random; the tokens that transformers gives.

Every model that predicts a next token can: a causal model (GPT) and an encoder–decoder (T5, BART) compute only the new
token in each step, the rest is in a cache; an encoder trained with a prefix mask reads its row again in each step.

Prompts of unequal length: an encoder's are padded together, a causal model's are grouped by length, so that nothing
is padded on the left and a row's text does not depend on its neighbours.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from unmask.errors import UserError
from unmask.model.generation import Generation
from unmask.model.model import Model
from unmask.model.steps import Steps, begin
from unmask.seeds import generator

TOKENS = 4096  # of prompts, padding included, and what is written after them, that are in memory together
WITHOUT_FLOAT64 = ("mps",)  # devices
NEVER = -1.0e9  # the score of what is not there


@torch.inference_mode()
def generate(
    model: Model,
    prompts: Sequence[Sequence[int]],
    cache: bool = True,
    update: Callable[[float, float, str], None] | None = None,
    **settings: Any,
) -> list[list[int]]:
    """The new tokens of each prompt, the end token included where it came. `settings`: see `Generation`.
    `update` is told (prompts done, prompts, "").

    >>> from unmask.model.config import preset
    >>> model = Model(preset("gpt2-mini", vocab_size=50, layers=1), ["lm"]).init(0)
    >>> [len(new) for new in generate(model, [[5, 6], [7, 8, 9]], max_new_tokens=4)]
    [4, 4]
    """
    config, was_training = model.config, model.training
    ids = {"eos_token_id": config.sep_id, "pad_token_id": config.pad_id, "decoder_start_token_id": config.start_id}
    how = Generation.make(ids | {k: v for k, v in model.generation.items() if v is not None}, **settings)
    head = next((name for name in ("lm", "mlm") if name in model.heads), None)
    if head is None:
        raise UserError(
            f"this model cannot continue a text: its heads are {', '.join(model.heads) or 'none'}",
            valid="a model with the lm or mlm head",
        )
    if model.decoder is None and not config.causal and config.predicts == "here":
        raise UserError(
            "this model cannot continue a text: it was trained to fill masks, not to write the next token",
            valid="a model trained with clm, prefix or hybrid, or an encoder–decoder; this one can fill: unmask fill",
            fix="train it to write: unmask pretrain FILES --from MODEL --objective prefix",
        )
    if not all(len(prompt) for prompt in prompts):
        raise UserError("an empty prompt", valid="one token or more")
    out: list[list[int]] = [[] for _ in prompts]
    done = 0
    model.eval()
    try:
        for group in _groups([len(prompt) for prompt in prompts], how, model.decoder is not None):
            steps = begin(model, head, [prompts[i] for i in group], how, cache)
            new = _beams(steps, how) if how.num_beams > 1 else _one_by_one(steps, how, group)
            for i, tokens in zip(group, new, strict=True):
                out[i] = tokens
            done += len(group)
            if update:
                update(done, len(prompts), "")
    finally:
        model.train(was_training)
    return out


def _groups(lengths: Sequence[int], how: Generation, decoder: bool) -> list[list[int]]:
    """Indices of prompts of these lengths that go through the model together: longest first, at most TOKENS, counting
    padding, beams and all that may be written; without a decoder, of one length.

    >>> how = Generation(max_new_tokens=1000)
    >>> _groups([8, 9, 8, 8, 8, 8], how, decoder=False), _groups([8, 9, 8, 8, 8, 8], how, decoder=True)
    ([[1], [0, 2, 3, 4], [5]], [[1, 0, 2, 3], [4, 5]])
    """
    groups: list[list[int]] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        width = lengths[groups[-1][0]] if groups else 0
        whole = width + how.length(1) if decoder else how.length(width)  # a decoder's row begins with one token
        fits = bool(groups) and whole * how.num_beams * (len(groups[-1]) + 1) <= TOKENS
        if fits and (decoder or width == lengths[i]):
            groups[-1].append(i)
        else:
            groups.append([i])
    return groups


# ------------------------------------------------------------------------------------------------------- what may come next


def _allow(scores: Tensor, rows: Tensor, how: Generation, start: int, longest: int) -> Tensor:
    """scores (N, V) of the tokens after `rows` (N, L), changed as the settings say, in transformers' order."""
    length = rows.shape[1]
    if how.repetition_penalty != 1.0:
        seen = scores.gather(1, rows)
        seen = torch.where(seen < 0, seen * how.repetition_penalty, seen / how.repetition_penalty)
        scores = scores.scatter(1, rows, seen)
    if how.no_repeat_ngram_size:
        scores = scores.clone()
        for row, banned in enumerate(_repeats(rows.tolist(), how.no_repeat_ngram_size)):
            scores[row, banned] = -math.inf
    if how.ends and (length < how.min_length or length - start < how.min_new_tokens):
        scores = scores.clone()
        scores[:, list(how.ends)] = -math.inf
    if how.forced_bos_token_id is not None and length == 1:
        scores = _only(scores, how.forced_bos_token_id)
    if how.forced_eos_token_id is not None and length == longest - 1:
        scores = _only(scores, how.forced_eos_token_id)
    return scores


def _only(scores: Tensor, token: int) -> Tensor:
    scores = torch.full_like(scores, -math.inf)
    scores[:, token] = 0.0
    return scores


def _repeats(rows: list[list[int]], n: int) -> list[list[int]]:
    """For each row, the tokens that would repeat n tokens that it already has.

    >>> _repeats([[1, 2, 3, 1, 2]], 3)
    [[3]]
    """
    out = []
    for row in rows:
        tail = row[len(row) - n + 1 :] if len(row) >= n - 1 else None
        out.append([row[i + n - 1] for i in range(len(row) - n + 1) if row[i : i + n - 1] == tail])
    return out


def _probabilities(scores: Tensor, how: Generation) -> Tensor:
    """(N, V) in float64, where the device has it: temperature, then the top_k likeliest, then the likeliest that make up top_p."""
    scores = scores / how.temperature
    if how.top_k:
        least = scores.topk(min(how.top_k, scores.shape[1])).values[:, -1:]
        scores = scores.masked_fill(scores < least, -math.inf)
    if how.top_p < 1.0:
        ordered, order = scores.sort(descending=True)
        shares = ordered.softmax(-1)
        before = shares.cumsum(-1) - shares  # of all that are likelier; the likeliest itself always stays
        scores = scores.scatter(1, order, ordered.masked_fill(before >= how.top_p, -math.inf))
    return scores.to(torch.float32 if scores.device.type in WITHOUT_FLOAT64 else torch.float64).softmax(-1)


# ------------------------------------------------------------------------------------------------------------- the searches


def _one_by_one(steps: Steps, how: Generation, numbers: list[int]) -> list[list[int]]:
    """The likeliest token each time, or a drawn one. `numbers`: the prompts', which address what is drawn."""
    count, start, longest = len(steps.rows), steps.start, steps.longest(how)
    new: list[list[int]] = [[] for _ in range(count)]
    open_rows = set(range(count))
    while open_rows and steps.rows.shape[1] < longest:
        scores = _allow(steps.logits(), steps.rows, how, start, longest)
        if how.do_sample:
            step = steps.rows.shape[1] - start
            lots = [generator(how.seed, "generate", number, step).random() for number in numbers]
            edges = _probabilities(scores, how).cumsum(-1)
            # In float32 a lot could be rounded up to 1, which lies behind the last token.
            lots = [min(lot, 1 - torch.finfo(edges.dtype).eps / 2) for lot in lots]
            lot = torch.tensor(lots, dtype=edges.dtype, device=edges.device)[:, None] * edges[:, -1:]
            chosen = torch.searchsorted(edges, lot, right=True)[:, 0]
        else:
            chosen = scores.argmax(-1)
        for row, token in enumerate(chosen.tolist()):
            if row in open_rows:
                new[row].append(token)
                if token in how.ends:
                    open_rows.remove(row)
        steps.grow(chosen)
    return new


class _Search:
    """Beam search for one prompt: which beams go on, and the best texts that ended."""

    def __init__(self, how: Generation, start: int, longest: int):
        self.how, self.start, self.longest = how, start, longest
        self.width = how.num_beams
        # All beams are equal at first: only one of them may be continued.
        self.scores = [0.0] + [NEVER] * (self.width - 1)
        self.finished: list[tuple[float, list[int]]] = []  # best first
        self.open = True  # whether a beam may still become better than what ended

    def step(self, scores: list[float], parents: list[int], tokens: list[int], rows: list[list[int]]) -> list[int]:
        """The best candidates, best first, and the beams' rows so far → indices of the candidates that go on."""
        how, made = self.how, len(rows[0]) + 1 - self.start
        ends = [token in how.ends or len(rows[0]) + 1 >= self.longest for token in tokens]
        full = len(self.finished) == self.width
        if self.open and not (full and how.early_stopping is True):
            for i in range(self.width):  # a candidate behind the first `width` only waits to go on
                if ends[i] and scores[i] > NEVER:
                    text = [*rows[parents[i]][self.start :], tokens[i]]
                    self.finished.append((scores[i] / made**how.length_penalty, text))
            self.finished = sorted(self.finished, key=lambda pair: -pair[0])[: self.width]
        kept = sorted(range(len(tokens)), key=lambda i: ends[i])[: self.width]  # stable: best first, then what ended
        self.scores = [scores[i] + (NEVER if ends[i] else 0.0) for i in kept]
        if len(self.finished) == self.width:
            # A score falls with every token, unless the penalty lifts it: then "never" reckons with the longest text.
            far = how.early_stopping == "never" and how.length_penalty > 0
            hoped = self.scores[0] / (self.longest - self.start if far else made) ** how.length_penalty
            self.open = self.open and hoped > self.finished[-1][0]
            self.open = self.open and how.early_stopping is not True
        return kept


def _beams(steps: Steps, how: Generation) -> list[list[int]]:
    width, count, start = how.num_beams, len(steps.rows), steps.start
    longest = steps.longest(how)
    searches = [_Search(how, start, longest) for _ in range(count)]
    steps.widen(width)
    while any(search.open for search in searches) and steps.rows.shape[1] < longest:
        chances = _allow(steps.logits().log_softmax(-1), steps.rows, how, start, longest)
        size = chances.shape[1]
        sums = chances + torch.tensor([s for search in searches for s in search.scores], device=chances.device)[:, None]
        # An end leaves the beam: so many candidates that enough others are among them.
        wanted = min(max(2, 1 + len(how.ends)) * width, width * size)
        best = sums.view(count, width * size).topk(wanted)
        rows = steps.rows.view(count, width, -1).tolist()
        tokens, parents = [], []
        for n, search in enumerate(searches):
            flat = best.indices[n].tolist()
            kept = search.step(best.values[n].tolist(), [f // size for f in flat], [f % size for f in flat], rows[n])
            tokens += [flat[i] % size for i in kept]
            parents += [n * width + flat[i] // size for i in kept]
        device = steps.rows.device
        steps.grow(torch.tensor(tokens, device=device), torch.tensor(parents, device=device))
    return [search.finished[0][1] if search.finished else [] for search in searches]
