"""Replaced-token detection (ELECTRA 2003.10555 §2): a small generator fills masks, the model finds what it changed.

| row                       | the generator sees            | the model sees, e.g.     | the losses read                      |
|---------------------------|-------------------------------|--------------------------|--------------------------------------|
| [CLS] the cat sat . [SEP] | [CLS] the [MASK] sat . [SEP]  | [CLS] the dog sat . [SEP] | `rtd_mlm`: "cat" at the mask; `rtd`: "dog" replaced, all others original |
|                           |                               | [CLS] the cat sat . [SEP] | `rtd`: all original, as the sample is the token itself |

The tokens are drawn from the generator's distribution, not its best guesses, and no gradient passes through the draw. What
a draw needs of chance, one number per token, is made by `corrupt` from the row's address, so the number of processes
changes nothing. `rtd` reads every token that is not padding, and weighs 50.
"""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F

from unmask.batch import Batch, Example, StepConfig
from unmask.model.model import Model
from unmask.objectives.mlm import MLM
from unmask.objectives.objective import LogitsAndTargets, Terms, cross_entropy_terms
from unmask.recipe import Recipe
from unmask.text.tokenizer import Tokenizer


class RTD(MLM):
    name = "rtd"
    terms = ("rtd_mlm", "rtd")
    heads = ("generator", "rtd")
    standalone_reason = (
        "its generator is trained by mlm already, and the model itself sees tokens that others would take for the text"
    )

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.weights = {"rtd": recipe.rtd.discriminator_weight}

    def corrupt(self, example: Example, rng: np.random.Generator, phase: StepConfig) -> Example:
        chosen, _ = self._choose(example, rng, phase.mask_rate)
        ids = example.input_ids.copy()
        ids[chosen[rng.random(len(chosen)) < self.recipe.rtd.mask]] = self.tokenizer.mask
        labels = {
            "mlm.positions": chosen,
            "mlm.targets": example.input_ids[chosen],
            "rtd.noise": rng.random(len(chosen), dtype=np.float32),
        }
        return replace(example, input_ids=ids, labels={**example.labels, **labels})

    def _terms(self, model: Model, batch: Batch, accuracy: bool = False) -> Terms:
        outputs = dict(self._forward(model, batch))
        guesses, replaced = outputs.pop("rtd")
        terms = cross_entropy_terms(outputs, accuracy)
        found = F.binary_cross_entropy_with_logits(guesses.float(), replaced, reduction="sum")
        terms["rtd"] = (found, len(replaced))
        if accuracy:
            terms["rtd_accuracy"] = (((guesses > 0) == (replaced > 0)).sum(), len(replaced))
        return terms

    def _forward(self, model: Model, batch: Batch) -> LogitsAndTargets:
        """The generator's logits (N, V) with their targets, and the model's guesses (M,) with what was replaced."""
        generator: Model = model.heads["generator"]  # type: ignore[assignment]
        at, targets = batch.labels["mlm.positions"], batch.labels["mlm.targets"]
        logits = generator.logits("mlm", generator.encode(batch, at))
        drawn = sample(logits.detach(), batch.labels["rtd.noise"])
        ids = batch.input_ids.flatten().index_copy(0, at, drawn)
        replaced = torch.zeros(len(ids), device=ids.device).index_copy(0, at, (drawn != targets).float())
        tokens = None if batch.attention_mask is None else batch.attention_mask.flatten().nonzero().squeeze(1)
        hidden = model.encode(replace(batch, input_ids=ids.view_as(batch.input_ids)), tokens)
        replaced = replaced if tokens is None else replaced[tokens]
        return {"rtd_mlm": (logits, targets), "rtd": (model.logits("rtd", hidden).flatten(), replaced)}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {"rtd_mlm": len(batch.labels["mlm.targets"]), "rtd": batch.tokens}


def sample(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """One token (N,) of each row's distribution (N, V), found at `noise` (N,), uniform in [0, 1), of its running sum.

    >>> sample(torch.tensor([[0.0, 0.0]]).repeat(3, 1), torch.tensor([0.0, 0.49, 0.51])).tolist()
    [0, 0, 1]
    """
    total = logits.float().softmax(-1).cumsum(-1)
    found = torch.searchsorted(total, noise[:, None] * total[:, -1:], right=True)
    return found.squeeze(1).clamp_max(logits.shape[-1] - 1)
