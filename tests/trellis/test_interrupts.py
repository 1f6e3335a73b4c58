"""Long calls can be interrupted."""

import pytest
from tools import INTERRUPTED, run_python

pytestmark = pytest.mark.serial

INTERRUPT = """
{first}
import math
import os
import signal
import threading
import time
import numpy as np
import arcgrad as ag
ag.set_num_threads(2)
rng = np.random.default_rng(0)
nodes = rng.integers(0, 2000, (2, 20_000)).astype(np.int32)
nodes[:, :2000] = [np.arange(2000), np.roll(np.arange(2000), 1)]
label = nodes[1] % 50
graph = ag.Graph.from_arrays(nodes[0], nodes[1], label, start=[0], accept=np.arange(2000))
def products(count, length):
    array = rng.normal(size=(length, 50)).astype(np.float32)
    return ag.intersect(graph, [ag.linear_graph(length, 50, array) for _ in range(count)])
{work}
# The state is as before: the same values again.
small = ag.intersect(graph, ag.linear_graph(20, 50, np.zeros((20, 50), np.float32)))
expected = ag.forward_score(ag.clone(small)).item()
assert math.isclose(ag.forward_score(small).item(), expected, rel_tol=1e-6)
graph.zero_grad()
scores = ag.forward_score([small] * 9)
ag.backward(scores)
assert all(math.isclose(s.item(), expected, rel_tol=1e-6) for s in scores)
assert math.isclose(graph.grad().weights_to_numpy().sum(), 9 * 20, rel_tol=1e-4)
print("done")
"""


@pytest.mark.parametrize("first", ["", "import torch; torch.set_num_threads(2)"])
def test_a_long_batch_can_be_interrupted(first):
    if first:
        pytest.importorskip("torch")
    work = (
        INTERRUPTED
        + """
long = 8 * products(128, 3000)
for op in (ag.forward_score, ag.viterbi_path):
    seconds = interrupted(lambda: op(long))
    assert seconds < 1.0, seconds
"""
    )
    assert run_python(INTERRUPT.format(first=first, work=work)).strip() == "done"


def test_a_long_backward_can_be_interrupted():
    work = (
        INTERRUPTED
        + """
count, seconds = 8, 0.0
while seconds < 0.8:
    count *= 2
    batch = products(count, 400)
    ag.forward_score(batch)  # the first touch of fresh memory may take longer than the work
    begin = time.perf_counter()
    scores = ag.forward_score(batch)
    seconds = time.perf_counter() - begin
seconds = interrupted(lambda: ag.backward(scores))
assert seconds < 1.0, seconds
assert not graph.is_grad_available()
"""
    )
    assert run_python(INTERRUPT.format(first="", work=work)).strip() == "done"


def test_one_long_example_of_a_dense_graph_can_be_interrupted():
    work = (
        INTERRUPTED
        + """
size = 600
nodes = np.arange(size, dtype=np.int32)
dense = ag.Graph.from_arrays(
    np.repeat(nodes, size), np.tile(nodes, size), np.tile(nodes, size), start=[0], accept=nodes
)
zeros = np.broadcast_to(np.zeros(size, np.float32), (1_000_000, size))
product = ag.intersect(dense, ag.linear_graph(1_000_000, size, zeros, copy=False))
with ag.no_grad():
    seconds = interrupted(lambda: ag.forward_score(product))
assert seconds < 1.0, seconds
"""
    )
    assert run_python(INTERRUPT.format(first="", work=work)).strip() == "done"
