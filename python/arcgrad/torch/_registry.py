"""Numbers for losses: a compiled program cannot hold a loss, so it holds the number of one."""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sequence import SequenceLoss

_numbers = itertools.count()
_losses: weakref.WeakValueDictionary[int, SequenceLoss] = weakref.WeakValueDictionary()


def register(loss: SequenceLoss) -> int:
    """The handle of a loss, which does not keep it alive."""
    handle = next(_numbers)
    _losses[handle] = loss
    return handle


def find(handle: int) -> SequenceLoss:
    """The loss of a handle."""
    if handle not in _losses:
        raise RuntimeError("SequenceLoss: a compiled program uses a loss that no longer exists")
    return _losses[handle]
