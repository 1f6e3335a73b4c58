"""The processes of a training: the processes of ``torchrun``, or a single one."""

from __future__ import annotations

import atexit
import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

__all__ = ["Processes", "join", "rank"]

# The time after which a process stops waiting for the others.
TIMEOUT = timedelta(minutes=10)

# All modules that hold the process group.
_modules: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()


def rank() -> int:
    """Return the rank of this process under ``torchrun``, or 0."""
    return int(os.environ["RANK"]) if dist.is_torchelastic_launched() else 0


@dataclass(frozen=True)
class Processes:
    """The collective operations of the processes of a training.

    All processes must call the same methods in the same order.

    Attributes:
        rank: The rank of this process; the process of rank 0 writes and prints.
        world_size: The number of processes.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def all_reduce(self, numbers: Sequence[float]) -> list[float]:
        """Return the sum of each number over all processes."""
        if self.world_size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each process, in the order of ranks."""
        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait until all processes call this."""
        self.all_reduce([0.0])

    def data_parallel(self, module: nn.Module, device: torch.device, example: Any) -> nn.Module:
        """Return a module whose gradients are averaged over all processes.

        Args:
            module: A module whose first output depends on all of its parameters.
            device: The device of the module.
            example: An input of the module.
        """
        if self.world_size == 1:
            return module
        devices = [device] if device.type == "cuda" else None
        parallel = DistributedDataParallel(module, device_ids=devices)
        _modules.add(parallel)
        # The first backward pass rebuilds the gradient buckets, which changes the order of sums
        # over three or more processes. Do it here, so that a resumed training has the same order.
        parallel(example)[0].sum().backward()
        module.zero_grad()
        return parallel


def join(device: torch.device) -> Processes:
    """Join the processes of ``torchrun``, or of the process group that exists already.

    Metrics are reduced by gloo on any device, gradients by nccl on GPUs.
    """
    if dist.is_torchelastic_launched() and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=TIMEOUT)
        # Not at the end of a training: the next training could not join, since the store of
        # torchrun keeps the addresses of the destroyed group.
        atexit.register(_leave)
    if not dist.is_initialized():
        return Processes()
    return Processes(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if not dist.is_initialized():
        return
    # The traceback of an error may keep a module alive, and the module the group. Destroying the
    # group with the module would wait for gloo's threads while holding the GIL that they need.
    for module in list(_modules):
        vars(module).clear()
    dist.destroy_process_group()
