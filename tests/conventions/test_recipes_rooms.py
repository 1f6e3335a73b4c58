"""The rooms of the recipes: every file is in one, and imports go in one direction.

Imports are read from the source, so that those inside of functions count as well.
"""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2] / "python/arcgrad/recipes"
PACKAGE = "arcgrad.recipes"

# A room, or a single file at the top, may import those before it.
ORDER = [
    *("metrics", "checked_files", "experiments", "data", "models", "recognizer", "run"),
    *("inference", "training", "report", "paper", "cli"),
]
FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def room_of(path):
    """The room of a file; a file at the top is its own room."""
    return path.parts[0].removesuffix(".py")


def imported(path):
    """The modules of the recipes that a file imports, by their names below the package."""
    package = [*PACKAGE.split("."), *path.parent.parts]
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*start, *([node.module] if node.module else [])])
            names = [module]
            if module == PACKAGE or node.module is None:  # the names are modules
                names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (
            name.removeprefix(f"{PACKAGE}.") for name in names if name.startswith(f"{PACKAGE}.")
        )


def arrows():
    """The pairs of a file and a room that it imports, apart from its own."""
    return [
        (path, module.partition(".")[0])
        for path in FILES
        for module in imported(path)
        if module.partition(".")[0] != room_of(path)
    ]


def test_every_file_is_in_a_room():
    assert [path for path in FILES if room_of(path) not in ORDER] == [Path("__init__.py")]
    assert {room_of(path) for path in FILES} - {"__init__"} == set(ORDER)


def test_imports_point_to_earlier_rooms():
    found = arrows()
    assert (Path("training/loop.py"), "recognizer") in found
    wrong = [
        f"{path} imports {room}"
        for path, room in found
        if ORDER.index(room) >= ORDER.index(room_of(path))
    ]
    assert not wrong


def test_a_room_has_no_cycle_of_its_own():
    graph = {}
    for path in FILES:
        name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        same = [module for module in imported(path) if module.partition(".")[0] == room_of(path)]
        graph[name] = [module for module in same if module != room_of(path)]
    done = set()

    def visit(name, trail):
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for module in graph.get(name, ()):
                visit(module, [*trail, name])
            done.add(name)

    for name in graph:
        visit(name, [])


def test_the_order_is_documented():
    text = (ROOT / "__init__.py").read_text(encoding="utf-8")
    places = [text.index(f"``{room}``") for room in ORDER]
    assert places == sorted(places)
