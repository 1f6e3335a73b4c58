"""Strings, maps between strings and rewrite rules as graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from .. import _core, _files
from .._arguments import checked
from .._core import Graph, SymbolTable
from .symbols import (
    BYTES,
    NUM_BYTES,
    UNICODE,
    Pairs,
    String,
    Symbols,
    make_chain,
    to_graph,
    to_labels,
    to_table,
)

Entry: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], float]


@checked
def acceptor(
    text: String, symbols: Symbols = "bytes", weight: float = 0.0, *, calc_grad: bool = False
) -> Graph:
    """The graph that accepts one string.

    Args:
        text: The string.
        symbols: How it becomes labels; see :mod:`arcgrad.text`.
        weight: The score of the string.
        calc_grad: Whether backward computes a gradient for this graph.

    Raises:
        ValueError: If the text has a symbol that is not in the table.

    >>> import arcgrad as ag
    >>> ag.text.acceptor("no", weight=-0.5)
    Graph(3 nodes, 2 arcs, start [0], accept [2], float32)
      0 -> 1  n/-0.5
      1 -> 2  o/0
    """
    labels = to_labels("acceptor", text, symbols)
    return make_chain("acceptor", [(k, k) for k in labels], weight, symbols, calc_grad)


def _align(inputs: Sequence[int], outputs: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of labels, with epsilon after the shorter sequence."""
    length = max(len(inputs), len(outputs))

    def padded(labels: Sequence[int]) -> list[int]:
        return [*labels, *[_core.epsilon] * (length - len(labels))]

    return list(zip(padded(inputs), padded(outputs), strict=True))


@checked
def cross(
    first: String | Graph,
    second: String | Graph,
    symbols: Symbols = "bytes",
    weight: float = 0.0,
    *,
    calc_grad: bool = False,
) -> Graph:
    """The graph that maps one string to another, or all strings of one acceptor to all of another.

    The labels of two strings are paired one by one. See :func:`arcgrad.cross` for acceptors.

    Args:
        first: The input: a string or an acceptor.
        second: The output: a string or an acceptor.
        symbols: How strings become labels; see :mod:`arcgrad.text`.
        weight: The score of the pair; for two strings only.
        calc_grad: Whether backward computes a gradient for this graph; for two strings only.

    Raises:
        ValueError: If the text has a symbol that is not in the table, or a weight is given for
            graphs.

    >>> import arcgrad as ag
    >>> ag.text.cross("he", "she")
    Graph(4 nodes, 3 arcs, start [0], accept [3], float32)
      0 -> 1  h:s/0
      1 -> 2  e:h/0
      2 -> 3  ε:e/0
    """
    if isinstance(first, Graph) or isinstance(second, Graph):
        if weight != 0.0 or calc_grad:
            raise ValueError(
                "cross: weight and calc_grad must be given for two strings, but one is a graph"
            )
        return _core.cross(to_graph("cross", first, symbols), to_graph("cross", second, symbols))
    pairs = _align(to_labels("cross", first, symbols), to_labels("cross", second, symbols))
    return make_chain("cross", pairs, weight, symbols, calc_grad)


def _read_pairs(path: str | os.PathLike[str]) -> Iterator[tuple[str, str, float]]:
    for number, line in enumerate(_files.read_text("string_map", path).splitlines(), 1):
        if not line.strip():
            continue
        fields = line.split("\t")
        try:
            first, second = fields[0], fields[1] if len(fields) > 1 else fields[0]
            weight = float(fields[2]) if len(fields) > 2 else 0.0
            if len(fields) > 3:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"string_map: each line of {str(path)!r} must be an input, an output and a score, "
                f"with tabs between them, but line {number} is {line[:60]!r}"
            ) from None
        yield first, second, weight


@checked
def string_map(
    pairs: Pairs | str | os.PathLike[str],
    symbols: Symbols = "bytes",
    *,
    calc_grad: bool = False,
) -> Graph:
    """The graph that maps each of many strings to another: a trie of the inputs.

    Common beginnings of inputs are shared. Output labels are on the arcs that belong to one pair
    only, and the score of the pair is on the first of these. If every string is mapped to itself,
    the graph is an acceptor.

    Args:
        pairs: A dict, strings that are mapped to themselves, pairs ``(input, output)`` or
            ``(input, output, score)``, or the name of a UTF-8 file with one line
            ``input<TAB>output<TAB>score`` for each pair; the score, and an output that equals the
            input, may be left out. What is given twice counts once.
        symbols: How strings become labels; see :mod:`arcgrad.text`.
        calc_grad: Whether backward computes a gradient for this graph.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If a line is invalid, or a string has a symbol that is not in the table.

    >>> import arcgrad as ag
    >>> numbers = ag.text.string_map({"one": "1", "on": "0"})
    >>> numbers.num_arcs(), ag.text.apply("one", numbers), ag.text.apply("o", numbers)
    (4, '1', None)
    """
    op = "string_map"
    if isinstance(pairs, str | os.PathLike):
        rows: Iterable[Any] = _read_pairs(pairs)
    else:
        rows = pairs.items() if isinstance(pairs, Mapping) else pairs
    entries: list[Entry] = []
    for row in rows:
        if isinstance(row, str):
            row = row, row
        if not isinstance(row, tuple | list) or len(row) not in (2, 3):
            raise ValueError(
                f"{op}: an element must be an input and an output, or with a score, "
                f"but one is {row!r}"
            )
        first, second = (to_labels(op, _as_string(op, text), symbols) for text in row[:2])
        entries.append((tuple(first), tuple(second), float(row[2]) if len(row) == 3 else 0.0))
    return _trie(list(dict.fromkeys(entries)), to_table(op, symbols), calc_grad)


def _as_string(op: str, text: object) -> String:
    is_list = isinstance(text, list | tuple) and all(isinstance(part, str) for part in text)
    if not isinstance(text, str) and not is_list:
        raise TypeError(f"{op}: inputs and outputs must be strings, but one is {text!r}")
    return text  # type: ignore[return-value]


def _trie(entries: list[Entry], table: SymbolTable, calc_grad: bool) -> Graph:
    following: dict[tuple[int, int], int] = {}
    num_entries = [0]  # that pass through each node
    paths = []
    for labels, _, _ in entries:
        node, path = 0, []
        for label in labels:
            node = following.setdefault((node, label), len(num_entries))
            if node == len(num_entries):
                num_entries.append(0)
            num_entries[node] += 1
            path.append(node)
        paths.append(path)
    is_acceptor = all(labels == outputs for labels, outputs, _ in entries)
    arcs = [
        (node, child, label, label if is_acceptor else _core.epsilon, 0.0)
        for (node, label), child in following.items()
        if num_entries[child] > 1
    ]
    num_nodes, accept = len(num_entries), set()
    for (labels, outputs, weight), path in zip(entries, paths, strict=True):
        own = sum(num_entries[node] == 1 for node in path)
        shared = len(labels) - own
        node = path[shared - 1] if shared else 0
        pairs = _align(labels[shared:], outputs[shared:] if is_acceptor else outputs)
        if not pairs and weight != 0.0:
            pairs = [(_core.epsilon, _core.epsilon)]
        for k, (ilabel, olabel) in enumerate(pairs):
            child = path[shared + k] if k < own else num_nodes
            num_nodes += k >= own
            arcs.append((node, child, ilabel, olabel, weight if k == 0 else 0.0))
            node = child
        accept.add(node)
    columns = zip(*arcs, strict=True) if arcs else [()] * 5
    return Graph.from_arrays(
        *columns,
        start=[0],
        accept=sorted(accept),
        num_nodes=num_nodes,
        calc_grad=calc_grad,
        isymbols=table,
    )


@checked
def sigma_star(symbols: Symbols = "bytes", characters: String | None = None) -> Graph:
    """All strings of an alphabet: one node with an arc per label.

    Args:
        symbols: How strings become labels; see :mod:`arcgrad.text`.
        characters: The alphabet, as a string of its labels; by default all bytes or all symbols of
            the table. Unicode characters must be named.

    Raises:
        ValueError: If ``characters`` are needed, or not in the table.

    >>> import arcgrad as ag
    >>> ag.text.sigma_star().num_arcs(), ag.text.sigma_star("unicode", "äöü").num_arcs()
    (256, 3)
    """
    op = "sigma_star"
    table = to_table(op, symbols)
    if characters is not None:
        labels = sorted(set(to_labels(op, characters, symbols)))
    elif table == BYTES:
        labels = list(range(NUM_BYTES))
    elif table == UNICODE:
        raise ValueError(
            f"{op}: characters must be given for symbols='unicode', but they are None; "
            "name those of the text"
        )
    else:
        labels = [label for _, label in table.items()]
    zeros = [0] * len(labels)
    return Graph.from_arrays(
        zeros,
        zeros,
        labels,
        start=[0],
        accept=[0],
        num_nodes=1,
        calc_grad=False,
        isymbols=table,
    )


@checked
def rewrite(
    tau: Graph | Mapping[str, str],
    left: String | Graph = "",
    right: String | Graph = "",
    sigma: Graph | None = None,
    *,
    symbols: Symbols = "bytes",
    mode: Literal["obligatory", "optional"] = "obligatory",
    direction: Literal["ltr", "rtl", "sim"] = "ltr",
) -> Graph:
    """A context-dependent rewrite rule: ``tau`` between ``left`` and ``right``.

    It is :func:`arcgrad.rewrite` with contexts as strings, and differentiable in the weights of
    ``tau``. A context of several strings is a graph, such as a union. It may have the labels
    :data:`BEGIN` and :data:`END`, for the beginning and the end of the text.

    Args:
        tau: The rule: a graph that maps strings to strings, or a dict.
        left: What comes before: a string or an acceptor.
        right: What follows.
        sigma: An acceptor whose labels are the alphabet, such as :func:`sigma_star`. By default all
            bytes, or all symbols of the table.
        symbols: How strings become labels; see :mod:`arcgrad.text`.
        mode: ``"obligatory"`` or ``"optional"``.
        direction: ``"ltr"``, ``"rtl"`` or ``"sim"``.

    Raises:
        ValueError: If a context is not an acceptor, or tables of symbols do not agree.

    >>> import arcgrad as ag
    >>> plural = ag.text.rewrite({"y": "ie"}, right="s")
    >>> ag.text.apply("citys by year", plural)
    'cities by year'
    """
    op = "rewrite"
    rule = tau if isinstance(tau, Graph) else string_map(tau, symbols)
    alphabet = sigma_star(symbols) if sigma is None else sigma
    labels = set(alphabet.labels_to_list()) - {_core.epsilon}
    return _core.rewrite(
        rule,
        to_graph(op, left, symbols),
        to_graph(op, right, symbols),
        sorted(labels),
        mode=mode,
        direction=direction,
    )
