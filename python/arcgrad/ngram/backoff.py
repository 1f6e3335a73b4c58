"""Transition graphs with arcs for the n-grams that occur, and back-off for all others."""

from __future__ import annotations

import itertools
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from arcgrad._arguments import checked
from arcgrad._core import Graph, epsilon

from ._table import END, START, Floats, Ints, Rows, Table, check_shorter, show, take
from .counts import Counts

if TYPE_CHECKING:
    from .model import Model
else:
    Model = Any  # model.py imports this file

BLANKS = ("none", "optional", "forced")


@checked
def backoff_graph(
    source: Counts | Model,
    *,
    backoff: bool = True,
    blank: str = "none",
    blank_label: int | None = None,
    self_loops: bool = False,
    calc_grad: bool = True,
    dtype: Any = "float32",
) -> Graph:
    """A transition graph with back-off (Figure 4b of the paper).

    There is a node for each history: the empty one, each n-gram below the highest order that does
    not end in ``</s>``, and ``<s>``, the start. The n-gram ``h w`` is an arc with label w from the
    node of h to the node of ``h w``, or of its longest suffix that is a history. An epsilon arc
    leads from each history to its longest suffix that has a node. An n-gram that ends in ``</s>``
    is an epsilon arc to the end node, the only one that accepts; without ``</s>`` every node
    accepts.

    Nodes are sorted by length, then lexicographically, and the end node is the last one. First come
    the arcs of n-grams, by order, then lexicographically as in ``source.ngrams(n)`` (but ``<s>``
    alone has no arc). Then come the back-off arcs in the order of their nodes. For counts the
    weights are 0, as parameters to be learned; for a model they are its scores and back-offs.

    Back-off by epsilon is not exclusive: an n-gram that exists can also be read by backing off, and
    without ``</s>`` a path may back off at its end. The log semiring sums over all these paths, as
    in the paper; the tropical semiring takes the best one.

    Args:
        source: Counts, usually pruned, or a model.
        backoff: Whether there are back-off arcs.
        blank: How blanks, which are not in the counts, are inserted before, between and after the
            tokens of n-grams. ``"optional"``: at every subset of these positions, and the n-grams
            without blanks stay. ``"forced"``: at all positions, and only 1-grams without blanks
            stay. ``"none"``: no blanks.
        blank_label: The label of the blank; by default ``source.num_tokens``.
        self_loops: Whether to add each n-gram below the highest order with one of its tokens
            repeated, for tokens that last several frames.
        calc_grad: Whether backward computes a gradient for this graph.
        dtype: The type of the weights.

    Raises:
        ValueError: If an n-gram without its first token is missing, no n-gram ends in ``</s>``,
            ``blank`` is unknown, the blank is a token, or a model is given with blanks or loops.

    >>> import arcgrad as ag
    >>> counts = ag.ngram.count(["abab", "ba", "bb"], order=2).prune([0, 1])
    >>> graph = ag.ngram.backoff_graph(counts)
    >>> graph.num_nodes(), graph.num_arcs()  # (), <s>, a, b, end; 3 + 4 n-grams and 3 back-offs
    (5, 10)
    >>> ag.ngram.backoff_graph(counts, blank="optional", self_loops=True).num_arcs()
    21
    """
    op = "backoff_graph"
    if not hasattr(source, "_tables"):
        raise TypeError(
            f"{op}: source must be Counts or a Model, but it is of type {type(source).__name__}"
        )
    if blank not in BLANKS:
        raise ValueError(f"{op}: blank must be one of {', '.join(BLANKS)}, but it is {blank!r}")
    tables, scores = list(source._tables), []
    if isinstance(source, Counts):
        check_shorter(op, tables, source.symbols, without="first")
        if blank != "none":
            label = source.num_tokens if blank_label is None else operator.index(blank_label)
            _check_blank(op, label, tables)
            tables = _with_blanks(tables, label, blank == "forced")
        if self_loops:
            tables = _with_self_loops(tables)
    else:
        if blank != "none" or self_loops:
            raise ValueError(
                f"{op}: blanks and self-loops need counts, but a model is given, which has no "
                f"scores for them"
            )
        # <s> is a history, but no arc reads it.
        is_read = tables[0].rows[:, 0] != START
        tables[0] = Table(tables[0].rows[is_read])
        scores = [source._log_probs[0][is_read], *source._log_probs[1:]]
    if source.has_end and not any((table.rows[:, -1] == END).any() for table in tables):
        raise ValueError(f"{op}: an n-gram must end in </s>, but none does; prune less")

    nodes = _Nodes(tables, source.has_start)
    columns = [nodes.arcs(table) for table in tables]
    if backoff:
        columns.append(nodes.back_offs())
        if not isinstance(source, Counts):
            scores.append(nodes.weights(source))
    src, dst, ilabel = (np.concatenate(column) for column in zip(*columns, strict=True))
    start = nodes.of(np.array([[START]], np.int32))
    return Graph.from_arrays(
        src,
        dst,
        ilabel,
        weight=np.concatenate(scores) if scores else None,
        start=start if source.has_start and source.order > 1 else [0],
        accept=[nodes.end] if source.has_end else np.arange(nodes.end),
        num_nodes=nodes.end + source.has_end,
        dtype=dtype,
        calc_grad=calc_grad,
    )


class _Nodes:
    """The nodes of histories: the empty history is node 0, and the end node is the last one."""

    def __init__(self, tables: list[Table], has_start: bool) -> None:
        self._longest = len(tables) - 1
        self._histories: list[Table] = []
        for n, table in enumerate(tables[:-1], 1):
            rows = [table.rows[table.rows[:, -1] != END], tables[n].rows[:, :-1]]
            if n == 1 and has_start:
                rows.append(np.array([[START]], np.int32))
            self._histories.append(Table.of(np.concatenate(rows)))
        sizes = [1, *map(len, self._histories)]
        self._first = [0, *itertools.accumulate(sizes)]
        self.end = sum(sizes)

    def of(self, rows: Rows) -> Ints:
        """The node of each history, or of its longest suffix that has a node."""
        node = np.zeros(len(rows), np.int64)
        for n in range(1, min(rows.shape[1], self._longest) + 1):
            place = self._histories[n - 1].find(rows[:, rows.shape[1] - n :])
            node = np.where(place >= 0, place + self._first[n], node)
        return node

    def arcs(self, table: Table) -> tuple[Ints, Ints, Rows]:
        """The arcs of n-grams."""
        rows = table.rows
        is_end = rows[:, -1] == END
        dst = np.where(is_end, self.end, self.of(rows))
        return self.of(rows[:, :-1]), dst, np.where(is_end, epsilon, rows[:, -1])

    def back_offs(self) -> tuple[Ints, Ints, Rows]:
        """The back-off arcs of all histories but the empty one."""
        src = np.arange(1, self.end)
        dst = [self.of(table.rows[:, 1:]) for table in self._histories]
        return src, np.concatenate([src[:0], *dst]), np.full(len(src), epsilon, np.int32)

    def weights(self, model: Model) -> Floats:
        """The back-off weights of all histories but the empty one."""
        weights = [np.empty(0)]
        for n, table in enumerate(self._histories):
            weights.append(take(model._back_offs[n], model._tables[n].find(table.rows), 0.0))
        return np.concatenate(weights)


def _check_blank(op: str, label: int, tables: list[Table]) -> None:
    if label < 0:
        raise ValueError(f"{op}: the blank label must be 0 or more, but it is {label}")
    for table in tables:
        found = (table.rows == label).any(axis=1)
        if found.any():
            raise ValueError(
                f"{op}: the blank must not be a token, but label {label} is in "
                f"{show(table.rows[found][0])}"
            )


def _with_blanks(tables: list[Table], label: int, is_forced: bool) -> list[Table]:
    """The n-grams, and the n-grams with blanks that blanks inserted into them make."""
    order = len(tables)
    found: list[list[Rows]] = [[] for _ in tables]
    found[0].append(np.array([[label]], np.int32))
    for table in tables[:1] if is_forced else tables:
        found[table.rows.shape[1] - 1].append(table.rows)
    for table in tables:
        first, last = table.rows[:, 0] == START, table.rows[:, -1] == END
        # No blank comes before <s> or after </s>, so such n-grams have fewer positions for blanks.
        for has_first, has_last in itertools.product([False, True], repeat=2):
            rows = table.rows[(first != has_first) & (last != has_last)]
            length = rows.shape[1]
            free = [*[0] * has_first, *range(1, length), *[length] * has_last]
            patterns = [[True] * len(free)]
            if not is_forced:
                patterns = [list(p) for p in itertools.product([False, True], repeat=len(free))]
            for pattern in patterns:
                blanks = {k for k, is_used in zip(free, pattern, strict=True) if is_used}
                # Columns of the rows with blanks; None is a blank.
                columns: list[int | None] = []
                for k in range(length + 1):
                    columns += [None] * (k in blanks) + [k] * (k < length)
                for n in range(1, order + 1):
                    for begin in range(len(columns) - n + 1):
                        part = columns[begin : begin + n]
                        if None in part:
                            found[n - 1].append(_select(rows, part, label))
    return [Table.of(np.concatenate(rows)) for rows in found]


def _select(rows: Rows, columns: list[int | None], label: int) -> Rows:
    out = np.full((len(rows), len(columns)), label, np.int32)
    for k, column in enumerate(columns):
        if column is not None:
            out[:, k] = rows[:, column]
    return out


def _with_self_loops(tables: list[Table]) -> list[Table]:
    """The n-grams, and each of them with one of its tokens repeated."""
    out = tables[:1]
    for table in tables[1:]:
        shorter = out[-1].rows
        found = [table.rows]
        for place in range(shorter.shape[1]):
            rows = shorter[shorter[:, place] >= 0]
            found.append(np.insert(rows, place, rows[:, place], axis=1))
        out.append(Table.of(np.concatenate(found)))
    return out
