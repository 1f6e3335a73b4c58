"""relabel, replace, map_weights, delete_arcs, delete_nodes: edge cases and errors."""

import math

import numpy as np
import pytest
from spec import language
from tools import build, snapshot, weights

import arcgrad as ag


def chain(*labels):
    return ag.chain_graph(list(labels), calc_grad=True)


def test_one_mapping_for_both_sides_keeps_an_acceptor():
    new = {1: 4, ag.epsilon: 9, 77: 78}
    graph = ag.relabel(chain(1, -1, 2), new, new)
    assert graph.labels_to_list() == graph.labels_to_list(ilabel=False) == [4, 9, 2]


def test_a_list_is_relabelled_alike():
    first, second = ag.relabel([chain(0), chain(1, 0)], olabels=np.array([8, 9]))
    assert first.labels_to_list(ilabel=False) == [8]
    assert second.labels_to_list(ilabel=False) == [9, 8]
    assert second.labels_to_list() == [1, 0]


def test_labels_of_an_array_leave_epsilon_alone():
    assert ag.relabel(chain(-1, 0), [5]).labels_to_list() == [-1, 5]


def test_relabel_without_labels_copies_the_graph():
    graph = build(3, {0}, {2}, [(0, 1, 1, 2, 0.5), (1, 2, -1, 0, 1.0)])
    assert snapshot(ag.relabel(graph)) == snapshot(graph)


@pytest.mark.parametrize(
    ("new", "words"),
    [
        ([5, 6], "arc 0 has label 2 and the array 2 entries"),
        ({2: -2}, "2 becomes -2"),
        ({-5: 2}, "-5 becomes 2"),
        ({2: 2**31}, "32 bits"),
        ([[1, 2]], "one dimension"),
        ({"a": 1}, "ilabels"),
        ({1: 0.5}, "ilabels"),
        (7, "ilabels"),
    ],
)
def test_new_labels_must_exist(new, words):
    with pytest.raises((ValueError, TypeError), match=rf"^relabel: .*{words}"):
        ag.relabel(chain(2), new)


def test_nodes_and_arcs_by_id_and_by_mask():
    graph = ag.chain_graph([0, 1, 2])
    for arcs in ([1, 1], np.array([False, True, False]), np.array([1], np.int64)):
        assert ag.delete_arcs(graph, arcs).labels_to_list() == [0, 2]
    for nodes in ([3], np.array([False] * 3 + [True])):
        kept = ag.delete_nodes(graph, nodes)
        assert (kept.labels_to_list(), kept.num_nodes(), len(kept.accept())) == ([0, 1], 3, 0)
    assert snapshot(ag.delete_arcs(graph, [])) == snapshot(ag.delete_nodes(graph, []))
    assert ag.delete_nodes(graph, range(4)).num_nodes() == 0
    assert [g.num_arcs() for g in ag.delete_arcs([graph, graph], [[0], [0, 1]])] == [2, 1]


@pytest.mark.parametrize(("op", "what"), [(ag.delete_arcs, "arcs"), (ag.delete_nodes, "nodes")])
def test_what_is_deleted_must_exist(op, what):
    graph = ag.chain_graph([0, 1])
    for bad in ([3], [-1], [True] * 5, [0.5], [2**40], "a", None, [[0]]):
        with pytest.raises((ValueError, TypeError), match=rf"^{op.__name__}: .*{what}.*, but"):
            op(graph, bad)
    with pytest.raises(ValueError, match=rf"{what} for each graph, 2 .* 1"):
        op([graph, graph], [[0]])


def test_a_function_without_derivative_needs_a_graph_without_gradient():
    graph = chain(1)
    with pytest.raises(ValueError, match=r"map_weights: .*derivative.*, but it has none"):
        ag.map_weights(graph, np.exp)
    assert ag.map_weights(graph.detach(), np.exp).weights_to_list() == [1.0]
    with ag.no_grad():
        assert ag.map_weights(graph, np.exp).weights_to_list() == [1.0]
    assert [g.item() for g in ag.map_weights([graph] * 2, np.exp, np.exp)] == [1.0, 1.0]


def test_a_second_order_needs_the_second_derivative():
    graph = ag.chain_graph([1], weights=[2.0], calc_grad=True)
    square = ag.map_weights(graph, np.square, lambda w: 2 * w)
    assert ag.grad(square, graph).item() == 4.0
    with pytest.raises(RuntimeError, match=r"map_weights: .*second order.*, but it was not given"):
        ag.grad(square, graph, create_graph=True)


def test_infinite_derivatives_of_arcs_without_a_path_do_not_matter():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, -math.inf), (0, 1, 1, 1, 2.0)])
    with np.errstate(invalid="ignore"):
        mapped = ag.map_weights(graph, lambda w: -np.square(w), lambda w: -2 * w)
    assert weights(ag.grad(ag.forward_score(mapped), graph)).tolist() == [0.0, -4.0]


def test_functions_must_return_as_many_weights():
    for functions in ((lambda w: w[:0], np.exp), (np.exp, lambda w: [1.0, 2.0])):
        with pytest.raises(
            ValueError, match=r"^map_weights: .* one entry per weight, 1 in all, but"
        ):
            ag.map_weights(chain(1), *functions)
    with pytest.raises(TypeError, match=r"^map_weights: "):
        ag.map_weights(chain(1), 3)

    def fail(_):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        ag.map_weights(chain(1), fail)


def test_a_grammar_of_named_parts():
    digit = ag.union([chain(1), chain(2)])
    number = ag.plus(chain(100))
    whole = ag.replace(chain(200, 0, 200), {100: digit, 200: number})
    found = language(ag.compose(ag.remove(whole), ag.chain_graph([1, 2, 0, 2])))
    assert found == {((1, 2, 0, 2),) * 2: 0.0}


def test_a_list_of_roots_has_the_same_parts():
    first, second = ag.replace([chain(5), chain(5, 5)], {5: chain(1, 2)})
    assert ag.remove(first).num_arcs() == 2
    assert ag.remove(second).num_arcs() == 4


def test_parts_without_a_path_take_the_paths_through_them():
    root = ag.union([chain(5), chain(1)])
    assert list(language(ag.replace(root, {5: ag.Graph()}))) == [((1,), (1,))]


def test_parts_that_are_not_used_get_a_gradient_of_zero():
    root, part = chain(1), chain(2)
    total = ag.forward_score(ag.replace(root, {5: part}))
    assert weights(ag.grad(total, part)).tolist() == [0.0]


def test_a_graph_must_not_contain_itself():
    for parts in ({5: chain(1, 5)}, {5: chain(6), 6: chain(7), 7: chain(5)}):
        with pytest.raises(ValueError, match=r"replace: .*not contain itself, but the graph of"):
            ag.replace(chain(5), parts)
    # It may if it is never used.
    assert ag.replace(chain(1), {5: chain(5)}).num_arcs() == 1


def test_the_result_is_counted_before_it_is_built():
    doubling = {k: chain(k + 1, k + 1) for k in range(1, 60)}
    with pytest.raises(ValueError, match=r"replace: .*max_arcs.*, but it has more than"):
        ag.replace(chain(1), doubling)
    with pytest.raises(ValueError, match=r"max_arcs = 5 nodes and arcs, but it has 8 nodes and 7"):
        ag.replace(chain(9), {9: chain(1, 1, 1, 1, 1)}, max_arcs=5)


def test_deep_parts_do_not_exhaust_the_stack():
    deep = {k: chain(k + 1) for k in range(1, 20_000)}
    assert ag.viterbi_path(ag.replace(chain(1), deep)).num_arcs() == 2 * 19_999 + 1


def test_calls_have_the_label_on_both_sides():
    with pytest.raises(ValueError, match=r"replace: .* on both sides, but arc 0 has labels 5:1"):
        ag.replace(ag.chain_graph([5], [1]), {5: chain(1)})
    for bad in ({-1: chain(1)}, {2**31: chain(1)}, {0: 1}, {"a": chain(1)}, [chain(1)]):
        with pytest.raises((ValueError, TypeError), match=r"^replace: .*, but"):
            ag.replace(chain(1), bad)


def test_symbols_stay_on_the_side_without_new_labels():
    graph = ag.chain_graph(["a", "b"], isymbols=ag.SymbolTable(["a", "b"]))
    kept = ag.relabel(graph, olabels={0: 5})
    assert kept.isymbols is not None
    assert kept.osymbols is None
    assert ag.delete_arcs(graph, [0]).isymbols is not None


def test_node_weights_of_parts_are_on_the_arcs_around_them():
    part = chain(1)
    part.set_start_weight(0, 0.5)
    part.set_accept_weight(1, 0.25)
    assert ag.replace(chain(5), {5: part}).weights_to_list() == [0.5, 0.0, 0.25]
    whole = ag.replace(part, {5: part})
    assert whole.start_weights().tolist() == [0.5]
    assert whole.accept_weights().tolist() == [0.25]
    mapped = ag.map_weights(part, np.exp, np.exp)
    assert mapped.accept_weights().tolist() == pytest.approx([math.exp(0.25)])


def test_functions_see_node_weights_after_those_of_arcs():
    seen = []
    part = chain(1)
    part.set_accept_weight(1, 0.25)
    ag.map_weights(part, lambda w: seen.append(w.tolist()) or w, np.ones_like)
    assert seen == [[0.0, 0.0, 0.25]]
