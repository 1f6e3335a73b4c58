"""Files as inputs of a trained network: read, scaled and normalised as its training data were."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from . import data
from .data import Dataset, ImageDataset, LogMel, Pixels, SpeechDataset, read_audio, read_image
from .experiment import Experiment

__all__ = ["Grid", "Input", "dataset_input", "input_features", "output_grid", "read_input"]

RATES = {
    "digits": data.digits.RATE,
    "librispeech": data.librispeech.RATE,
    "wsj": data.wsj.RATE,
}

# Lengths of inputs that are tried to find how outputs lie: many more than a network leaves out.
NUM_TRIED = 2049


@dataclass(frozen=True, eq=False)
class Input:
    """An input of a network, and where its columns lie in the image or recording.

    Attributes:
        values: ``[height, length]``: the pixels of an image, or the features of a recording.
        unit: What positions are counted in: pixels of the image as it was, or seconds.
        extent: The width of the image, or the duration of the recording.
        first: The position of the middle of the first column or frame.
        step: From one column or frame to the next.

    >>> import torch
    >>> from arcgrad.recipes.inputs import Input
    >>> Input(torch.zeros(80, 101), "seconds", extent=1.0, first=0.0, step=0.01).position(50)
    0.5
    """

    values: Tensor
    unit: Literal["pixels", "seconds"]
    extent: float
    first: float
    step: float

    def position(self, column: float) -> float:
        """Where a column or frame lies, or a point between two; at most at the ends."""
        return min(max(self.first + self.step * column, 0.0), self.extent)


class Grid(NamedTuple):
    """How the outputs of a network lie along its inputs.

    Attributes:
        first: The middle of what the first output is made of; 0 is the middle of the first column.
        step: The columns from one output to the next: the sub-sampling.
    """

    first: float
    step: int


def input_features(experiment: Experiment, height: int | None = None) -> Pixels | LogMel:
    """What is made of the images or recordings of an experiment; its corpus need not be there.

    Args:
        experiment: The settings.
        height: That of inputs, as the recogniser of a run has it; by default that of the corpus.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.inputs import input_features
    >>> input_features(find("demo"))
    Pixels(height=16, mean=0.81, std=0.393)
    """
    settings = experiment.data
    if settings.corpus in RATES:
        features = LogMel(rate=RATES[settings.corpus])
        if height is None:
            return features
        return LogMel(rate=features.rate, num_filters=height)
    if settings.corpus == "iam":
        return Pixels(height or data.iam.HEIGHT, data.iam.MEAN, data.iam.STD)
    return data.letters.pixels(settings.task, height or data.letters.HEIGHT)


def read_input(features: Pixels | LogMel, path: str | os.PathLike[str]) -> Input:
    """An image or a recording from a file.

    Args:
        features: What is made of it, by :func:`input_features`.
        path: A file that Pillow or libsndfile reads.

    Raises:
        ValueError: If the file is missing or cannot be read; or a recording has several channels or
            another rate than those of the corpus.

    >>> from PIL import Image
    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.inputs import input_features, read_input
    >>> Image.new("L", (100, 32), "white").save("line.png")
    >>> found = read_input(input_features(find("demo")), "line.png")
    >>> found.values.shape, found.unit, found.extent
    (torch.Size([16, 50]), 'pixels', 100.0)
    """
    if isinstance(features, Pixels):
        return _of_image(features, read_image(path))
    return _of_samples(features, read_audio(Path(path), features.rate))


def dataset_input(dataset: Dataset, index: int) -> Input:
    """An example of a data set as it is, without random changes.

    Raises:
        TypeError: If the data are neither images nor speech.

    >>> from arcgrad.recipes.data import letters
    >>> from arcgrad.recipes.inputs import dataset_input
    >>> lines = letters.load("lines", train=3, validation=1, test=1)
    >>> found = dataset_input(lines.test, 0)
    >>> bool((found.values == lines.test[0].input).all())
    True
    """
    if isinstance(dataset, ImageDataset):
        return _of_image(dataset.pixels, dataset.image(index))
    if isinstance(dataset, SpeechDataset):
        return _of_samples(dataset.features, dataset.samples(index))
    raise TypeError(f"dataset_input: expected images or speech, but got {type(dataset).__name__}")


def _of_image(pixels: Pixels, image: Image.Image) -> Input:
    values = pixels(image)
    step = image.width / values.shape[1]
    return Input(values, "pixels", float(image.width), step / 2, step)


def _of_samples(features: LogMel, samples: npt.NDArray[np.floating[Any]]) -> Input:
    step = features.hop_size / features.rate
    return Input(features(samples), "seconds", len(samples) / features.rate, 0.0, step)


def output_grid(network: nn.Module) -> Grid:
    """How the outputs of a network lie along its inputs, from the lengths alone.

    Layers look equally far to both sides and are padded alike at both ends. So the shortest input
    with n outputs is the one that these cover to its ends, and they lie symmetrically in it.

    Args:
        network: With a method ``output_lengths``, as all of :mod:`arcgrad.recipes.models`.

    Raises:
        ValueError: If outputs do not lie at equal distances.

    >>> from arcgrad.recipes.inputs import output_grid
    >>> from arcgrad.recipes.models import PlainConv2d, TDS1d
    >>> output_grid(PlainConv2d(height=16, num_outputs=28))  # each output is made of two columns
    Grid(first=0.5, step=2)
    >>> output_grid(TDS1d.preset("paper", 80, 28, subsampling=8))  # strided, around every eighth
    Grid(first=0.0, step=8)
    """
    lengths = network.output_lengths(torch.arange(NUM_TRIED))  # type: ignore[operator]
    # The shortest input for each number of outputs; the first ones may lie in the padding.
    shortest = torch.searchsorted(lengths, torch.arange(1, int(lengths[-1]) + 1))
    steps = shortest.diff()[1:].unique()
    if len(steps) != 1 or steps[0] < 1:
        raise ValueError(
            "output_grid: outputs must lie at equal distances, but the shortest inputs for 1, 2, "
            f"... of them are {shortest[:5].tolist()}"
        )
    step, count = int(steps[0]), len(shortest)
    return Grid((int(shortest[-1]) - 1 - step * (count - 1)) / 2, step)
