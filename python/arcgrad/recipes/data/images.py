"""Images of handwriting: scaling, normalisation and augmentation."""

from __future__ import annotations

import abc
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from arcgrad import _files

from .examples import Dataset, Example, Key

WHITE = 255

# The least deviation of an image that is normalised with its own.
LEAST_DEVIATION = 1e-3

# The size of the largest images, which are read as a whole; a page at 300 dpi has 9 million.
MOST_PIXELS = 50_000_000


@dataclass(frozen=True)
class ImageAugmentation:
    """The augmentation of the paper: resize and crop, rotation, brightness and contrast.

    The defaults suit lines cut from scanned pages.

    Args:
        jitter: The maximum shift in pixels; the border is filled with white.
        stretch: The width is multiplied by a factor from ``1 - stretch`` to ``1 + stretch``.
        rotation: The maximum rotation in degrees.
        brightness: Greys are multiplied by a factor from ``1 - brightness`` to ``1 + brightness``.
        contrast: Differences from the mean grey are multiplied, likewise.

    Raises:
        ValueError: If a number is negative, or a fraction is not below 1.

    >>> import numpy as np
    >>> from PIL import Image
    >>> from arcgrad.recipes.data import ImageAugmentation
    >>> augment = ImageAugmentation(jitter=2)
    >>> image = Image.new("L", (100, 32), 255)
    >>> augment(image, np.random.default_rng(0)).height
    32
    """

    jitter: int = 10
    stretch: float = 0.5
    rotation: float = 2.0
    brightness: float = 0.5
    contrast: float = 0.5

    def __post_init__(self) -> None:
        fractions = self.stretch, self.brightness, self.contrast
        if min(self.jitter, self.rotation, *fractions) < 0 or max(fractions) >= 1:
            raise ValueError(
                "ImageAugmentation: numbers must not be negative and fractions must be below 1, "
                f"but they are {self}"
            )

    def __call__(self, image: Image.Image, rng: np.random.Generator) -> Image.Image:
        """Return an augmented copy of a grey image, of the same height."""
        x, y = (int(offset) for offset in rng.integers(0, 2 * self.jitter, 2, endpoint=True))
        factor = rng.uniform(1 - self.stretch, 1 + self.stretch)
        angle = rng.uniform(-self.rotation, self.rotation)
        brightness = rng.uniform(1 - self.brightness, 1 + self.brightness)
        contrast = rng.uniform(1 - self.contrast, 1 + self.contrast)

        width, height = image.size
        padded = ImageOps.expand(image, self.jitter, WHITE)
        moved = padded.crop((x, y, x + width, y + height))
        resized = moved.resize((max(1, round(width * factor)), height), Image.Resampling.BILINEAR)
        rotated = resized.rotate(angle, Image.Resampling.BILINEAR, fillcolor=WHITE)
        brighter = ImageEnhance.Brightness(rotated).enhance(brightness)
        return ImageEnhance.Contrast(brighter).enhance(contrast)


def scaled_width(width: int, height: int, new_height: int) -> int:
    """Return the width of an image that is scaled to another height."""
    return max(1, round(width * new_height / height))


@dataclass(frozen=True)
class Pixels:
    """The preprocessing of images: scaling to one height, and normalisation.

    Args:
        height: The height to which images are scaled, with their aspect ratio.
        mean: The mean of all pixels of the corpus, on a scale from 0 (black) to 1; None to
            normalise each image with its own mean and standard deviation.
        std: The standard deviation of all pixels of the corpus; None likewise.

    Raises:
        ValueError: If the height or the deviation is not positive, or only one of mean and std is
            None.

    >>> from PIL import Image
    >>> from arcgrad.recipes.data import Pixels
    >>> Pixels(height=16, mean=0.8, std=0.4)(Image.new("L", (100, 32), 255)).shape
    torch.Size([16, 50])
    """

    height: int
    mean: float | None = None
    std: float | None = None

    def __post_init__(self) -> None:
        if self.height < 1 or not (self.std is None or self.std > 0):
            raise ValueError(
                f"Pixels: the height and the deviation must be positive, but they are {self.height}"
                f" and {self.std}"
            )
        if (self.mean is None) != (self.std is None):
            raise ValueError(
                "Pixels: the mean and the deviation must be given together, but they are "
                f"{self.mean} and {self.std}"
            )

    def __call__(self, image: Image.Image) -> Tensor:
        """Return the pixels ``[height, width]`` of a grey image; white has the largest value."""
        if image.height != self.height:
            width = scaled_width(image.width, image.height, self.height)
            image = image.resize((width, self.height), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.asarray(image, np.float32) / WHITE)
        if self.mean is not None and self.std is not None:
            return (pixels - self.mean) / self.std
        # An image of one grey has deviation 0, and becomes 0.
        std, mean = torch.std_mean(pixels, correction=0)
        return (pixels - mean) / std.clamp_min(LEAST_DEVIATION)


def read_image(path: str | os.PathLike[str]) -> Image.Image:
    """Read an image in grey and upright; transparent pixels become white.

    Args:
        path: A file that Pillow reads: PNG, JPEG, TIFF, ...; only the first page is used.

    Raises:
        ValueError: If the file is missing or cannot be read, or has more than 50 million pixels.

    >>> from PIL import Image
    >>> from arcgrad.recipes.data import read_image
    >>> Image.new("RGBA", (30, 16)).save("nothing.png")
    >>> read_image("nothing.png").getpixel((0, 0))
    255
    """
    if not Path(path).exists():
        raise ValueError(f"read_image: {str(path)!r} must exist, but it is missing")
    try:
        with Image.open(path) as file:
            if file.width * file.height > MOST_PIXELS:
                raise ValueError(f"it has {file.width} x {file.height} pixels")
            return _grey(ImageOps.exif_transpose(file))
    # Pillow raises errors of many classes for damaged files.
    except Exception as error:
        raise ValueError(
            f"read_image: {str(path)!r} must be an image, but reading it fails: "
            f"{_files.reason(error)}"
        ) from None


def _grey(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: a conversion would clip instead of scaling
        return Image.fromarray((np.asarray(image).clip(0, 65535) // 257).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        paper = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(paper, image.convert("RGBA"))
    return image.convert("L")


class ImageDataset(Dataset):
    """Images with texts; the input is ``[height, width]``, and white has the largest value.

    Args:
        args: As for :class:`Dataset`.
        pixels: The preprocessing of images.
        augmentation: The augmentation, or None.
        kwargs: As for :class:`Dataset`.
    """

    def __init__(
        self,
        *args: Any,
        pixels: Pixels,
        augmentation: ImageAugmentation | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.pixels, self.augmentation = pixels, augmentation

    @abc.abstractmethod
    def image(self, index: int) -> Image.Image:
        """Return the original image of an example, in grey."""

    def _input(self, index: int, rng: np.random.Generator) -> Tensor:
        image = self.image(index)
        if self.augmentation is not None:
            image = self.augmentation(image, rng)
        return self.pixels(image)


class ImagesInMemory(ImageDataset):
    """Images in memory, as arrays of bytes."""

    def __init__(
        self, images: Sequence[np.ndarray[Any, np.dtype[np.uint8]]], *args: Any, **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self._images = list(images)
        self._first: ImagesInMemory | None = None
        self._num_first = 0

    def start_with(self, first: ImagesInMemory, num_epochs: int) -> None:
        """Use other examples, as many, in the first epochs."""
        self._first, self._num_first = first, num_epochs

    def __getitem__(self, key: int | Key) -> Example:
        if self._first is not None and isinstance(key, Key) and key.epoch < self._num_first:
            return self._first.with_tokenizer(self.tokenizer)[key]
        return super().__getitem__(key)

    def image(self, index: int) -> Image.Image:
        """Return the original image of an example, in grey."""
        return Image.fromarray(self._images[index])


class ImagesInFiles(ImageDataset):
    """Images in files, which are read on demand."""

    def __init__(self, paths: Sequence[Path], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._paths = list(paths)

    def image(self, index: int) -> Image.Image:
        """Return the original image of an example, in grey."""
        return read_image(self._paths[index])
