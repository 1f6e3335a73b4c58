"""Every public name of the recipes has a docstring, and its examples run."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

from arcgrad import recipes

MODULES = [
    importlib.import_module(info.name)
    for info in pkgutil.walk_packages(recipes.__path__, "arcgrad.recipes.")
    if not info.name.endswith("__main__")
]


def public(module):
    """The public names of a module; the corpora are modules of functions, without a list."""
    if module.__name__.startswith("arcgrad.recipes.data."):
        return [name for name in vars(module) if name[0] != "_"]
    return getattr(module, "__all__", [])


# The public functions and classes, by their full names where they are defined.
DOCUMENTED = {
    f"{thing.__module__}.{thing.__name__}": thing
    for module in MODULES
    for thing in (getattr(module, name) for name in public(module))
    if inspect.isfunction(thing) or inspect.isclass(thing)
    if thing.__module__.startswith("arcgrad.recipes.")
}


def test_there_are_names():
    names = {name.rpartition(".")[2] for name in DOCUMENTED}
    assert {"LogMel", "load", "prepare", "evaluate", "align", "train", "TDS2d", "find"} <= names


def test_all_is_complete():
    for module in MODULES:
        names = getattr(module, "__all__", [])
        assert len(set(names)) == len(names), module
        assert all(hasattr(module, name) for name in names), module


def test_every_public_name_has_a_docstring():
    short = [
        name for name, thing in DOCUMENTED.items() if len((inspect.getdoc(thing) or "").split()) < 3
    ]
    assert not short


@pytest.mark.parametrize("module", sorted({thing.__module__ for thing in DOCUMENTED.values()}))
def test_examples_run(module, tmp_path, monkeypatch):
    parser = doctest.DocTestParser()
    output = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    for name, thing in DOCUMENTED.items():
        if thing.__module__ == module:
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            example = parser.get_doctest(inspect.getdoc(thing), {}, name, None, 0)
            runner.run(example, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)
