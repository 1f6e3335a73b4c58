"""Estimating language models from counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arcgrad._arguments import checked

from ._table import END, START, Floats, Ints, Table, check_shorter, take
from .counts import UNKNOWN, Counts, check_thresholds
from .model import Model

# Less probability mass than this is a rounding error.
NOTHING = 1e-12


class Order(NamedTuple):
    """The n-grams of one order, sorted by history."""

    table: Table
    counts: Ints
    is_kept: NDArray[np.bool_]
    history: Ints  # the number of the history of each n-gram
    first: Ints  # the first n-gram of each history

    def sums(self, values: Floats | Ints) -> Floats:
        """Sums over the n-grams of each history."""
        sums: Floats = np.bincount(self.history, values, len(self.first)).astype(np.float64)
        return sums


@checked
def estimate(
    counts: Counts,
    method: str = "kneser_ney",
    *,
    prune: Sequence[int] | None = None,
    unknown: bool = False,
    katz_limit: int = 5,
) -> Model:
    """A language model from counts; the probabilities after any history add up to 1.

    The methods are

    * ``"kneser_ney"``: interpolated modified Kneser-Ney. Below the highest order, the count of an
      n-gram is the number of different tokens before it (for one that begins with ``<s>``, how
      often it occurs). Each order has three discounts, for counts of 1, 2, and 3 or more, estimated
      from the number of n-grams with counts 1 to 4. If the estimate fails, as for tiny texts, they
      are 0.5, 1 and 1.5. The discounted mass is distributed by the next lower order, and at order 1
      equally over all tokens.
    * ``"katz"``: back-off with Good-Turing discounts for counts up to ``katz_limit``, or up to a
      smaller limit if the estimate fails; if it fails for every limit, 0.5 is subtracted from each
      such count. The discounted mass goes to the tokens unseen after the history. If there is none,
      because all counts are high, the total of the history is increased by 1.
    * ``"mle"``: relative frequencies. A token unseen after a known history has probability 0.

    Args:
        counts: The counts. They should not be pruned, see ``prune``.
        method: One of the above.
        prune: Thresholds as for :meth:`Counts.prune`, the first one 0. N-grams that occur no more
            often are used for the estimate, but left out of the model.
        unknown: Whether to add a token ``<unk>`` for all tokens that are not in the counts, unless
            there is one of that name.
        katz_limit: The largest count that ``"katz"`` discounts.

    Returns:
        The model.

    Raises:
        ValueError: If there are no counts, the method is unknown, the thresholds do not fit, or an
            n-gram without its first or last token is missing.

    >>> import arcgrad as ag, numpy as np
    >>> counts = ag.ngram.count(["abab", "ba", "bb"], order=2)
    >>> model = ag.ngram.estimate(counts, "kneser_ney")
    >>> round(float(np.exp(model.next_scores("a")).sum()), 9)
    1.0
    """
    if method not in METHODS:
        raise ValueError(
            f"estimate: the method must be one of {', '.join(METHODS)}, but it is {method!r}"
        )
    if katz_limit < 1:
        raise ValueError(f"estimate: katz_limit must be 1 or more, but it is {katz_limit}")
    if not counts.sizes[0]:
        raise ValueError("estimate: there must be counts, but there are none")
    limits = check_thresholds("estimate", prune or [0] * counts.order, counts.order)
    if limits[0] != 0:
        raise ValueError(
            f"estimate: the threshold of order 1 must be 0, but it is {limits[0]}; "
            f"every token has a probability"
        )
    tables = list(counts._tables)
    check_shorter("estimate", tables, counts.symbols, without="first")
    # <s> is a history, but is not counted alone.
    check_shorter("estimate", tables[1:], counts.symbols, without="last")

    names, unknown_id, num_tokens = counts.symbols, None, counts.num_tokens
    if names is not None and UNKNOWN in names:
        unknown_id = names.index(UNKNOWN)
    elif unknown:
        unknown_id, num_tokens = num_tokens, num_tokens + 1
        names = None if names is None else (*names, UNKNOWN)

    kept: list[Table] = []
    probs: list[Floats] = []
    back_offs: list[Floats] = []
    for n in range(1, counts.order + 1):
        order = _order(counts, n, limits[n - 1], num_tokens, method == "kneser_ney")
        if n == 1:
            lower = np.full(len(order.table), 1 / len(order.table))
        else:
            lower = take(probs[-1], kept[-1].find(order.table.rows[:, 1:]), 0.0)
        prob, weight = METHODS[method](order, lower, katz_limit)
        if n > 1:
            back_off = np.ones(len(kept[-1]))
            place = kept[-1].find(order.table.rows[order.first, :-1])
            back_off[place[place >= 0]] = weight[place >= 0]
            back_offs.append(back_off)
        rows, prob = order.table.rows[order.is_kept], prob[order.is_kept]
        if n == 1 and counts.has_start:
            # <s> is a history, but is never predicted.
            first = int(np.searchsorted(rows[:, 0], START))
            rows, prob = np.insert(rows, first, START, axis=0), np.insert(prob, first, 0.0)
        kept.append(Table(rows))
        probs.append(prob)
    back_offs.append(np.ones(len(kept[-1])))
    with np.errstate(divide="ignore"):
        scores, weights = list(map(np.log, probs)), list(map(np.log, back_offs))
    return Model(kept, scores, weights, num_tokens=num_tokens, symbols=names, unknown=unknown_id)


def _order(counts: Counts, n: int, limit: int, num_tokens: int, is_continued: bool) -> Order:
    table, values = counts._tables[n - 1], counts.values(n)
    is_kept = values > limit
    if is_continued and n < counts.order:
        values = _continuations(counts, n)
    if n == 1:
        # Every token has a probability, whether it occurs or not.
        tokens = [END, *range(num_tokens)] if counts.has_end else range(num_tokens)
        whole = Table(np.array(tokens, np.int32)[:, None])
        place = whole.find(table.rows)
        table, is_kept = whole, np.ones(len(whole), np.bool_)
        spread = np.zeros(len(whole), np.int64)
        spread[place] = values
        values = spread
    is_first = np.ones(len(table), np.bool_)
    is_first[1:] = (table.rows[1:, :-1] != table.rows[:-1, :-1]).any(axis=1)
    return Order(table, values, is_kept, np.cumsum(is_first) - 1, np.flatnonzero(is_first))


def _continuations(counts: Counts, n: int) -> Ints:
    """The number of different tokens before each n-gram; for one with <s>, its count."""
    table = counts._tables[n - 1]
    place = table.find(counts.ngrams(n + 1)[:, 1:])
    number = np.bincount(place, minlength=len(table)).astype(np.int64)
    return np.where(table.rows[:, 0] == START, counts.values(n), number)


def _kneser_ney(order: Order, lower: Floats, limit: int) -> tuple[Floats, Floats]:
    counts = order.counts
    discount = np.array([0.0, *kneser_ney_discounts(counts)])[np.minimum(counts, 3)]
    total = order.sums(counts)
    taken = order.sums(np.where(order.is_kept, discount, counts))
    # Without <s>, an n-gram that occurs only at the start of sequences has no token before it.
    weight = np.where(total > 0, taken / np.maximum(total, 1), 1.0)
    own = (counts - discount) / np.maximum(total, 1)[order.history]
    return own + weight[order.history] * lower, weight


def kneser_ney_discounts(counts: Ints) -> tuple[float, float, float]:
    """The discounts for counts of 1, of 2, and of 3 or more."""
    n1, n2, n3, n4 = (int((counts == r).sum()) for r in range(1, 5))
    if n1 and n2 and n3:
        y = n1 / (n1 + 2 * n2)
        found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
        if all(0 <= discount <= r for r, discount in enumerate(found, 1)):
            return found
    return 0.5, 1.0, 1.5


def _katz(order: Order, lower: Floats, limit: int) -> tuple[Floats, Floats]:
    ratios = good_turing_ratios(order.counts, limit)
    lowered = order.counts * np.append(ratios, 1.0)[np.minimum(order.counts, len(ratios))]
    return _back_off(order, lower, lowered, extra=1)


def good_turing_ratios(counts: Ints, limit: int) -> Floats:
    """The ratio of discounted count to count, for counts 0 to the largest discounted one."""
    numbers = np.bincount(np.minimum(counts, limit + 2), minlength=limit + 3)
    for last in range(limit, 0, -1):
        if not numbers[1 : last + 1].all():
            continue
        r = np.arange(1, last + 1)
        expected = (r + 1) * numbers[2 : last + 2] / numbers[1 : last + 1]
        rest = (last + 1) * numbers[last + 1] / numbers[1]
        if rest == 1:
            continue
        ratios = (expected / r - rest) / (1 - rest)
        if ((ratios > 0) & (ratios <= 1)).all():
            return np.append(1.0, ratios)
    r = np.arange(1, limit + 1)
    return np.append(1.0, (r - 0.5) / r)


def _mle(order: Order, lower: Floats, limit: int) -> tuple[Floats, Floats]:
    return _back_off(order, lower, order.counts.astype(np.float64), extra=0)


def _back_off(order: Order, lower: Floats, lowered: Floats, *, extra: int) -> tuple[Floats, Floats]:
    """Distribute the discounted mass over the tokens unseen after each history.

    If there is none, `extra` is added to the total of the history.
    """
    is_seen = order.is_kept & (order.counts > 0)
    total = order.sums(order.counts)
    taken = order.sums(np.where(is_seen, order.counts - lowered, order.counts))
    unseen = 1 - order.sums(np.where(is_seen, lower, 0.0))
    can_give = unseen > NOTHING
    more = np.where(can_give & (taken == 0), extra, 0)
    total, taken = total + more, taken + more
    weight = np.where(can_give, taken / total / np.maximum(unseen, NOTHING), 0.0)
    # Without unseen tokens the mass stays with the seen ones.
    given = np.where(can_give, total, total - taken)
    prob = np.where(is_seen, lowered / given[order.history], weight[order.history] * lower)
    return prob, weight


# Each takes an order, the probabilities of its n-grams without their first token, and the largest
# count to discount. It returns the probabilities of the n-grams and the back-off weight of each
# history.
METHODS: dict[str, Callable[[Order, Floats, int], tuple[Floats, Floats]]] = {
    "kneser_ney": _kneser_ney,
    "katz": _katz,
    "mle": _mle,
}
