"""Counting the n-grams of sequences: tokens become numbers, and batches are counted one by one."""

from __future__ import annotations

import itertools
import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn, TypeAlias

import numpy as np

from arcgrad._arguments import checked

from ._count_files import MOST_TOKENS
from ._sequences import Token, batches, with_ends
from ._table import START, Ints, Table, windows
from .counts import UNKNOWN, Counts, check_order, check_symbols

Progress: TypeAlias = Callable[[int], object] | bool | None


@checked
def count(
    sequences: Iterable[Any],
    order: int,
    *,
    tokenize: Callable[[Any], Sequence[Token]] | None = None,
    symbols: Sequence[str] | None = None,
    num_tokens: int | None = None,
    start: bool = True,
    end: bool = True,
    progress: Progress = None,
) -> Counts:
    """Count the n-grams of 1 to ``order`` tokens in a stream of sequences.

    Args:
        sequences: Sequences of tokens: numbers from 0, or strings. A string is a sequence of
            letters.
        order: The length of the longest n-grams.
        tokenize: A function that turns each element of ``sequences`` into a sequence of tokens,
            such as ``str.split`` for lines of text.
        symbols: The names of the tokens, if tokens are strings. Other tokens count as ``<unk>``,
            which must then be a symbol. By default tokens are numbered as they occur.
        num_tokens: The number of tokens, if they are numbers; by default one more than the largest.
        start: Whether :data:`START` comes before each sequence. It is not counted as a 1-gram.
        end: Whether :data:`END` comes after each sequence.
        progress: A function that is called from time to time with the number of tokens so far; True
            shows that number on a terminal.

    Returns:
        The counts.

    Raises:
        TypeError: If a token is neither a number nor a string.
        ValueError: If the order is not from 1 to 1000, or a token is out of range or has no name.

    Time: O(tokens x order), plus sorting; a million tokens take a fraction of a second.

    >>> import arcgrad as ag
    >>> ag.ngram.count([[0, 1, 0], [2]], order=2).most_common(1)
    [((-2,), 2), ((0,), 2), ((1,), 1), ((2,), 1)]
    >>> ag.ngram.count(["the cat", "the dog"], 2, tokenize=str.split).symbols
    ('the', 'cat', 'dog')
    """
    order = operator.index(order)
    check_order("count", order)
    names = _Names(symbols, num_tokens)
    report = _reporter(progress)
    # Of sizes that fall, so that an n-gram is merged about log(chunks) times.
    parts: list[Counts] = []
    done = 0
    for batch in batches(sequences, tokenize):
        tokens, lengths = names.ids(batch)
        done += len(tokens)
        parts.append(_count_chunk(tokens, lengths, order, start, end))
        while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]):
            last = parts.pop()
            parts[-1] += last
        report(done)
    if progress is True and sys.stderr.isatty():
        print(file=sys.stderr)
    total = parts.pop() if parts else Counts({}, order=order, start=start, end=end)
    while parts:
        total = parts.pop() + total
    return Counts._of(total._tables, total._values, names.num_tokens, names.symbols, start, end)


class _Names:
    """The numbers of tokens, which are either all numbers or all strings."""

    def __init__(self, symbols: Sequence[str] | None, num_tokens: int | None) -> None:
        self._given = None if symbols is None else check_symbols("count", symbols)
        self._limit = MOST_TOKENS if num_tokens is None else operator.index(num_tokens)
        self.num_tokens: int | None = num_tokens
        self._is_text = None if symbols is None else True
        if symbols is not None and num_tokens is not None:
            raise ValueError(
                "count: num_tokens is for tokens that are numbers, but there are symbols"
            )
        if self._given is None:
            self._ids: Any = defaultdict(itertools.count().__next__)
        else:
            self._ids = {name: i for i, name in enumerate(self._given)}
            if UNKNOWN in self._ids:
                unknown = self._ids[UNKNOWN]
                self._ids = defaultdict(lambda: unknown, self._ids)

    @property
    def symbols(self) -> tuple[str, ...] | None:
        if self._given is not None:
            return self._given
        return tuple(self._ids) if self._is_text else None

    def ids(self, batch: list[Any]) -> tuple[Ints, Ints]:
        """The tokens of sequences one after the other, and the lengths of the sequences."""
        lengths = np.fromiter(map(len, batch), np.int64, len(batch))
        if batch and all(isinstance(x, np.ndarray) and x.dtype.kind in "iu" for x in batch):
            self._expect(False)
            tokens = np.concatenate(batch).astype(np.int64, copy=False)
        else:
            flat = list(itertools.chain.from_iterable(batch))
            types = set(map(type, flat))
            if flat and all(issubclass(t, str) for t in types):
                self._expect(True)
                tokens = self._named(flat)
            elif all(issubclass(t, (int, np.integer)) for t in types):
                self._expect(not flat and bool(self._is_text))
                try:
                    tokens = np.array(flat, np.int64)
                except OverflowError:
                    self._refuse(max(flat, key=abs))
            else:
                listed = ", ".join(sorted(t.__name__ for t in types))
                raise TypeError(
                    f"count: tokens must be all whole numbers or all strings, but they are {listed}"
                )
        if tokens.ndim != 1:
            raise ValueError(
                f"count: a sequence must have one dimension, but one has {tokens.ndim}"
            )
        if len(tokens) and not 0 <= tokens.min() <= tokens.max() < self._limit:
            self._refuse(tokens[(tokens < 0) | (tokens >= self._limit)][0])
        return tokens, lengths

    def _refuse(self, token: Any) -> NoReturn:
        raise ValueError(
            f"count: tokens must be between 0 and {self._limit - 1}, but there is {token}"
        )

    def _expect(self, is_text: bool) -> None:
        if self._is_text not in (None, is_text):
            kinds = "strings" if self._is_text else "numbers"
            raise TypeError(
                f"count: tokens must be all {kinds}, as the first ones or the symbols are, "
                f"but there are {'strings' if is_text else 'numbers'} too"
            )
        self._is_text = is_text

    def _named(self, flat: list[str]) -> Ints:
        try:
            return np.fromiter(map(self._ids.__getitem__, flat), np.int64, len(flat))
        except KeyError as error:
            raise ValueError(
                f"count: every token must be among the symbols, but {error.args[0]!r} is not; "
                f"add it, or add {UNKNOWN!r} for all other tokens"
            ) from None


def _count_chunk(tokens: Ints, lengths: Ints, order: int, start: bool, end: bool) -> Counts:
    stream, sequence = with_ends(tokens, lengths, start, end)
    tables, values = [], []
    for n in range(1, order + 1):
        rows, is_within = windows(stream, sequence, n)
        if n == 1 and start:
            is_within = is_within & (stream != START)
        table, total = Table.count(rows[is_within])
        tables.append(table)
        values.append(total)
    return Counts._of(tables, values, None, None, start, end)


def _reporter(progress: Progress) -> Callable[[int], object]:
    if callable(progress):
        return progress
    if progress and sys.stderr.isatty():
        return lambda done: print(f"\rcount: {done:,} tokens", end="", file=sys.stderr, flush=True)
    return lambda done: None
