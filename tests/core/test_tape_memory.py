"""The tape: long chains, memory that is freed, and threads."""

import copy
import gc
import os
import threading
import weakref

import numpy as np
import pytest
from tools import build, run_python, weights

import arcgrad as ag


@pytest.fixture
def graph():
    """Two paths: 0 1 and 2."""
    return build(3, {0}, {2}, [(0, 1, 0, 0, 0.5), (1, 2, 1, 1, 0.25), (0, 2, 2, 2, 1.0)])


def test_a_chain_longer_than_the_stack_is_differentiated_and_freed():
    code = """
import arcgrad as ag
leaf = ag.scalar_graph(0.5)
graph = leaf
for _ in range(250_000):  # a recursion would need at least 16 MB of stack
    graph = ag.negate(graph)
assert ag.grad(graph, leaf).item() == 1.0
del graph
print("done")
"""
    assert run_python(code).strip() == "done"


@pytest.mark.parametrize(
    "differentiate",
    [
        "ag.backward(graph)",
        "ag.backward(graph, retain_graph=True)",
        "ag.backward(graph, create_graph=True)",
        "gradient = ag.grad(graph, leaf, ag.scalar_graph(1.0), create_graph=True); del gradient",
    ],
)
def test_a_long_chain_is_freed_after_any_kind_of_differentiation(differentiate):
    code = f"""
import arcgrad as ag
leaf = ag.scalar_graph(0.5)
graph = leaf
for _ in range(100_000):
    graph = ag.negate(graph)
{differentiate}
del graph
leaf.zero_grad()
print("done")
"""
    assert run_python(code).strip() == "done"


def test_memory_is_flat_over_ten_thousand_steps_with_create_graph():
    code = """
import gc
import numpy as np
import psutil
import arcgrad as ag
process = psutil.Process()
leaf = ag.linear_graph(20, 10, np.random.default_rng(0).normal(size=(20, 10)))
vector = np.ones(200)
def step():
    leaf.zero_grad()
    ag.backward(ag.forward_score(leaf), create_graph=True)
    gradient = leaf.grad()
    product = ag.grad(gradient, leaf)
    leaf.set_weights(leaf.weights_to_numpy() - 1e-3 * product.weights_to_numpy())
def kept():
    # The gradient stays in the leaf, and the leaf is let go.
    mine = ag.linear_graph(20, 10, np.zeros((20, 10)))
    ag.backward(ag.forward_score(mine), create_graph=True)
gc.disable()
for _ in range(500):
    step()
    kept()
before = process.memory_info().rss
for _ in range(10_000):
    step()
    kept()
print(process.memory_info().rss - before)
"""
    # A gradient has 1.6 kB. A loop that leaked it would use 16 MB more. The option
    # stops the address sanitizer from keeping freed memory.
    options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
    assert int(run_python(code, ASAN_OPTIONS=options)) < 10_000_000


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads memory from /proc")
@pytest.mark.skipif("san" in os.environ.get("LD_PRELOAD", ""), reason="not under a sanitizer")
def test_a_score_of_a_small_product_keeps_little_memory():
    code = """
import arcgrad as ag
def memory():
    return int(open("/proc/self/statm").read().split()[1]) * 4096
emissions, target = ag.linear_graph(10, 5), ag.tokens.ctc_graph([1, 2, 3])
def scores(count):
    return [ag.forward_score(ag.intersect(target, emissions)) for _ in range(count)]
first = scores(1000)
before = memory()
second = scores(5000)
print((memory() - before) / len(second))
"""
    # 2.7 KB are values and weights that the gradient reads.
    assert float(run_python(code)) < 8500


def test_python_objects_of_a_step_are_freed_immediately(graph):
    gc.disable()
    try:
        leaf = copy.copy(graph)
        score = ag.forward_score(leaf)
        ag.backward(score, create_graph=True)
        array = np.zeros((2, 2))
        borrowed = ag.linear_graph(2, 2, array, copy=False)
        alive = weakref.ref(array)
        result = ag.forward_score(borrowed)
        del array, borrowed
        assert alive() is not None
        del result
        assert alive() is None
    finally:
        gc.enable()


def test_threads_may_accumulate_into_one_leaf(graph):
    expected = weights(ag.grad(ag.forward_score(graph), graph))

    def work():
        for _ in range(50):
            ag.backward(ag.forward_score(graph))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert weights(graph.grad()) == pytest.approx(200 * expected, rel=1e-12)


def test_grad_refuses_an_input_that_was_edited_since():
    graph = ag.Graph()
    graph.add_node(start=True)
    graph.add_node(accept=True)
    graph.add_arc(0, 1, 0)
    score = ag.forward_score(graph)
    graph.add_arc(0, 1, 1)
    with pytest.raises(RuntimeError, match="grad: inputs must keep their nodes and arcs"):
        ag.grad(score, graph)


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_gradient_that_is_its_seed_can_be_edited(create_graph):
    graph = ag.chain_graph([1, 2], calc_grad=True)
    seed = ag.chain_graph([1, 2])
    seed.set_weights([3.0, 4.0])
    first, second = (
        ag.grad(graph, graph, seed, create_graph=create_graph),
        ag.grad([graph], [graph], [seed], create_graph=create_graph)[0],
    )
    first.set_weights([5.0, 6.0])
    first.add_node()
    assert first.weights_to_list() == [5.0, 6.0]
    assert first.num_nodes() == 4
    for other in (second, seed):
        assert other.weights_to_list() == [3.0, 4.0]
        assert other.num_nodes() == 3
