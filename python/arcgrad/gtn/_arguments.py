"""Conversion of arguments that gtn accepts in several types."""

from __future__ import annotations

from typing import Any


def has_truth(value: Any) -> bool:
    """Whether gtn accepts a value as a bool: it accepts numbers, but not strings and lists."""
    return hasattr(type(value), "__bool__")


def to_bool(op: str, name: str, value: Any) -> bool:
    """A bool from a value that gtn accepts as one, such as an int or a NumPy bool."""
    if not has_truth(value):
        raise TypeError(f"{op}: {name} must be a bool, but it is {value!r}")
    return bool(value)
