"""Rows of all processes together, for a loss that compares a record with the others of its batch.

Each process computes the whole loss from everybody's vectors, of which only its own have a gradient. Gradients are added over the processes
afterwards, so that the sum is that of one process with the whole batch; no second exchange is needed on the way back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def gather(own: Tensor) -> Tensor:
    """(n, …) of this process → (N, …) of all, in the order of their ranks. Processes may differ in n; it may be 0."""
    import torch
    import torch.distributed as dist

    count, world = torch.tensor([len(own)], device=own.device), dist.get_world_size()
    counts = [torch.zeros_like(count) for _ in range(world)]
    dist.all_gather(counts, count)
    sizes = [int(n) for n in counts]
    padded = own.new_zeros((max(sizes), *own.shape[1:]))
    padded[: len(own)] = own.detach()
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded)
    rank = dist.get_rank()
    return torch.cat([own if r == rank else part[:n] for r, (part, n) in enumerate(zip(parts, sizes))])


def share(total: Tensor, part: float) -> Tensor:
    """A sum that every process has whole → the part of it that is its own; the gradient stays that of the whole."""
    return total - total.detach() * (1 - part)
