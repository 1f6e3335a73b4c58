"""Arguments as gtn takes them."""

from __future__ import annotations

from typing import Any


def has_truth(value: Any) -> bool:
    """Whether a value may stand for a bool: numbers may, but not strings and lists."""
    return hasattr(type(value), "__bool__")


def to_bool(op: str, name: str, value: Any) -> bool:
    """A bool from what gtn takes for one, such as an int or a bool of NumPy."""
    if not has_truth(value):
        raise TypeError(f"{op}: {name} must be a bool, but it is {value!r}")
    return bool(value)
