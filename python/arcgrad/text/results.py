"""Strings that graphs accept, and the best of their outputs."""

from __future__ import annotations

from collections.abc import Sequence

from .. import _core
from .._arguments import checked
from .._core import Graph
from .symbols import String, Symbols, to_graph, to_table, to_text


@checked
def best(graph: Graph) -> str | None:
    """The output string of the best path; None if there is no path.

    Symbols of a :class:`SymbolTable` are joined by spaces.

    Args:
        graph: A graph whose output labels have symbols.

    Raises:
        ValueError: If they have none, or the bytes of the output are not UTF-8.

    >>> import arcgrad as ag
    >>> words = ag.union([ag.text.acceptor("no", weight=-1.0), ag.text.acceptor("yes")])
    >>> ag.text.best(words), ag.text.best(ag.Graph())
    ('yes', None)
    """
    path = _core.viterbi_path(graph)
    if path.num_nodes() == 0:
        return None
    return to_text("best", path.labels_to_list(ilabel=False), graph.osymbols)


@checked
def best_strings(graph: Graph, n: int) -> list[tuple[str, float]]:
    """The n best output strings, each with the score of its best path, the best first.

    Args:
        graph: A graph whose output labels have symbols.
        n: The most strings.

    Raises:
        ValueError: As :func:`best`.

    >>> import arcgrad as ag
    >>> words = ag.union([ag.text.acceptor("no", weight=-1.0), ag.text.acceptor("yes")])
    >>> ag.text.best_strings(words, 5)
    [('yes', 0.0), ('no', -1.0)]
    """
    paths = _core.best_paths(graph, n, unique=True)
    return [
        (
            to_text("best_strings", path.labels_to_list(ilabel=False), graph.osymbols),
            score.item(),
        )
        for path, score in zip(paths, _core.viterbi_score(paths), strict=True)
    ]


@checked
def apply(
    text: String, rules: Graph | Sequence[Graph], *, symbols: Symbols = "bytes"
) -> str | None:
    """The best output of one or several rules for a string; None if they do not accept it.

    Args:
        text: The string.
        rules: A graph, or graphs that are applied one after another.
        symbols: How the string becomes labels; see :mod:`arcgrad.text`.

    Raises:
        ValueError: If the text has a symbol that is not in the table, or as :func:`best`.

    >>> import arcgrad as ag
    >>> title = ag.text.rewrite({"dr.": "doctor"})
    >>> name = ag.text.rewrite({"w.": "who"})
    >>> ag.text.apply("dr. w.", [title, name])
    'doctor who'
    """
    result = to_graph("apply", text, symbols)
    for rule in [rules] if isinstance(rules, Graph) else rules:
        result = _core.compose(result, rule)
    if result.osymbols is None:
        result.osymbols = to_table("apply", symbols)
    return best(result)


@checked
def accepts(graph: Graph, text: String, *, symbols: Symbols = "bytes") -> bool:
    """Whether a graph has a path for an input string.

    Args:
        graph: The graph.
        text: The string.
        symbols: How the string becomes labels; see :mod:`arcgrad.text`.

    Raises:
        ValueError: If the text has a symbol that is not in the table.

    >>> import arcgrad as ag
    >>> ag.text.accepts(ag.closure(ag.text.acceptor("ha")), "haha")
    True
    """
    found = _core.compose(to_graph("accepts", text, symbols), graph)
    return _core.viterbi_path(found).num_nodes() > 0
