"""Prefix language modelling (T5 1910.10683 §3.2.1; UniLM): the row is cut at random; the first part is read, the second
written.

| row                       | cut | what tokens see                                  | the loss reads            |
|---------------------------|-----|--------------------------------------------------|---------------------------|
| [CLS] the cat sat . [SEP] | 3   | [CLS] the cat: each other; later ones what is before | "sat" at "cat", "." at "sat" |

The cut is uniform over the places that leave at least one token to read and one to predict. `Example.prefix` is the
number of tokens before it.
"""

from dataclasses import replace

import numpy as np

from unmask.batch import Example, StepConfig
from unmask.objectives.clm import next_token_positions
from unmask.objectives.objective import Objective


class Prefix(Objective):
    name = "prefix"
    terms = ("prefix",)
    heads = ("lm|mlm",)
    standalone_reason = (
        "what is after the cut is hidden from what is before it, and the other objective would have to do without it"
    )
    bidirectional = False
    logit_position = "next"

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        positions = next_token_positions(example, self.tokenizer.special)
        cut = 1 + int(rng.integers(max(1, int(positions[-1]) + 1))) if len(positions) else len(example)
        positions = positions[positions >= cut - 1]  # the last token of the prefix predicts the first after it
        labels = {**example.labels, "prefix.positions": positions, "prefix.targets": example.input_ids[positions + 1]}
        return replace(example, prefix_length=cut, labels=labels)
