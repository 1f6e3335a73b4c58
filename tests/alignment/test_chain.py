"""Best alignments of chains of tokens: against the general ops, enumeration and wider windows."""

from typing import NamedTuple

import numpy as np
import pytest
import torch

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad import _core


class Chain(NamedTuple):
    tokens: np.ndarray
    gaps: np.ndarray
    entry: np.ndarray
    optional: np.ndarray
    skips: list

    def align(self, scores, reach=0, width=0, segment=0):
        graph = ag.linear_graph(*scores.shape, scores, dtype=str(scores.dtype))
        origins, ends = ([skip[i] for skip in self.skips] for i in (0, 1))
        return _core.align_tokens(
            graph,
            *(self.tokens.astype(np.int32), self.gaps.astype(np.int32)),
            *(self.entry.astype(float), self.optional.astype(bool)),
            *(np.array(origins, np.int32), np.array(ends, np.int32)),
            np.array([skip[2] for skip in self.skips], float),
            *(reach, width, segment),
        )

    def arcs(self):
        """(from, to, weight) between states: 2k is gap k and 2k - 1 token k."""
        count = len(self.tokens)
        for k in range(count + 1):
            yield 2 * k, 2 * k, 0.0
            if k:
                yield 2 * k - 1, 2 * k - 1, 0.0
                yield 2 * k - 1, 2 * k, 0.0
            for next_token in (k + 1, k + 2):
                if next_token > count or (next_token == k + 2 and not self.optional[k]):
                    continue
                weight = self.entry[next_token - 1]
                yield 2 * k, 2 * next_token - 1, weight
                if k and self.tokens[k - 1] != self.tokens[next_token - 1]:
                    yield 2 * k - 1, 2 * next_token - 1, weight

    def labels(self):
        count = len(self.tokens)
        gaps = np.broadcast_to(self.gaps, count + 1)
        return [gaps[s // 2] if s % 2 == 0 else self.tokens[s // 2] for s in range(2 * count + 1)]

    def ends(self):
        last = 2 * len(self.tokens)
        drops = last > 0 and self.optional[-1]
        return [s for s in range(last - 3 if drops else last - 1, last + 1) if s >= 0]

    def enumerate(self, scores, add):
        """The score of all paths, and the scores through each state at each frame."""
        num_states = 2 * len(self.tokens) + 1
        arcs, labels = list(self.arcs()), self.labels()

        def skip(row, order, source, target):
            for each in self.skips[::order]:
                to, via = 2 * each[target], 2 * each[source]
                row[to] = add(row[to], row[via] + each[2])
            return row

        row = np.full(num_states, -np.inf)
        row[0] = 0.0
        skip(row, 1, 0, 1)
        before, after = [], []
        for frame in scores:
            now = np.full(num_states, -np.inf)
            for origin, to, weight in arcs:
                now[to] = add(now[to], row[origin] + weight + frame[labels[to]])
            row = skip(now, 1, 0, 1)
            before.append(row)
        total = -np.inf
        for state in self.ends():
            total = add(total, row[state])
        row = np.full(num_states, -np.inf)
        row[self.ends()] = 0.0
        skip(row, -1, 1, 0)
        for frame in scores[::-1]:
            after.append(row)
            now = np.full(num_states, -np.inf)
            for origin, to, weight in arcs:
                now[origin] = add(now[origin], row[to] + weight + frame[labels[to]])
            row = skip(now, -1, 1, 0)
        return total, [a + b for a, b in zip(before, after[::-1], strict=True)]


def plain(tokens, gap=0):
    tokens = np.array(tokens, int)
    return Chain(tokens, np.array([gap]), np.zeros(0), np.zeros(0, bool), [])


def random_chain(rng, count, num_labels):
    gaps = rng.integers(0, num_labels, count + 1 if rng.random() < 0.5 else 1)
    optional = rng.random(count) < 0.4
    for k in range(1, count):
        optional[k] &= not optional[k - 1]
    entry = -rng.random(count) * rng.integers(0, 2, count)
    skips, k = [], 0
    while k < count and rng.random() < 0.6:
        origin = int(rng.integers(k, count))
        k = int(rng.integers(origin + 1, count + 1))
        skips.append((origin, k, -float(rng.random())))
    return Chain(rng.integers(0, num_labels, count), gaps, entry, optional, skips)


def test_alignments_are_those_of_the_graph():
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(1600):
        num_frames, num_labels = int(rng.integers(1, 14)), int(rng.integers(2, 5))
        blank = int(rng.integers(num_labels))
        scores = rng.normal(size=(num_frames, num_labels))
        if rng.random() < 0.7:  # equal scores, so that several paths are best
            scores = np.round(scores)
        if rng.random() < 0.3:
            scores[rng.random(scores.shape) < 0.2] = -np.inf
        scores = scores.astype(rng.choice([np.float32, np.float64]))
        target = rng.integers(0, num_labels, rng.integers(0, min(num_frames, 6) + 1))
        target = target[target != blank].tolist()
        x = torch.from_numpy(scores)
        fast = agt.forced_align(x, [target], blank=blank)
        tokens = ag.tokens.Tokens.ctc(num_labels, blank)
        by_graph = agt.forced_align(x, [target], tokens=tokens)
        assert [span[:3] for span in fast[0]] == [span[:3] for span in by_graph[0]]
        assert np.allclose([s.score for s in fast[0]], [s.score for s in by_graph[0]])
        found += bool(fast[0])
    assert found > 500


def test_chains_are_enumerated():
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(150):
        num_labels, count = int(rng.integers(2, 6)), int(rng.integers(0, 6))
        scores = rng.normal(size=(int(rng.integers(0, 9)), num_labels)) * rng.choice([1, 5, 300])
        if rng.random() < 0.2:
            scores[rng.random(scores.shape) < 0.15] = -np.inf
        chain = random_chain(rng, count, num_labels)
        best, _ = chain.enumerate(scores, max)
        aligned = chain.align(scores, reach=64)
        if aligned is None:
            assert best == -np.inf
            continue
        assert aligned["score"] == pytest.approx(best, rel=1e-12, abs=1e-12)
        total, through = chain.enumerate(scores, np.logaddexp)
        expected = [
            np.exp(row[s] - total) for row, s in zip(through, aligned["states"], strict=True)
        ]
        assert aligned["posteriors"] == pytest.approx(expected, rel=1e-9, abs=1e-12)
        found += 1
    assert found > 80


@pytest.mark.parametrize("has_options", [False, True])
def test_windows_and_segments_change_nothing(has_options):
    rng = np.random.default_rng(2)
    passes = set()
    for _ in range(60):
        count, num_labels = int(rng.integers(5, 120)), 5
        chain = plain(rng.integers(1, num_labels, count))
        if has_options:
            optional = np.arange(count) % 5 == 0
            skips = [(k, min(k + 5, count), -4.0) for k in range(0, count - 1, 5)]
            chain = chain._replace(
                optional=optional,
                entry=np.where(optional, -2.0, 0.0),
                skips=skips if rng.random() < 0.5 else [],
            )
        num_frames = int(count * rng.uniform(1.5, 4) + 8)
        frames = [
            label
            for token in chain.tokens
            for label in [0] * int(rng.integers(3)) + [token] * int(rng.integers(1, 3))
        ]
        frames = np.array((frames + [0] * num_frames)[:num_frames])
        if rng.random() < 0.3:
            rng.shuffle(frames)
        scores = rng.normal(size=(num_frames, num_labels)) * rng.choice([0.3, 1.0, 2.0])
        scores[np.arange(num_frames), frames] += rng.choice([0, 3, 8])
        if rng.random() < 0.3:
            scores = np.round(scores)
        whole = chain.align(scores)
        for width, segment in ((8, 5), (16, 7), (32, 13), (1 << 20, 9)):
            parts = chain.align(scores, width=width, segment=segment)
            assert (parts is None) == (whole is None)
            if whole is None:
                continue
            assert parts["score"] == whole["score"]
            assert parts["states"].tolist() == whole["states"].tolist()
            passes.add(parts["passes"])
    assert passes >= {1, 2, 3}


def test_the_least_number_of_frames():
    for target, least in ([1, 2, 3], 3), ([1, 1, 2, 2, 2], 8), ([], 0):
        scores = np.zeros((least, 4))
        assert len(plain(target).align(scores)["states"]) == least
        if least:
            assert plain(target).align(scores[1:]) is None


def test_bad_emissions_are_refused():
    scores = np.zeros((9, 4), np.float32)
    scores[4, 2] = np.nan
    with pytest.raises(ValueError, match=r"align_words: .* label 2 at frame 4 is nan"):
        plain([1, 2]).align(scores)
    assert plain([1, 3]).align(scores)["score"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": np.array([4])}, "a token must be a label from 0 to 3, but it is 4"),
        ({"gaps": np.array([0, 0])}, "there must be one gap, or 3, but there are 2"),
        ({"gaps": np.array([-1])}, "the blank must be a label from 0 to 3, but it is -1"),
        ({"entry": np.zeros(1)}, "there must be 2 weights of tokens, but there are 1"),
        ({"entry": np.ones(2)}, "the weight of a token must be at most 0, but it is 1"),
        ({"optional": np.ones(1)}, "there must be 2 flags of tokens, but there are 1"),
        ({"optional": np.ones(2)}, "of two neighbouring tokens one must not be optional"),
        ({"skips": [(1, 1, 0.0)]}, "skips must ascend without overlap, but one from 1 to 1"),
        ({"skips": [(0, 2, 1.0)]}, "skips must ascend without overlap, but one from 0 to 2"),
    ],
)
def test_parts_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=f"align_words: {message}"):
        plain([1, 2])._replace(**change).align(np.zeros((5, 4)))
