"""Causal language modelling (GPT): every token is predicted from those before it.

| row                       | what a token sees          | the loss reads                                      |
|---------------------------|----------------------------|-----------------------------------------------------|
| [CLS] the cat sat . [SEP] | itself and what is before  | "the" at [CLS], "cat" at "the", "sat", "." …        |

The [SEP] that ends a document inside the row is predicted like a word, as the text does end there; the [SEP] that ends the
row is not, as only the row does. Where documents are kept apart (`train.document_attention: apart`), the first token of the
next one is not predicted either. An encoder that sees both sides (BERT) is trained here with causal rows: data says what a
token sees. Nothing else in its folder says so, and other programs will run it with both sides.
"""

from dataclasses import replace

import numpy as np

from unmask.batch import Example, StepConfig
from unmask.model.config import ModelConfig
from unmask.objectives.objective import Objective


class CLM(Objective):
    name = "clm"
    terms = ("clm",)
    heads = ("lm|mlm",)
    standalone_reason = "its rows hide everything to the right, and the other objective would have to do without it"
    bidirectional = False
    logit_position = "next"

    causal_model = False  # which hides what comes later by itself, and faster

    def bind(self, config: ModelConfig) -> None:
        super().bind(config)
        self.causal_model = config.causal

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        positions = next_token_positions(example, self.tokenizer.special)
        labels = {**example.labels, "clm.positions": positions, "clm.targets": example.input_ids[positions + 1]}
        return replace(example, prefix_length=None if self.causal_model else 0, labels=labels)


def next_token_positions(example: Example, special: np.ndarray) -> np.ndarray:
    """Positions whose next token is text to predict.

    >>> next_token_positions(Example(np.array([2, 7, 8, 3])), np.array([False, False, True, True] + [False] * 6)).tolist()
    [0, 1]
    """
    positions = np.arange(len(example) - 1)
    if special[example.input_ids[-1]]:
        positions = positions[:-1]
    if example.document_ids is not None:
        positions = positions[example.document_ids[positions] == example.document_ids[positions + 1]]
    return positions
