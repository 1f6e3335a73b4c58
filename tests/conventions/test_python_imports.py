"""Python modules import downwards only, without cycles.

Imports inside functions count: they run too. Imports for type checkers alone do not.
"""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "python"
TOP = "arcgrad"

# From the bottom to the top: a room may import rooms of the rows above it, and itself. The package
# itself, which exports the public names, is a room too.
LAYERS = [
    {"_arguments", "_core"},
    {"_arcs", "_environment", "_files", "_grad_mode", "_objects", "_signatures"},
    {
        *("building", "criterion", "describing", "drawing", "lexicon", "ngram", "strings"),
        *("text", "tokens"),
    },
    {"decoding"},
    {""},
    {"_graph_command", "gtn", "torch"},
    {"recipes"},
    {"__main__"},
]


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# The core is not in Python, and the recipes have a room structure of their own.
FILES = {module_name(path): path for path in sorted((ROOT / TOP).rglob("*.py"))}
CHECKED = [name for name in FILES if not name.startswith(f"{TOP}.recipes")]
MODULES = {*FILES, f"{TOP}._core"}


def room(module):
    return module.split(".")[1] if "." in module else ""


def layer(module):
    return next((i for i, rooms in enumerate(LAYERS) if room(module) in rooms), None)


def is_for_type_checkers(node):
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def import_nodes(tree):
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif is_for_type_checkers(node):
            for child in node.orelse:
                yield from import_nodes(ast.Module([child], []))
        else:
            yield from import_nodes(node)


def imports(module, source, is_package=False):
    """The modules that a module imports; a name counts for the module that defines it."""
    found = set()
    for node in import_nodes(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
            continue
        base = node.module or ""
        if node.level:
            parents = module.split(".")
            parents = parents[: len(parents) - node.level + is_package]
            base = ".".join([*parents, base] if base else parents)
        members = {f"{base}.{alias.name}" for alias in node.names}
        found |= members & MODULES
        if members - MODULES:
            found.add(base)
    return {name for name in found if name == TOP or name.startswith(f"{TOP}.")}


def imports_of(module):
    path = FILES[module]
    return imports(module, path.read_text(), path.name == "__init__.py")


@pytest.mark.parametrize("module", CHECKED)
def test_imports_point_downwards(module):
    assert layer(module) is not None, f"{module} has no layer"
    for other in sorted(imports_of(module)):
        assert other in MODULES, f"{module} imports {other}, which does not exist"
        is_lower = layer(other) < layer(module)
        assert is_lower or room(other) == room(module), f"{module} must not import {other}"


def test_no_module_imports_itself_through_others():
    try:
        list(TopologicalSorter({name: imports_of(name) for name in CHECKED}).static_order())
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_imports_are_found():
    source = """
import numpy, arcgrad.ngram
from . import _leaves, tensor
from .. import tokens
from arcgrad._core import Graph
if TYPE_CHECKING:
    from .stc import STCLoss
def f():
    from ._compiled import constant
"""
    package = {"arcgrad.ngram", "arcgrad.torch._leaves", "arcgrad._core", "arcgrad.torch._compiled"}
    assert imports("arcgrad.torch.ctc", source) == {*package, "arcgrad.torch", "arcgrad.tokens"}
    assert imports("arcgrad.torch", "from ._leaves import graph", is_package=True) == {
        "arcgrad.torch._leaves"
    }
