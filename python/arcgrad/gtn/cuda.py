"""``gtn.cuda``. There is no CUDA device, so all but :func:`is_available` raise."""

from arcgrad.gtn._device import fail_without_cuda


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """Raise RuntimeError."""
    fail_without_cuda("cuda.device_count")


def get_device() -> int:
    """Raise RuntimeError."""
    fail_without_cuda("cuda.get_device")


def set_device(device: int) -> None:
    """Raise RuntimeError."""
    fail_without_cuda("cuda.set_device")


def synchronize(device: int | None = None) -> None:
    """Raise RuntimeError."""
    fail_without_cuda("cuda.synchronize")
