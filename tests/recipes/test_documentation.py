"""Every public name of the recipes has a docstring, and examples run."""

import doctest
import inspect

import pytest

from arcgrad.recipes import (
    alignment,
    cli,
    data,
    decoding,
    experiment,
    inputs,
    markdown,
    metrics,
    models,
    plots,
    reading,
    recognizer,
    report,
    run,
    settings,
    train,
)

CORPORA = [data.digits, data.iam, data.letters, data.librispeech, data.wsj]
WHOLE = [
    *(alignment, data, decoding, experiment, inputs, markdown, metrics),
    *(models, plots, reading, recognizer, report, run, settings, train),
]
MODULES = [*WHOLE, *CORPORA]


def public(module):
    """The public functions and classes of a module, by their full name."""
    names = getattr(module, "__all__", [name for name in vars(module) if name[0] != "_"])
    things = {name: getattr(module, name) for name in names}
    return {
        f"{module.__name__}.{name}": thing
        for name, thing in things.items()
        if inspect.isfunction(thing) or inspect.isclass(thing)
        if module in WHOLE or thing.__module__ == module.__name__
    }


DOCUMENTED = {name: thing for module in MODULES for name, thing in public(module).items()}


def test_there_are_names():
    assert {"LogMel", "load", "prepare", "evaluate"} <= {n.split(".")[-1] for n in DOCUMENTED}


@pytest.mark.parametrize("module", [*WHOLE, cli], ids=lambda module: module.__name__)
def test_all_is_complete(module):
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_every_public_name_has_a_docstring(name):
    assert len((inspect.getdoc(DOCUMENTED[name]) or "").split()) >= 3


@pytest.mark.parametrize(
    "name", sorted(n for n, thing in DOCUMENTED.items() if ">>> " in (inspect.getdoc(thing) or ""))
)
def test_examples_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    parser = doctest.DocTestParser()
    example = parser.get_doctest(inspect.getdoc(DOCUMENTED[name]), {}, name, None, 0)
    output = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(example, out=output.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)
