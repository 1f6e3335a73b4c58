"""Graphs to and from OpenFst, by way of `pywrapfst` (the `pynini` package).

OpenFst has one start, labels from 1 (0 is epsilon), and weights where smaller is better. So labels
move by one, weights change sign, and several starts are reached from a new one by epsilon arcs.
"""

import math

import numpy as np
import pywrapfst

import arcgrad as ag


def to_openfst(graph, arc_type="log64"):
    fst = pywrapfst.VectorFst(arc_type)
    weight_type = fst.weight_type()
    one = pywrapfst.Weight.one(weight_type)
    fst.add_states(graph.num_nodes())
    start = graph.start().tolist()
    if len(start) == 1:
        fst.set_start(start[0])
    else:
        fst.set_start(fst.add_state())
    for node in start if len(start) != 1 else []:
        fst.add_arc(fst.start(), pywrapfst.Arc(0, 0, one, node))
    for node in graph.accept().tolist():
        fst.set_final(node, one)
    columns = (graph.src_nodes(), graph.dst_nodes(), graph.ilabels(), graph.olabels())
    rows = zip(*(c.tolist() for c in columns), graph.weights_to_list(), strict=True)
    for src, dst, ilabel, olabel, weight in rows:
        cost = pywrapfst.Weight(weight_type, -weight)
        fst.add_arc(src, pywrapfst.Arc(ilabel + 1, olabel + 1, cost, dst))
    return fst


def from_openfst(fst):
    """A float64 graph; final weights become epsilon arcs to one accept node."""
    graph = ag.Graph(dtype="float64")
    count = fst.num_states()
    for state in range(count):
        graph.add_node(state == fst.start(), False)
    if count == 0:
        return graph
    accept = graph.add_node(False, True)
    for state in fst.states():
        for arc in fst.arcs(state):
            graph.add_arc(state, arc.nextstate, arc.ilabel - 1, arc.olabel - 1, -float(arc.weight))
        final = -float(fst.final(state))
        if final != -math.inf:
            graph.add_arc(state, accept, ag.epsilon, ag.epsilon, final)
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
