"""Small helpers on graphs that several test files use."""

import copy
import math
import os
import subprocess
import sys

import numpy as np
import pytest

import arcgrad as ag


def build(num_nodes, start, accept, arcs, *, dtype="float64", calc_grad=True):
    """A graph from lists, through `add_node` and `add_arc`."""
    graph = ag.Graph(calc_grad, dtype=dtype)
    for node in range(num_nodes):
        graph.add_node(node in start, node in accept)
    for arc in arcs:
        graph.add_arc(*arc)
    return graph


def build_from_arrays(num_nodes, start, accept, arcs, *, dtype="float64", calc_grad=True):
    """The same graph through `Graph.from_arrays`."""
    columns = [np.array([arc[k] for arc in arcs], np.int32) for k in range(4)]
    weights = np.array([arc[4] for arc in arcs], dtype)
    return ag.Graph.from_arrays(
        *columns,
        weights,
        start=np.array(sorted(start), np.int32),
        accept=np.array(sorted(accept), np.int32),
        num_nodes=num_nodes,
        dtype=dtype,
        calc_grad=calc_grad,
    )


def with_weights(graph, weights, *, calc_grad=True):
    """A new leaf with the structure of `graph` and these weights, of arcs or of everything."""
    leaf = copy.copy(graph)
    leaf.calc_grad = calc_grad
    return set_weights(leaf, weights)


def set_weights(graph, weights):
    """Set the weights of arcs and, if there are more values, the node weights."""
    values = np.ravel(weights)
    graph.set_weights(values[: graph.num_arcs()])
    if len(values) > graph.num_arcs():
        rest = iter(values[graph.num_arcs() :].tolist())
        for node in graph.start().tolist():
            graph.set_start_weight(node, next(rest))
        for node in graph.accept().tolist():
            graph.set_accept_weight(node, next(rest))
    return graph


def with_dtype(graph, dtype):
    """A new leaf with the same content and another dtype."""
    weights = graph.weights_view()
    if weights.ndim == 2:
        return ag.linear_graph(*weights.shape, weights, dtype=dtype)
    src, dst, ilabel, olabel, weight = graph.arcs()
    return ag.Graph.from_arrays(
        src,
        dst,
        ilabel,
        olabel,
        np.asarray(weight).ravel(),
        start=graph.start(),
        accept=graph.accept(),
        num_nodes=graph.num_nodes(),
        dtype=dtype,
        start_weights=graph.start_weights() if graph.has_node_weights() else None,
        accept_weights=graph.accept_weights() if graph.has_node_weights() else None,
    )


def snapshot(graph):
    """Everything a graph contains, comparable with `==` bit by bit (NaN included)."""
    return (
        graph.num_nodes(),
        graph.start().tolist(),
        graph.accept().tolist(),
        graph.src_nodes().tolist(),
        graph.dst_nodes().tolist(),
        graph.ilabels().tolist(),
        graph.olabels().tolist(),
        str(graph.dtype),
        graph.weights_to_numpy().tobytes(),
        graph.has_node_weights(),
        graph.start_weights().tobytes(),
        graph.accept_weights().tobytes(),
    )


def weights(graph):
    """The weights of a graph, with node weights, as a flat float64 array."""
    parts = [graph.weights_to_numpy()]
    if graph.has_node_weights():
        parts += [graph.start_weights(), graph.accept_weights()]
    return np.concatenate(parts).astype(np.float64)


def acceptor(*words, weight=0.0, dtype="float64", calc_grad=True):
    """One accepted path per word (a sequence of labels); the weight is on every arc."""
    chains = [
        ag.chain_graph(list(word), weights=[weight] * len(word), dtype=dtype, calc_grad=calc_grad)
        for word in words
    ]
    return copy.copy(ag.union(chains))


# A test of minutes, or one that repeats a short one on more data.
long_only = pytest.mark.skipif(
    os.environ.get("HYPOTHESIS_PROFILE") != "nightly", reason="takes long: make test-long"
)


def run_python(code, **environment):
    """Run `code` in a fresh interpreter; return its output. Fails if the exit code is not 0.

    The time limit ends code that hangs; it is long enough for sanitizers and busy machines.
    """
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, **environment},
    )
    assert result.returncode == 0, f"exit code {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


# For programs of run_python(): how long a call goes on after it was interrupted.
INTERRUPTED = """
import os, signal, threading, time

def interrupted(call):
    sent = []
    def send():
        sent.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)
    timer = threading.Timer(0.3, send)
    timer.start()
    try:
        call()
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]
    timer.cancel()
    raise AssertionError("the call ended before it was interrupted")
"""


def content(graph):
    """Nodes, ends with weights, and sorted arcs. Impossible ends count as no ends."""
    ends = zip(graph.accept().tolist(), graph.accept_weights().tolist(), strict=True)
    starts = zip(graph.start().tolist(), graph.start_weights().tolist(), strict=True)
    columns = (column.tolist() for column in graph.arcs())
    return (
        graph.num_nodes(),
        list(starts),
        [end for end in ends if end[1] != -math.inf],
        sorted(zip(*columns, strict=True)),
    )


def write(path, data):
    """Write text or bytes to a file, and return its path."""
    mode = "wb" if isinstance(data, bytes) else "w"
    with open(path, mode) as file:
        file.write(data)
    return path
