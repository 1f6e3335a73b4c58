"""OpenFst in the same process, and constants for the peers that cannot run here."""

from __future__ import annotations

from collections.abc import Iterable

import pywrapfst as fst

from .graphs import Arrays
from .harness import Row, Timing

OPENFST = "OpenFst (pywrapfst)"

# Seconds, one thread, measured on a machine of the same kind as ours (2 cores, AMD EPYC with AVX2)
# on graphs of the same kind and size. gtn and k2 are not run because no package registry has
# them in a form that installs on a current Python; OpenFst C++ is the library without Python.
ELSEWHERE: dict[str, dict[str, float]] = {
    "forward_score": {"OpenFst C++": 59e-3, "gtn": 16.6e-3},
    "forward_score + backward": {"gtn": 23.5e-3, "k2": 314e-3},
    "viterbi_path": {"gtn": 6.8e-3},
    "compose": {"OpenFst C++": 1548e-3, "gtn": 722e-3},
    "compose with a lexicon": {"gtn": 9.2e-3},
    "from_arrays": {"k2": 43e-3, "gtn": 316e-3},
    "smallest op": {"gtn": 0.9e-6},
}


def elsewhere(key: str, measure: str, ours: Timing) -> Iterable[Row]:
    """Rows that compare our time with a constant; they have no target."""
    for peer, seconds in ELSEWHERE[key].items():
        yield Row(measure, ours, f"{peer} (constant)", Timing.constant(seconds))


def openfst(arrays: Arrays, arc_type: str) -> fst.VectorFst:
    """The same graph for OpenFst: labels move up by one (0 is its epsilon), weights are negated."""
    weight_type = "tropical" if arc_type == "standard" else arc_type
    result = fst.VectorFst(arc_type=arc_type)
    result.add_states(arrays.num_nodes)
    result.set_start(arrays.start)
    for node in arrays.accept:
        result.set_final(node)
    columns = (arrays.src, arrays.ilabel + 1, arrays.olabel + 1, -arrays.weight, arrays.dst)
    for src, ilabel, olabel, weight, dst in zip(*(c.tolist() for c in columns), strict=True):
        result.add_arc(src, fst.Arc(ilabel, olabel, fst.Weight(weight_type, weight), dst))
    return result


def count_arcs(graph: fst.Fst) -> int:
    return sum(graph.num_arcs(node) for node in graph.states())


def path_score(path: fst.Fst) -> float:
    """The score of a graph that is one path, in our sign."""
    total = 0.0
    node = path.start()
    while path.num_arcs(node):
        (arc,) = path.arcs(node)
        total -= float(arc.weight)
        node = arc.nextstate
    return total
