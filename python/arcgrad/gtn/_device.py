"""Devices. Every graph is on the CPU; asking for a GPU is the error that gtn raises without one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NoReturn


class DeviceType(IntEnum):
    """A kind of device."""

    CPU = 0
    CUDA = 1


CPU = DeviceType.CPU
CUDA = DeviceType.CUDA


@dataclass(frozen=True)
class Device:
    """A device: its kind, and which one of that kind."""

    type: DeviceType
    index: int = 0


def fail_without_cuda(op: str) -> NoReturn:
    """Raise what gtn raises when it was built without CUDA."""
    raise RuntimeError(f"{op}: a CUDA device is needed, but arcgrad.gtn runs on the CPU only")


def calc_grad_of(op: str, device: Device | bool, calc_grad: bool) -> bool:
    """The argument ``calc_grad`` of a function that may take it in the place of ``device``."""
    if isinstance(device, bool):
        return device
    if not isinstance(device, Device):
        raise TypeError(f"{op}: device must be a Device, or calc_grad a bool, but got {device!r}")
    if device.type == CUDA:
        fail_without_cuda(op)
    return calc_grad
