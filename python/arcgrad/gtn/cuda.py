"""``gtn.cuda``. There is no CUDA device, so all but :func:`is_available` raise ValueError."""

from typing import NoReturn


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """Raise ValueError."""
    _fail("cuda.device_count")


def get_device() -> int:
    """Raise ValueError."""
    _fail("cuda.get_device")


def set_device(device: int) -> None:
    """Raise ValueError."""
    _fail("cuda.set_device")


def synchronize(device: int | None = None) -> None:
    """Raise ValueError."""
    _fail("cuda.synchronize")


def _fail(op: str) -> NoReturn:
    raise ValueError(f"{op}: a CUDA device is needed, but arcgrad.gtn runs on the CPU only")
