"""Several processes that do the work of one: `torchrun --nproc-per-node 2 -m unmask pretrain …`.

A global batch is a list of micro-batches; rank r takes every W-th of them. Gradients are sums that were already divided
by the global count, so adding them over the ranks gives exactly what one process has. No wrapper class: after the last
micro-batch one flat buffer is summed. A rank with nothing to do adds zeros.
"""

import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

BUCKET_ELEMENTS = 32 * 2**20  # elements summed in one call


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
        """The world that torchrun describes in the environment, or a world of one."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not dist.is_initialized():
            if device == "cuda":
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            # the others wait while rank 0 prepares the text, which may take hours
            backend = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
            dist.init_process_group(backend, timeout=timedelta(hours=24))
        return cls(int(os.environ.get("RANK", "0")) if size > 1 else 0, size)

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def micro_batches(self, count: int) -> list[int]:
        return list(range(self.rank, count, self.size))

    def all_reduce_sum(self, values: Iterable[float], device: torch.device | str = "cpu") -> list[float]:
        """Numbers added over the ranks, in float64 where the device has it."""
        values = list(values)
        if self.size == 1:
            return values
        dtype = torch.float32 if str(device).startswith("mps") else torch.float64
        buffer = torch.tensor(values, dtype=dtype, device=device)
        dist.all_reduce(buffer)
        return buffer.tolist()

    def all_reduce_gradients(self, parameters: list[nn.Parameter]) -> None:
        for p in parameters:
            if p.grad is None:  # on this rank, or a head that no loss reads: the same for any number of processes
                p.grad = torch.zeros_like(p)
        if self.size == 1:
            return
        for bucket in _buckets([p.grad for p in parameters if p.grad is not None]):
            flat = torch.cat([g.flatten() for g in bucket])
            dist.all_reduce(flat)
            for g, part in zip(bucket, flat.split([g.numel() for g in bucket])):
                g.copy_(part.view_as(g))

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def broadcast_weights(self, model: nn.Module) -> None:
        """Rank 0's weights, on every rank: what was computed on another kind of processor differs in its last bits."""
        if self.size > 1:
            for value in model.state_dict().values():
                sent = value.cpu()  # NCCL does not know every type of number
                dist.broadcast(sent, src=0)
                value.copy_(sent)

    def barrier(self) -> None:
        if self.size > 1:
            dist.barrier()

    def close(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def _buckets(tensors: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Neighbours that are summed in one call, of about BUCKET elements."""
    out: list[list[torch.Tensor]] = []
    room = 0
    for t in tensors:
        if t.numel() > room or not out:
            out.append([])
            room = BUCKET_ELEMENTS
        out[-1].append(t)
        room -= t.numel()
    return out
