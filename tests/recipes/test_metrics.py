"""Error rates against the definition of the edit distance."""

import math
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arcgrad.recipes.metrics import (
    Errors,
    char_errors,
    confusions,
    differences,
    evaluate,
    word_errors,
)

texts = st.text(alphabet="ab ▁c", max_size=8)


def distance(first, second):
    """The least number of edits, by the recursion that defines it."""

    @cache
    def of(i, j):
        if i == 0 or j == 0:
            return i + j
        return min(
            of(i - 1, j) + 1,
            of(i, j - 1) + 1,
            of(i - 1, j - 1) + (first[i - 1] != second[j - 1]),
        )

    return of(len(first), len(second))


@given(texts, texts)
def test_errors_of_letters_are_the_edit_distance_of_words_with_one_space_between(
    reference, hypothesis
):
    first, second = (" ".join(t.replace("▁", " ").split()) for t in (reference, hypothesis))
    errors = char_errors(reference, hypothesis)
    assert errors.count == distance(first, second)
    assert errors.length == len(first)
    assert errors.length + errors.insertions - errors.deletions == len(second)


@given(texts, texts)
def test_errors_of_words_are_the_edit_distance_of_words(reference, hypothesis):
    first, second = (tuple(t.replace("▁", " ").split(" ")) for t in (reference, hypothesis))
    first, second = (tuple(word for word in words if word) for words in (first, second))
    errors = word_errors(reference, hypothesis)
    assert errors.count == distance(first, second)
    assert errors.length == len(first)


@given(texts, texts)
def test_differences_make_up_both_texts_and_count_the_edits(reference, hypothesis):
    parts = differences(reference, hypothesis)
    (scored,) = evaluate([reference], [hypothesis]).examples
    assert "".join(part.reference for part in parts) == scored.reference
    assert "".join(part.hypothesis for part in parts) == scored.hypothesis
    wrong = [part for part in parts if part.is_error]
    assert len(wrong) == scored.chars.count
    assert all(len(letter) <= 1 for part in wrong for letter in part)
    assert sorted(confusions([scored]).elements()) == sorted(wrong)


def test_several_spaces_between_words_are_one_for_letters_and_for_words():
    assert char_errors("the cat", "the  cat").count == 0
    assert word_errors("the cat", "the  cat").count == 0
    assert char_errors("the ▁cat", ["▁the", "▁", "▁cat"]).length == 7


def test_confusions_of_all_examples_are_counted():
    found = confusions(evaluate(["on no", "nn", ""], ["an na", "n", "x"]).examples)
    assert found == {("o", "a"): 2, ("n", ""): 1, ("", "x"): 1}


def test_insertions_deletions_and_substitutions_are_counted_separately():
    assert char_errors("abc", "xbc") == Errors(1, 0, 0, 3)
    assert char_errors("abc", "bc") == Errors(0, 1, 0, 3)
    assert char_errors("abc", "abcd") == Errors(0, 0, 1, 3)


def test_tokens_are_joined_and_boundaries_at_the_ends_do_not_count():
    assert char_errors("the cat", ["▁the", "▁", "c", "at", "▁"]).count == 0
    assert word_errors(["▁the", "▁cat"], "the cat").count == 0


def test_a_missing_boundary_is_an_error_of_letters_and_of_words():
    assert char_errors("the cat", "thecat").count == 1
    assert word_errors("the cat", "thecat").count == 2


def test_the_rate_of_a_corpus_is_the_ratio_of_totals():
    result = evaluate(["aaaaaaaa", "b"], ["aaaaaaaa", "c"])
    assert result.cer == pytest.approx(100 / 9)
    assert result.wer == 50.0
    assert [example.chars.rate for example in result.examples] == [0.0, 100.0]
    assert [example.hypothesis for example in result.examples] == ["aaaaaaaa", "c"]


def test_a_corpus_without_letters_has_no_or_infinitely_many_errors():
    assert evaluate([], []).cer == 0.0
    assert evaluate([""], [""]).wer == 0.0
    assert evaluate([""], ["a"]).cer == math.inf


def test_each_reference_needs_a_hypothesis():
    with pytest.raises(ValueError, match="must have a hypothesis, but there are 2 and 1"):
        evaluate(["a", "b"], ["a"])
