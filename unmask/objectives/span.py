"""Span corruption (T5 1910.10683 §3.1.4): spans are removed, and the decoder predicts them.

| row                       | the encoder reads           | the decoder reads         | the loss reads                 |
|---------------------------|-----------------------------|---------------------------|--------------------------------|
| the cat sat on a mat </s> | the <0> on a <1> </s>       | <pad> <0> cat sat <1> mat <2> | <0> cat sat <1> mat <2> </s> |

<0> is the sentinel `<extra_id_0>`. As in T5's code, the number of removed tokens is fixed: rate × tokens, rounded, at least one. The
number of spans follows from the mean span length, and their lengths are random. A row starts with text that stays and ends with a span.
One more sentinel ends the target, as in the paper's figure. Special tokens are never removed; a span that would cross one becomes two.
Almost all rows have the same length, so they need little padding.
"""

import numpy as np

from unmask.batch import Example, StepConfig
from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.objectives.seq2seq import Seq2SeqObjective, new_template
from unmask.recipe import Recipe
from unmask.text.tokenizer import Tokenizer


class Span(Seq2SeqObjective):
    name = "span"
    terms = ("span",)

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.sentinels = np.array(tokenizer.sentinels)
        if len(self.sentinels) < 2:
            raise UserError(
                "objective span needs sentinels (<extra_id_0>, <extra_id_1>, …), and this tokenizer has none",
                hint="remove --tokenizer and --tokenizer-type: a T5 preset trains a tokenizer with sentinels",
            )

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        if (template := new_template(recipe, config)) and not template.last:
            raise UserError(
                f"objective span needs sentinels (<extra_id_0>, …), which the tokenizer of a {config.family} model does not have",
                hint=f"--preset t5-mini, or --objective {config.default_objective}",
            )

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        ids = example.input_ids
        candidates = np.flatnonzero(~self.tokenizer.special[ids])
        max_spans, mean_length = len(self.sentinels) - 1, self.recipe.span.mean_span_length
        noise = sample_noise_mask(len(candidates), step_config.mask_rate, mean_length, max_spans, rng)
        is_removed = np.zeros(len(ids) + 1, bool)  # the extra position at the end is never removed
        is_removed[candidates[noise]] = True
        starts = np.flatnonzero(is_removed & ~np.roll(is_removed, 1))
        ends = np.flatnonzero(~is_removed & np.roll(is_removed, 1))
        # Special tokens may split spans, so that there are more of them than sentinels.
        starts, ends = starts[:max_spans], ends[:max_spans]
        text: list[np.ndarray] = []
        target: list[np.ndarray] = []
        previous_end = 0
        for sentinel, start, end in zip(self.sentinels[:, None], starts.tolist(), ends.tolist()):
            text += [ids[previous_end:start], sentinel]
            target += [sentinel, ids[start:end]]
            previous_end = end
        text.append(ids[previous_end:])
        target.append(np.array([self.sentinels[len(starts)], self.tokenizer.sep]))
        return self.make_seq2seq_example(example, np.concatenate(text), np.concatenate(target))


def sample_noise_mask(n: int, rate: float, mean_length: float, max_spans: int, rng: np.random.Generator) -> np.ndarray:
    """Sample which of n tokens are removed: (n,) bool, in at most `max_spans` spans.

    >>> sample_noise_mask(20, 0.15, 3.0, 99, np.random.default_rng(0)).sum()
    np.int64(3)
    """
    if n < 2:
        return np.zeros(n, bool)
    removed = min(max(round(n * rate), 1), n - 1)
    spans = min(max(round(removed / mean_length), 1), removed, n - removed, max_spans)
    lengths = np.empty(2 * spans, np.int64)
    lengths[0::2], lengths[1::2] = random_partition(n - removed, spans, rng), random_partition(removed, spans, rng)
    return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def random_partition(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Sample `count` positive integers with the sum n, uniformly over all such sequences."""
    cuts = np.sort(rng.choice(n - 1, count - 1, replace=False)) + 1 if count > 1 else np.zeros(0, np.int64)
    return np.diff(np.concatenate([[0], cuts, [n]]))
