"""Large results of ops that only move weights are made when somebody first looks at them."""

import contextlib
import copy
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import psutil
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from spec import OPS
from strategies import graphs
from test_every_op import assert_meaning
from tools import run_python, snapshot, with_dtype

import arcgrad as ag
from arcgrad import _core

LARGE = 1 << 17  # arcs; half of it would be enough

PUT_OFF = {"union", "concat", "closure", "negate", "scale", "add", "subtract"}
put_off = pytest.mark.parametrize("op", [op for op in OPS if op.name in PUT_OFF], ids=str)


@contextlib.contextmanager
def later(force=True):
    """Put small results off as well."""
    _core.force_later(force)
    try:
        yield
    finally:
        _core.force_later(False)


@put_off
@given(data=st.data())
def test_meaning(op, data):
    with later():
        assert_meaning(op, data.draw(op.inputs))


@put_off
@given(data=st.data())
def test_gradients(op, data):
    arguments = data.draw(op.inputs)
    with later():
        assert_gradient(op.call, *arguments)
        if op.second_order:
            assert_second_order(op.call, *arguments)


def run(program, inputs):
    """Runs steps (op, operands, looks) on a list that starts with the inputs; what they made."""
    made = list(inputs)
    for op, one, other, looks in program:
        a, b = made[one % len(made)], made[other % len(made)]
        if op in ("add", "subtract"):
            b = ag.scale(a, -0.3) if b.num_arcs() != a.num_arcs() else b
        with contextlib.suppress(ValueError):  # not the same structure
            match op:
                case "add" | "subtract":
                    result = getattr(ag, op)(a, b)
                case "union" | "concat":
                    result = getattr(ag, op)([a, b])
                case "scale":
                    result = ag.scale(a, 0.7)
                case _:
                    result = getattr(ag, op)(a)
            made.append(result)
            if looks:
                snapshot(result)
        if made[-1].num_arcs() > 2000:
            break
    return made


steps = st.tuples(
    st.sampled_from(sorted(PUT_OFF | {"reverse", "connect"})),
    st.integers(0, 99),
    st.integers(0, 99),
    st.booleans(),
)


@given(
    st.lists(graphs(), min_size=1, max_size=3),
    st.lists(steps, max_size=25),
    st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_no_program_can_tell(inputs, program, is_narrow):
    inputs = [
        with_dtype(graph, "float32") if narrow else graph
        for graph, narrow in zip(inputs, is_narrow, strict=False)
    ]
    expected = run([(*step[:3], True) for step in program], inputs)
    with later():
        actual = run(program, inputs)
        # The last one first, so that it is made before what it was made from.
        found = [snapshot(graph) for graph in reversed(actual)]
        alone = snapshot(run([(*step[:3], False) for step in program], inputs)[-1])
    assert found[::-1] == [snapshot(graph) for graph in expected]
    assert alone == found[0]


@given(graphs())
def test_copies_of_what_was_not_looked_at(graph):
    expected = snapshot(ag.union([graph, ag.negate(graph)]))
    with later():
        for make in (copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))):
            assert snapshot(make(ag.union([graph, ag.negate(graph)]))) == expected
        detached = ag.union([graph, ag.negate(graph)]).detach()
        assert snapshot(detached) == expected
        assert snapshot(ag.invert(ag.reverse(ag.union([graph, ag.negate(graph)])))) == snapshot(
            ag.invert(ag.reverse(detached))
        )


def chain(num_arcs, seed=0, calc_grad=True):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 5, num_arcs).astype(np.int32)
    graph = ag.chain_graph(labels, calc_grad=calc_grad)
    graph.set_weights(rng.normal(size=num_arcs).astype(np.float32))
    return graph


def test_large_graphs_side_by_side():
    a, b = chain(LARGE, 1), chain(LARGE + 5, 2)
    inner = ag.union([a, b])
    graph = ag.closure(ag.concat([inner, a]))
    assert graph.num_arcs() == 3 * LARGE + 5 + 2 + 3
    shift = np.array([1, LARGE + 2, 2 * LARGE + 8])  # of the nodes of each part
    parts = [a, b, a]
    # The arcs that join the last part to the others come before it, those of the closure last.
    joints = np.r_[2 * LARGE + 5 : 2 * LARGE + 7, graph.num_arcs() - 3 : graph.num_arcs()]

    def apart(values):
        return np.delete(values, joints), values[joints]

    src = np.concatenate([g.src_nodes() + s for g, s in zip(parts, shift, strict=True)])
    of_parts, of_joints = apart(graph.src_nodes())
    assert np.array_equal(of_parts, src)
    assert of_joints.tolist() == [LARGE + 1, 2 * LARGE + 7, 0, 0, graph.num_nodes() - 1]
    of_parts, of_joints = apart(graph.weights_to_numpy())
    assert np.array_equal(of_parts, np.concatenate([g.weights_to_numpy() for g in parts]))
    assert not of_joints.any()
    of_parts, of_joints = apart(graph.ilabels())
    assert np.array_equal(of_parts, np.concatenate([g.ilabels() for g in parts]))
    assert set(of_joints.tolist()) == {ag.epsilon}
    # What it was made from is as it would be alone.
    assert np.array_equal(inner.dst_nodes()[LARGE:], b.dst_nodes() + LARGE + 1)
    ag.backward(ag.viterbi_score(ag.concat([inner, a])))
    assert float(np.sum(a.grad().weights_view())) in (LARGE, 2 * LARGE)


def test_transducers_keep_their_outputs():
    a = chain(LARGE)
    other = np.arange(LARGE, dtype=np.int32) % 3
    b = ag.chain_graph(a.ilabels(), other)
    graph = ag.union([a, b])
    assert not graph.is_acceptor()
    assert np.array_equal(graph.olabels(), np.concatenate([a.ilabels(), other]))


def test_large_sums():
    a = chain(LARGE)
    b = ag.scale(a, 0.3)
    x, y = a.weights_to_numpy(), (0.3 * a.weights_to_numpy().astype(np.float64)).astype(np.float32)
    total = ag.subtract(ag.add(a, b), ag.negate(b))
    assert np.array_equal(total.weights_to_numpy(), (x + y) - -y)
    assert np.array_equal(b.weights_to_numpy(), y)
    with pytest.raises(ValueError, match="add: both graphs must have the same structure"):
        ag.add(a, chain(LARGE, 1))  # before anybody looks


@pytest.mark.parametrize("op", [ag.negate, lambda g: ag.union([g, g]), lambda g: ag.add(g, g)])
def test_later_changes_of_the_input_do_not_count(op):
    graph = chain(LARGE)
    expected = op(graph).weights_to_list()
    made = op(graph)
    graph.set_weight(0, 100.0)
    graph.set_weights(np.zeros(LARGE))
    graph.add_arc(0, 1, 2)
    assert made.weights_to_list() == expected


@pytest.mark.parametrize("op", [ag.negate, lambda g: ag.union([g, g]), lambda g: ag.add(g, g)])
def test_a_borrowed_array_is_read_at_once(op):
    array = np.ones((LARGE // 64, 64), np.float32)
    graph = ag.linear_graph(*array.shape, array, copy=False)
    expected = op(graph).weights_to_list()
    made = op(graph)
    array[:] = 7.0
    assert made.weights_to_list() == expected


def test_the_result_can_be_edited():
    made = ag.negate(chain(LARGE))
    weights = made.weights_to_numpy()
    made = ag.negate(chain(LARGE))
    made.set_weight(3, 5.0)
    weights[3] = 5.0
    assert np.array_equal(made.weights_to_numpy(), weights)
    made = ag.negate(chain(LARGE))
    made.add_arc(0, 1, 4, 4, 2.5)
    assert made.weight(LARGE) == 2.5
    assert made.weight(3) == -chain(LARGE).weight(3)
    both = ag.union([chain(5), chain(LARGE)])
    assert both.add_node() == LARGE + 7
    assert both.add_arc(0, LARGE + 7, 1) == LARGE + 5


@pytest.mark.parametrize("share", [ag.Graph.detach, ag.negate])
@pytest.mark.parametrize("num_arcs", [70, 70_000])
def test_a_shared_graph_grows_into_memory_of_its_own(share, num_arcs):
    graph = ag.Graph(calc_grad=False)
    graph.add_node(start=True)
    graph.add_node(accept=True)
    for _ in range(num_arcs):
        graph.add_arc(0, 1, 0)
    shared = share(graph)
    graph.set_weight(0, 0.0)
    for _ in range(num_arcs):
        graph.add_arc(0, 1, 0, 0, 1.0)
        graph.set_weight(1, 0.0)
    assert set(shared.weights_to_list()) == {0.0}
    assert graph.weights_to_list() == [0.0] * num_arcs + [1.0] * num_arcs


def test_many_small_parts():
    words = [chain(5, seed) for seed in range(200)]
    expected = np.concatenate([word.weights_to_numpy() for word in words * 100])
    kept = ag.union(words * 100)
    hidden = ag.scale(ag.concat([ag.closure(ag.union(words * 100)), words[0]]), 2.0)
    assert np.array_equal(hidden.weights_to_numpy()[: len(expected)], 2.0 * expected)
    assert np.array_equal(kept.weights_to_numpy(), expected)
    mixed = ag.union([*words[:50] * 300, with_dtype(words[0], "float64")])
    assert np.array_equal(
        mixed.weights_to_numpy(),
        np.concatenate([*(w.weights_to_numpy() for w in words[:50] * 300), expected[:5]]),
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_process_forked_from_somebody_who_looks():
    code = """
import os, threading, time, warnings
import numpy as np
import arcgrad as ag
warnings.simplefilter("ignore")
graph = ag.chain_graph(np.zeros(3_000_000, np.int32), calc_grad=False)
for attempt in range(12):
    made = ag.scale(ag.union([graph, graph]), 0.1)
    look = made.weights_view if attempt % 2 else made.src_nodes
    thread = threading.Thread(target=look)
    thread.start()
    time.sleep(0.001 * attempt)
    child = os.fork()
    if child == 0:
        ok = made.weights_view()[7] == 0.0 and made.src_nodes()[-1] == 6_000_000
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
print("done")
"""
    assert run_python(code).strip() == "done"


def test_long_chains_of_what_nobody_looked_at():
    graph = chain(LARGE, calc_grad=False)
    weights = graph.weights_to_numpy()
    rounded, total = weights, graph
    for _ in range(1000):
        total = ag.add(ag.scale(total, 0.5), graph)
        rounded = np.float32(0.5) * rounded + weights
    assert np.array_equal(total.weights_to_numpy(), rounded)
    grown = chain(LARGE, calc_grad=False)
    for _ in range(1000):
        grown = ag.union([grown, chain(3)])
    assert grown.num_arcs() == LARGE + 3000
    assert grown.src_nodes().tolist()[-3:] == [LARGE + 3997, LARGE + 3998, LARGE + 3999]
    doubled = ag.scale(graph, 1.5)
    for _ in range(60):  # 2^60 if both sides were computed each time
        doubled = ag.add(doubled, doubled)
    assert np.array_equal(doubled.weights_to_numpy(), np.float32(1.5 * 2.0**60) * weights)


def test_a_running_sum_keeps_little_memory():
    process = psutil.Process()
    size = 4 << 20
    structure = ag.chain_graph(np.zeros(1 << 20, np.int32))
    total = structure
    before = process.memory_info().rss
    for step in range(60):
        term = ag.clone(structure)
        term.set_weights(np.full(1 << 20, float(step), np.float32))
        total = ag.add(total, term)
    # Without a bound it would be all sixty terms.
    assert process.memory_info().rss - before < 30 * size
    assert total.weight(7) == sum(range(60))


def test_threads_may_look_at_the_same_time():
    a, b = chain(LARGE, 1), chain(LARGE, 2)

    def make():
        inner = ag.union([ag.scale(a, 0.5), b])
        outer = ag.concat([inner, ag.negate(inner)])
        return [inner, outer, ag.scale(outer, 3.0)]

    expected = [(g.src_nodes().tolist(), g.weights_to_list()) for g in make()]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(5):
            shared = make()
            jobs = [pool.submit(lambda g=g: (g.src_nodes(), g.weights_view())) for g in shared * 4]
            del shared
            found = [job.result() for job in jobs]
            for i, (src, weights) in enumerate(found):
                assert src.tolist() == expected[i % 3][0]
                assert weights.tolist() == expected[i % 3][1]


def test_a_list_is_put_off_element_by_element():
    a, b = chain(LARGE, 1), chain(10, 2)
    made = ag.negate([a, b])
    assert [g.weights_to_list() for g in made] == [ag.negate(g).weights_to_list() for g in (a, b)]
    assert ag.viterbi_score(ag.union([[a, b], [b]]))[1].item() == ag.viterbi_score(b).item()
