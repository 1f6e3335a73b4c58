"""Check that the includes of the C++ core go in one direction, and draw its rooms.

A unit is a header with its source files: `x.cpp`, and `x_part.cpp` without a header of its own,
belong to `x.h`. A source file that no header claims is a unit too. A unit depends on another one if
it includes it, or if the linker finds one of its symbols there (with --objects). Units must not
form a cycle, and no unit may depend on a unit of a later room.

Usage: python scripts/draw_rooms.py [--objects build/dev] [--out docs/architecture.svg]
"""

import argparse
import itertools
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORE = ROOT / "csrc/arcgrad"

# Every room may use itself and the rooms before it.
ROOMS = (
    *("runtime", "core", "autograd", "algorithms", "trellis", "ops", "gtn", "tokens", "io"),
    "search",
)
# The headers outside the folders of the rooms: the index of ops, and the header of the library,
# which includes all public ones and so is in no room.
LOOSE = {"ops.h": "ops", "arcgrad.h": None}

Edges = set[tuple[str, str]]


def sources(core: Path = CORE) -> list[Path]:
    """All headers and source files, as paths below `core`."""
    found = (path for path in core.rglob("*") if path.suffix in (".h", ".cpp"))
    return sorted(path.relative_to(core) for path in found)


def room(path: Path | str) -> str | None:
    """The room of a file or unit; None if it is in none."""
    path = Path(path)
    first = path.parts[0]
    if len(path.parts) == 1:
        return LOOSE.get(path.with_suffix(".h").name)
    return first if first in ROOMS else None


def unit(path: Path, core: Path = CORE) -> str:
    """The unit of a file."""
    stem = path.stem
    while stem and not (core / path.parent / f"{stem}.h").is_file():
        stem = stem.rpartition("_")[0]
    return str(path.with_name(stem or path.stem))


def misplaced(core: Path = CORE) -> list[str]:
    """The files outside of all rooms."""
    return [str(path) for path in sources(core) if room(path) is None and path.name not in LOOSE]


def includes(path: Path, core: Path = CORE) -> list[Path]:
    """The files of the core that one of its files includes."""
    text = (core / path).read_text(encoding="utf-8")
    return [Path(name) for name in re.findall(r'^#include "arcgrad/([^"]+)"', text, re.M)]


def include_edges(core: Path = CORE) -> Edges:
    """(unit, unit it includes) for all units in rooms."""
    return {
        (unit(path, core), unit(other, core))
        for path in sources(core)
        for other in includes(path, core)
        if room(path) and unit(path, core) != unit(other, core)
    }


def symbols(units: dict[str, str], option: str) -> list[tuple[str, str, str]]:
    """(unit, type, name) of the symbols that `nm` lists; `units` has the unit of each file."""
    command = ["nm", "-P", "-A", option, *units]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = []
    for line in done.stdout.splitlines():
        file, _, symbol = line.partition(": ")
        name, kind = symbol.split()[:2]
        found.append((units[file], kind, name))
    return found


def link_edges(build: Path, core: Path = CORE) -> Edges:
    """(unit, unit that defines a symbol it needs) for the units that have an object file."""
    of_path = {
        file.as_posix().rpartition("/arcgrad/")[2]: str(file)
        for file in build.rglob("arcgrad.dir/**/arcgrad/**/*.o")
    }
    units = {
        of_path[f"{path}.o"]: unit(path, core)
        for path in sources(core)
        if f"{path}.o" in of_path and room(path)
    }
    strong, weak = {}, defaultdict(set)
    for name, kind, symbol in symbols(units, "--defined-only"):
        if kind in "TDBR":
            strong[symbol] = name
        elif kind in "WVu":  # inline functions and templates, which many units may define
            weak[symbol].add(name)
    edges = set()
    for name, _, symbol in symbols(units, "--undefined-only"):
        definers = {strong[symbol]} if symbol in strong else weak[symbol]
        if len(definers) == 1:
            edges |= {(name, other) for other in definers if other != name}
    return edges


def cycles(edges: Edges) -> list[list[str]]:
    """The strongly connected components of more than one unit."""
    after = defaultdict(list)
    for a, b in sorted(edges):
        after[a].append(b)
    # Tarjan's algorithm; the graph of units is shallow enough for recursion.
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in after[node]:
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(component) > 1:
                found.append(sorted(component))

    for node in list(after):
        if node not in index:
            visit(node)
    return sorted(found)


def upward(edges: Edges) -> list[tuple[str, str]]:
    """The edges from a unit to a unit of a later room, or of no room."""
    order = {name: i for i, name in enumerate(ROOMS)} | {None: len(ROOMS)}
    return sorted((a, b) for a, b in edges if order[room(a)] < order[room(b)])


def draw(edges: Edges, units: Counter[str], out: Path) -> None:
    """Draw the rooms with their numbers of units, and arrows with the numbers of edges.

    Edges to a later room are red.
    """
    import pygraphviz

    between = Counter((room(a), room(b)) for a, b in edges if room(a) != room(b))
    graph = pygraphviz.AGraph(directed=True, rankdir="BT", nodesep=0.5, ranksep=0.45)
    graph.node_attr.update(shape="box", style="rounded", fontname="Helvetica", width=1.6)
    graph.edge_attr.update(fontname="Helvetica", fontsize=9, color="gray40", arrowsize=0.7)
    for name in ROOMS:
        graph.add_node(name, label=f"{name}\n{units[name]} units")
    # Heavy invisible edges keep the rooms in one column, in order.
    for below, above in itertools.pairwise(ROOMS):
        if not between[above, below]:
            graph.add_edge(below, above, style="invis", weight=100)
    for (a, b), count in sorted(between.items()):
        distance = ROOMS.index(a) - ROOMS.index(b)
        if distance < 0:
            graph.add_edge(a, b, label=str(count), color="red", constraint=False)
        else:
            weight = 100 if distance == 1 else 1
            graph.add_edge(b, a, label=str(count), dir="back", weight=weight)
    graph.draw(str(out), prog="dot")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=Path, help="a build folder, to see link edges too")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/architecture.svg")
    args = parser.parse_args()
    edges = include_edges()
    if args.objects:
        edges |= link_edges(args.objects)
    units = Counter(room(name) for name in {unit(path) for path in sources()} if room(name))
    loops, wrong, outside = cycles(edges), upward(edges), misplaced()
    for loop in loops:
        print("cycle:", ", ".join(loop))
    for a, b in wrong:
        print(f"upward: {a} -> {b}")
    for name in outside:
        print("outside of all rooms:", name)
    print(
        f"rooms: {len(units)}, units: {units.total()}, cycles: {len(loops)}, "
        f"upward edges: {len(wrong)}"
    )
    draw(edges, units, args.out)
    return 1 if loops or wrong or outside else 0


if __name__ == "__main__":
    sys.exit(main())
