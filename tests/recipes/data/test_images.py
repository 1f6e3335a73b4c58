"""Random changes of images."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from arcgrad.recipes.data import ImageAugmentation, Pixels

NOTHING = ImageAugmentation(jitter=0, stretch=0, rotation=0, brightness=0, contrast=0)


def rng(seed=0):
    return np.random.default_rng(seed)


def picture(width=60, height=20):
    """A black bar on white paper."""
    pixels = np.full((height, width), 255, np.uint8)
    pixels[height // 3 : height // 2, width // 4 : width // 2] = 0
    return Image.fromarray(pixels)


def test_zero_augmentation_keeps_the_image():
    assert NOTHING(picture(), rng()) == picture()


@given(st.integers(0, 10**6), st.integers(1, 80), st.integers(1, 40))
def test_the_height_stays_and_the_width_is_stretched(seed, width, height):
    changed = ImageAugmentation()(picture(width, height), rng(seed))
    assert changed.height == height
    assert max(1, 0.5 * width - 1) <= changed.width <= 1.5 * width + 1


def test_the_same_generator_gives_the_same_change():
    augment = ImageAugmentation()
    assert augment(picture(), rng(3)) == augment(picture(), rng(3))
    assert augment(picture(), rng(3)) != augment(picture(), rng(4))


def test_jitter_shifts_the_image_and_fills_with_white():
    augment = ImageAugmentation(jitter=3, stretch=0, rotation=0, brightness=0, contrast=0)
    before = np.asarray(picture())
    offsets = set()
    for seed in range(200):
        after = np.asarray(augment(picture(), rng(seed)))
        rows, columns = np.nonzero(after == 0)
        offsets.add((rows[0] - np.nonzero(before == 0)[0][0], columns[0] - 15))
        assert (after == 0).sum() == (before == 0).sum()
    assert offsets == {(y, x) for y in range(-3, 4) for x in range(-3, 4)}


def test_rotation_fills_with_white():
    augment = ImageAugmentation(jitter=0, stretch=0, rotation=20, brightness=0, contrast=0)
    blank = Image.new("L", (50, 20), 255)
    assert all(augment(blank, rng(seed)) == blank for seed in range(20))
    assert augment(picture(), rng(1)) != picture()


def test_brightness_multiplies_greys():
    augment = ImageAugmentation(jitter=0, stretch=0, rotation=0, brightness=0.5, contrast=0)
    greys = {
        np.asarray(augment(Image.new("L", (4, 4), 100), rng(seed)))[0, 0] for seed in range(200)
    }
    assert min(greys) in range(50, 55)
    assert max(greys) in range(145, 151)


def test_contrast_keeps_the_mean():
    augment = ImageAugmentation(jitter=0, stretch=0, rotation=0, brightness=0, contrast=0.5)
    pixels = np.tile(np.array([80, 120], np.uint8), (4, 2))
    spreads = set()
    for seed in range(200):
        after = np.asarray(augment(Image.fromarray(pixels), rng(seed)), float)
        assert after.mean() == pytest.approx(100, abs=1)
        spreads.add(after.max() - after.min())
    assert min(spreads) <= 22
    assert max(spreads) >= 58


@pytest.mark.parametrize(
    "wrong", [{"jitter": -1}, {"stretch": 1.0}, {"rotation": -2.0}, {"brightness": 1.5}]
)
def test_invalid_augmentation_settings_are_errors(wrong):
    with pytest.raises(ValueError, match="must not be negative and fractions must be below 1"):
        ImageAugmentation(**wrong)


def test_an_image_can_be_normalised_with_its_own_mean_and_deviation():
    rng = np.random.default_rng(0)
    image = Image.fromarray(rng.integers(0, 256, (32, 50), np.uint8))
    values = Pixels(32)(image)
    assert torch.allclose(values.mean(), torch.tensor(0.0), atol=1e-6)
    assert torch.allclose(values.std(correction=0), torch.tensor(1.0), atol=1e-6)
    assert (Pixels(32)(Image.new("L", (9, 32), 77)) == 0).all()
    with pytest.raises(ValueError, match="the mean and the deviation must be given together, but"):
        Pixels(32, 0.5)
