"""Back-off language models."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from arcgrad._arguments import checked_class
from arcgrad._core import CompactModel, Graph

from ._sequences import Token, batches, with_ends
from ._table import END, START, Floats, Ints, Rows, Table, take, windows
from .backoff import BackOff, backoff_graph
from .counts import UNKNOWN, check_symbols


@checked_class
class Model:
    r"""A back-off language model: the probability of a token given the tokens before it.

    .. math::
        p(w \mid h) = \begin{cases} e^{s(hw)} & \text{if the model has } hw \\
        e^{\beta(h)} p(w \mid h') & \text{otherwise} \end{cases}

    where h' is h without its first token and the back-off weight :math:`\beta(h)` is 0 if the
    model does not have h. Scores are natural logarithms. Models are made by :func:`estimate` and
    :func:`load_arpa`, not by the constructor.

    >>> import arcgrad as ag
    >>> counts = ag.ngram.count(["abab", "ba", "bb"], order=2)
    >>> model = ag.ngram.estimate(counts, "mle")
    >>> model
    Model(order 2, 4 + 7 n-grams, 2 tokens)
    >>> round(model.score("ab"), 4)  # log of 1/3 x 2/3 x 2/5
    -2.4204
    """

    def __init__(
        self,
        tables: list[Table],
        log_probs: list[Floats],
        back_offs: list[Floats],
        *,
        num_tokens: int,
        symbols: Sequence[str] | None = None,
        unknown: int | None = None,
    ) -> None:
        tables, log_probs, back_offs = _close(tables, log_probs, back_offs)
        self._tables, self._log_probs, self._back_offs = tables, log_probs, back_offs
        for array in [*log_probs, *back_offs]:
            array.setflags(write=False)
        self._num_tokens, self._unknown = num_tokens, unknown
        self._symbols = None if symbols is None else check_symbols("Model", symbols)
        self._ids = {name: i for i, name in enumerate(self._symbols or ())}

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self._tables)

    @property
    def num_tokens(self) -> int:
        """The number of tokens without ``<s>`` and ``</s>``."""
        return self._num_tokens

    @property
    def symbols(self) -> tuple[str, ...] | None:
        """The names of the tokens, if they have any."""
        return self._symbols

    @property
    def unknown(self) -> int | None:
        """The token ``<unk>`` for unknown tokens, or None."""
        return self._unknown

    @property
    def has_start(self) -> bool:
        """Whether sequences begin with ``<s>``."""
        return START in self._tables[0].rows[:2]

    @property
    def has_end(self) -> bool:
        """Whether sequences end with ``</s>``."""
        return END in self._tables[0].rows[:1]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of n-grams of each order, from 1; ``<s>`` counts as a 1-gram."""
        return tuple(map(len, self._tables))

    def ngrams(self, order: int) -> Rows:
        """The n-grams of one order, a row for each, in lexicographic order."""
        return self._tables[self._place(order)].rows

    def log_probs(self, order: int) -> Floats:
        """The score of each of :meth:`ngrams`; the score of ``<s>`` alone is ``-inf``."""
        return self._log_probs[self._place(order)]

    def back_offs(self, order: int) -> Floats:
        """The back-off weight of each of :meth:`ngrams`; 0 for the highest order."""
        return self._back_offs[self._place(order)]

    def next_scores(self, history: Sequence[Token] = (), *, start: bool = True) -> Floats:
        """The scores of every token after a history.

        Args:
            history: The tokens before it.
            start: Whether the history begins with ``<s>``, if the model has it.

        Returns:
            ``num_tokens + 1`` scores, the last one of ``</s>``. They are the logarithms of
            probabilities that add up to 1.

        >>> import arcgrad as ag, numpy as np
        >>> model = ag.ngram.estimate(ag.ngram.count(["ab", "aa"], 2), "mle")
        >>> np.exp(model.next_scores("a")).round(3).tolist()
        [0.333, 0.333, 0.333]
        """
        tokens = self._numbers("next_scores", history)
        if start and self.has_start:
            tokens = np.concatenate([[START], tokens])
        tokens = tokens[max(0, len(tokens) - self.order + 1) :]
        following = np.array([*range(self.num_tokens), END])
        rows = np.empty((len(following), len(tokens) + 1), np.int32)
        rows[:, :-1] = tokens
        rows[:, -1] = following
        return self._score_rows(rows, np.ones((rows.shape[1], len(rows)), np.bool_))

    def score(self, sequence: Sequence[Token], *, start: bool = True, end: bool = True) -> float:
        """The logarithm of the probability of a sequence.

        Args:
            sequence: Numbers, or names if the tokens have names. An unknown token is ``<unk>``; if
                the model lacks that, the score is ``-inf``.
            start: Whether the sequence comes after ``<s>``, if the model has it.
            end: Whether ``</s>`` comes after the sequence, if the model has it.

        Raises:
            ValueError: If a token is negative, or is a name but the tokens of the model have none.
        """
        tokens = self._numbers("score", sequence)
        scores = self._score_stream(tokens, np.array([len(tokens)]), start, end)
        return float(scores.sum())

    def perplexity(
        self, sequences: Iterable[Sequence[Token]], *, start: bool = True, end: bool = True
    ) -> float:
        """The inverse geometric mean of the probabilities of all tokens and ends.

        Args:
            sequences: Sequences as for :meth:`score`.
            start: Whether sequences come after ``<s>``, if the model has it.
            end: Whether ``</s>`` comes after each sequence, if the model has it.

        Raises:
            ValueError: If there is no token, or one is out of range.
        """
        total, number = 0.0, 0
        for batch in batches(sequences, None):
            parts = [self._numbers("perplexity", sequence) for sequence in batch]
            scores = self._score_stream(
                np.concatenate(parts), np.array(list(map(len, parts))), start, end
            )
            total += float(scores.sum())
            number += len(scores)
        if not number:
            raise ValueError("perplexity: there must be at least one token, but there is none")
        return math.exp(-total / number)

    def graph(
        self, *, backoff: BackOff = "failure", calc_grad: bool = False, dtype: Any = "float32"
    ) -> Graph:
        """The model as a graph, with its scores and back-off weights on the arcs.

        See :func:`backoff_graph`. With ``backoff="failure"`` each sequence of tokens of the model
        has one path, with the score of the model. With ``"epsilon"`` a best path uses an n-gram or
        its back-off, whichever scores higher, and a sum over all paths counts both. So scores are
        too high, and probabilities add up to more than 1.

        >>> import arcgrad as ag
        >>> model = ag.ngram.estimate(ag.ngram.count(["abab", "ba", "bb"], 2), "katz")
        >>> target = ag.chain_graph([0, 1])
        >>> score = ag.forward_score(ag.intersect(model.graph(), target)).item()
        >>> abs(score - model.score([0, 1])) < 1e-6
        True
        """
        return backoff_graph(self, backoff=backoff, calc_grad=calc_grad, dtype=dtype)

    def compact(self) -> CompactModel:
        """The same model as compact arrays, for decoding. Scores are rounded to float32.

        >>> import arcgrad as ag
        >>> model = ag.ngram.estimate(ag.ngram.count(["ab", "ba"], 2)).compact()
        >>> [round(score, 3) for score in model.scores(["a", "b"])]
        [-0.875, -0.875, -0.875]
        """
        names = list(self._symbols or map(str, range(self._num_tokens)))
        if self._symbols is None and self._unknown is not None:
            names[self._unknown] = UNKNOWN
        unigrams = self._tables[0].rows[:, 0]
        # Words are numbered in the order of the 1-grams. END and START are -2 and -1.
        number = np.zeros(self._num_tokens + 2, np.int32)
        number[unigrams] = np.arange(len(unigrams))
        special = {START: "<s>", END: "</s>"}
        return CompactModel.from_arrays(
            [special[word] if word in special else names[word] for word in unigrams.tolist()],
            [np.ascontiguousarray(number[table.rows]) for table in self._tables],
            self._log_probs,
            self._back_offs,
        )

    def __repr__(self) -> str:
        sizes = " + ".join(map(str, self.sizes))
        return f"Model(order {self.order}, {sizes} n-grams, {self.num_tokens} tokens)"

    def _place(self, order: int) -> int:
        if not 1 <= order <= self.order:
            raise ValueError(f"Model: the order must be 1 to {self.order}, but it is {order}")
        return order - 1

    def _numbers(self, op: str, sequence: Sequence[Token]) -> Ints:
        """The tokens as numbers; unknown tokens become ``<unk>``."""
        numbers = []
        for token in sequence:
            if isinstance(token, str):
                if self._symbols is None:
                    raise ValueError(f"{op}: tokens of the model have no names, but got {token!r}")
                numbers.append(self._ids.get(token, self.num_tokens))
                continue
            numbers.append(operator.index(token))
            if numbers[-1] < 0:
                raise ValueError(f"{op}: tokens must be 0 or more, but there is {numbers[-1]}")
        tokens = np.minimum(np.array(numbers, np.int64), self.num_tokens)
        if self.unknown is not None:
            is_known = self._tables[0].find(tokens[:, None].astype(np.int32)) >= 0
            tokens = np.where(is_known, tokens, self.unknown)
        return tokens

    def _score_stream(self, tokens: Ints, lengths: Ints, start: bool, end: bool) -> Floats:
        """The score of each token and end of some sequences."""
        stream, sequence = with_ends(
            tokens, lengths, start and self.has_start, end and self.has_end
        )
        # Every token with its history; what lies before its sequence is masked.
        order = self.order
        padded = np.concatenate([np.zeros(order - 1, np.int32), stream])
        owner = np.concatenate([np.full(order - 1, -1), sequence])
        rows, _ = windows(padded, owner, order)
        if not len(stream):
            return np.empty(0)
        is_own = np.stack([owner[k : k + len(stream)] == sequence for k in range(order)])
        is_scored = stream != START
        return self._score_rows(rows[is_scored], is_own[:, is_scored])

    def _score_rows(self, rows: Rows, is_own: NDArray[np.bool_]) -> Floats:
        """The score of the last token of each row, given the tokens before it in its sequence."""
        length = rows.shape[1]
        scores = np.full(len(rows), -math.inf)
        for n in range(1, length + 1):
            if n > 1:
                history = self._tables[n - 2].find(rows[:, length - n : -1])
                scores += np.where(is_own[length - n], take(self._back_offs[n - 2], history, 0), 0)
            place = np.where(
                is_own[length - n], self._tables[n - 1].find(rows[:, length - n :]), -1
            )
            scores = take(self._log_probs[n - 1], place, scores)
        return scores


def _close(
    tables: list[Table], log_probs: list[Floats], back_offs: list[Floats]
) -> tuple[list[Table], list[Floats], list[Floats]]:
    """Add the missing prefixes and suffixes of n-grams, with the scores that back-off gives them.

    No score changes. Afterwards every n-gram is a path in the graph of the model.
    """
    whole = [table.rows for table in tables]
    for n in range(len(tables) - 1, 0, -1):
        parts = [whole[n - 1], whole[n][:, :-1], whole[n][:, 1:]]
        if any((Table(whole[n - 1]).find(part) < 0).any() for part in parts[1:]):
            whole[n - 1] = Table.of(np.concatenate(parts)).rows
    if all(len(rows) == len(table) for rows, table in zip(whole, tables, strict=True)):
        return tables, log_probs, back_offs
    closed = [Table(rows) for rows in whole]
    scores: list[Floats] = []
    weights: list[Floats] = []
    for n, (table, rows) in enumerate(zip(tables, whole, strict=True)):
        place = table.find(rows)
        score: Any = -math.inf
        if n:
            history = weights[n - 1][closed[n - 1].find(rows[:, :-1])]
            score = history + scores[n - 1][closed[n - 1].find(rows[:, 1:])]
        scores.append(take(log_probs[n], place, score))
        weights.append(take(back_offs[n], place, 0.0))
    return closed, scores, weights
