"""The n best paths against all paths, sorted."""

import math

import numpy as np
import pytest
import spec
from gradients import assert_gradient, like
from hypothesis import given
from hypothesis import strategies as st
from spec import chain
from strategies import emissions, graphs
from tools import acceptor, build, run_python, snapshot, weights
from trellis_cases import bigram, ctc, dense

import arcgrad as ag

EPS = ag.epsilon


def total(path):
    return sum(path.weights_to_list())


def words(path):
    return tuple(label for label in path.olabels().tolist() if label != EPS)


@given(graphs(max_arcs=12), st.integers(1, 12), st.booleans())
def test_best_paths_are_the_best_of_all_paths_in_order(graph, n, unique):
    found = [chain(path) for path in ag.best_paths(graph, n, unique=unique)]
    assert found == spec.best_paths(spec.paths(graph), n, unique=unique)


@given(graphs(max_arcs=14, max_nodes=6, low=-0.25, high=0.25), st.booleans())
def test_ties_go_to_the_smallest_arc_ids(graph, unique):
    found = [chain(path) for path in ag.best_paths(graph, 50, unique=unique)]
    assert found == spec.best_paths(spec.paths(graph), 50, unique=unique)


@given(graphs(max_arcs=12))
def test_the_first_is_the_best_path(graph):
    first = ag.best_paths(graph, 1)
    best = ag.viterbi_path(graph)
    assert [snapshot(path) for path in first] == ([snapshot(best)] if best.num_nodes() else [])


@given(emissions(max_length=3), st.integers(1, 10))
def test_paths_of_emissions(graph, n):
    found = [chain(path) for path in ag.best_paths(graph, n)]
    assert found == spec.best_paths(spec.paths(graph), n)


@pytest.mark.parametrize("unique", [False, True])
def test_arbitrary_scores_are_in_descending_order(unique):
    rng = np.random.default_rng(0)
    graph = ag.compose(dense(rng.normal(size=(60, 6)) * math.pi), bigram(6, rng))
    scores = [total(path) for path in ag.best_paths(graph, 200, unique=unique)]
    assert len(scores) == 200
    assert scores[0] == pytest.approx(ag.viterbi_score(graph).item(), abs=1e-9)
    assert np.all(np.diff(scores) <= 1e-9)


def test_unique_strings_are_found_without_enumerating_all_paths():
    # Every string of the alignments has too many paths to enumerate.
    rng = np.random.default_rng(0)
    frames = dense(rng.normal(size=(60, 4)))
    alignments = ag.union([ctc(list(word)) for word in [(1, 2, 3), (1, 1), (3, 2), (2,)]])
    collapse = build(
        4,
        {0},
        {0, 1, 2, 3},
        [(n, m, m, EPS if m in (0, n) else m, 0.0) for n in range(4) for m in range(4)],
    )
    lattice = ag.compose(ag.intersect(frames, alignments), collapse)
    found = ag.best_paths(lattice, 10, unique=True)
    assert sorted(map(words, found)) == [(1, 1), (1, 2, 3), (2,), (3, 2)]
    for path in found:
        exact = ag.viterbi_score(ag.intersect(ctc(list(words(path))), frames)).item()
        assert total(path) == pytest.approx(exact, abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_unique_strings_of_a_larger_lattice_are_the_best_of_each(seed):
    # Labels 0 and 1 are written as 0, labels 2 and 3 as nothing.
    rng = np.random.default_rng(seed)
    arcs = [(0, 0, c, o, 0.0) for c, o in ((0, 0), (1, 0), (2, EPS), (3, EPS), (4, 1))]
    lattice = ag.compose(dense(rng.normal(size=(7, 5))), build(1, {0}, {0}, arcs))
    found = ag.best_paths(lattice, 1000, unique=True)
    expected = spec.language(ag.project_output(lattice), spec.TROPICAL)
    assert {words(path): total(path) for path in found} == pytest.approx(
        {output: value for (_, output), value in expected.items()}
    )
    some = ag.best_paths(lattice, 5, unique=True)
    assert [snapshot(path) for path in some] == [snapshot(path) for path in found[:5]]


def test_many_ties_in_a_long_graph():
    graph = ag.linear_graph(2000, 3)
    found = ag.best_paths(graph, 20)
    tails = [path.labels_to_list()[-3:] for path in found]
    assert tails[:4] == [[0, 0, 0], [0, 0, 1], [0, 0, 2], [0, 1, 0]]
    assert all(path.labels_to_list()[:1990] == [0] * 1990 for path in found)


def test_without_a_path_the_list_is_empty():
    for unique in (False, True):
        assert ag.best_paths(ag.Graph(), 3, unique=unique) == []
        assert ag.best_paths(build(2, {0}, {1}, []), 3, unique=unique) == []
        dead = build(2, {0}, {1}, [(0, 1, 0, 0, -math.inf)])
        assert ag.best_paths(dead, 3, unique=unique) == []


def test_each_start_that_accepts_has_an_empty_path():
    graph = build(2, {0, 1}, {0, 1}, [])
    assert [chain(path) for path in ag.best_paths(graph, 5)] == [[], []]
    assert [chain(path) for path in ag.best_paths(graph, 5, unique=True)] == [[]]


def test_ties_between_a_path_and_its_suffix_are_decided_by_arc_ids():
    # From start 1 the path is arc 1; from start 0 it is arcs 0 and 1, with the same output.
    graph = build(3, {0, 1}, {2}, [(0, 1, 5, EPS, 0.0), (1, 2, 6, 6, 0.0)])
    assert [p.labels_to_list() for p in ag.best_paths(graph, 5)] == [[5, 6], [6]]
    assert [p.labels_to_list() for p in ag.best_paths(graph, 5, unique=True)] == [[5, 6]]


def test_a_lattice_of_a_beam_search_has_best_paths():
    rng = np.random.default_rng(0)
    frames, graph = dense(rng.normal(size=(20, 5))), bigram(5, rng)
    lattice = ag.beam_search(graph, frames, beam=6.0)
    exact = ag.best_paths(ag.compose(frames, graph), 3)
    found = ag.best_paths(lattice, 3)
    assert [p.labels_to_list() for p in found] == [p.labels_to_list() for p in exact]


# Lists


def test_a_list_of_graphs_gives_a_list_of_lists(threads):
    rng = np.random.default_rng(0)
    batch = [ag.linear_graph(30, 20, rng.normal(size=(30, 20))) for _ in range(20)]
    batch += [ag.Graph(), acceptor((1, 2), (3,))]
    for unique in (False, True):
        expected = [[snapshot(p) for p in ag.best_paths(g, 5, unique=unique)] for g in batch]
        for number in (1, 2, 5):
            threads(number)
            found = ag.best_paths(batch, 5, unique=unique)
            assert [[snapshot(path) for path in each] for each in found] == expected
    assert ag.best_paths([], 5) == []


def test_an_exception_names_its_element():
    bad = build(2, {0}, {1}, [(0, 1, 0, 0, math.nan)])
    with pytest.raises(ValueError, match=r"best_paths \(element 1 of 2\): .*, but arc 0"):
        ag.best_paths([acceptor((0,)), bad], 2)


def test_a_long_search_can_be_interrupted():
    code = """
import os, signal, threading, time
import arcgrad as ag
sent = []
def send():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.3, send).start()
try:
    ag.best_paths(ag.linear_graph(1000, 3), 10**9)
except KeyboardInterrupt:
    seconds = time.perf_counter() - sent[0]
    assert seconds < 1.0, seconds
    print("interrupted")
"""
    assert run_python(code).strip() == "interrupted"


# Gradients


def test_the_seed_reaches_the_arcs_of_each_path():
    graph = build(3, {0}, {2}, [(1, 2, 1, 1, 0.0), (0, 1, 0, 0, 0.0), (0, 2, 2, 2, -9.0)])
    first, second = ag.best_paths(graph, 2)
    seeds = [like(first, [10.0, 20.0]), like(second, [3.0])]
    assert weights(ag.grad([first, second], graph, seeds)).tolist() == [20.0, 10.0, 3.0]


@pytest.mark.parametrize("rank", [0, 1, 4])
def test_gradients_reach_the_factors_of_a_product(rank):
    rng = np.random.default_rng(rank)
    graph = bigram(3, rng)
    graph.set_weights(rng.normal(size=graph.num_arcs()))
    frames = dense(rng.normal(size=(4, 3)))
    assert_gradient(lambda g, e: ag.best_paths(ag.compose(e, g), 5)[rank], graph, frames)


# Errors


@pytest.mark.parametrize("n", [0, -2])
def test_rejects_less_than_one_path(n):
    for graph in (acceptor((0,)), [acceptor((0,))], []):
        with pytest.raises(ValueError, match=rf"best_paths: n must be 1 or more, but it is {n}$"):
            ag.best_paths(graph, n)


@pytest.mark.parametrize("bad", [1.5, "two", None])
def test_rejects_a_number_of_another_type(bad):
    with pytest.raises(TypeError):
        ag.best_paths(acceptor((0,)), bad)
    with pytest.raises(TypeError):
        ag.best_paths(bad, 1)


def all_paths(graph, max_arcs):
    """Scores, arc ids and outputs of all accepted paths of at most `max_arcs` arcs."""
    src, dst, _, olabels, scores = (np.asarray(x).ravel().tolist() for x in graph.arcs())
    accept, found = set(graph.accept().tolist()), []
    todo = [(0.0, (), (), node) for node in graph.start().tolist()]
    while todo:
        score, arcs, output, node = todo.pop()
        if node in accept:
            found.append((score, arcs, output))
        if len(arcs) == max_arcs:
            continue
        for a in range(len(src)):
            if src[a] == node and scores[a] > -math.inf:
                label = () if olabels[a] == EPS else (olabels[a],)
                todo.append((score + scores[a], (*arcs, a), output + label, dst[a]))
    return sorted(found, key=lambda path: (-path[0], len(path[1]), path[1]))


@given(graphs(max_arcs=4, max_nodes=3, cyclic=True), st.integers(1, 8), st.booleans())
def test_best_paths_of_graphs_with_cycles(graph, n, unique):
    # Multiples of 1/4, at most 0: sums are exact, and zero cycles occur.
    graph.set_weights(-np.abs(np.round(weights(graph) * 4) / 4))
    max_arcs, expected = 6, []
    for path in all_paths(graph, max_arcs):
        if not unique or all(path[2] != other[2] for other in expected):
            expected.append(path)
    # Paths of more arcs may come between these only if they are as good as the last one.
    longest = [path for path in expected[:n] if len(path[1]) == max_arcs]
    if longest:
        expected = expected[: expected.index(longest[0])]
    found = ag.best_paths(graph, n, unique=unique)
    for path, (score, arcs, output) in zip(found, expected, strict=False):
        if expected[-1][0] < score or len(expected) >= n:
            assert (total(path), path.num_arcs(), words(path)) == (score, len(arcs), output)


@pytest.mark.parametrize("unique", [False, True])
def test_a_cycle_of_weight_zero_is_taken_as_often_as_paths_are_asked_for(unique):
    # The loop has the smaller arc id, and its string is the longer one.
    graph = build(2, {0}, {1}, [(0, 0, 1, 1, 0.0), (0, 1, 2, 2, -1.0)])
    found = ag.best_paths(graph, 4, unique=unique)
    assert [path.labels_to_list() for path in found] == [[1] * k + [2] for k in range(4)]
    assert [total(path) for path in found] == [-1.0] * 4


def test_silent_cycles_add_no_string():
    arcs = [(0, 1, 1, EPS, -0.5), (1, 0, 2, EPS, 0.0), (1, 2, 3, 7, -1.0), (2, 2, 4, EPS, 0.0)]
    graph = build(3, {0}, {2}, arcs)
    found = ag.best_paths(graph, 5, unique=True)
    assert [(words(path), total(path)) for path in found] == [((7,), -1.5)]
    assert len(ag.best_paths(graph, 5)) == 5


@pytest.mark.parametrize("unique", [False, True])
def test_rejects_a_positive_cycle(unique):
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (1, 1, 1, 1, 0.5)])
    with pytest.raises(ValueError, match=r"best_paths: .*no cycle may have a positive weight"):
        ag.best_paths(graph, 2, unique=unique)


def test_the_gradient_of_a_path_through_a_cycle_counts_its_arcs():
    graph = build(2, {0}, {1}, [(0, 0, 1, 1, -1.0), (0, 1, 2, 2, 0.0)])
    third = ag.best_paths(graph, 3)[2]
    assert third.labels_to_list() == [1, 1, 2]
    assert weights(ag.grad(ag.viterbi_score(third), graph)).tolist() == [2.0, 1.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rejects_bad_weights(bad):
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, bad)])
    with pytest.raises(ValueError, match=rf"best_paths: .*, but arc 1 has weight {bad}"):
        ag.best_paths(graph, 2)
