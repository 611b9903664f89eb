"""Span corruption (T5 1910.10683 §3.1.4): spans are taken out, and the decoder writes them.

| row                       | the encoder sees            | the decoder is given      | the loss reads                 |
|---------------------------|-----------------------------|---------------------------|--------------------------------|
| the cat sat on a mat </s> | the <0> on a <1> </s>       | <pad> <0> cat sat <1> mat <2> | <0> cat sat <1> mat <2> </s> |

<0> is the sentinel `<extra_id_0>`. As in T5's code the numbers are fixed by the row: rate × tokens are taken (rounded,
one at least), in as many spans as gives the mean length, cut at random; a row begins with text that stays and ends
with a span. One more sentinel closes the answer, as in the paper's figure. Special tokens are never taken; a span that
would cross one becomes two. Without padding to worry about, almost all rows are of one length.
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
                hint="leave out --tokenizer and --tokenizer-type: a T5 preset trains one that has them",
            )

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        if (template := new_template(recipe, config)) and not template.last:
            raise UserError(
                f"objective span needs sentinels (<extra_id_0>, …), which the tokenizer of a {config.family} model does not have",
                hint=f"--preset t5-mini, or --objective {config.default_objective}",
            )

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        ids = example.input_ids
        candidates = np.flatnonzero(~self.tokenizer.special[ids])
        hidden = np.zeros(len(ids) + 1, bool)
        most = len(self.sentinels) - 1
        hidden[
            candidates[
                sample_noise_mask(len(candidates), phase.mask_rate, self.recipe.span.mean_span_length, most, rng)
            ]
        ] = True
        starts = np.flatnonzero(hidden & ~np.roll(hidden, 1))  # the last place is never hidden
        ends = np.flatnonzero(~hidden & np.roll(hidden, 1))
        starts, ends = starts[:most], ends[:most]  # spans cut by special tokens may be more than there are sentinels
        text: list[np.ndarray] = []
        answer: list[np.ndarray] = []
        after = 0
        for sentinel, start, end in zip(self.sentinels[:, None], starts.tolist(), ends.tolist()):
            text += [ids[after:start], sentinel]
            answer += [sentinel, ids[start:end]]
            after = end
        text.append(ids[after:])
        answer.append(np.array([self.sentinels[len(starts)], self.tokenizer.sep]))
        return self.make_seq2seq_example(example, np.concatenate(text), np.concatenate(answer))


def sample_noise_mask(n: int, rate: float, mean: float, most: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n tokens are taken: (n,) bool, in at most `most` spans.

    >>> sample_noise_mask(20, 0.15, 3.0, 99, np.random.default_rng(0)).sum()
    np.int64(3)
    """
    if n < 2:
        return np.zeros(n, bool)
    taken = min(max(round(n * rate), 1), n - 1)
    spans = min(max(round(taken / mean), 1), taken, n - taken, most)
    lengths = np.empty(2 * spans, np.int64)
    lengths[0::2], lengths[1::2] = random_partition(n - taken, spans, rng), random_partition(taken, spans, rng)
    return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def random_partition(n: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """n as a sum of `count` numbers above 0, every such sum with the same chance."""
    cuts = np.sort(rng.choice(n - 1, count - 1, replace=False)) + 1 if count > 1 else np.zeros(0, np.int64)
    return np.diff(np.concatenate([[0], cuts, [n]]))
