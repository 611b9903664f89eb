"""Causal language modeling (GPT): predict every token from those before it.

| row                       | a token attends to         | the loss reads                                      |
|---------------------------|----------------------------|-----------------------------------------------------|
| [CLS] the cat sat . [SEP] | itself and earlier tokens  | "the" at [CLS], "cat" at "the", "sat", "." …        |

The [SEP] that ends a document inside the row is predicted like a word, because the text ends there. The [SEP] that ends the row is not
predicted. With `train.document_attention: same_document`, the first token of the next document is not predicted either. A bidirectional
encoder (BERT) is trained with a causal attention mask for each row. Its config does not record this, so other programs will run it with
bidirectional attention.
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
    standalone_reason = "its rows hide all later tokens, which the other objective would need"
    bidirectional = False
    logit_position = "next"

    causal_model = False  # a causal model needs no mask per row, which is faster

    def bind(self, config: ModelConfig) -> None:
        super().bind(config)
        self.causal_model = config.causal

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        positions = next_token_positions(example, self.tokenizer.special)
        labels = {**example.labels, "clm.positions": positions, "clm.targets": example.input_ids[positions + 1]}
        return replace(example, prefix_length=None if self.causal_model else 0, labels=labels)


def next_token_positions(example: Example, special: np.ndarray) -> np.ndarray:
    """Return the positions whose next token is predicted.

    >>> next_token_positions(Example(np.array([2, 7, 8, 3])), np.array([False, False, True, True] + [False] * 6)).tolist()
    [0, 1]
    """
    positions = np.arange(len(example) - 1)
    if special[example.input_ids[-1]]:
        positions = positions[:-1]
    if example.document_ids is not None:
        positions = positions[example.document_ids[positions] == example.document_ids[positions + 1]]
    return positions
