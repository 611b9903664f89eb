"""Denoising (BART 1910.13461 §2.2): the text is corrupted, and the decoder reconstructs it.

| noise   | row                           | the encoder reads                  | the decoder reads, and predicts    |
|---------|-------------------------------|------------------------------------|------------------------------------|
| infill  | <s> A cat sat . It slept . </s> | <s> A <mask> . It <mask> slept . </s> | </s> <s> A cat … ., <s> A cat … . </s> |
| permute |                               | <s> It slept . A cat sat . </s>    | the same                           |
| delete  |                               | <s> A sat . It . </s>              | the same                           |
| rotate  |                               | <s> sat . It slept . A cat </s>    | the same                           |

`denoise.noise` is one or more of them, applied in the order permute, infill or delete, rotate. infill replaces spans of whole words,
`denoise.mask_rate` of the tokens on average. Span lengths are Poisson(3); each span becomes one mask, and an empty span inserts a mask
between two tokens. permute shuffles the sentences of each document in the row. rotate starts the row at a random token.
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

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
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
            count = int(exact) + int(rng.random() < exact - int(exact))
            ids = np.delete(ids, rng.choice(ordinary, count, replace=False))
        if "rotate" in self.noise and len(ids) > 2:
            first, last = int(special[ids[0]]), len(ids) - int(special[ids[-1]])
            if last > first:
                ids = np.concatenate([ids[:first], np.roll(ids[first:last], -rng.integers(last - first)), ids[last:]])
        return self.make_seq2seq_example(example, ids, example.input_ids)

    def _infill(self, ids: np.ndarray, flags: np.ndarray | None, rng: np.random.Generator) -> np.ndarray:
        ordinary = np.flatnonzero(~self.special[ids])
        if not len(ordinary):
            return ids
        probabilities, p_empty = poisson_span_lengths(self.settings.mean_span_length)
        budget = self.settings.mask_rate * len(ordinary)
        spans = sample_units(sample_spans(*word_spans(ordinary, flags), probabilities, budget, rng), budget, rng)
        out, is_kept = ids.copy(), np.ones(len(ids), bool)
        for start, end in spans:
            out[start] = self.tokenizer.mask
            is_kept[start + 1 : end] = False
        # Empty spans that would have been sampled along with these spans, but never more than keeps the row from growing.
        num_empty = rng.negative_binomial(len(spans), 1 - p_empty) if spans else 0
        num_empty = min(int(num_empty), int((~is_kept).sum()))
        positions = rng.choice(ordinary, min(num_empty, len(ordinary)), replace=False)
        insert_before = np.searchsorted(np.flatnonzero(is_kept), positions)
        return np.insert(out[is_kept], insert_before, np.int64(self.tokenizer.mask or 0))


def poisson_span_lengths(mean: float) -> tuple[np.ndarray, float]:
    """Return the probabilities of 1, 2, … words among non-empty spans, and the probability of an empty span.

    >>> probabilities, p_empty = poisson_span_lengths(3.0)
    >>> round(p_empty, 3), probabilities[:3].round(3).tolist()
    (0.05, [0.157, 0.236, 0.236])
    """
    n = np.arange(1, int(mean + 10 * math.sqrt(mean)) + 2)
    logs = n * math.log(mean) - mean - np.array([math.lgamma(k + 1) for k in n])
    weights = np.exp(logs)
    return weights / weights.sum(), math.exp(-mean)


def permute_sentences(special: np.ndarray, flags: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the positions of a row, with the sentences between special tokens shuffled."""
    order = np.arange(len(special))
    borders = np.flatnonzero(special).tolist()
    for low, high in zip([-1, *borders], [*borders, len(special)]):
        starts = np.flatnonzero((flags[low + 1 : high] & SENTENCE) > 0) + low + 1
        sentences = np.split(order[low + 1 : high].copy(), starts[starts > low + 1] - low - 1)
        order[low + 1 : high] = np.concatenate([sentences[i] for i in rng.permutation(len(sentences))])
    return order
