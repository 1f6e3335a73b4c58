"""The lattice of a beam search: exact without pruning, and equal to a plain reference with it."""

import math

import numpy as np
import pytest
from beam_reference import EPS, reference
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from spec import language, paths, score
from strategies import graphs, grid
from tools import build, build_from_arrays, run_python, snapshot, weights, with_dtype
from trellis_cases import back_off, bigram, cases, ctc, dense, explicit, flower, free_graphs

import arcgrad as ag


def random_emissions(seed, length, num_labels):
    rng = np.random.default_rng(seed)
    return dense(rng.integers(-24, 25, (length, num_labels)) / 8)


matched = free_graphs(transducer=True, epsilon=True).filter(lambda case: case[0] == "input")


@st.composite
def searches(draw, inputs=matched, *, max_length=4):
    """A graph without epsilon cycles, and emissions on the grid, some of them impossible."""
    _, graph = draw(inputs)
    length = draw(st.integers(0, max_length))
    values = draw(st.lists(grid(), min_size=3 * length, max_size=3 * length))
    return graph, dense(np.array(values).reshape(length, 3))


# Comparisons


def multiset(graph):
    """Every path by its labels and weights."""
    spelled = [[(a.ilabel, a.olabel, a.weight) for a in path] for path in paths(graph)]
    return sorted(path for path in spelled if all(w > -math.inf for *_, w in path))


def assert_lattice(lattice):
    """Acyclic, in topological order with arcs by source, and every node on an accepted path."""
    src, dst = lattice.src_nodes(), lattice.dst_nodes()
    assert np.all(src < dst)
    assert np.all(np.diff(src) >= 0)
    assert np.all(np.isfinite(weights(lattice)))
    trimmed = ag.connect(lattice)
    assert (trimmed.num_nodes(), trimmed.num_arcs()) == (lattice.num_nodes(), lattice.num_arcs())


# Without pruning


@given(searches())
def test_without_pruning_the_lattice_has_the_paths_of_the_composition(case):
    graph, emissions = case
    lattice = ag.beam_search(graph, emissions)
    assert_lattice(lattice)
    composed = ag.compose(explicit(emissions.weights_view()), graph)
    assert language(lattice) == pytest.approx(language(composed), abs=1e-9)
    assert multiset(lattice) == multiset(composed)
    assert ag.viterbi_score(lattice).item() == ag.viterbi_score(composed).item()
    expected = ag.forward_score(composed).item()
    assert ag.forward_score(lattice).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["ctc", "asg", "bigram", "bigram with ends", "flower", "back-off"])
@given(data=st.data())
def test_scores_of_larger_lattices_equal_the_product(kind, data):
    case = data.draw(cases(kind, exact=True))
    emissions = [dense(array) for array in case.arrays]
    lattices = ag.beam_search(case.graph, emissions)
    products = ag.compose(emissions, case.graph)
    for lattice, product in zip(lattices, products, strict=True):
        assert_lattice(lattice)
        assert ag.viterbi_score(lattice).item() == ag.viterbi_score(product).item()
        expected = ag.forward_score(product).item()
        assert ag.forward_score(lattice).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", "float64")])
@given(data=st.data())
def test_the_lattice_has_the_wider_dtype_and_the_scores_of_the_product(dtypes, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    graph = with_dtype(bigram(4, rng), dtypes[0])
    emissions = dense(rng.normal(size=(6, 4)), dtypes[1])
    lattice = ag.beam_search(graph, emissions)
    assert lattice.dtype == dtypes[1]
    product = ag.compose(emissions, graph)
    assert ag.viterbi_score(lattice).item() == ag.viterbi_score(product).item()


def test_strided_emissions_are_read_as_they_are():
    array = np.arange(24, dtype="float64").reshape(4, 6)[:, ::2]
    graph = flower(3, np.random.default_rng(0))
    borrowed = ag.linear_graph(4, 3, array, copy=False)
    assert snapshot(ag.beam_search(graph, borrowed)) == snapshot(
        ag.beam_search(graph, dense(array.copy()))
    )


# With pruning


@given(searches(), st.sampled_from([0.0, 0.5, 1.0, 2.0, 4.0, math.inf]), st.integers(1, 5))
def test_pruning_follows_the_reference(case, beam, max_active):
    graph, emissions = case
    lattice = ag.beam_search(graph, emissions, beam=beam, max_active=max_active)
    assert_lattice(lattice)
    expected = reference(graph, emissions, beam=beam, max_active=max_active)
    assert multiset(lattice) == multiset(expected)
    lattice = ag.beam_search(graph, emissions, beam=beam)
    assert_lattice(lattice)
    assert multiset(lattice) == multiset(reference(graph, emissions, beam=beam))


@given(st.integers(0, 1000), st.sampled_from([0.5, 2.0, 6.0]), st.sampled_from([1, 3, 5, None]))
def test_pruning_of_a_back_off_model_follows_the_reference(seed, beam, max_active):
    rng = np.random.default_rng(seed)
    graph = back_off(5, 6, rng)
    emissions = random_emissions(seed, 4, 5)
    limits = {} if max_active is None else {"max_active": max_active}
    lattice = ag.beam_search(graph, emissions, beam=beam, **limits)
    assert multiset(lattice) == multiset(reference(graph, emissions, beam=beam, **limits))


@given(searches(), st.floats(0.0, 8.0))
def test_the_best_path_survives_a_beam_that_it_never_leaves(case, beam):
    graph, emissions = case
    exact = ag.viterbi_score(ag.beam_search(graph, emissions)).item()
    found = ag.viterbi_score(ag.beam_search(graph, emissions, beam=beam)).item()
    assert found <= exact
    assert ag.viterbi_score(ag.beam_search(graph, emissions, beam=1e6)).item() == exact


def test_among_tied_nodes_the_smallest_ids_are_kept():
    arcs = [(0, 3, 0, 0, 0.0), (0, 1, 1, 1, 0.0), (0, 2, 2, 2, 0.0)]
    arcs += [(n, 4, 0, 0, 0.0) for n in (1, 2, 3)]
    graph = build(5, {0}, {4}, arcs)
    lattice = ag.beam_search(graph, ag.linear_graph(2, 3), max_active=2)
    assert sorted(lattice.ilabels()[:2].tolist()) == [1, 2]


def test_a_pruned_node_can_be_on_the_epsilon_path_to_a_kept_node():
    # Nodes 1 and 2 tie, and node 2 is reached from node 1, but only one of them survives.
    graph = build(4, {0}, {3}, [(0, 2, 0), (2, 1, EPS, 7), (1, 3, 1), (2, 3, 1)])
    lattice = ag.beam_search(graph, ag.linear_graph(2, 2), max_active=1)
    assert [p[1] for p in language(lattice)] == [(0, 7, 1)]


def test_no_node_is_pruned_after_the_last_frame():
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 50.0), (0, 2, 0, 0, 0.0)])
    lattice = ag.beam_search(graph, ag.linear_graph(1, 1), beam=1.0, max_active=1)
    assert lattice.num_arcs() == 1


def test_a_beam_that_prunes_every_accepted_path_gives_the_empty_graph():
    # The best node after the first frame is a dead end.
    graph = build(4, {0}, {3}, [(0, 1, 0, 0, 9.0), (0, 2, 0, 0, 0.0), (2, 3, 0, 0, 0.0)])
    assert ag.beam_search(graph, ag.linear_graph(2, 1)).num_arcs() == 2
    lattice = ag.beam_search(graph, ag.linear_graph(2, 1), beam=5.0)
    assert (lattice.num_nodes(), lattice.num_arcs()) == (0, 0)


@given(searches(), st.sampled_from([0.0, 0.25, 1.0, 3.0]))
def test_the_lattice_beam_keeps_exactly_the_arcs_of_good_paths(case, lattice_beam):
    graph, emissions = case
    whole = ag.beam_search(graph, emissions)
    lattice = ag.beam_search(graph, emissions, lattice_beam=lattice_beam)
    assert_lattice(lattice)
    found = paths(whole)
    best = max(map(score, found), default=-math.inf)
    good = [path for path in found if score(path) >= best - lattice_beam]
    assert lattice.num_arcs() == len({arc.id for path in good for arc in path})
    assert ag.viterbi_score(lattice).item() == best
    kept = multiset(lattice)
    assert all([(a.ilabel, a.olabel, a.weight) for a in path] in kept for path in good)


@pytest.mark.parametrize("seed", range(5))
def test_a_lattice_beam_of_zero_keeps_the_best_path_despite_rounding(seed):
    rng = np.random.default_rng(seed)
    emissions = ag.linear_graph(300, 7, rng.normal(size=(300, 7)) * math.pi)
    graph = bigram(7, rng)
    lattice = ag.beam_search(graph, emissions, lattice_beam=0.0)
    assert lattice.num_arcs() == 300
    path = ag.viterbi_path(ag.compose(emissions, graph))
    assert lattice.labels_to_list() == path.labels_to_list()


# Epsilon arcs


def test_chains_of_epsilon_arcs_are_followed_before_between_and_after_frames():
    arcs = [(0, 1, EPS, 5, 0.5), (1, 2, EPS, 6, 0.25), (2, 3, 0, 0, 1.0)]
    arcs += [(3, 4, EPS, EPS, -1.0), (4, 2, EPS, EPS, -1.0), (3, 5, EPS, 7, 0.0), (5, 6, EPS, 8)]
    lattice = ag.beam_search(build(7, {0}, {6}, arcs), ag.linear_graph(3, 1))
    assert language(lattice) == {((0, 0, 0), (5, 6, 0, 0, 0, 7, 8)): -0.25}


def test_an_epsilon_arc_may_lead_to_a_smaller_node_and_improve_its_score():
    # The direct arc is found first, but two arcs together are better, and so are their successors.
    arcs = [(0, 3, 0), (3, 2, EPS, 9, -2.0), (3, 1, EPS, 8, -0.5), (1, 2, EPS, 7, -0.5)]
    arcs += [(2, 0, EPS, EPS, 0.0)]
    lattice = ag.beam_search(build(4, {0}, {0}, arcs), ag.linear_graph(1, 1), lattice_beam=0.0)
    assert language(lattice) == {((0,), (0, 8, 7)): -1.0}


def with_epsilon_cycles():
    return graphs(cyclic=True, low=-2.0, high=0.0, max_nodes=4, max_arcs=8, num_labels=2)


@given(with_epsilon_cycles(), st.integers(0, 3), st.integers(0, 100))
def test_epsilon_cycles_without_positive_weight_leave_the_best_score(graph, length, seed):
    emissions = random_emissions(seed, length, 2)
    lattice = ag.beam_search(graph, emissions)
    assert_lattice(lattice)
    composed = ag.compose(explicit(emissions.weights_view()), graph)
    assert ag.viterbi_score(lattice).item() == ag.viterbi_score(composed).item()


def test_arcs_that_close_an_epsilon_cycle_are_left_out():
    arcs = [(0, 1, 0), (1, 2, EPS, 5, 0.0), (2, 1, EPS, 6, 0.0), (2, 2, EPS, 7, -1.0)]
    lattice = ag.beam_search(build(3, {0}, {1, 2}, arcs), ag.linear_graph(1, 1))
    assert language(lattice) == {((0,), (0,)): 0.0, ((0,), (0, 5)): 0.0}


def test_arcs_after_an_epsilon_cycle_are_kept():
    # Node 3 is reached directly and through the cycle of 1 and 2.
    arcs = [(0, 1, 0), (1, 2, EPS, 5, 0.0), (2, 1, EPS, 6, 0.0), (0, 3, 0, 9, 0.0)]
    arcs += [(2, 3, EPS, 8, 0.0)]
    lattice = ag.beam_search(build(4, {0}, {3}, arcs), ag.linear_graph(1, 1))
    assert {o for _, o in language(lattice)} == {(9,), (0, 5, 8)}


@pytest.mark.parametrize(
    "arcs",
    [
        [(1, 1, EPS, EPS, 0.5)],
        [(1, 2, EPS, EPS, -1.0), (2, 1, EPS, EPS, 1.5)],
        [(1, 2, EPS, 0, 2.0), (2, 3, EPS, 1, -1.0), (3, 1, EPS, 2, -0.5)],
    ],
)
def test_rejects_a_cycle_of_epsilon_arcs_with_a_positive_weight(arcs):
    graph = build(4, {0}, {1, 2, 3}, [(0, 1, 0), *arcs])
    pattern = r"beam_search: .*positive weight, but one through node \d has 0\.5$"
    with pytest.raises(ValueError, match=pattern):
        ag.beam_search(graph, ag.linear_graph(1, 1))
    # A cycle that no path reaches is allowed.
    assert ag.beam_search(graph, ag.linear_graph(0, 1)).num_nodes() == 0


# Edges


def test_without_frames_the_lattice_has_the_silent_paths():
    graph = build(3, {0, 1}, {0, 2}, [(0, 1, 0), (1, 2, EPS, 4, 0.5)])
    lattice = ag.beam_search(graph, ag.linear_graph(0, 2), beam=0.0, max_active=1)
    assert language(lattice) == {((), ()): 0.0, ((), (4,)): 0.5}


@pytest.mark.parametrize("frames", [0, 1, 3])
@pytest.mark.parametrize(("start", "accept"), [(set(), {1}), ({0}, set()), (set(), set())])
def test_without_a_start_or_an_accept_the_lattice_is_empty(start, accept, frames):
    graph = build(2, start, accept, [(0, 1, 0), (1, 1, 0)])
    lattice = ag.beam_search(graph, ag.linear_graph(frames, 1))
    assert (lattice.num_nodes(), lattice.num_arcs()) == (0, 0)


def test_empty_inputs_give_the_empty_graph():
    assert ag.beam_search(ag.Graph(), ag.linear_graph(3, 2)).num_nodes() == 0
    assert ag.beam_search(ag.Graph(), ag.linear_graph(0, 0)).num_nodes() == 0
    graph = flower(2, np.random.default_rng(0))
    assert ag.beam_search(graph, ag.linear_graph(2, 0)).num_nodes() == 0


def test_impossible_weights_are_left_out():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, -math.inf), (0, 1, 1, 1, 0.5), (0, 1, 2, 2, 0.0)])
    emissions = dense(np.array([[0.0, -math.inf, 1.0]]))
    assert language(ag.beam_search(graph, emissions)) == {((2,), (2,)): 1.0}
    dead = dense(np.full((1, 3), -math.inf))
    assert ag.beam_search(graph, dead, beam=1.0, max_active=1).num_nodes() == 0


def test_labels_beyond_the_emissions_match_nothing():
    graph = build(2, {0}, {1}, [(0, 1, 5), (0, 1, 0)])
    assert ag.beam_search(graph, ag.linear_graph(1, 3)).labels_to_list() == [0]


@pytest.mark.parametrize("size", [1e30, 1e300])
def test_huge_weights_do_not_overflow(size):
    graph = flower(2, np.random.default_rng(0))
    emissions = dense(np.array([[size, -size], [-size, size], [size, size]]))
    for options in ({}, {"beam": 1.0, "max_active": 1, "lattice_beam": 0.0}):
        assert ag.viterbi_score(ag.beam_search(graph, emissions, **options)).item() == 3 * size


def test_the_graph_may_be_a_product():
    rng = np.random.default_rng(0)
    product = ag.intersect(bigram(3, rng), ag.linear_graph(4, 3))
    emissions = random_emissions(1, 4, 3)
    lattice = ag.beam_search(product, emissions)
    assert ag.forward_score(lattice).item() == pytest.approx(
        ag.forward_score(ag.intersect(ag.clone(product), emissions)).item()
    )


# Batches


def test_a_batch_equals_a_loop_and_single_graphs_broadcast():
    rng = np.random.default_rng(0)
    many = [bigram(4, rng, ends=True) for _ in range(5)]
    emissions = [random_emissions(seed, seed, 4) for seed in range(5)]
    options = {"beam": 3.0, "max_active": 3, "lattice_beam": 2.0}

    def loop(pairs):
        return [snapshot(ag.beam_search(g, e, **options)) for g, e in pairs]

    def batch(first, second):
        return [snapshot(g) for g in ag.beam_search(first, second, **options)]

    assert batch(many, emissions) == loop(zip(many, emissions, strict=True))
    assert batch(many[0], emissions) == batch([many[0]], emissions)
    assert batch(many[0], emissions) == loop((many[0], e) for e in emissions)
    assert batch(many, emissions[3]) == loop((g, emissions[3]) for g in many)
    assert ag.beam_search([], emissions[:1]) == ag.beam_search(many[0], []) == []


def test_results_are_bitwise_equal_for_any_number_of_threads(threads):
    rng = np.random.default_rng(0)
    graph = back_off(20, 60, rng)
    found = []
    for number in (1, 2, 5):
        threads(number)
        emissions = [random_emissions(seed, 30, 20) for seed in range(16)]
        lattices = ag.beam_search(graph, emissions, beam=4.0, max_active=7, lattice_beam=3.0)
        found.append([snapshot(lattice) for lattice in lattices])
    assert found[0] == found[1] == found[2]


def test_a_search_can_be_interrupted():
    code = """
import os, signal, threading, time
import numpy as np
import arcgrad as ag
rng = np.random.default_rng(0)
src, dst = rng.integers(0, 20_000, (2, 200_000))
graph = ag.Graph.from_arrays(src, dst, src % 10, start=[0], accept=[0], num_nodes=20_000)
emissions = [ag.linear_graph(1000, 10) for _ in range(16)]
sent = []
def send():
    sent.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
threading.Timer(0.3, send).start()
try:
    ag.beam_search(graph, emissions, max_active=5000)
except KeyboardInterrupt:
    seconds = time.perf_counter() - sent[0]
    assert seconds < 1.0, seconds
    print("interrupted")
"""
    assert run_python(code).strip() == "interrupted"


# Gradients


@pytest.mark.parametrize(
    "options", [{"beam": 3.0}, {"max_active": 2}, {"beam": 5.0, "lattice_beam": 1.5}]
)
@given(data=st.data())
def test_gradients_of_a_pruned_search(options, data):
    # Weights without ties, so that a small change prunes nothing else.
    rng = np.random.default_rng(data.draw(st.integers(0, 10_000)))
    graph = bigram(3, rng, ends=True)
    graph.set_weights(rng.normal(size=graph.num_arcs()))
    emissions = dense(rng.normal(size=(3, 3)))

    def call(g, e):
        return ag.beam_search(g, e, **options)

    assert_gradient(call, graph, emissions)
    assert_second_order(call, graph, emissions)


def test_without_pruning_the_gradient_of_the_score_is_that_of_the_product():
    rng = np.random.default_rng(0)
    graph, emissions = ctc([1, 2, 2], rng=rng), random_emissions(0, 8, 3)
    lattice = ag.forward_score(ag.beam_search(graph, emissions))
    product = ag.forward_score(ag.compose(emissions, graph))
    pairs = zip(
        ag.grad(lattice, [graph, emissions]), ag.grad(product, [graph, emissions]), strict=True
    )
    for actual, expected in pairs:
        assert weights(actual) == pytest.approx(weights(expected), abs=1e-9)


# Errors


@pytest.mark.parametrize("bad", [-1.0, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["beam", "lattice_beam"])
def test_rejects_a_beam_below_zero(name, bad):
    graph, emissions = flower(2, np.random.default_rng(0)), ag.linear_graph(1, 2)
    pattern = rf"beam_search: .*{name} must be 0 or more, but it is -?(1|inf|nan)$"
    with pytest.raises(ValueError, match=pattern):
        ag.beam_search(graph, emissions, **{name: bad})
    with pytest.raises(ValueError, match=pattern):
        ag.beam_search([], [], **{name: bad})


@pytest.mark.parametrize("bad", [0, -3])
def test_rejects_less_than_one_active_node(bad):
    graph, emissions = flower(2, np.random.default_rng(0)), ag.linear_graph(1, 2)
    with pytest.raises(ValueError, match=rf"beam_search: max_active must be .*, but it is {bad}$"):
        ag.beam_search(graph, emissions, max_active=bad)


@pytest.mark.parametrize(
    "options", [{"beam": "wide"}, {"max_active": 1.5}, {"lattice_beam": []}, {"width": 3}]
)
def test_rejects_options_of_other_types(options):
    with pytest.raises(TypeError):
        ag.beam_search(ag.Graph(), ag.linear_graph(1, 2), **options)
    with pytest.raises(TypeError):
        ag.beam_search(ag.Graph(), [[0.0, 1.0]], **options)


def test_rejects_emissions_that_are_not_a_dense_linear_graph():
    graph = flower(2, np.random.default_rng(0))
    pattern = r"beam_search: the emissions must be .*, but this graph is not one; make them with"
    for other in (graph, ag.chain_graph([0]), ag.compose(ag.linear_graph(1, 2), graph)):
        with pytest.raises(ValueError, match=pattern):
            ag.beam_search(graph, other)
    pattern = r"beam_search \(element 1 of 2\): the emissions must be"
    with pytest.raises(ValueError, match=pattern):
        ag.beam_search(graph, [ag.linear_graph(1, 2), graph])


def test_rejects_lists_of_different_lengths():
    graph = flower(2, np.random.default_rng(0))
    with pytest.raises(ValueError, match=r"beam_search: lists must .*, but they have 2 and 3"):
        ag.beam_search([graph] * 2, [ag.linear_graph(1, 2)] * 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_weight_is_named(bad):
    emissions = ag.linear_graph(1, 2)
    graph = build_from_arrays(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, bad)])
    with pytest.raises(ValueError, match=rf"beam_search: .*, but arc 1 has weight {bad}$"):
        ag.beam_search(graph, emissions)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_emission_is_named_with_its_example_frame_and_label(bad):
    graph = build(2, {0}, {1}, [(0, 1, 2), (1, 1, 0), (0, 0, EPS, EPS, -1.0)])
    array = np.zeros((4, 5))
    array[:, 3:] = bad  # no arc reads these
    good = dense(array)
    assert ag.beam_search(graph, good).num_arcs() == 4
    array[3, 2] = bad
    pattern = (
        r"beam_search \(element 1 of 3\): the emission of label 2 at frame 3 is "
        rf"{bad}, but it must be finite or -inf$"
    )
    with pytest.raises(ValueError, match=pattern):
        ag.beam_search(graph, [good, dense(array), good], beam=1.0)
