"""The losses of the runs of a page, and the graphs of these losses."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import arcgrad as ag
from arcgrad.recipes.inference import token_names

from .page_runs import PageRun
from .pictures import INK, Picture


@dataclass(frozen=True)
class _LossGraph:
    """A graph that some runs share, as text and, if Graphviz can draw it, as a picture."""

    title: str
    size: str
    text: str
    picture: Picture | None
    problem: str
    names: list[str] = field(default_factory=list)


def losses(runs: Sequence[PageRun]) -> dict[str, list[str]]:
    """Return the names of the runs with each loss."""
    found: dict[str, list[str]] = {}
    for run in runs:
        criterion = run.recognizer.criterion
        loss = f"{type(criterion).__name__}({criterion.extra_repr()})"
        found.setdefault(loss, []).append(run.name)
    return found


def loss_graphs(runs: Sequence[PageRun]) -> list[_LossGraph]:
    """Return the different graphs of the losses for a short word."""
    found: dict[Any, _LossGraph] = {}
    for run in runs:
        names = token_names(run.recognizer)
        for title, graph in _graphs_of(run, _short_word(run)):
            key = title, tuple(names), _text(graph)
            if key not in found:
                found[key] = _draw_graph(title, graph, names)
            found[key].names.append(run.name)
    return list(found.values())


def _short_word(run: PageRun) -> str:
    """Return a word of about three letters, the most frequent one if the data are available."""
    tokens = run.recognizer.tokenizer.tokens
    letters = [token for token in tokens if len(token) == 1 and token.isalpha()]
    if run.dataset is None:
        return "".join(letters[:3])
    known = set("".join(tokens))
    counts = Counter(word for text in run.dataset.texts for word in text.split())
    words = [word for word in counts if set(word) <= known] or ["".join(letters[:3])]
    return min(words, key=lambda word: (abs(len(word) - 3), -counts[word], word))


def _graphs_of(run: PageRun, word: str) -> list[tuple[str, ag.Graph]]:
    criterion = run.recognizer.criterion
    lexicon = criterion.lexicon
    if isinstance(lexicon, ag.lexicon.Lexicon):
        target = ag.lexicon.decompositions(lexicon, word)
        graphs = [(f"The ways to spell “{word}” in word pieces", target)]
    else:
        labels = run.recognizer.tokenizer.encode(word, skip_unknown=True)
        target = ag.chain_graph([label + run.recognizer.first_label for label in labels])
        graphs = []
    alignments = ag.tokens.alignment_graph(criterion.tokens, target)
    return [*graphs, (f"The alignments of “{word}” that the loss sums over", alignments)]


def _text(graph: ag.Graph) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.txt"
        ag.savetxt(file, graph)
        return file.read_text()


def _draw_graph(title: str, graph: ag.Graph, names: Sequence[str]) -> _LossGraph:
    size = f"{graph.num_nodes()} nodes and {graph.num_arcs()} arcs"
    picture, problem = None, ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.svg"
        try:
            ag.draw(graph, file, list(names), max_seconds=20.0)
            picture = Picture.of(_recolored(file.read_text()), f"{title}: a graph with {size}")
        except (ImportError, RuntimeError, TimeoutError, ValueError) as error:
            problem = str(error)
    return _LossGraph(title, size, _text(graph), picture, problem)


def _recolored(svg: str) -> str:
    """Give a picture of Graphviz the colour for a light page, and a transparent background."""
    svg = svg[svg.index("<svg") :].replace('"black"', f'"{INK["light"]}"')
    svg = svg.replace('fill="white"', 'fill="none"').replace("Times,serif", "sans-serif")
    return svg.replace("<svg ", f'<svg fill="{INK["light"]}" ', 1)
