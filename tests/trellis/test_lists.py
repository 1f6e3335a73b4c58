"""Scores of a Python loop over examples have the same derivatives as scores of a list."""

import numpy as np
import pytest

import arcgrad as ag

FRAMES, LABELS, EXAMPLES = 30, 6, 9


def emissions(rng, count=EXAMPLES):
    made = [ag.linear_graph(FRAMES, LABELS) for _ in range(count)]
    for graph in made:
        graph.set_weights(rng.standard_normal((FRAMES, LABELS)).astype(np.float32))
    return made


def alignments(rng):
    tokens = ag.tokens.Tokens.ctc(LABELS)
    targets = [rng.integers(1, LABELS, rng.integers(0, 6)).tolist() for _ in range(EXAMPLES)]
    return ag.tokens.alignment_graph(tokens, targets)


def gradients(graphs):
    return [graph.grad().weights_to_numpy() for graph in graphs]


every_number = pytest.mark.parametrize("number", [1, 2])


@every_number
def test_a_loop_gives_the_bits_of_a_list(number, threads):
    threads(number)
    found = []
    for in_loop in (False, True):
        rng = np.random.default_rng(0)
        frames, graphs = emissions(rng), alignments(rng)
        for graph in graphs:
            graph.calc_grad = True
        if in_loop:
            scores = [
                ag.forward_score(ag.intersect(graph, frame))
                for graph, frame in zip(graphs, frames, strict=True)
            ]
        else:
            scores = ag.forward_score(ag.intersect(graphs, frames))
        ag.backward(scores)
        found.append(gradients(frames) + gradients(graphs))
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@every_number
def test_gradients_of_a_loop_are_summed_in_its_order(number, threads):
    threads(number)
    rng = np.random.default_rng(1)
    (frames,), graphs = emissions(rng, 1), alignments(rng)
    bigram = ag.ngram.dense_graph(LABELS, 2)
    total = ag.negate(ag.forward_score(ag.intersect(bigram, frames)))
    for graph in graphs:
        total = ag.add(total, ag.forward_score(ag.intersect(graph, frames)))
        total = ag.subtract(total, ag.forward_score(ag.intersect(bigram, frames)))
    ag.backward(total)
    parts = []
    for graph in graphs:
        (part,) = ag.grad(ag.forward_score(ag.intersect(graph, frames)), [frames])
        parts.append(part.weights_to_numpy().astype(np.float64))
    of_frames, of_bigram = (
        part.weights_to_numpy().astype(np.float64)
        for part in ag.grad(ag.forward_score(ag.intersect(bigram, frames)), [frames, bigram])
    )
    count = EXAMPLES + 1
    np.testing.assert_allclose(
        frames.grad().weights_to_numpy(), sum(parts) - count * of_frames, atol=1e-5
    )
    np.testing.assert_allclose(bigram.grad().weights_to_numpy(), -count * of_bigram, atol=1e-4)


@every_number
def test_a_loop_may_also_take_gradients_of_its_products(number, threads):
    threads(number)
    rng = np.random.default_rng(2)
    frames, graphs = emissions(rng), alignments(rng)
    products = [ag.intersect(graph, frame) for graph, frame in zip(graphs, frames, strict=True)]
    for product in products[::2]:
        product.retain_grad()
    ag.backward([ag.forward_score(product) for product in products])
    for product, frame, graph in zip(products, frames, graphs, strict=True):
        (expected,) = ag.grad(ag.forward_score(ag.intersect(graph, frame)), [frame])
        np.testing.assert_allclose(
            frame.grad().weights_to_numpy(), expected.weights_to_numpy(), atol=1e-6
        )
        if product.num_arcs() and any(product is kept for kept in products[::2]):
            sums = product.grad().weights_to_numpy().sum()
            assert sums == pytest.approx(FRAMES, rel=1e-5)


def test_second_derivatives_of_a_loop_equal_a_list():
    found = []
    for in_loop in (False, True):
        rng = np.random.default_rng(3)
        frames, graphs = emissions(rng), alignments(rng)
        vectors = emissions(rng)
        scores = ag.forward_score(ag.intersect(graphs, frames))
        if in_loop:
            scores = [
                ag.forward_score(ag.intersect(graph, frame))
                for graph, frame in zip(graphs, frames, strict=True)
            ]
        products = ag.hvp(scores, frames, vectors)
        found.append([product.weights_to_numpy() for product in products])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
