"""Data-parallel training with torchrun: `torchrun --nproc-per-node 2 -m unmask pretrain …`.

A global batch is a list of micro-batches; of W ranks, rank r processes every W-th one, starting with the r-th. Losses are
already divided by the global count, so the sum of the gradients over the ranks equals the gradient of a single process. After
the last micro-batch, the gradients are summed in flat buffers, without a wrapper class. A rank without work adds zeros.
"""

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

BUCKET_ELEMENTS = 32 * 2**20  # elements summed in one all-reduce


class World:
    """
    >>> World(0, 1).micro_batches(3)
    [0, 1, 2]
    >>> World(1, 2).micro_batches(3)
    [1]
    """

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size

    @classmethod
    def init(cls, device: str) -> "World":
        """Join the process group that torchrun describes in the environment, or return a world of one process."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not dist.is_initialized():
            if device == "cuda":
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            # the other ranks wait while rank 0 tokenizes the corpus, which may take hours
            backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(hours=24))
        return cls(int(os.environ.get("RANK", "0")) if size > 1 else 0, size)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def micro_batches(self, count: int) -> list[int]:
        return list(range(self.rank, count, self.size))

    def all_reduce_sum(self, values: Iterable[float], device: torch.device | str = "cpu") -> list[float]:
        """Sum numbers over the ranks, in float64 if the device supports it."""
        values = list(values)
        if self.size == 1:
            return values
        dtype = torch.float32 if str(device).startswith("mps") else torch.float64
        buffer = torch.tensor(values, dtype=dtype, device=device)
        dist.all_reduce(buffer)
        return buffer.tolist()

    def all_reduce_gradients(self, parameters: list[nn.Parameter]) -> None:
        for p in parameters:
            if p.grad is None:  # zeros, so that unused parameters get the same update for any number of processes
                p.grad = torch.zeros_like(p)
        if self.size == 1:
            return
        for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
            flat = torch.cat([g.flatten() for g in bucket])
            dist.all_reduce(flat)
            for g, total in zip(bucket, flat.split([g.numel() for g in bucket])):
                g.copy_(total.view_as(g))

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0)
        return values[0]

    def broadcast_weights(self, model: nn.Module) -> None:
        """Copy rank 0's weights to every rank. Weights computed on different CPUs differ in their last bits."""
        if self.size > 1:
            for value in model.state_dict().values():
                copied = value.cpu()  # NCCL does not support every dtype
                dist.broadcast(copied, src=0)
                value.copy_(copied)

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _buckets(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Group consecutive tensors into buckets of about BUCKET_ELEMENTS elements."""
    buckets: list[list[torch.Tensor]] = []
    room = 0
    for t in tensors:
        if t.numel() > room or not buckets:
            buckets.append([])
            room = BUCKET_ELEMENTS
        buckets[-1].append(t)
        room -= t.numel()
    return buckets
