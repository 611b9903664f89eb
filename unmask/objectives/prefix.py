"""Prefix language modeling (T5 1910.10683 §3.2.1; UniLM): the row is cut at a random position, and the tokens after it are predicted.

| row                       | cut | attention                                            | the loss reads            |
|---------------------------|-----|------------------------------------------------------|---------------------------|
| [CLS] the cat sat . [SEP] | 3   | bidirectional in [CLS] the cat; causal for later ones | "sat" at "cat", "." at "sat" |

The cut is uniform over the positions that leave at least one token in the prefix and one to predict. `Example.prefix_length` is the
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
        "the tokens before the cut cannot attend to those after it, which the other objective would need"
    )
    bidirectional = False
    logit_position = "next"

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        positions = next_token_positions(example, self.tokenizer.special)
        cut = 1 + int(rng.integers(max(1, int(positions[-1]) + 1))) if len(positions) else len(example)
        positions = positions[positions >= cut - 1]  # the last token of the prefix predicts the first after it
        labels = {**example.labels, "prefix.positions": positions, "prefix.targets": example.input_ids[positions + 1]}
        return replace(example, prefix_length=cut, labels=labels)
