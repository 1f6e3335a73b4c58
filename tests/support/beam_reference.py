"""A plain reference of beam search."""

import math

from spec import table
from tools import build

import arcgrad as ag

EPS = ag.epsilon


def pruned(graph, emissions, beam=math.inf, max_active=math.inf):
    """The arcs ((frame, node), (frame, node), labels, weight) of the lattice, starts and accepts.

    For graphs whose epsilon arcs form no cycle on the input side.
    """
    num_nodes, start, accept, arcs = table(graph)
    silent = [arc for arc in arcs if arc.ilabel == EPS and arc.weight > -math.inf]
    frames = emissions.weights_view()
    found = []

    def limit(scores):
        ranked = sorted(scores.values(), reverse=True)
        least = ranked[0] - beam
        return max(least, ranked[max_active - 1]) if len(ranked) > max_active else least

    def prune_silent(t, scores):
        """Follow epsilon arcs and prune: the surviving nodes, and all nodes on paths to them."""
        if not scores:
            return {}, set()
        last = t == len(frames)
        least = -math.inf if last else limit(scores)
        reached = dict(scores)

        def open_arcs():
            """The epsilon arcs of nodes within the limits, those of small nodes last."""
            for arc in sorted(silent, key=lambda arc: -arc.src):
                value = reached.get(arc.src, -math.inf)
                if value > -math.inf and min(value, value + arc.weight) >= least:
                    yield arc, value + arc.weight

        for _ in range(num_nodes):
            for arc, value in open_arcs():
                reached[arc.dst] = max(reached.get(arc.dst, -math.inf), value)
        # The back-pointer of each node that an epsilon arc reaches.
        best = [(arc, value) for arc, value in open_arcs() if value == reached[arc.dst]]
        parent = {a.dst: a.src for a, value in best if value > scores.get(a.dst, -math.inf)}
        going = sorted(reached, key=lambda n: (-reached[n], n))
        if not last:
            least = limit(reached)
            going = [n for n in going if reached[n] >= least]
            going = going[: int(min(max_active, len(going)))]
        kept = set()
        for node in going:
            while node is not None and node not in kept:
                kept.add(node)
                node = parent.get(node)
        for arc in silent:
            if arc.src in kept and arc.dst in kept:
                found.append(((t, arc.src), (t, arc.dst), (EPS, arc.olabel), arc.weight))
        return {n: reached[n] for n in going}, kept

    front, kept = prune_silent(0, dict.fromkeys(start, 0.0))
    starts = [(0, n) for n in start if n in kept]
    for t, frame in enumerate(frames):
        entered, steps = {}, []
        for arc in arcs:
            if arc.src in front and 0 <= arc.ilabel < len(frame):
                weight = arc.weight + float(frame[arc.ilabel])
                if weight > -math.inf:
                    steps.append((arc, weight))
                    value = front[arc.src] + weight
                    entered[arc.dst] = max(entered.get(arc.dst, -math.inf), value)
        front, kept = prune_silent(t + 1, entered)
        for arc, weight in steps:
            if arc.dst in kept:
                ends = (t, arc.src), (t + 1, arc.dst)
                found.append((*ends, (arc.ilabel, arc.olabel), weight))
    accepts = [(len(frames), n) for n in front if n in accept]
    return found, starts, accepts


def reference(graph, emissions, **options):
    """The lattice of `pruned` as a graph."""
    found, starts, accepts = pruned(graph, emissions, **options)
    nodes = sorted({*starts, *accepts, *(end for arc in found for end in arc[:2])})
    ids = {node: k for k, node in enumerate(nodes)}
    arcs = [(ids[src], ids[dst], *labels, weight) for src, dst, labels, weight in found]
    return build(len(nodes), {ids[n] for n in starts}, {ids[n] for n in accepts}, arcs)
