"""Failure (phi) and rest (rho) arcs: rules, errors, and the ops that resolve them or refuse them.

`spec.py` has rows that check their meaning and derivatives in the ops that resolve them.
"""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from failure_rules import failing, resolved_language
from hypothesis import given
from spec import OPS, TROPICAL, compose, language, viterbi_score
from strategies import emissions, graphs
from tools import build, snapshot

import arcgrad as ag
from arcgrad import _core

eps, phi, rho = ag.epsilon, ag.phi, ag.rho
close = {"rel": 1e-9, "abs": 1e-9}


@pytest.fixture(scope="module", params=[0, 1 << 40], ids=["sparse", "full"])
def form(request):
    """Both forms in which a graph is resolved for emissions."""
    old = _core.set_threshold("full_percent", request.param)
    yield
    _core.set_threshold("full_percent", old)


def chain(*labels, dtype="float64"):
    return ag.chain_graph(list(labels), dtype=dtype)


def score(graph, *labels):
    return ag.forward_score(ag.intersect(graph, chain(*labels))).item()


def bigram():
    """The model of docs/concepts.md."""
    arcs = [(0, 1, 0, 0, -1.0), (0, 0, 1, 1, -2.0), (1, 0, 1, 1, -0.5), (1, 0, phi, phi, -0.25)]
    return build(2, {0}, {0, 1}, arcs)


# Meaning


def test_a_failure_arc_is_taken_only_if_no_other_arc_matches():
    assert score(bigram(), 0, 1) == -1.5
    assert score(bigram(), 0, 0) == -2.25
    assert score(bigram(), 1, 1) == -4.0
    assert score(bigram(), 0, 2) == -math.inf


def test_a_node_that_cannot_end_backs_off_at_the_end():
    arcs = [(0, 1, 0, 0, 1.0), (1, 2, phi, phi, 2.0), (2, 3, phi, phi, 4.0), (3, 4, eps, eps, 8.0)]
    graph = build(5, {0}, {4}, arcs)
    assert score(graph, 0) == 15.0
    # Node 1 ends by itself now, so it does not back off.
    assert score(build(5, {0}, {1, 4}, arcs), 0) == 1.0
    assert score(build(5, {0}, {4}, [*arcs, (1, 4, eps, eps, 16.0)]), 0) == 17.0


def test_failure_arcs_at_the_end_are_epsilon_arcs_of_the_result():
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 1.0), (1, 2, phi, phi, 2.0)])
    result = ag.intersect(graph, chain(0))
    assert result.labels_to_list() == [0, eps]
    assert result.weights_to_list() == [1.0, 2.0]


def test_a_rest_arc_consumes_what_no_other_arc_matches():
    arcs = [(0, 1, 0, 0, 1.0), (0, 1, rho, rho, 2.0), (0, 2, phi, phi, 4.0), (2, 1, 1, 1, 8.0)]
    graph = build(3, {0}, {1}, arcs)
    assert [score(graph, label) for label in range(3)] == [1.0, 2.0, 2.0]
    result = ag.intersect(graph, chain(5))
    assert result.labels_to_list() == [5]


def test_a_rest_arc_may_write_another_label():
    graph = build(2, {0}, {1}, [(0, 1, rho, 7, 0.0), (0, 1, 3, 3, 0.0)])
    outputs = [ag.compose(chain(label), graph).labels_to_list(False) for label in (2, 3)]
    assert outputs == [[7], [3]]
    copied = build(2, {0}, {1}, [(0, 1, rho, rho, 0.0), (0, 1, 3, 4, 0.0)])
    outputs = [ag.compose(chain(label), copied).labels_to_list(False) for label in (2, 3)]
    assert outputs == [[2], [4]]


def test_an_arc_of_weight_minus_infinity_matches():
    arcs = [(0, 1, 0, 0, -math.inf), (0, 2, phi, phi, 0.0), (2, 1, 0, 0, 0.0)]
    assert score(build(3, {0}, {1}, arcs), 0) == -math.inf


def test_epsilon_arcs_of_nodes_that_are_backed_off_to_match_no_label():
    arcs = [(0, 1, phi, phi, 0.0), (1, 2, eps, eps, 0.0), (2, 3, 0, 0, 0.0)]
    assert score(build(4, {0}, {3}, arcs), 0) == -math.inf
    arcs = [(0, 1, eps, eps, 0.0), (1, 2, phi, phi, 0.0), (2, 3, 0, 0, 0.0)]
    assert score(build(4, {0}, {3}, arcs), 0) == 0.0


@given(failing(), emissions(num_labels=3))
def test_every_form_has_the_language_of_the_definition(form, graph, frames):
    expected = compose(resolved_language(graph), language(frames))
    product = ag.compose(graph, frames)
    total = ag.forward_score(product).item()
    assert total == pytest.approx(
        float(np.logaddexp.reduce(list(expected.values()), initial=-np.inf)), **close
    )
    assert language(product) == pytest.approx(expected, **close)


@given(failing(), emissions(num_labels=3))
def test_best_paths_of_every_form(form, graph, frames):
    expected = compose(resolved_language(graph, plus=TROPICAL), language(frames, TROPICAL))
    best = viterbi_score(expected)
    path = ag.viterbi_path(ag.compose(graph, frames))
    if best == -np.inf:
        assert path.num_nodes() == 0
        return
    ((string, found),) = language(path).items()
    assert found == pytest.approx(best, **close)
    assert expected[string] == pytest.approx(best, **close)
    # It looks like a path of the product that is built.
    product = ag.compose(graph, frames)
    _ = product.num_arcs()
    assert path.num_arcs() in {found.num_arcs() for found in ag.best_paths(ag.clone(product), 50)}


@given(failing(), emissions(num_labels=3), st.sampled_from(["log", "tropical"]))
def test_posteriors_of_factors_are_gradients(form, graph, frames, semiring):
    product = ag.compose(graph, frames)
    scored = ag.forward_score if semiring == "log" else ag.viterbi_score
    found = scored(product)
    if found.item() == -math.inf:
        return
    ag.backward(found)
    for factor in (graph, frames):
        posteriors = ag.arc_posteriors(ag.compose(graph, frames), wrt=factor, semiring=semiring)
        assert posteriors.weights_to_list() == pytest.approx(
            factor.grad().weights_to_list(), **close
        )


@given(failing(), emissions(num_labels=3), graphs(num_labels=3))
def test_gradients_of_the_arcs_of_a_product(form, graph, frames, other):
    product = ag.compose(graph, frames)
    product.retain_grad()
    # Reading the arcs uses those of the product, composed from the original.
    found = ag.forward_score(ag.clone(product))
    if found.item() == -math.inf:
        return
    ag.backward(found)
    of_arcs = graph.grad().weights_to_list()
    graph.zero_grad()
    ag.backward(ag.forward_score(ag.compose(graph, frames)))
    assert graph.grad().weights_to_list() == pytest.approx(of_arcs, **close)


@given(failing(transducer=False), emissions(num_labels=3), graphs(num_labels=3, transducer=False))
def test_the_order_of_intersections_does_not_matter(graph, frames, other):
    expected = language(ag.intersect(ag.intersect(graph, other), frames))
    for product in (
        ag.intersect(ag.intersect(graph, frames), other),
        ag.intersect(ag.intersect(other, frames), graph),
        ag.intersect(other, ag.intersect(frames, graph)),
    ):
        assert language(product) == pytest.approx(expected, **close)


def test_a_long_row_of_failure_arcs():
    size = 200
    arcs = [(n + 1, n, phi, phi, 1.0) for n in range(size)] + [(0, 0, 5, 5, 0.5)]
    graph = build(size + 1, {size}, {0}, arcs)
    assert score(graph, 5) == size + 0.5
    frames = ag.linear_graph(2, 6, np.zeros((2, 6)), dtype="float64")
    assert ag.forward_score(ag.intersect(graph, frames)).item() == size + 1.0


def test_many_nodes_that_back_off_to_one(form):
    """One node with 2000 children, each of which matches few labels."""
    rng = np.random.default_rng(0)
    size, labels = 2000, 50
    src = np.repeat(np.arange(1, size + 1), 3)
    label = np.concatenate([rng.choice(labels, 3, replace=False) for _ in range(size)])
    dst = rng.integers(0, size + 1, len(src))
    weight = rng.normal(size=len(src) + labels + size)
    graph = ag.Graph.from_arrays(
        np.concatenate([src, np.zeros(labels, int), np.arange(1, size + 1)]),
        np.concatenate([dst, rng.integers(0, size + 1, labels), np.zeros(size, int)]),
        np.concatenate([label, np.arange(labels), np.full(size, phi)]),
        weight=weight,
        start=[0],
        accept=np.arange(size + 1),
        num_nodes=size + 1,
        dtype="float64",
    )
    values = rng.normal(size=(4, labels))
    frames = ag.linear_graph(4, labels, values, dtype="float64")
    # The forward algorithm with a full table.
    table = np.full((size + 1, labels), -np.inf)
    to = np.zeros((size + 1, labels), int)
    table[0], to[0] = weight[len(src) : len(src) + labels], graph.dst_nodes()[len(src) :][:labels]
    table[1:] = weight[len(src) + labels :, None] + table[0]
    to[1:] = to[0]
    table[src, label], to[src, label] = weight[: len(src)], dst
    scores = np.full(size + 1, -np.inf)
    scores[0] = 0.0
    for row in values:
        moved = (scores[:, None] + table + row).ravel()
        scores = np.full(size + 1, -np.inf)
        np.logaddexp.at(scores, to.ravel(), moved)
    found = ag.forward_score(ag.intersect(graph, frames))
    assert found.item() == pytest.approx(float(np.logaddexp.reduce(scores)), rel=1e-12)


# Beam search


@given(failing(side="input", transducer=False), emissions(num_labels=3))
def test_a_beam_search_keeps_the_best_path(graph, frames):
    best = ag.viterbi_score(ag.intersect(graph, frames)).item()
    for beam in (0.5, 2.0, math.inf):
        lattice = ag.beam_search(graph, frames, beam=beam, lattice_beam=0.0)
        if beam == math.inf:
            assert ag.viterbi_score(lattice).item() == pytest.approx(best, **close)
        elif lattice.num_nodes():
            assert ag.viterbi_score(lattice).item() <= best + 1e-9


@pytest.mark.parametrize("frames", [0, 1])
@pytest.mark.parametrize(
    ("start", "accept", "arcs"),
    [
        # Node 3 does not back off: at node 1 no failure arc leads to an end.
        (3, {4}, [(1, 0, eps), (0, 2, eps), (3, 0, eps), (3, 1, phi), (2, 4, phi)]),
        # Node 0 backs off to node 1, which ends the string; its epsilon arc does not.
        (0, {1, 3}, [(0, 1, phi), (1, 2, eps), (2, 3, phi)]),
        # Node 0 backs off to node 1 and then to node 2; the epsilon arc of node 1 is not taken.
        (0, {2}, [(0, 1, phi), (1, 2, phi), (1, 3, eps), (3, 2, phi)]),
    ],
)
def test_a_beam_search_counts_an_end_by_failure_arcs_once(start, accept, arcs, frames):
    rows = [(src, dst, label, label, 0.0) for src, dst, label in arcs]
    graph = build(6, {5}, accept, [*rows, (5, start, 0, 0, 0.0)])
    if frames == 0:
        graph = build(5, {start}, accept, rows)
    emissions = ag.linear_graph(frames, 1, np.zeros((frames, 1)), dtype="float64")
    lattice = ag.beam_search(graph, emissions)
    assert language(lattice) == {((0,) * frames,) * 2: 0.0}
    assert ag.forward_score(ag.intersect(graph, emissions)).item() == 0.0


# Errors


@pytest.mark.parametrize(
    ("arcs", "message"),
    [
        (
            [(0, 1, phi, phi, 0.0), (0, 2, phi, phi, 0.0)],
            r"at most one failure arc \(phi\) may leave a node, but node 0 has the arcs 0 and 1",
        ),
        (
            [(0, 1, phi, phi, 0.0), (1, 2, phi, phi, 0.0), (2, 1, phi, phi, 0.0)],
            r"failure arcs \(phi\) must not form a cycle, but those through node 1 do",
        ),
        ([(0, 0, phi, phi, 0.0)], "must not form a cycle, but those through node 0 do"),
        ([(0, 1, 3, phi, 0.0)], "phi may be beside phi or epsilon.* but arc 0 has the labels 3:-2"),
        (
            [(0, 1, phi, rho, 0.0)],
            "(must be on the output side|arc 0 has the labels -2:-3)",
        ),
        ([(0, 1, rho, 3, 0.0)], "must be on the output side, which is matched, but arc 0 has one"),
    ],
)
def test_rejects_malformed_graphs(arcs, message):
    graph = build(3, {0}, {1}, arcs)
    for other in (chain(0), ag.linear_graph(1, 2, dtype="float64")):
        with pytest.raises(ValueError, match=f"compose: .*{message}"):
            ag.forward_score(ag.compose(graph, other))


def test_only_one_graph_may_have_them_where_they_meet():
    with pytest.raises(ValueError, match="intersect: only one of the graphs may have failure"):
        ag.intersect(bigram(), bigram())
    # Emissions resolve the first one.
    frames = ag.linear_graph(2, 2, np.zeros((2, 2)), dtype="float64")
    both = ag.intersect(ag.intersect(bigram(), frames), bigram())
    values = [2 * score(bigram(), *s) for s in itertools.product(range(2), repeat=2)]
    assert ag.forward_score(both).item() == pytest.approx(np.logaddexp.reduce(values))


PASSED_ON = {
    *("delete_arcs", "delete_nodes", "map_weights", "relabel", "encode", "decode"),
    *("add", "arc_sort", "clone", "closure", "concat", "invert", "negate", "optional", "plus"),
    *("power", "project_input", "project_output", "scale", "subtract", "top_sort", "union"),
}
RESOLVED = {
    *("compose", "intersect", "sequence_loss", "outer_score", "beam_search", "edit_distance")
}
CONSTRUCTORS = {
    *("linear_graph", "linear_graphs", "scalar_graph", "chain_graph", "random_graph"),
    "levenshtein_graph",
}


@pytest.mark.parametrize("op", OPS, ids=str)
def test_an_op_that_does_not_resolve_them_refuses_them(op):
    if op.name in PASSED_ON | RESOLVED | CONSTRUCTORS or "product" in op.variant:
        return
    if "failure" in op.variant:
        return
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, rho, rho, 0.0)])
    several = {"kl_divergence": 2, "expected": 2, "difference": 2, "cross": 2, "rewrite": 3}
    count = several.get(op.name, 1)
    if op.name == "replace":
        count = 3 if op.variant else 2
    with pytest.raises(ValueError, match=rf"{op.name}: .*\(phi\) and rest arcs \(rho\)"):
        op.call(*[graph] * count)


def test_they_are_labels_like_others_to_other_ops(tmp_path):
    graph = bigram()
    labels = graph.labels_to_list()
    for other in (
        ag.clone(graph),
        ag.scale(graph, 2.0),
        ag.invert(graph),
        ag.project_output(graph),
        ag.union([graph]),
        ag.optional(graph),
    ):
        assert other.labels_to_list()[: len(labels)] == labels
    for name, write, read in (("g.bin", ag.save, ag.load), ("g.txt", ag.savetxt, ag.loadtxt)):
        write(tmp_path / name, graph)
        assert ag.equal(read(tmp_path / name), graph)
    assert "φ" in repr(graph)
    ag.write_dot(graph, tmp_path / "g.dot", {0: "a", 1: "b"}, {0: "a", 1: "b"})
    assert "φ" in (tmp_path / "g.dot").read_text()


def test_joined_strings_begin_at_accept_nodes():
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 0.0), (1, 2, phi, phi, 0.0)])
    for call in (ag.closure, ag.plus, lambda g: ag.power(g, 2), lambda g: ag.concat([g, g])):
        with pytest.raises(ValueError, match="but at node 1 they end by a failure arc"):
            call(graph)
    joined = ag.concat([chain(0), graph])
    assert score(joined, 0, 0) == 0.0
    assert score(ag.concat([bigram(), bigram()]), 0, 1, 0) > -math.inf


def test_gtn_has_no_such_labels():
    from arcgrad import gtn

    with pytest.raises(ValueError, match="Graph: the graph must have no failure arcs"):
        gtn.Graph(bigram())
    graph = gtn.Graph()
    graph.add_node(True, True)
    with pytest.raises(ValueError, match=r"add_arc: the labels must be 0 or more, or epsilon"):
        graph.add_arc(0, 0, phi)


@pytest.mark.parametrize("label", [-4, -100])
def test_smaller_labels_are_rejected(label):
    graph = build(1, {0}, {0}, [])
    with pytest.raises(ValueError, match=r"epsilon \(-1\), phi \(-2\) or rho \(-3\), but it is"):
        graph.add_arc(0, 0, label)
    with pytest.raises(ValueError, match=f"ilabel must be between -3 and .* has {label}"):
        ag.Graph.from_arrays([0], [0], [label], start=[0], accept=[0], num_nodes=1)


def test_inputs_do_not_change():
    graph, frames = bigram(), ag.linear_graph(2, 2, np.zeros((2, 2)), dtype="float64")
    before = snapshot(graph)
    ag.backward(ag.forward_score(ag.intersect(graph, frames)))
    assert snapshot(graph) == before
