"""Best paths of products with dense emissions: exactly those of the products built out."""

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from tools import build, snapshot, weights, with_dtype, with_weights
from trellis_cases import (
    GRAPHS,
    HARD,
    Case,
    back_off,
    cases,
    dense,
    every_class,
    every_dtype,
    explicit,
    forced,
    generator,
    sample_case,
)

import arcgrad as ag


def explicit_path(case, array, dtype):
    graph = with_dtype(case.graph, dtype)
    emissions = with_dtype(explicit(array), dtype)
    return case.join(graph, emissions)


@every_dtype
@every_class
@given(data=st.data())
def test_the_best_path_is_exactly_that_of_the_product_built_out(kind, dtype, data):
    case = data.draw(cases(kind, exact=True))
    if data.draw(st.booleans()):
        # Everything ties.
        zeros = with_weights(case.graph, np.zeros(case.graph.num_arcs()))
        case = Case(case.side, zeros, [np.zeros_like(array) for array in case.arrays])
    built = [explicit_path(case, array, dtype) for array in case.arrays]
    expected = [snapshot(path) for path in ag.viterbi_path(built)]
    scores = [score.item() for score in ag.viterbi_score(built)]
    for baseline in (False, True):
        with forced(baseline=baseline):
            products = case.products(dtype)
            assert [snapshot(path) for path in ag.viterbi_path(products)] == expected
            assert [score.item() for score in ag.viterbi_score(products)] == scores


@every_class
@given(data=st.data())
def test_gradients_of_best_paths(kind, data):
    case = data.draw(cases(kind, exact=True))
    graph, emissions = case.leaves("float64")
    other, built = with_dtype(case.graph, "float64"), [explicit(x) for x in case.arrays]
    for op in (ag.viterbi_score, ag.viterbi_path):
        found = ag.grad(op(case.join(graph, emissions)), [graph, *emissions])
        expected = ag.grad(op(case.join(other, built)), [other, *built])
        assert [weights(g).tolist() for g in found] == [weights(g).tolist() for g in expected]


def test_best_scores_have_no_curvature():
    graph, emissions = back_off(3, 4, generator()), dense(generator(1).normal(size=(4, 3)))

    def best(g, e):
        return ag.viterbi_score(ag.intersect(g, e))

    def mixed(g, e):
        product = ag.intersect(g, e)
        return ag.subtract(ag.forward_score(product), ag.viterbi_score(product))

    for score in (best, mixed):
        assert_gradient(score, graph, emissions)
        assert_second_order(score, graph, emissions)


def test_the_best_path_keeps_output_labels():
    lexicon = build(2, {0}, {1}, [(0, 0, 0, 7, 0.0), (0, 1, 1, ag.epsilon, 0.5), (1, 1, 1, 9, 0.0)])
    emissions = dense(np.array([[1.0, 0.0], [0.0, 2.0], [0.0, 1.0]]))
    path = ag.viterbi_path(ag.compose(emissions, lexicon))
    assert path.labels_to_list() == [0, 1, 1]
    assert path.labels_to_list(ilabel=False) == [7, ag.epsilon, 9]
    assert path.weights_to_list() == [1.0, 2.5, 1.0]
    path = ag.viterbi_path(ag.compose(ag.invert(lexicon), emissions))
    assert path.labels_to_list() == [7, ag.epsilon, 9]
    assert path.labels_to_list(ilabel=False) == [0, 1, 1]


def test_the_best_path_shows_epsilon_arcs():
    graph = back_off(3, 2, generator(1))
    array = generator(2).normal(size=(6, 3))
    expected = ag.viterbi_path(ag.intersect(graph, explicit(array)))
    found = ag.viterbi_path(ag.intersect(graph, dense(array)))
    assert snapshot(found) == snapshot(expected)
    assert ag.epsilon in found.labels_to_list()


def test_best_paths_of_long_random_emissions():
    for kernel in ("diagonal", "dense", "lanes"):
        case = sample_case(kernel, count=3, length=300)
        built = [explicit_path(case, array, "float64") for array in case.arrays]
        products = case.products()
        expected = [path.labels_to_list() for path in ag.viterbi_path(built)]
        assert [path.labels_to_list() for path in ag.viterbi_path(products)] == expected
        scores = [s.item() for s in ag.viterbi_score(built)]
        assert [s.item() for s in ag.viterbi_score(products)] == pytest.approx(scores, rel=1e-12)


NEARLY_TIED = {
    "few values": lambda rng, t, c: rng.integers(0, 2, (t, c)).astype(float),
    "1e-7 apart": lambda rng, t, c: 1.0 + 1e-7 * rng.integers(0, 3, (t, c)),
    "one label forbidden": lambda rng, t, c: rng.normal(size=(t, c)) - 1e9 * (np.arange(c) == 1),
    "1e30": lambda rng, t, c: rng.choice([-1e30, 0.0, 1e30], (t, c)),
}


@pytest.mark.parametrize("graph", ["bigram", "bigram with ends", "back-off", "rivals"])
@pytest.mark.parametrize("emissions", [*HARD, *NEARLY_TIED])
@every_dtype
def test_best_paths_of_hard_batches_are_those_of_the_products_built_out(graph, emissions, dtype):
    rng = generator(1)
    made, num_labels, length = GRAPHS[graph](rng)
    make = (HARD | NEARLY_TIED)[emissions]
    arrays = [make(rng, t, num_labels) for t in (0, 1, length, 5, length + 3, length)]
    if emissions in NEARLY_TIED:
        made = with_weights(made, np.round(weights(made)))
    case = Case("acceptor", made, arrays)
    built = [explicit_path(case, array, dtype) for array in arrays]
    expected = [snapshot(path) for path in ag.viterbi_path(built)]
    for baseline in (False, True):
        with forced(baseline=baseline):
            products = case.products(dtype)
            assert [snapshot(path) for path in ag.viterbi_path(products)] == expected
            assert [snapshot(ag.viterbi_path(product)) for product in products] == expected


def chain_with_skips(labels, skips):
    """A node with a loop per label, arcs to the next node, and from `skips` to the one after."""
    count = len(labels)
    arcs = [(0, i, labels[i - 1]) for i in (1, 2)]
    for i in range(1, count + 1):
        ways = [i, i + 1] + [i + 2] * (i in skips)
        arcs += [(i, to, labels[to - 1]) for to in ways if to <= count]
    return build(count + 1, [0], [count - 1, count], arcs)


@pytest.mark.parametrize("num_labels", [3, 5, 200])
@pytest.mark.parametrize(
    ("first", "second"), [("float32",) * 2, ("float64",) * 2, ("float64", "float32")]
)
def test_best_paths_of_unweighted_chains(first, second, num_labels):
    rng = generator(5)
    for _ in range(20):
        count = int(rng.integers(2, 15))
        # Label 3 and above are not among three emissions: paths go around them.
        labels = rng.choice(5, count, p=[0.5, 0.2, 0.2, 0.05, 0.05]).tolist()
        graph = with_dtype(chain_with_skips(labels, set(rng.integers(1, 15, 10).tolist())), first)
        arrays = [rng.integers(0, 3, (int(rng.integers(0, 40)), num_labels)) for _ in range(4)]
        arrays = [array.astype(second) for array in arrays]
        built = [with_dtype(explicit(array), second) for array in arrays]
        expected = [snapshot(path) for path in ag.viterbi_path(ag.intersect(graph, built))]
        assert ag.explain(ag.intersect(graph, dense(arrays[0]))).kernel == "diagonal"
        for baseline in (False, True):
            with forced(baseline=baseline):
                found = ag.viterbi_path(
                    ag.intersect(graph, [dense(array, second) for array in arrays])
                )
                assert [snapshot(path) for path in found] == expected


@pytest.mark.parametrize("num_labels", [5, 200])
def test_nan_is_seen_where_no_best_path_can_be(num_labels):
    labels = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
    graph = chain_with_skips(labels, {2, 5})
    for frame, label in ((0, 4), (9, 0), (5, 3)):
        array = np.zeros((10, num_labels))
        array[frame, label] = np.nan
        with pytest.raises(ValueError, match=f"label {label} at frame {frame} is nan"):
            ag.viterbi_path(ag.intersect(graph, dense(array)))


@pytest.mark.parametrize(("kernel", "length"), [("dense", 13_000), ("lanes", 110_000)])
def test_best_paths_of_batches_too_long_to_keep_all_scores(kernel, length):
    graph, rng = sample_case(kernel).graph, generator(3)
    num_labels = int(graph.ilabels().max()) + 1
    count = 16 if kernel == "dense" else 8
    emissions = [dense(rng.normal(size=(length - i, num_labels))) for i in range(count)]
    products = ag.intersect(graph, emissions)
    together = ag.viterbi_path(products)
    for i in (0, count - 1):
        alone = ag.viterbi_path(products[i])
        assert same_bits_of_paths(alone, together[i])


def same_bits_of_paths(first, second):
    return np.array_equal(first.ilabels(), second.ilabels()) and np.array_equal(
        weights(first), weights(second)
    )
