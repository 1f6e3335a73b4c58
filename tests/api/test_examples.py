"""The examples: each is short, runs, and agrees with enumeration."""

import importlib.util
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

FOLDER = Path(__file__).parents[2] / "examples"
MODELS = ("linear_chain_crf", "semi_markov_crf", "hmm", "edit_distance")
# Those of strings and rules have tests of their own.
OTHERS = ("figure1", "english_numbers", "learned_spelling", "text_normalizer")


def load(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crf, semi, hmm, edit = map(load, MODELS)


def random(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", MODELS)
def test_examples_are_short_and_run(name, capsys):
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) < 60
    load(name).main()
    assert "l" in capsys.readouterr().out


def test_figure_1_prints_its_gradients_and_draws_its_graphs(capsys, monkeypatch, tmp_path):
    pytest.importorskip("pygraphviz")
    assert len((FOLDER / "figure1.py").read_text().splitlines()) < 60
    monkeypatch.setattr("sys.argv", ["figure1.py", str(tmp_path)])
    load("figure1").main()
    assert "ASG loss of 'ab': 0.5798" in capsys.readouterr().out
    assert len(list(tmp_path.glob("*.svg"))) == 4


def test_the_index_shows_every_example_with_a_picture():
    names = {path.stem for path in FOLDER.glob("*.py")}
    assert names == {*MODELS, *OTHERS}
    text = (FOLDER.parent / "docs/examples.md").read_text()
    for name in names:
        part = text[text.index(f"`examples/{name}.py`") :]
        assert "{code-cell}" in part[: part.find("\n## ")]


# The linear-chain CRF


def chain_score(scores, transitions, tags):
    before = [0, *(tag + 1 for tag in tags)]
    return sum(scores[t, tag] + transitions[before[t], tag] for t, tag in enumerate(tags))


def test_a_linear_chain_crf_sums_over_all_tags():
    scores, transitions = random(2, 4, 3).requires_grad_(), random(4, 3).requires_grad_()
    tags = [[0, 2, 2, 1], [1, 0]]
    found = crf.log_likelihood(scores, transitions, tags)
    for b, target in enumerate(tags):
        every = [
            chain_score(scores[b], transitions, other)
            for other in itertools.product(range(3), repeat=len(target))
        ]
        expected = chain_score(scores[b], transitions, target) - torch.stack(every).logsumexp(0)
        assert torch.allclose(found[b], expected)
        best = max(
            itertools.product(range(3), repeat=len(target)),
            key=lambda other: chain_score(scores[b], transitions, other).item(),
        )
        lengths = [4, 2]
        assert crf.best_tags(scores.detach(), transitions.detach(), lengths)[b] == list(best)
    assert torch.autograd.gradcheck(
        lambda s, t: crf.log_likelihood(s, t, tags), (scores, transitions)
    )


# The semi-Markov CRF


def segmentations(frames, num_labels, longest):
    """All lists of segments (label, length) with this total number of frames."""
    if frames == 0:
        return [[]]
    return [
        [(label, length), *rest]
        for length in range(1, min(longest, frames) + 1)
        for label in range(num_labels)
        for rest in segmentations(frames - length, num_labels, longest)
    ]


def segments_score(scores, durations, transitions, segments):
    total, at, before = torch.zeros((), dtype=torch.float64), 0, 0
    for label, length in segments:
        total = total + scores[at : at + length, label].sum()
        total = total + durations[label, length - 1] + transitions[before, label]
        at, before = at + length, label + 1
    return total


@pytest.mark.parametrize("segments", [[(0, 3), (1, 2)], [(1, 1), (1, 1), (1, 3)]])
def test_a_semi_markov_crf_sums_over_all_segmentations(segments):
    parameters = [random(*shape, seed=i) for i, shape in enumerate([(5, 2), (2, 3), (3, 2)])]
    for parameter in parameters:
        parameter.requires_grad_()
    every = torch.stack([segments_score(*parameters, s) for s in segmentations(5, 2, 3)])
    expected = segments_score(*parameters, segments) - every.logsumexp(0)
    found = semi.log_likelihood(*parameters, segments)
    assert torch.allclose(found, expected)
    for one, other in zip(
        torch.autograd.grad(found, parameters),
        torch.autograd.grad(expected, parameters),
        strict=True,
    ):
        assert torch.allclose(one, other)


# The hidden Markov model


def distributions(*shape, seed=0):
    return random(*shape, seed=seed).softmax(-1).numpy()


def test_expected_counts_of_an_hmm_equal_enumeration():
    start, transition, emission = (
        distributions(*shape, seed=i) for i, shape in enumerate([(2,), (2, 2), (2, 3)])
    )
    sequences = [np.array([0, 2, 1, 1]), np.array([2]), np.array([1, 0, 0])]
    score, *found = hmm.expected_counts(start, transition, emission, sequences)
    log_likelihood = 0.0
    counts = [np.zeros_like(x) for x in (start, transition, emission)]
    for x in sequences:
        joint = {}
        for states in itertools.product(range(2), repeat=len(x)):
            p = start[states[0]] * math.prod(emission[s, o] for s, o in zip(states, x, strict=True))
            joint[states] = p * math.prod(transition[s, t] for s, t in itertools.pairwise(states))
        total = sum(joint.values())
        log_likelihood += math.log(total)
        for states, p in joint.items():
            counts[0][states[0]] += p / total
            for s, t in itertools.pairwise(states):
                counts[1][s, t] += p / total
            for s, o in zip(states, x, strict=True):
                counts[2][s, o] += p / total
    assert score == pytest.approx(log_likelihood, rel=1e-6)
    for one, other in zip(found, counts, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


def test_em_steps_never_lower_the_likelihood():
    parameters = [distributions(*shape, seed=i) for i, shape in enumerate([(2,), (2, 2), (2, 2)])]
    sequences = [np.array([0, 0, 1, 1, 0]), np.array([1, 1, 1])]
    last = -math.inf
    for _ in range(5):
        score, *counts = hmm.expected_counts(*parameters, sequences)
        assert score >= last - 1e-4
        parameters, last = [hmm.normalized(c) for c in counts], score


# The edit distance


def all_edits(costs, source, target, num_symbols):
    """The costs of all edit sequences from one string to the other."""
    if not source and not target:
        return [0.0]
    found = []
    if source:
        rest = all_edits(costs, source[1:], target, num_symbols)
        found += [costs[source[0]] + c for c in rest]
    if target:
        rest = all_edits(costs, source, target[1:], num_symbols)
        found += [costs[num_symbols + target[0]] + c for c in rest]
    if source and target:
        pair = 2 * num_symbols + source[0] * num_symbols + target[0]
        found += [costs[pair] + c for c in all_edits(costs, source[1:], target[1:], num_symbols)]
    return found


words = st.lists(st.integers(0, 2), max_size=4)


@given(source=words, target=words)
def test_edit_distances_equal_enumeration(source, target):
    costs = random(15).abs()
    every = torch.tensor(all_edits(costs.tolist(), source, target, 3), dtype=torch.float64)
    pair = [(source, target)]
    assert torch.allclose(edit.distances(costs, pair, 3)[0], every.min())
    assert torch.allclose(edit.log_scores(costs, pair, 3)[0], (-every).logsumexp(0))


def levenshtein(source, target):
    row = list(range(len(target) + 1))
    for i, a in enumerate(source, 1):
        last, row[0] = row[0], i
        for j, b in enumerate(target, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (a != b))
    return row[-1]


@given(st.lists(st.tuples(words, words), min_size=1, max_size=4))
def test_equal_costs_give_the_classical_distance(pairs):
    costs = torch.cat([torch.ones(6), (1 - torch.eye(3)).flatten()]).double()
    found = edit.distances(costs, pairs, 3)
    assert found.tolist() == [levenshtein(*pair) for pair in pairs]


def test_gradients_of_learned_costs():
    costs = random(15).requires_grad_()
    pairs = [([0, 1], [1, 2, 2]), ([2], [])]
    assert torch.autograd.gradcheck(lambda c: edit.log_scores(c, pairs, 3), costs)
    assert torch.autograd.gradcheck(lambda c: edit.distances(c, pairs, 3), costs)
