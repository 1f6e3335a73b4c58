"""The steppers of the page Learn: recorded states of an algorithm, and pictures of them."""

import html
import itertools
import json
import math
from collections.abc import Iterator
from typing import NamedTuple

import arcgrad as ag
from pictures import inline

_number = itertools.count()


class Step(NamedTuple):
    """What is said, which parts are in color, and which parts appear."""

    text: str
    on: list[str]
    show: list[str]


class Picture:
    """The picture of a graph whose nodes and arcs have ids."""

    def __init__(self, caption: str, graph: ag.Graph) -> None:
        self.caption, self.prefix = caption, f"s{next(_number)}"
        self.html = inline(graph, self.prefix)

    def node(self, node: int) -> str:
        return f"{self.prefix}-node{node + 1}"

    def arc(self, arc: int) -> str:
        return f"{self.prefix}-edge{arc + 1}"


def stepper(pictures: list[Picture], steps: list[Step]) -> str:
    """The HTML of a stepper; `_static/stepper.js` makes it move."""
    figures = "".join(
        f"<figure>{picture.html}<figcaption>{html.escape(picture.caption)}</figcaption></figure>"
        for picture in pictures
    )
    labels = ("|◀", "First step"), ("◀", "Back"), ("▶", "Next"), ("▶|", "Last step")
    buttons = "".join(f'<button aria-label="{title}">{text}</button> ' for text, title in labels)
    data = json.dumps([step._asdict() for step in steps]).replace("<", "\\u003c")
    return (
        f'<div class="stepper" tabindex="0"><div>{buttons}</div>'
        f'<p class="stepper-text" aria-live="polite"></p><div class="graphs">{figures}</div>'
        f'<script type="application/json">{data}</script></div>'
    )


def composition(first: ag.Graph, second: ag.Graph, name=str) -> str:
    """Composition of two graphs without epsilons: pairs of nodes, breadth first."""
    arcs = [list(graph) for graph in (first, second)]
    starts = list(itertools.product(first.start().tolist(), second.start().tolist()))
    result, pairs, found = ag.Graph(), list(starts), []
    ends = [set(graph.accept()) for graph in (first, second)]

    def add(pair, start):
        result.add_node(start, accept=pair[0] in ends[0] and pair[1] in ends[1])

    for pair in starts:
        add(pair, True)
    for p, q in pairs:  # grows while it is read
        for i, j in itertools.product(range(len(arcs[0])), range(len(arcs[1]))):
            a, b = arcs[0][i], arcs[1][j]
            if (a.src, b.src) != (p, q) or a.olabel != b.ilabel:
                continue
            to = a.dst, b.dst
            if to not in pairs:
                pairs.append(to)
                add(to, False)
            source, target = pairs.index((p, q)), pairs.index(to)
            result.add_arc(source, target, a.ilabel, b.olabel, a.weight + b.weight)
            found.append((i, j, source, target))
    expected = ag.compose(first, second)
    if not ag.isomorphic(ag.connect(result), expected):
        raise RuntimeError("the stepper and compose differ")
    result.isymbols, result.osymbols = expected.isymbols, expected.osymbols
    one, two, three = (
        Picture(caption, graph)
        for caption, graph in (("first", first), ("second", second), ("result", result))
    )

    def steps() -> Iterator[Step]:
        pair = pairs[0]
        yield Step(
            f"Both graphs start: node 0 of the result is the pair {pair}.",
            [one.node(pair[0]), two.node(pair[1]), three.node(0)],
            [three.node(0)],
        )
        seen = set(range(len(starts)))
        for k, (i, j, source, target) in enumerate(found):
            a, b = arcs[0][i], arcs[1][j]
            new = [] if target in seen else [three.node(target)]
            seen.add(target)
            yield Step(
                f"At the pair {pairs[source]}, the first graph writes {name(a.olabel)} and the "
                f"second reads it: an arc {name(a.ilabel)}:{name(b.olabel)} to the pair "
                f"{pairs[target]}, with weight {a.weight:g} + {b.weight:g} = "
                f"{a.weight + b.weight:g}.",
                [one.arc(i), two.arc(j), three.arc(k), *new],
                [three.arc(k), *new],
            )
        dead = [k for k in range(len(pairs)) if k not in live_nodes(result)]
        text = (
            "No arc is left."
            if not dead
            else (
                f"No accept node can be reached from {', '.join(str(pairs[k]) for k in dead)}: "
                "compose leaves such pairs out."
            )
        )
        yield Step(text, [three.node(k) for k in dead], [])

    return stepper([one, two, three], list(steps()))


def live_nodes(graph: ag.Graph) -> set[int]:
    """The nodes from which an accept node can be reached."""
    live = set(graph.accept().tolist())
    while more := {arc.src for arc in graph if arc.dst in live} - live:
        live |= more
    return live


def forward(graph: ag.Graph, caption: str) -> str:
    """The forward recursion over a graph whose nodes are in topological order."""
    picture = Picture(caption, graph)
    scores = ag.shortest_distance(graph).weights_to_list()
    incoming: dict[int, list[tuple[int, ag.Arc]]] = {}
    for k, arc in enumerate(graph):
        incoming.setdefault(arc.dst, []).append((k, arc))

    def steps() -> Iterator[Step]:
        starts = graph.start().tolist()
        yield Step(
            "The start node has score 0: the empty path.", [picture.node(n) for n in starts], []
        )
        for node in range(graph.num_nodes()):
            if node not in incoming:
                continue
            terms = [f"{scores[arc.src]:.2f} + {arc.weight:.2f}" for _, arc in incoming[node]]
            total = math.log(
                sum(math.exp(scores[arc.src] + arc.weight) for _, arc in incoming[node])
            )
            if not math.isclose(total, scores[node], abs_tol=1e-6):
                raise RuntimeError(f"node {node}: {total} is not {scores[node]}")
            way = terms[0] if len(terms) == 1 else f"log-sum of {' and '.join(terms)}"
            yield Step(
                f"Node {node}: {way} = {total:.2f}.",
                [picture.node(node), *(picture.arc(k) for k, _ in incoming[node])],
                [],
            )
        ends = graph.accept().tolist()
        yield Step(
            "The forward score is the log-sum of the accept nodes: "
            f"{ag.forward_score(graph).item():.2f}.",
            [picture.node(n) for n in ends],
            [],
        )

    return stepper([picture], list(steps()))
