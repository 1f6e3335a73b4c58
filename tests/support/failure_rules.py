"""What failure and rest arcs mean, label by label, as a plain reference; and random graphs of them.

The functions follow the definition in docs/concepts.md, not the code: they search the strings of a
graph with arcs that match by phi and rho.
"""

import math

import hypothesis.strategies as st
from strategies import graphs
from tools import build

import arcgrad as ag

MATCHED = {"input": 3, "output": 4}  # the field of an arc


def resolved_language(graph, *, side="output", num_labels=3, length=5, plus=None):
    """The language of a graph over the labels below `num_labels`, if no string is longer than
    `length`. `side` is matched."""
    from spec import collect  # spec.py imports this file

    steps = Steps(graph, side, num_labels)
    found = []

    def search(node, inputs, outputs, score):
        found.extend(((inputs + i, outputs + o), score + value) for i, o, value in steps.ends(node))
        for arc, i, o, value in steps.moves(node):
            if len(inputs) + len(i) <= length and len(outputs) + len(o) <= length:
                search(arc.dst, inputs + i, outputs + o, score + value)

    for node in steps.table.start:
        search(node, (), (), 0.0)
    return collect(found) if plus is None else collect(found, plus)


class Steps:
    def __init__(self, graph, side, num_labels):
        from spec import table

        self.table = table(graph)
        self.matched, self.labels = MATCHED[side], range(num_labels)

    def arcs(self, node, label):
        return [a for a in self.table.arcs if a.src == node and a[self.matched] == label]

    def outputs(self, arc, label=None):
        """The strings that an arc reads and writes; rho stands for the label that it matches."""

        def text(own):
            return () if own in (ag.epsilon, ag.phi) else ((label if own == ag.rho else own),)

        return text(arc.ilabel), text(arc.olabel)

    def match(self, node, label):
        """The arcs that match a label at a node, and the weight of the failure arcs before."""
        weight = 0.0
        while True:
            if found := self.arcs(node, label) or self.arcs(node, ag.rho):
                return [(arc, weight + arc.weight) for arc in found]
            if not (failure := self.arcs(node, ag.phi)):
                return []
            weight += failure[0].weight
            node = failure[0].dst

    def moves(self, node):
        for arc in self.arcs(node, ag.epsilon):
            yield arc, *self.outputs(arc), arc.weight
        for label in self.labels:
            for arc, weight in self.match(node, label):
                yield arc, *self.outputs(arc, label), weight

    def can_end(self, node):
        return node in self.table.accept or any(
            self.can_end(arc.dst) for arc in self.arcs(node, ag.epsilon)
        )

    def ends(self, node):
        """What is read and written at the end of a string. Accept nodes end it in any case."""
        if node in self.table.accept:
            yield (), (), 0.0
        if self.can_end(node):
            return
        weight = 0.0
        while failure := self.arcs(node, ag.phi):
            weight += failure[0].weight
            node = failure[0].dst
            if self.can_end(node):
                yield from ((i, o, weight + value) for i, o, value in self.silent_ends(node))
                return

    def silent_ends(self, node):
        if node in self.table.accept:
            yield (), (), 0.0
        for arc in self.arcs(node, ag.epsilon):
            i, o = self.outputs(arc)
            for more_i, more_o, value in self.silent_ends(arc.dst):
                yield i + more_i, o + more_o, arc.weight + value


@st.composite
def failing(draw, *, side="output", rest=True, **options):
    """Graphs with failure arcs, and rest arcs if `rest`, on the side that is matched."""
    graph = draw(graphs(**{"max_nodes": 5, "max_arcs": 9, "num_labels": 2} | options))
    from spec import table

    num_nodes, start, accept, arcs = table(graph)
    own, other = MATCHED[side], 7 - MATCHED[side]
    is_acceptor = all(arc.ilabel == arc.olabel for arc in arcs)
    has_failure, rows = set(), []
    for arc in arcs:
        row = list(arc[1:])
        kinds = ["plain"] + ["rest"] * rest
        if arc.src not in has_failure:
            kinds += ["failure"] * 3
        kind = draw(st.sampled_from(kinds))
        if kind == "failure":
            has_failure.add(arc.src)
            row[own - 1] = ag.phi
            row[other - 1] = ag.phi if is_acceptor else draw(st.sampled_from([ag.phi, ag.epsilon]))
        elif kind == "rest":
            row[own - 1] = ag.rho
            if is_acceptor or draw(st.booleans()):
                row[other - 1] = ag.rho
        rows.append(tuple(row))
    assert not any(math.isnan(row[-1]) for row in rows)
    return build(num_nodes, set(start), set(accept), rows)
