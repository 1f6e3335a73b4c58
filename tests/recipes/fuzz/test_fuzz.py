"""A short run of the fuzzer, and a test of the fuzzer itself. `make fuzz` runs it at length."""

import zlib

import fuzzing
import pytest
from fuzz_readers import READERS
from fuzzing import Reader, attempt, fuzz


@pytest.fixture(autouse=True)
def _failures_are_kept_apart(tmp_path, monkeypatch):
    monkeypatch.setattr(fuzzing, "FAILED", tmp_path / "failed")


def test_readers_return_or_raise_one_error_that_names_the_file():
    lines = []
    failures = fuzz(READERS, 2000, seed=7, report=lines.append)
    assert not failures, "\n".join(lines)
    # Damage is neither always found by checksums nor always harmless.
    assert all(reader.outcomes["read"] for reader in READERS)
    assert sum(reader.outcomes["refused"] for reader in READERS) > 1000


def test_every_folder_of_the_corpus_has_a_reader():
    names = {reader.name for reader in READERS}
    assert {folder.name for folder in fuzzing.CORPUS.iterdir()} <= names
    assert len(names) == len(READERS)


def fails(error):
    def read(path):
        raise error(path)

    return read


@pytest.mark.parametrize(
    ("read", "problem"),
    [
        (lambda path: path.read_bytes()[5], "IndexError: index out of range"),
        (lambda path: zlib.decompress(path.read_bytes()), "error: Error -5"),
        (lambda path: path.read_bytes().decode(), "UnicodeDecodeError: 'utf-8'"),
        (fails(lambda path: MemoryError()), "MemoryError: "),
        (lambda path: int("x"), "an error that does not begin with the name of its op"),
        (fails(lambda path: ValueError("read: it is bad")), "an error that does not name the file"),
        (fails(lambda path: ValueError(f"read: {path} {'x' * 9999}")), "an error of 10"),
        (fails(lambda path: RecursionError("too deep")), "RecursionError: too deep"),
        (fails(lambda path: ValueError(f"read: {path} must be better")), None),
        (len, "TypeError: object of type"),
        (lambda path: None, None),
    ],
)
def test_the_fuzzer_notices_errors_that_readers_must_not_raise(tmp_path, read, problem):
    reader = Reader("bad", read, "file")
    found = attempt(reader, tmp_path / "file", b"\xff")
    assert found is None if problem is None else found.startswith(problem)


def test_the_fuzzer_notices_readers_that_are_slow_or_leak(tmp_path, monkeypatch):
    kept = []
    leak = Reader("leak", lambda path: kept.append(bytearray(100_000)), "file", seeds=[b"a"])
    (found,) = fuzz([leak], 1000, 0, report=len)
    assert found.problem.startswith("memory grew by ")
    monkeypatch.setattr(fuzzing, "MOST_SECONDS", 0.0)
    slow = Reader("slow", lambda path: sum(range(100_000)), "file", seeds=[b"a"])
    assert "it took 0.0 s" in {failure.problem for failure in fuzz([slow], 1, 0, report=len)}
