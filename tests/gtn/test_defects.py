"""Defects and traps known from gtn, each with a test that shows arcgrad does not have it."""

import copy
import math
import pickle
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from gradients import assert_second_order, like
from spec import language, paths
from tools import acceptor, build, run_python, snapshot, weights, with_weights

import arcgrad as ag


@pytest.fixture
def lattice():
    """Three paths: 0 1, 0 2 and 3."""
    arcs = [(0, 1, 0, 0, 0.5), (1, 2, 1, 1, 0.25), (1, 2, 2, 2, -0.5), (0, 2, 3, 3, 1.0)]
    return build(3, {0}, {2}, arcs)


# Missing features of gtn


def test_second_order_exists(lattice):
    assert_second_order(ag.forward_score, lattice)
    (gradient,) = ag.grad(ag.forward_score(lattice), [lattice], create_graph=True)
    assert gradient.calc_grad


def test_negate_add_and_subtract_take_whole_graphs(lattice):
    assert ag.negate(lattice).weights_to_list() == [-0.5, -0.25, 0.5, -1.0]
    assert ag.add(lattice, lattice).weights_to_list() == [1.0, 0.5, -1.0, 2.0]
    assert ag.subtract(lattice, ag.negate(lattice)).weights_to_list() == [1.0, 0.5, -1.0, 2.0]


def test_the_viterbi_path_sends_its_seed_to_the_right_arcs():
    chain = ag.chain_graph([0, 1], dtype="float64", calc_grad=True)
    path = ag.viterbi_path(chain)
    ag.backward(path, like(path, [10.0, 20.0]))
    assert weights(chain.grad()).tolist() == [10.0, 20.0]


def test_remove_keeps_weights_and_has_a_gradient():
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 0.5), (1, 2, ag.epsilon, ag.epsilon, 0.25)])
    removed = ag.remove(graph)
    assert language(removed) == pytest.approx({((0,), (0,)): 0.75}, abs=1e-12)
    ag.backward(ag.forward_score(removed))
    assert weights(graph.grad()) == pytest.approx([1.0, 1.0], abs=1e-12)


# Every arc weighs -1. A loop of weight c around a path of score s gives s - log(1 - exp(c)).
@pytest.mark.parametrize(
    ("accept", "arcs", "exact", "rounded"),
    [
        pytest.param(
            3,
            [(0, 1), (1, 2), (2, 1), (2, 3)],
            -3 - math.log(1 - math.exp(-2)),
            -2.8546,
            id="inner cycle of two arcs",
        ),
        pytest.param(
            1,
            [(0, 1), (1, 1)],
            -1 - math.log(1 - math.exp(-1)),
            -0.5413,
            id="self-loop on the accept node",
        ),
        pytest.param(
            1,
            [(0, 1), (1, 0)],
            -1 - math.log(1 - math.exp(-2)),
            -0.8546,
            id="cycle through the start node",
        ),
    ],
)
def test_a_cyclic_graph_has_its_exact_score(accept, arcs, exact, rounded):
    graph = build(accept + 1, {0}, {accept}, [(s, d, 0, 0, -1.0) for s, d in arcs])
    assert ag.forward_score(graph).item() == pytest.approx(exact, abs=1e-12)
    assert round(exact, 4) == rounded


@pytest.mark.parametrize(
    ("length", "num_labels"), [(250, 80), (1000, 80), (1500, 1000), (3000, 80), (10_000, 32)]
)
def test_float32_posteriors_sum_to_one_in_every_frame(length, num_labels):
    values = 3 * np.random.default_rng(length).normal(size=(length, num_labels))
    values = values.astype(np.float32)
    emissions = ag.linear_graph(length, num_labels, values)
    score = ag.forward_score(emissions)
    ag.backward(score)
    posteriors = weights(emissions.grad()).reshape(length, num_labels)
    assert np.abs(posteriors.sum(1) - 1.0).max() < 1e-6
    exact = np.logaddexp.reduce(values.astype(np.float64), axis=1)
    # Sums of float32 emissions are float32 within a frame, and float64 over frames.
    assert score.item() == pytest.approx(exact.sum(), rel=1e-9)
    assert np.abs(posteriors - np.exp(values - exact[:, None])).max() < 1e-6


def test_repeated_backward_adds_the_same_gradient():
    graph = acceptor((0,), (1,))
    loss = ag.negate(ag.forward_score(ag.clone(graph)))
    for times in (1, 2, 3):
        ag.backward(loss, retain_graph=True)
        assert weights(graph.grad()).tolist() == [-0.5 * times] * 2


def test_threads_may_share_a_graph_that_was_never_used():
    rng = np.random.default_rng(0)
    src = rng.integers(0, 499, 4000)
    dst = src + rng.integers(1, 500 - src)
    label = rng.integers(0, 20, 4000)

    def fresh():
        return ag.Graph.from_arrays(
            src, dst, label, weight=rng.normal(size=4000) * 0, start=[0], accept=[499]
        )

    expected = ag.forward_score(fresh()).item()
    for _ in range(6):
        graph, barrier = fresh(), threading.Barrier(4)

        def score(_, graph=graph, barrier=barrier):
            barrier.wait()
            return ag.forward_score(ag.intersect(graph, graph)).item(), ag.forward_score(
                graph
            ).item()

        with ThreadPoolExecutor(4) as pool:
            results = set(pool.map(score, range(4)))
        assert len(results) == 1
        assert results.pop()[1] == expected


def test_nested_parallel_calls_end():
    code = """
import arcgrad as ag
ag.set_num_threads(2)
graphs = [ag.linear_graph(5, 3) for _ in range(8)]
def inner(graph):
    return sum(s.item() for s in ag.forward_score([graph] * 8))
def outer(_):
    return sum(ag.parallel_for(inner, graphs))
print(round(sum(ag.parallel_for(outer, range(8)))))
"""
    expected = round(8 * 8 * 8 * 5 * math.log(3))
    assert int(run_python(code)) == expected


@pytest.mark.serial
def test_use_after_fork_works():
    code = """
import multiprocessing, warnings
import arcgrad as ag
warnings.simplefilter("ignore")
ag.set_num_threads(2)
graphs = [ag.linear_graph(50, 20) for _ in range(64)]
def total(_):
    scores = ag.forward_score(graphs)
    ag.backward(scores)
    return sum(s.item() for s in scores)
before = total(0)
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map_async(total, range(4)).get(timeout=500) == [before] * 4
assert total(0) == before
print("done")
"""
    assert run_python(code).strip() == "done"


def test_projections_of_sorted_graphs_compose_correctly():
    # Sorted by input label; the projected labels are in the opposite order.
    graph = build(2, {0}, {1}, [(0, 1, 0, 3), (0, 1, 1, 2), (0, 1, 2, 1)])
    graph.arc_sort()
    other = acceptor((1,), (3,))
    other.arc_sort()
    assert len(paths(ag.compose(ag.project_output(graph), other))) == 2
    assert len(paths(ag.intersect(ag.project_output(graph), other))) == 2
    assert len(paths(ag.compose(other, ag.project_output(graph)))) == 2


def test_sample_follows_the_weights_and_the_seed():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, math.log(9.0)), (0, 1, 1, 1, 0.0)])
    drawn = Counter(ag.sample(graph, seed=s).labels_to_list()[0] for s in range(1000))
    assert drawn[0] == pytest.approx(900, abs=50)
    assert ag.sample(graph, seed=5).labels_to_list() == ag.sample(graph, seed=5).labels_to_list()


# Traps of the Python interface


@pytest.mark.parametrize("arc", [(0, 2, 0), (-1, 0, 0), (2, 0, 0), (0, -1, 0)])
def test_arcs_to_missing_nodes_are_rejected(arc):
    graph = build(2, {0}, {1}, [])
    with pytest.raises(ValueError, match=r"add_arc: .* 2 nodes.*, but it is (2|-1)"):
        graph.add_arc(*arc)
    assert graph.num_arcs() == 0


@pytest.mark.parametrize("label", [-4, -7])
def test_labels_below_epsilon_raise_instead_of_aborting(label):
    graph = build(2, {0}, {1}, [])
    with pytest.raises(ValueError, match=rf"add_arc: .*label.*, but it is {label}"):
        graph.add_arc(0, 1, label)
    with pytest.raises(ValueError, match=rf"add_arc: .*label.*, but it is {label}"):
        graph.add_arc(0, 1, 0, label)


def test_a_float_is_rejected_as_an_output_label():
    graph = build(2, {0}, {1}, [])
    with pytest.raises(TypeError):
        graph.add_arc(0, 1, 1, 2.5)


@pytest.mark.parametrize("count", [0, 3, 5, 8])
def test_set_weights_checks_the_length(count, lattice):
    with pytest.raises(ValueError, match=rf"set_weights: .*4.*, but got {count}"):
        lattice.set_weights([0.0] * count)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_set_weights_honours_strides(dtype, lattice):
    lattice.set_weights(np.arange(8, dtype=dtype)[::2])
    assert lattice.weights_to_list() == [0.0, 2.0, 4.0, 6.0]
    lattice.set_weights(np.arange(4, dtype=dtype)[::-1])
    assert lattice.weights_to_list() == [3.0, 2.0, 1.0, 0.0]
    lattice.set_weights(np.arange(4, dtype=dtype).reshape(2, 2).T)
    assert lattice.weights_to_list() == [0.0, 2.0, 1.0, 3.0]


def test_weights_are_never_an_address(lattice):
    assert not hasattr(lattice, "weights") or not isinstance(lattice.weights(), int)
    with pytest.raises(TypeError, match=r"set_weights: .*array-like, but they are"):
        lattice.set_weights(lattice.weights_view().ctypes.data)


def test_equal_compares_start_and_accept_nodes():
    one = build(2, {0}, {1}, [(0, 1, 0), (1, 0, 0)])
    other = build(2, {1}, {0}, [(0, 1, 0), (1, 0, 0)])
    assert not ag.equal(one, other)
    assert ag.isomorphic(one, other)


def test_isomorphic_compares_unreachable_parts():
    assert not ag.isomorphic(build(2, {0}, {1}, [(0, 1, 0)]), build(3, {0}, {1}, [(0, 1, 0)]))


def test_a_wrong_sorted_flag_changes_no_result():
    unsorted = build(2, {0}, {1}, [(0, 1, 2), (0, 1, 0), (0, 1, 1)])
    expected = language(ag.compose(unsorted, acceptor((0,), (1,), (2,))))
    unsorted.mark_arc_sorted()
    unsorted.mark_arc_sorted(olabel=True)
    assert language(ag.compose(unsorted, acceptor((0,), (1,), (2,)))) == expected
    assert language(ag.compose(acceptor((0,), (1,), (2,)), unsorted)) == expected
    assert len(expected) == 3


def test_intersect_of_a_transducer_is_an_error():
    with pytest.raises(ValueError, match=r"intersect: .*acceptor"):
        ag.intersect(ag.chain_graph([0], [1]), ag.chain_graph([1]))


def test_backward_of_a_graph_without_calc_grad_is_an_error():
    graph = acceptor((0,), calc_grad=False)
    with pytest.raises(RuntimeError, match=r"backward: .*calc_grad"):
        ag.backward(ag.forward_score(graph))


def test_nan_is_an_error(lattice):
    lattice.set_weight(2, math.nan)
    with pytest.raises(ValueError, match=r"forward_score: .*arc 2"):
        ag.forward_score(lattice)


def test_plus_infinity_gives_no_nan_gradient(lattice):
    lattice.set_weight(2, math.inf)
    with pytest.raises(ValueError, match=r"forward_score: .*arc 2"):
        ag.forward_score(lattice)


def test_impossible_arcs_give_zero_gradients(lattice):
    lattice.set_weights([-math.inf] * 4)
    score = ag.forward_score(lattice)
    assert score.item() == -math.inf
    assert weights(ag.grad(score, lattice)).tolist() == [0.0] * 4


def test_replacing_weights_after_the_forward_pass_is_safe(lattice):
    expected = weights(ag.grad(ag.forward_score(lattice), lattice)).tolist()
    score = ag.forward_score(lattice)
    lattice.set_weights([9.0, -9.0, 9.0, -9.0])
    assert weights(ag.grad(score, lattice)).tolist() == expected


def test_adding_an_arc_does_not_change_the_gradient_graph(lattice):
    ag.backward(ag.forward_score(lattice))
    gradient = lattice.grad()
    before = snapshot(gradient)
    lattice.add_arc(0, 2, 7)
    assert snapshot(gradient) == before


def test_graphs_can_be_pickled_and_copied(lattice):
    for twin in (pickle.loads(pickle.dumps(lattice)), copy.copy(lattice), copy.deepcopy(lattice)):
        assert snapshot(twin) == snapshot(lattice)


def test_savetxt_loses_no_digit(tmp_path, lattice):
    exact = with_weights(lattice, [1 / 3, math.pi * 1e10, 1e-300, -math.inf])
    ag.savetxt(tmp_path / "graph.txt", exact)
    assert ag.loadtxt(tmp_path / "graph.txt").weights_to_list() == exact.weights_to_list()


def test_unwritable_paths_are_reported(tmp_path, lattice):
    for write in (ag.savetxt, ag.save):
        with pytest.raises(OSError, match="missing"):
            write(tmp_path / "missing" / "graph", lattice)
    with pytest.raises(OSError, match="missing"):
        ag.write_dot(lattice, tmp_path / "missing" / "graph.dot")


def test_a_truncated_binary_file_is_an_error(tmp_path, lattice):
    path = tmp_path / "graph.bin"
    ag.save(path, lattice)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(ValueError, match="load: "):
        ag.load(path)


def test_text_files_may_have_blank_lines_tabs_and_double_spaces(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text("0\n1\n0\t1  5\n\n0 1 6 7 0.5 \n\n")
    graph = ag.loadtxt(path)
    assert graph.labels_to_list() == [5, 6]
    assert graph.weights_to_list() == [0.0, 0.5]


def test_an_empty_graph_survives_text_and_binary(tmp_path):
    for write, read in ((ag.savetxt, ag.loadtxt), (ag.save, ag.load)):
        for graph in (ag.Graph(), build(2, set(), set(), [(0, 1, 3)], dtype="float32")):
            write(tmp_path / "empty", graph)
            assert ag.equal(read(tmp_path / "empty"), graph)


def test_a_missing_symbol_is_named(tmp_path, lattice):
    with pytest.raises(ValueError, match=r"write_dot: .*input symbols.*, but label 1 is missing"):
        ag.write_dot(lattice, tmp_path / "graph.dot", {0: "zero"})
    assert not (tmp_path / "graph.dot").exists()


def test_list_lengths_that_do_not_match_are_named(lattice):
    with pytest.raises(ValueError, match=r"compose: .*2.*3|compose: .*3.*2"):
        ag.compose([lattice] * 2, [lattice] * 3)
    assert ag.forward_score([]) == []


def test_the_scalar_of_a_score_has_the_labels_of_a_scalar_graph(lattice):
    score = ag.forward_score(lattice)
    assert score.labels_to_list() == ag.scalar_graph(0.0).labels_to_list() == [ag.epsilon]
    assert ag.subtract(score, ag.scalar_graph(1.0)).item() == pytest.approx(score.item() - 1.0)


def test_clone_takes_a_list(lattice):
    assert [snapshot(g) for g in ag.clone([lattice, lattice])] == [snapshot(lattice)] * 2


def test_cpp_functions_that_gtn_does_not_bind_exist(lattice):
    assert (lattice.start().tolist(), lattice.accept().tolist()) == ([0], [2])
    assert lattice.is_start(0)
    assert lattice.is_accept(2)
    assert lattice.out_arcs(1).tolist() == [1, 2]
    assert lattice.in_arcs(2).tolist() == [1, 2, 3]
    assert (lattice.src_node(3), lattice.dst_node(3)) == (0, 2)
    assert (lattice.ilabel(3), lattice.olabel(3), lattice.weight(3)) == (3, 3, 1.0)
