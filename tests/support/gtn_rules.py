"""The rules of gtn for compositions, removal and equal paths, in plain Python."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

EPSILON = -1


@dataclass
class Rules:
    """A graph as lists. `sorted_by` is the label (2 or 3) that orders the arcs of each node."""

    num_nodes: int
    start: list[int]
    accept: list[int]
    arcs: list[tuple[int, int, int, int, float]] = field(default_factory=list)
    sorted_by: int | None = None

    def listed(self, end: int, node: int) -> list[int]:
        """The arcs that leave (end 0) or enter (end 1) a node, in the order of gtn."""
        found = [a for a, arc in enumerate(self.arcs) if arc[end] == node]
        if self.sorted_by:
            found.sort(key=lambda a: self.arcs[a][self.sorted_by])
        return found

    def is_rooted(self) -> bool:
        """Whether no node without a start and incoming arcs leads to an accept node."""
        roots = [n for n in range(self.num_nodes) if n not in self.start and not self.listed(1, n)]
        reached = list(roots)
        for node in reached:
            reached += {self.arcs[a][1] for a in self.listed(0, node)} - set(reached)
        return not any(n in self.accept for n in reached[len(roots) :])


def of(graph) -> Rules:
    """The lists of a graph."""
    arcs = list(zip(*(column.tolist() for column in graph.arcs()), strict=True))
    return Rules(graph.num_nodes(), graph.start().tolist(), graph.accept().tolist(), arcs)


def compose(a: Rules, b: Rules, outer: str = "first") -> Rules:
    """The composition: `outer` is the graph whose arcs the outer loop over pairs follows."""
    out_a = [a.listed(0, n) for n in range(a.num_nodes)]
    out_b = [b.listed(0, n) for n in range(b.num_nodes)]

    def steps(state):
        first, second, alone = state
        pairs = [(i, j) for i in out_a[first] for j in out_b[second]]
        fewer = len(out_a[first]) <= len(out_b[second])
        if outer == "second" or (outer == "smaller" and not fewer):
            pairs = [(i, j) for j in out_b[second] for i in out_a[first]]
        for i, j in pairs:
            label = a.arcs[i][3]
            if label == b.arcs[j][2] and not (alone and label == EPSILON):
                yield i, j, (a.arcs[i][1], b.arcs[j][1], "")
        if alone != "second":
            for i in out_a[first]:
                if a.arcs[i][3] == EPSILON:
                    yield i, None, (a.arcs[i][1], second, "first")
        if alone != "first":
            for j in out_b[second]:
                if b.arcs[j][2] == EPSILON:
                    yield None, j, (first, b.arcs[j][1], "second")

    def accepts(state):
        return state[0] in a.accept and state[1] in b.accept

    starts = [(m, n, "") for m in a.start for n in b.start]
    before = {state: [] for state in starts}
    todo = deque(starts)
    while todo:
        state = todo.popleft()
        for _, _, to in steps(state):
            if to not in before:
                before[to] = []
                todo.append(to)
            before[to].append(state)
    useful = {state for state in before if accepts(state)}
    todo = deque(useful)
    while todo:
        for state in before[todo.popleft()]:
            if state not in useful:
                useful.add(state)
                todo.append(state)

    ids = {}
    for state in starts:
        if state in useful:
            ids.setdefault(state, len(ids))
    out = Rules(0, list(ids.values()), [])
    todo = deque(ids)
    while todo:
        state = todo.popleft()
        for i, j, to in steps(state):
            if to not in useful:
                continue
            if to not in ids:
                ids[to] = len(ids)
                todo.append(to)
            ilabel = EPSILON if i is None else a.arcs[i][2]
            olabel = EPSILON if j is None else b.arcs[j][3]
            weight = (0 if i is None else a.arcs[i][4]) + (0 if j is None else b.arcs[j][4])
            out.arcs.append((ids[state], ids[to], ilabel, olabel, weight))
    out.num_nodes = len(ids)
    out.accept = sorted(n for state, n in ids.items() if accepts(state))
    return out


def remove(g: Rules, ilabel: int = EPSILON, olabel: int | None = None) -> Rules:
    """The graph without some arcs, and with weight 0 on the others."""
    labels = (ilabel, ilabel if olabel is None else olabel)

    def matches(a):
        return g.arcs[a][2:4] == labels

    ids = {}
    for n in range(g.num_nodes):
        if n in g.start or not all(map(matches, g.listed(1, n))):
            ids[n] = len(ids)
    out = Rules(len(ids), [ids[n] for n in g.start], [])
    for n, to in ids.items():
        reached = [n]
        for node in reached:
            if node in g.accept and to not in out.accept:
                out.accept.append(to)
            for a in g.listed(0, node):
                _, dst, i, o, _ = g.arcs[a]
                if not matches(a):
                    out.arcs.append((to, ids[dst], i, o, 0.0))
                elif dst not in reached:
                    reached.append(dst)
    return out


def topological(g: Rules) -> list[int]:
    """The nodes in the order of Kahn's algorithm."""
    missing = [len(g.listed(1, n)) for n in range(g.num_nodes)]
    order = [n for n in range(g.num_nodes) if not missing[n]]
    for n in order:
        for a in g.listed(0, n):
            missing[g.arcs[a][1]] -= 1
            if not missing[g.arcs[a][1]]:
                order.append(g.arcs[a][1])
    return order


def end(g: Rules, scores: list[float]) -> int | None:
    """The first of the best accept nodes."""
    best = None
    for n in g.accept:
        if scores[n] > (-math.inf if best is None else scores[best]):
            best = n
    return best


def follow(g: Rules, pointer: list[int | None], node: int | None) -> list[int] | None:
    """The arcs of a path, from its last node."""
    if node is None:
        return None
    arcs = []
    while pointer[node] is not None:
        arcs.append(pointer[node])
        node = g.arcs[pointer[node]][0]
    return arcs[::-1]


def viterbi_path(g: Rules) -> list[int] | None:
    """The arcs that `viterbi_path` takes; None if there is no path."""
    scores = [0.0 if n in g.start else -math.inf for n in range(g.num_nodes)]
    pointer = [None] * g.num_nodes
    for n in topological(g):
        for a in g.listed(0, n):
            _, dst, _, _, weight = g.arcs[a]
            if scores[n] + weight > scores[dst]:
                scores[dst], pointer[dst] = scores[n] + weight, a
    return follow(g, pointer, end(g, scores))


def viterbi_score(g: Rules) -> tuple[float, list[int] | None]:
    """The best score, and the arcs that its gradient marks."""
    scores, pointer = [-math.inf] * g.num_nodes, [None] * g.num_nodes
    for n in topological(g):
        for a in g.listed(1, n):
            score = scores[g.arcs[a][0]] + g.arcs[a][4]
            if score > scores[n]:
                scores[n], pointer[n] = score, a
        if n in g.start and scores[n] < 0:
            scores[n], pointer[n] = 0.0, None
    last = end(g, scores)
    return (-math.inf if last is None else scores[last]), follow(g, pointer, last)
