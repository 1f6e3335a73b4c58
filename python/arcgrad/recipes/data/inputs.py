"""Files as inputs of a trained network: read and normalised like its training data."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from PIL import Image
from torch import Tensor

from arcgrad.recipes.experiments import Experiment

from . import digits, iam, letters, librispeech, wsj
from ._audio import read_audio
from .examples import Dataset
from .images import ImageDataset, Pixels, read_image
from .speech import LogMel, SpeechDataset

__all__ = ["Input", "dataset_input", "input_features", "read_input"]

RATES = {"digits": digits.RATE, "librispeech": librispeech.RATE, "wsj": wsj.RATE}


@dataclass(frozen=True, eq=False)
class Input:
    """An input of a network, with the positions of its columns in the image or recording.

    Attributes:
        values: ``[height, length]``: the pixels of an image, or the features of a recording.
        unit: The unit of positions: pixels of the original image, or seconds.
        extent: The width of the image, or the duration of the recording.
        first: The position of the centre of the first column or frame.
        step: The distance between the centres of adjacent columns or frames.

    >>> import torch
    >>> from arcgrad.recipes.data import Input
    >>> Input(torch.zeros(80, 101), "seconds", extent=1.0, first=0.0, step=0.01).position(50)
    0.5
    """

    values: Tensor
    unit: Literal["pixels", "seconds"]
    extent: float
    first: float
    step: float

    def position(self, column: float) -> float:
        """Return the position of a (fractional) column or frame, clamped to the input."""
        return min(max(self.first + self.step * column, 0.0), self.extent)


def input_features(experiment: Experiment, height: int | None = None) -> Pixels | LogMel:
    """Return the preprocessing of images or recordings; the corpus itself is not needed.

    Args:
        experiment: The settings.
        height: The height of inputs, such as the height of a recogniser; None for the default of
            the corpus.

    >>> from arcgrad.recipes.data import input_features
    >>> from arcgrad.recipes.experiments import find
    >>> input_features(find("demo"))
    Pixels(height=16, mean=0.81, std=0.393)
    """
    settings = experiment.data
    if settings.corpus in RATES:
        features = LogMel(rate=RATES[settings.corpus], window=settings.window)
        if height is None:
            return features
        return replace(features, num_filters=height)
    height = height or settings.height
    if settings.corpus == "iam":
        return iam.pixels(height or iam.HEIGHT, settings.normalize)
    return letters.pixels(settings.task, height or letters.HEIGHT, settings.normalize)


def read_input(features: Pixels | LogMel, path: str | os.PathLike[str]) -> Input:
    """Read an image or a recording from a file.

    Args:
        features: The preprocessing, by :func:`input_features`.
        path: A file that Pillow or libsndfile reads.

    Raises:
        ValueError: If the file is missing or cannot be read; or a recording has several channels or
            a sampling rate that differs from the corpus.

    >>> from PIL import Image
    >>> from arcgrad.recipes.data import input_features, read_input
    >>> from arcgrad.recipes.experiments import find
    >>> Image.new("L", (100, 32), "white").save("line.png")
    >>> found = read_input(input_features(find("demo")), "line.png")
    >>> found.values.shape, found.unit, found.extent
    (torch.Size([16, 50]), 'pixels', 100.0)
    """
    if isinstance(features, Pixels):
        return _of_image(features, read_image(path))
    return _of_samples(features, read_audio(Path(path), features.rate))


def dataset_input(dataset: Dataset, index: int) -> Input:
    """Return an example of a data set, without augmentation.

    Raises:
        TypeError: If the data are neither images nor speech.

    >>> from arcgrad.recipes.data import dataset_input, letters
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
