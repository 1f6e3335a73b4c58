"""Without the packages of an extra, modules that need them name the extra, and others work."""

import re
import sys
from pathlib import Path

import pytest
from tools import run_python

import arcgrad as ag

PACKAGE = Path(ag.__file__).parent
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
MODULES = sorted(
    ".".join(("arcgrad", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(
        ".__init__"
    )
    for path in PACKAGE.rglob("*.py")
)

# Imports all modules, one after the other, where only the named packages can be found.
CODE = """
import importlib, sys
from importlib.machinery import PathFinder
class Installed(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in {present!r} | sys.stdlib_module_names:
            return PathFinder.find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(PathFinder)] = Installed
import arcgrad
for name in {modules!r}:
    try:
        importlib.import_module(name)
        print(name, "works")
    except ImportError as error:
        print(name, error)
"""


def import_all(*present):
    code = CODE.format(present={"arcgrad", "numpy", *present}, modules=MODULES)
    lines = run_python(code).splitlines()
    assert [line.partition(" ")[0] for line in lines] == MODULES
    return dict(line.split(" ", 1) for line in lines)


def test_modules_that_need_torch_name_the_extra():
    for name, message in import_all().items():
        if name.startswith("arcgrad.torch"):
            assert message == (
                "arcgrad.torch needs PyTorch, but it is not installed; pip install 'arcgrad[torch]'"
            )
        elif name.startswith("arcgrad.recipes"):
            assert re.fullmatch(
                r"arcgrad.recipes needs torch, .*, but they are not installed; "
                r"pip install 'arcgrad\[recipes\]'",
                message,
            )
        else:
            assert message == "works", name


def test_recipes_name_the_only_package_that_is_missing(tmp_path):
    pytest.importorskip("rapidfuzz")
    code = """
import sys
sys.modules["rapidfuzz"] = None
sys.modules["rapidfuzz.distance"] = None
sys.argv = ["arcgrad", "--help"]
from arcgrad.__main__ import main
try:
    main()
except SystemExit as end:
    print(end)
"""
    assert run_python(code) == (
        "arcgrad: arcgrad.recipes needs rapidfuzz, but it is not installed; "
        "pip install 'arcgrad[recipes]'\n"
    )


def test_recipes_check_every_package_of_the_extra():
    recipes = pytest.importorskip("arcgrad.recipes", exc_type=ImportError)
    (extra,) = re.findall(r"^recipes = \[(.*?)^\]", PYPROJECT.read_text(), re.M | re.S)
    names = re.findall(r'"([\w-]+)(\[torch\])?[>"]?', extra)
    named = {"torch" if name == "arcgrad" else name for name, _ in names}
    if sys.version_info >= (3, 11):
        named -= {"tomli", "python_version"}
    assert named == set(recipes._PACKAGES.values())
