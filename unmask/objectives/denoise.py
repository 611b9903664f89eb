"""Denoising (BART 1910.13461 §2.2): the text is damaged, and the decoder writes it whole.

| noise   | row                           | the encoder sees                   | the decoder is given, and predicts |
|---------|-------------------------------|------------------------------------|------------------------------------|
| infill  | <s> A cat sat . It slept . </s> | <s> A <mask> . It <mask> slept . </s> | </s> <s> A cat … ., <s> A cat … . </s> |
| permute |                               | <s> It slept . A cat sat . </s>    | the same                           |
| delete  |                               | <s> A sat . It . </s>              | the same                           |
| rotate  |                               | <s> sat . It slept . A cat </s>    | the same                           |

`denoise.noise` names one or more, done in the order permute, infill or delete, rotate. infill takes spans of whole words,
`denoise.mask_rate` of the tokens on average; lengths are Poisson(3), each span becomes one mask, and a span of no words puts
a mask between two tokens. permute shuffles the sentences of each document in the row. rotate begins the row at a random token.
"""

import math

import numpy as np

from unmask.batch import Example, StepConfig
from unmask.errors import UserError
from unmask.model.config import ModelConfig
from unmask.objectives.seq2seq import Seq2SeqObjective, new_template
from unmask.objectives.units import sample_spans, sample_units, word_spans
from unmask.recipe import Recipe
from unmask.text.flags import SENTENCE
from unmask.text.tokenizer import Tokenizer


class Denoise(Seq2SeqObjective):
    name = "denoise"
    terms = ("denoise",)

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.settings, self.special = recipe.denoise, tokenizer.special
        self.noise = set(self.settings.noise.split("+"))
        if "infill" in self.noise and tokenizer.mask is None:
            raise UserError(
                "denoise.noise=infill needs a mask token, and this tokenizer has none",
                hint="--set denoise.noise=delete",
            )

    @classmethod
    def check(cls, recipe: Recipe, config: ModelConfig) -> None:
        super().check(recipe, config)
        template = new_template(recipe, config)
        if template and "mask" not in template.roles and "infill" in recipe.denoise.noise.split("+"):
            raise UserError(
                f"denoise.noise={recipe.denoise.noise} needs a mask token, which the tokenizer of a {config.family} model does not have",
                hint=f"--set denoise.noise=delete, or --objective {config.default_objective}",
            )

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        special, ids, flags = self.special, example.input_ids, example.flags
        flags = np.zeros(len(ids), np.uint8) if flags is None else flags
        if "permute" in self.noise:
            order = permute_sentences(special[ids], flags, rng)
            ids, flags = ids[order], flags[order]
        if "infill" in self.noise:
            ids = self._infill(ids, None if example.flags is None else flags, rng)
        elif "delete" in self.noise:
            ordinary = np.flatnonzero(~special[ids])
            exact = self.settings.mask_rate * len(ordinary)
            number = int(exact) + int(rng.random() < exact - int(exact))
            ids = np.delete(ids, rng.choice(ordinary, number, replace=False))
        if "rotate" in self.noise and len(ids) > 2:
            first, last = int(special[ids[0]]), len(ids) - int(special[ids[-1]])
            if last > first:
                ids = np.concatenate([ids[:first], np.roll(ids[first:last], -rng.integers(last - first)), ids[last:]])
        return self.make_seq2seq_example(example, ids, example.input_ids)

    def _infill(self, ids: np.ndarray, flags: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
        ordinary = np.flatnonzero(~self.special[ids])
        if not len(ordinary):
            return ids
        chances, none = poisson_span_lengths(self.settings.mean_span_length)
        budget = self.settings.mask_rate * len(ordinary)
        spans = sample_units(sample_spans(*word_spans(ordinary, flags), chances, budget, rng), budget, rng)
        out, kept = ids.copy(), np.ones(len(ids), bool)
        for start, end in spans:
            out[start] = self.tokenizer.mask
            kept[start + 1 : end] = False
        # Spans of no words: as many as are sampled on the way to this number of others; rows never grow.
        empty = rng.negative_binomial(len(spans), 1 - none) if spans else 0
        empty = min(int(empty), int((~kept).sum()))
        places = rng.choice(ordinary, min(empty, len(ordinary)), replace=False)
        shift = np.flatnonzero(kept)
        at = np.searchsorted(shift, places)
        return np.insert(out[kept], at, np.int64(self.tokenizer.mask or 0))


def poisson_span_lengths(mean: float) -> tuple[np.ndarray, float]:
    """Chances of 1, 2, … words among the spans that have any, and the chance that a span has none.

    >>> chances, none = poisson_span_lengths(3.0)
    >>> round(none, 3), chances[:3].round(3).tolist()
    (0.05, [0.157, 0.236, 0.236])
    """
    n = np.arange(1, int(mean + 10 * math.sqrt(mean)) + 2)
    logs = n * math.log(mean) - mean - np.array([math.lgamma(k + 1) for k in n])
    chances = np.exp(logs)
    return chances / chances.sum(), math.exp(-mean)


def permute_sentences(special: np.ndarray, flags: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The row's positions with the sentences between special tokens shuffled."""
    order = np.arange(len(special))
    borders = np.flatnonzero(special).tolist()
    for low, high in zip([-1, *borders], [*borders, len(special)]):
        begins = np.flatnonzero((flags[low + 1 : high] & SENTENCE) > 0) + low + 1
        pieces = np.split(order[low + 1 : high].copy(), begins[begins > low + 1] - low - 1)
        order[low + 1 : high] = np.concatenate([pieces[i] for i in rng.permutation(len(pieces))])
    return order
