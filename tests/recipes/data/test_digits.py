"""Real speech: strings of digits."""

from pathlib import Path

import numpy as np
import pytest
import torch

from arcgrad.recipes.data import Key, LogMel, digits

FOLDER = Path(__file__).parents[3] / "data/digits"


@pytest.fixture(scope="module")
def strings():
    return digits.load(FOLDER, train=40, validation=10, test=10, seed=2)


def test_strings_are_recordings_one_after_the_other(strings):
    with np.load(FOLDER / digits.INDEX) as index:
        lengths, numbers = index["lengths"], index["digits"]
    for data, split in ((strings.train, "train"), (strings.test, "test")):
        begin, end = digits.RECORDINGS[split]
        for index, recordings in enumerate(data._strings):
            assert 2 <= len(recordings) <= 6
            assert ((begin <= recordings) & (recordings < end)).all()
            assert data.texts[index] == " ".join(digits.NAMES[n] for n in numbers[recordings])
            samples = data.samples(index)
            assert len(samples) == lengths[recordings].sum()
            assert 0.001 < np.abs(samples).max() <= 1.0


def test_lengths_are_exact(strings):
    for index in range(10):
        example = strings.validation[index]
        assert example.input.shape == (80, strings.validation.lengths[index])
        assert strings.validation.tokenizer.decode(example.target.tolist()) == example.text


def test_only_training_strings_are_masked(strings):
    assert torch.equal(strings.test[Key(0, 3)].input, strings.test[Key(1, 3)].input)
    assert not torch.equal(strings.train[Key(0, 3)].input, strings.train[Key(1, 3)].input)


def test_strings_derive_from_the_seed(strings):
    assert digits.load(FOLDER, train=50, seed=2).train.texts[:40] == strings.train.texts
    assert digits.load(FOLDER, train=40, seed=3).train.texts != strings.train.texts


def test_every_recording_has_its_split():
    ranges = [range(*each) for each in digits.RECORDINGS.values()]
    assert [number for each in ranges for number in each] == list(range(3000))
    assert [len(each) for each in ranges] == [2400, 300, 300]


def test_recordings_are_found_in_a_checkout_or_below_the_working_directory(monkeypatch, tmp_path):
    assert digits.find(FOLDER) == FOLDER
    monkeypatch.setattr(digits, "__file__", str(tmp_path / "a/b/c/d/digits.py"))
    monkeypatch.chdir(FOLDER.parents[1])
    assert digits.find() == FOLDER
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"must have fsdd\.flac .* pass that as data_path"):
        digits.find()
    with pytest.raises(ValueError, match="nowhere"):
        digits.load(tmp_path / "nowhere")


def test_damaged_recordings_are_noticed(tmp_path):
    (tmp_path / digits.AUDIO).symlink_to(FOLDER / digits.AUDIO)
    with np.load(FOLDER / digits.INDEX) as index:
        lengths, numbers = index["lengths"], index["digits"]
    path = tmp_path / digits.INDEX
    np.savez(path, lengths=lengths[:-1], digits=numbers[:-1])
    with pytest.raises(ValueError, match=r"must be the recordings of fsdd_index\.npz, but it has"):
        digits.load(tmp_path)
    for arrays, message in (
        ({"lengths": lengths[:-1], "digits": numbers}, "lengths are not one positive number"),
        ({"lengths": 0 * lengths, "digits": numbers}, "lengths are not one positive number"),
        ({"lengths": lengths, "digits": numbers + 200}, "numbers that are not digits"),
        ({"digits": numbers}, "'lengths'"),
    ):
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=f"^digits.load: '{path}' must have .*{message}"):
            digits.load(tmp_path)
    path.write_bytes(b"PK damaged")
    with pytest.raises(ValueError, match=f"^digits.load: '{path}' must have .* not a file of arr"):
        digits.load(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"test": 0}, "test must be at least 1, but it is 0"),
        (
            {"features": LogMel(16000)},
            "must be for 8000 samples per second, but they are for 16000",
        ),
        ({"seed": -1}, "digits.load: the seed must not be negative"),
    ],
)
def test_invalid_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        digits.load(FOLDER, **arguments)
