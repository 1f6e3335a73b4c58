"""Small graphs, built as programs for gtn build them."""

import arcgrad.gtn as gtn

UNARY = [
    "negate",
    "clone",
    "closure",
    "forward_score",
    "viterbi_score",
    "viterbi_path",
    "project_input",
    "project_output",
]
BINARY = ["add", "subtract", "compose", "intersect", "concat"]


def chain(*labels, calc_grad=True):
    """An acceptor of one string, built as gtn programs do."""
    graph = gtn.Graph(calc_grad)
    graph.add_node(True, not labels)
    for i, label in enumerate(labels):
        graph.add_node(False, i + 1 == len(labels))
        graph.add_arc(i, i + 1, label)
    return graph


def fork(*arc_weights, calc_grad=True):
    """Parallel arcs with labels 0, 1, ... from a start to an accept node."""
    graph = gtn.Graph(calc_grad)
    graph.add_node(True)
    graph.add_node(False, True)
    for label, weight in enumerate(arc_weights):
        graph.add_arc(0, 1, label, label, weight)
    return graph
