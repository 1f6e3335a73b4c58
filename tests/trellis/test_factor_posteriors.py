"""Posteriors and counts of the factors of a product."""

import numpy as np
import pytest
from gradients import direction, like
from hypothesis import given
from hypothesis import strategies as st
from tools import snapshot, weights
from trellis_cases import (
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


def test_posteriors_are_of_a_factor_or_of_an_ordinary_graph():
    graph, emissions = flower(2, generator()), dense(np.zeros((3, 2)))
    product = ag.intersect(graph, emissions)
    with pytest.raises(ValueError, match=r"arc_posteriors: wrt must be one of the two graphs"):
        ag.arc_posteriors(product, wrt=flower(2, generator()))
    with pytest.raises(ValueError, match=r"arc_posteriors: .*"):
        ag.arc_posteriors(explicit(np.zeros((3, 2))), wrt=graph)
    assert ag.arc_posteriors(product).num_arcs() == 6
