"""Features of speech against their definition, and masks."""

import math
import pickle

import numpy as np
import pytest
import soundfile
import torch
from hypothesis import given
from hypothesis import strategies as st

from arcgrad.recipes.data import LogMel, SpecAugment, read_audio


def reference(samples, rate, num_filters, window, hop, points):
    """Log-mel energies frame by frame, by the sums that define the Fourier transform."""
    size = round(window * rate)
    step = round(hop * rate)
    weights = [0.5 - 0.5 * math.cos(2 * math.pi * n / size) for n in range(size)]
    bins = points // 2 + 1
    wave = np.exp(-2j * np.pi * np.outer(np.arange(bins), np.arange(size)) / points)

    def mel(hz):
        return 1127.0 * math.log(1.0 + hz / 700.0)

    edges = [i * mel(rate / 2) / (num_filters + 1) for i in range(num_filters + 2)]
    edges = [700.0 * (math.exp(m / 1127.0) - 1.0) for m in edges]
    frames = []
    for frame in range(1 + len(samples) // step):
        first = frame * step - size // 2
        inside = [samples[t] if 0 <= t < len(samples) else 0.0 for t in range(first, first + size)]
        power = np.abs(wave @ (np.array(inside) * weights)) ** 2
        row = []
        for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False):
            energy = 0.0
            for k in range(bins):
                hz = k * rate / points
                if low < hz <= centre:
                    energy += power[k] * (hz - low) / (centre - low)
                elif centre < hz < high:
                    energy += power[k] * (high - hz) / (high - centre)
            row.append(math.log(energy + 1e-6))
        frames.append(row)
    return np.array(frames).T


@pytest.mark.parametrize(
    ("rate", "num_filters", "window", "hop", "points"),
    [
        (8000, 80, 0.020, 0.010, None),
        (16000, 80, 0.020, 0.010, None),
        (16000, 40, 0.025, 0.010, 400),
        (11025, 20, 0.020, 0.015, None),
    ],
)
def test_features_equal_their_definition(rate, num_filters, window, hop, points):
    rng = np.random.default_rng(0)
    times = np.arange(rate // 10) / rate
    samples = 0.3 * np.sin(2 * np.pi * 440 * times) + 0.05 * rng.standard_normal(len(times))
    features = LogMel(rate, num_filters, window, hop, points, normalize=False)
    expected = reference(samples, rate, num_filters, window, hop, features._num_points)
    np.testing.assert_allclose(features(samples).numpy(), expected, atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100])
def test_no_filter_is_empty(rate):
    features = LogMel(rate)
    assert features.filters.shape[0] == 80
    assert (features.filters.max(dim=1).values >= 0.5).all()


def test_adjacent_filters_sum_to_one_at_each_frequency():
    filters = LogMel(16000).filters.double()
    edges = LogMel(16000)._edges
    hz = np.arange(filters.shape[1]) * 16000 / LogMel(16000)._num_points
    between = (hz >= edges[1]) & (hz <= edges[-2])
    assert torch.allclose(filters.sum(0)[between], torch.ones(1, dtype=torch.float64), atol=1e-5)


@given(st.integers(1, 3000))
def test_the_number_of_frames_is_known_beforehand(num_samples):
    features = LogMel(8000)
    samples = np.random.default_rng(num_samples).standard_normal(num_samples)
    assert features(samples).shape == (80, features.num_frames(num_samples))


def test_a_tone_is_in_the_filter_of_its_frequency():
    features = LogMel(16000, normalize=False)
    for hz in (300.0, 1000.0, 5000.0):
        samples = np.sin(2 * np.pi * hz * np.arange(16000) / 16000)
        loudest = int(features(samples)[:, 50].argmax())
        assert features._edges[loudest] < hz < features._edges[loudest + 2]


def test_features_of_an_example_are_normalised():
    samples = np.random.default_rng(0).standard_normal(4000) * 0.1
    features = LogMel(8000)(samples)
    assert abs(features.mean().item()) < 1e-5
    assert features.std(correction=0).item() == pytest.approx(1.0, abs=1e-4)
    assert torch.allclose(LogMel(8000)(samples * 3), features, atol=1e-2)


def test_silence_has_finite_features():
    assert (LogMel(8000)(np.zeros(1000)) == 0).all()


@pytest.mark.parametrize("shape", [(0,), (100, 2), ()])
def test_a_recording_has_one_channel_and_a_sample(shape):
    with pytest.raises(ValueError, match="must have one channel and a sample, but its shape is"):
        LogMel(8000)(np.zeros(shape))


def test_invalid_settings_are_errors():
    with pytest.raises(ValueError, match="must be positive, but they are 8000, 0, 160 and 80"):
        LogMel(8000, num_filters=0)
    with pytest.raises(ValueError, match="but they are 8000, 80, 160 and 0"):
        LogMel(8000, hop=0.00001)
    with pytest.raises(ValueError, match=r"a window of 320 points, but it has 256"):
        LogMel(16000, fft_size=256)


def test_features_can_be_pickled():
    samples = np.random.default_rng(0).standard_normal(1000)
    features = LogMel(8000)
    before = features(samples)
    assert torch.equal(pickle.loads(pickle.dumps(features))(samples), before)


def runs(flags):
    """The lengths of runs of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return list(edges[1::2] - edges[::2])


@given(st.integers(0, 10**6), st.integers(1, 300), st.integers(1, 90))
def test_masks_are_frequency_bands_and_time_spans_of_limited_size(seed, frames, filters):
    masked = SpecAugment()(torch.ones(filters, frames), np.random.default_rng(seed)).numpy()
    bands, stretches = (masked == 0).all(axis=1), (masked == 0).all(axis=0)
    # Exactly the bands and time spans are masked.
    if not bands.all() and not stretches.all():
        assert ((masked == 0) == (bands[:, None] | stretches)).all()
        assert bands.sum() <= 2 * 27
        assert stretches.sum() <= 2 * 100
        assert len(runs(bands)) <= 2
        assert len(runs(stretches)) <= 2


def test_masks_take_all_sizes_and_places():
    augment = SpecAugment(1, 3, 1, 2)
    sizes, filters, frames = set(), set(), set()
    for seed in range(300):
        masked = augment(torch.ones(8, 8), np.random.default_rng(seed)) == 0
        bands, stretches = masked.all(dim=1), masked.all(dim=0)
        sizes.add((int(bands.sum()), int(stretches.sum())))
        filters |= set(bands.nonzero().flatten().tolist())
        frames |= set(stretches.nonzero().flatten().tolist())
    assert sizes == {(f, t) for f in range(4) for t in range(3)}
    assert filters == frames == set(range(8))


def test_a_time_mask_covers_a_limited_fraction():
    augment = SpecAugment(0, 0, 1, 100, max_share=0.2)
    for seed in range(100):
        masked = augment(torch.ones(4, 50), np.random.default_rng(seed)) == 0
        assert masked.all(dim=0).sum() <= 10


def test_masking_does_not_change_its_argument():
    features = torch.ones(80, 200)
    SpecAugment()(features, np.random.default_rng(0))
    assert (features == 1).all()


def test_invalid_mask_settings_are_errors():
    with pytest.raises(ValueError, match="must not be negative and max_share at most 1"):
        SpecAugment(max_frames=-1)
    with pytest.raises(ValueError, match="max_share at most 1"):
        SpecAugment(max_share=1.5)


@pytest.mark.parametrize(("suffix", "form"), [("wav", "WAV"), ("flac", "FLAC"), ("wv1", "NIST")])
def test_recordings_are_read(suffix, form, tmp_path):
    samples = np.random.default_rng(0).uniform(-0.9, 0.9, 500)
    path = tmp_path / f"x.{suffix}"
    soundfile.write(path, samples, 8000, format=form, subtype="PCM_16")
    np.testing.assert_allclose(read_audio(path, 8000), samples, atol=1e-4)


def test_invalid_recordings_are_named(tmp_path):
    soundfile.write(tmp_path / "two.wav", np.zeros((10, 2)), 8000)
    (tmp_path / "bad.wav").write_bytes(b"RIFF nothing")
    with pytest.raises(
        ValueError, match=r"two\.wav' must have one channel and 16000 .* 2 and 8000"
    ):
        read_audio(tmp_path / "two.wav", 16000)
    with pytest.raises(ValueError, match=r"bad\.wav' must be a recording, but reading it fails"):
        read_audio(tmp_path / "bad.wav", 16000)
    with pytest.raises(ValueError, match=r"none\.wav' must exist, but it is missing"):
        read_audio(tmp_path / "none.wav", 16000)
