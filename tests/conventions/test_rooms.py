"""The rooms of the C++ core: who may include and call whom, and which headers are public."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build/dev"

PUBLIC = {
    *("arcgrad.h", "ops.h"),
    *("runtime/error.h", "runtime/parallel.h", "runtime/buffer.h", "runtime/fork_safe_once.h"),
    *("core/semiring.h", "core/weights.h", "core/topology.h", "core/graph.h"),
    "core/symbol_table.h",
    "autograd/autograd.h",
    *("tokens/tokens.h", "tokens/alignments.h", "tokens/trie.h"),
    "io/io.h",
    "trellis/explain.h",
}


def load_script():
    spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "scripts/draw_rooms.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


rooms = load_script()


def has_objects():
    """Whether every source file has an object file that is not older."""
    found = {}
    for file in BUILD.rglob("arcgrad.dir/**/*.cpp.o"):
        found[str(file).partition("csrc/arcgrad/")[2].removesuffix(".o")] = file
    files = [path for path in rooms.sources() if path.suffix == ".cpp"]
    return all(
        str(path) in found
        and found[str(path)].stat().st_mtime >= (rooms.CORE / path).stat().st_mtime
        for path in files
    )


def test_every_file_is_in_a_room():
    assert rooms.misplaced() == []
    assert {rooms.room(path) for path in rooms.sources()} == {*rooms.ROOMS, None}


def test_every_include_exists():
    files = set(rooms.sources())
    missing = [
        (str(path), str(other))
        for path in files
        for other in rooms.includes(path)
        if other not in files
    ]
    assert missing == []


def test_includes_go_in_one_direction():
    edges = rooms.include_edges()
    assert rooms.upward(edges) == []
    assert rooms.cycles(edges) == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads the symbol types of ELF files")
def test_calls_go_in_one_direction():
    if not has_objects():
        pytest.skip("build/dev has no object files of the current sources")
    links = rooms.link_edges(BUILD)
    assert len(links) > 100
    edges = rooms.include_edges() | links
    assert rooms.upward(edges) == []
    assert rooms.cycles(edges) == []


def test_a_cycle_and_an_upward_include_are_found(tmp_path):
    for name, text in {
        "core/a.h": '#include "arcgrad/core/b.h"\n',
        "core/b.h": "",
        "core/b.cpp": "",
        "core/b_part.cpp": '#include "arcgrad/core/b.h"\n#include "arcgrad/core/a.h"\n',
        "runtime/c.h": '#include "arcgrad/ops.h"\n',
        "ops.h": "",
        "stray.h": "",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    edges = rooms.include_edges(tmp_path)
    assert rooms.cycles(edges) == [["core/a", "core/b"]]
    assert rooms.upward(edges) == [("runtime/c", "ops")]
    assert rooms.misplaced(tmp_path) == ["stray.h"]


def installed():
    """The list `public_headers` of CMakeLists.txt."""
    text = (ROOT / "CMakeLists.txt").read_text()
    found = re.search(r"set\(\s*public_headers\s+([^)]*)\)", text)
    assert found, "CMakeLists.txt has a list public_headers"
    return {name.partition("csrc/arcgrad/")[2] or name for name in found[1].split()}


def test_the_public_headers_are_installed():
    assert installed() == PUBLIC


def test_public_headers_include_public_headers_only():
    wrong = [
        (name, str(other))
        for name in sorted(PUBLIC)
        for other in rooms.includes(Path(name))
        if str(other) not in PUBLIC
    ]
    assert wrong == []
