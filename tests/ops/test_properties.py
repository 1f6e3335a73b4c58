"""The properties of graphs, and equivalence, against their definitions on paths."""

import itertools
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from spec import TROPICAL, language, paths, spell, strings
from strategies import acceptors, convergent, graphs
from tools import build, weights, with_weights

import arcgrad as ag


def pairs_along(path):
    silent = (ag.epsilon, ag.epsilon)
    return tuple((a.ilabel, a.olabel) for a in path if (a.ilabel, a.olabel) != silent)


@given(graphs())
def test_a_graph_is_unambiguous_if_no_string_has_two_paths(graph):
    counts = Counter(map(pairs_along, paths(graph)))
    assert ag.is_unambiguous(graph) is (max(counts.values(), default=0) <= 1)


@given(graphs())
def test_a_graph_is_functional_if_no_input_has_two_outputs(graph):
    outputs = defaultdict(set)
    for path in paths(graph):
        inputs, output = spell(path)
        outputs[inputs].add(output)
    assert ag.is_functional(graph) is all(len(found) == 1 for found in outputs.values())


@given(graphs(cyclic=True, impossible=False, max_nodes=3, max_arcs=5))
def test_functional_graphs_with_cycles(graph):
    light = with_weights(graph, weights(graph) - 9)
    outputs = defaultdict(set)
    for inputs, output in strings(light):
        outputs[inputs].add(output)
    # Short strings can only show that a graph is not functional.
    if any(len(found) > 1 for found in outputs.values()):
        assert not ag.is_functional(graph)


def test_functions_with_cycles():
    # The output follows the input one label later.
    arcs = [(0, 1, 1, ag.epsilon, 0), (1, 1, 2, 2, 0), (1, 2, ag.epsilon, 5, 0)]
    assert ag.is_functional(build(3, [0], [2], arcs))
    # An epsilon loop that writes: one input, any number of outputs.
    assert not ag.is_functional(build(1, [0], [0], [(0, 0, ag.epsilon, 5, 0)]))
    # Two loops over one input, one of which writes.
    arcs = [(0, 0, 1, 5, 0), (1, 1, 1, ag.epsilon, 0)]
    assert not ag.is_functional(build(2, [0, 1], [0, 1], arcs))


def test_ambiguous_cycles():
    loop = (0, 0, 1, 1, 0)
    assert ag.is_unambiguous(build(1, [0], [0], [loop]))
    assert not ag.is_unambiguous(build(1, [0], [0], [loop, loop]))
    assert not ag.is_unambiguous(build(1, [0], [0], [(0, 0, ag.epsilon, ag.epsilon, -1)]))
    # A cycle of epsilons that no accepted path takes.
    arcs = [loop, (1, 1, ag.epsilon, ag.epsilon, 0)]
    assert ag.is_unambiguous(build(2, [0], [0], arcs))


@given(graphs(cyclic=True))
def test_simple_properties(graph):
    src, dst = graph.src_nodes().tolist(), graph.dst_nodes().tolist()
    inputs, outputs = graph.ilabels().tolist(), graph.olabels().tolist()
    assert ag.is_acceptor(graph) is (inputs == outputs)
    assert ag.is_epsilon_free(graph, "input") is (ag.epsilon not in inputs)
    assert ag.is_epsilon_free(graph, "output") is (ag.epsilon not in outputs)
    silent = (ag.epsilon, ag.epsilon)
    assert ag.is_epsilon_free(graph) is (silent not in zip(inputs, outputs, strict=True))
    assert ag.is_connected(graph) is (ag.connect(graph).num_nodes() == graph.num_nodes())
    steps = np.zeros((graph.num_nodes(),) * 2)
    np.add.at(steps, (src, dst), 1)
    power = np.linalg.matrix_power(np.minimum(steps, 1), graph.num_nodes())
    assert ag.is_acyclic(graph) is (not power.any())


@pytest.mark.parametrize("length", range(3))
def test_chains_are_strings(length):
    assert ag.is_string(ag.chain_graph(list(range(length))))


@pytest.mark.parametrize(
    "graph",
    [
        ag.Graph(),
        ag.linear_graph(2, 2),
        ag.union([ag.chain_graph([1]), ag.chain_graph([2])]),
        ag.closure(ag.chain_graph([1])),
        build(2, [0], [0, 1], [(0, 1, 1, 1, 0)]),
        build(3, [0], [1, 2], [(0, 1, 1, 1, 0), (0, 2, 1, 1, 0)]),
    ],
)
def test_other_graphs_are_not(graph):
    assert not ag.is_string(graph)


def test_a_side_must_be_known():
    with pytest.raises(ValueError, match="the side must be 'input' or 'output', but it is 'left'"):
        ag.is_epsilon_free(ag.Graph(), "left")


# equivalent


def same(x, y):
    return x.keys() == y.keys() and all(abs(x[s] - y[s]) <= 1e-4 for s in x)


@given(graphs(max_nodes=4, max_arcs=5), graphs(max_nodes=4, max_arcs=5))
def test_equivalent_graphs_have_the_same_language(first, second):
    for plus, semiring in ((np.logaddexp, "log"), (TROPICAL, "tropical")):
        expected = same(language(first, plus), language(second, plus))
        assert ag.equivalent(first, second, semiring=semiring) is expected
    assert ag.equivalent(first, ag.reverse(ag.reverse(first)))
    assert ag.equivalent(ag.synchronize(first), first)


@given(acceptors(max_arcs=5), acceptors(max_arcs=5))
def test_a_sum_is_equivalent_to_the_exchanged_sum(first, second):
    assert ag.equivalent(ag.union([first, second]), ag.union([second, first]))
    twice = ag.union([first, first])
    assert ag.equivalent(first, twice, semiring="tropical")
    assert ag.equivalent(first, twice) is (not language(first))


@given(convergent(transducer=False, epsilon=False, max_nodes=3, max_arcs=4))
def test_graphs_with_cycles_are_equivalent_to_themselves_or_refused(graph):
    other = ag.reverse(ag.reverse(graph))
    try:
        ag.determinize(graph, max_nodes=200)
    except ValueError:
        with pytest.raises(ValueError, match="rand_equivalent compares random paths"):
            ag.equivalent(graph, other, max_nodes=200)
    else:
        assert ag.equivalent(graph, other, max_nodes=200)


def test_cycles_whose_sum_diverges_are_compared():
    letters = [(0, 0, label, label, 0.0) for label in range(3)]
    one, other = build(1, [0], [0], letters), build(2, [0], [0, 1], [])
    assert ag.equivalent(one, one)
    assert not ag.equivalent(one, other)
    # The same strings, unrolled once.
    first = [(0, 1, label, label, 0.0) for label in range(3)]
    assert ag.equivalent(one, build(2, [0], [0, 1], first + [(1, 1, *a[2:]) for a in letters]))


@pytest.mark.parametrize("move", [0.0, 0.5])
def test_weights_count_wherever_they_are(move):
    one = ag.chain_graph([1, 2, 3], weights=[0.5, 0.0, 1.0])
    other = ag.chain_graph([1, 2, 3], weights=[0.0, 0.5 + move, 1.0])
    assert ag.equivalent(one, other) is (move == 0.0)
    assert ag.equivalent(one, other, tol=1.0)


def test_alignments_of_transducers_do_not_matter():
    one = build(3, [0], [2], [(0, 1, 1, ag.epsilon, 0), (1, 2, ag.epsilon, 2, 0)])
    assert ag.equivalent(one, ag.chain_graph([1], [2]))


def test_graphs_without_a_deterministic_form_are_refused():
    arcs = [(0, 1, 5, 5, 0.0), (0, 2, 5, 5, 0.0), (1, 1, 1, 1, -2.0), (2, 2, 1, 1, -1.0)]
    graph = build(3, [0], [1, 2], arcs)
    with pytest.raises(ValueError, match=r"equivalent: .*twins.*; rand_equivalent compares random"):
        ag.equivalent(graph, graph, max_nodes=50)
    loop = build(1, [0], [0], [(0, 0, 1, ag.epsilon, -1.0)])
    with pytest.raises(ValueError, match=r"equivalent: a cycle must .*; rand_equivalent compares"):
        ag.equivalent(loop, loop)
    with pytest.raises(ValueError, match="equivalent: tol must be 0 or more, but it is -1"):
        ag.equivalent(graph, graph, -1.0)


def test_all_words_of_two_letters_in_two_orders():
    words = list(itertools.product(range(2), repeat=4))
    one = ag.union([ag.chain_graph(list(word)) for word in words])
    other = ag.union([ag.chain_graph(list(word)) for word in reversed(words)])
    assert ag.equivalent(one, other)
    assert ag.equivalent(one, ag.chain_graph([0] * 4)) is False
