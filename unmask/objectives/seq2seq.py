"""What `span` and `denoise` share: the answer is written by a decoder, and the loss reads every token of it."""

from dataclasses import replace

import numpy as np
import torch

from unmask.batch import Batch, Example
from unmask.model.config import ModelConfig
from unmask.model.families import FAMILIES
from unmask.model.model import Model
from unmask.objectives.objective import Objective
from unmask.recipe import Recipe
from unmask.text.templates import TEMPLATES, Template
from unmask.text.tokenizer import Tokenizer


def new_template(recipe: Recipe, config: ModelConfig) -> Template | None:
    """How the tokenizer that would be trained for this model is laid out; None where one is taken over."""
    if recipe.init_from or recipe.tokenizer.path:
        return None
    own = FAMILIES[config.family].tokenizer
    return TEMPLATES[str(recipe.tokenizer.resolve_auto(own).template)]


class Seq2SeqObjective(Objective):
    heads = ("lm",)
    needs_decoder = True
    standalone_reason = "its answer is a text of its own, which no other objective reads"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.start = tokenizer.pad  # what the decoder is given first, until a model says otherwise

    def bind(self, config: ModelConfig) -> None:
        super().bind(config)
        self.start = self.start if config.start_id is None else config.start_id

    def make_seq2seq_example(self, example: Example, ids: np.ndarray, answer: np.ndarray) -> Example:
        """`ids` for the encoder; the decoder is given the answer one place later, and predicts it."""
        decoder = np.concatenate([[self.start], answer[:-1]])
        labels = {f"{self.name}.decoder_positions": np.arange(len(answer)), f"{self.name}.targets": answer}
        return replace(
            example, input_ids=ids, flags=None, decoder_input_ids=decoder, labels={**example.labels, **labels}
        )

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        """Positions of the flattened decoder rows."""
        return batch.labels[f"{self.name}.decoder_positions"]

    def _hidden(self, model: Model, batch: Batch) -> torch.Tensor:
        return model.decode(batch, model.encode(batch), self.loss_positions(model, batch))
