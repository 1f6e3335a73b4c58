"""The metrics of a training for TensorBoard, if it is installed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

__all__ = ["open_writer"]


@contextlib.contextmanager
def open_writer(folder: Path, num_epochs: int) -> Iterator[Callable[[Mapping[str, float]], None]]:
    """Open a writer of event files, as a function that adds the metrics of an epoch.

    Without TensorBoard the function does nothing.

    Args:
        folder: The folder of the event files.
        num_epochs: The number of completed epochs; events of later epochs are hidden.
    """
    is_installed = True
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        is_installed = False
    # Outside of the handler, so that errors of the training do not get the ImportError as context.
    if not is_installed:
        yield lambda metrics: None
        return
    with SummaryWriter(str(folder), purge_step=num_epochs + 1) as writer:

        def add(metrics: Mapping[str, float]) -> None:
            for name, value in metrics.items():
                # The tags loss/train and loss/validation share a section of the page.
                split, _, metric = name.partition("_")
                tag = f"{metric}/{split}" if split in ("train", "validation") else name
                if name != "epoch":
                    writer.add_scalar(tag, value, int(metrics["epoch"]))
            writer.flush()

        yield add
