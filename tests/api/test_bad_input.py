"""Invalid arguments raise an exception that names the op, the rule and the value."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import graphs
from tools import build, snapshot

import arcgrad as ag

REFUSALS = (ValueError, TypeError, OverflowError)

# `<op>: <rule>, but <value>`, with the element where there is a list.
FORMAT = re.compile(r"^\w+( \(element \d+ of \d+\))?: .+, but .+", re.DOTALL)


def refuse(call, *arguments, **options):
    """The call raises one of three types, and the message of a ValueError has the right format."""
    with pytest.raises(REFUSALS) as caught:
        call(*arguments, **options)
    return str(caught.value)


def assert_format(message, *parts):
    assert FORMAT.match(message), message
    for part in parts:
        assert str(part) in message, message


@pytest.fixture
def graph():
    return build(3, {0}, {2}, [(0, 1, 0, 0, 0.5), (1, 2, 1, 1, 0.25)])


BIG = [2**31, -(2**31) - 1, 2**63, 2**70, -(2**70)]
WRONG_NODES = [-1, 3, 100, 2**31 - 1, -(2**31)]


@pytest.mark.parametrize("node", WRONG_NODES)
@pytest.mark.parametrize(
    "method",
    ["is_start", "is_accept", "in_arcs", "out_arcs", "make_start", "make_accept"],
)
def test_invalid_node_ids(method, node, graph):
    before = snapshot(graph)
    assert_format(refuse(getattr(graph, method), node), method, 3, node)
    assert snapshot(graph) == before


@pytest.mark.parametrize("arc", [-1, 2, 100, 2**31 - 1])
@pytest.mark.parametrize("method", ["src_node", "dst_node", "ilabel", "olabel", "weight"])
def test_invalid_arc_ids(method, arc, graph):
    assert_format(refuse(getattr(graph, method), arc), method, 2, arc)


@pytest.mark.parametrize("arc", [-1, 2, 2**31 - 1])
def test_setting_the_weight_of_an_invalid_arc(arc, graph):
    assert_format(refuse(graph.set_weight, arc, 0.0), "set_weight", 2, arc)


@pytest.mark.parametrize("node", WRONG_NODES)
def test_arcs_between_invalid_nodes(node, graph):
    assert_format(refuse(graph.add_arc, node, 0, 0), "add_arc", 3, node)
    assert_format(refuse(graph.add_arc, 0, node, 0), "add_arc", 3, node)


@pytest.mark.parametrize("label", [-4, -100, -(2**31)])
def test_invalid_labels(label, graph):
    assert_format(refuse(graph.add_arc, 0, 1, label), "add_arc", label)
    assert_format(refuse(graph.add_arc, 0, 1, 0, label), "add_arc", label)
    assert_format(refuse(ag.chain_graph, [0, label]), "chain_graph", label)
    assert_format(refuse(ag.remove, graph, label), "remove", label)


@pytest.mark.parametrize("number", BIG)
def test_numbers_beyond_32_bits(number, graph):
    for call in (
        lambda: graph.add_arc(number, 0, 0),
        lambda: graph.add_arc(0, number, 0),
        lambda: graph.add_arc(0, 1, number),
        lambda: graph.add_arc(0, 1, 0, number),
        lambda: graph.is_start(number),
        lambda: graph.weight(number),
        lambda: ag.chain_graph([number]),
        lambda: ag.linear_graph(number, 1),
        lambda: ag.linear_graph(1, number),
        lambda: ag.remove(graph, number),
        lambda: ag.Graph.from_arrays([number], [0], [0], start=[0], accept=[0]),
        lambda: ag.Graph.from_arrays([0], [number], [0], start=[0], accept=[0]),
        lambda: ag.Graph.from_arrays([0], [0], [number], start=[0], accept=[0]),
        lambda: ag.Graph.from_arrays([0], [0], [0], [number], start=[0], accept=[0]),
        lambda: ag.Graph.from_arrays([0], [0], [0], start=[number], accept=[0]),
        lambda: ag.Graph.from_arrays([0], [0], [0], start=[0], accept=[0], num_nodes=number),
        lambda: ag.set_num_threads(number),
    ):
        refuse(call)
    assert graph.num_arcs() == 2


@pytest.mark.parametrize("labels", [3, "ab", [[0, 1]], [None], object(), {0: 1}])
def test_labels_of_a_chain_are_a_list_of_integers(labels):
    assert "chain_graph: labels must" in refuse(ag.chain_graph, labels)


def arrays(**changes):
    good = {
        "src": [0, 1],
        "dst": [1, 2],
        "ilabel": [0, 1],
        "olabel": [0, 1],
        "weight": [0.0, 1.0],
        "start": [0],
        "accept": [2],
        "num_nodes": 3,
    }
    return good | changes


def test_a_start_or_accept_node_without_arcs_needs_the_number_of_nodes():
    arcs = {"src": [0, 1], "dst": [1, 2], "ilabel": [0, 0]}
    for ends in ({"start": [0], "accept": [7]}, {"start": [7], "accept": [2]}):
        message = refuse(ag.Graph.from_arrays, **arcs, **ends)
        assert_format(message, "from_arrays", "3 nodes", 7, "num_nodes")
        assert ag.Graph.from_arrays(**arcs, **ends, num_nodes=8).num_nodes() == 8
    assert ag.Graph.from_arrays([], [], [], start=[0], accept=[0]).num_nodes() == 1


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"src": [0, 3]}, ("src", "arc 1", 3)),
        ({"src": [-1, 0]}, ("src", "arc 0", -1)),
        ({"dst": [0, 5]}, ("dst", "arc 1", 5)),
        ({"ilabel": [0, -4]}, ("ilabel", "arc 1", -4)),
        ({"olabel": [-9, 0]}, ("olabel", "arc 0", -9)),
        ({"start": [3]}, ("start", 3)),
        ({"start": [-1]}, ("start", -1)),
        ({"accept": [0, 7]}, ("accept", 7)),
        ({"src": [0]}, ("olabel", 1, 2)),
        ({"dst": [0]}, ("dst", 1)),
        ({"ilabel": [0, 1, 2]}, ("ilabel", 3)),
        ({"olabel": [0]}, ("olabel", 1)),
        ({"olabel": []}, ("olabel", 0)),
        ({"weight": [0.0]}, ("weight", 1)),
        ({"weight": []}, ("weight", 0)),
        ({"num_nodes": 2}, ("dst", 2)),
        ({"num_nodes": -1}, ("num_nodes", -1)),
    ],
)
def test_invalid_graph_arrays(changes, parts):
    assert ag.Graph.from_arrays(**arrays()).num_arcs() == 2
    assert_format(refuse(ag.Graph.from_arrays, **arrays(**changes)), "from_arrays", *parts)


@pytest.mark.parametrize(
    "changes",
    [
        {"src": [0.0, 1.0]},
        {"src": [0.5, 1.0]},
        {"src": ["0", "1"]},
        {"src": [None, 1]},
        {"src": None},
        {"dst": np.zeros((2, 1), np.int32)},
        {"ilabel": np.zeros((1, 2), np.int32)},
        {"ilabel": np.array([True, False])},
        {"weight": ["a", "b"]},
        {"weight": [1j, 0.0]},
        {"weight": np.zeros((2, 2))},
        {"weight": [None, 0.0]},
        {"start": 0},
        {"start": [0.5]},
        {"accept": "2"},
        {"num_nodes": 2.5},
        {"num_nodes": "3"},
        {"dtype": "int32"},
        {"dtype": "float16"},
        {"dtype": "nonsense"},
        {"src": [[0], [1, 2]]},
        {"src": {0: 1}},
        {"src": np.array([0, 2**40])},
        {"src": np.array([0, 2**63], np.uint64)},
    ],
)
def test_arrays_of_wrong_types_or_shapes(changes):
    refuse(ag.Graph.from_arrays, **arrays(**changes))


def test_label_arrays_that_would_wrap_around():
    for bad in (np.array([0, 2**32]), np.array([0, 2**32 - 1], np.uint32), [0, 2**32]):
        refuse(ag.Graph.from_arrays, **arrays(ilabel=bad))


@pytest.mark.parametrize(
    "bad",
    [
        [0.0],
        [0.0] * 3,
        [],
        np.zeros((2, 2)),
        np.zeros(1),
        0.0,
        None,
        "ab",
        [None, None],
        [1j, 0j],
        ["a", "b"],
        {"a": 1},
        object(),
        [[0.0], [1.0, 2.0]],
        np.array(["a", "b"]),
        np.zeros(2, object),
        np.zeros(2, complex),
    ],
)
def test_weights_of_the_wrong_length_or_type(bad, graph):
    before = snapshot(graph)
    refuse(graph.set_weights, bad)
    assert snapshot(graph) == before


@pytest.mark.parametrize("length", [0, 1, 3, 1000])
def test_the_length_of_weights_is_named(length, graph):
    assert_format(refuse(graph.set_weights, np.zeros(length)), "set_weights", 2, length)


def test_huge_sizes_fail_before_memory_does():
    assert_format(refuse(ag.linear_graph, 2**30, 2**30), "linear_graph", 2**60)
    assert_format(refuse(ag.linear_graph, 2**31 - 1, 1), "linear_graph", "2147483648")
    assert_format(refuse(ag.linear_graph, -1, 5), "linear_graph", -1)
    assert_format(refuse(ag.linear_graph, 5, -1), "linear_graph", -1)


def test_weights_of_linear_graphs_of_wrong_shape():
    for bad in (np.zeros((2, 3)), np.zeros(5), np.zeros((6, 1, 1)), np.zeros((0, 0)), [[0.0] * 2]):
        refuse(ag.linear_graph, 3, 2, bad)
        refuse(ag.linear_graph, 3, 2, bad, copy=False)


JUNK = [None, 1, 2.5, "graph", b"graph", [1], [None], {1: 2}, object(), np.zeros(3), [[[1]]]]
UNARY = [
    ag.forward_score,
    ag.viterbi_score,
    ag.viterbi_path,
    ag.shortest_distance,
    ag.arc_posteriors,
    ag.closure,
    ag.negate,
    ag.clone,
    ag.project_input,
    ag.project_output,
    ag.invert,
    ag.reverse,
    ag.connect,
    ag.remove,
    ag.arc_sort,
    ag.top_sort,
    ag.sample,
    ag.backward,
    ag.union,
    ag.concat,
]
BINARY = [ag.compose, ag.intersect, ag.add, ag.subtract, ag.equal, ag.isomorphic]


@pytest.mark.parametrize("op", UNARY, ids=lambda op: op.__name__)
def test_ops_reject_arguments_that_are_not_graphs(op):
    answers = {}
    for junk in JUNK:
        try:
            answers[repr(junk)] = op(junk)
        except TypeError:
            continue
        except Exception as error:
            answers[repr(junk)] = error
    assert not answers, f"no TypeError, but these answers: {answers}"


@pytest.mark.parametrize("op", BINARY, ids=lambda op: op.__name__)
def test_binary_ops_reject_arguments_that_are_not_graphs(op, graph):
    for junk in (None, 1, "graph", [1], [graph, None], object()):
        with pytest.raises(TypeError):
            op(graph, junk)
        with pytest.raises(TypeError):
            op(junk, graph)
    with pytest.raises(TypeError):
        op(graph)
    with pytest.raises(TypeError):
        op()


@pytest.mark.parametrize("op", [ag.shortest_distance, ag.arc_posteriors, ag.remove])
@pytest.mark.parametrize("semiring", ["", "LOG", "max", "log ", "\0log"])
def test_unknown_semirings(op, semiring, graph):
    assert_format(refuse(op, graph, semiring=semiring), op.__name__, "semiring")
    with pytest.raises(TypeError):
        op(graph, semiring=3)
    with pytest.raises(TypeError):
        op(graph, semiring=None)


@pytest.mark.parametrize("number", [0, -1, -100, 10**6])
def test_wrong_numbers_of_threads(number):
    before = ag.get_num_threads()
    assert_format(refuse(ag.set_num_threads, number), "set_num_threads", number)
    assert ag.get_num_threads() == before
    for junk in (None, 1.5, "2"):
        with pytest.raises(TypeError):
            ag.set_num_threads(junk)


def test_wrong_dtypes():
    for bad in ("int32", "float16", "double precision", np.int64, complex, "", 3):
        with pytest.raises((TypeError, ValueError)):
            ag.Graph(dtype=bad)
        with pytest.raises((TypeError, ValueError)):
            ag.scalar_graph(0.0, dtype=bad)


def test_wrong_sample_arguments(graph):
    assert_format(refuse(ag.sample, graph, -1, seed=0), "sample", "n must", -1)
    assert_format(refuse(ag.sample, graph, max_length=-1), "sample", "max_length", -1)
    for options in ({"seed": "a"}, {"seed": 1.5}, {"max_length": "a"}):
        with pytest.raises(TypeError):
            ag.sample(graph, **options)


@pytest.mark.parametrize("seed", [-1, 2**64, 2**70])
def test_a_seed_has_64_bits(seed, graph):
    for op, arguments in ((ag.sample, [graph]), (ag.sample, [[graph]])):
        assert_format(refuse(op, *arguments, seed=seed), "sample", "the seed", seed)
    message = refuse(ag.rand_equivalent, graph, graph, seed=seed)
    assert_format(message, "rand_equivalent", "the seed", seed)
    ag.sample(graph, seed=2**64 - 1)
    ag.sample(graph, seed=np.int64(3))


def test_a_list_with_an_element_that_is_not_a_graph(graph):
    for op in (ag.forward_score, ag.remove, ag.sample, ag.arc_posteriors, ag.backward, ag.explain):
        with pytest.raises(TypeError) as caught:
            op([graph, None])
        assert_format(str(caught.value), f"{op.__name__} (element 1 of 2)", "a Graph", "None")
    for op in (ag.intersect, ag.add, ag.sequence_loss, ag.beam_search, ag.outer_score, ag.grad):
        for arguments in (([graph, graph, "a"], graph), ([graph], [graph, graph, "a"])):
            with pytest.raises(TypeError) as caught:
                op(*arguments)
            assert_format(str(caught.value), f"{op.__name__} (element 2 of 3)", "a Graph", "str")
    with pytest.raises(TypeError, match=r"hvp \(element 0 of 1\): inputs must be a Graph"):
        ag.hvp(graph, [3], [graph])
    with pytest.raises(TypeError, match=r"best_paths \(element 0 of 1\): graph must be a Graph"):
        ag.best_paths([3], 1)


def test_the_label_that_is_too_large_is_named(graph):
    assert "the input label" in refuse(graph.add_arc, 0, 1, 2**31)
    assert "the output label" in refuse(graph.add_arc, 0, 1, 0, 2**31)


def test_none_is_rejected_as_an_array(graph):
    with pytest.raises(TypeError, match=r"set_weights: weights must be array-like, but .* None"):
        graph.set_weights(None)
    for name in ("src", "dst", "ilabel", "start", "accept"):
        with pytest.raises(TypeError, match=f"from_arrays: {name} must be array-like, but .* None"):
            ag.Graph.from_arrays(**arrays(**{name: None}))


def test_numpy_errors_are_reported_in_one_line(graph):
    class Array:
        def __array__(self, dtype=None, copy=None):
            raise TypeError("not today")

    with pytest.raises(TypeError, match=r"^set_weights: .*, but NumPy says: not today$"):
        graph.set_weights(Array())


def test_text_that_utf8_cannot_encode():
    with pytest.raises(TypeError, match=r"chain_graph: labels must be .*, but it is \\ud800"):
        ag.chain_graph("\ud800")
    for dtype in ("\ud800", "nonsense"):
        with pytest.raises(TypeError, match=r"Graph: the dtype must be .*, but it is '"):
            ag.Graph(dtype=dtype)


def test_wrong_grad_arguments(graph):
    score = ag.forward_score(graph)
    for call in (
        lambda: ag.grad(score, None),
        lambda: ag.grad(None, graph),
        lambda: ag.grad(score, [graph, None]),
        lambda: ag.grad(score, graph, 1.0),
        lambda: ag.hvp(score, graph, None),
        lambda: ag.hvp(score, graph, "abc"),
        lambda: ag.backward(score, 3),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_lists_of_lengths_that_do_not_match(graph):
    assert_format(refuse(ag.compose, [graph] * 2, [graph] * 3), "compose", 2, 3)
    assert_format(refuse(ag.add, [graph] * 4, [graph] * 3), "add", 4, 3)


def test_a_bad_element_is_named(graph):
    bad = build(2, {0}, {1}, [(0, 1, 0, 0, math.nan)])
    message = refuse(ag.forward_score, [graph] * 5 + [bad] + [graph] * 2)
    assert_format(message, "forward_score (element 5 of 8)", "arc 0")


number = st.one_of(
    st.integers(-3, 5),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=True),
    st.none(),
    st.text(max_size=3),
    st.booleans(),
    st.lists(st.integers(-2, 3), max_size=3),
)


@given(st.lists(number, max_size=6))
def test_any_arc_is_added_or_refused(arguments):
    graph = build(3, {0}, {2}, [(0, 1, 0, 0, 0.5)])
    try:
        graph.add_arc(*arguments)
    except REFUSALS:
        assert graph.num_arcs() == 1
    assert ag.clone(graph).num_arcs() == graph.num_arcs()


@given(
    st.lists(st.integers(-2, 4), max_size=4),
    st.lists(st.integers(-2, 4), max_size=4),
    st.lists(st.integers(-3, 4), max_size=4),
    st.lists(st.floats(), max_size=4),
    st.lists(st.integers(-1, 4), max_size=2),
    st.one_of(st.none(), st.integers(-1, 5)),
)
def test_any_arrays_build_a_graph_or_are_refused(src, dst, ilabel, weight, start, num_nodes):
    try:
        graph = ag.Graph.from_arrays(
            src, dst, ilabel, weight=weight or None, start=start, accept=start, num_nodes=num_nodes
        )
    except ValueError as error:
        assert_format(str(error), "from_arrays")
    else:
        assert graph.num_arcs() == len(src) == len(dst) == len(ilabel)
        assert all(0 <= n < graph.num_nodes() for n in [*src, *dst, *start])
        assert ag.clone(graph).num_arcs() == len(src)


@given(graphs(), st.lists(st.floats(width=32), max_size=10))
def test_scoring_any_weights_gives_a_number_or_is_refused(graph, values):
    values = (values + [0.0] * graph.num_arcs())[: graph.num_arcs()]
    graph.set_weights(values)
    for op in (ag.forward_score, ag.viterbi_score):
        try:
            score = op(graph)
        except ValueError as error:
            assert_format(str(error), op.__name__, "arc")
            assert any(math.isnan(v) or v == math.inf for v in values)
        else:
            assert not math.isnan(score.item())
            assert np.all(np.isfinite(ag.grad(score, graph).weights_to_numpy()))


def test_methods_refuse_wrong_types(graph):
    for call in (
        lambda: graph.add_node("yes"),
        lambda: graph.add_node(True, False, True),
        lambda: graph.is_start("0"),
        lambda: graph.is_start(0.0),
        lambda: graph.weight(None),
        lambda: graph.set_weight(0, "a"),
        lambda: graph.set_weight(0),
        lambda: graph.labels_to_list(3),
        lambda: ag.Graph(3),
        lambda: ag.Graph("yes"),
        lambda: ag.Graph(True, "float32"),
        lambda: ag.chain_graph([0.5]),
        lambda: ag.scalar_graph("1"),
        lambda: ag.scalar_graph(None),
    ):
        with pytest.raises(TypeError):
            call()


def test_numpy_booleans_are_booleans(graph):
    yes, no = np.bool_(True), np.int64(1) == np.int64(0)
    node = graph.add_node(yes, accept=no)
    assert (graph.is_start(node), graph.is_accept(node)) == (True, False)
    graph.calc_grad = no
    assert not graph.calc_grad
    assert (ag.Graph(yes).calc_grad, ag.Graph(no).calc_grad) == (True, False)
    assert not ag.linear_graph(1, 1, calc_grad=no).calc_grad
    assert ag.equal(ag.arc_sort(graph, yes), ag.arc_sort(graph, True))
    ag.backward(ag.forward_score(ag.linear_graph(1, 2)), retain_graph=yes)
    for junk in (np.int64(1), np.array(True), 1, "yes", None):
        with pytest.raises(TypeError):
            graph.add_node(junk)
        with pytest.raises(TypeError, match="Graph: calc_grad must be True or False, but it is"):
            graph.calc_grad = junk
    assert graph.num_nodes() == 4


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**70)])
def test_numbers_beyond_64_bits(number, graph):
    assert_format(refuse(ag.best_paths, graph, number), "best_paths", number)
    assert_format(refuse(ag.set_history_limit, number), "set_history_limit", number)
