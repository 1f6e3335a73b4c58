"""Functions of `arcgrad.gtn`: signatures, lists, gradients and errors as in gtn."""

import math

import numpy as np
import pytest
from gtn_programs import BINARY, UNARY, chain, fork
from tools import weights

import arcgrad as ag
import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon

# Gradients


def test_intermediate_graphs_keep_their_gradient():
    graph = fork(0.0, 0.0)
    twice = gtn.add(graph, graph)
    score = gtn.forward_score(twice)
    loss = gtn.negate(score)
    gtn.backward(loss)
    assert loss.grad().item() == 1.0
    assert score.grad().item() == -1.0
    assert twice.grad().weights_to_list() == [-0.5, -0.5]
    assert graph.grad().weights_to_list() == [-1.0, -1.0]
    assert isinstance(twice.grad(), gtn.Graph)


def test_a_graph_that_is_not_used_has_no_gradient():
    graph = fork(1.0)
    cloned = gtn.clone(graph)
    gtn.backward(gtn.forward_score(graph))
    assert not cloned.is_grad_available()
    with pytest.raises(RuntimeError):
        cloned.grad()


def test_a_gradient_that_is_off_is_a_runtime_error():
    graph, fixed = fork(1.0), fork(2.0, calc_grad=False)
    gtn.backward(gtn.add(graph, fixed))
    assert graph.grad().item() == 1.0
    with pytest.raises(RuntimeError):
        fixed.grad()


def test_gradients_add_up_until_they_are_cleared():
    graph = fork(0.0, 0.0)
    gtn.backward(gtn.forward_score(graph))
    gtn.backward(gtn.forward_score(graph))
    assert graph.grad().weights_to_list() == [1.0, 1.0]
    graph.zero_grad()
    assert not graph.is_grad_available()


def test_a_second_backward_is_a_value_error():
    score = gtn.forward_score(fork(1.0))
    gtn.backward(score)
    with pytest.raises(ValueError, match="backward"):
        gtn.backward(score)
    with pytest.raises(ValueError, match="backward"):
        gtn.backward([score])


@pytest.mark.parametrize(
    "keep", [lambda s: gtn.backward(s, True), lambda s: gtn.backward([s], [1])]
)
def test_a_retained_tape_adds_the_same_gradient_again(keep):
    graph = fork(0.0, 0.0)
    score = gtn.negate(gtn.forward_score(gtn.clone(graph)))
    for times in (1, 2, 3):
        keep(score)
        assert graph.grad().weights_to_list() == [-0.5 * times] * 2


def test_backward_of_a_graph_without_gradient_does_nothing():
    fixed, graph = fork(1.0, calc_grad=False), fork(1.0)
    assert gtn.backward(gtn.forward_score(fixed)) is None
    gtn.backward(gtn.forward_score([fixed, graph]))
    assert graph.grad().item() == 1.0
    assert not fixed.is_grad_available()


def test_a_seed_needs_only_the_right_number_of_arcs():
    graph = fork(1.0, 2.0)
    gtn.backward(gtn.clone(graph), chain(5, 6))
    assert graph.grad().weights_to_list() == [0.0, 0.0]
    seed = chain(5, 6)
    seed.set_weights([3.0, 4.0])
    gtn.backward(gtn.clone(graph), seed, False)
    assert graph.grad().weights_to_list() == [3.0, 4.0]
    with pytest.raises(ValueError, match="seed"):
        gtn.backward(gtn.clone(graph), fork(1.0))


def test_lists_of_seeds_and_flags_have_length_one_or_the_same():
    graphs = [fork(float(i)) for i in range(3)]
    scores = gtn.forward_score(graphs)
    gtn.backward(scores, [gtn.scalar_graph(5.0)], [True])
    gtn.backward(scores, [gtn.scalar_graph(float(i)) for i in range(3)], [True, False, True])
    assert [graph.grad().item() for graph in graphs] == [5.0, 6.0, 7.0]
    gtn.backward([scores[0], scores[2]])
    with pytest.raises(ValueError, match="backward"):
        gtn.backward(scores[1])
    with pytest.raises(RuntimeError, match=r"backward: .* lengths are 3 and 2"):
        gtn.backward(gtn.forward_score(graphs), [False, True])
    gtn.backward([])


def test_setting_calc_grad_off_forgets_the_tape():
    graph = fork(1.0)
    score = gtn.forward_score(graph)
    score.calc_grad = False
    gtn.backward(score)
    assert not graph.is_grad_available()


# Lists


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_take_lists(name):
    call = getattr(gtn, name)
    graphs = [fork(1.0), fork(2.0), fork(3.0)]
    results = call(graphs)
    assert isinstance(results, list)
    for result, graph in zip(results, graphs, strict=True):
        assert gtn.equal(result, call(graph))
    assert len(call(tuple(graphs))) == 3
    assert call([]) == []


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_take_lists(name):
    call = getattr(gtn, name)
    first, second = [fork(1.0), fork(2.0), fork(3.0)], [fork(4.0), fork(5.0), fork(6.0)]
    for left, right in ((first, second), (first[:1], second), (first, second[:1])):
        results = call(left, right)
        expected = [call(left[i % len(left)], right[i % len(right)]) for i in range(3)]
        assert len(results) == 3
        assert all(map(gtn.equal, results, expected))
    assert call([], []) == []


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("left", "right"), [(2, 3), (3, 2), (0, 1), (0, 3)])
def test_lists_of_other_lengths_are_a_runtime_error(name, left, right):
    with pytest.raises(RuntimeError, match=rf"^{name}: .* lengths are {left} and {right}"):
        getattr(gtn, name)([fork(1.0)] * left, [fork(1.0)] * right)


@pytest.mark.parametrize("name", [*UNARY, "union", "remove"])
def test_other_types_are_a_type_error(name):
    with pytest.raises(TypeError):
        getattr(gtn, name)(3)
    with pytest.raises(TypeError):
        getattr(gtn, name)()


# Single functions


def test_concat_has_four_signatures():
    a, b, c = chain(0), chain(1), chain(2)
    assert gtn.rand_equivalent(gtn.concat(a, b), chain(0, 1))
    assert gtn.rand_equivalent(gtn.concat([a, b, c]), chain(0, 1, 2))
    pairs = gtn.concat([a, b], [c])
    assert gtn.rand_equivalent(pairs[0], chain(0, 2))
    assert gtn.rand_equivalent(pairs[1], chain(1, 2))
    lists = gtn.concat([[a, b, c], [c]])
    assert gtn.rand_equivalent(lists[0], chain(0, 1, 2))
    assert gtn.rand_equivalent(lists[1], c)
    assert gtn.equal(gtn.concat([]), chain())


def test_union_has_two_signatures():
    graphs = [chain(0), chain(1)]
    assert gtn.union(graphs).num_arcs() == 2
    assert [g.num_arcs() for g in gtn.union([graphs, graphs * 2])] == [2, 4]
    assert gtn.equal(gtn.union([]), gtn.Graph())


def test_remove_has_three_signatures():
    graph = gtn.Graph()
    for node in range(4):
        graph.add_node(node == 0, node == 3)
    graph.add_arc(0, 1, epsilon)
    graph.add_arc(1, 2, 4)
    graph.add_arc(2, 3, 4, 5)
    assert gtn.remove(graph).labels_to_list() == [4, 4]
    assert gtn.remove(graph, epsilon).labels_to_list() == [4, 4]
    assert gtn.remove(graph, 4).labels_to_list() == [epsilon, 4]
    assert gtn.remove(graph, 4, 5).labels_to_list() == [epsilon, 4]
    results = gtn.remove([graph, graph], [epsilon, 4])
    assert [r.labels_to_list(False) for r in results] == [[4, 5], [epsilon, 5]]
    assert [r.num_arcs() for r in gtn.remove([graph, graph])] == [2, 2]
    assert len(gtn.remove([graph], [1, 2, 3])) == 3
    assert gtn.remove([]) == []
    with pytest.raises(RuntimeError, match=r"remove: .* lengths are 2 and 3"):
        gtn.remove([graph, graph], [1, 2, 3])


def test_remove_keeps_the_strings_and_drops_the_weights():
    graph = gtn.Graph()
    for node in range(3):
        graph.add_node(node == 0, node > 0)
    graph.add_arc(0, 1, 7, 7, 1.5)
    graph.add_arc(1, 2, epsilon, epsilon, 0.5)
    removed = gtn.remove(graph)
    assert removed.weights_to_list() == [0.0]
    # Two alignments spell the string, and arcgrad's remove sums them.
    assert gtn.forward_score(removed).item() == 0.0
    assert ag.forward_score(ag.remove(graph)).item() == pytest.approx(
        1.5 + math.log1p(math.exp(0.5))
    )


def test_a_gradient_through_remove_is_a_runtime_error():
    removed = gtn.remove(fork(1.0, 2.0))
    assert removed.calc_grad
    assert not gtn.remove(fork(1.0, 2.0, calc_grad=False)).calc_grad
    with pytest.raises(RuntimeError, match=r"remove.*; use arcgrad\.remove, which keeps them"):
        gtn.backward(gtn.forward_score(removed))


def test_intersect_composes_transducers():
    first, second = gtn.Graph(), gtn.Graph()
    for graph, labels in ((first, (0, 1)), (second, (1, 2))):
        graph.add_node(True)
        graph.add_node(False, True)
        graph.add_arc(0, 1, *labels)
    assert gtn.equal(gtn.intersect(first, second), gtn.compose(first, second))
    assert gtn.intersect(first, second).labels_to_list(False) == [2]


def test_graphs_with_one_arc_are_numbers_with_any_labels():
    first, second = chain(3), gtn.scalar_graph(2.0)
    first.set_weights([5.0])
    assert gtn.add(first, second).item() == 7.0
    assert gtn.subtract([first, second], [second])[0].item() == 3.0
    difference = gtn.subtract(gtn.forward_score(first), first)
    gtn.backward(gtn.subtract(gtn.add(first, second), second))
    assert difference.item() == 0.0
    assert first.grad().item() == 1.0
    assert second.grad().item() == 0.0


def test_whole_graphs_are_added_and_negated():
    graph = fork(1.0, 2.0)
    assert gtn.negate(graph).weights_to_list() == [-1.0, -2.0]
    assert gtn.subtract(gtn.add(graph, graph), graph).weights_to_list() == [1.0, 2.0]


def test_adding_graphs_of_other_structure_is_a_runtime_error():
    for other in (chain(0, 1), fork(1.0, 2.0, 3.0), fork(1.0)):
        with pytest.raises(RuntimeError, match="add: both graphs must have the same structure"):
            gtn.add(fork(1.0, 2.0), other)


def test_equal_compares_start_and_accept_nodes():
    first, second = gtn.Graph(), gtn.Graph()
    for graph, start in ((first, True), (second, False)):
        graph.add_node(start)
        graph.add_node(not start)
    assert not gtn.equal(first, second)
    assert gtn.isomorphic(first, second)


def test_sample_draws_by_weight():
    graph = fork(0.0, -math.inf, 5.0)
    drawn = [gtn.sample(graph).labels_to_list() for _ in range(200)]
    assert [1] not in drawn
    assert drawn.count([2]) > drawn.count([0])


def test_sample_takes_graphs_whose_scores_have_no_finite_sum():
    graph = gtn.Graph()
    for node in range(3):
        graph.add_node(node == 0, node == 2)
    for src, dst, label, weight in ((0, 0, 0, 0.0), (0, 1, 1, 0.5), (1, 0, 2, 2.0), (1, 2, 3, 0.0)):
        graph.add_arc(src, dst, label, label, weight)
    lengths = set()
    for _ in range(300):
        graph.zero_grad()
        path = gtn.sample(graph)
        labels = path.labels_to_list()
        assert path.weights_to_numpy() == pytest.approx([[0.0, 0.5, 2.0, 0.0][k] for k in labels])
        gtn.backward(path)
        assert graph.grad().weights_to_list() == [labels.count(k) for k in range(4)]
        lengths.add(len(labels))
    assert len(lengths) > 1


def test_sample_gives_the_empty_graph_where_gtn_does():
    dead = chain(0, 1)
    assert gtn.sample(dead, 1).num_nodes() == 0
    assert gtn.sample(dead, 2).num_nodes() == 3
    unreachable = gtn.Graph()
    unreachable.add_node(True)
    unreachable.add_node(False, True)
    assert gtn.sample(unreachable).num_nodes() == 0


# Weights that are no numbers


def test_nan_counts_as_impossible():
    graph = fork(math.nan, 1.0, -math.inf, 2.0)
    for call, score in (
        (gtn.forward_score, math.log(math.exp(1) + math.exp(2))),
        (gtn.viterbi_score, 2.0),
    ):
        graph.zero_grad()
        found = call(graph)
        assert found.item() == pytest.approx(score)
        gtn.backward(found)
        gradient = graph.grad().weights_to_list()
        assert gradient[0] == gradient[2] == 0.0
        assert sum(gradient) == pytest.approx(1.0)
    assert gtn.viterbi_path(graph).labels_to_list() == [3]
    assert gtn.forward_score(fork(math.nan)).item() == -math.inf
    scores = gtn.forward_score([fork(0.0), graph, fork(math.nan, math.inf)])
    assert [s.item() for s in scores] == [0.0, pytest.approx(2.3132617), math.inf]


@pytest.mark.parametrize("num_frames", [3, 3000])
def test_nan_where_no_path_goes_changes_nothing(num_frames):
    labels = chain(*[0] * num_frames)
    values = np.zeros((num_frames, 3), np.float32)
    values[:, 0] = 0.5
    clean, masked = gtn.linear_graph(num_frames, 3), gtn.linear_graph(num_frames, 3)
    clean.set_weights(values)
    values[:, 1] = math.nan
    values[1, 2] = math.nan
    masked.set_weights(values)
    for emissions in (clean, masked):
        product = gtn.intersect(labels, emissions)
        assert gtn.viterbi_path(product).labels_to_list() == [0] * num_frames
        assert gtn.viterbi_score(product).item() == num_frames / 2
        score = gtn.forward_score(product)
        assert score.item() == pytest.approx(num_frames / 2)
        gtn.backward(score)
    assert masked.grad().weights_to_list() == clean.grad().weights_to_list()
    values[~np.isfinite(values)] = -math.inf
    clean.set_weights(values)
    losses = [gtn.criterion.ctc_loss(emissions, [0], 2).item() for emissions in (clean, masked)]
    assert losses[0] == losses[1]


def test_nan_in_a_product_that_keeps_its_gradient():
    labels, emissions = chain(*[0] * 3000), gtn.linear_graph(3000, 2)
    emissions.set_weights(np.tile(np.float32([0, math.nan]), 3000))
    product = gtn.intersect(labels, emissions)
    product.retain_grad()
    gtn.backward(gtn.forward_score(product))
    assert product.grad().weights_to_list() == [1.0] * 3000
    assert emissions.grad().weights_to_list() == [1.0, 0.0] * 3000


def test_a_best_path_of_weight_infinity_has_score_infinity_and_no_gradient():
    graph = fork(1.0, math.inf, math.inf)
    score = gtn.forward_score(graph)
    assert score.item() == math.inf
    gtn.backward(score)
    assert np.isnan(graph.grad().weights_to_list()).all()
    assert gtn.viterbi_score(graph).item() == math.inf
    blocked = gtn.Graph()
    for node in range(3):
        blocked.add_node(node == 0, node == 2)
    for src, dst, weight in ((0, 1, math.inf), (1, 2, -math.inf), (0, 2, 2.0)):
        blocked.add_arc(src, dst, 0, 0, weight)
    assert gtn.forward_score(blocked).item() == 2.0


def test_impossible_graphs_have_zero_gradients():
    graph = fork(-math.inf, -math.inf)
    score = gtn.forward_score(graph)
    gtn.backward(score)
    assert score.item() == -math.inf
    assert graph.grad().weights_to_list() == [0.0, 0.0]


@pytest.mark.parametrize("name", ["forward_score", "viterbi_score", "viterbi_path"])
def test_a_node_without_start_and_arcs_that_leads_to_the_end_is_an_error(name):
    graph = gtn.Graph()
    for node in range(4):
        graph.add_node(node == 0, node == 3)
    for src in (0, 1):
        graph.add_arc(src, 3, src)
    with pytest.raises(
        ValueError, match=rf"^{name}: .* but node 1 has neither; use arcgrad.{name}"
    ):
        getattr(gtn, name)(graph)
    with pytest.raises(ValueError, match="node 1 has neither"):
        getattr(gtn, name)([graph, graph])
    assert getattr(ag, name)(graph).num_arcs() == 1
    # Node 2 leads nowhere, so it does not matter.
    graph = chain(1, 2)
    graph.add_node()
    assert getattr(gtn, name)(graph).num_arcs() > 0


def test_sample_names_a_bad_weight():
    with pytest.raises(ValueError, match=r"sample: .* nan"):
        gtn.sample(fork(math.nan))


def test_parallel_for_returns_nothing_and_calls_all():
    seen = [0] * 8

    def process(i):
        seen[i] = gtn.forward_score(fork(float(i))).item()

    assert gtn.parallel_for(process, list(range(8))) is None
    assert seen == list(range(8))


def test_parallel_for_passes_an_exception_on():
    def process(i):
        if i == 3:
            raise KeyError(i)

    with pytest.raises(KeyError):
        gtn.parallel_for(process, range(5))


def test_an_infeasible_ctc_target_costs_infinity():
    emissions = gtn.linear_graph(1, 3)
    loss = gtn.criterion.ctc_loss(emissions, [1, 2], 0)
    gtn.backward(loss)
    assert loss.item() == math.inf
    assert not np.any(weights(emissions.grad()))
