"""Graphs to and from OpenFst, by way of `pywrapfst` (the `pynini` package).

OpenFst has one start, labels from 1 (0 is epsilon), and weights where smaller is better. So labels
move by one, weights change sign, and several starts, or one with a weight, are reached from a new
one by epsilon arcs.
"""

import math

import numpy as np
import pywrapfst

import arcgrad as ag


def to_openfst(graph, arc_type="log64"):
    fst = pywrapfst.VectorFst(arc_type)
    weight_type = fst.weight_type()
    fst.add_states(graph.num_nodes())
    start = graph.start().tolist()
    if len(start) == 1 and not any(graph.start_weights()):
        fst.set_start(start[0])
    else:
        fst.set_start(fst.add_state())
        for node, weight in zip(start, graph.start_weights().tolist(), strict=True):
            cost = pywrapfst.Weight(weight_type, -weight)
            fst.add_arc(fst.start(), pywrapfst.Arc(0, 0, cost, node))
    for node, weight in zip(graph.accept().tolist(), graph.accept_weights().tolist(), strict=True):
        fst.set_final(node, pywrapfst.Weight(weight_type, -weight))
    columns = (graph.src_nodes(), graph.dst_nodes(), graph.ilabels(), graph.olabels())
    rows = zip(*(c.tolist() for c in columns), graph.weights_to_list(), strict=True)
    for src, dst, ilabel, olabel, weight in rows:
        cost = pywrapfst.Weight(weight_type, -weight)
        fst.add_arc(src, pywrapfst.Arc(ilabel + 1, olabel + 1, cost, dst))
    return fst


def from_openfst(fst):
    """A float64 graph with node weights."""
    graph = ag.Graph(dtype="float64")
    for state in range(fst.num_states()):
        graph.add_node(state == fst.start())
        final = -float(fst.final(state))
        if final != -math.inf:
            graph.make_accept(state, final)
    for state in fst.states():
        for arc in fst.arcs(state):
            graph.add_arc(state, arc.nextstate, arc.ilabel - 1, arc.olabel - 1, -float(arc.weight))
    return graph


def total(fst):
    """The joined score of all paths in the semiring of the arcs."""
    if fst.num_states() == 0:
        return -math.inf
    return float(distances(fst, fst.num_states(), reverse=True)[fst.start()])


def distances(fst, num_nodes, *, reverse):
    """Scores per node of the graph that `fst` came from."""
    found = pywrapfst.shortestdistance(fst, reverse=reverse, delta=1e-12)
    # OpenFst leaves out the unreachable states at the end.
    scores = [-float(weight) for weight in found] + [-math.inf] * num_nodes
    return np.array(scores[:num_nodes])
