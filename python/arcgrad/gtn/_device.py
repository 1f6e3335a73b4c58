"""Devices. Every graph is on the CPU; a request for a GPU raises the same error as in gtn."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn

from arcgrad.gtn._arguments import has_truth, to_bool


class DeviceType(IntEnum):
    """A kind of device."""

    CPU = 0
    CUDA = 1


CPU = DeviceType.CPU
CUDA = DeviceType.CUDA


@dataclass(frozen=True)
class Device:
    """A device: its kind and its index."""

    type: DeviceType
    index: int = 0


def fail_without_cuda(op: str) -> NoReturn:
    """Raise the error of a gtn that was built without CUDA."""
    raise RuntimeError(f"{op}: a CUDA device is needed, but arcgrad.gtn runs on the CPU only")


def calc_grad_of(op: str, device: Device | bool, calc_grad: bool) -> bool:
    """The value of ``calc_grad``, which gtn also accepts as the argument ``device``."""
    if isinstance(device, Device):
        if device.type == CUDA:
            fail_without_cuda(op)
        return to_bool(op, "calc_grad", calc_grad)
    # CPU is 0 and None is false, but neither is a value of calc_grad.
    if device is None or isinstance(device, DeviceType) or not has_truth(device):
        raise TypeError(f"{op}: device must be a Device, or calc_grad a bool, but got {device!r}")
    return bool(device)
