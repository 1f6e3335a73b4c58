"""Estimated n-gram models against the formulas of Kneser-Ney and Katz smoothing."""

import itertools
import math
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from arcgrad.ngram import END, START, Counts, count, estimate
from arcgrad.ngram.smoothing import good_turing_ratios, kneser_ney_discounts

METHODS = ("kneser_ney", "katz", "mle")
TEXTS = st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=8)

TINY = ["the cat sat on the mat", "the dog sat on the cat", "a cat on a mat", "the dog"]


def limits(order):
    return st.one_of(
        st.none(),
        st.lists(st.integers(0, 2), min_size=order - 1, max_size=order - 1).map(
            lambda values: [0, *sorted(values)]
        ),
    )


def vocabulary(counts):
    return [*range(counts.num_tokens), *[END] * counts.has_end]


def followers(found, history):
    return {gram[-1]: c for gram, c in found.items() if gram[:-1] == history}


def discount(values, value):
    return ([0.0, *kneser_ney_discounts(np.array(values))])[min(value, 3)]


def kneser_ney(counts, thresholds):
    """The probability of a token after a history, by the formulas."""
    raw = dict(counts.items())
    adjusted = {}
    for gram, value in raw.items():
        if len(gram) < counts.order and gram[0] != START:
            value = sum(other[1:] == gram for other in raw)
        adjusted[gram] = value

    def probability(token, history):
        words = vocabulary(counts)
        lower = probability(token, history[1:]) if history else 1 / len(words)
        own = followers(adjusted, history)
        total = sum(own.values())
        if not total:
            return lower
        order = len(history) + 1
        values = [c for gram, c in adjusted.items() if len(gram) == order]
        left = {w: c - discount(values, c) for w, c in own.items()}
        for word in own:
            if order > 1 and raw[(*history, word)] <= thresholds[order - 1]:
                left[word] = 0.0
        weight = (total - sum(left.values())) / total
        return left.get(token, 0.0) / total + weight * lower

    return probability


def katz(counts, thresholds, limit=5):
    raw = dict(counts.items())

    def probability(token, history):
        words = vocabulary(counts)
        order = len(history) + 1

        def lower(word):
            return probability(word, history[1:]) if history else 1 / len(words)

        own = followers(raw, history)
        if not own:
            return lower(token)
        values = np.array([c for gram, c in raw.items() if len(gram) == order])
        ratios = good_turing_ratios(values, limit)
        kept = {w: c for w, c in own.items() if order == 1 or c > thresholds[order - 1]}
        left = {w: c * (ratios[c] if c < len(ratios) else 1.0) for w, c in kept.items()}
        total = sum(own.values())
        unseen = [word for word in words if word not in kept]
        if not unseen:
            return left[token] / sum(left.values())
        if sum(left.values()) == total:
            total += 1
        if token in kept:
            return left[token] / total
        share = lower(token) / sum(map(lower, unseen))
        return share * (total - sum(left.values())) / total

    return probability


@pytest.mark.parametrize(
    ("method", "formulas"), [("kneser_ney", kneser_ney), ("katz", katz)], ids=METHODS[:2]
)
@given(sequences=TEXTS, order=st.integers(1, 3), ends=st.booleans(), data=st.data())
def test_probabilities_equal_the_formulas(method, formulas, sequences, order, ends, data):
    counts = count([*sequences, [0]], order, num_tokens=3, start=ends, end=ends)
    thresholds = data.draw(limits(order))
    model = estimate(counts, method, prune=thresholds)
    probability = formulas(counts, thresholds or [0] * order)
    history = tuple(data.draw(st.lists(st.integers(0, 2), max_size=3)))
    known = ((START, *history) if ends else history)[-(order - 1) :] if order > 1 else ()
    expected = [probability(token, known) for token in (0, 1, 2)]
    expected.append(probability(END, known) if ends else 0.0)
    assert np.exp(model.next_scores(history)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("method", METHODS)
@given(
    sequences=TEXTS,
    order=st.integers(1, 4),
    start=st.booleans(),
    end=st.booleans(),
    unknown=st.booleans(),
    data=st.data(),
)
def test_probabilities_add_to_one(method, sequences, order, start, end, unknown, data):
    counts = count([*sequences, [0]], order, num_tokens=4, start=start, end=end)
    model = estimate(counts, method, prune=data.draw(limits(order)), unknown=unknown)
    for length in range(order + 1):
        for history in itertools.product(range(4), repeat=min(length, 3)):
            for after_start in (False, True):
                total = np.exp(model.next_scores(history, start=after_start)).sum()
                assert total == pytest.approx(1.0, abs=1e-9)


@given(TEXTS, st.integers(1, 3))
def test_relative_frequencies(sequences, order):
    counts = count([*sequences, [0]], order)
    model = estimate(counts, "mle")
    found = dict(counts.items())
    for gram, value in found.items():
        total = sum(followers(found, gram[:-1]).values())
        place = model.ngrams(len(gram)).tolist().index(list(gram))
        assert model.log_probs(len(gram))[place] == pytest.approx(math.log(value / total))


def test_kneser_ney_by_hand():
    counts = count(["ab", "ab", "b"], 2)
    model = estimate(counts, "kneser_ney")
    # One token precedes a, two precede b, one precedes </s>. No count is 3, so the discounts are
    # 0.5 and 1. Each token gets a third of the discounted mass.
    a, b, end = 0.5 / 4 + 2 / 4 / 3, 1 / 4 + 2 / 4 / 3, 0.5 / 4 + 2 / 4 / 3
    assert np.exp(model.next_scores([2], start=False)) == pytest.approx([a, b, end])
    # Of the bigrams one occurs once, two occur twice, one three times: n1 / (n1 + 2 n2) = 1/5, and
    # the discounts are 1 - 2/5 x 2/1, 2 - 3/5 x 1/2, 3.
    rest = (1.7 + 0.2) / 3
    expected = [(2 - 1.7) / 3 + rest * a, (1 - 0.2) / 3 + rest * b, rest * end]
    assert np.exp(model.next_scores()) == pytest.approx(expected)
    expected = [1.7 / 2 * a, (2 - 1.7) / 2 + 1.7 / 2 * b, 1.7 / 2 * end]
    assert np.exp(model.next_scores("a")) == pytest.approx(expected)
    assert np.exp(model.next_scores("b")) == pytest.approx([a, b, end])


def test_kneser_ney_equals_kenlm():
    # From lmplz -o 3 --discount_fallback on the same text: decimal logarithms, back-off weights.
    expected = {
        "the": (-0.9767387, -0.17609128),
        "dog": (-0.7937393, -0.17609128),
        "<unk>": (-0.9867485, 0.0),
        "cat </s>": (-0.7451057, 0.0),
        "mat </s>": (-0.3957031, 0.0),
        "<s> the": (-1.0145273, -0.30103),
        "<s> a": (-0.74462223, -0.30103),
        "the mat": (-0.81341624, -0.30103),
        "sat on": (-0.39397553, -0.30103),
        "the cat </s>": (-0.46862116, 0.0),
        "<s> the cat": (-0.5449001, 0.0),
        "cat sat on": (-0.15376556, 0.0),
        "on the mat": (-0.4856727, 0.0),
    }
    model = estimate(count(TINY, 3, tokenize=str.split), "kneser_ney", unknown=True)
    assert model.sizes == (10, 16, 17)
    ids = {**{name: k for k, name in enumerate(model.symbols)}, "<s>": START, "</s>": END}
    for text, (score, weight) in expected.items():
        gram = [ids[word] for word in text.split()]
        place = model.ngrams(len(gram)).tolist().index(gram)
        assert model.log_probs(len(gram))[place] == pytest.approx(score * math.log(10), abs=2e-6)
        assert model.back_offs(len(gram))[place] == pytest.approx(weight * math.log(10), abs=2e-6)


def test_katz_by_hand():
    # The counts after a are b twice and c once; of one count each, half is taken away.
    counts = Counts(
        {(0,): 3, (1,): 3, (2,): 2, (0, 1): 2, (0, 2): 1}, start=False, end=False, num_tokens=4
    )
    model = estimate(counts, "katz")
    unigram = np.array([2.5, 2.5, 1.5, 1.5]) / 8
    assert np.exp(model.next_scores()) == pytest.approx([*unigram, 0])
    rest = 1 - 2 / 3
    unseen = unigram[0] + unigram[3]
    expected = [rest * unigram[0] / unseen, 1.5 / 3, 0.5 / 3, rest * unigram[3] / unseen, 0]
    assert np.exp(model.next_scores([0])) == pytest.approx(expected)


def test_good_turing_ratios_equal_the_formula():
    # 10, 5, 3, 2 n-grams with counts 1 to 4.
    counts = np.repeat([1, 2, 3, 4], [10, 5, 3, 2])
    rest = 4 * 2 / 10
    expected = [(2 * 5 / 10 - rest) / (1 - rest), (3 * 3 / 5 / 2 - rest) / (1 - rest)]
    expected.append((4 * 2 / 3 / 3 - rest) / (1 - rest))
    assert good_turing_ratios(counts, 3) == pytest.approx([1.0, *expected])


def test_good_turing_takes_a_smaller_limit_if_need_be():
    counts = np.repeat([1, 2, 3], [10, 3, 1])
    assert len(good_turing_ratios(counts, 5)) < 6
    assert good_turing_ratios(np.array([7, 8]), 2) == pytest.approx([1.0, 0.5, 0.75])


def test_kneser_ney_discounts_equal_the_formula():
    counts = np.repeat([1, 2, 3, 4, 9], [10, 6, 4, 3, 5])
    share = 10 / (10 + 12)
    expected = (1 - 2 * share * 6 / 10, 2 - 3 * share * 4 / 6, 3 - 4 * share * 3 / 4)
    assert kneser_ney_discounts(counts) == pytest.approx(expected)
    assert kneser_ney_discounts(np.array([1, 1, 2])) == (0.5, 1.0, 1.5)
    # Three times as many counts of 3 as of 2 would make the second discount negative.
    assert kneser_ney_discounts(np.repeat([1, 2, 3], [10, 1, 9])) == (0.5, 1.0, 1.5)


def test_pruned_ngrams_are_not_in_the_model():
    counts = count([[0, 1, 2], [0, 1, 0]], 2)
    model = estimate(counts, "kneser_ney", prune=[0, 1])
    kept = {(START, 0), (0, 1)}
    assert set(map(tuple, model.ngrams(2).tolist())) == kept


def test_unknown_is_one_more_token():
    counts = count(["ab"], 1)
    model = estimate(counts, unknown=True)
    assert model.symbols == ("a", "b", "<unk>")
    assert model.unknown == 2
    assert model.score("ax") == model.score(["a", "<unk>"])
    model = estimate(count([[0, 1]], 1), unknown=True)
    assert (model.symbols, model.unknown, model.num_tokens) == (None, 2, 3)
    assert model.score([0, 77]) == model.score([0, 2])
    named = estimate(count([["a"]], 1, symbols=["<unk>", "a"]), unknown=True)
    assert (named.unknown, named.num_tokens) == (0, 2)


def test_without_unknown_other_tokens_are_impossible():
    model = estimate(count(["ab"], 2))
    assert model.unknown is None
    assert model.score("ax") == -math.inf
    assert model.score([0, 7]) == -math.inf
    assert model.perplexity(["ax"]) == math.inf


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ({}, {"method": "none"}, "must be one of kneser_ney, katz, mle, but it is 'none'"),
        ({}, {"katz_limit": 0}, "katz_limit must be 1 or more, but it is 0"),
        ({}, {"prune": [1, 1]}, "the threshold of order 1 must be 0, but it is 1; every token"),
        ({}, {"prune": [0]}, "one threshold for each of 2 orders"),
        ({(0, 1): 1, (0,): 1}, {}, r"but there is \(0, 1\) and no \(1\)"),
        (
            {(0,): 1, (0, 0): 1, (1, 0): 1, (1,): 1, (0, 1): 1, (1, 1, 0): 1},
            {},
            r"without its last token must be .* there is \(1, 1, 0\) and no \(1, 1\)",
        ),
    ],
)
def test_rejects(arguments, options, message):
    counts = Counts(arguments) if arguments else count([[0, 1]], 2)
    with pytest.raises(ValueError, match=message):
        estimate(counts, **options)


def test_rejects_no_counts():
    with pytest.raises(ValueError, match="estimate: there must be counts, but there are none"):
        estimate(count([], 2))


# Scores


@pytest.mark.parametrize("method", METHODS)
@given(TEXTS, TEXTS, st.integers(1, 4))
def test_scores_are_sums_over_tokens(method, sequences, others, order):
    model = estimate(count([*sequences, [0]], order, num_tokens=3), method)
    total, number = 0.0, 0
    for sequence in others:
        expected = 0.0
        for k, token in enumerate([*sequence, END]):
            scores = model.next_scores(sequence[:k])
            expected += scores[3 if token == END else token]
        assert model.score(sequence) == pytest.approx(expected, abs=1e-9)
        total += expected
        number += len(sequence) + 1
    assert model.perplexity(others) == pytest.approx(math.exp(-total / number))


def test_the_ends_can_be_left_out():
    model = estimate(count([[0, 1], [1]], 2))
    inner = model.next_scores([0], start=False)[1]
    first = model.next_scores([], start=False)[0]
    assert model.score([0, 1], start=False, end=False) == pytest.approx(first + inner)
    assert model.score([], end=False) == 0.0
    assert model.score([]) == pytest.approx(model.next_scores()[-1])


def test_invalid_tokens_are_refused():
    model = estimate(count([[0, 1]], 2))
    with pytest.raises(ValueError, match="score: tokens must be 0 or more, but there is -1"):
        model.score([-1])
    with pytest.raises(ValueError, match="tokens of the model have no names, but got 'a'"):
        model.score("a")
    with pytest.raises(
        ValueError, match="perplexity: there must be at least one token, but there is none"
    ):
        model.perplexity([[]], end=False)
    with pytest.raises(ValueError, match="Model: the order must be 1 to 2, but it is 3"):
        model.ngrams(3)


def test_can_be_pickled():
    model = estimate(count(TINY, 3, tokenize=str.split), unknown=True)
    again = pickle.loads(pickle.dumps(model))
    line = ["the", "dog", "is", "on", "a", "mat"]
    assert again.score(line) == model.score(line)
    assert again.symbols == model.symbols


def test_repr_shows_the_sizes():
    assert repr(estimate(count([[0, 1]], 2))) == "Model(order 2, 4 + 3 n-grams, 2 tokens)"
