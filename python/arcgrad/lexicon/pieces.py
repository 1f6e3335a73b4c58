"""Word pieces and the graphemes that spell them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias, overload

import numpy as np

from arcgrad import _core
from arcgrad._arguments import checked, checked_class
from arcgrad._core import Graph

Label: TypeAlias = str | Sequence[int]


@checked_class
class Lexicon:
    """Word pieces, and the graphemes (characters) that spell them.

    Piece i has the label ``first_label + i``. Graphemes are numbered from 0. The label of an
    example, the text that is its target, is a string or a sequence of numbers of graphemes.

    Args:
        pieces: The word pieces: distinct strings that are not empty.
        graphemes: The characters in the order of their numbers; by default the characters of the
            pieces, sorted.
        separator: The character that marks the start of words in pieces, such as SentencePiece's
            ``"▁"``. In strings, each run of spaces becomes one separator. By default texts are
            not changed.
        prepend: With a separator, whether to insert one before the first word too.
        first_label: The label of the first piece.

    Raises:
        ValueError: If a piece is empty or occurs twice, or has a character that is not among the
            graphemes.

    >>> import arcgrad as ag
    >>> lexicon = ag.lexicon.Lexicon(["▁", "▁a", "a", "t", "at"], separator="▁")
    >>> lexicon.graphemes
    ('a', 't', '▁')
    >>> lexicon.spell("at a")
    [2, 0, 1, 2, 0]
    >>> lexicon.count("at a")
    6
    """

    def __init__(
        self,
        pieces: Iterable[str],
        *,
        graphemes: Iterable[str] | None = None,
        separator: str | None = None,
        prepend: bool = True,
        first_label: int = 0,
    ) -> None:
        self._pieces = _distinct("pieces", pieces)
        used = sorted(set("".join(self._pieces)))
        self._graphemes = tuple(used) if graphemes is None else _distinct("graphemes", graphemes)
        for grapheme in self._graphemes:
            if len(grapheme) != 1:
                raise ValueError(
                    f"Lexicon: a grapheme must be one character, but there is {grapheme!r}"
                )
        if separator is not None and len(separator) != 1:
            raise ValueError(
                f"Lexicon: the separator must be one character, but it is {separator!r}"
            )
        self._separator, self._prepend = separator, bool(prepend)
        self._first_label = operator.index(first_label)
        if self._first_label < 0:
            raise ValueError(f"Lexicon: first_label must be 0 or more, but it is {first_label}")
        self._prepare()

    def _prepare(self) -> None:
        self._ids = {grapheme: i for i, grapheme in enumerate(self._graphemes)}
        self._spellings = [self._numbers("Lexicon", piece) for piece in self._pieces]
        labels = range(self._first_label, self._first_label + len(self._pieces))
        self._trie = _core.Trie(self._spellings, list(labels))

    @property
    def pieces(self) -> tuple[str, ...]:
        """The pieces, in the order of their labels."""
        return self._pieces

    @property
    def graphemes(self) -> tuple[str, ...]:
        """The characters, in the order of their numbers."""
        return self._graphemes

    @property
    def separator(self) -> str | None:
        """The character that marks the start of words, or None."""
        return self._separator

    @property
    def first_label(self) -> int:
        """The label of the first piece."""
        return self._first_label

    def spell(self, text: str) -> list[int]:
        """The graphemes of a text, with separators in place of spaces.

        Raises:
            ValueError: If a character is not among the graphemes; the message names all of them.
        """
        return self._numbers("spell", self._marked(text))

    def graphemes_to_text(self, graphemes: Iterable[int]) -> str:
        """The text that graphemes spell, with spaces in place of separators.

        Raises:
            ValueError: If a number is out of range.
        """
        numbers = self._sequence("graphemes_to_text", list(graphemes))
        return self._unmarked("".join(self.graphemes[i] for i in numbers))

    def pieces_to_text(self, labels: Iterable[int]) -> str:
        """The text that the pieces with these labels spell."""
        return self._unmarked("".join(self.names(labels)))

    def names(self, labels: Iterable[int]) -> list[str]:
        """The pieces that have these labels.

        Raises:
            ValueError: If no piece has such a label.
        """
        names = []
        for label in labels:
            if not 0 <= label - self.first_label < len(self.pieces):
                raise ValueError(
                    f"names: labels of pieces must be between {self.first_label} and "
                    f"{self.first_label + len(self.pieces) - 1}, but there is {label}"
                )
            names.append(self.pieces[label - self.first_label])
        return names

    def count(self, label: Label) -> int:
        """The number of decompositions of a label into pieces."""
        graph = decompositions(self, label)
        ways = [1] + [0] * max(0, graph.num_nodes() - 1)
        # Arcs are sorted by their sources.
        for src, dst in zip(graph.src_nodes().tolist(), graph.dst_nodes().tolist(), strict=True):
            ways[dst] += ways[src]
        return ways[-1] if graph.num_nodes() else 0

    def enumerate(self, label: Label) -> Iterator[list[int]]:
        """All decompositions of a label, as labels of pieces; shorter pieces come first.

        >>> import arcgrad as ag
        >>> lexicon = ag.lexicon.Lexicon(["a", "t", "at"])
        >>> [lexicon.names(pieces) for pieces in lexicon.enumerate("ata")]
        [['a', 't', 'a'], ['at', 'a']]
        """
        graph = decompositions(self, label)
        arcs = list(zip(graph.dst_nodes().tolist(), graph.labels_to_list(), strict=True))
        first = np.searchsorted(graph.src_nodes(), np.arange(graph.num_nodes() + 1)).tolist()
        last = graph.num_nodes() - 1

        open_: list[tuple[int, list[int]]] = [(0, [])] if last >= 0 else []
        while open_:
            node, pieces = open_.pop()
            if node == last:
                yield pieces
            for dst, piece in reversed(arcs[first[node] : first[node + 1]]):
                open_.append((dst, [*pieces, piece]))

    def best(self, label: Label, weights: Any) -> list[int]:
        """The decomposition with the largest sum of weights, as labels of pieces.

        Args:
            label: The label.
            weights: One weight per piece, such as its log-probability. Among equally good
                decompositions, the one with the shortest piece at the first difference wins.

        Raises:
            ValueError: If no decomposition has finite weights, or the number of weights is wrong.

        >>> import arcgrad as ag
        >>> lexicon = ag.lexicon.Lexicon(["a", "t", "at"])
        >>> lexicon.best("ata", [-1.0, -1.0, -1.0])  # the fewest pieces
        [2, 0]
        """
        path = _core.viterbi_path(self._weighted("best", label, weights))
        if not path.num_nodes():
            raise ValueError(
                f"best: some decomposition must have finite weights, but {label!r} has none"
            )
        return path.labels_to_list()

    def sample(
        self, label: Label, number: int = 1, *, weights: Any = None, seed: int | None = None
    ) -> list[list[int]]:
        """Decompositions drawn at random, as labels of pieces.

        Args:
            label: The label.
            number: The number of draws.
            weights: One weight per piece; the probability of a decomposition is proportional to the
                exponential of the sum of its weights. By default all are equally likely.
            seed: Makes the draws repeatable; draw i equals the first draw with ``seed + i``.

        Raises:
            ValueError: If no decomposition has finite weights, or the number of weights is wrong.
        """
        if weights is None:
            weights = np.zeros(len(self.pieces))
        graph = self._weighted("sample", label, weights)
        paths = _core.sample(
            [graph] * operator.index(number), max_length=graph.num_arcs(), seed=seed
        )
        return [path.labels_to_list() for path in paths]

    def __repr__(self) -> str:
        return f"Lexicon({len(self.pieces)} pieces, {len(self.graphemes)} graphemes)"

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_ids", "_spellings", "_trie")
        return {name: value for name, value in vars(self).items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def _weighted(self, op: str, label: Label, weights: Any) -> Graph:
        values = np.asarray(weights, np.float64)
        if values.shape != (len(self.pieces),):
            raise ValueError(
                f"{op}: there must be one weight for each of {len(self.pieces)} pieces, but the "
                f"shape of the weights is {values.shape}"
            )
        graph = decompositions(self, label, dtype="float64")
        if not graph.num_nodes():
            raise ValueError(f"{op}: the label must have a decomposition, but {label!r} has none")
        graph.set_weights(values[graph.ilabels() - self.first_label])
        return graph

    def _sequence(self, op: str, label: Label) -> list[int]:
        if isinstance(label, str):
            return self._numbers(op, self._marked(label))
        numbers = [operator.index(number) for number in label]
        if numbers and not 0 <= min(numbers) <= max(numbers) < len(self.graphemes):
            bad = next(n for n in numbers if not 0 <= n < len(self.graphemes))
            raise ValueError(
                f"{op}: graphemes must be between 0 and {len(self.graphemes) - 1}, "
                f"but there is {bad}"
            )
        return numbers

    def _numbers(self, op: str, text: str) -> list[int]:
        try:
            return list(map(self._ids.__getitem__, text))
        except KeyError:
            missing = ", ".join(repr(c) for c in dict.fromkeys(text) if c not in self._ids)
            raise ValueError(
                f"{op}: every character must be a grapheme of the lexicon, "
                f"but {text!r} has {missing}"
            ) from None

    def _marked(self, text: str) -> str:
        if self.separator is None:
            return text
        marked = self.separator.join(text.split())
        if self._prepend and marked and not marked.startswith(self.separator):
            return self.separator + marked
        return marked

    def _unmarked(self, text: str) -> str:
        if self.separator is None:
            return text
        return text.replace(self.separator, " ").strip()


@checked
def piece_graph(
    label: int, graphemes: Sequence[int], *, calc_grad: bool = False, dtype: Any = "float32"
) -> Graph:
    """A transducer from one piece to the graphemes that spell it (Figure 6a of the paper).

    Args:
        label: The label of the piece, the input label of the first arc.
        graphemes: The graphemes, the output labels of the arcs.
        calc_grad: Whether backward computes a gradient for this graph.
        dtype: The type of the weights, which are all 0.

    Raises:
        ValueError: If there are no graphemes.

    >>> import arcgrad as ag
    >>> ag.lexicon.piece_graph(7, [3, 1])
    Graph(3 nodes, 2 arcs, start [0], accept [2], float32)
      0 -> 1  7:3/0
      1 -> 2  ε:1/0
    """
    if not len(graphemes):
        raise ValueError(f"piece_graph: a piece must have graphemes, but piece {label} has none")
    labels = [label] + [_core.epsilon] * (len(graphemes) - 1)
    return _core.chain_graph(labels, graphemes, calc_grad=calc_grad, dtype=dtype)


@checked
def lexicon_graph(
    lexicon: Lexicon | Iterable[str],
    *,
    to: str = "graphemes",
    shared: bool = True,
    calc_grad: bool = False,
    dtype: Any = "float32",
) -> Graph:
    """The transducer between sequences of pieces and the graphemes that spell them.

    Args:
        lexicon: The lexicon, or the pieces that make one.
        to: ``"graphemes"``: from pieces to graphemes. ``"pieces"``: the reverse.
        shared: Whether to share the nodes of common prefixes. The label of a piece is then on its
            last arc, and arc i is the last arc of piece i. Otherwise the graph is the closure of
            the union of all :func:`piece_graph`: the same relation in a larger graph.
        calc_grad: Whether backward computes a gradient for this graph.
        dtype: The type of the weights, which are all 0.

    Raises:
        ValueError: If ``to`` is unknown.

    >>> import arcgrad as ag
    >>> pieces = ["t", "th", "the", "e"]
    >>> ag.lexicon.lexicon_graph(pieces)
    Graph(3 nodes, 6 arcs, start [0], accept [0], float32)
      0 -> 0  0:2/0
      1 -> 0  1:1/0
      2 -> 0  2:0/0
      0 -> 0  3:0/0
      0 -> 1  ε:2/0
      1 -> 2  ε:1/0
    >>> ag.lexicon.lexicon_graph(pieces, shared=False).num_arcs()
    15
    """
    if to not in ("graphemes", "pieces"):
        raise ValueError(f"lexicon_graph: to must be graphemes or pieces, but it is {to!r}")
    if not isinstance(lexicon, Lexicon):
        lexicon = Lexicon(lexicon)
    if shared:
        graph = _core.invert(lexicon._trie.graph(dtype=dtype))
    else:
        spellings = enumerate(lexicon._spellings, lexicon.first_label)
        graphs = [piece_graph(label, spelling, dtype=dtype) for label, spelling in spellings]
        graph = _core.closure(_core.union(graphs))
    leaf = (graph if to == "graphemes" else _core.invert(graph)).detach()
    leaf.calc_grad = calc_grad
    return leaf


@overload
def decompositions(
    lexicon: Lexicon, label: Label, *, calc_grad: bool = ..., dtype: Any = ...
) -> Graph: ...
@overload
def decompositions(
    lexicon: Lexicon,
    label: list[str] | list[Sequence[int]],
    *,
    calc_grad: bool = ...,
    dtype: Any = ...,
) -> list[Graph]: ...
@checked
def decompositions(
    lexicon: Lexicon, label: Any, *, calc_grad: bool = False, dtype: Any = "float32"
) -> Any:
    """The acceptor of all sequences of pieces that spell a label (Figure 6b of the paper).

    It accepts the input strings of ``compose(L, Y)``, where L is :func:`lexicon_graph` and Y the
    label, and replaces Y in any criterion. Its nodes are the positions in the label where a piece
    may end. Its arcs are sorted by source, destination and label.

    Args:
        lexicon: The lexicon.
        label: A text, or the numbers of graphemes; or a list of labels.
        calc_grad: Whether backward computes a gradient for this graph.
        dtype: The type of the weights, which are all 0.

    Returns:
        A graph, or a list of graphs. If no pieces spell a label, its graph has no nodes.

    Raises:
        ValueError: If a character is not among the graphemes of the lexicon.

    Time: O(length of the label x length of the longest piece); a few microseconds.

    >>> import arcgrad as ag
    >>> lexicon = ag.lexicon.Lexicon(["e", "h", "t", "th", "the"])
    >>> ag.lexicon.decompositions(lexicon, "the")
    Graph(4 nodes, 5 arcs, start [0], accept [3], float32)
      0 -> 1  2/0
      0 -> 2  3/0
      0 -> 3  4/0
      1 -> 2  1/0
      2 -> 3  0/0
    """
    op = "decompositions"
    if not is_batch(label):
        sequences = [lexicon._sequence(op, label)]
        return lexicon._trie.decompositions(sequences, calc_grad=calc_grad, dtype=dtype)[0]
    sequences = [
        lexicon._sequence(f"{op} (element {i} of {len(label)})", one) for i, one in enumerate(label)
    ]
    return lexicon._trie.decompositions(sequences, calc_grad=calc_grad, dtype=dtype)


def _distinct(what: str, strings: Iterable[str]) -> tuple[str, ...]:
    listed = tuple(strings)
    for i, string in enumerate(listed):
        if not isinstance(string, str):
            raise TypeError(f"Lexicon: {what} must be strings, but {what} {i} is {string!r}")
        if not string:
            raise ValueError(f"Lexicon: {what} must not be empty, but number {i} is")
    if len(set(listed)) < len(listed):
        twice = next(string for string in listed if listed.count(string) > 1)
        raise ValueError(f"Lexicon: {what} must differ, but {twice!r} occurs more than once")
    return listed


def is_batch(label: Any) -> bool:
    """Whether this is a list of sequences, not a string or a sequence of numbers."""
    if isinstance(label, str) or not len(label):
        return False
    return not isinstance(label[0], (int, np.integer))
