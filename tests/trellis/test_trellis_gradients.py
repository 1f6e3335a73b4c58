"""Gradients of products on the tape, first and second order."""

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order, direction
from tools import build, snapshot, weights
from trellis_cases import (
    BOUNDS,
    assert_near,
    bigram,
    ctc,
    dense,
    every_kernel,
    flower,
    forced,
    fused,
    generator,
    reference,
    sample_case,
)

import arcgrad as ag


@every_kernel
def test_backward_of_a_list_stores_what_grad_returns(kernel):
    case = sample_case(kernel)
    with forced(kernel):
        graph, emissions = case.leaves("float32")
        scores = ag.forward_score(case.join(graph, emissions))
        expected = ag.grad(scores, [graph, *emissions])
        ag.backward(scores)
    for leaf, gradient in zip([graph, *emissions], expected, strict=True):
        assert snapshot(leaf.grad()) == snapshot(gradient)


@every_kernel
def test_a_loop_of_scores_equals_a_list(kernel):
    case = sample_case(kernel, count=5)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        together = fused(case, "float64", second=False)
        scores = [ag.forward_score(case.join(graph, e)) for e in emissions]
        for score in scores:
            ag.backward(score)
        assert [s.item() for s in scores] == together.scores
        for leaf, gradient in zip(emissions, together.emissions, strict=True):
            assert weights(leaf.grad()).tolist() == gradient.tolist()
        assert weights(graph.grad()) == pytest.approx(together.arcs, rel=1e-12, abs=1e-12)
        graph.zero_grad()
        ag.backward([ag.forward_score(case.join(graph, e)) for e in emissions])
        assert weights(graph.grad()) == pytest.approx(together.arcs, rel=1e-12, abs=1e-12)


@every_kernel
def test_part_of_a_batch_and_seeds(kernel):
    case = sample_case(kernel, count=10)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        scores = ag.forward_score(case.join(graph, emissions))
        each = [ag.grad(score, [graph, *emissions]) for score in scores]
        seeds = [0.5, 0.0, -2.0]
        chosen = [7, 2, 9]
        found = ag.grad(
            [scores[i] for i in chosen],
            [graph, *emissions],
            [ag.scalar_graph(seed) for seed in seeds],
        )
    for k, gradient in enumerate(found):
        expected = sum(s * weights(each[i][k]) for s, i in zip(seeds, chosen, strict=True))
        assert weights(gradient) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    for i, gradients in enumerate(each):
        others = [weights(g) for k, g in enumerate(gradients[1:]) if k != i]
        assert not any(np.any(g) for g in others)


@every_kernel
def test_retaining_the_tape_gives_exactly_twice(kernel):
    case = sample_case(kernel)
    with forced(kernel):
        graph, emissions = case.leaves("float32")
        scores = ag.forward_score(case.join(graph, emissions))
        ag.backward(scores, retain_graph=True)
        once = [weights(g.grad()) for g in (graph, *emissions)]
        ag.backward(scores, retain_graph=True)
        assert [weights(g.grad()).tolist() for g in (graph, *emissions)] == [
            (2 * gradient).tolist() for gradient in once
        ]
        ag.backward(scores)
        with pytest.raises(RuntimeError, match="freed"):
            ag.backward(scores)


@every_kernel
def test_gradients_reach_only_graphs_with_calc_grad(kernel):
    case = sample_case(kernel)
    with forced(kernel):
        both = fused(case, "float32")
        graph, emissions = case.leaves("float32")
        graph.calc_grad = False
        ag.backward(ag.forward_score(case.join(graph, emissions)))
        assert not graph.is_grad_available()
        for leaf, expected in zip(emissions, both.emissions, strict=True):
            assert np.array_equal(weights(leaf.grad()), expected)
        graph, emissions = case.leaves("float32")
        for leaf in emissions[1:]:
            leaf.calc_grad = False
        ag.backward(ag.forward_score(case.join(graph, emissions)))
        assert np.array_equal(weights(graph.grad()), both.arcs)
        assert np.array_equal(weights(emissions[0].grad()), both.emissions[0])
        assert not any(leaf.is_grad_available() for leaf in emissions[1:])
        for leaf in (graph, *emissions):
            leaf.calc_grad = False
        scores = ag.forward_score(case.join(graph, emissions))
        assert not any(score.calc_grad for score in scores)
        assert [score.item() for score in scores] == both.scores


@every_kernel
def test_second_order_to_one_factor(kernel):
    case = sample_case(kernel, count=3, length=12)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        expected = reference(case)
        scores = ag.forward_score(case.join(graph, emissions))
        inputs = [graph, *emissions]
        vectors = [direction(g, phase) for phase, g in enumerate(inputs)]
        # By blocks: Hvv of one factor alone, and the rest from the mixed terms.
        blocks = []
        for i in range(len(inputs)):
            only = [v if k == i else np.zeros_like(v) for k, v in enumerate(vectors)]
            blocks.append([weights(g) for g in ag.hvp(scores, inputs, only)])
        total = [np.sum([block[k] for block in blocks], axis=0) for k in range(len(inputs))]
        assert_near(total[0], expected.arc_products, 1e-8, "hvp of the graph")
        for i, product in enumerate(expected.emission_products):
            assert_near(total[i + 1], product, 1e-8, f"hvp of emissions {i}")
        alone = ag.hvp(scores, graph, vectors[0])
        assert_near(weights(alone), blocks[0][0], 1e-10, "hvp of the graph alone")
        graph.calc_grad = False
        part = ag.hvp(ag.forward_score(case.join(graph, emissions)), emissions, vectors[1:])
        for k, product in enumerate(part):
            rest = np.sum([block[k + 1] for block in blocks[1:]], axis=0)
            assert_near(weights(product), rest, 1e-8, "hvp of the emissions alone")


@every_kernel
def test_a_gradient_with_create_graph_is_the_gradient(kernel):
    case = sample_case(kernel, count=9)
    for dtype in BOUNDS:
        with forced(kernel):
            graph, emissions = case.leaves(dtype)
            scores = ag.forward_score(case.join(graph, emissions))
            plain = ag.grad(scores, [graph, *emissions])
            recorded = ag.grad(scores, [graph, *emissions], create_graph=True)
        for one, other in zip(recorded, plain, strict=True):
            assert one.calc_grad
            assert_near(weights(one), weights(other), BOUNDS[dtype][1], "gradient")


@every_kernel
def test_the_gradient_is_differentiable_in_its_seed(kernel):
    case = sample_case(kernel, count=2)
    with forced(kernel):
        graph, emissions = case.leaves("float64")
        scores = ag.forward_score(case.join(graph, emissions))
        seeds = [ag.scalar_graph(2.0), ag.scalar_graph(-1.0)]
        gradients = ag.grad(scores, [graph, *emissions], seeds, create_graph=True)
        found = ag.grad(gradients, seeds)
        for i, seed in enumerate(found):
            each = ag.grad(scores[i], [graph, *emissions])
            assert seed.item() == pytest.approx(sum(weights(g).sum() for g in each), rel=1e-10)


def test_third_order_raises():
    graph, emissions = flower(2, generator()), dense(np.zeros((3, 2)))
    score = ag.forward_score(ag.intersect(graph, emissions))
    first = ag.grad(score, [graph, emissions], create_graph=True)
    with pytest.raises(RuntimeError, match="order"):
        ag.grad(first, [graph, emissions], create_graph=True)


@pytest.mark.parametrize("num_frames", [0, 1, 2, 5])
def test_second_order_of_a_graph_that_consumes_nothing(num_frames):
    graph = build(3, {0}, {2}, [(0, 1, -1, -1, 0.5), (1, 2, -1, -1, 0.25)])
    emissions = ag.linear_graph(num_frames, 2, np.ones((num_frames, 2)))
    for score in (
        ag.forward_score(ag.intersect(graph, emissions)),
        ag.outer_score([graph], emissions),
    ):
        for gradient in ag.grad(score, [graph, emissions], create_graph=True):
            for second in ag.grad(gradient, [graph, emissions]) if gradient.calc_grad else []:
                assert not np.any(second.weights_to_numpy())


def test_second_order_of_a_loss():
    rng = generator(3)
    array = rng.normal(size=(5, 3))

    def loss(transitions, emissions):
        target = ag.intersect(ctc([1, 2]), transitions)
        numerator = ag.forward_score(ag.intersect(target, emissions))
        return ag.subtract(ag.forward_score(ag.intersect(transitions, emissions)), numerator)

    assert_gradient(loss, bigram(3, rng), dense(array))
    assert_second_order(loss, bigram(3, rng), dense(array))


def test_one_emission_graph_in_many_products():
    rng = generator(6)
    emissions = dense(rng.normal(size=(8, 4)))
    graphs = [ctc([1, 2]), bigram(4, rng), flower(4, rng), ctc([3])]
    scores = ag.forward_score(ag.intersect(graphs, emissions))
    ag.backward(scores)
    expected = sum(
        weights(ag.grad(ag.forward_score(ag.intersect(g, emissions)), emissions)) for g in graphs
    )
    assert weights(emissions.grad()) == pytest.approx(expected, rel=1e-12)


def test_no_grad_stores_no_history():
    case = sample_case("lanes")
    with ag.no_grad():
        products = case.products("float32")
        scores = ag.forward_score(products)
    assert not any(p.calc_grad for p in products)
    assert not any(s.calc_grad for s in scores)
    assert [s.item() for s in scores] == fused(case, "float32", second=False).scores
    with pytest.raises(RuntimeError, match=r"backward: .*no_grad"):
        ag.backward(scores)
