"""What is particular to disambiguate, synchronize, epsilon_normalize, encode and decode."""

import copy
import math
import pickle
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from spec import TROPICAL, language, paths, strings
from strategies import acceptors, convergent, distinct, graphs
from tools import build

import arcgrad as ag


def labels_along(graph):
    """The pairs of labels along each path, without those that are epsilon on both sides."""
    silent = (ag.epsilon, ag.epsilon)
    return [
        tuple((a.ilabel, a.olabel) for a in path if (a.ilabel, a.olabel) != silent)
        for path in paths(graph)
    ]


# disambiguate


@given(graphs())
def test_every_string_has_one_path(graph):
    found = labels_along(ag.disambiguate(graph))
    assert len(set(found)) == len(found)


@given(distinct(acceptors(cyclic=True, epsilon=False, impossible=False, max_nodes=3, max_arcs=5)))
def test_unambiguous_graphs_keep_their_size(graph):
    graph = ag.connect(graph)
    if ag.is_unambiguous(graph):
        out = ag.disambiguate(graph, semiring="tropical", max_nodes=100)
        assert (out.num_nodes(), out.num_arcs()) == (graph.num_nodes(), graph.num_arcs())
        assert strings(out, TROPICAL) == pytest.approx(strings(graph, TROPICAL))


def without_twins():
    """Two loops with different weights that different last labels tell apart."""
    arcs = [(0, 1, 5, 5, 0.0), (0, 2, 5, 5, 0.0), (1, 1, 1, 1, -2.0), (2, 2, 1, 1, -1.0)]
    return build(5, [0], [3, 4], [*arcs, (1, 3, 7, 7, 0.0), (2, 4, 8, 8, 0.0)])


def test_a_graph_that_cannot_be_determinized_may_be_unambiguous():
    graph = without_twins()
    with pytest.raises(ValueError, match="nodes 1 and 2 must differ by"):
        ag.determinize(graph, max_nodes=50)
    assert ag.is_unambiguous(graph)
    assert strings(ag.disambiguate(graph)) == pytest.approx(strings(graph))


def test_loops_of_equal_strings_with_different_weights_are_refused():
    arcs = [(0, 1, 5, 5, 0.0), (0, 2, 5, 5, 0.0), (1, 1, 1, 1, -2.0), (2, 2, 1, 1, -1.0)]
    graph = build(3, [0], [1, 2], arcs)
    with pytest.raises(ValueError, match="disambiguate: the scores of nodes 1 and 2 must differ"):
        ag.disambiguate(graph, max_nodes=50)


def test_a_cycle_with_two_paths_for_one_string():
    # Twice the same loop: both paths of a round are one string, whose score is their sum.
    arcs = [(0, 1, 1, 1, -2.0), (0, 2, 1, 1, -2.5), (1, 0, 2, 2, -1.0), (2, 0, 2, 2, -1.0)]
    graph = build(3, [0], [0], arcs)
    out = ag.disambiguate(graph)
    assert ag.is_unambiguous(out)
    assert strings(out) == pytest.approx(strings(graph))


# synchronize and epsilon_normalize


@given(graphs())
def test_synchronized_paths_pair_their_labels(graph):
    for path in labels_along(ag.synchronize(graph)):
        is_pair = [ag.epsilon not in pair for pair in path]
        rest = path[sum(is_pair) :]
        assert is_pair == sorted(is_pair, reverse=True)
        assert len({[x == ag.epsilon for x in pair].index(True) for pair in rest}) <= 1


@pytest.mark.parametrize("side", ["input", "output"])
@given(graph=graphs())
def test_epsilons_of_one_side_come_last(graph, side):
    for path in labels_along(ag.epsilon_normalize(graph, side)):
        is_epsilon = [pair[side == "output"] == ag.epsilon for pair in path]
        assert is_epsilon == sorted(is_epsilon)


def shifted():
    """A loop whose output is one label behind its input."""
    arcs = [(0, 1, 1, ag.epsilon, 0.5), (1, 1, 2, 3, -1.0), (1, 2, ag.epsilon, 4, 0.25)]
    return build(3, [0], [2], arcs)


def test_a_loop_with_a_bounded_delay():
    graph = shifted()
    out = ag.synchronize(graph)
    assert strings(out) == pytest.approx(strings(graph))
    assert ag.is_epsilon_free(out, "input")


def is_bounded(graph, op):
    """Whether no cycle on an accepted path has more outputs than inputs (synchronize: or fewer)."""
    useful = ag.connect(graph)
    steps = defaultdict(set)
    for src, dst, ilabel, olabel, _ in zip(*(c.tolist() for c in useful.arcs()), strict=True):
        steps[src].add((dst, (olabel != ag.epsilon) - (ilabel != ag.epsilon)))
    for root in range(useful.num_nodes()):
        # Walks of as many arcs as there are nodes take every simple cycle through the root.
        reached = {(root, 0)}
        for _ in range(useful.num_nodes()):
            reached = {(d, delay + step) for n, delay in reached for d, step in steps[n]}
            delays = {delay for n, delay in reached if n == root}
            if any(delay > 0 or (delay < 0 and op is ag.synchronize) for delay in delays):
                return False
    return True


@given(convergent(max_nodes=3, max_arcs=4))
def test_cycles_have_a_bounded_delay_or_are_refused(graph):
    for op, message in (
        (ag.synchronize, "a cycle must have as many input as output labels"),
        (ag.epsilon_normalize, "a cycle may have at most as many output as input labels"),
    ):
        if is_bounded(graph, op):
            assert strings(op(graph)) == pytest.approx(strings(graph), abs=1e-9)
        else:
            with pytest.raises(ValueError, match=message):
                op(graph)


@pytest.mark.parametrize(
    ("call", "cycle"),
    [
        (ag.synchronize, "0 -> 2 -> 0"),
        (lambda g: ag.epsilon_normalize(ag.invert(g)), "0 -> 2 -> 0"),
        (lambda g: ag.epsilon_normalize(g, "output"), "0 -> 2 -> 0"),
    ],
)
def test_a_cycle_with_an_unbounded_delay_is_named(call, cycle):
    # Node 1 is on a cycle that no accepted path takes.
    arcs = [(0, 2, 1, 1, 0.0), (2, 0, 1, ag.epsilon, -1.0), (0, 1, 1, 1, 0.0), (1, 1, 1, -1, 0.0)]
    graph = build(3, [0], [2], arcs)
    first, second = cycle, "2 -> 0 -> 2"
    with pytest.raises(ValueError, match=f"but the cycle ({first}|{second}) does not"):
        call(graph)


def test_cycles_without_an_accepted_path_may_have_any_delay():
    graph = build(2, [0], [0], [(0, 1, 1, 1, 0.0), (1, 1, 1, ag.epsilon, 0.0)])
    assert language(ag.synchronize(graph)) == {((), ()): 0.0}


def test_epsilon_normalize_takes_cycles_that_write_less():
    graph = build(1, [0], [0], [(0, 0, 1, ag.epsilon, -1.0), (0, 0, 2, 3, -1.0)])
    assert strings(ag.epsilon_normalize(graph)) == pytest.approx(strings(graph))


@pytest.mark.parametrize("op", [ag.synchronize, ag.epsilon_normalize, ag.disambiguate])
def test_sizes_are_limited(op):
    rng = np.random.default_rng(0)
    arcs = [(n, n + 1, ag.epsilon, int(o), 0.0) for n in range(40) for o in (0, 1)]
    arcs += [(40 + n, 41 + n, 2, ag.epsilon, float(rng.normal())) for n in range(60)]
    graph = build(101, [0], [100], arcs)
    if op is ag.disambiguate:
        # Strings of 0 and 1 with a 1 at the twelfth place from the end, and its other half.
        arcs = [(0, 0, 0, 0, 0.0), (0, 0, 1, 1, 0.0), (0, 1, 1, 1, 0.0)]
        arcs += [(n, n + 1, label, label, -0.5) for n in range(1, 12) for label in (0, 1)]
        graph = build(13, [0], list(range(13)), arcs)
    with pytest.raises(ValueError, match="at most max_nodes = 100 nodes, but it has more"):
        op(graph, max_nodes=100)
    with pytest.raises(ValueError, match="max_nodes must be 1 or more, but it is 0"):
        op(graph, max_nodes=0)


@pytest.mark.parametrize("op", [ag.synchronize, ag.epsilon_normalize, ag.disambiguate])
@pytest.mark.parametrize("semiring", ["log", "tropical"])
def test_empty_graphs(op, semiring):
    assert op(ag.Graph(), semiring=semiring).num_nodes() == 0
    empty = build(1, [0], [0], [])
    assert language(op(empty, semiring=semiring)) == {((), ()): 0.0}


@pytest.mark.parametrize("op", [ag.synchronize, ag.epsilon_normalize, ag.disambiguate])
def test_weights_must_be_numbers(op):
    with pytest.raises(ValueError, match="weights must be finite or -inf, but arc 0"):
        op(ag.chain_graph([1], weights=[math.nan]))


REMOVE_EPSILONS = {
    **{
        op.__name__: op
        for op in (
            *(ag.determinize, ag.disambiguate, ag.optimize, ag.synchronize),
            *(ag.epsilon_normalize, ag.remove),
        )
    },
    "equivalent": lambda graph: ag.equivalent(ag.chain_graph([1]), graph),
}


@pytest.mark.parametrize("name", REMOVE_EPSILONS)
def test_errors_of_removed_epsilons_begin_with_the_op(name):
    call = REMOVE_EPSILONS[name]
    with pytest.raises(ValueError, match=f"^{name}: weights must be finite or -inf, but arc 0"):
        call(ag.chain_graph([ag.epsilon], weights=[math.nan]))
    diverging = build(2, [0], [1], [(0, 0, ag.epsilon, ag.epsilon, 1.0), (0, 1, 1, 1, 0.0)])
    with pytest.raises(ValueError, match=f"^{name}: the sum over paths must converge"):
        call(diverging)


# encode and decode


def test_graphs_of_one_encoder_have_codes_in_common():
    encoder = ag.Encoder()
    first, second = ag.encode([ag.chain_graph([1, 2], [3, 4]), ag.chain_graph([2], [4])], encoder)
    assert first.labels_to_list() == [0, 1]
    assert second.labels_to_list() == [1]
    assert len(encoder) == 2
    assert repr(encoder) == "Encoder of 2 codes"


def test_encoded_weights_give_their_gradient_to_the_first_arc():
    graph = ag.chain_graph([5, 5, 6], weights=[1.0, 1.0, 2.0], calc_grad=True)
    encoder = ag.Encoder(weights=True)
    encoded = ag.encode(graph, encoder)
    assert encoded.weights_to_list() == [0.0] * 3
    (gradient,) = ag.grad(ag.forward_score(ag.decode(encoded, encoder)), [graph])
    assert gradient.weights_to_list() == [2.0, 0.0, 1.0]


def test_determinize_of_a_transducer_by_its_codes():
    graph = ag.union([ag.chain_graph([1, 2], [3, 4]), ag.chain_graph([1, 3], [3, 5])])
    encoder = ag.Encoder()
    out = ag.decode(ag.determinize(ag.encode(graph, encoder)), encoder)
    assert ag.equal(out, ag.determinize(graph))


def test_labels_that_are_no_codes():
    encoder = ag.Encoder()
    ag.encode(ag.chain_graph([1]), encoder)
    with pytest.raises(
        ValueError, match="codes of the encoder, which has 1, but arc 1 has label 7"
    ):
        ag.decode(ag.chain_graph([0, 7]), encoder)
    with pytest.raises(ValueError, match="must be the same code, but arc 0 has 0 and 1"):
        ag.decode(ag.chain_graph([0], [1]), encoder)
    with pytest.raises(ValueError, match="labels or weights must be encoded, but both are False"):
        ag.Encoder(labels=False)


COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    **{
        f"pickle {protocol}": lambda encoder, protocol=protocol: pickle.loads(
            pickle.dumps(encoder, protocol)
        )
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize(("labels", "weights"), [(True, False), (False, True), (True, True)])
def test_a_copy_of_an_encoder_has_the_same_codes(how, labels, weights):
    table = ag.SymbolTable(["a", "b", "c"])
    graph = ag.chain_graph([0, 1, 0, ag.epsilon], [1, 2, 2, ag.epsilon], weights=[0.1, 2, 0.1, -1])
    graph.isymbols = table
    encoder = ag.Encoder(labels, weights)
    encoded = ag.encode(graph, encoder)
    copied = COPIES[how](encoder)
    assert len(copied) == len(encoder)
    assert ag.equal(ag.encode(graph, copied), encoded)
    assert len(copied) == len(encoder)
    decoded = ag.decode(encoded, copied)
    assert ag.equal(decoded, graph)
    assert decoded.isymbols == table
    ag.encode(ag.chain_graph([2], [2]), copied)
    assert len(copied) == len(encoder) + 1


def test_gradients_flow_through_a_copy_of_an_encoder():
    graph = ag.chain_graph([5, 5, 6], weights=[1.0, 1.0, 2.0], calc_grad=True)
    encoder = ag.Encoder(weights=True)
    decoded = ag.decode(ag.encode(graph, encoder), copy.copy(encoder))
    (gradient,) = ag.grad(ag.forward_score(decoded), [graph])
    assert gradient.weights_to_list() == [2.0, 0.0, 1.0]
    assert len(pickle.loads(pickle.dumps(ag.Encoder()))) == 0
