"""An op has five places, and every public name has a docstring with an example that runs."""

import doctest
import inspect
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
import spec

import arcgrad as ag
import arcgrad.torch as agt

ROOT = Path(__file__).parents[2]

# Public functions that are not ops: they compare or describe graphs, build, differentiate,
# schedule, or use files.
BUILD = {
    *("linear_graph", "linear_graphs", "scalar_graph", "chain_graph"),
    *("levenshtein_graph", "random_graph"),
}
# Ops that are compositions of others, written in Python.
COMPOSED = {"edit_distance"}
COMPARE = {"equal", "equivalent", "isomorphic", "rand_equivalent"}
# All in csrc/arcgrad/ops/predicates.cpp.
PROPERTIES = {
    *("is_acceptor", "is_acyclic", "is_connected", "is_deterministic", "is_epsilon_free"),
    *("is_functional", "is_string", "is_unambiguous"),
}
NOT_OPS = {
    *("backward", "grad", "hvp", "no_grad", "is_grad_enabled"),
    *("set_num_threads", "get_num_threads", "parallel_for"),
    *("explain", "set_history_limit", "get_history_limit"),
    *("set_memory_limit", "get_memory_limit"),
    *("arc_sources", "info", "paths", "string"),
    *("save", "load", "save_archive", "load_archive", "savetxt", "loadtxt", "write_dot", "draw"),
    *("to_openfst", "from_openfst", "to_k2", "from_k2"),
}

# Examples that need a package which is not there on all systems.
NEED_PYNINI = {"to_openfst", "from_openfst"}

# Modules whose names are checked, with their prefixes.
MODULES = {
    "": ag,
    "tokens.": ag.tokens,
    "ngram.": ag.ngram,
    "lexicon.": ag.lexicon,
    "decoding.": ag.decoding,
    "text.": ag.text,
    "torch.": agt,
}


def public_functions():
    return {
        n for n in ag.__all__ if callable(getattr(ag, n)) and not inspect.isclass(getattr(ag, n))
    }


def files():
    return {path.stem for path in (ROOT / "csrc/arcgrad/ops").glob("*.cpp")}


def declared():
    text = (ROOT / "csrc/arcgrad/ops.h").read_text()
    return {name.removesuffix("_") for name in re.findall(r"\b(\w+)\(", text)}


def bound():
    texts = (path.read_text() for path in (ROOT / "bindings").glob("ops_*.cpp"))
    return {name for text in texts for name in re.findall(r'"(\w+)"', text)}


def rows():
    return {op.name for op in spec.OPS}


def imported():
    text = (ROOT / "python/arcgrad/__init__.py").read_text()
    return set(re.findall(r"\w+", text)) & set(ag.__all__)


OPS = sorted(
    (public_functions() | rows() | files())
    - NOT_OPS
    - BUILD
    - COMPARE
    - COMPOSED
    - PROPERTIES
    - {"predicates"}
)


def test_there_are_ops():
    assert {"compose", "forward_score", "union", "remove"} <= set(OPS)
    assert len(OPS) >= 24


@pytest.mark.parametrize("op", OPS)
def test_an_op_has_its_five_places(op):
    places = {
        f"csrc/arcgrad/ops/{op}.cpp": files(),
        "a declaration in csrc/arcgrad/ops.h": declared(),
        "a binding in bindings/ops_*.cpp": bound(),
        "its name in python/arcgrad/__init__.py": imported(),
        "a row in tests/support/spec.py": rows(),
    }
    missing = [place for place, names in places.items() if op not in names]
    assert not missing, f"{op} lacks {', '.join(missing)}"


@pytest.mark.parametrize("name", sorted(BUILD | COMPOSED))
def test_constructors_have_a_row(name):
    assert name in rows()


@pytest.mark.parametrize("module", MODULES.values(), ids=lambda module: module.__name__)
def test_all_is_sorted_and_complete(module):
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        assert hasattr(module, name)
    things = {n: thing for n, thing in vars(module).items() if not n.startswith("_")}
    public = {n for n, thing in things.items() if not inspect.ismodule(thing)}
    assert public <= set(module.__all__)


def documented():
    """Every public object that can carry a docstring, by its full name."""
    found = {}
    for prefix, module in MODULES.items():
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing) or not callable(thing):
                continue
            found[prefix + name] = thing
            if inspect.isclass(thing):
                members = {n: m for n, m in vars(thing).items() if not n.startswith("_")}
                found |= {f"{prefix}{name}.{n}": m for n, m in members.items()}
    found["criterion.ctc_loss"] = ag.criterion.ctc_loss
    return found


def is_member(name):
    """Whether the name is of a member of a class."""
    return name.rpartition(".")[0] in DOCUMENTED


DOCUMENTED = documented()


def docstring(thing):
    """The docstring; those of static methods sit on the function they wrap."""
    return inspect.getdoc(getattr(thing, "__func__", thing)) or ""


def test_every_public_name_has_a_docstring():
    missing = [name for name, thing in DOCUMENTED.items() if len(docstring(thing).split()) < 3]
    assert not missing, f"no docstring: {', '.join(missing)}"


def test_every_function_shows_an_example():
    functions = {name: thing for name, thing in DOCUMENTED.items() if not is_member(name)}
    missing = [name for name, thing in functions.items() if ">>> " not in docstring(thing)]
    assert not missing, f"no example in the docstring: {', '.join(missing)}"


def test_examples_run(tmp_path, monkeypatch):
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    parser, output, num_run = doctest.DocTestParser(), [], 0
    for k, (name, thing) in enumerate(DOCUMENTED.items()):
        if name in NEED_PYNINI and find_spec("pynini") is None:
            continue
        folder = tmp_path / str(k)
        folder.mkdir()
        monkeypatch.chdir(folder)
        example = parser.get_doctest(docstring(thing), {"ag": ag}, name, None, 0)
        num_run += bool(example.examples)
        doctest.DocTestRunner(optionflags=flags).run(example, out=output.append)
    assert num_run >= 100
    assert not output, "".join(output)


# Guides that need the packages of an extra.
RECIPES = ("torch", "sentencepiece", "soundfile", "PIL", "rapidfuzz")
NEEDED = {
    "data.md": RECIPES,
    "reproduce.md": (*RECIPES, "rich", "matplotlib"),
    "training.md": (*RECIPES, "typer", "rich", "matplotlib", "yaml", "jinja2"),
}


@pytest.mark.parametrize("guide", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_examples_of_guides_run(guide):
    for package in NEEDED.get(guide, ()):
        pytest.importorskip(package)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    path = str(ROOT / "docs" / guide)
    assert doctest.testfile(path, module_relative=False, optionflags=flags).failed == 0
