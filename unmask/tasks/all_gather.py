"""Gather the vectors of all processes, for a loss that compares each record with the others of its batch.

Each process computes the loss of the whole batch, in which only its own vectors have a gradient. The trainer sums gradients over the
processes, which gives the gradient of one process with the whole batch. The backward pass needs no communication.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def gather(local: Tensor) -> Tensor:
    """Concatenate the tensors (n, …) of all processes in the order of their ranks. n may differ; an empty tensor may have any width."""
    import torch
    import torch.distributed as dist

    shape, world = torch.tensor(local.shape, device=local.device), dist.get_world_size()
    shapes = [torch.zeros_like(shape) for _ in range(world)]
    dist.all_gather(shapes, shape)
    padded = local.new_zeros(torch.stack(shapes).amax(0).tolist())
    if len(local):
        padded[: len(local)] = local.detach()
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    if len(local):
        parts[dist.get_rank()] = local  # with its gradient
    return torch.cat([part[: int(n)] for part, (n, *_) in zip(parts, shapes)])


def local_share(total: Tensor, fraction: float) -> Tensor:
    """Return `fraction` of a loss that every process has computed in full, with the gradient of the full loss."""
    return total - total.detach() * (1 - fraction)
