"""Transition graphs with arcs for the n-grams that occur, and back-off for all others."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from arcgrad._arguments import checked
from arcgrad._core import Graph, epsilon, phi

from ._sequences import Token
from ._table import END, START, Floats, Ints, Rows, Table, check_shorter, show, take
from .counts import Counts

if TYPE_CHECKING:
    from .model import Model
else:
    Model = Any  # model.py imports this file

BLANKS = ("none", "optional", "forced")
BACK_OFFS = ("failure", "epsilon", "none")
BackOff: TypeAlias = Literal["failure", "epsilon", "none"]
Named: TypeAlias = Mapping[tuple[Token, ...], float]


@checked
def backoff_graph(
    source: Counts | Model | Named,
    *,
    backoff: BackOff = "failure",
    back_offs: Named | None = None,
    symbols: Sequence[str] | None = None,
    blank: str = "none",
    blank_label: int | None = None,
    self_loops: bool = False,
    calc_grad: bool = True,
    dtype: Any = "float32",
) -> Graph:
    """A transition graph with back-off (Figure 4b of the paper).

    There is a node for each history: the empty one, each n-gram below the highest order that does
    not end in ``</s>``, and ``<s>``, the start. The n-gram ``h w`` is an arc with label w from the
    node of h to the node of ``h w``, or of its longest suffix that is a history. A back-off arc
    leads from each history to its longest suffix that has a node. An n-gram that ends in ``</s>``
    is an epsilon arc to the end node, the only one that accepts; without ``</s>`` every node
    accepts.

    Nodes are sorted by length, then lexicographically, and the end node is the last one. First come
    the arcs of n-grams, by order, then lexicographically as in ``source.ngrams(n)`` (but ``<s>``
    alone has no arc). Then come the back-off arcs in the order of their nodes. For counts the
    weights are 0, as parameters to be learned; for a model they are its scores and back-offs.

    Args:
        source: Counts, usually pruned, or a model; or the weight of each n-gram, which is a tuple
            of tokens: numbers, or names with ``symbols``. ``<s>`` and ``</s>`` are START and END,
            or these names.
        backoff: What the back-off arcs are. ``"failure"``: failure arcs (``arcgrad.phi``), taken
            only for tokens that the history has no n-gram for, so that each sequence has one path
            and the graph of a model is the model. ``"epsilon"``: epsilon arcs, as in the paper. An
            n-gram that exists can then also be read by backing off, and without ``</s>`` a path may
            back off at its end; the log semiring sums over all these paths, and the tropical
            semiring takes the best one. ``"none"``: there are none.
        back_offs: The back-off weights of histories, for weights of n-grams; 0 for all others.
        symbols: The names of the tokens, for weights of n-grams; a token is its index.
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
            an option is unknown, the blank is a token, a model or weights are given with blanks or
            loops, a name is not one of the symbols, or a back-off weight has no history.

    >>> import arcgrad as ag
    >>> counts = ag.ngram.count(["abab", "ba", "bb"], order=2).prune([0, 1])
    >>> graph = ag.ngram.backoff_graph(counts)
    >>> graph.num_nodes(), graph.num_arcs()  # (), <s>, a, b, end; 3 + 4 n-grams and 3 back-offs
    (5, 10)
    >>> ag.ngram.backoff_graph(counts, blank="optional", self_loops=True).num_arcs()
    21
    >>> weights = {("a",): -1.0, ("b",): -2.0, ("a", "b"): -0.5}
    >>> graph = ag.ngram.backoff_graph(weights, back_offs={("a",): -0.25}, symbols=["a", "b"])
    >>> for text in [0, 1], [0, 0]:  # -1 - 0.5, and -1 - 0.25 - 1
    ...     print(ag.forward_score(ag.intersect(graph, ag.chain_graph(text))).item())
    -1.5
    -2.25
    """
    op = "backoff_graph"
    for name, value, known in (("blank", blank, BLANKS), ("backoff", backoff, BACK_OFFS)):
        if value not in known:
            raise ValueError(f"{op}: {name} must be one of {', '.join(known)}, but it is {value!r}")
    weights = None
    if isinstance(source, Mapping):
        source, weights = _read_names(op, source, back_offs or {}, symbols)
    elif not hasattr(source, "_tables"):
        raise TypeError(
            f"{op}: source must be Counts, a Model or a dict of weights, but it is of type "
            f"{type(source).__name__}"
        )
    elif back_offs is not None or symbols is not None:
        raise ValueError(
            f"{op}: back_offs and symbols belong to a dict of weights, but the source is of type "
            f"{type(source).__name__}"
        )
    tables = list(source._tables)
    if not isinstance(source, Counts):
        # <s> is a history, but no arc reads it.
        is_read = tables[0].rows[:, 0] != START
        tables[0] = Table(tables[0].rows[is_read])
        scores = [source._log_probs[0][is_read], *source._log_probs[1:]]
        weights = _Weights(scores, source._tables, source._back_offs)
    else:
        check_shorter(op, tables, source.symbols, without="first")
    if weights is not None and (blank != "none" or self_loops):
        raise ValueError(
            f"{op}: blanks and self-loops need counts, but scores are given, which have none for "
            f"them"
        )
    if blank != "none":
        label = source.num_tokens if blank_label is None else operator.index(blank_label)
        _check_blank(op, label, tables)
        tables = _with_blanks(tables, label, blank == "forced")
    if self_loops:
        tables = _with_self_loops(tables)
    if source.has_end and not any((table.rows[:, -1] == END).any() for table in tables):
        raise ValueError(f"{op}: an n-gram must end in </s>, but none does; prune less")

    nodes = _Nodes(tables, source.has_start)
    columns = [nodes.arcs(table) for table in tables]
    if back_offs:
        assert weights is not None
        nodes.check_histories(op, weights.histories, source.symbols)
    scores = [] if weights is None else list(weights.scores)
    if backoff != "none":
        columns.append(nodes.back_offs(phi if backoff == "failure" else epsilon))
        if weights is not None:
            scores.append(nodes.weights(weights))
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


class _Weights(NamedTuple):
    """The weights of n-grams and, by length, of the back-off of histories."""

    scores: list[Floats]
    histories: list[Table]
    back_offs: list[Floats]


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

    def back_offs(self, label: int) -> tuple[Ints, Ints, Rows]:
        """The back-off arcs of all histories but the empty one."""
        src = np.arange(1, self.end)
        dst = [self.of(table.rows[:, 1:]) for table in self._histories]
        return src, np.concatenate([src[:0], *dst]), np.full(len(src), label, np.int32)

    def weights(self, given: _Weights) -> Floats:
        """The back-off weights of all histories but the empty one."""
        out = np.zeros(self.end - 1)
        for n, (table, values) in enumerate(zip(given.histories, given.back_offs, strict=True)):
            if n < len(self._histories):
                place = table.find(self._histories[n].rows)
                out[self._first[n + 1] - 1 : self._first[n + 2] - 1] = take(values, place, 0.0)
        return out

    def check_histories(
        self, op: str, tables: list[Table], symbols: tuple[str, ...] | None
    ) -> None:
        """Raise ValueError for a row that is no history."""
        for n, table in enumerate(tables):
            known = self._histories[n] if n < len(self._histories) else Table(table.rows[:0])
            missing = np.flatnonzero(known.find(table.rows) < 0)
            if len(missing):
                raise ValueError(
                    f"{op}: back_offs must be of histories, which n-grams begin with or which are "
                    f"n-grams below the highest order, but {show(table.rows[missing[0]], symbols)} "
                    f"is not one"
                )


def _read_names(
    op: str, ngrams: Named, back_offs: Named, symbols: Sequence[str] | None
) -> tuple[Counts, _Weights]:
    """N-grams as counts of 1, and their weights."""
    ids: dict[Token, int] = {"<s>": START, "</s>": END}
    ids |= {name: token for token, name in enumerate(symbols or ())}

    def number(token: Token) -> int:
        if not isinstance(token, str):
            return operator.index(token)
        if token not in ids:
            raise ValueError(f"{op}: a name must be one of the symbols, but there is {token!r}")
        return ids[token]

    def read(named: Named, order: int) -> tuple[dict[tuple[int, ...], float], list[Any]]:
        found = {tuple(map(number, ngram)): float(weight) for ngram, weight in named.items()}
        if len(found) < len(named):
            raise ValueError(f"{op}: an n-gram must be given once, but one is given twice")
        return found, [sorted(g for g in found if len(g) == n) for n in range(1, order + 1)]

    by_ngram, _ = read(ngrams, 0)
    counts = Counts(
        dict.fromkeys(by_ngram, 1),
        symbols=symbols,
        start=any(START in ngram for ngram in by_ngram),
        end=any(END in ngram for ngram in by_ngram),
    )
    scores = [
        np.array([by_ngram[tuple(row)] for row in table.rows.tolist()], np.float64)
        for table in counts._tables
    ]
    histories, rows = read(back_offs, max(map(len, back_offs), default=0))
    tables = [Table(np.array(listed, np.int32).reshape(-1, n)) for n, listed in enumerate(rows, 1)]
    values = [np.array([histories[ngram] for ngram in listed]) for listed in rows]
    return counts, _Weights(scores, tables, values)


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
