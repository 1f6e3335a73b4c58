"""The meaning of each op, as a plain reference implementation.

A language maps (input string, output string) to the score of its paths: their log-sum, or their
maximum in the tropical semiring. Every op on graphs is tested against the same op on languages.
Where a result depends on more than the language (ties, posteriors, arithmetic of weights) the
meaning is written on paths or on arcs. One row per op, at the end of the file, is all that
`test_every_op.py` needs. The file is long because it is the one table of all meanings.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import hypothesis.strategies as st
import numpy as np
from failure_rules import failing, resolved_language
from strategies import (
    acceptors,
    closable,
    convergent,
    deterministic,
    distinct,
    emissions,
    graphs,
    grid,
    mergeable,
    same_structure,
    without_gain,
)

import arcgrad as ag

Language = dict[tuple[tuple[int, ...], tuple[int, ...]], float]

EMPTY = ((), ())
LENGTH = 3  # the longest string read from a graph with cycles

# A semiring is the NumPy function that joins the scores of two paths.
LOG, TROPICAL = np.logaddexp, np.maximum


# Reading graphs


class Arc(NamedTuple):
    id: int
    src: int
    dst: int
    ilabel: int
    olabel: int
    weight: float


class Table(NamedTuple):
    """A graph as plain lists. Node weights are those of epsilon arcs: from one more node to each
    start node, and from each accept node to another one."""

    num_nodes: int
    start: list[int]
    accept: list[int]
    arcs: list[Arc]


Path = tuple[Arc, ...]


def table(graph: ag.Graph) -> Table:
    labels = graph.src_nodes(), graph.dst_nodes(), graph.ilabels(), graph.olabels()
    columns = [column.tolist() for column in labels]
    rows = list(zip(*columns, graph.weights_to_list(), strict=True))
    num_nodes, start, accept = graph.num_nodes(), graph.start().tolist(), graph.accept().tolist()
    if graph.has_node_weights():
        first, last, silent = num_nodes, num_nodes + 1, (ag.epsilon, ag.epsilon)
        weights = graph.start_weights().tolist(), graph.accept_weights().tolist()
        rows += [(first, n, *silent, w) for n, w in zip(start, weights[0], strict=True)]
        rows += [(n, last, *silent, w) for n, w in zip(accept, weights[1], strict=True)]
        num_nodes, start, accept = num_nodes + 2, [first], [last]
    return Table(num_nodes, start, accept, [Arc(a, *row) for a, row in enumerate(rows)])


def paths(graph: ag.Graph) -> list[Path]:
    """Every path of an acyclic graph from a start to an accept."""
    _, start, accept, arcs = table(graph)
    found, open_ = [], [(node, ()) for node in start]
    while open_:
        node, path = open_.pop()
        if node in accept:
            found.append(path)
        open_ += [(arc.dst, (*path, arc)) for arc in arcs if arc.src == node]
    return found


def simple_paths(graph: ag.Graph) -> list[Path]:
    """Every path from a start to an accept that visits no node twice."""
    _, start, accept, arcs = table(graph)
    found, open_ = [], [(node, (), {node}) for node in start]
    while open_:
        node, path, visited = open_.pop()
        if node in accept:
            found.append(path)
        open_ += [
            (arc.dst, (*path, arc), visited | {arc.dst})
            for arc in arcs
            if arc.src == node and arc.dst not in visited
        ]
    return found


def score(path: Path) -> float:
    return sum(arc.weight for arc in path)


def spell(path: Path) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The labels of a path on either side, without epsilons."""
    ilabels = tuple(arc.ilabel for arc in path if arc.ilabel != ag.epsilon)
    return ilabels, tuple(arc.olabel for arc in path if arc.olabel != ag.epsilon)


def collect(pairs: Iterable[tuple[Any, float]], plus=LOG) -> Language:
    """Join the scores of equal strings; impossible strings are left out."""
    language: Language = {}
    for string, value in pairs:
        language[string] = float(plus(language.get(string, -math.inf), value))
    return {string: value for string, value in language.items() if value != -math.inf}


def language(graph: ag.Graph, plus=LOG) -> Language:
    """The language of an acyclic graph."""
    return collect(((spell(path), score(path)) for path in paths(graph)), plus)


def times(x, y, plus):
    """The product of two matrices of scores."""
    return plus.reduce(x[:, :, None] + y[None], axis=1, initial=-math.inf)


def star(x, plus):
    """1 + x + x^2 + ... by doubling the number of terms; the series must converge."""
    total = np.where(np.eye(len(x), dtype=bool), 0.0, -math.inf)
    power = x
    for _ in range(16):
        total = plus(total, times(power, total, plus))
        power = times(power, power, plus)
    return total


def nodes_as_row(num_nodes, nodes):
    row = np.full((1, num_nodes), -math.inf)
    row[0, nodes] = 0.0
    return row


def strings(graph: ag.Graph, plus=LOG) -> Language:
    """The language of a graph with cycles, on strings of at most LENGTH labels on either side."""
    num_nodes, start, accept, arcs = table(graph)
    nothing = np.full((num_nodes, num_nodes), -math.inf)
    steps: dict[tuple[int, int], Any] = {(ag.epsilon, ag.epsilon): nothing.copy()}
    for arc in arcs:
        step = steps.setdefault((arc.ilabel, arc.olabel), nothing.copy())
        step[arc.src, arc.dst] = plus(step[arc.src, arc.dst], arc.weight)
    silent = star(steps.pop((ag.epsilon, ag.epsilon)), plus)
    reached = {EMPTY: times(nodes_as_row(num_nodes, start), silent, plus)}
    for num_labels in range(2 * LENGTH):
        for x, y in [s for s in reached if len(s[0]) + len(s[1]) == num_labels]:
            for (i, o), step in steps.items():
                longer = x + (i,) * (i != ag.epsilon), y + (o,) * (o != ag.epsilon)
                if max(map(len, longer)) <= LENGTH:
                    row = times(times(reached[x, y], step, plus), silent, plus)
                    reached[longer] = plus(reached.get(longer, -math.inf), row)
    ends = [(s, value) for s, row in reached.items() for value in row[0, accept].tolist()]
    return collect(ends, plus)


def distances(graph: ag.Graph, plus=LOG, *, reverse=False) -> dict[int, float]:
    """Per node, the joined scores of all paths from the starts (reverse: to the accepts)."""
    reached = all_distances(graph, plus, reverse=reverse)
    return {node: reached[node] for node in range(graph.num_nodes())}


def all_distances(graph: ag.Graph, plus=LOG, *, reverse=False) -> dict[int, float]:
    """The same for all nodes of `table`."""
    num_nodes, start, accept, arcs = table(graph)
    step = np.full((num_nodes, num_nodes), -math.inf)
    for arc in arcs:
        ends = (arc.dst, arc.src) if reverse else (arc.src, arc.dst)
        step[ends] = plus(step[ends], arc.weight)
    row = times(nodes_as_row(num_nodes, accept if reverse else start), star(step, plus), plus)
    return dict(enumerate(row[0].tolist()))


def total(graph: ag.Graph, plus=LOG) -> float:
    """The joined scores of all paths of a graph with cycles."""
    reached = all_distances(graph, plus)
    return float(plus.reduce([reached[n] for n in table(graph).accept], initial=-math.inf))


class Accepted:
    """The accepted paths of a graph with cycles, as traces: there may be any number."""

    def __init__(self, graph: ag.Graph):
        self.table = table(graph)

    def __contains__(self, steps: list[tuple[int, int, float]]) -> bool:
        nodes = set(self.table.start)
        for step in steps:
            nodes = {
                arc.dst
                for arc in self.table.arcs
                if arc.src in nodes and arc[3:] == step and arc.weight > -math.inf
            }
        return bool(nodes & set(self.table.accept))


def chain(graph: ag.Graph) -> list[tuple[int, int, float]] | None:
    """The labels and weights along a graph that is one path; None for the empty graph."""
    if graph.num_nodes() == 0:
        return None
    (path,) = paths(graph)
    assert len(path) == len(table(graph).arcs)
    assert graph.num_arcs() == graph.num_nodes() - 1
    return trace(path)


def trace(path: Path) -> list[tuple[int, int, float]]:
    return [(arc.ilabel, arc.olabel, arc.weight) for arc in path]


def chains(graph: ag.Graph) -> list[list[tuple[int, int, float]]]:
    """The labels and weights along each path of a union of chains, in order."""
    arcs, start = table(graph).arcs, graph.start().tolist()
    found = []
    for low, high in zip(start, [*start[1:], graph.num_nodes()], strict=True):
        own = [arc for arc in arcs if low <= arc.src < high]
        own[:0] = [arc for arc in arcs if arc.src >= graph.num_nodes() and arc.dst == low]
        found.append(trace(tuple(own)))
    return found


def item(graph: ag.Graph) -> float:
    return graph.item()


def weight_by_label(graph: ag.Graph) -> dict[int, float]:
    assert graph.num_nodes() == 2
    return dict(zip(graph.labels_to_list(), graph.weights_to_list(), strict=True))


# The meaning of the ops on languages


def compose(x: Language, y: Language) -> Language:
    return collect(((i, o), s + t) for (i, m), s in x.items() for (n, o), t in y.items() if m == n)


def forward_score(x: Language) -> float:
    return float(LOG.reduce(list(x.values()), initial=-math.inf))


def sequence_loss(x: Language, frames: Language) -> float:
    return forward_score(frames) - forward_score(compose(x, frames))


def viterbi_score(x: Language) -> float:
    return max(x.values(), default=-math.inf)


def union(*xs: Language) -> Language:
    return collect(itertools.chain.from_iterable(x.items() for x in xs))


def concat(*xs: Language) -> Language:
    joined: Language = {EMPTY: 0.0}
    for y in xs:
        joined = collect(
            ((i + j, o + p), s + t) for (i, o), s in joined.items() for (j, p), t in y.items()
        )
    return joined


def difference(x: Language, y: Language) -> Language:
    return {string: s for string, s in x.items() if string not in y}


def all_strings(labels: Iterable[int]) -> list[tuple[int, ...]]:
    labels = list(labels)
    return [w for n in range(LENGTH + 1) for w in itertools.product(labels, repeat=n)]


def complement(x: Language, labels: Iterable[int]) -> Language:
    return {(w, w): 0.0 for w in all_strings(labels) if (w, w) not in x}


def cross(x: Language, y: Language) -> Language:
    return collect(((i, o), s + t) for (i, _), s in x.items() for (_, o), t in y.items())


def rewrite(
    rule: Language, left: Language, right: Language, *, labels=(0, 1), mode="obligatory", direction
) -> Language:
    """Visit the places of each string from left to right, and rewrite or copy at each of them."""
    if direction == "rtl":
        sides = map(reverse, (rule, right, left))
        mirrored = rewrite(*sides, labels=labels, mode=mode, direction="mirrored")
        return reverse(mirrored)
    ends = (ag.text.BEGIN, ag.text.END)
    first, last = reversed(ends) if direction == "mirrored" else ends

    def ended(text: tuple[int, ...]) -> bool:
        return any(
            (first, *text)[1 + len(text) - len(c) :] == c
            for c, _ in left
            if len(c) <= 1 + len(text)
        )

    def followed(text: tuple[int, ...]) -> bool:
        return any((*text, last)[: len(c)] == c for c, _ in right)

    def outputs(x, at, done, can_insert):
        """Pairs of an output and its score; `done` was written for the labels before `at`."""
        found = []
        if ended(x[:at] if direction == "sim" else done):
            found = [
                (at + len(i), o, s)
                for (i, o), s in rule.items()
                if x[at : at + len(i)] == i and followed(x[at + len(i) :]) and (i or can_insert)
            ]
        for end, o, s in found:
            for more, t in outputs(x, end, done + o, False):
                yield more, s + t
        if not found or mode == "optional":
            if at == len(x):
                yield done, 0.0
            elif x[at] in labels:
                yield from outputs(x, at + 1, (*done, x[at]), True)

    pairs = (((x, o), s) for x in all_strings(range(3)) for o, s in outputs(x, 0, (), True))
    return collect(pairs)


def shorter(x: Language) -> Language:
    return {string: s for string, s in x.items() if max(map(len, string)) <= LENGTH}


def optional(x: Language) -> Language:
    return union(x, {EMPTY: 0.0})


def prune(found: list[Path], threshold: float, plus: Any) -> Language:
    """The paths all of whose arcs are on paths that together are within the threshold."""

    def total(some: list[Path]) -> float:
        return float(plus.reduce([score(path) for path in some], initial=-math.inf))

    kept = {
        arc
        for path in found
        for arc in path
        if total([p for p in found if arc in p]) >= total(found) - threshold
    }
    return collect(((spell(path), score(path)) for path in found if kept.issuperset(path)), plus)


def power(x: Language, n: int) -> Language:
    return concat(*[x] * n)


def closure(x: Language) -> Language:
    # Any number of empty repetitions may precede each repetition and follow the last.
    pause = -math.log1p(-math.exp(x.get(EMPTY, -math.inf)))
    once = {string: s + pause for string, s in x.items() if string != EMPTY}
    rounds = all_rounds = {EMPTY: pause}
    while rounds:
        rounds = shorter(concat(rounds, once))
        all_rounds = union(all_rounds, rounds)
    return all_rounds


def project_input(x: Language) -> Language:
    return collect(((i, i), s) for (i, _), s in x.items())


def project_output(x: Language) -> Language:
    return collect(((o, o), s) for (_, o), s in x.items())


def invert(x: Language) -> Language:
    return {(o, i): s for (i, o), s in x.items()}


def reverse(x: Language) -> Language:
    return {(i[::-1], o[::-1]): s for (i, o), s in x.items()}


def same(x: Any) -> Any:
    return x


# The meaning of the ops on paths


def best(found: list[Path]) -> Path | None:
    """The highest score; among equals the smallest arc ids, first difference first."""
    possible = [path for path in found if score(path) != -math.inf]
    return min(possible, key=lambda p: (-score(p), [arc.id for arc in p]), default=None)


def viterbi_path(found: list[Path]) -> list[tuple[int, int, float]] | None:
    path = best(found)
    return None if path is None else trace(path)


def best_paths(found: list[Path], n: int, *, unique=False) -> list[list[tuple[int, int, float]]]:
    """The best path, the best of the rest, and so on; unique: none with an output seen before."""
    rest, taken = list(found), []
    while len(taken) < n and (path := best(rest)) is not None:
        taken.append(trace(path))
        rest.remove(path)
        if unique:
            rest = [other for other in rest if spell(other)[1] != spell(path)[1]]
    return taken


def arc_posteriors(num_arcs: int, found: list[Path]) -> list[float]:
    posteriors = [0.0] * num_arcs
    log_sum = LOG.reduce([score(path) for path in found], initial=-math.inf)
    for path in found:
        for arc in path:
            if score(path) != -math.inf:
                posteriors[arc.id] += math.exp(score(path) - log_sum)
    return posteriors


def arc_posteriors_tropical(num_arcs: int, found: list[Path]) -> list[float]:
    ids = [arc.id for arc in best(found) or ()]
    return [1.0 if a in ids else 0.0 for a in range(num_arcs)]


def expected_counts(graph: ag.Graph) -> list[float]:
    """How often a path of a graph with cycles takes each arc, on average."""
    before, after = all_distances(graph), all_distances(graph, reverse=True)
    log_sum = total(graph)
    values = [before[arc.src] + arc.weight + after[arc.dst] for arc in table(graph).arcs]
    return [math.exp(value - log_sum) if value > -math.inf else 0.0 for value in values]


def expected(found: list[Path], costs: list[Path]) -> float:
    log_sum = LOG.reduce([score(path) for path in found])
    return sum(
        math.exp(score(path) - log_sum) * score(cost)
        for path, cost in zip(found, costs, strict=True)
        if score(path) != -math.inf
    )


def entropy(found: list[Path]) -> float:
    return float(LOG.reduce([score(path) for path in found])) - expected(found, found)


def entropy_of_counts(graph: ag.Graph) -> float:
    """The entropy of the paths of a graph with cycles."""
    counted = zip(expected_counts(graph), weight_list(graph), strict=True)
    return total(graph) - sum(count * weight for count, weight in counted if count)


def kl_divergence(p: Language, q: Language) -> float:
    if not p.keys() <= q.keys():
        return math.inf
    ratio = forward_score(q) - forward_score(p)
    return sum(math.exp(p[s] - forward_score(p)) * (p[s] - q[s] + ratio) for s in p)


# Some best path visits no node twice.


def all_best(found: list[Path]) -> list[Path]:
    highest = max(map(score, found), default=-math.inf)
    return [path for path in found if score(path) == highest > -math.inf]


def any_viterbi_path(found: list[Path]) -> list[list[tuple[int, int, float]] | None]:
    return [trace(path) for path in all_best(found)] or [None]


def any_counts(num_arcs: int, found: list[Path]) -> list[list[float]]:
    taken = [{arc.id for arc in path} for path in all_best(found) or [()]]
    return [[float(a in ids) for a in range(num_arcs)] for ids in taken]


def remove(found: list[Path], ilabel: int, olabel: int, plus=LOG) -> Language:
    def kept(path):
        return tuple(arc for arc in path if (arc.ilabel, arc.olabel) != (ilabel, olabel))

    return collect(((spell(kept(path)), score(path)) for path in found), plus)


def sample(found: list[Path]) -> list[list[tuple[int, int, float]]]:
    """The paths that may be drawn."""
    return [trace(path) for path in found if score(path) != -math.inf]


class Samples:
    """All lists of paths that may be drawn."""

    def __init__(self, found: list[Path]):
        self.possible = sample(found)

    def __contains__(self, drawn: list[list[tuple[int, int, float]]]) -> bool:
        return len(drawn) == 3 and all(path in self.possible for path in drawn)


# The meaning of the ops on arcs


def each_arc(change: Callable[..., float], *tables: Table) -> Table:
    """The first graph with weights computed from the weights of all."""
    arcs = [
        same_arc[0]._replace(weight=change(*(arc.weight for arc in same_arc)))
        for same_arc in zip(*(t.arcs for t in tables), strict=True)
    ]
    return tables[0]._replace(arcs=arcs)


def negate(x: Table) -> Table:
    return each_arc(lambda w: -w, x)


def add(x: Table, y: Table) -> Table:
    return each_arc(lambda v, w: v + w, x, y)


def subtract(x: Table, y: Table) -> Table:
    return each_arc(lambda v, w: v - w, x, y)


def scale(x: Table, factor: float) -> Table:
    return each_arc(lambda w: w * factor, x)


# The meaning of the ops that edit graphs


def relabel(x: Language) -> Language:
    new = {0: 5, 1: 0}
    return {(tuple(new[a] for a in i), tuple(b + 3 for b in o)): s for (i, o), s in x.items()}


def replace(root: Language, parts: dict[int, Language]) -> Language:
    def expand(label: int) -> Language:
        return parts.get(label, {((label,), (label,)): 0.0})

    found = (concat({EMPTY: s}, *map(expand, i)) for (i, _), s in root.items())
    return union(*found)


def replace_labels(x: Language, new: dict[int, int]) -> Language:
    return {(tuple(new[a] for a in i), tuple(new[b] for b in o)): s for (i, o), s in x.items()}


def without(found: list[Path], is_deleted: Callable[[Arc], bool]) -> Language:
    return collect((spell(p), score(p)) for p in found if not any(map(is_deleted, p)))


def with_ids(op, ids: Callable[[ag.Graph], Any]):
    """Call an op with ids that depend on the graph."""

    def call(graph):
        is_list = isinstance(graph, list)
        return op(graph, [ids(element) for element in graph] if is_list else ids(graph))

    return call


def encode(x: Table) -> Table:
    """Each pair of labels as its number in the order of the arcs."""
    codes: dict[tuple[int, int], int] = {(ag.epsilon, ag.epsilon): ag.epsilon}
    arcs = []
    for arc in x.arcs:
        code = codes.setdefault((arc.ilabel, arc.olabel), len(codes) - 1)
        arcs.append(arc._replace(ilabel=code, olabel=code))
    return x._replace(arcs=arcs)


def encode_and_decode(graph, *, labels, weights):
    encoder = ag.Encoder(labels, weights)
    return ag.decode(ag.encode(graph, encoder), encoder)


# The meaning of the constructors


def linear_graph(length: int, num_labels: int, values: Sequence[Sequence[float]]) -> Language:
    words = itertools.product(range(num_labels), repeat=length)
    return collect(((w, w), sum(values[t][c] for t, c in enumerate(w))) for w in words)


def chain_graph(ilabels: Sequence[int], olabels: Sequence[int], values: Sequence[float]):
    def spelled(labels):
        return tuple(label for label in labels if label != ag.epsilon)

    return collect([((spelled(ilabels), spelled(olabels)), sum(values))])


def edit_costs(ilabels: Sequence[int], olabels: Sequence[int], costs: tuple[Any, ...]) -> float:
    """The least cost of edits between two strings of the labels 0 and 1."""
    insertion, deletion, substitution = costs
    row = np.cumsum([0.0, *(insertion[b] for b in olabels)]).tolist()
    for a in ilabels:
        above, row = row, [row[0] + deletion[a]]
        for k, b in enumerate(olabels):
            changed = above[k] + (0.0 if a == b else substitution[a][b])
            row.append(min(changed, above[k + 1] + deletion[a], row[k] + insertion[b]))
    return row[-1]


UNIT = [1.0, 1.0], [1.0, 1.0], [[1.0, 1.0], [1.0, 1.0]]


def edit_distance(x: Language, y: Language) -> float:
    distances = (
        edit_costs(o, i, UNIT) - s - t for (_, o), s in x.items() for (i, _), t in y.items()
    )
    return min(distances, default=math.inf)


def levenshtein_graph(costs: tuple[Any, ...]) -> Language:
    words = [w for n in range(LENGTH + 1) for w in itertools.product((0, 1), repeat=n)]
    return {(x, y): -edit_costs(x, y, costs) for x in words for y in words}


# One row per op


@dataclass(frozen=True)
class Op:
    """How an op is called, what it means, and the random arguments of its tests.

    `read(call(*graphs))` must equal `meaning(*map(view, graphs))`. `gradient` and `second_order`
    say whether finite differences apply, `batch` whether a list gives the list of results.
    """

    name: str
    call: Callable[..., ag.Graph]
    meaning: Callable[..., Any]
    inputs: st.SearchStrategy[tuple[Any, ...]]
    variant: str = ""
    view: Callable[[Any], Any] = language
    read: Callable[[ag.Graph], Any] = language
    gradient: bool = True
    second_order: bool = True
    batch: bool = True
    one_of: bool = False  # the meaning lists every right answer
    slots: bool = True  # whether one graph may be every argument

    def __str__(self) -> str:
        return f"{self.name}[{self.variant}]" if self.variant else self.name


def within(graph: ag.Graph) -> ag.Graph:
    """The part of a graph that reads strings of three labels, at most LENGTH long."""
    length = range(LENGTH)
    src, labels = np.repeat(length, 3), np.tile(range(3), LENGTH)
    short = ag.Graph.from_arrays(
        src, src + 1, labels, start=[0], accept=range(LENGTH + 1), dtype="float64", calc_grad=False
    )
    return ag.compose(short, graph)


def of_list(op):
    """Call an op on one list of graphs with each graph as a separate argument."""

    def call(*columns):
        if any(isinstance(column, list) for column in columns):
            return op([list(row) for row in zip(*columns, strict=True)])
        return op(list(columns))

    return call


def with_count(meaning):
    """A meaning on paths that also needs the number of arcs."""
    return lambda counted: meaning(*counted)


def counted_paths(graph):
    return len(table(graph).arcs), paths(graph)


def counted_simple_paths(graph):
    return len(table(graph).arcs), simple_paths(graph)


def weight_list(graph):
    return [arc.weight for arc in table(graph).arcs]


def one(strategy):
    return st.tuples(strategy)


def two(first, second=None):
    return st.tuples(first, first if second is None else second)


finite = graphs(impossible=False)
acyclic, cyclic = one(graphs()), one(convergent())
level = one(without_gain())  # best paths exist, though a cycle may weigh 0
tropical = {"view": partial(language, plus=TROPICAL), "read": partial(language, plus=TROPICAL)}
on_strings = {"view": strings, "read": strings}
on_tropical_strings = {
    "view": partial(strings, plus=TROPICAL),
    "read": partial(strings, plus=TROPICAL),
}
on_arcs = {"view": table, "read": table}
no_tape = {"view": same, "gradient": False, "second_order": False, "batch": False}


def has_path(graph):
    return best(paths(graph)) is not None


possible = graphs().filter(has_path)

OPS = [
    # Scores
    Op("forward_score", ag.forward_score, forward_score, acyclic, read=item),
    Op("forward_score", ag.forward_score, same, cyclic, "cyclic", total, item),
    Op("forward_score", ag.forward_score, forward_score, one(emissions()), "emissions", read=item),
    Op(
        "sequence_loss",
        ag.sequence_loss,
        sequence_loss,
        two(acceptors(), emissions()),
        "emissions",
        read=item,
    ),
    Op("viterbi_score", ag.viterbi_score, viterbi_score, acyclic, **tropical | {"read": item}),
    Op(
        "viterbi_score",
        ag.viterbi_score,
        same,
        level,
        "cyclic",
        partial(total, plus=TROPICAL),
        item,
    ),
    Op("viterbi_path", ag.viterbi_path, viterbi_path, acyclic, view=paths, read=chain),
    Op(
        "viterbi_path",
        ag.viterbi_path,
        any_viterbi_path,
        level,
        "cyclic",
        simple_paths,
        chain,
        one_of=True,
    ),
    *(
        Op(
            "shortest_distance",
            partial(ag.shortest_distance, reverse=backwards, semiring=semiring),
            same,
            inputs,
            f"{'reverse' if backwards else 'forward'},{semiring}{kind}",
            partial(distances, plus=plus, reverse=backwards),
            weight_by_label,
        )
        for backwards in (False, True)
        for semiring, plus in (("log", LOG), ("tropical", TROPICAL))
        for kind, inputs in (("", acyclic), (",cyclic", cyclic if plus is LOG else level))
    ),
    Op(
        "arc_posteriors",
        ag.arc_posteriors,
        with_count(arc_posteriors),
        acyclic,
        view=counted_paths,
        read=weight_list,
        second_order=False,
    ),
    Op(
        "arc_posteriors",
        partial(ag.arc_posteriors, semiring="tropical"),
        with_count(arc_posteriors_tropical),
        acyclic,
        "tropical",
        counted_paths,
        weight_list,
    ),
    Op(
        "arc_posteriors",
        ag.arc_posteriors,
        same,
        cyclic,
        "cyclic",
        expected_counts,
        weight_list,
        second_order=False,
    ),
    Op(
        "arc_posteriors",
        partial(ag.arc_posteriors, semiring="tropical"),
        with_count(any_counts),
        level,
        "cyclic,tropical",
        counted_simple_paths,
        weight_list,
        second_order=False,
        one_of=True,
    ),
    # Scores of products with emissions, which are not materialized
    *(
        Op(
            score.__name__,
            lambda graph, frames, score=score: score(ag.compose(graph, frames)),
            lambda x, y, meaning=meaning: meaning(compose(x, y)),
            two(inputs if plus is LOG else level_inputs, emissions()),
            kind,
            partial(view, plus=plus),
            item,
        )
        for score, meaning, plus in (
            (ag.forward_score, forward_score, LOG),
            (ag.viterbi_score, viterbi_score, TROPICAL),
        )
        for kind, inputs, level_inputs, view in (
            ("product", graphs(), graphs(), language),
            (
                "product,cyclic",
                convergent(transducer=False),
                without_gain(transducer=False),
                strings,
            ),
        )
    ),
    Op(
        "outer_score",
        lambda first, second, frames: ag.outer_score([first, second], frames),
        lambda x, y, frames: [forward_score(compose(x, frames)), forward_score(compose(y, frames))],
        st.tuples(graphs(), graphs(), emissions()),
        read=weight_list,
        batch=False,
    ),
    Op(
        "outer_score",
        lambda first, second, frames: ag.outer_score([first, second], frames, semiring="tropical"),
        lambda x, y, frames: [viterbi_score(compose(x, frames)), viterbi_score(compose(y, frames))],
        st.tuples(graphs(), graphs(), emissions()),
        "tropical",
        partial(language, plus=TROPICAL),
        read=weight_list,
        batch=False,
    ),
    # Distributions
    Op(
        "expected",
        ag.expected,
        expected,
        same_structure(graphs()).filter(lambda two: has_path(two[0])),
        view=paths,
        read=item,
    ),
    Op("entropy", ag.entropy, entropy, one(possible), view=paths, read=item),
    Op(
        "entropy",
        ag.entropy,
        same,
        one(convergent().filter(lambda graph: total(graph) > -math.inf)),
        "cyclic",
        entropy_of_counts,
        item,
    ),
    *(
        Op(
            "kl_divergence",
            ag.kl_divergence,
            kl_divergence,
            inputs.filter(lambda two: has_path(two[0])),
            kind,
            read=item,
        )
        for kind, inputs in (
            ("", two(deterministic())),
            ("same structure", same_structure(deterministic())),
        )
    ),
    Op(
        "sample",
        partial(ag.sample, seed=7),
        sample,
        one(possible),
        view=paths,
        read=chain,
        batch=False,
        one_of=True,
    ),
    Op(
        "sample",
        partial(ag.sample, seed=7),
        same,
        one(convergent().filter(lambda graph: total(graph) > -math.inf)),
        "cyclic",
        Accepted,
        chain,
        batch=False,
        one_of=True,
    ),
    Op(
        "sample",
        lambda graph: ag.union(ag.sample(graph, 3, seed=7)),
        Samples,
        one(possible),
        "n",
        paths,
        chains,
        batch=False,
        one_of=True,
    ),
    # Products
    Op("compose", ag.compose, compose, two(graphs())),
    Op("compose", ag.compose, compose, two(graphs(), emissions()), "emissions"),
    # Matched strings have at most LENGTH labels: they are accepted by an acyclic graph, or are as
    # long as the strings that are compared.
    *(
        Op("compose", ag.compose, compose, inputs, kind, slots=slots, **on_strings)
        for kind, inputs, slots in (
            ("cyclic first", two(convergent(), graphs(max_nodes=LENGTH + 1)), False),
            ("cyclic second", two(graphs(max_nodes=LENGTH + 1), convergent()), True),
            ("cyclic", two(convergent(epsilon=False, max_nodes=4, max_arcs=6)), True),
        )
    ),
    Op("intersect", ag.intersect, compose, two(acceptors())),
    Op("intersect", ag.intersect, compose, two(acceptors(), emissions()), "emissions"),
    Op("intersect", ag.intersect, compose, two(emissions(), acceptors()), "emissions first"),
    Op(
        "intersect",
        ag.intersect,
        compose,
        two(convergent(transducer=False, max_nodes=3, max_arcs=5)),
        "cyclic",
        **on_strings,
    ),
    # Sets of strings and rules
    Op("difference", ag.difference, difference, two(acceptors())),
    Op(
        "difference",
        ag.difference,
        difference,
        two(convergent(transducer=False, max_nodes=4, max_arcs=6), acceptors()),
        "cyclic first",
        slots=False,
        **on_strings,
    ),
    Op(
        "difference",
        ag.difference,
        difference,
        two(acceptors(max_nodes=LENGTH + 1), convergent(transducer=False)),
        "cyclic second",
        slots=False,
        **on_strings,
    ),
    Op(
        "complement",
        lambda g: within(ag.complement(g, [0, 1])),
        lambda x: complement(x, [0, 1]),
        one(acceptors()),
        batch=False,
    ),
    Op("cross", ag.cross, cross, two(acceptors())),
    *(
        Op(
            "rewrite",
            lambda *graphs, options=options: within(ag.rewrite(*graphs, [0, 1], **options)),
            partial(rewrite, **options),
            st.tuples(graphs(max_nodes=4, max_arcs=5), contexts, contexts),
            f"{mode},{direction}",
            slots=False,
            batch=False,
        )
        for mode in ("obligatory", "optional")
        for direction in ("ltr", "rtl", "sim")
        for options in [{"mode": mode, "direction": direction}]
        for contexts in [acceptors(max_nodes=3, max_arcs=3)]
    ),
    # Failure and rest arcs, which the other graph or the emissions resolve
    *(
        Op(name, call, meaning, inputs, kind, view, read, slots=False, batch=name != "outer_score")
        for name, call, meaning, inputs, kind, view, read in (
            (
                "compose",
                ag.compose,
                compose,
                st.tuples(failing(), graphs(num_labels=3)),
                "failure",
                resolved_language,
                language,
            ),
            (
                "intersect",
                ag.intersect,
                compose,
                st.tuples(acceptors(num_labels=3), failing(transducer=False)),
                "failure",
                resolved_language,
                language,
            ),
            (
                "forward_score",
                lambda graph, frames: ag.forward_score(ag.compose(graph, frames)),
                lambda x, y: forward_score(compose(x, y)),
                st.tuples(failing(), emissions(num_labels=3)),
                "product,failure",
                resolved_language,
                item,
            ),
            (
                "viterbi_score",
                lambda graph, frames: ag.viterbi_score(ag.compose(graph, frames)),
                lambda x, y: viterbi_score(compose(x, y)),
                st.tuples(failing(), emissions(num_labels=3)),
                "product,failure",
                partial(resolved_language, plus=TROPICAL),
                item,
            ),
            (
                "sequence_loss",
                ag.sequence_loss,
                sequence_loss,
                st.tuples(failing(transducer=False), emissions(num_labels=3)),
                "failure",
                resolved_language,
                item,
            ),
            (
                "outer_score",
                lambda first, second, frames: ag.outer_score([first, second], frames),
                lambda x, y, frames: [forward_score(compose(g, frames)) for g in (x, y)],
                st.tuples(failing(), failing(), emissions(num_labels=3)),
                "failure",
                resolved_language,
                weight_list,
            ),
            (
                "beam_search",
                ag.beam_search,
                lambda x, frames: compose(frames, x),
                st.tuples(failing(side="input"), emissions(num_labels=3)),
                "failure",
                partial(resolved_language, side="input"),
                language,
            ),
        )
    ),
    # Decoding
    *(
        Op(
            "beam_search",
            ag.beam_search,
            lambda x, frames: compose(frames, x),
            two(inputs, emissions()),
            kind,
            view,
        )
        for kind, inputs, view in (
            ("", graphs(), language),
            ("cyclic", convergent(transducer=False, epsilon=False), strings),
        )
    ),
    *(
        Op(
            "best_paths",
            lambda graph, unique=unique: ag.union(ag.best_paths(graph, 3, unique=unique)),
            partial(best_paths, n=3, unique=unique),
            one(possible),
            "unique" if unique else "",
            paths,
            chains,
        )
        for unique in (False, True)
    ),
    # Rational operations
    Op("union", of_list(ag.union), union, two(graphs())),
    Op("union", of_list(ag.union), union, two(convergent()), "cyclic", **on_strings),
    Op("concat", of_list(ag.concat), concat, two(graphs())),
    Op(
        "concat",
        of_list(ag.concat),
        lambda *xs: shorter(concat(*xs)),
        two(convergent()),
        "cyclic",
        **on_strings,
    ),
    Op("power", lambda g: ag.power(g, 2), lambda x: power(x, 2), one(graphs())),
    Op("power", lambda g: ag.power(g, 0), lambda x: power(x, 0), one(graphs()), "zero"),
    Op("plus", ag.plus, lambda x: shorter(concat(x, closure(x))), one(closable()), read=strings),
    Op("optional", ag.optional, optional, acyclic),
    Op("closure", ag.closure, closure, one(closable()), read=strings),
    Op("closure", ag.closure, closure, one(closable(cyclic=True)), "cyclic", **on_strings),
    # Arithmetic of weights
    Op("negate", ag.negate, negate, one(finite), **on_arcs),
    Op("add", ag.add, add, same_structure(graphs()), **on_arcs),
    Op("subtract", ag.subtract, subtract, same_structure(finite), **on_arcs),
    Op("scale", lambda g: ag.scale(g, -1.5), lambda x: scale(x, -1.5), one(finite), **on_arcs),
    Op(
        "map_weights",
        lambda g: ag.map_weights(g, np.exp, np.exp, np.exp),
        lambda x: each_arc(math.exp, x),
        acyclic,
        **on_arcs,
    ),
    # Structure
    Op("clone", ag.clone, same, cyclic, **on_arcs),
    Op("project_input", ag.project_input, project_input, acyclic),
    Op("project_input", ag.project_input, project_input, one(emissions()), "emissions"),
    Op("project_output", ag.project_output, project_output, acyclic),
    Op("invert", ag.invert, invert, cyclic, **on_strings),
    Op("reverse", ag.reverse, reverse, cyclic, **on_strings),
    Op("connect", ag.connect, same, cyclic, **on_strings),
    Op("remove", ag.remove, same, acyclic),
    Op("remove", partial(ag.remove, semiring="tropical"), same, acyclic, "tropical", **tropical),
    Op("remove", ag.remove, same, cyclic, "cyclic", **on_strings),
    Op(
        "remove",
        partial(ag.remove, semiring="tropical"),
        same,
        cyclic,
        "cyclic,tropical",
        **on_tropical_strings,
    ),
    Op(
        "remove",
        partial(ag.remove, semiring="tropical"),
        same,
        level,
        "cycles of weight 0,tropical",
        second_order=False,
        **on_tropical_strings,
    ),
    Op(
        "remove",
        lambda g: ag.remove(g, 0, 1),
        lambda found: remove(found, 0, 1),
        acyclic,
        "label",
        view=paths,
    ),
    Op(
        "remove",
        lambda g: ag.remove(g, 1, semiring="tropical"),
        lambda found: remove(found, 1, 1, TROPICAL),
        acyclic,
        "label,tropical",
        paths,
        tropical["read"],
    ),
    Op("determinize", ag.determinize, same, one(distinct(graphs()))),
    Op(
        "determinize",
        partial(ag.determinize, semiring="tropical"),
        same,
        one(distinct(graphs())),
        "tropical",
        **tropical,
    ),
    *(
        Op(name, partial(op, semiring=semiring), same, one(distinct(graphs())), kind, **reads)
        for name, op in (("disambiguate", ag.disambiguate), ("synchronize", ag.synchronize))
        for semiring, kind, reads in (("log", "", {}), ("tropical", "tropical", tropical))
    ),
    *(
        Op(
            "push",
            partial(ag.push, weights=weights, labels=labels, to=to, semiring=semiring),
            same,
            inputs,
            f"{'weights' * weights}{'labels' * labels},{to},{semiring}{kind}",
            **reads,
        )
        for weights, labels in ((True, False), (False, True), (True, True))
        for to in ("start", "end")
        for semiring in ("log", "tropical")
        for kind, inputs, reads in (
            ("", one(graphs(node_weights=None)), {} if semiring == "log" else tropical),
            (
                ",cyclic",
                one(convergent(node_weights=None)),
                on_strings if semiring == "log" else on_tropical_strings,
            ),
        )
        # A case of each kind for both semirings, and one where labels and weights meet.
        if weights or semiring == "log"
        if not (weights and labels) or (to == "start" and semiring == "log")
    ),
    Op("minimize", ag.minimize, same, one(mergeable()), **tropical),
    Op("minimize", ag.minimize, same, one(mergeable(cyclic=True)), "cyclic", **on_strings),
    *(
        Op("optimize", partial(ag.optimize, semiring=semiring), same, inputs, semiring, **reads)
        for semiring, inputs, reads in (
            ("log", one(distinct(graphs())), {}),
            ("tropical", one(distinct(graphs())), tropical),
        )
    ),
    *(
        Op(
            "epsilon_normalize",
            partial(ag.epsilon_normalize, side=side, semiring=semiring),
            same,
            acyclic,
            f"{side},{semiring}",
            **reads,
        )
        for side in ("input", "output")
        for semiring, reads in (("log", {}), ("tropical", tropical))
    ),
    *(
        Op(
            "decode",
            partial(encode_and_decode, labels=labels, weights=weights),
            same,
            one(distinct(graphs(node_weights=None))),
            f"{labels},{weights}",
            **on_arcs,
        )
        for labels, weights in ((True, False), (False, True), (True, True))
    ),
    Op(
        "encode",
        lambda g: ag.encode(g, ag.Encoder()),
        encode,
        acyclic,
        batch=False,
        **on_arcs,
    ),
    *(
        Op(
            "prune",
            partial(ag.prune, threshold=1.06, semiring=semiring),
            partial(prune, threshold=1.06, plus=plus),
            one(graphs(empty_path=False)),
            semiring,
            paths,
            partial(language, plus=plus),
        )
        for semiring, plus in (("log", LOG), ("tropical", TROPICAL))
    ),
    Op(
        "delete_arcs",
        with_ids(ag.delete_arcs, lambda graph: graph.ilabels() == 1),
        lambda found: without(found, lambda arc: arc.ilabel == 1),
        acyclic,
        view=paths,
    ),
    Op(
        "delete_nodes",
        with_ids(ag.delete_nodes, lambda graph: [1]),
        lambda found: without(found, lambda arc: 1 in (arc.src, arc.dst)),
        one(graphs(empty_path=False, min_nodes=2)),
        view=paths,
    ),
    Op("relabel", lambda g: ag.relabel(g, {0: 5, 1: 0}, [3, 4]), relabel, acyclic),
    Op(
        "replace",
        lambda root, part: ag.replace(root, {1: ag.relabel(part, {1: 2}, {1: 2})}),
        lambda root, part: replace(root, {1: replace_labels(part, {0: 0, 1: 2})}),
        two(acceptors(), graphs()),
        batch=False,
    ),
    Op(
        "replace",
        lambda root, part, inner: ag.replace(
            root, {1: ag.relabel(part, {1: 2}, {1: 2}), 2: ag.relabel(inner, [3, 4], [3, 4])}
        ),
        lambda root, part, inner: replace(
            root,
            {
                1: replace(
                    replace_labels(part, {0: 0, 1: 2}), {2: replace_labels(inner, {0: 3, 1: 4})}
                )
            },
        ),
        st.tuples(acceptors(max_nodes=4), acceptors(max_nodes=3), graphs(max_nodes=3)),
        "nested",
        batch=False,
    ),
    Op("arc_sort", ag.arc_sort, same, cyclic, **on_strings),
    Op("arc_sort", partial(ag.arc_sort, olabel=True), same, cyclic, "olabel", **on_strings),
    Op("top_sort", ag.top_sort, same, acyclic),
    # Ops composed of others
    Op(
        "edit_distance",
        ag.edit_distance,
        edit_distance,
        two(graphs(), distinct(graphs())),  # no ties between paths of both graphs
        **tropical | {"read": item},
    ),
    # Constructors
    Op(
        "levenshtein_graph",
        lambda costs: ag.levenshtein_graph(
            2, insertion=costs[0], deletion=costs[1], substitution=costs[2]
        ),
        levenshtein_graph,
        one(
            st.lists(st.integers(0, 16).map(lambda k: k / 8), min_size=8, max_size=8).map(
                lambda c: (c[:2], c[2:4], [c[4:6], c[6:]])
            )
        ),
        read=partial(strings, plus=TROPICAL),
        **no_tape,
    ),
    Op(
        "random_graph",
        lambda seed: ag.random_graph(6, 12, 3, acyclic=seed % 2 == 0, seed=seed),
        lambda seed: (6, 12, 6, True),
        one(st.integers(0, 2**64)),
        read=lambda graph: (
            graph.num_nodes(),
            graph.num_arcs(),
            ag.connect(graph).num_nodes(),
            set(graph.labels_to_list()) <= {0, 1, 2},
        ),
        **no_tape,
    ),
    Op(
        "linear_graph",
        lambda values: ag.linear_graph(len(values), 2, values, dtype="float64"),
        lambda values: linear_graph(len(values), 2, values),
        one(st.lists(st.tuples(grid(), grid()), max_size=3)),
        **no_tape,
    ),
    Op(
        "linear_graphs",
        lambda values: ag.linear_graphs(np.reshape(values, (1, -1, 2)), dtype="float64")[0],
        lambda values: linear_graph(len(values), 2, values),
        one(st.lists(st.tuples(grid(), grid()), max_size=3)),
        **no_tape,
    ),
    Op(
        "scalar_graph",
        ag.scalar_graph,
        lambda weight: collect([(EMPTY, weight)]),
        one(grid()),
        **no_tape,
    ),
    Op(
        "chain_graph",
        lambda arcs: ag.chain_graph(*map(list, zip(*arcs, strict=True)), dtype="float64"),
        lambda arcs: chain_graph(*zip(*arcs, strict=True)),
        one(st.lists(st.tuples(st.integers(-1, 2), st.integers(-1, 2), grid()), min_size=1)),
        **no_tape,
    ),
]
