"""One class name has one meaning in the whole C++ core."""

import re
from collections import defaultdict
from pathlib import Path

CORE = Path(__file__).parents[2] / "csrc"
# A definition at any depth: `class Name {`, `struct Name final : Base {`. A qualified name, as in
# `struct Tokens::State {`, defines a member of a class that is declared elsewhere.
DEFINITION = re.compile(
    r"^[ \t]*(?:template <[^;{]*>\s*)?(?:class|struct|enum class) (\w+)(?: final)?\s*"
    r"(?::(?!:)[^;{]*)?\{",
    re.MULTILINE,
)
# A class that several kernels define privately, with one meaning.
ALLOWED = {
    "Segment",  # consecutive frames that the backward pass recomputes
}


def definitions():
    found = defaultdict(set)
    for path in [*CORE.rglob("*.h"), *CORE.rglob("*.cpp")]:
        for name in DEFINITION.findall(path.read_text()):
            found[name].add(str(path.relative_to(CORE)))
    return found


def test_no_class_name_has_two_meanings():
    found = definitions()
    assert {"Graph", "Topology", "PathScores", "Tokens"} <= set(found)
    twice = {
        name: sorted(files)
        for name, files in found.items()
        if len(files) > 1 and name not in ALLOWED
    }
    assert not twice, "\n".join(f"{name}: {', '.join(files)}" for name, files in twice.items())
