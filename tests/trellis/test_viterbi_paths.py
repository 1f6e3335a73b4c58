"""Best paths of products with dense emissions: exactly equal to the materialized products."""

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from tools import acceptor, build, snapshot, weights, with_dtype, with_weights
from trellis_cases import (
    GRAPHS,
    HARD,
    Case,
    back_off,
    bigram,
    cases,
    ctc,
    dense,
    every_class,
    every_dtype,
    explicit,
    forced,
    generator,
    grid_array,
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
def test_the_best_path_equals_the_best_path_of_the_materialized_product(kind, dtype, data):
    case = data.draw(cases(kind, exact=True))
    if data.draw(st.booleans()):
        # Everything ties.
        zeros = with_weights(case.graph, np.zeros_like(weights(case.graph)))
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


def test_best_scores_have_zero_second_derivatives():
    graph, emissions = back_off(3, 4, generator()), dense(generator(1).normal(size=(4, 3)))

    def best(g, e):
        return ag.viterbi_score(ag.intersect(g, e))

    def mixed(g, e):
        product = ag.intersect(g, e)
        return ag.subtract(ag.forward_score(product), ag.viterbi_score(product))

    for score in (best, mixed):
        assert_gradient(score, graph, emissions)
        assert_second_order(score, graph, emissions)


def test_second_order_of_a_log_sum_of_best_scores():
    # The gradient of the log-sum to each best score depends on the others.
    rng = generator()
    first, second = back_off(3, 4, rng), bigram(3, rng, ends=True)
    frames, fewer = dense(rng.normal(size=(4, 3))), dense(rng.normal(size=(2, 3)))

    def each(g, h, e, f):
        products = [ag.intersect(g, e), ag.intersect(h, e), ag.intersect(g, f)]
        return ag.forward_score(ag.union([ag.viterbi_score(product) for product in products]))

    def together(g, h, e, f):
        products = ag.intersect([g, h, g, h], [e, e, f, f])
        scores = ag.viterbi_score([*products, g, products[0]])
        return ag.forward_score(ag.union(scores))

    def flat(g):
        return with_weights(g, np.minimum(weights(g), -0.25))

    inputs = [flat(first), second, frames, fewer]
    for score in (each, together):
        assert_gradient(score, *inputs)
        assert_second_order(score, *inputs)
        assert_second_order(lambda g, h, score=score: score(g, h, frames, fewer), *inputs[:2])
        assert_second_order(
            lambda e, score=score: score(*(g.detach() for g in inputs[:2]), e, fewer), frames
        )


@every_dtype
def test_second_order_of_best_scores_in_closed_form(dtype):
    # The softmax weights of two best scores depend on their difference.
    array = np.array([[1.0, 0.0, -1.0], [0.5, 0.0, 2.0]])
    graphs = [acceptor((0, 0), (1, 1), dtype=dtype), acceptor((2, 2), (2, 1), dtype=dtype)]
    emissions = dense(array, dtype)
    score = ag.forward_score(ag.union(ag.viterbi_score(ag.intersect(graphs, emissions))))
    vector = generator(1).normal(size=array.shape)
    taken = np.zeros((2, *array.shape))
    taken[0, :, 0] = taken[1, :, 2] = 1.0
    posterior = 1 / (1 + np.exp((taken[1] - taken[0]).ravel() @ array.ravel()))
    away = taken[0] - taken[1]
    expected = posterior * (1 - posterior) * np.sum(away * vector) * away
    (found,) = ag.hvp(score, [emissions], [vector.ravel()])
    assert str(found.dtype) == dtype
    assert weights(found) == pytest.approx(expected.ravel(), rel=1e-6, abs=1e-9)


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
def test_best_paths_of_hard_batches_equal_the_materialized_products(graph, emissions, dtype):
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
def test_nan_is_an_error_off_the_best_path_too(num_labels):
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


def best_by_numpy(graph, array):
    """Score, labels, weights and arcs of the best path, by the rule for ties in a product.

    The graph is an acceptor without epsilons and with one start. All numbers are multiples of 1/8.
    """
    src, dst, label, _, weight = graph.arcs()
    order = np.lexsort((label, src))  # stable, so then by arc
    src, dst, label = src[order], dst[order], label[order]
    weight = np.asarray(weight, np.float64)[order]
    nodes, begin = np.unique(src, return_index=True)
    end = np.append(begin, len(src))[1:]
    rest = np.full((len(array) + 1, graph.num_nodes()), -np.inf)
    rest[-1, graph.accept()] = 0.0
    for t in range(len(array) - 1, -1, -1):
        ways = weight + array[t, label] + rest[t + 1, dst]
        rest[t, nodes] = np.maximum.reduceat(ways, begin)
    (node,) = graph.start()
    span = dict(zip(nodes.tolist(), zip(begin.tolist(), end.tolist(), strict=True), strict=True))
    score, path, taken = rest[0, node], [], []
    for t in range(len(array)):
        ways = slice(*span[int(node)])
        own = weight[ways] + array[t, label[ways]]
        k = int(np.argmax(own + rest[t + 1, dst[ways]] == rest[t, node])) + ways.start
        path.append(k)
        taken.append(own[k - ways.start])
        node = dst[k]
    return float(score), label[path].tolist(), taken, order[path]


def skipping(rng):
    """A chain with weights, each label on one arc of it."""
    return ctc(rng.integers(1, 20, 210).tolist(), rng=rng)


def sparse(rng, count=330):
    """Three arcs to any nodes from each."""
    src = np.repeat(np.arange(count), 3)
    dst, labels = rng.integers(0, count, len(src)), rng.integers(0, 20, len(src))
    dst[::3] = (src[::3] + 1) % count
    values = grid_array(rng, len(src))
    return ag.Graph.from_arrays(
        src, dst, labels, weight=values, start=[0], accept=np.arange(count), dtype="float64"
    )


def nearly_level(rng, length, num_labels):
    """A few scores are -1 and all others 0, so that very many paths tie."""
    return np.where(rng.random((length, num_labels)) < 0.02, -1.0, 0.0)


def uneven(rng, length, num_labels):
    return grid_array(rng, (length, num_labels))


LONG = {
    "diagonals": (skipping, 7800, 1, uneven),
    "terms": (sparse, 9800, 1, uneven),
    "terms of several examples": (lambda rng: sparse(rng, 120), 3500, 7, nearly_level),
}


@pytest.mark.parametrize("name", LONG)
@every_dtype
def test_best_paths_too_long_to_keep_all_scores(name, dtype):
    make_graph, length, count, make = LONG[name]
    rng = generator(4)
    graph = with_dtype(make_graph(rng), dtype)
    if make is nearly_level:
        graph = with_weights(graph, np.zeros(graph.num_arcs()))
    # The scores of all frames, of which no more than 24 MB are kept.
    lanes = 1 if count == 1 else 8
    assert 8 * lanes * length * (graph.num_nodes() - 1) > 24 << 20
    num_labels = int(graph.ilabels().max()) + 1
    arrays = [make(rng, length - 5 * i, num_labels) for i in range(count)]
    products = ag.intersect(graph, [dense(a, "float32", calc_grad=False) for a in arrays])
    scores, paths = ag.viterbi_score(products), ag.viterbi_path(products)
    for i in (0, count - 1):
        score, labels, values, taken = best_by_numpy(graph, arrays[i])
        assert scores[i].item() == score
        assert paths[i].labels_to_list() == labels
        assert weights(paths[i]).tolist() == values
        arcs = np.bincount(taken, minlength=graph.num_arcs())
        np.testing.assert_array_equal(weights(ag.grad(scores[i], graph)), arcs)


@every_dtype
def test_the_best_path_through_all_transitions_too_long_to_keep_all_scores(dtype):
    # Every pair of labels has its own transition score, so each frame has its best labels.
    size, length, rng = 64, 50_000, generator(4)
    assert 8 * length * size > 24 << 20
    price = rng.integers(0, 2, size)
    graph = with_dtype(bigram(size, rng), dtype)
    graph = with_weights(graph, price[graph.ilabels()])
    array = nearly_level(rng, length, size)
    labels = np.argmax(array + price, axis=1)
    taken = (array + price)[np.arange(length), labels]
    product = ag.intersect(graph, dense(array, "float32", calc_grad=False))
    path, score = ag.viterbi_path(product), ag.viterbi_score(product)
    assert path.labels_to_list() == labels.tolist()
    assert weights(path).tolist() == taken.tolist()
    assert score.item() == taken.sum()
    arcs = np.zeros((size + 1, size))
    np.add.at(arcs, (np.append(0, labels[:-1] + 1), labels), 1)
    # Its arcs are ordered by source node, then by label.
    np.testing.assert_array_equal(weights(ag.grad(score, graph)), arcs.ravel())
