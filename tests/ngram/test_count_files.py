"""Files of counts that are damaged or made by others: one error that names the place."""

import gzip
import io
import json
import zipfile

import numpy as np
import pytest

from arcgrad import _files
from arcgrad.ngram import Counts, count

HEAD = {"order": 2, "num_tokens": 2, "start": True, "end": True, "symbols": None}


def written(tmp_path, head, *rows):
    path = tmp_path / "counts"
    head = head if isinstance(head, str) else json.dumps(head)
    path.write_text("\n".join(["arcgrad n-gram counts", head, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"order": 99999999999},
            "order must be a whole number from 1 to 1000, but the value is",
        ),
        ({"order": True}, "order must be a whole number"),
        ({"order": 1.0}, "order must be a whole number"),
        ({"order": 0}, "order must be a whole number"),
        ({"order": "2"}, "order must be a whole number from 1 to 1000, but the value is '2'"),
        ({"num_tokens": -1}, "num_tokens must be a whole number from 0 to 2147483647, but the"),
        ({"num_tokens": 2**31}, "num_tokens must be a whole number"),
        ({"num_tokens": None}, "num_tokens must be a whole number"),
        ({"start": 1}, "start must be true or false, but the value is 1"),
        ({"end": []}, r"end must be true or false, but the value is \[\]"),
        ({"symbols": [1, 2]}, r"symbols must be null or a text for each token, but .* \[1, 2\]"),
        ({"symbols": ["a"]}, r"symbols must be null or a text for each token, but .* \['a'\]"),
        ({"symbols": ["a", "b", "c"]}, "symbols must be null or a text for each token"),
        ({"symbols": "ab"}, "symbols must be null or a text for each token"),
    ],
)
@pytest.mark.parametrize("is_text", [True, False])
def test_every_entry_of_the_head_is_checked(tmp_path, change, message, is_text):
    head = {**HEAD, **change}
    if is_text:
        path, place = written(tmp_path, head, "1 0"), "line 2"
    else:
        path, place = tmp_path / "counts.npz", "the head"
        np.savez(path, head=np.array(json.dumps(head)), ngrams1=[[0]], values1=[1])
    with pytest.raises(ValueError, match=f"^Counts.load: in {place} of '{path}', {message}"):
        Counts.load(path)


@pytest.mark.parametrize(
    "head", ["[" * 100_000, "{", "[]", "{}", '{"order": 1', "3", "\x00", '{"order": ' + "9" * 5000]
)
def test_a_head_must_be_a_json_object_with_all_entries(tmp_path, head):
    path = written(tmp_path, head, "1 0")
    with pytest.raises(ValueError, match=f"^Counts.load: line 2 of '{path}' must (be JSON|descri)"):
        Counts.load(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1 0 0 0", "must hold a count and 1 to 2 tokens, but it is '1 0 0 0'"),
        (
            "9223372036854775808 0",
            "must hold numbers of 64 bits, but it is '9223372036854775808 0'",
        ),
        ("9" * 5000 + " 0", "must hold a count and 1 to 2 tokens"),
        ("9" * 4000 + " 0", "must hold numbers of 64 bits, but it is"),
        ("1 9223372036854775808", "must hold numbers of 64 bits"),
        ("1 2147483647", ": tokens must be 0 or more"),
        ("1 -3", ": tokens must be 0 or more"),
        ("-1 0", r": counts must be 1 or more, but \(0\) has the count -1"),
        ("9223372036854775807 0", ": the counts of an order must add up to less than 2.63"),
        ("1\xff 0", "must hold a count"),
    ],
)
def test_every_line_is_checked_and_named(tmp_path, row, message):
    path = written(tmp_path, HEAD, "3 1", row, "2 0 1")
    with pytest.raises(ValueError, match=f"^Counts.load: line 4 of '{path}' ?{message}"):
        Counts.load(path)


def test_tokens_must_be_below_their_number(tmp_path):
    path = written(tmp_path, HEAD, "1 2")
    with pytest.raises(ValueError, match=f"^Counts.load: '{path}' .* tokens must be below 2, but"):
        Counts.load(path)


def arrays(**changes):
    head = np.array(json.dumps(HEAD))
    found = {"head": head, "ngrams1": [[0]], "values1": [3], "ngrams2": [[0, 1]], "values2": [2]}
    return {name: value for name, value in {**found, **changes}.items() if value is not None}


def test_files_of_arrays_by_others_are_read(tmp_path):
    np.savez(tmp_path / "a.npz", **arrays())
    assert Counts.load(tmp_path / "a.npz") == Counts({(0,): 3, (0, 1): 2})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"head": None}, "it has no head"),
        ({"head": np.array([1])}, "it has no head"),
        ({"ngrams2": None}, "must hold 2-grams and their counts as arrays of whole numbers"),
        ({"values1": None}, "must hold 1-grams"),
        ({"values1": [1.5]}, "must hold 1-grams"),
        ({"values1": [1, 2]}, "must hold 1-grams"),
        ({"values1": 3}, "must hold 1-grams"),
        ({"ngrams1": [0]}, "must hold 1-grams"),
        ({"ngrams1": [[0, 1]]}, "must hold 1-grams"),
        ({"ngrams1": [["a"]]}, "must hold 1-grams"),
        ({"values1": np.array([2**64 - 1], np.uint64)}, "counts must be 1 or more"),
        ({"ngrams1": [[-9]]}, ": tokens must be 0 or more"),
        ({"extra": np.array([{}], object)}, "not a file of arrays"),
    ],
)
def test_every_array_is_checked(tmp_path, changes, message):
    path = tmp_path / "a.npz"
    np.savez(path, **arrays(**changes))
    with pytest.raises(ValueError, match=f"^Counts.load: .*'{path}'.*{message}|{message}.*{path}"):
        Counts.load(path)


def archive(header, body=b"", method=zipfile.ZIP_DEFLATED):
    """A file of arrays with a header of any kind."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as zipped:
        text = repr(header).encode() + b"\n"
        size = len(text).to_bytes(2, "little")
        zipped.writestr("head.npy", b"\x93NUMPY\x01\x00" + size + text + body)
    return file.getvalue()


@pytest.mark.parametrize(
    "shape", [(10**15,), (2**62, 2**62), (-1,), (3, -1), (10**400,), (0, 10**15, 7), "no"]
)
def test_nothing_is_allocated_by_the_word_of_a_header(shape):
    header = {"descr": "<i8", "fortran_order": False, "shape": shape}
    if shape == (0, 10**15, 7):
        assert _files.parse_arrays(archive(header))["head"].size == 0
    else:
        with pytest.raises(ValueError, match="not a file of arrays"):
            _files.parse_arrays(archive(header))


def test_arrays_of_objects_are_refused():
    header = {"descr": "|O", "fortran_order": False, "shape": (1,)}
    with pytest.raises(ValueError, match="Python objects"):
        _files.parse_arrays(archive(header, b"\0" * 8))


def test_arrays_in_the_order_of_fortran_are_read():
    values = np.asfortranarray(np.arange(6).reshape(2, 3))
    file = io.BytesIO()
    np.savez_compressed(file, values=values)
    found = _files.parse_arrays(file.getvalue())["values"]
    assert np.array_equal(found, values)


def test_compressed_content_may_expand_only_so_far(tmp_path, monkeypatch):
    monkeypatch.setattr(_files, "MOST_EXPANDED", 100_000)
    path = tmp_path / "counts"
    count(["ab"], 2).save(path)
    path.write_bytes(gzip.compress(path.read_bytes() + b"\n" * 1_000_000))
    with pytest.raises(ValueError, match=f"^Counts.load: '{path}' must expand to at most 1"):
        Counts.load(path)
    header = {"descr": "|u1", "fortran_order": False, "shape": (1_000_000,)}
    path.write_bytes(archive(header, bytes(1_000_000)))
    with pytest.raises(ValueError, match=f"^Counts.load: '{path}' must hold counts, but .*expands"):
        Counts.load(path)


def test_a_flipped_bit_in_compressed_counts_is_found_or_harmless(tmp_path):
    path = tmp_path / "a.npz"
    counts = count(["abab", "ba", "bb"], 3)
    counts.save(path)
    whole = bytearray(path.read_bytes())
    outcomes = set()
    for bit in range(0, 8 * len(whole), 7):
        whole[bit // 8] ^= 1 << bit % 8
        path.write_bytes(whole)
        whole[bit // 8] ^= 1 << bit % 8
        try:
            outcomes.add(Counts.load(path) == counts)
        except ValueError as error:
            outcomes.add((type(error), str(path) in str(error)))
    assert outcomes == {True, (ValueError, True)}


def test_counts_have_limits_of_their_own():
    with pytest.raises(ValueError, match=r"^count: the order must be 1000 or less, but it is"):
        count(["ab"], 1001)
    with pytest.raises(ValueError, match=r"^Counts: the order must be 1000 or less"):
        Counts({}, order=10**11)
    with pytest.raises(ValueError, match=r"^Counts: there must be at most 2147483647 tokens"):
        Counts({(0,): 1}, num_tokens=2**31)
    with pytest.raises(ValueError, match=r"^Counts: there must be a symbol for each of 3 tokens"):
        Counts({(0,): 1}, num_tokens=3, symbols="ab")
    with pytest.raises(TypeError, match=r"^Counts: symbols must be strings, but symbol 1 is 2"):
        Counts({(0,): 1}, symbols=["a", 2])
