"""Rows of all processes together, for a loss that compares a record with the others of its batch.

Each process computes the whole loss from everybody's vectors, of which only its own have a gradient. Gradients are added over the processes
afterwards, so that the sum is that of one process with the whole batch; no second exchange is needed on the way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def gather(own: Tensor) -> Tensor:
    """(n, …) of this process → (N, …) of all, in the order of their ranks. Processes may differ in n; one with none may be of any width."""
    import torch
    import torch.distributed as dist

    shape, world = torch.tensor(own.shape, device=own.device), dist.get_world_size()
    shapes = [torch.zeros_like(shape) for _ in range(world)]
    dist.all_gather(shapes, shape)
    padded = own.new_zeros(torch.stack(shapes).amax(0).tolist())
    if len(own):
        padded[: len(own)] = own.detach()
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    if len(own):
        parts[dist.get_rank()] = own  # with its gradient
    return torch.cat([part[: int(n)] for part, (n, *_) in zip(parts, shapes)])


def share(total: Tensor, part: float) -> Tensor:
    """A sum that every process has whole → the part of it that is its own; the gradient stays that of the whole."""
    return total - total.detach() * (1 - part)
