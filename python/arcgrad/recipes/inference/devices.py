"""Where a network runs: its device, and the number of threads that torch uses."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
import torch.distributed as dist

from arcgrad.recipes.experiments import Experiment
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import load_run

__all__ = ["find_device", "load_run_on", "torch_threads"]


def find_device(op: str, name: str) -> torch.device:
    """Return a device by name; under ``torchrun``, ``"cuda"`` is the GPU of this process.

    Raises:
        ValueError: If this machine does not have the device.
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


def load_run_on(
    op: str, path: str | os.PathLike[str], checkpoint: str, device: str
) -> tuple[Experiment, Recognizer]:
    """Load a run by :func:`arcgrad.recipes.run.load_run`, with the recogniser on a device."""
    target = find_device(op, device)
    experiment, recognizer = load_run(path, checkpoint)
    return experiment, recognizer.to(target)


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of threads of torch, and restore it at the end."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
