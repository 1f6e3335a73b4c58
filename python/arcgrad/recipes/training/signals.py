"""Signals that end a training after its current step: Ctrl-C, and those of batch systems."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

__all__ = ["Signals"]

# Slurm sends SIGTERM before it kills a job, and SIGUSR1 if asked to (--signal=USR1@120).
NAMES = tuple(name for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))


class Signals:
    """Records the first signal, so that the step is completed and saved; the next one raises.

    Attributes:
        received: The number of the first signal; 0 if there was none.
    """

    def __init__(self) -> None:
        self.received = 0

    def _receive(self, number: int, _: FrameType | None) -> None:
        if self.received:
            raise KeyboardInterrupt
        self.received = number

    def __enter__(self) -> Signals:
        self._before: dict[int, Any] = {}
        if threading.current_thread() is threading.main_thread():
            for name in NAMES:
                number = getattr(signal, name)
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
