"""Differentiation: backward, grad, no_grad, detach, retain_grad and zero_grad."""

import copy
import math
import threading

import numpy as np
import pytest
from gradients import like
from tools import acceptor, build, snapshot, weights, with_weights

import arcgrad as ag


@pytest.fixture
def graph():
    """Two paths: 0 1 and 2."""
    return build(3, {0}, {2}, [(0, 1, 0, 0, 0.5), (1, 2, 1, 1, 0.25), (0, 2, 2, 2, 1.0)])


@pytest.fixture
def other(graph):
    return with_weights(graph, [0.125, -0.5, 2.0])


def values(*graphs_):
    return [weights(g).tolist() for g in graphs_]


# backward


def test_backward_stores_the_gradient_in_the_leaf(graph):
    assert not graph.is_grad_available()
    ag.backward(ag.forward_score(graph))
    assert graph.is_grad_available()
    p = math.exp(0.75) / (math.exp(0.75) + math.exp(1.0))
    assert weights(graph.grad()) == pytest.approx([p, p, 1 - p], abs=1e-12)


def test_the_gradient_is_a_graph_of_the_same_topology(graph):
    ag.backward(ag.forward_score(graph))
    gradient = graph.grad()
    assert snapshot(gradient)[:7] == snapshot(graph)[:7]
    assert gradient.src_nodes().ctypes.data == graph.src_nodes().ctypes.data
    assert gradient.dtype == graph.dtype
    assert not gradient.calc_grad


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_has_the_dtype_of_its_graph(dtype):
    graph = acceptor((0,), (1,), dtype=dtype)
    leaf = copy.copy(graph)
    leaf.calc_grad = True
    ag.backward(ag.forward_score(leaf))
    assert leaf.grad().dtype == np.dtype(dtype)


def test_gradients_accumulate_until_cleared(graph):
    (once,) = ag.grad(ag.forward_score(graph), [graph])
    for times in (1, 2, 3):
        ag.backward(ag.forward_score(graph))
        assert weights(graph.grad()) == pytest.approx(times * weights(once), abs=1e-15)
    graph.zero_grad()
    assert not graph.is_grad_available()
    ag.backward(ag.forward_score(graph))
    assert values(graph.grad()) == values(once)


def test_an_accumulated_gradient_does_not_change_one_read_earlier(graph):
    ag.backward(ag.forward_score(graph))
    first = graph.grad()
    before = values(first)
    ag.backward(ag.forward_score(graph))
    assert values(first) == before


def test_retaining_the_tape_gives_exactly_twice(graph):
    score = ag.forward_score(ag.compose(graph, graph))
    ag.backward(score, retain_graph=True)
    once = weights(graph.grad())
    ag.backward(score, retain_graph=True)
    assert weights(graph.grad()).tolist() == (2 * once).tolist()


def test_a_freed_tape_raises(graph):
    score = ag.forward_score(graph)
    ag.backward(score)
    with pytest.raises(RuntimeError, match=r"backward: .*freed.*retain_graph=True"):
        ag.backward(score)
    with pytest.raises(RuntimeError, match="freed"):
        ag.grad(score, graph)


def test_of_several_graphs_the_one_with_a_freed_tape_or_a_wrong_seed_is_named(graph):
    scores = [ag.forward_score(graph) for _ in range(3)]
    seeds = [ag.scalar_graph(1.0), ag.scalar_graph(1.0), ag.linear_graph(1, 2)]
    for differentiate in (ag.backward, lambda s, seeds: ag.grad(s, graph, seeds)):
        with pytest.raises(
            ValueError, match=r"\(element 2 of 3\): a seed .* 1 in all, but it has 2"
        ):
            differentiate(scores, seeds)
    ag.backward(scores[1])
    with pytest.raises(RuntimeError, match=r"backward \(element 1 of 3\): the tape .*freed"):
        ag.backward(scores)
    with pytest.raises(RuntimeError, match=r"grad \(element 1 of 3\): the tape .*freed"):
        ag.grad(scores, graph)
    with pytest.raises(RuntimeError, match=r"^grad: the tape of forward_score was freed"):
        ag.grad(scores[1], graph)
    assert not math.isnan(weights(graph.grad()).sum())


def test_a_freed_tape_of_an_input_raises(graph):
    middle = ag.clone(graph)
    first, second = ag.forward_score(middle), ag.viterbi_score(middle)
    ag.backward(first)
    with pytest.raises(RuntimeError, match="freed"):
        ag.backward(second)


def test_a_failed_backward_changes_no_gradient(graph):
    score = ag.forward_score(graph)
    ag.backward(score)
    before = values(graph.grad())
    with pytest.raises(RuntimeError, match="freed"):
        ag.backward(score)
    assert values(graph.grad()) == before


def test_two_roots_of_one_call_add(graph):
    forward, viterbi = ag.forward_score(graph), ag.viterbi_score(graph)
    expected = weights(ag.grad(forward, graph)) + weights(ag.grad(viterbi, graph))
    ag.backward([forward, viterbi])
    assert weights(graph.grad()) == pytest.approx(expected, abs=1e-15)


def test_the_same_graph_in_two_slots_gets_the_sum(graph):
    ag.backward(ag.add(graph, graph))
    assert values(graph.grad()) == [[2.0] * 3]
    graph.zero_grad()
    ag.backward(ag.subtract(graph, graph))
    assert values(graph.grad()) == [[0.0] * 3]


def test_a_root_may_be_a_leaf(graph):
    ag.backward(graph)
    assert values(graph.grad()) == [[1.0] * 3]


def test_seeds_of_roots_with_many_arcs(graph, other):
    total = ag.add(graph, ag.scale(other, 3.0))
    ag.backward(total, like(total, [1.0, 10.0, 100.0]))
    assert values(graph.grad(), other.grad()) == [[1.0, 10.0, 100.0], [3.0, 30.0, 300.0]]


def test_without_a_seed_every_arc_counts_once(graph):
    ag.backward(ag.clone(graph))
    assert values(graph.grad()) == [[1.0] * 3]


def test_a_list_of_roots_takes_a_list_of_seeds(graph, other):
    roots = [ag.clone(graph), ag.clone(other)]
    ag.backward(roots, [like(roots[0], [1, 2, 3]), like(roots[1], [4, 5, 6])])
    assert values(graph.grad(), other.grad()) == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_a_seed_of_another_size_is_rejected(graph):
    score = ag.forward_score(graph)
    with pytest.raises(ValueError, match=r"backward: .*seed.*1 in all, but it has 3"):
        ag.backward(score, graph)
    with pytest.raises(ValueError, match=r"grad: .*seed.*1 in all, but it has 3"):
        ag.grad(score, graph, graph)
    with pytest.raises(ValueError, match=r"backward: .*one seed.*1 in all, but there are 2"):
        ag.backward([score], [score, score])


def test_gradients_reach_only_graphs_with_calc_grad(graph, other):
    other.calc_grad = False
    ag.backward(ag.forward_score(ag.compose(graph, other)))
    assert graph.is_grad_available()
    assert not other.is_grad_available()
    with pytest.raises(RuntimeError, match=r"grad: .*calc_grad"):
        other.grad()


def test_a_graph_has_no_gradient_before_backward(graph):
    with pytest.raises(RuntimeError, match=r"grad: .*no gradient.*backward"):
        graph.grad()


# calc_grad


def test_a_result_has_calc_grad_if_an_input_has(graph, other):
    other.calc_grad = False
    assert ag.add(graph, other).calc_grad
    assert not ag.add(other, other).calc_grad


def test_switching_calc_grad_off_forgets_the_gradient(graph):
    ag.backward(ag.forward_score(graph))
    graph.calc_grad = False
    assert not graph.is_grad_available()
    graph.calc_grad = True
    assert not graph.is_grad_available()


def test_calc_grad_of_new_graphs():
    assert not ag.chain_graph([0, 1]).calc_grad
    assert ag.Graph().calc_grad
    assert ag.linear_graph(1, 1).calc_grad
    assert not ag.Graph(False).calc_grad


# Intermediate graphs


def test_intermediate_graphs_keep_no_gradient_by_default(graph):
    middle = ag.clone(graph)
    ag.backward(ag.forward_score(middle))
    with pytest.raises(RuntimeError, match=r"grad: .*retain_grad"):
        middle.grad()


def test_retain_grad_keeps_the_gradient_of_an_intermediate_graph(graph):
    middle = ag.scale(graph, 2.0)
    assert middle.retain_grad() is middle or ag.equal(middle.retain_grad(), middle)
    ag.backward(ag.forward_score(middle))
    assert weights(graph.grad()) == pytest.approx(2 * weights(middle.grad()), abs=1e-15)


def test_retained_gradients_accumulate_like_gradients_of_leaves(graph):
    middle = ag.clone(graph)
    middle.retain_grad()
    score = ag.forward_score(middle)
    ag.backward(score, retain_graph=True)
    once = weights(middle.grad())
    ag.backward(score)
    assert weights(middle.grad()).tolist() == (2 * once).tolist()


def test_detach_cuts_the_tape(graph):
    middle = ag.scale(graph, 2.0)
    cut = middle.detach()
    assert values(cut) == values(middle)
    assert not cut.calc_grad
    cut.calc_grad = True
    ag.backward(ag.forward_score(cut))
    assert cut.is_grad_available()
    assert not graph.is_grad_available()


def test_a_copy_is_a_new_leaf(graph):
    middle = ag.clone(graph)
    for twin in (copy.copy(middle), copy.deepcopy(middle)):
        twin.calc_grad = True
        ag.backward(ag.forward_score(twin))
        assert twin.is_grad_available()
        assert not graph.is_grad_available()


# no_grad


def test_no_grad_records_nothing(graph):
    assert ag.is_grad_enabled()
    with ag.no_grad():
        assert not ag.is_grad_enabled()
        score = ag.forward_score(graph)
    assert ag.is_grad_enabled()
    assert not score.calc_grad
    with pytest.raises(RuntimeError, match=r"backward: .*no_grad"):
        ag.backward(score)


def test_no_grad_decorates_a_function(graph):
    @ag.no_grad()
    def score(g):
        """A docstring."""
        return ag.forward_score(g)

    assert not score(graph).calc_grad
    assert score.__name__ == "score"
    assert score.__doc__ == "A docstring."
    assert ag.forward_score(graph).calc_grad


def test_no_grad_nests_and_survives_an_exception(graph):
    with ag.no_grad():
        with ag.no_grad():
            pass
        assert not ag.is_grad_enabled()
    with pytest.raises(KeyError), ag.no_grad():
        raise KeyError
    assert ag.is_grad_enabled()


def test_no_grad_is_thread_local(graph):
    seen = []
    with ag.no_grad():
        thread = threading.Thread(target=lambda: seen.append(ag.forward_score(graph).calc_grad))
        thread.start()
        thread.join()
    assert seen == [True]


def test_no_grad_holds_in_the_threads_of_a_batch(graph):
    with ag.no_grad():
        assert not any(score.calc_grad for score in ag.forward_score([graph] * 16))


# grad


def test_grad_stores_nothing_and_keeps_the_tape(graph):
    score = ag.forward_score(graph)
    first, second = ag.grad(score, graph), ag.grad(score, graph)
    assert values(first) == values(second)
    assert not graph.is_grad_available()


def test_grad_returns_a_graph_or_a_list_like_its_inputs(graph, other):
    score = ag.forward_score(ag.compose(graph, other))
    assert isinstance(ag.grad(score, graph), ag.Graph)
    answer = ag.grad(score, [graph, other])
    assert isinstance(answer, list)
    assert len(answer) == 2
    assert values(ag.grad(score, graph)) == values(answer[0])
    assert values(*ag.grad([score], [other, graph])) == values(answer[1], answer[0])


def test_grad_of_an_intermediate_graph(graph):
    middle = ag.scale(graph, 2.0)
    score = ag.forward_score(middle)
    to_middle, to_graph = ag.grad(score, [middle, graph])
    assert weights(to_graph) == pytest.approx(2 * weights(to_middle), abs=1e-15)


def test_grad_of_an_unrelated_input_is_zero(graph, other):
    assert values(ag.grad(ag.forward_score(graph), other)) == [[0.0] * 3]


def test_grad_needs_inputs_with_calc_grad(graph):
    score = ag.forward_score(graph)
    with pytest.raises(RuntimeError, match=r"grad: .*calc_grad"):
        ag.grad(score, graph.detach())


def test_grad_of_an_output_without_tape_raises(graph, other):
    with pytest.raises(RuntimeError, match=r"grad: .*no_grad|grad: .*calc_grad"):
        ag.grad(ag.forward_score(graph.detach()), other)


def test_grad_is_linear_in_the_seed(graph):
    score = ag.forward_score(graph)
    once = ag.grad(score, graph)
    thrice = ag.grad(score, graph, ag.scalar_graph(3.0))
    assert weights(thrice) == pytest.approx(3 * weights(once), abs=1e-15)


# Weights that change


def test_replaced_weights_do_not_change_a_recorded_op(graph):
    expected = values(ag.grad(ag.forward_score(graph), graph))
    for change in (
        lambda: graph.set_weights([5.0, -5.0, 5.0]),
        lambda: graph.set_weight(1, 7.0),
    ):
        fresh = with_weights(graph, [0.5, 0.25, 1.0])
        graph.set_weights(fresh.weights_to_list())
        score = ag.forward_score(graph)
        product = ag.hvp(score, graph, [1.0, 2.0, 3.0])
        change()
        assert values(ag.grad(score, graph)) == expected
        assert values(ag.hvp(score, graph, [1.0, 2.0, 3.0])) == values(product)
        ag.backward(score)
        assert values(graph.grad()) == expected
        graph.zero_grad()


def test_edits_of_a_used_graph_do_not_change_earlier_results(graph):
    copy_ = ag.clone(graph)
    product = ag.compose(graph, graph)
    score = ag.forward_score(graph)
    view = graph.weights_view()
    before = [snapshot(g) for g in (copy_, product, score)], view.tolist()
    graph.add_node(True, True)
    graph.add_arc(0, 3, 5, 6, 9.0)
    graph.make_accept(0)
    graph.set_weights([4.0, 3.0, 2.0, 1.0])
    assert ([snapshot(g) for g in (copy_, product, score)], view.tolist()) == before
    assert graph.num_arcs() == 4


@pytest.mark.parametrize("use", [ag.forward_score, ag.connect, ag.remove, ag.negate])
def test_gradients_cover_arcs_added_after_a_use(use):
    graph = ag.Graph(dtype="float64")
    graph.add_node(True)
    graph.add_node(False, True)
    for count in (1, 2, 3000):
        while graph.num_arcs() < count:
            graph.add_arc(0, 1, 0)
        use(graph)  # the result is discarded
        expected = np.full(count, 1.0 / count)
        np.testing.assert_allclose(weights(ag.grad(ag.forward_score(graph), graph)), expected)
        ag.backward(ag.forward_score(graph))
        np.testing.assert_allclose(weights(graph.grad()), expected)


def test_backward_after_an_edit_is_an_error(graph):
    score = ag.forward_score(graph)
    graph.add_arc(0, 2, 5)
    with pytest.raises(RuntimeError, match=r"backward: .*changed"):
        ag.backward(score)


def test_backward_after_a_new_accept_node_is_an_error(graph):
    score = ag.forward_score(graph)
    graph.make_accept(0)
    with pytest.raises(RuntimeError, match=r"backward: .*changed"):
        ag.backward(score)


def test_a_result_whose_weights_are_set_becomes_a_leaf(graph):
    middle = ag.clone(graph)
    middle.set_weights([1.0, 2.0, 3.0])
    ag.backward(ag.forward_score(middle))
    assert middle.is_grad_available()
    assert not graph.is_grad_available()


def test_mixed_dtypes_promote_and_gradients_have_the_dtype_of_their_input(graph):
    narrow = build(3, {0}, {2}, [(0, 1, 0), (1, 2, 1), (0, 2, 2)], dtype="float32")
    for combine in (ag.add, ag.compose, lambda a, b: ag.union([a, b])):
        result = combine(graph, narrow)
        assert result.dtype == np.float64
        wide, cast = ag.grad(ag.forward_score(result), [graph, narrow])
        assert (wide.dtype, cast.dtype) == (np.float64, np.float32)
    assert ag.add(narrow, narrow).dtype == np.float32
