"""Building graphs, their accessors and views, copies, and their weights."""

import copy
import math
import pickle

import numpy as np
import pytest
from tools import acceptor, build, build_from_arrays, snapshot

import arcgrad as ag

ARCS = [(0, 1, 4, 5, 0.5), (1, 2, 6, -1, -1.25), (0, 2, -1, 7, -math.inf), (1, 2, 6, 6, 2.0)]


@pytest.fixture(params=["float32", "float64"])
def graph(request):
    return build(4, {0, 3}, {2}, ARCS, dtype=request.param)


# Building


def test_a_new_graph_is_empty():
    graph = ag.Graph()
    assert (graph.num_nodes(), graph.num_arcs(), graph.num_start(), graph.num_accept()) == (0,) * 4
    assert graph.dtype == np.float32
    assert graph.calc_grad


def test_nodes_and_arcs_are_numbered_from_zero():
    graph = ag.Graph()
    assert [graph.add_node(), graph.add_node(True), graph.add_node(accept=True)] == [0, 1, 2]
    assert [graph.add_arc(0, 1, 3), graph.add_arc(1, 2, 3, 4, 0.5)] == [0, 1]


def test_an_arc_has_equal_labels_by_default():
    graph = build(2, {0}, {1}, [(0, 1, 3)])
    assert (graph.ilabel(0), graph.olabel(0), graph.weight(0)) == (3, 3, 0.0)
    assert graph.is_acceptor()
    graph.add_arc(0, 1, 3, 4)
    assert not graph.is_acceptor()
    assert graph.olabels().tolist() == [3, 4]
    graph.add_arc(0, 1, 5, weight=0.5)
    assert graph.olabels().tolist() == [3, 4, 5]


def test_nodes_can_be_marked_later():
    graph = build(3, {2}, {0}, [])
    graph.make_start(0)
    graph.make_start(0)
    graph.make_accept(2)
    assert (graph.start().tolist(), graph.accept().tolist()) == ([0, 2], [0, 2])


def test_arrays_and_single_arcs_build_the_same_graph(graph):
    twin = build_from_arrays(4, {0, 3}, {2}, ARCS, dtype=str(graph.dtype))
    assert snapshot(twin) == snapshot(graph)


def test_from_arrays_takes_lists_and_fills_in_the_rest():
    graph = ag.Graph.from_arrays([0, 1], [1, 2], [5, 6], start=[0], accept=[2])
    assert (graph.num_nodes(), graph.dtype) == (3, np.float32)
    assert graph.olabels().tolist() == [5, 6]
    assert graph.weights_to_list() == [0.0, 0.0]
    assert graph.calc_grad


def test_from_arrays_chooses_the_dtype_from_the_weights():
    def dtype(**options):
        return ag.Graph.from_arrays([0], [1], [5], start=[0], accept=[1], **options).dtype

    assert dtype(weight=np.zeros(1, np.float64)) == np.float64
    assert dtype(weight=np.zeros(1, np.float32)) == np.float32
    assert dtype(weight=np.zeros(1, np.float64), dtype="float32") == np.float32
    assert dtype(dtype=np.float64) == np.float64


def test_from_arrays_counts_the_nodes_of_arcs_and_without_arcs_those_of_starts():
    assert ag.Graph.from_arrays([], [], [], start=[], accept=[]).num_nodes() == 0
    assert ag.Graph.from_arrays([], [], [], start=[], accept=[], num_nodes=4).num_nodes() == 4
    assert ag.Graph.from_arrays([0], [5], [2], start=[3], accept=[5]).num_nodes() == 6
    assert ag.Graph.from_arrays([], [], [], start=[3], accept=[5]).num_nodes() == 6


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(">f8", "float64"), ("g", "float64"), (">f4", "float32"), ("e", "float32"), ("i8", "float32")],
)
def test_weights_of_more_than_32_bits_make_float64_graphs(kind, expected):
    value = 1.0 if kind in ("e", "i8") else np.array(0.1, expected)
    weight = np.array([value], kind)
    for graph in (
        ag.Graph.from_arrays([0], [1], [0], weight=weight, start=[0], accept=[1]),
        ag.chain_graph([0], weights=weight),
        ag.linear_graph(1, 1, weight),
        ag.linear_graphs(weight.reshape(1, 1, 1))[0],
    ):
        assert graph.dtype == expected
        assert graph.weights_to_list() == [value]


def test_from_arrays_accepts_any_integer_dtype_and_strides():
    base = np.array([0, 9, 1, 9, 0, 9], np.int64)
    for dtype in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32):
        src = base.astype(dtype)[::2]
        graph = ag.Graph.from_arrays(src, src + 1, src, start=[0], accept=[2])
        assert graph.src_nodes().tolist() == [0, 1, 0]


def test_from_arrays_copies():
    src, weight = np.array([0, 0], np.int32), np.array([1.0, 2.0])
    graph = ag.Graph.from_arrays(src, [1, 1], [0, 1], weight=weight, start=[0], accept=[1])
    src[0], weight[0] = 7, 7.0
    assert graph.src_nodes().tolist() == [0, 0]
    assert graph.weights_to_list() == [1.0, 2.0]


def test_from_arrays_sorts_starts_and_drops_repeats():
    graph = ag.Graph.from_arrays([], [], [], start=[2, 0, 2], accept=[1], num_nodes=3)
    assert graph.start().tolist() == [0, 2]
    assert graph.num_start() == 2


@pytest.mark.parametrize("dtype", ["float32", "float64", np.float32, np.dtype("float64"), float])
def test_dtypes_may_be_names_or_numpy_types(dtype):
    assert ag.Graph(dtype=dtype).dtype == np.dtype(dtype)


# Accessors


def test_every_accessor(graph):
    assert (graph.num_nodes(), graph.num_arcs()) == (4, 4)
    assert (graph.num_start(), graph.num_accept()) == (2, 1)
    assert (graph.start().tolist(), graph.accept().tolist()) == ([0, 3], [2])
    assert [graph.is_start(n) for n in range(4)] == [True, False, False, True]
    assert [graph.is_accept(n) for n in range(4)] == [False, False, True, False]
    assert graph.src_nodes().tolist() == [0, 1, 0, 1]
    assert graph.dst_nodes().tolist() == [1, 2, 2, 2]
    assert graph.ilabels().tolist() == graph.labels_to_list() == [4, 6, -1, 6]
    assert graph.olabels().tolist() == graph.labels_to_list(ilabel=False) == [5, -1, 7, 6]
    assert graph.weights_to_list() == [0.5, -1.25, -math.inf, 2.0]
    for a, arc in enumerate(ARCS):
        assert (graph.src_node(a), graph.dst_node(a)) == arc[:2]
        assert (graph.ilabel(a), graph.olabel(a), graph.weight(a)) == arc[2:]
    assert [graph.out_arcs(n).tolist() for n in range(4)] == [[0, 2], [1, 3], [], []]
    assert [graph.in_arcs(n).tolist() for n in range(4)] == [[], [0], [1, 2, 3], []]


def test_arcs_returns_five_arrays(graph):
    src, dst, ilabel, olabel, weight = graph.arcs()
    assert list(zip(*(a.tolist() for a in (src, dst, ilabel, olabel, weight)), strict=True)) == ARCS
    assert src.dtype == dst.dtype == ilabel.dtype == olabel.dtype == np.int32
    assert weight.dtype == graph.dtype


def test_cycles_are_detected():
    assert ag.Graph().is_acyclic()
    assert build(2, {0}, {1}, [(0, 1, 0), (0, 1, 0)]).is_acyclic()
    assert not build(1, {0}, {0}, [(0, 0, 0)]).is_acyclic()
    assert not build(3, set(), set(), [(0, 1, 0), (1, 2, 0), (2, 0, 0)]).is_acyclic()


def test_item_needs_exactly_one_arc():
    assert ag.scalar_graph(2.5).item() == 2.5
    assert isinstance(ag.scalar_graph(2.5).item(), float)
    for count in (0, 2):
        with pytest.raises(ValueError, match=rf"item: .*one arc, but it has {count}"):
            build(2, {0}, {1}, [(0, 1, 0)] * count).item()


def test_repr_shows_size_and_content(graph):
    text = repr(graph)
    for part in ("4 nodes", "4 arcs", str(graph.dtype), "0.5", "-1.25"):
        assert part in text


def test_repr_of_a_large_graph_is_short():
    assert len(repr(ag.linear_graph(10_000, 1000))) < 2000
    assert len(repr(ag.chain_graph([0] * 100_000))) < 2000


def test_repr_of_special_graphs():
    assert "0 nodes" in repr(ag.Graph())
    assert "nan" in repr(ag.scalar_graph(math.nan)).lower()


# Views


@pytest.mark.parametrize(
    "view",
    [
        ag.Graph.src_nodes,
        ag.Graph.dst_nodes,
        ag.Graph.ilabels,
        ag.Graph.olabels,
        ag.Graph.start,
        ag.Graph.accept,
        ag.Graph.weights_view,
    ],
)
def test_views_are_read_only(view, graph):
    array = view(graph)
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True


def test_views_copy_nothing(graph):
    for view in (ag.Graph.src_nodes, ag.Graph.ilabels, ag.Graph.olabels, ag.Graph.weights_view):
        assert view(graph).ctypes.data == view(graph).ctypes.data
    big = ag.linear_graph(100, 100)
    assert big.weights_view().ctypes.data == big.weights_view().ctypes.data


def test_views_outlive_their_graph():
    views = []
    for _ in range(100):
        graph = ag.linear_graph(50, 40, np.arange(2000.0).reshape(50, 40))
        views.append((graph.weights_view(), graph.src_nodes(), graph.out_arcs(3)))
    del graph
    for weights, src, out in views:
        assert weights[49, 39] == 1999.0
        assert src[-1] == 49
        assert out.tolist() == list(range(120, 160))


def test_a_view_keeps_the_weights_it_was_taken_of(graph):
    view, before = graph.weights_view(), graph.weights_to_list()
    graph.set_weights([1.0, 2.0, 3.0, 4.0])
    assert view.tolist() == before
    view = graph.weights_view()
    graph.set_weight(0, 9.0)
    graph.add_arc(0, 1, 1)
    assert view.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert graph.weights_to_list() == [9.0, 2.0, 3.0, 4.0, 0.0]


def test_weights_to_numpy_is_a_copy(graph):
    array = graph.weights_to_numpy()
    array[0] = 77.0
    assert graph.weight(0) == 0.5
    assert array.dtype == graph.dtype


def test_weights_of_a_linear_graph_are_viewed_as_a_matrix():
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph = ag.linear_graph(3, 2, values)
    assert graph.weights_view().shape == (3, 2)
    assert graph.weights_view().tolist() == values.tolist()
    assert graph.weights_to_list() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


# Weights


@pytest.mark.parametrize("kind", [list, tuple, np.array, np.float32, np.float64, np.int64])
def test_set_weights_takes_what_numpy_takes(kind, graph):
    values = [1, 2, 3, 4]
    graph.set_weights(kind(values) if kind in (list, tuple, np.array) else np.array(values, kind))
    assert graph.weights_to_list() == [1.0, 2.0, 3.0, 4.0]


def test_set_weights_takes_any_shape_and_copies():
    graph = ag.linear_graph(3, 2)
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    graph.set_weights(values)
    values[:] = -1
    assert graph.weights_to_list() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    graph.set_weights(np.arange(6.0)[::-1])
    assert graph.weights_to_list() == [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]
    graph.set_weights(np.arange(6.0).reshape(2, 3).T)
    assert graph.weights_to_list() == [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]


def test_infinities_and_nan_are_stored(graph):
    graph.set_weights([math.inf, -math.inf, math.nan, 0.0])
    stored = graph.weights_to_list()
    assert stored[:2] == [math.inf, -math.inf]
    assert math.isnan(stored[2])


STRIDED = [
    pytest.param(lambda a: a, id="contiguous"),
    pytest.param(lambda a: np.asfortranarray(a), id="fortran order"),
    pytest.param(lambda a: np.repeat(a, 2, 0)[::2], id="every second row"),
    pytest.param(lambda a: np.repeat(a, 3, 1)[:, ::3], id="every third column"),
    pytest.param(lambda a: a[::-1, ::-1].copy()[::-1, ::-1], id="negative strides"),
    pytest.param(lambda a: np.stack([a, a], 2)[:, :, 0], id="slice of a larger array"),
]


@pytest.mark.parametrize("arrange", STRIDED)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_borrowed_emissions_of_any_strides(arrange, dtype):
    values = np.random.default_rng(0).normal(size=(5, 3)).astype(dtype)
    array = arrange(values)
    assert np.array_equal(array, values)
    borrowed = ag.linear_graph(5, 3, array, copy=False)
    owned = ag.linear_graph(5, 3, values)
    assert borrowed.dtype == np.dtype(dtype)
    assert borrowed.weights_to_list() == owned.weights_to_list()
    assert np.array_equal(borrowed.weights_view(), values)
    assert [borrowed.weight(a) for a in range(15)] == owned.weights_to_list()
    assert ag.forward_score(borrowed).item() == ag.forward_score(owned).item()
    target = acceptor((0, 1, 2, 1, 0), dtype=str(values.dtype))
    scores = [ag.forward_score(ag.intersect(target, e)).item() for e in (borrowed, owned)]
    assert scores[0] == scores[1]
    gradient, expected = (ag.grad(ag.forward_score(e), e) for e in (borrowed, owned))
    assert gradient.weights_to_list() == expected.weights_to_list()
    assert ag.equal(borrowed, owned)


def test_borrowing_takes_no_copy_and_no_write_access():
    values = np.zeros((4, 3), np.float32)
    values.flags.writeable = False
    graph = ag.linear_graph(4, 3, values, copy=False)
    assert graph.weights_view().ctypes.data == values.ctypes.data
    assert not graph.weights_view().flags.writeable


def test_setting_weights_does_not_write_to_a_borrowed_buffer():
    values = np.zeros((2, 2))
    graph = ag.linear_graph(2, 2, values, copy=False)
    graph.set_weight(0, 3.0)
    assert values[0, 0] == 0.0
    graph.set_weights([1.0, 2.0, 3.0, 4.0])
    assert not values.any()


def test_borrowing_needs_a_float_array():
    for dtype in (np.int32, np.float16, np.complex64):
        with pytest.raises(ValueError, match=r"linear_graph: .*float32 or float64, but .*"):
            ag.linear_graph(1, 2, np.zeros((1, 2), dtype), copy=False)
    with pytest.raises(ValueError, match=r"linear_graph: .*, but there are none"):
        ag.linear_graph(1, 2, copy=False)


# Operators and copies


def test_the_only_operators_are_union_and_composition(graph):
    assert snapshot(graph + graph) == snapshot(ag.union([graph, graph]))
    assert snapshot(graph @ graph) == snapshot(ag.compose(graph, graph))
    for operator in ("__sub__", "__mul__", "__neg__", "__truediv__", "__or__"):
        assert not hasattr(graph, operator)
    with pytest.raises(TypeError):
        graph + 1
    with pytest.raises(TypeError):
        graph @ [graph]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol, graph):
    graph.calc_grad = False
    twin = pickle.loads(pickle.dumps(graph, protocol))
    assert snapshot(twin) == snapshot(graph)
    assert not twin.calc_grad


def test_pickle_keeps_calc_grad_and_linear_graphs():
    graph = ag.linear_graph(3, 2, np.arange(6.0).reshape(3, 2))
    twin = pickle.loads(pickle.dumps(graph))
    assert twin.calc_grad
    assert twin.weights_view().shape == (3, 2)
    assert snapshot(twin) == snapshot(graph)


def test_copies_are_new_leaves(graph):
    for twin in (copy.copy(graph), copy.deepcopy(graph)):
        assert snapshot(twin) == snapshot(graph)
        assert twin.calc_grad == graph.calc_grad
        twin.set_weight(0, 99.0)
        twin.add_node()
        assert graph.weight(0) == 0.5
        assert graph.num_nodes() == 4


def test_deepcopy_keeps_shared_graphs_shared(graph):
    first, second = copy.deepcopy([graph, graph])
    assert first is second


@pytest.mark.parametrize("alias", [ag.Graph.detach, ag.negate])
@pytest.mark.parametrize("num_arcs", [70, 70_000])
def test_a_graph_with_aliases_copies_its_arrays_before_it_grows(alias, num_arcs):
    graph = ag.Graph(calc_grad=False)
    graph.add_node(start=True)
    graph.add_node(accept=True)
    for _ in range(num_arcs):
        graph.add_arc(0, 1, 0)
    shared = alias(graph)
    graph.set_weight(0, 0.0)
    for _ in range(num_arcs):
        graph.add_arc(0, 1, 0, 0, 1.0)
        graph.set_weight(1, 0.0)
    assert set(shared.weights_to_list()) == {0.0}
    assert graph.weights_to_list() == [0.0] * num_arcs + [1.0] * num_arcs


def test_graphs_without_starts_accepts_or_arcs_are_valid_arguments():
    # Graphs without starts, accepts or arcs are ordinary: nothing is accepted.
    for graph in (ag.Graph(), build(3, set(), set(), []), build(2, {0}, set(), [(0, 1, 0)])):
        assert ag.forward_score(graph).item() == -math.inf
        assert ag.viterbi_path(graph).num_nodes() == 0
        assert ag.compose(graph, acceptor((0,))).num_nodes() == 0


# Arc order


def test_arc_sort_does_not_change_what_accessors_return(graph):
    before = snapshot(graph)
    graph.mark_arc_sorted()
    graph.mark_arc_sorted(olabel=True)
    assert snapshot(graph) == before
    graph.arc_sort()
    graph.arc_sort(olabel=True)
    assert snapshot(graph) == before


def test_detach_shares_structure_and_weights(graph):
    twin = graph.detach()
    assert snapshot(twin) == snapshot(graph)
    assert twin.weights_view().ctypes.data == graph.weights_view().ctypes.data
    twin.add_arc(0, 1, 1)
    graph.add_arc(0, 2, 2, 3, 4.0)
    assert twin.weights_to_list()[4:] == [0.0]
    assert graph.weights_to_list()[4:] == [4.0]


def test_graphs_hash_by_identity_and_compare_by_equal(graph):
    assert hash(graph) == hash(graph)
    assert len({graph, copy.copy(graph)}) == 2


def test_building_a_long_graph_arc_by_arc_is_linear():
    graph = ag.Graph()
    graph.add_node(True)
    for node in range(50_000):
        graph.add_node(accept=node == 49_999)
        graph.add_arc(node, node + 1, 0, 0, 1.0)
    assert ag.forward_score(graph).item() == 50_000.0


def test_iteration_gives_the_arcs_by_name():
    graph = ag.Graph.from_arrays(
        [0, 0, 1], [1, 1, 2], [3, 4, -1], [5, 4, 6], weight=[0.5, -1.0, 2.0], start=[0], accept=[2]
    )
    assert len(graph) == len(list(graph)) == graph.num_arcs()
    assert list(graph) == [(0, 1, 3, 5, 0.5), (0, 1, 4, 4, -1.0), (1, 2, -1, 6, 2.0)]
    assert next(iter(graph)) == ag.Arc(src=0, dst=1, ilabel=3, olabel=5, weight=0.5)
    product = ag.intersect(ag.tokens.ctc_graph([1]), ag.linear_graph(3, 2))
    assert [arc.src for arc in product] == product.src_nodes().tolist()


def test_a_long_graph_is_iterated_in_blocks():
    graph = ag.linear_graph(3, 5000, np.arange(15000))
    assert [arc.weight for arc in graph] == graph.weights_to_list()
    arcs = iter(graph)
    next(arcs)
    graph.set_weights(np.zeros(15000))
    assert [arc.weight for arc in arcs][-1] == 14999.0


def test_a_graph_without_arcs_is_true():
    graph = ag.Graph()
    assert len(graph) == 0
    assert list(graph) == []
    assert graph


def test_arcs_of_nodes_are_right_while_the_graph_grows():
    rng = np.random.default_rng(0)
    graph, ends = ag.Graph(), []
    graph.add_node(start=True)
    for _ in range(300):
        step = rng.integers(0, 6)
        if step == 0:
            graph.add_node(accept=True)
        elif step == 1 and ends:
            ag.forward_score(ag.top_sort(graph))  # derives values from the structure
        else:
            src, dst = sorted(rng.integers(0, graph.num_nodes(), 2).tolist())
            if src < dst:
                graph.add_arc(src, dst, 0)
                ends.append((src, dst))
        node = int(rng.integers(0, graph.num_nodes()))
        assert graph.out_arcs(node).tolist() == [a for a, e in enumerate(ends) if e[0] == node]
        assert graph.in_arcs(node).tolist() == [a for a, e in enumerate(ends) if e[1] == node]
    copied = ag.clone(graph)
    copied.add_arc(0, 1, 0)
    assert copied.out_arcs(0)[-1] == len(ends)
    assert len(ends) not in graph.out_arcs(0).tolist()
