"""Base class of `span` and `denoise`: the decoder generates a target text, and the loss reads all of its tokens."""

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
    """Return the template of the tokenizer that will be trained for this model, or None if an existing tokenizer is used."""
    if recipe.init_from or recipe.tokenizer.path:
        return None
    return TEMPLATES[str(recipe.tokenizer.resolve_auto(FAMILIES[config.family].tokenizer).template)]


class Seq2SeqObjective(Objective):
    heads = ("lm",)
    needs_decoder = True
    standalone_reason = "its target is the text of the decoder, which no other objective reads"

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.start = tokenizer.pad  # first input token of the decoder, unless the model's config has another

    def bind(self, config: ModelConfig) -> None:
        super().bind(config)
        self.start = self.start if config.start_id is None else config.start_id

    def make_seq2seq_example(self, example: Example, ids: np.ndarray, target: np.ndarray) -> Example:
        """Return an example with `ids` for the encoder. The decoder reads the target shifted by one position, and predicts it."""
        shifted = np.concatenate([[self.start], target[:-1]])
        labels = {f"{self.name}.decoder_positions": np.arange(len(target)), f"{self.name}.targets": target}
        return replace(
            example, input_ids=ids, flags=None, decoder_input_ids=shifted, labels={**example.labels, **labels}
        )

    def loss_positions(self, model: Model, batch: Batch) -> torch.Tensor:
        """Return positions of the flattened decoder rows."""
        return batch.labels[f"{self.name}.decoder_positions"]

    def _hidden(self, model: Model, batch: Batch) -> torch.Tensor:
        return model.decode(batch, model.encode(batch), self.loss_positions(model, batch))
