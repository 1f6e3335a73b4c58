"""How a model decomposes words into word pieces, if the loss sums over decompositions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from torch import Tensor

from arcgrad.lexicon import Lexicon
from arcgrad.torch import TransducerLoss

__all__ = [
    "Comparison",
    "PieceSpan",
    "compare",
    "count_decompositions",
    "split_words",
    "viterbi_decompositions",
]

Pieces: TypeAlias = tuple[str, ...]
Decompositions: TypeAlias = dict[str, Counter[Pieces]]
"""For each word its decompositions, with their counts."""


@dataclass(frozen=True)
class PieceSpan:
    """A piece of a decomposition, from frame ``start`` up to but not including ``end``.

    ``score`` is the mean of the piece's emissions over its frames.
    """

    piece: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Comparison:
    """The most frequent decomposition of a word, and the decomposition of a reference.

    Attributes:
        word: The word.
        chosen: The most frequent decomposition.
        count: The count of that decomposition.
        reference: The decomposition of the reference.
        reference_count: The count of the reference decomposition.
        total: The count of the word.
    """

    word: str
    chosen: Pieces
    count: int
    reference: Pieces
    reference_count: int
    total: int


def viterbi_decompositions(
    loss: TransducerLoss, emissions: Tensor, texts: Sequence[str], lengths: Any = None
) -> list[list[PieceSpan]]:
    """Return the best decomposition of each text into pieces, and the frames of each piece.

    Args:
        loss: A loss with a :class:`arcgrad.lexicon.Lexicon`; the path also has the scores of its
            tokens and transitions.
        emissions: Scores ``[B, T, C]``, or ``[T, C]`` for one text.
        texts: The text of each example.
        lengths: The number of frames of each example.

    Returns:
        The pieces of each text; an empty list if the text does not fit into its frames or no pieces
        spell it.

    Raises:
        ValueError: If the loss has no lexicon of pieces, or a character is not among the graphemes.

    >>> import torch, arcgrad as ag, arcgrad.torch as agt
    >>> from arcgrad.recipes import inference
    >>> pieces = ["▁", "▁a", "a", "t", "at"]
    >>> lexicon = ag.lexicon.Lexicon(pieces, separator="▁", first_label=1)
    >>> loss = agt.TransducerLoss(pieces, lexicon, blank="optional", allow_repeats=False)
    >>> frames = torch.tensor([2, 2, 0, 4])  # ▁a ▁a - t
    >>> spans = inference.viterbi_decompositions(loss, torch.eye(6)[frames], ["at"])[0]
    >>> [(span.piece, span.start, span.end) for span in spans]
    [('▁a', 0, 2), ('t', 3, 4)]
    """
    lexicon = loss.lexicon
    if not isinstance(lexicon, Lexicon):
        raise ValueError(
            "viterbi_decompositions: the loss must have a lexicon of pieces, but its lexicon is "
            f"{type(lexicon).__name__}"
        )
    return [
        [
            PieceSpan(piece, span.start, span.end, span.score)
            for piece, span in zip(lexicon.names(s.token for s in spans), spans, strict=True)
        ]
        for spans in loss.forced_align(emissions, texts, lengths)
    ]


def split_words(pieces: Iterable[str], separator: str | None = "▁") -> list[Pieces]:
    """Split the decomposition of a text into the decompositions of its words.

    A word begins with each piece that begins with the separator. Words that share a piece are not
    split, and without a separator nothing is.

    >>> from arcgrad.recipes import inference
    >>> inference.split_words(["▁a", "ble", "▁", "se", "a"])
    [('▁a', 'ble'), ('▁', 'se', 'a')]
    """
    words: list[list[str]] = []
    for piece in pieces:
        if not words or (separator is not None and piece.startswith(separator)):
            words.append([])
        words[-1].append(piece)
    return [tuple(word) for word in words]


def count_decompositions(
    texts: Iterable[Iterable[str | PieceSpan]], separator: str | None = "▁"
) -> Decompositions:
    """Count the decompositions of each word.

    Args:
        texts: The decomposition of each text, as pieces or as :func:`viterbi_decompositions`
            returns it.
        separator: The character that marks the start of words; without one a text is one word.

    >>> from arcgrad.recipes import inference
    >>> inference.count_decompositions([["▁a", "t", "▁at"], ["▁a", "t"]])
    {'at': Counter({('▁a', 't'): 2, ('▁at',): 1})}
    """
    found: Decompositions = {}
    for text in texts:
        pieces = (piece.piece if isinstance(piece, PieceSpan) else piece for piece in text)
        for word in split_words(pieces, separator):
            name = "".join(word)
            if separator is not None:
                name = name.replace(separator, " ").strip()
            found.setdefault(name, Counter())[word] += 1
    return found


def compare(
    decompositions: Decompositions,
    reference: Callable[[str], Sequence[str]],
    *,
    differ: bool = True,
    min_count: int = 1,
) -> list[Comparison]:
    """Compare the decompositions of words with a reference (Table 4 of the paper).

    Args:
        decompositions: What :func:`count_decompositions` returns.
        reference: A function from a word to its pieces, such as
            ``lambda word: model.encode(word, out_type=str)`` with a model of SentencePiece.
        differ: Leave out words whose most frequent decomposition equals the reference. Among
            equally frequent decompositions the reference comes first, then the one with the fewest
            pieces.
        min_count: Leave out words whose most frequent decomposition has a lower count.

    Returns:
        One comparison per word, in decreasing order of the count.

    >>> from arcgrad.recipes import inference
    >>> words = inference.count_decompositions([["▁a", "ble"], ["▁a", "ble"], ["▁", "able"]])
    >>> inference.compare(words, {"able": ["▁", "able"]}.__getitem__)[0].count
    2
    """
    rows = []
    for word, counts in decompositions.items():
        expected = tuple(reference(word))
        chosen, count = min(
            counts.items(), key=lambda item: (-item[1], item[0] != expected, len(item[0]), item[0])
        )
        if count >= min_count and not (differ and chosen == expected):
            row = Comparison(word, chosen, count, expected, counts[expected], counts.total())
            rows.append(row)
    return sorted(rows, key=lambda row: (-row.count, row.word))
