"""Numbers of a training for TensorBoard, where that is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["open_board"]


@contextlib.contextmanager
def open_board(folder: Path, num_epochs: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Opens a board, and gives a function that adds the numbers of an epoch to it.

    Without TensorBoard the function does nothing.

    Args:
        folder: Where the files of the board are.
        num_epochs: How many epochs were done before; what the board has of later ones is hidden.
    """
    # Not within the handler: errors of a training would be shown as if they came from it.
    is_there = True
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        is_there = False
    if not is_there:
        yield lambda numbers: None
        return
    with SummaryWriter(str(folder), purge_step=num_epochs + 1) as writer:

        def add(numbers: Mapping[str, float]) -> None:
            for name, value in numbers.items():
                # The tag loss/train is shown beside loss/validation.
                split, _, what = name.partition("_")
                tag = f"{what}/{split}" if split in ("train", "validation") else name
                if name != "epoch":
                    writer.add_scalar(tag, value, int(numbers["epoch"]))
            writer.flush()

        yield add
