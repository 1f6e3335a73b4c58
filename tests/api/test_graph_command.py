"""The command `arcgrad graph`."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from tools import build, run_python

import arcgrad as ag
from arcgrad import _graph_command


@pytest.fixture
def files(tmp_path):
    """A folder with two graphs of OpenFst."""
    first = build(3, {0}, {2}, [(0, 1, 1, 2, -0.5), (0, 1, 1, 2, 0.25), (1, 2, -1, 2, 1.5)])
    second = build(1, {0}, {0}, [(0, 0, 2, 3, 0.0)])
    ag.save(tmp_path / "a.fst", first, "openfst")
    ag.save(tmp_path / "b.fst", second, "openfst")
    return tmp_path


def run(*arguments):
    return _graph_command.main([str(argument) for argument in arguments])


def load(path):
    graph = ag.load(path)
    graph.calc_grad = False
    return graph


def test_operations_run_on_files(files):
    a, b, out = files / "a.fst", files / "b.fst", files / "out"
    first, second = ag.load(a), ag.load(b)
    for arguments, wanted in [
        (["compose", a, b], ag.compose(first, second)),
        (["apply", "compose", a, b, "--max-arcs", 100], ag.compose(first, second)),
        (["determinize", a, "--semiring", "tropical"], ag.determinize(first, "tropical")),
        (["union", a, b, a], ag.union([first, second, first])),
        (["power", a, "--n", 2], ag.power(first, 2)),
        (["shortest_distance", a, "--reverse"], ag.shortest_distance(first, reverse=True)),
    ]:
        assert run(*arguments, "-o", out) == 0
        assert ag.equal(ag.load(out), wanted)


def test_results_that_are_not_graphs_are_printed(files, capsys):
    a, b = files / "a.fst", files / "b.fst"
    assert run("forward_score", a) == 0
    assert float(capsys.readouterr().out) == ag.forward_score(ag.load(a)).item()
    assert (run("equal", a, a), capsys.readouterr().out) == (0, "yes\n")
    assert (run("equal", a, b), capsys.readouterr().out) == (1, "no\n")
    assert run("best_paths", a, "--n", 2, "-o", files / "paths.far") == 0
    assert list(ag.load_archive(files / "paths.far")) == ["1", "2"]


@pytest.mark.parametrize(
    ("name", "kind"), [("x.fst", "openfst"), ("x.txt", "att"), ("x.bin", "arcgrad")]
)
def test_graphs_are_converted(files, name, kind):
    assert run("convert", files / "a.fst", "-o", files / name) == 0
    assert ag.isomorphic(ag.load(files / name, kind, dtype="float64"), ag.load(files / "a.fst"))
    assert run("convert", files / name, "-o", files / "again", "-f", "openfst") == 0
    ag.load(files / "again", "openfst")


def test_symbols_are_read_and_written(files):
    ag.SymbolTable(["x", "y", "z", "w"]).save(files / "symbols")
    (files / "text").write_text("0 1 x y\n1\n")
    arguments = ["--isymbols", files / "symbols", "--osymbols", files / "symbols"]
    assert run("invert", files / "text", *arguments, "-o", files / "out.txt", "--symbols") == 0
    assert (files / "out.txt").read_text() == "0\t1\ty\tx\n1\n"


def test_info_and_the_list_of_operations(files, capsys):
    assert run("info", files / "a.fst", files / "b.fst") == 0
    printed = capsys.readouterr().out
    for name in ("a.fst", "b.fst"):
        assert f"{files / name}\n{ag.info(load(files / name))}\n" in printed
    assert run("ops") == 0
    printed = capsys.readouterr().out
    assert "(graph" not in printed
    listed = {line.split()[0] for line in printed.splitlines()}
    assert {"compose", "union", "forward_score", "rand_equivalent", "best_paths"} <= listed
    assert not {"backward", "load", "save", "draw", "linear_graph"} & listed


def test_every_operation_has_help(capsys):
    for name in _graph_command.ops():
        with pytest.raises(SystemExit) as exit:
            run(name, "--help")
        assert exit.value.code == 0
        assert "examples:" in capsys.readouterr().out
    assert run("apply", "--help") == 0
    assert "arcgrad graph apply determinize" in capsys.readouterr().out
    assert run("--help") == 0
    assert "exit codes" in capsys.readouterr().out


@pytest.mark.skipif(find_spec("pygraphviz") is None, reason="pygraphviz is not installed")
def test_graphs_are_drawn(files):
    out = files / "a.svg"
    assert run("draw", files / "a.fst", "-o", out, "--posteriors", "--best-path") == 0
    assert "<svg" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compose", "a.fst", "absent"], "arcgrad: load: cannot read 'absent'"),
        (["nothing", "a.fst"], "arcgrad: graph: the command must be one of"),
        (["apply"], "arcgrad: graph apply: an operation must follow"),
        (["power", "a.fst", "--n", "-1", "-o", "x"], "arcgrad: power: "),
        (["convert", "a.fst", "-o", "x", "--from", "k2"], "arcgrad: load: 'a.fst' must be text in"),
        (["draw", "a.fst", "-o", "a.gif"], "arcgrad: draw: the file name must end in .svg"),
        (["save", "a.fst"], "arcgrad: graph: the command must be one of"),
    ],
)
def test_errors_are_one_line(files, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(files)
    assert run(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 1
    assert not (files / "x").exists()


@pytest.mark.parametrize("arguments", [["power", "a.fst"], ["compose", "a.fst"], ["info"]])
def test_missing_arguments_show_the_usage(files, monkeypatch, capsys, arguments):
    monkeypatch.chdir(files)
    with pytest.raises(SystemExit) as exit:
        run(*arguments)
    assert exit.value.code == 2
    assert "usage: arcgrad graph" in capsys.readouterr().err


@pytest.mark.serial
def test_pipes_connect_commands(files):
    program = [sys.executable, "-m", "arcgrad", "graph"]
    first = subprocess.run(
        [*program, "compose", "a.fst", "b.fst"], cwd=files, capture_output=True, check=True
    )
    second = subprocess.run(
        [*program, "forward_score", "-"], cwd=files, input=first.stdout, capture_output=True,
        check=True,
    )  # fmt: skip
    wanted = ag.forward_score(ag.compose(ag.load(files / "a.fst"), ag.load(files / "b.fst")))
    assert float(second.stdout) == wanted.item()


@pytest.mark.serial
def test_the_command_starts_without_torch():
    code = """
import sys
sys.argv = ["arcgrad", "graph", "ops"]
from arcgrad.__main__ import main
try:
    main()
except SystemExit as exit:
    assert exit.code == 0
assert not {"torch", "typer", "matplotlib", "arcgrad.recipes"} & set(sys.modules)
"""
    assert "determinize" in run_python(code)
