"""Files of OpenFst: binary files of 10M arcs and text of 1M, written and read by both."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import pywrapfst as fst

import arcgrad as ag

from .graphs import uniform_dag
from .harness import Report, Row, Settings, faster_by, interleave
from .peers import OPENFST


def run(settings: Settings) -> Report:
    with tempfile.TemporaryDirectory() as folder:
        return Report([*binary(settings, Path(folder)), *text(settings, Path(folder))])


def prepare(num_arcs: int, path: Path) -> tuple[ag.Graph, fst.Fst]:
    graph = uniform_dag(num_arcs // 10, num_arcs, reachable=True).graph(calc_grad=False)
    ag.save(path, graph, "openfst")
    return graph, fst.Fst.read(str(path))


def row(measure: str, settings: Settings, ours, theirs, num_arcs: int) -> Row:
    times = interleave(measure, {"arcgrad": ours, OPENFST: theirs}, settings)
    size = {"arcs": num_arcs}
    return Row(measure, times["arcgrad"], OPENFST, times[OPENFST], faster_by(1.0), size)


def binary(settings: Settings, folder: Path) -> list[Row]:
    """Our writer waits for the disk (fsync), OpenFst's does not."""
    num_arcs = settings.size(10_000_000, 10_000)
    path, other = folder / "graph.fst", folder / "other.fst"
    graph, peer = prepare(num_arcs, path)
    write = partial(ag.save, path, graph, "openfst")
    read = partial(fst.Fst.read, str(path))
    return [
        row("write binary", settings, write, lambda: peer.write(str(other)), num_arcs),
        row("read binary", settings, partial(ag.load, path), read, num_arcs),
    ]


def text(settings: Settings, folder: Path) -> list[Row]:
    num_arcs = settings.size(1_000_000, 1_000)
    path = folder / "graph.txt"
    graph, peer = prepare(num_arcs, path)
    ag.save(path, graph, "att")
    content = path.read_text()

    def compile_text() -> fst.Fst:
        compiler = fst.Compiler(keep_state_numbering=True)
        compiler.write(content)
        return compiler.compile()

    return [
        row("write text", settings, partial(ag.save, path, graph, "att"), peer.print, num_arcs),
        row("read text", settings, partial(ag.load, path), compile_text, num_arcs),
    ]
