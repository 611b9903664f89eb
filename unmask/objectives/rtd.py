"""Replaced-token detection (ELECTRA 2003.10555 §2): a small generator fills masks, and the model detects the replaced tokens.

| row                       | the generator reads           | the model reads, e.g.    | the losses read                      |
|---------------------------|-------------------------------|--------------------------|--------------------------------------|
| [CLS] the cat sat . [SEP] | [CLS] the [MASK] sat . [SEP]  | [CLS] the dog sat . [SEP] | `rtd_mlm`: "cat" at the mask; `rtd`: "dog" replaced, all others original |
|                           |                               | [CLS] the cat sat . [SEP] | `rtd`: all original, as the sample is the token itself |

Tokens are sampled from the generator's distribution, and no gradient passes through the sampling. `corrupt` supplies the uniform random
number of each token, so the result does not depend on the number of processes. `rtd` reads every token that is not padding; its default
weight is 50.
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
        "its generator is trained by mlm already, and the model reads replaced tokens instead of the text"
    )

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer):
        super().__init__(recipe, tokenizer)
        self.weights = {"rtd": recipe.rtd.discriminator_weight}

    def corrupt(self, example: Example, rng: np.random.Generator, step_config: StepConfig) -> Example:
        chosen, _ = self._choose(example, rng, step_config.mask_rate)
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
        logits, is_replaced = outputs.pop("rtd")
        terms = cross_entropy_terms(outputs, accuracy)
        loss = F.binary_cross_entropy_with_logits(logits.float(), is_replaced, reduction="sum")
        terms["rtd"] = (loss, len(is_replaced))
        if accuracy:
            terms["rtd_accuracy"] = (((logits > 0) == (is_replaced > 0)).sum(), len(is_replaced))
        return terms

    def _forward(self, model: Model, batch: Batch) -> LogitsAndTargets:
        """Return the generator's logits (N, V) and targets, and the discriminator's logits (M,) and targets (1 = replaced)."""
        generator: Model = model.heads["generator"]  # type: ignore[assignment]
        positions, targets = batch.labels["mlm.positions"], batch.labels["mlm.targets"]
        logits = generator.logits("mlm", generator.encode(batch, positions))
        sampled = sample(logits.detach(), batch.labels["rtd.noise"])
        ids = batch.input_ids.flatten().index_copy(0, positions, sampled)
        is_replaced = torch.zeros(len(ids), device=ids.device).index_copy(0, positions, (sampled != targets).float())
        tokens = None if batch.attention_mask is None else batch.attention_mask.flatten().nonzero().squeeze(1)
        hidden = model.encode(replace(batch, input_ids=ids.view_as(batch.input_ids)), tokens)
        is_replaced = is_replaced if tokens is None else is_replaced[tokens]
        return {"rtd_mlm": (logits, targets), "rtd": (model.logits("rtd", hidden).flatten(), is_replaced)}

    def target_counts(self, batch: Batch) -> dict[str, int]:
        return {"rtd_mlm": len(batch.labels["mlm.targets"]), "rtd": batch.tokens}


def sample(logits: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
    """Sample one token (N,) from each distribution (N, V) by inverting its cumulative sum at `noise` (N,), uniform in [0, 1).

    >>> sample(torch.tensor([[0.0, 0.0]]).repeat(3, 1), torch.tensor([0.0, 0.49, 0.51])).tolist()
    [0, 0, 1]
    """
    cumulative = logits.float().softmax(-1).cumsum(-1)
    index = torch.searchsorted(cumulative, noise[:, None] * cumulative[:, -1:], right=True)
    return index.squeeze(1).clamp_max(logits.shape[-1] - 1)
