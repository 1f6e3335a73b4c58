"""Real handwriting: words and lines."""

import itertools

import numpy as np
import pytest
import torch

from arcgrad.recipes.data import Key, letters
from arcgrad.recipes.data.letters import ALPHABET, SPLITS, _Pool, read_words

WORDS = read_words()


@pytest.fixture(scope="module")
def lines():
    return letters.load("lines", train=60, validation=20, test=20, seed=4)


def test_the_corpus_is_whole():
    assert len(WORDS.texts) == 6877
    assert WORDS.glyphs.shape == (52152, 16, 8)
    assert len(set(WORDS.texts)) == 55
    assert WORDS.glyphs.any(axis=(1, 2)).all()
    # The first letter, an o, is a ring: ink around a hole.
    assert WORDS.texts[0] == "ommanding"
    assert [int(row.sum()) for row in WORDS.glyphs[0]] == [
        *(0, 0, 0, 3, 5, 3, 4, 2, 2, 2, 3, 4, 5, 0, 0, 0)
    ]


def test_words_are_split_by_position_among_copies_of_the_same_text():
    parts = [set(WORDS.of(split).tolist()) for split in SPLITS]
    assert set.union(*parts) == set(range(6877))
    assert sum(map(len, parts)) == 6877
    for text in set(WORDS.texts):
        copies = [word for word, other in enumerate(WORDS.texts) if other == text]
        where = [next(i for i, part in enumerate(parts) if word in part) for word in copies]
        assert where == sorted(where)
        assert abs(where.count(0) / len(copies) - 0.8) < 0.02
        assert abs(where.count(1) / len(copies) - 0.1) < 0.02


def test_word_images_are_the_letters_side_by_side():
    words = letters.load("words", augmentation=None)
    data = words.validation
    for index in (0, 100, len(data) - 1):
        word = int(data.ids[index].split("-")[1])
        ink = WORDS.glyphs[WORDS.begins[word] : WORDS.begins[word + 1]]
        expected = (1.0 - np.concatenate(list(ink), axis=1) - data.pixels.mean) / data.pixels.std
        np.testing.assert_allclose(data[index].input.numpy(), expected, rtol=1e-5)
        assert data[index].length == data.lengths[index] == 8 * len(data.texts[index])
        assert data.tokenizer.decode(data[index].target.tolist()) == data.texts[index]


def test_some_words_can_be_chosen():
    few = letters.load("words", train=40, validation=7, test=3, seed=1)
    assert [len(part) for part in (few.train, few.validation, few.test)] == [40, 7, 3]
    assert len(set(few.train.texts)) > 15
    assert few.train.ids == letters.load("words", train=40, seed=1).train.ids
    assert few.train.ids != letters.load("words", train=40, seed=2).train.ids


def test_training_images_have_about_mean_0_and_deviation_1():
    for task in ("words", "lines"):
        data = letters.load(task, train=300, validation=1, test=1, augmentation=None).train
        pixels = torch.cat([data[index].input.flatten() for index in range(len(data))])
        assert abs(pixels.mean().item()) < 0.03
        assert pixels.std().item() == pytest.approx(1.0, abs=0.03)


def test_lines_are_as_described(lines):
    for data in (lines.train, lines.validation, lines.test):
        assert len(set(data.ids)) == len(data)
        for text in data.texts:
            assert 3 <= len(text.split()) <= 5
            assert len(text) <= 32
            assert set(text) <= set(ALPHABET + " ")
    for index, text in enumerate(lines.test.texts):
        example = lines.test[index]
        gaps = len(text.replace(" ", "")) - len(text.split())
        spaces = text.count(" ")
        most = 8 * (len(text) - spaces) + 2 * gaps + 9 * spaces
        assert example.input.shape[0] == 16
        assert len(text) - spaces + 5 * spaces <= example.length <= most
        assert example.length == lines.test.lengths[index]


def test_texts_of_splits_are_from_disjoint_ranges(lines):
    text = letters.running_text()
    words = text.split()
    ends = [0, round(0.8 * len(words)), round(0.9 * len(words)), len(words)]
    for data, (begin, end) in zip(
        (lines.train, lines.validation, lines.test), itertools.pairwise(ends), strict=True
    ):
        part = f" {' '.join(words[begin:end])} "
        assert all(f" {line} " in part for line in data.texts)


def test_the_text_has_each_paragraph_once():
    words = letters.running_text().split()
    assert len(words) > 30000
    grams = [" ".join(words[i : i + 40]) for i in range(len(words) - 40)]
    assert len(set(grams)) / len(grams) > 0.97


def test_letters_of_splits_are_disjoint_and_complete():
    pools = [_Pool(split) for split in SPLITS]
    copies = [set(np.concatenate(pool._glyphs).tolist()) for pool in pools]
    assert set.union(*copies) == set(range(52152))
    assert sum(map(len, copies)) == 52152
    for pool in pools:
        assert all(len(of_letter) >= letters.NEAREST for of_letter in pool._glyphs)
        for letter, of_letter in enumerate(pool._glyphs):
            assert (WORDS.letters[of_letter] == letter).all()


class Recorder:
    """A generator of random numbers that notes the ranges it chooses from."""

    def __init__(self, seed):
        self.rng, self.ranges = np.random.default_rng(seed), []

    def uniform(self, low, high):
        self.hand = self.rng.uniform(low, high)
        return self.hand

    def integers(self, low, high, endpoint=False):
        if not endpoint:
            self.ranges.append((low, high))
        return self.rng.integers(low, high, endpoint=endpoint)


@pytest.mark.parametrize("split", SPLITS)
def test_a_line_is_written_in_one_hand(split):
    pool = _Pool(split)
    for seed in range(20):
        recorder = Recorder(seed)
        pool.write("quick jumps vex", recorder)
        for letter, (first, end) in zip("quickjumpsvex", recorder.ranges, strict=True):
            positions = pool._positions[ALPHABET.index(letter)]
            distances = np.abs(positions - recorder.hand)
            chosen = np.zeros(len(positions), bool)
            chosen[first:end] = True
            assert chosen.sum() >= letters.NEAREST
            # No copy that was left out is nearer than a chosen one.
            if not chosen.all():
                assert distances[chosen].max() <= max(distances[~chosen].min(), 0.01) + 1e-12


def test_glyphs_have_ink_in_their_first_and_last_column():
    image = _Pool("train").write("x", np.random.default_rng(0))
    assert (image[:, [0, -1]] == 0).any(axis=0).all()
    assert set(np.unique(image)) == {0, 255}


def test_lines_derive_from_the_seed_and_grow_with_the_size(lines):
    again = letters.load("lines", train=80, validation=20, test=20, seed=4)
    assert again.train.texts[:60] == lines.train.texts
    assert torch.equal(again.train[Key(3, 7)].input, lines.train[Key(3, 7)].input)
    other = letters.load("lines", train=60, validation=1, test=1, seed=5)
    assert other.train.texts != lines.train.texts


def test_only_training_images_are_changed(lines):
    assert torch.equal(lines.test[Key(0, 3)].input, lines.test[Key(1, 3)].input)
    assert not torch.equal(lines.train[Key(0, 3)].input, lines.train[Key(1, 3)].input)
    plain = letters.load("lines", train=5, validation=1, test=1, augmentation=None).train
    assert torch.equal(plain[Key(0, 3)].input, plain[Key(1, 3)].input)


def test_images_can_be_scaled_to_another_height():
    tall = letters.load("lines", train=3, validation=1, test=1, height=32, augmentation=None)
    example = tall.train[0]
    assert example.input.shape == (32, tall.train.lengths[0])


def test_lines_can_be_written_with_another_text():
    said = letters.load("lines", train=5, validation=5, test=5, text="It's a text, no MORE! " * 20)
    assert set(said.train.texts[0].split()) <= {"its", "a", "text", "no", "more"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task": "pages"}, "must be 'words' or 'lines', but it is 'pages'"),
        ({"train": 0}, "train must be at least 1, but it is 0"),
        ({"task": "words", "test": 10000}, "test must be at most 666 words, but it is 10000"),
        ({"text": "too short"}, "must have lines of 3 words for train"),
        ({"text": "x" * 40 + " a" * 3}, "must have lines of 3 words for train"),
        ({"seed": -1}, "letters.load: the seed must not be negative"),
        (
            {"height": 0, "train": 1},
            "the height and the deviation must be positive, but they are 0",
        ),
    ],
)
def test_invalid_arguments_are_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        letters.load(**arguments)


def test_lines_can_have_single_words_in_the_first_epochs():
    lines = letters.load("lines", train=20, validation=2, test=2, single_words=2).train
    pieces = lines.with_tokenizer(letters.load("lines", train=1).train.tokenizer)
    for data in (lines, pieces):
        for epoch, is_short in ((0, True), (1, True), (2, False)):
            examples = [data[Key(epoch, index)] for index in range(20)]
            assert all((" " not in example.text) == is_short for example in examples)
            for example in examples:
                assert data.tokenizer.decode(example.target.tolist()) == example.text
        assert data[3].text == data.texts[3] == data[Key(2, 3)].text
    with pytest.raises(ValueError, match="single_words must be a number of epochs with lines, but"):
        letters.load("words", single_words=1)
