"""Recordings of spoken digits, decoded with a small network that is trained here."""

import functools

import numpy as np
import pytest

import arcgrad as ag
from arcgrad.decoding import CTCDecoder

torch = pytest.importorskip("torch")
pytest.importorskip("soundfile")

from arcgrad.recipes.data import digits  # noqa: E402

try:
    digits.find()
except ValueError:
    pytest.skip("the recordings are not here", allow_module_level=True)

PARTS = 4
LABELS = [f"{name}{k}" for name in digits.NAMES for k in range(PARTS)] + ["_"]
LEXICON = {name: [[f"{name}{k}" for k in range(PARTS)]] for name in digits.NAMES}


def joins(strings, i, num_frames):
    """The frame at which each recording of an example begins, and the end."""
    sizes = [strings._begins[r + 1] - strings._begins[r] for r in strings._strings[i]]
    edges = np.concatenate([[0], np.cumsum(sizes)])
    return np.round(edges / edges[-1] * num_frames).astype(int)


def inputs_of(strings, i):
    """Each frame with its neighbours."""
    x = strings.features(strings.samples(i)).numpy().T
    padded = np.pad(x, ((6, 6), (0, 0)), mode="edge")
    return np.concatenate([padded[k : k + len(x)] for k in range(0, 13, 3)], axis=1)


def labels_of(strings, i, num_frames):
    """A recording has four parts of equal length."""
    edges = joins(strings, i, num_frames)
    labels = np.zeros(num_frames, np.int64)
    for word, begin, end in zip(strings.texts[i].split(), edges, edges[1:], strict=False):
        part = (np.arange(end - begin) * PARTS) // max(1, end - begin)
        labels[begin:end] = digits.NAMES.index(word) * PARTS + part
    return labels


@functools.cache
def task():
    """Scores of test strings, their words, and the frames at which words begin."""
    # The threads of torch spin, which takes minutes beside other tests.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return make_task()
    finally:
        torch.set_num_threads(threads)


def make_task():
    torch.manual_seed(0)
    splits = digits.load(train=300, validation=1, test=25, augmentation=None)
    xs = [inputs_of(splits.train, i) for i in range(300)]
    ys = [labels_of(splits.train, i, len(x)) for i, x in enumerate(xs)]
    x, y = torch.tensor(np.concatenate(xs)), torch.tensor(np.concatenate(ys))
    mean, scale = x.mean(0), x.std(0) + 1e-3
    net = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], 128), torch.nn.ReLU(), torch.nn.Linear(128, len(LABELS) - 1)
    )
    optimizer = torch.optim.Adam(net.parameters(), 2e-3, weight_decay=1e-4)
    for _ in range(6):
        for batch in torch.randperm(len(x)).split(256):
            loss = torch.nn.functional.cross_entropy(net((x[batch] - mean) / scale), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = []
    for i in range(25):
        frames = inputs_of(splits.test, i)
        with torch.no_grad():
            scores = net((torch.tensor(frames) - mean) / scale).log_softmax(-1).numpy()
        scores = np.pad(scores, ((0, 0), (0, 1)), constant_values=-np.inf)
        words = splits.test.texts[i].split()
        found.append((scores, words, joins(splits.test, i, len(frames))))
    return found


def decoder(**options):
    tokens = ag.tokens.Tokens.asg(len(LABELS))
    return CTCDecoder(LABELS, lexicon=LEXICON, blank="_", tokens=tokens, beta=-15.0, **options)


def errors(reference, words):
    distances = list(range(len(words) + 1))
    for i, one in enumerate(reference, 1):
        before, distances[0] = distances[0], i
        for j, other in enumerate(words, 1):
            cost = min(distances[j] + 1, distances[j - 1] + 1, before + (one != other))
            before, distances[j] = distances[j], cost
    return distances[-1]


def test_most_words_are_right_and_have_times():
    plain = decoder()
    results = plain.decode([scores for scores, _, _ in task()], confidences=True)
    wrong = total = 0
    offsets, right, confident = [], [], []
    for (_, words, begins), found in zip(task(), results, strict=True):
        best = found[0]
        wrong += errors(words, best.text.split())
        total += len(words)
        confident += [word.confidence for word in best.words]
        if best.text.split() == words:
            offsets += [word.start - begin for word, begin in zip(best.words, begins, strict=False)]
            right.append(np.mean([word.confidence for word in best.words]))
    assert wrong / total < 0.2
    assert np.abs(offsets).mean() < 3
    assert all(0 <= value <= 1 for value in confident)
    # Results that are right are more certain.
    assert np.mean(right) > np.mean(confident)


def test_hotwords_change_a_result():
    """The words of a wrong result, given as hotwords, correct it."""
    plain = decoder()
    before = after = num_wrong = 0
    for scores, words, _ in task():
        best = plain.decode(scores)[0][0]
        count = errors(words, best.text.split())
        if not count:
            continue
        num_wrong += 1
        boosted = decoder(hotwords={" ".join(words): 15.0})
        found = boosted.decode(scores)[0][0]
        before += count
        after += errors(words, found.text.split())
        if found.text.split() == words:
            assert found.hotword == 15.0
    assert num_wrong > 0
    assert after < before


def test_streams_of_recordings():
    plain = decoder(beam=20.0)
    for scores, _, _ in task()[:5]:
        stream = plain.stream()
        for begin in range(0, len(scores), 10):
            stream.push(scores[begin : begin + 10])
        assert stream.finish() == plain.decode(scores)[0]


def calibration(**options):
    found = decoder(**options).decode([scores for scores, _, _ in task()], confidences=True)
    right, confident = [], []
    for (_, words, _), results in zip(task(), found, strict=True):
        right += ag.decoding.correct_words(results[0], words)
        confident += [word.confidence for word in results[0].words]
    return ag.decoding.calibration(confident, right, bins=5)


def test_scaled_confidences_are_calibrated():
    """A classifier of single frames is too sure; a small scale makes up for it."""
    before = calibration()
    after = calibration(confidence_scale=0.04, beam=np.inf, max_active=1000)
    assert before.counts.sum() == after.counts.sum()
    assert after.expected_error < 0.6 * before.expected_error
    assert after.cross_entropy > before.cross_entropy
    assert after.cross_entropy > -0.05
    axes = after.plot()
    assert "expected calibration error" in axes.get_title()
