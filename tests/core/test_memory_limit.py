"""The memory limit: an operation that would exceed it raises and changes nothing."""

import pytest
from tools import run_python

import arcgrad as ag

pytestmark = pytest.mark.serial

PROGRAM = """
import numpy as np
import pytest
import arcgrad as ag
from arcgrad.tokens import Tokens

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

rng = np.random.default_rng(0)
def random_graph(nodes, arcs):
    src, dst = rng.integers(0, nodes, (2, arcs), np.int32)
    return ag.Graph.from_arrays(src, dst, np.zeros(arcs, np.int32), start=[0], accept=[1])

graph = random_graph(3_000, 30_000)
emissions = ag.linear_graph(20, 3)
weights = graph.weights_to_numpy()
calls = {
    "compose": lambda: ag.compose(graph, graph),
    "intersect": lambda: ag.intersect([graph], [graph]),
    "linear_graph": lambda: ag.linear_graph(30_000, 10_000),
    "Tokens.graph": lambda: Tokens(20_000_000).graph(),
    "power": lambda: ag.power(graph, 10_000),
    "union": lambda: ag.union([graph] * 3_000),
    "chain_graph": lambda: ag.chain_graph(many),
    "ctc_graph": lambda: ag.tokens.ctc_graph(many, blank=2),
    "best_paths": lambda: ag.best_paths(words, 10_000_000),
}
many = np.ones(20_000_000, np.int32)
words = ag.power(ag.union([ag.chain_graph([k]) for k in range(10)]), 40)
calls["remove"] = lambda: ag.remove(ag.concat([graph] * 2_000))
before = {op: None for op in calls}
for op, call in calls.items():
    ag.set_memory_limit(resident() + 100_000_000)
    pattern = rf"^(concat|{op})( .element 0 of 1.)?: the process may use at most [0-9.e+]+ "
    pattern += r"[MG]B of memory .set_memory_limit., but it uses [0-9.e+]+ [MG]B "
    pattern += "and .* more are needed"
    with pytest.raises(MemoryError, match=pattern):
        call()
    ag.set_memory_limit(None)
    assert (graph.weights_to_numpy() == weights).all()
    score = ag.forward_score(ag.intersect(ag.chain_graph([0, 1]), ag.linear_graph(2, 3)))
    assert score.item() == 0.0

# Gradients are as before.
loss = ag.forward_score(emissions)
ag.backward(loss, retain_graph=True)
gradient = emissions.grad().weights_to_numpy()
big = ag.linear_graph(10_000, 1_000)
score = ag.forward_score(big)
ag.set_memory_limit(resident() + 1_000_000)
with pytest.raises(MemoryError, match="^backward: the process may use at most"):
    ag.backward(score)
ag.set_memory_limit(None)
assert not big.is_grad_available()
ag.backward(score)
assert (emissions.grad().weights_to_numpy() == gradient).all()

# A graph to which nothing could be added is as before.
for label in (0, 1):
    grown = ag.chain_graph([0] * (1 << 19))
    ag.set_memory_limit(resident() + 3_000_000)
    added = 0
    for _ in range(300_000):
        counts = grown.num_nodes(), grown.num_arcs()
        try:
            grown.add_arc(0, grown.add_node(True, True), 0, label)
            added += 1
        except MemoryError:
            assert grown.num_arcs() == counts[1]
            break
    ag.set_memory_limit(None)
    assert added < 300_000
    assert len(grown.weights_to_list()) == grown.num_arcs() == len(grown.ilabels())
    assert len(grown.olabels()) == len(grown.dst_nodes()) == grown.num_arcs()
    assert ag.forward_score(grown).item() > 0.0
print("done")
"""


def test_operations_raise_before_they_exceed_the_limit():
    assert run_python(PROGRAM).strip() == "done"


def test_the_limit_is_checked_and_returned():
    assert ag.get_memory_limit() is None
    ag.set_memory_limit(2**60)
    assert ag.get_memory_limit() == 2**60
    ag.set_memory_limit(None)
    for bad in (0, -1):
        with pytest.raises(
            ValueError, match=f"set_memory_limit: .* 1 byte or more, but it is {bad}"
        ):
            ag.set_memory_limit(bad)
    with pytest.raises(ValueError, match="set_memory_limit: the number of bytes must fit 64 bits"):
        ag.set_memory_limit(2**70)
