"""Words and their times: spellings, stars, missing and extra words, batches, messages."""

import itertools

import numpy as np
import pytest
import torch

import arcgrad.torch as agt
from arcgrad.decoding import align_words

LABELS = ["<blank>", "|", *"abcdehlorstw"]


def frames(text, labels=LABELS, repeat=1, peak=8.0, seed=None):
    """Log-probabilities: each character for some frames, then a blank; `_` is silence."""
    found = [0]
    for character in text:
        found += [0 if character == "_" else labels.index(character)] * repeat + [0]
    scores = peak * np.eye(len(labels))[found]
    if seed is not None:
        scores += np.random.default_rng(seed).normal(size=scores.shape)
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def times(spans):
    return [(span.word, span.start, span.end) for span in spans]


def test_words_have_frames_seconds_characters_and_confidences():
    log_probs = frames("cat|sat", repeat=2)
    found = align_words(log_probs, "cat sat", LABELS)
    assert times(found) == [("cat", 1, 9), ("sat", 13, 21)]
    assert [span.kind for span in found] == ["word", "word"]
    assert [(c.char, c.start, c.end) for c in found[0].chars] == [
        ("c", 1, 3),
        ("a", 4, 6),
        ("t", 7, 9),
    ]
    assert found[0].score == pytest.approx(log_probs[1, LABELS.index("c")])
    assert 0.99 < found[0].confidence <= 1
    assert found.score == found.bound == pytest.approx(log_probs.max(1).sum(), abs=1e-2)
    assert found.passes == 1
    assert found.extra == []
    seconds = align_words(log_probs, ["cat", "sat"], LABELS, frame_shift=0.02)
    assert times(seconds) == [("cat", 0.02, 0.18), ("sat", 0.26, 0.42)]


def test_confidence_is_a_posterior():
    # Two equally good places for one letter.
    log_probs = frames("a_a", ["-", "a"], peak=6.0)
    for labels in (["<blank>", "a"],):
        found = align_words(log_probs, "a", labels)[0]
        assert found.confidence == pytest.approx(0.5, abs=0.01)
        assert found.score == pytest.approx(log_probs.max(), abs=1e-9)


def test_a_separator_is_optional():
    for text in ("cat|sat", "catsat", "cat||sat", "cat_|_sat"):
        found = align_words(frames(text), "cat sat", LABELS)
        assert [span.score > -0.1 for span in found] == [True, True], text
    assert align_words(frames("tot"), "to t", LABELS)[1].start == 5


def test_unknown_characters_are_stars():
    log_probs = frames("cat|sooerd|hat")
    found = align_words(log_probs, ["cat", "寿司", "hat"], LABELS)
    assert found.unspelled == {1: "寿司"}
    assert [span.kind for span in found] == ["word", "star", "word"]
    assert found[0].end <= found[1].start < found[1].end <= found[2].start
    assert found[1].end - found[1].start >= 8
    part = align_words(log_probs, ["cat", "so7rd", "hat"], LABELS)
    assert part.unspelled == {1: "7"}
    assert part[1].kind == "word"
    assert [char.char for char in part[1].chars] == ["s", "o", "7", "r", "d"]
    assert times(align_words(log_probs, "cat * hat", LABELS))[2] == times(found)[2]
    message = (
        r"align_words: all characters of words must be labels, but 1 words .*'寿司' \(寿司\); "
    )
    with pytest.raises(ValueError, match=message):
        align_words(log_probs, ["cat", "寿司"], LABELS, star=None)


def test_case_is_folded_to_that_of_the_labels():
    found = align_words(frames("cat"), "CAT", LABELS)
    assert (found[0].word, found.unspelled) == ("CAT", {})
    assert [char.char for char in found[0].chars] == ["C", "A", "T"]
    upper = [label.upper() if len(label) == 1 else label for label in LABELS]
    assert align_words(frames("cat"), "cat", upper).unspelled == {}
    mixed = [*LABELS[:-1], "C"]
    assert align_words(frames("cat"), "Wat", mixed).unspelled == {0: "W"}


def test_missing_words_are_listed():
    words = ["cat", "sat", "hello", "on", "the", "road"]
    log_probs = frames("cat|sat|the|road", seed=1)
    found = align_words(log_probs, words, LABELS, skip_penalty=5.0)
    assert [span.word for span in found] == words
    assert [span.kind for span in found][2:] == ["missing", "missing", "word", "word"]
    missing = found[2]
    assert found[1].end <= missing.start == missing.end <= found[4].start
    assert (missing.score, missing.confidence) == (-np.inf, 0.0)
    assert all(span.confidence > 0.9 for span in found if span.kind == "word")
    forced = align_words(log_probs, words, LABELS)
    assert forced.score < found.score
    assert forced[2].score < -3


def test_extra_words_are_spans_of_their_own():
    log_probs = frames("hello|cat|roasted|sat|toad", seed=2)
    expected = align_words(log_probs, "hello cat roasted sat toad", LABELS)
    found = align_words(log_probs, "cat sat", LABELS, skip_penalty=8.0)
    assert times(found) == [times(expected)[1], times(expected)[3]]
    assert [span.kind for span in found.extra] == ["extra"] * 3
    for extra, word in zip(found.extra, (expected[0], expected[2], expected[4]), strict=True):
        assert extra.start <= word.start
        assert extra.end >= word.end
    ends = align_words(log_probs, "cat roasted sat", LABELS, free_ends=True)
    assert times(ends) == times(expected)[1:4]
    assert len(ends.extra) == 2


def test_whole_sentences_may_be_missing_and_extra():
    rng = np.random.default_rng(3)
    letters = [*"abcdehlorstw"]
    sentences = [
        ["".join(rng.choice(letters, rng.integers(2, 7))) for _ in range(8)] for _ in range(12)
    ]
    spoken = [s for i, s in enumerate(sentences) if i not in (3, 4, 11)]
    written = [s for i, s in enumerate(sentences) if i not in (0, 7)]
    said = ["|".join(sentence) for sentence in spoken]
    log_probs = frames("|".join(said), seed=4)
    truth = align_words(log_probs, " ".join(" ".join(s) for s in spoken), LABELS)
    places = iter(truth)
    expected = {
        i: [next(places) for _ in s] for i, s in enumerate(sentences) if i not in (3, 4, 11)
    }
    found = align_words(log_probs, [*itertools.chain(*written)], LABELS, skip_penalty=10.0)
    spans = iter(found)
    right = total = 0
    for i in range(12):
        if i in (0, 7):
            continue
        for k in range(8):
            span = next(spans)
            total += 1
            if i in (3, 4, 11):
                right += span.kind == "missing"
            else:
                right += (span.start, span.end) == (expected[i][k].start, expected[i][k].end)
    assert total == 80
    assert right >= 78


def test_word_pieces():
    labels = ["<blank>", "▁", "▁he", "llo", "l", "o", "▁wor", "ld"]
    order = [2, 3, 6, 7, 1, 5]
    scores = 8 * np.eye(len(labels))[order]
    log_probs = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    found = align_words(log_probs, "hello world o", labels)
    assert times(found) == [("hello", 0, 2), ("world", 2, 4), ("o", 4, 6)]
    assert [char.char for char in found[0].chars] == ["he", "llo"]
    assert align_words(log_probs, "hello x o", labels).unspelled == {1: "x"}


def test_batches_tensors_and_types():
    one, two = frames("cat|sat"), frames("the|cat")
    texts = ["cat sat", ["the", "cat"]]
    single = [align_words(x, text, LABELS) for x, text in zip((one, two), texts, strict=True)]
    batch = np.stack([one, two])
    assert align_words(batch, texts, LABELS) == single
    assert align_words([one, two], texts, LABELS) == single
    x = torch.from_numpy(batch).requires_grad_()
    assert agt.align_words(x, texts, LABELS) == single
    assert [s.word for s in agt.align_words(x[0].half(), "cat sat", LABELS)] == ["cat", "sat"]
    longer = np.concatenate([batch, np.full_like(batch, -9.0)], axis=1)
    lengths = torch.tensor([len(one)] * 2)
    assert agt.align_words(torch.from_numpy(longer), texts, LABELS, lengths=lengths) == single
    assert align_words(one, "", LABELS) == []
    assert align_words([], [], LABELS) == []


@pytest.mark.parametrize(
    ("words", "options", "message"),
    [
        (
            "cat " * 9,
            {},
            r"the words must fit into the frames, but they need 27 frames, and there are 7",
        ),
        (["a", ""], {}, "a word must be a string of characters, but word 1 is ''"),
        (["a", 7], {}, "a word must be a string of characters, but word 1 is 7"),
        (
            "a",
            {"skip_penalty": -1.0},
            "the skip penalty must be finite and at least 0, but it is -1",
        ),
        ("a", {"frame_shift": 0.0}, "the frame shift must be positive, but it is 0.0"),
        ("a", {"lengths": [3, 4]}, "there must be 1 lengths, but there are 2"),
        ("a", {"lengths": [99]}, "a length must be between 0 and 7, but it is 99"),
        ("a", {"blank": "x"}, "the blank must be a label, but 'x' is not one"),
    ],
)
def test_bad_arguments_are_refused(words, options, message):
    with pytest.raises(ValueError, match=f"align_words: {message}"):
        align_words(frames("cat")[:8], words, LABELS, **options)


def test_bad_inputs_are_refused():
    log_probs = frames("cat")
    with pytest.raises(
        ValueError, match=r"shape \[T, 14\], one column per label, but .* \[7, 13\]"
    ):
        align_words(log_probs[:, 1:], "cat", LABELS)
    with pytest.raises(TypeError, match="log_probs must be real numbers, but they are int64"):
        align_words(log_probs.astype(int), "cat", LABELS)
    with pytest.raises(TypeError, match="words must be a string or a list of strings"):
        align_words(log_probs, 7, LABELS)
    with pytest.raises(
        ValueError, match="there must be a text for each of 2 examples, but there is"
    ):
        align_words([log_probs] * 2, "cat", LABELS)
    with pytest.raises(ValueError, match=r"align_words \(element 1 of 2\): the words must fit"):
        align_words([log_probs] * 2, ["cat", "cat" * 9], LABELS)
    blocked = np.full_like(log_probs, -np.inf)
    with pytest.raises(ValueError, match="some alignment must have a finite score"):
        align_words(blocked, "cat", LABELS)
    log_probs[2] = np.nan
    with pytest.raises(ValueError, match=r"align_words: .* at frame 2 is nan"):
        align_words(log_probs, "cat", LABELS)


def test_hours_of_audio():
    rng = np.random.default_rng(5)
    words = ["".join(rng.choice([*"abcdehlorstw"], 5)) for _ in range(4000)]
    log_probs = frames("|".join(words), seed=6).astype(np.float32)
    found = align_words(log_probs, words, LABELS)
    assert 1 <= found.passes <= 3
    assert found.width < len(words) * 5
    gaps = [b.start - a.end for a, b in itertools.pairwise(found)]
    assert np.mean([2 <= gap <= 4 for gap in gaps]) > 0.98
