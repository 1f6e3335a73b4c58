"""Comments, messages and documentation use plain technical English."""

import functools
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PATHS = (
    *("csrc", "bindings", "python", "tests", "docs", "benchmarks", "examples", "scripts"),
    *("cmake", ".github", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile"),
    *("CMakeLists.txt", "pyproject.toml", ".pre-commit-config.yaml"),
)
SUFFIXES = {".h", ".cpp", ".py", ".pyi", ".md", ".toml", ".yaml", ".yml", ".txt", ".in", ""}
GENERATED = ("docs/results/", "docs/generated/")
# Texts of others, and words that a printed result may contain.
EXEMPT = ("python/arcgrad/recipes/data/ocr_letters.txt",)

# Forbidden words, and what to write instead.
FORBIDDEN = {
    r"somebody": "the caller, the user, another thread",
    r"nobody": "no thread, no caller",
    r"whoever": "the thread that, the caller that",
    r"puts? off|putting off": "defer, lazy",
    r"(?<!there )(?-i:is none)": "is not one",
    r"that there is not": "unknown, missing",
    r"on its way": "pending, in flight",
    r"goes? past the caches?|past the caches": "non-temporal stores",
    r"mended|to mend": "fixed, corrected",
    r"at first look|at_first_look|at the first look": "lazily, on first access",
    r"says? it straight": "state it",
    r"is asked for ahead|asks? for ahead": "prefetch",
    r"in (?:its|his|one's|their) own right": "separately",
    r"curvature": "hvp, Hessian-vector product",
    r"settles?|settled|settling": "name what is done: materialize, compute, wait",
}


@functools.cache
def texts():
    """(path, lines) of every tracked text of the project, without generated files."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--", *PATHS], cwd=ROOT, capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("not a git checkout")
    found = []
    for name in done.stdout.decode().split("\0"):
        path = ROOT / name
        if (
            not name
            or name.startswith(GENERATED)
            or name in EXEMPT
            or path.suffix not in SUFFIXES
            or path == Path(__file__).resolve()
            or not path.is_file()
        ):
            continue
        found.append((name, path.read_text(encoding="utf-8").splitlines()))
    return found


@pytest.mark.parametrize("words", FORBIDDEN)
def test_forbidden_words_do_not_occur(words):
    pattern = re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE)
    found = [
        f"{name}:{number}: {line.strip()}"
        for name, lines in texts()
        for number, line in enumerate(lines, 1)
        if pattern.search(line)
    ]
    assert not found, f"write instead: {FORBIDDEN[words]}\n" + "\n".join(found)
