"""The processes of a training: those that ``torchrun`` started, or one."""

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

__all__ = ["Processes", "check_device", "join", "rank"]

# How long a process waits for the others before it gives up.
TIMEOUT = timedelta(minutes=10)

# The modules that are shared with other processes, as long as somebody holds them.
_shared: weakref.WeakSet[DistributedDataParallel] = weakref.WeakSet()


def rank() -> int:
    """The number of this process among those of ``torchrun``, or 0."""
    return int(os.environ["RANK"]) if dist.is_torchelastic_launched() else 0


def check_device(op: str, name: str) -> torch.device:
    """A device by its name; under ``torchrun``, that of this process if the name has no number.

    Raises:
        ValueError: If it is not there.
    """
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None and dist.is_torchelastic_launched():
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"{op}: the device must be one of this machine, but it is {name!r}: {reason}"
        ) from None
    return device


@dataclass(frozen=True)
class Processes:
    """What a process of a training knows of the others, and what they do together.

    Each method must be called by all of them, in the same order.

    Attributes:
        rank: The number of this process; the first, 0, is the one that writes and prints.
        world_size: The number of processes.
    """

    rank: int = 0
    world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes and prints."""
        return self.rank == 0

    def sum(self, numbers: Sequence[float]) -> list[float]:
        """The sum of each number over all processes."""
        if self.world_size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()

    def gather(self, thing: Any) -> list[Any]:
        """The thing of each process, in the order of their ranks."""
        if self.world_size == 1:
            return [thing]
        things: list[Any] = [None] * self.world_size
        dist.all_gather_object(things, thing)
        return things

    def wait(self) -> None:
        """Waits until all processes are here."""
        self.sum([0.0])

    def share(self, module: nn.Module, device: torch.device, example: Any) -> nn.Module:
        """A module whose gradients are the mean over all processes.

        Args:
            module: A module whose first output has gradients for all of its parameters.
            device: Where it is.
            example: An input for it.
        """
        if self.world_size == 1:
            return module
        devices = [device] if device.type == "cuda" else None
        shared = DistributedDataParallel(module, device_ids=devices)
        _shared.add(shared)
        # After the first step gradients are arranged anew, and those of three or more processes
        # added in another order. This step is the first one, also of a training that is resumed.
        shared(example)[0].sum().backward()
        module.zero_grad()
        return shared


def join(device: torch.device) -> Processes:
    """Joins the other processes of ``torchrun``, or those of the group that is there already.

    Numbers of the training go through gloo on any device, gradients through nccl on GPUs.
    """
    if dist.is_torchelastic_launched() and not dist.is_initialized():
        if device.type == "cuda":
            torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=TIMEOUT)
        # Not at the end of a training: the next one could not join, since the store of torchrun
        # keeps the addresses of a group that is gone.
        atexit.register(_leave)
    if not dist.is_initialized():
        return Processes()
    return Processes(dist.get_rank(), dist.get_world_size())


def _leave() -> None:
    if not dist.is_initialized():
        return
    # A module that an error's traceback still holds would be the last to hold the group. It would
    # then wait for the threads of gloo under the lock of the interpreter, for which they may wait.
    for module in list(_shared):
        vars(module).clear()
    dist.destroy_process_group()
