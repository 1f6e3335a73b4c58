"""The geometry of a network: how its outputs lie along its inputs."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["Grid", "output_grid"]

# The number of input lengths to probe: many more than the receptive field of a network.
NUM_PROBED = 2049


@dataclass(frozen=True)
class Grid:
    """The positions of a network's outputs along its inputs.

    Attributes:
        first: The centre of the receptive field of the first output; 0 is the centre of the first
            column.
        step: The number of columns between adjacent outputs: the sub-sampling.

    >>> from arcgrad.recipes.models import Grid
    >>> grid = Grid(first=0.5, step=2)
    >>> [grid.first + grid.step * output for output in range(3)]
    [0.5, 2.5, 4.5]
    """

    first: float
    step: int


def output_grid(network: nn.Module) -> Grid:
    """Derive the positions of a network's outputs from its output lengths.

    Receptive fields and padding are symmetric. So the outputs of the shortest input with n outputs
    lie symmetrically in that input.

    Args:
        network: A network with a method ``output_lengths``, as in :mod:`arcgrad.recipes.models`.

    Raises:
        ValueError: If outputs are not equally spaced.

    >>> from arcgrad.recipes.models import PlainConv2d, TDS1d, output_grid
    >>> output_grid(PlainConv2d(height=16, num_outputs=28))  # pooling: centred between two columns
    Grid(first=0.5, step=2)
    >>> output_grid(TDS1d.preset("paper", 80, 28, subsampling=8))  # strides: centred at a frame
    Grid(first=0.0, step=8)
    """
    lengths = network.output_lengths(torch.arange(NUM_PROBED))  # type: ignore[operator]
    # The shortest input for each number of outputs; the first outputs may lie in the padding.
    shortest = torch.searchsorted(lengths, torch.arange(1, int(lengths[-1]) + 1))
    steps = shortest.diff()[1:].unique()
    if len(steps) != 1 or steps[0] < 1:
        raise ValueError(
            "output_grid: outputs must be equally spaced, but the shortest inputs for 1, 2, ... "
            f"outputs are {shortest[:5].tolist()}"
        )
    step, count = int(steps[0]), len(shortest)
    return Grid((int(shortest[-1]) - 1 - step * (count - 1)) / 2, step)
