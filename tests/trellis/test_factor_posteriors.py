"""Posteriors and counts of the factors of a product."""

import numpy as np
import pytest
from gradients import assert_gradient, direction, like
from hypothesis import given
from hypothesis import strategies as st
from tools import build, snapshot, weights
from trellis_cases import (
    Case,
    assert_near,
    cases,
    dense,
    every_class,
    explicit,
    flower,
    generator,
    reference,
    sample_case,
)

import arcgrad as ag


@every_class
@given(data=st.data())
def test_arc_posteriors_of_a_factor(kind, data):
    case = data.draw(cases(kind, sizes=(1,)))
    expected = reference(case, second=False)
    graph, (emissions,) = case.leaves("float64")
    product = case.join(graph, emissions)
    to_graph = ag.arc_posteriors(product, wrt=graph)
    to_emissions = ag.arc_posteriors(product, wrt=emissions)
    assert snapshot(to_graph)[:7] == snapshot(graph)[:7]
    assert snapshot(to_emissions)[:7] == snapshot(emissions)[:7]
    assert_near(weights(to_graph), expected.arcs, 1e-10, "posteriors of the graph")
    assert_near(weights(to_emissions), expected.emissions[0], 1e-10, "posteriors of the emissions")


def test_arc_posteriors_of_lists_and_of_factors_without_gradient():
    case = sample_case("lanes", count=3)
    graph, emissions = case.leaves("float64")
    graph.calc_grad = False
    products = case.join(graph, emissions)
    each = [ag.arc_posteriors(p, wrt=e) for p, e in zip(products, emissions, strict=True)]
    together = ag.arc_posteriors(products, wrt=emissions)
    assert [snapshot(g) for g in together] == [snapshot(g) for g in each]
    shared = ag.arc_posteriors(products, wrt=graph)
    assert [snapshot(g) for g in shared] == [
        snapshot(ag.arc_posteriors(p, wrt=graph)) for p in products
    ]
    assert sum(weights(g).sum() for g in together) == pytest.approx(sum(map(len, case.arrays)))


def test_arc_posteriors_are_differentiable():
    case = sample_case("lanes", count=1, length=6)
    graph, (emissions,) = case.leaves("float64")
    for factor in (graph, emissions):
        posteriors = ag.arc_posteriors(ag.intersect(graph, emissions), wrt=factor)
        vector = direction(factor, 1)
        found = ag.grad(posteriors, [graph, emissions], like(posteriors, vector))
        vectors = [vector if g is factor else np.zeros(g.num_arcs()) for g in (graph, emissions)]
        score = ag.forward_score(ag.intersect(graph, emissions))
        expected = ag.hvp(score, [graph, emissions], vectors)
        for one, other in zip(found, expected, strict=True):
            assert weights(one) == pytest.approx(weights(other), abs=1e-10)


@every_class
@given(data=st.data())
def test_counts_of_a_factor_on_the_best_path(kind, data):
    case = data.draw(cases(kind, exact=True, sizes=(1,)))
    graph, (emissions,) = case.leaves("float64")
    product = case.join(graph, emissions)
    expected = ag.grad(ag.viterbi_score(product), [graph, emissions])
    for factor, gradient in zip((graph, emissions), expected, strict=True):
        counts = ag.arc_posteriors(product, wrt=factor, semiring="tropical")
        assert snapshot(counts)[:7] == snapshot(factor)[:7]
        assert weights(counts).tolist() == weights(gradient).tolist()


# Products that are materialized, since epsilon arcs form cycles


def silent_cycles(side):
    """Cycles of epsilon arcs before, between and after frames; labels on one side only."""
    eps = ag.epsilon
    arcs = [
        (0, 1, eps, -0.5),
        (1, 0, eps, -0.25),
        (1, 1, eps, -1.5),
        (1, 2, 0, 0.5),
        (1, 2, 1, -0.25),
        (2, 1, eps, -0.375),
        (2, 2, 2, 0.125),
        (2, 3, eps, -0.75),
        (3, 2, eps, -0.625),
        (3, 3, 1, 0.25),
    ]
    others = [7, eps, 8] * len(arcs)
    arcs = [
        (s, d, label, label if side == "acceptor" else other, w)
        for (s, d, label, w), other in zip(arcs, others, strict=False)
    ]
    if side == "output":
        arcs = [(s, d, o, i, w) for s, d, i, o, w in arcs]
    return build(4, {0, 2}, {2, 3}, arcs)


def product_by_hand(graph, side, array):
    """The arcs of the product: source, destination, weight, arc of the graph, entry of the array.

    Nodes are numbered by frame, then by node of the graph. Entries are -1 for epsilon arcs.
    """
    src, dst, ilabel, olabel, weight = (column.tolist() for column in graph.arcs())
    matched = olabel if side == "output" else ilabel
    count, (length, num_labels) = graph.num_nodes(), array.shape
    found = []
    for t in range(length + 1):
        for a, label in enumerate(matched):
            here, there = t * count + src[a], t * count + dst[a]
            if label == ag.epsilon:
                found.append((here, there, weight[a], a, -1))
            elif t < length and label < num_labels:
                entry = t * num_labels + label
                value = weight[a] + array[t, label]
                found.append((here, there + count, value, a, entry))
    return found


def summed(posteriors, entries, count):
    sums = np.zeros(count)
    for value, entry in zip(posteriors, entries, strict=True):
        if entry >= 0:
            sums[entry] += value
    return sums


every_side = pytest.mark.parametrize("side", ["input", "output", "acceptor"])


@every_side
@pytest.mark.parametrize("length", [0, 1, 5])
def test_posteriors_of_the_factors_of_a_product_with_epsilon_cycles(side, length):
    graph, array = silent_cycles(side), generator(length).normal(size=(length, 3))
    emissions = dense(array)
    product = Case(side, graph, [array]).join(graph, emissions)
    assert ag.explain(product).kernel == "materialised"
    src, dst, weight, arcs, entries = zip(*product_by_hand(graph, side, array), strict=True)
    # By a linear system: the sums of all paths between any two nodes of the product.
    size = graph.num_nodes() * (length + 1)
    matrix = np.zeros((size, size))
    np.add.at(matrix, (src, dst), np.exp(weight))
    paths = np.linalg.inv(np.eye(size) - matrix)
    start, accept = graph.start(), size - graph.num_nodes() + graph.accept()
    before, after = paths[start].sum(0), paths[:, accept].sum(1)
    total = before[accept].sum()
    posteriors = before[list(src)] * np.exp(weight) * after[list(dst)] / total
    assert ag.forward_score(product).item() == pytest.approx(np.log(total), abs=1e-12)
    assert np.sum(posteriors[np.equal(entries, -1)]) > 0.5
    for factor, of in ((graph, arcs), (emissions, entries)):
        found = ag.arc_posteriors(product, wrt=factor)
        assert snapshot(found)[:7] == snapshot(factor)[:7]
        assert_near(weights(found), summed(posteriors, of, factor.num_arcs()), 1e-10, "posteriors")
    # The arcs of the product itself, in any order.
    built = np.sort(weights(ag.arc_posteriors(product)))
    listed = np.sort(posteriors[posteriors > 0])
    np.testing.assert_allclose(built[built > 1e-12], listed[listed > 1e-12], rtol=1e-8)


@every_side
def test_posteriors_of_a_product_with_epsilon_cycles_are_differentiable(side):
    graph, array = silent_cycles(side), generator(2).normal(size=(3, 3))
    case = Case(side, graph, [array])
    assert ag.explain(case.products()[0]).kernel == "materialised"

    def posteriors(which):
        def call(*factors):
            return ag.arc_posteriors(case.join(*factors), wrt=factors[which])

        return call

    for which in (0, 1):
        assert_gradient(posteriors(which), graph, dense(array))


@every_side
@pytest.mark.parametrize("length", [0, 1, 6])
def test_counts_of_the_factors_of_a_product_with_epsilon_cycles(side, length):
    graph, array = silent_cycles(side), generator(length + 9).normal(size=(length, 3))
    emissions = dense(array)
    product = Case(side, graph, [array]).join(graph, emissions)
    assert ag.explain(product).kernel == "materialised"
    listed = product_by_hand(graph, side, array)
    size = graph.num_nodes() * (length + 1)
    # The best path to each node, by Bellman-Ford.
    best, last = np.full(size, -np.inf), [None] * size
    best[graph.start()] = 0.0
    for _ in range(size):
        for arc in listed:
            src, dst, weight = arc[:3]
            if best[src] + weight > best[dst]:
                best[dst], last[dst] = best[src] + weight, arc
    accept = size - graph.num_nodes() + graph.accept()
    node = int(accept[np.argmax(best[accept])])
    assert ag.viterbi_score(product).item() == pytest.approx(best[node], abs=1e-12)
    taken = []
    while last[node] is not None:
        taken.append(last[node])
        node = last[node][0]
    assert length < 6 or any(arc[4] < 0 for arc in taken)
    for factor, column in ((graph, 3), (emissions, 4)):
        found = ag.arc_posteriors(product, wrt=factor, semiring="tropical")
        assert snapshot(found)[:7] == snapshot(factor)[:7]
        expected = summed([1.0] * len(taken), [arc[column] for arc in taken], factor.num_arcs())
        assert weights(found).tolist() == expected.tolist()


def test_posteriors_are_of_a_factor_or_of_an_ordinary_graph():
    graph, emissions = flower(2, generator()), dense(np.zeros((3, 2)))
    product = ag.intersect(graph, emissions)
    with pytest.raises(ValueError, match=r"arc_posteriors: wrt must be one of the two graphs"):
        ag.arc_posteriors(product, wrt=flower(2, generator()))
    with pytest.raises(ValueError, match=r"arc_posteriors: .*"):
        ag.arc_posteriors(explicit(np.zeros((3, 2))), wrt=graph)
    assert ag.arc_posteriors(product).num_arcs() == 6
