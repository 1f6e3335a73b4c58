"""Arc maps: the weights of results, and the arcs that `remove` joins, compared with NumPy."""

import numpy as np
import pytest
from gradients import like
from tools import weights

import arcgrad as ag

eps = ag.epsilon
# Odd numbers of arcs: the arcs after them begin in the middle of a vector.
ARCS = 4003
every_dtype = pytest.mark.parametrize("dtype", ["float32", "float64"])


def random_weights(rng, count, dtype):
    """Weights of all sizes, and some that are 0, -0 or impossible."""
    values = rng.normal(size=count) * 10.0 ** rng.integers(-3, 4, count)
    special = rng.random(count) < 1e-3
    values[special] = rng.choice([0.0, -0.0, -np.inf], np.count_nonzero(special))
    return values.astype(dtype)


def chain(values, **options):
    nodes = np.arange(len(values), dtype=np.int32)
    return ag.Graph.from_arrays(
        nodes, nodes + 1, nodes % 7, None, values, start=[0], accept=[len(values)], **options
    )


def assert_weights(graph, expected):
    """Equal to the last bit, and no zero is negative."""
    found = graph.weights_to_numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    assert not np.signbit(found[found == 0]).any()


# Weights of results


@every_dtype
@pytest.mark.parametrize("before", [0, 1, 2, 3, 5])
def test_a_union_has_the_weights_of_its_inputs(dtype, before):
    rng = np.random.default_rng(before)
    sizes = [before, ARCS, 1, ARCS + 2, 3, 17]
    values = [random_weights(rng, size, dtype) for size in sizes]
    assert_weights(ag.union([chain(v) for v in values]), np.concatenate(values))


@every_dtype
def test_a_union_of_many_small_graphs(dtype):
    rng = np.random.default_rng(0)
    values = np.array_split(random_weights(rng, ARCS, dtype), 300)
    assert_weights(ag.union([chain(v) for v in values]), np.concatenate(values))


@every_dtype
@pytest.mark.parametrize("before", [1, 2, 3, 4])
def test_a_concatenation_has_the_weights_of_its_inputs_and_zeros(dtype, before):
    rng = np.random.default_rng(before)
    values = [random_weights(rng, size, dtype) for size in (before, ARCS, ARCS - 1)]
    joined = ag.concat([chain(v) for v in values])
    src, dst, ilabel, olabel, _ = joined.arcs()
    silent = (ilabel == eps) & (olabel == eps)
    assert np.count_nonzero(silent) == 2
    # One path: its arcs, by the nodes along it.
    following = np.full(joined.num_nodes(), -1)
    following[src] = np.arange(len(src))
    (node,) = joined.start()
    order = np.empty(len(src), np.int64)
    following, ends = following.tolist(), dst.tolist()
    for position in range(len(src)):
        order[position] = following[node]
        node = ends[order[position]]
    assert [node] == joined.accept().tolist()
    zero = np.zeros(1, dtype)
    expected = np.concatenate([values[0], zero, values[1], zero, values[2]])
    found = joined.weights_to_numpy()
    np.testing.assert_array_equal(found[order], expected)
    assert not np.signbit(found[found == 0]).any()


@every_dtype
@pytest.mark.parametrize("extra", [0, 1, 2, 3, 61])
def test_arithmetic_is_that_of_numpy(dtype, extra):
    rng = np.random.default_rng(extra)
    first, second = (random_weights(rng, ARCS + extra, dtype) for _ in range(2))
    second[np.isinf(second)] = 0.0  # so that no difference is NaN
    x, y = chain(first), chain(second)
    zero, factor = np.array(0.0, dtype), np.array(2.5, dtype)
    assert_weights(ag.negate(x), zero - first)
    assert_weights(ag.scale(x, 2.5), zero + factor * first)
    assert_weights(ag.add(x, y), zero + first + second)
    assert_weights(ag.subtract(x, y), zero + first - second)
    # A factor without an exact float32 value multiplies in float64.
    assert_weights(ag.scale(x, 0.1), zero + (0.1 * first.astype(np.float64)).astype(dtype))
    # Without a handle to the intermediate results.
    both = ag.add(ag.scale(x, 2.5), ag.negate(y))
    assert_weights(both, (zero + factor * first) - second)


@every_dtype
def test_borrowed_weights_that_begin_anywhere(dtype):
    rng = np.random.default_rng(0)
    room = random_weights(rng, ARCS + 8, dtype)
    for skipped in (0, 1, 3):
        values = room[skipped : ARCS + skipped]
        graph = ag.linear_graph(len(values), 1, values[:, None], dtype=dtype, copy=False)
        assert_weights(ag.negate(graph), 0 - values)
        assert_weights(ag.union([chain(room[:1]), graph]), np.append(room[:1], values) + 0)


@every_dtype
def test_gradients_of_arc_maps(dtype):
    rng = np.random.default_rng(0)
    sizes = (1, ARCS, 5, ARCS + 1)
    parts = [chain(rng.normal(size=size).astype(dtype)) for size in sizes]
    whole = ag.scale(ag.union(parts), -2.5)
    seed = rng.normal(size=whole.num_arcs()).astype(dtype)
    expected = np.split(np.array(-2.5, dtype) * seed, np.cumsum(sizes)[:-1])
    ag.backward(whole, like(whole, seed), retain_graph=True)
    for part, values in zip(parts, expected, strict=True):
        np.testing.assert_array_equal(part.grad().weights_to_numpy(), values)
    # On the tape too, where the gradient is itself computed by arc maps.
    tracked = like(whole, seed)
    tracked.calc_grad = True
    for gradient, values in zip(
        ag.grad(whole, parts, tracked, create_graph=True), expected, strict=True
    ):
        np.testing.assert_array_equal(gradient.weights_to_numpy(), values)


# Arcs that are removed


class Silent:
    """Labelled arcs from node to node, and silent ones from every third node to later ones.

    Silent arcs end where none leaves, so what becomes of an arc is itself and, if it enters a node
    that silent arcs leave, one arc for each of them.
    """

    def __init__(self, num_nodes, dtype, *, transducer, degree=2, hub=None, seed=0):
        rng = np.random.default_rng(seed)
        steps = np.repeat(np.arange(num_nodes - 1), degree)
        ways = np.where(np.arange(num_nodes) % 3 == 1, rng.integers(0, 5, num_nodes), 0)
        ways[-40:] = 0
        if hub is not None:
            ways[hub] = min(700, (num_nodes - hub) // 4)
        leaving = np.repeat(np.arange(num_nodes), ways)
        rank = np.arange(len(leaving)) - np.repeat(np.cumsum(ways) - ways, ways)
        src, dst = np.append(steps, leaving), np.append(steps + 1, leaving + 1 + 3 * rank)
        assert not ways[dst[len(steps) :]].any()
        # The arcs of a node are contiguous, and silent ones are between the others.
        order = np.argsort(src, kind="stable")
        is_silent = (np.arange(len(src)) >= len(steps))[order]
        labels = rng.integers(0, 9, (2, len(src)))
        labels[1] = labels[int(transducer)]
        labels[:, is_silent] = eps
        self.src, self.dst, self.labels, self.is_silent = src[order], dst[order], labels, is_silent
        self.weight = rng.normal(size=len(src)).astype(dtype)
        self.graph = ag.Graph.from_arrays(
            self.src,
            self.dst,
            *labels,
            self.weight,
            start=[0],
            accept=[num_nodes - 1],
            num_nodes=num_nodes,
        )

    def removed(self):
        """For each arc of the result: the labelled arc, and the silent arc after it or -1."""
        silent = np.flatnonzero(self.is_silent)
        begin, end = np.searchsorted(self.src[silent], [self.dst, self.dst + 1])
        kept = np.flatnonzero(~self.is_silent)
        num = 1 + (end - begin)[kept]
        arc = np.repeat(kept, num)
        rank = np.arange(len(arc)) - np.repeat(np.cumsum(num) - num, num)
        after = np.append(silent, -1)[np.where(rank > 0, begin[arc] + rank - 1, -1)]
        return arc, after


@every_dtype
@pytest.mark.parametrize(("transducer", "hub"), [(False, 400), (True, None), (True, 2998)])
def test_weights_of_removed_arcs_are_added_to_the_preceding_arcs(dtype, transducer, hub):
    given = Silent(3800, dtype, transducer=transducer, hub=hub)
    arc, after = given.removed()
    result = ag.remove(given.graph)
    assert result.num_arcs() == len(arc)
    src, dst, ilabel, olabel, _ = result.arcs()
    np.testing.assert_array_equal(src, given.src[arc])
    expected = np.where(after < 0, given.dst[arc], given.dst[after])
    # The arcs that replace one arc may have any order.
    order, other = (np.lexsort((ends, arc)) for ends in (dst, expected))
    np.testing.assert_array_equal(dst[order], expected[other])
    np.testing.assert_array_equal(ilabel, given.labels[0][arc])
    np.testing.assert_array_equal(olabel, given.labels[1][arc])
    silent = np.where(after < 0, 0, given.weight[after])
    np.testing.assert_allclose(
        weights(result)[order], (given.weight[arc] + silent)[other], rtol=1e-6, atol=1e-6
    )
    seed = np.random.default_rng(1).normal(size=len(arc)).astype(dtype)
    gradient = weights(ag.grad(result, given.graph, like(result, seed)))
    pulled = np.empty(len(arc))
    pulled[other] = seed[order]
    expected = np.bincount(arc, pulled, len(given.src))
    expected += np.bincount(after[after >= 0], pulled[after >= 0], len(given.src))
    bound = 1e-10 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(gradient, expected, rtol=bound, atol=bound)


def test_removing_many_arcs_keeps_scores_and_derivatives():
    given = Silent(3800, "float64", transducer=True, hub=1000)
    graph = given.graph
    direction = np.random.default_rng(1).normal(size=graph.num_arcs())
    result = ag.remove(graph)
    scores = [ag.forward_score(graph), ag.forward_score(result)]
    assert scores[1].item() == pytest.approx(scores[0].item(), rel=1e-12)
    gradients = [weights(ag.grad(score, graph)) for score in scores]
    np.testing.assert_allclose(gradients[1], gradients[0], atol=1e-9)
    products = [weights(ag.hvp(score, [graph], [direction])[0]) for score in scores]
    assert np.abs(products[0]).max() > 0.1
    np.testing.assert_allclose(products[1], products[0], rtol=1e-8, atol=1e-8)
