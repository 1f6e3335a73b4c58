"""Ctrl-C ends any long call within a second, and leaves everything as it was."""

import pytest
from tools import INTERRUPTED, run_python

pytestmark = pytest.mark.serial

PROGRAM = """
import os
import signal
import threading
import time

import numpy as np

import arcgrad as ag

rng = np.random.default_rng(0)

def random_graph(nodes, arcs, labels=1, low=-1.0):
    src, dst = rng.integers(0, nodes, (2, arcs), np.int32)
    return ag.Graph.from_arrays(
        src, dst, rng.integers(0, labels, arcs, np.int32),
        weight=rng.uniform(low, low + 1, arcs).astype(np.float32), start=[0],
        accept=[nodes - 1], num_nodes=nodes,
    )

def permuted(graph):
    order = rng.permutation(graph.num_nodes()).astype(np.int32)
    src, dst, ilabel, olabel, weight = graph.arcs()
    return ag.Graph.from_arrays(
        order[src], order[dst], ilabel, olabel, weight, start=order[graph.start()],
        accept=order[graph.accept()], num_nodes=graph.num_nodes(),
    )

{setup}
# A busy machine may add to the reaction; the calls take at least ten times as long.
seconds = interrupted(lambda: {call})
assert seconds < 1.5, seconds
expected = ag.forward_score(ag.chain_graph([1, 2], weights=[0.5, 0.25])).item()
assert expected == 0.75
print("done")
"""

# Strings of 0 and 1 with a 1 at the 28th place from the end: 2^28 sets of nodes.
MANY_SETS = (
    "n = np.repeat(np.arange(1, 28), 2)\n"
    "a = ag.Graph.from_arrays([0, 0, 0, *n], [0, 0, 1, *n + 1], [0, 1, 1, *[0, 1] * 27],"
    " start=[0], accept={accept})"
)

CASES = {
    "compose": (
        "a, b = random_graph(30_000, 150_000), random_graph(30_000, 150_000)",
        "ag.compose(a, b)",
    ),
    "a list": (
        "a, b = random_graph(30_000, 150_000), random_graph(30_000, 150_000)",
        "ag.intersect([a] * 4, b)",
    ),
    "failure arcs over emissions": (
        "n, v = 400_000, 1_000\n"
        "nodes, up = np.arange(1, n), rng.integers(0, np.maximum(np.arange(1, n) // 10, 1))\n"
        "src = [*nodes, *np.zeros(v), *nodes]\n"
        "dst = [*up, *range(1, v + 1), *rng.permutation(nodes)]\n"
        "label = [*np.full(n - 1, ag.phi), *range(v), *rng.integers(0, v, n - 1)]\n"
        "src, dst, label = (np.array(x, np.int32) for x in (src, dst, label))\n"
        "a = ag.Graph.from_arrays(src, dst, label, start=[0], accept=np.arange(n), num_nodes=n)\n"
        "b = ag.intersect(a, ag.linear_graph(3, v))",
        "ag.forward_score(b)",
    ),
    "rand_equivalent": (
        "a = random_graph(300, 1_000)",
        "ag.rand_equivalent(a, a, 10**9, 1.0, 30, seed=0, semiring='tropical')",
    ),
    "isomorphic": (
        "a = random_graph(2_000_000, 4_000_000)\nb = permuted(a)",
        "ag.isomorphic(a, b)",
    ),
    "a hard isomorphism": (
        "a = random_graph(700_000, 1_400_000)\n"
        "a.set_weights(np.zeros(1_400_000, np.float32))\nb = permuted(a)",
        "[ag.isomorphic(a, b) for _ in range(50)]",
    ),
    "remove": (
        "src, dst = np.triu_indices(4_000, 1)\n"
        "a = ag.Graph.from_arrays(np.concatenate([src, dst[:3_999]]).astype(np.int32),"
        " np.concatenate([dst, dst[:3_999]]).astype(np.int32),"
        " np.concatenate([np.full(len(src), -1), np.zeros(3_999)]).astype(np.int32),"
        " weight=np.full(len(src) + 3_999, -9.0, np.float32), start=[0], accept=[3_999])",
        "ag.remove(a)",
    ),
    "a dense component": (
        "a = random_graph(4_000, 400_000, low=-8.0)",
        "ag.forward_score(a)",
    ),
    "sample": (
        "a = ag.Graph()\na.add_node(True)\na.add_node(False, True)\n"
        "a.add_arc(0, 0, 1, 1, -1e-12)\na.add_arc(0, 1, 1, 1, -30.0)",
        "ag.sample(a, max_length=10**9, seed=0)",
    ),
    "sample of many": ("a = random_graph(1_000, 4_000, low=-9.0)", "ag.sample(a, 10**8)"),
    "replace": (
        "a = {k: ag.chain_graph([k + 1, k + 1]) for k in range(1, 27)}",
        "ag.replace(ag.chain_graph([1]), a)",
    ),
    "edit_distance": (
        "a = rng.integers(0, 5, 20_000)",
        "ag.edit_distance(a, a[::-1])",
    ),
    "best_paths with cycles": (
        "a = random_graph(3_000, 30_000)",
        "ag.best_paths(a, 10**8)",
    ),
    "text": (
        "a = random_graph(1_000_000, 3_000_000)",
        "[ag.save('/dev/null', a) or ag.savetxt('/dev/null', a) for _ in range(100)]",
    ),
    "complement": (MANY_SETS.format(accept=[28]), "ag.complement(a, [0, 1])"),
    "determinize": (MANY_SETS.format(accept=[28]), "ag.determinize(a, max_nodes=10**9)"),
    "disambiguate": (
        MANY_SETS.format(accept=[*range(29)]),
        "ag.disambiguate(a, 'tropical', max_nodes=10**9)",
    ),
    "pairs of nodes in disambiguate": (
        "a = random_graph(20_000, 80_000)",
        "ag.disambiguate(a, max_nodes=10**9)",
    ),
    "equivalent": (MANY_SETS.format(accept=[28]), "ag.equivalent(a, a, max_nodes=10**9)"),
    "synchronize": (
        "n = np.repeat(np.arange(40), 2)\n"
        "a = ag.Graph.from_arrays(n, n + 1, [-1] * 80, [0, 1] * 40, start=[0], accept=[40])",
        "ag.synchronize(a, max_nodes=10**9)",
    ),
    "minimize": (
        "n = np.repeat(np.arange(1_000_000), 2)\n"
        "a = ag.Graph.from_arrays(n, rng.permutation(n), [0, 1] * 1_000_000,"
        " weight=rng.uniform(-1, 0, len(n)).astype(np.float32), start=[0], accept=[1])",
        "[ag.minimize(a) for _ in range(50)]",
    ),
    "push": ("a = random_graph(4_000, 400_000, low=-8.0)", "ag.push(a)"),
    "push labels": (
        "a = random_graph(1_000_000, 3_000_000, low=-9.0)",
        "[ag.push(a, weights=False, labels=True) for _ in range(50)]",
    ),
    "rewrite": (
        "words = {''.join(map(chr, row)): '!' for row in rng.integers(97, 123, (100_000, 8))}\n"
        "rule = ag.text.string_map(words)",
        "ag.text.rewrite(rule)",
    ),
    "a pipe without a writer": (
        "import tempfile\nname = tempfile.mktemp()\nos.mkfifo(name)",
        "ag.load(name)",
    ),
    "a chain of ops": (
        "a = random_graph(100_000, 1_000_000)",
        "[ag.connect(ag.closure(ag.union([a, ag.reverse(a)]))) for _ in range(1000)]",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_ctrl_c_ends_a_long_call_within_a_second(case):
    setup, call = CASES[case]
    program = INTERRUPTED + PROGRAM.replace("{setup}", setup).replace("{call}", call)
    assert run_python(program).strip() == "done"


def test_printing_a_large_dense_graph_is_immediate():
    # Within the time limit of a test; walking its arcs takes a minute.
    graph = """
import arcgrad as ag, numpy as np, time
zeros = np.broadcast_to(np.zeros(1, np.float32), (2**30, 1))
graph = ag.linear_graph(2**30, 1, zeros, copy=False)
begin = time.perf_counter()
print(repr(graph))
assert time.perf_counter() - begin < 1.0
"""
    assert run_python(graph).startswith("Graph(1073741825 nodes, 1073741824 arcs, start [0]")


@pytest.mark.parametrize("labels", [2**31 - 1, 2**30])
def test_a_token_graph_that_is_too_large_is_refused_before_it_is_built(labels):
    from arcgrad.tokens import Tokens

    pattern = (
        rf"Tokens.graph: a graph holds at most 2\^31 - 1 nodes and arcs, but that of {labels} "
        r"labels would have at least \d{10} nodes and \d{10} arcs"
    )
    with pytest.raises(ValueError, match=pattern):
        Tokens(labels).graph()


LOCKS = """
import signal, sys, threading
import numpy as np
import arcgrad as ag

rng = np.random.default_rng(0)
src, dst = rng.integers(0, 200_000, (2, 1_000_000), np.int32)

def make():
    graph = ag.Graph.from_arrays(src, dst, np.zeros(len(src), np.int32), start=[0], accept=[1])
    return ag.scale(graph, 1.0)

def order(graph):
    ag.connect(graph).is_acyclic()

for _ in range(3):
    graph = make()
    thread = threading.Thread(target=order, args=[graph])
    thread.start()
    graph.is_acyclic(), graph.in_arcs(0), graph.out_arcs(0)
    thread.join()

    graph = make()
    signal.signal(signal.SIGALRM, lambda *_: graph.is_acyclic())
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    order(graph)
    signal.setitimer(signal.ITIMER_REAL, 0.0)

found = []
product = ag.intersect(make(), ag.linear_graph(3, 1))
signal.signal(signal.SIGALRM, lambda *_: found.append(product.num_arcs()))
signal.setitimer(signal.ITIMER_REAL, 0.005)  # the product takes at least 20 ms
found.append(product.num_arcs())
assert len(found) == 2 and found[0] == found[1], found
print("done")
"""


def test_threads_and_signal_handlers_may_read_a_graph_that_is_being_processed():
    assert run_python(LOCKS).strip() == "done"
