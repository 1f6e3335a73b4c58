"""N-gram counts: counting, sums, pruning and files."""

import collections
import gzip
import os
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from arcgrad import ngram
from arcgrad.ngram import END, START, Counts, _sequences, count

TEXTS = st.lists(st.lists(st.integers(0, 3), max_size=6), max_size=6)


def definition(sequences, order, *, start=True, end=True):
    """The n-grams of all sequences, without <s> alone."""
    found = collections.Counter()
    for sequence in sequences:
        whole = [START] * start + list(sequence) + [END] * end
        for n in range(1, order + 1):
            for k in range(len(whole) - n + 1):
                found[tuple(whole[k : k + n])] += 1
    found.pop((START,), None)
    return dict(found)


@given(TEXTS, st.integers(1, 4), st.booleans(), st.booleans())
def test_counts_every_ngram(sequences, order, start, end):
    counts = count(sequences, order, start=start, end=end)
    assert dict(counts.items()) == definition(sequences, order, start=start, end=end)
    assert counts.order == order
    assert (counts.has_start, counts.has_end) == (start, end)
    assert counts.num_tokens == max((t + 1 for s in sequences for t in s), default=0)
    assert len(counts) == sum(counts.sizes) == len(dict(counts.items()))


@given(TEXTS, st.integers(1, 4))
def test_counts_of_large_tokens_and_high_orders(sequences, order):
    # Four tokens of 31 bits do not fit into one number.
    large = [[token * 700_000_000 for token in sequence] for sequence in sequences]
    expected = definition(large, order)
    counts = count(large, order)
    assert dict(counts.items()) == expected
    assert all(counts[gram] == value for gram, value in expected.items())
    assert counts[(1,) * order] == 0


@given(TEXTS, st.integers(1, 3))
def test_chunks_make_no_difference(sequences, order):
    before = _sequences.CHUNK
    _sequences.CHUNK = 4
    try:
        assert count(iter(sequences), order) == count(sequences, order)
    finally:
        _sequences.CHUNK = before


@given(TEXTS, st.integers(1, 3))
def test_arrays_and_lists_have_the_same_counts(sequences, order):
    arrays = [np.array(sequence, np.uint16) for sequence in sequences]
    assert count(arrays, order) == count(sequences, order)


def test_ngrams_are_in_lexicographic_order():
    counts = count([[2, 0, 1], [0, 1, 0]], 2)
    rows = counts.ngrams(2).tolist()
    assert rows == sorted(rows)
    assert counts.values(2).sum() == 8


def test_text_gets_symbols_as_they_come():
    lines = ["the cat", "a cat", ""]
    counts = count(lines, 2, tokenize=str.split)
    assert counts.symbols == ("the", "cat", "a")
    assert counts["cat", END] == 2
    assert counts[["a", "cat"]] == 1
    assert counts[START, END] == 1
    assert counts["dog",] == 0
    assert counts["dog", "cat"] == 0


def test_a_string_is_a_sequence_of_letters():
    counts = count(["abab", "b"], 2, symbols="ba")
    assert (counts["ab"], counts[1, 0], counts["b"]) == (2, 2, 3)


def test_other_words_are_unknown_if_the_symbols_have_an_unknown_word():
    counts = count([["a", "x", "y"]], 1, symbols=["a", "<unk>", "b"])
    assert counts[1,] == 2
    assert counts.num_tokens == 3


def test_tokenize_may_make_numbers():
    assert count(["12", "1"], 1, tokenize=lambda line: [ord(c) - ord("0") for c in line]) == count(
        [[1, 2], [1]], 1
    )


def test_the_number_of_tokens_can_be_larger_than_what_occurs():
    assert count([[1]], 1, num_tokens=5).num_tokens == 5
    assert count([], 2, num_tokens=5).num_tokens == 5
    assert count([], 2).sizes == (0, 0)


def test_progress_is_reported(monkeypatch):
    monkeypatch.setattr(_sequences, "CHUNK", 10)
    told = []
    count(([0] * 6 for _ in range(7)), 2, progress=told.append)
    assert told == [12, 24, 36, 42]


def test_progress_on_a_terminal_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    count([[0, 1]], 1, progress=True)
    assert capsys.readouterr().err == "\rcount: 2 tokens\n"


def test_progress_without_a_terminal_is_silent(capsys):
    count([[0, 1]], 1, progress=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (([[0]], 0), {}, ValueError, "count: the order must be 1 or more, but it is 0"),
        (([[0, -1]], 1), {}, ValueError, "tokens must be between 0 and .*, but there is -1"),
        (([[7]], 1), {"num_tokens": 7}, ValueError, "between 0 and 6, but there is 7"),
        (([[2**31]], 1), {}, ValueError, "but there is 2147483648"),
        (([[2**70]], 1), {}, ValueError, "but there is 1180591620717411303424"),
        (([[-(2**70)]], 1), {}, ValueError, "but there is -1180591620717411303424"),
        (([[0.5]], 1), {}, TypeError, "all whole numbers or all strings, but they are float"),
        (([["a", 1]], 1), {}, TypeError, "but they are int, str"),
        (([[1], [2]], 1), {"symbols": "ab"}, TypeError, "must be all strings"),
        ((["ax"], 1), {"symbols": "ab"}, ValueError, "'x' is not; add it, or add '<unk>'"),
        ((["a"], 1), {"symbols": "aba"}, ValueError, "must differ, but 'a' occurs more than once"),
        ((["a"], 1), {"symbols": "ab", "num_tokens": 2}, ValueError, "but there are symbols"),
        (([np.zeros((2, 2), int)], 1), {}, ValueError, "must have one dimension, but one has 2"),
    ],
)
def test_rejects(arguments, options, error, message):
    with pytest.raises(error, match=message):
        count(*arguments, **options)


def test_rejects_words_after_numbers(monkeypatch):
    monkeypatch.setattr(_sequences, "CHUNK", 1)
    with pytest.raises(TypeError, match=r"must be all numbers, .* but there are strings too"):
        count([[0], ["a"]], 1)


# Counts


@given(TEXTS, TEXTS, st.integers(1, 3))
def test_a_sum_has_the_counts_of_both(first, second, order):
    total = count(first, order) + count(second, order)
    assert total == count(first + second, order)


@given(*[st.lists(st.text("abcd", max_size=4), max_size=4)] * 2, st.integers(1, 3))
def test_sums_join_the_symbols(first, second, order):
    one = count(first, order, symbols=["a", "b", "<unk>", "c"])
    two = count(second, order, symbols="dcba")
    total = one + two
    assert total.symbols == ("a", "b", "<unk>", "c", "d")

    def named(counts):
        names = {**dict(enumerate(counts.symbols)), START: START, END: END}
        return collections.Counter(
            {tuple(map(names.get, gram)): value for gram, value in counts.items()}
        )

    assert named(total) == named(one) + named(two)


def test_sums_of_different_kinds_are_refused():
    counts = count([[0]], 2)
    for other, message in [
        (count([[0]], 1), "must have the same order, but they have 2 and 1"),
        (count([[0]], 2, start=False), "must have the same start, but they have True and False"),
        (count([[0]], 2, end=False), "must have the same end"),
        (count(["a"], 2), "must both have symbols, but only one of them has"),
    ]:
        with pytest.raises(ValueError, match=message):
            counts + other
    with pytest.raises(TypeError):
        counts + 1


@given(TEXTS, st.integers(1, 3), st.data())
def test_pruning_keeps_what_is_above_the_threshold(sequences, order, data):
    limits = sorted(data.draw(st.lists(st.integers(0, 4), min_size=order, max_size=order)))
    pruned = count(sequences, order, num_tokens=4).prune(limits)
    expected = definition(sequences, order)
    assert dict(pruned.items()) == {g: c for g, c in expected.items() if c > limits[len(g) - 1]}
    assert (pruned.order, pruned.num_tokens) == (order, 4)


def test_pruning_needs_a_threshold_per_order_and_none_that_decreases():
    counts = count([[0, 1]], 2)
    with pytest.raises(ValueError, match="one threshold for each of 2 orders, but there are 1"):
        counts.prune([0])
    with pytest.raises(ValueError, match="they are 1 for order 1 and 0 for order 2"):
        counts.prune([1, 0])


def test_most_common():
    counts = count([[0, 1, 1], [1, 2]], 1)
    expected = [((1,), 3), ((END,), 2), ((0,), 1), ((2,), 1)]
    assert counts.most_common(1) == expected
    assert counts.most_common(1, 2) == expected[:2]


def test_orders_and_lengths_out_of_range_are_refused():
    counts = count([[0, 1, 1], [1, 2]], 2)
    for order in (0, 3):
        with pytest.raises(ValueError, match=f"order must be 1 to 2, but it is {order}"):
            counts.ngrams(order)
    with pytest.raises(ValueError, match="an n-gram must have 1 to 2 tokens, but got 3"):
        counts[0, 1, 1]
    with pytest.raises(ValueError, match="tokens have no names, but got 'a'"):
        counts["a"]


def test_arrays_cannot_be_changed():
    counts = count([[0, 1]], 1)
    for array in (counts.ngrams(1), counts.values(1)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 5


@given(TEXTS, st.integers(1, 3))
def test_counts_can_be_made_from_a_dict(sequences, order):
    found = definition(sequences, order)
    assert Counts(found, order=order) == count(sequences, order)


@pytest.mark.parametrize(
    ("ngrams", "options", "message"),
    [
        ({}, {"order": 0}, "the order must be 1 or more, but it is 0"),
        ({}, {"symbols": "aa"}, "symbols must differ, but 'a' occurs more than once"),
        ({(): 1}, {"order": 1}, r"must have 1 to 1 tokens, but \(\) has 0"),
        ({(0, 1): 1}, {"order": 1}, r"must have 1 to 1 tokens, but \(0, 1\) has 2"),
        ({(0,): 0}, {}, r"counts must be 1 or more, but \(0\) has the count 0"),
        ({(0, START): 1}, {}, r"<s> as the first of several.*\(0, <s>\)"),
        ({(START,): 1}, {}, r"but there is \(<s>\)"),
        ({(END, 0): 1}, {}, r"</s> as the last.*\(</s>, 0\)"),
        ({(START, 0): 1}, {"start": False}, r"but there is \(<s>, 0\)"),
        ({(0, END): 1}, {"end": False}, r"but there is \(0, </s>\)"),
        ({(-3,): 1}, {}, r"tokens must be 0 or more.*\(-3\)"),
        ({(3,): 1}, {"num_tokens": 3}, "tokens must be below 3, but there is 3"),
    ],
)
def test_counts_of_invalid_ngrams_are_refused(ngrams, options, message):
    with pytest.raises(ValueError, match=message):
        Counts(ngrams, **options)


@given(TEXTS, st.integers(1, 3), st.booleans(), st.booleans())
def test_can_be_pickled(sequences, order, start, end):
    counts = count(sequences, order, start=start, end=end)
    again = pickle.loads(pickle.dumps(counts))
    assert again == counts
    assert all(again[gram] == value for gram, value in counts.items())


@pytest.mark.parametrize("name", ["counts.npz", "counts.txt"])
@given(sequences=TEXTS, order=st.integers(1, 3), named=st.booleans(), end=st.booleans())
def test_files_give_back_the_counts(tmp_path_factory, name, sequences, order, named, end):
    path = tmp_path_factory.mktemp("counts") / name
    if named:
        sequences = [['a b\n"ä▁'[t] for t in sequence] for sequence in sequences]
    counts = count(sequences, order, end=end)
    counts.save(path)
    assert Counts.load(path) == counts
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert Counts.load(packed) == counts


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "counts"
    counts = count([[0, 1]], 1)
    counts.save(path)

    def fail(_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="disk full"):
        count([[5]], 1).save(path)
    assert Counts.load(path) == counts
    assert os.listdir(tmp_path) == ["counts"]


def test_saving_to_a_link_keeps_the_link_and_permissions(tmp_path):
    path, link = tmp_path / "counts", tmp_path / "link"
    path.touch(0o640)
    link.symlink_to(path)
    counts = count([[0, 1]], 1)
    counts.save(link)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert Counts.load(path) == counts


def test_a_device_file_is_written_in_place(tmp_path):
    count([[0, 1]], 1).save(os.devnull)
    assert not os.path.isfile(os.devnull)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError):
        count([[0, 1]], 1).save(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must begin with 'arcgrad n-gram counts'"),
        (b"PK\x03\x04 no zip file", "must hold counts, but it is not a file of arrays"),
        (b"arcgrad n-gram counts", "line 2 of .* must be JSON"),
        (b"arcgrad n-gram counts\n{}", "line 2 of .* must describe the counts"),
        (b"\x1f\x8b damaged", "must be a complete gzip file, but it is damaged"),
    ],
)
def test_other_files_are_refused(tmp_path, content, message):
    path = tmp_path / "counts"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Counts.load(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x 1", "line 4 of .* must hold a count and 1 to 1 tokens, but it is 'x 1'"),
        ("1", "line 4 of .* must hold a count and 1 to 1 tokens, but it is '1'"),
        ("1 2 3", "line 4 of .* must hold a count and 1 to 1 tokens, but it is '1 2 3'"),
        ("1 -1", "line 4 of .*: tokens must be .* but there is"),
        ("0 1", r"line 4 of .*: counts must be 1 or more, but \(1\) has the count 0"),
    ],
)
def test_wrong_lines_are_named(tmp_path, line, message):
    path = tmp_path / "counts"
    Counts({(0,): 1}, num_tokens=9).save(path)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ValueError, match=message):
        Counts.load(path)


def test_repr_shows_the_sizes():
    assert repr(ngram.count([[0, 1]], 2)) == "Counts(order 2, 3 + 3 n-grams, 2 tokens)"


@pytest.mark.parametrize("ngrams", [{(0,): 1.5}, {(0.5,): 1}, {(0,): 2**63}])
def test_numbers_that_are_not_counts_are_refused(ngrams):
    with pytest.raises((TypeError, ValueError), match="Counts: "):
        Counts(ngrams)
