"""A source file over 500 lines gives the reason in its first comment."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("csrc", "bindings", "python")
MOST = 500
REASON = "over 500 lines because "


def first_comment(text):
    """The first block of `//` lines, or the docstring at the top, on one line."""
    found = re.search(r'^//.*(?:\n//.*)*|\A(?:#.*\n|\s)*"""(?:.|\n)*?"""', text, re.MULTILINE)
    return " ".join(found[0].replace("//", " ").split()) if found else ""


def is_too_long(text):
    return len(text.splitlines()) > MOST and REASON not in first_comment(text).lower()


def sources():
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*"))
    # Stubs (.pyi) are generated.
    return [path for path in files if path.suffix in (".h", ".cpp", ".py")]


def test_long_files_give_a_reason():
    files = sources()
    assert {path.relative_to(ROOT).parts[0] for path in files} == {*FOLDERS}
    wrong = [str(path.relative_to(ROOT)) for path in files if is_too_long(path.read_text())]
    assert not wrong, f"split, or say in the first comment '{REASON}...': {', '.join(wrong)}"


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ("#pragma once\n\n// Loops. Over 500 lines\n// because they share tiles.\n", False),
        ('"""Names.\n\nOver 500 lines because each has one.\n"""\n', False),
        ("#pragma once\n\n// Loops.\n\n// Over 500 lines because I say so.\n", True),
        ('"""Names."""\n', True),
        ("", True),
    ],
)
def test_a_file_without_a_reason_is_found(begin, expected):
    assert is_too_long(begin + "x\n" * MOST + "x\n") is expected
    assert not is_too_long("x\n" * MOST)
