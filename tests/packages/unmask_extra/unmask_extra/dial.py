"""The head of `wait`, in a separate module from its HeadSpec, so that a served export works without torch."""

from torch import Tensor, nn

from unmask.model.config import ModelConfig


class Dial(nn.Module):
    def __init__(self, config: ModelConfig):
        super().__init__()
        self.out = nn.Linear(config.hidden, 1)

    def forward(self, hidden: Tensor, mask: Tensor | None) -> Tensor:
        """hidden (B, T, D), mask (B, T) → (B, 1), from the mean over the tokens. Without a mask, no row is padded."""
        if mask is None:
            return self.out(hidden.mean(1))
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        return self.out((hidden * weights).sum(1) / weights.sum(1))
