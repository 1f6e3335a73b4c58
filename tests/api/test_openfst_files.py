"""Files and objects of OpenFst, compared with its own readers, writers and tools."""

import math
import shutil
import subprocess

import numpy as np
import pytest
from tools import build, content, write

import arcgrad as ag

ARCHIVES = ["sttable", "stlist", "kaldi", "kaldi-text"]


def random_fst(seed, arc_type="standard"):
    pywrapfst = pytest.importorskip("pywrapfst")
    rng = np.random.default_rng(seed)
    fst = pywrapfst.VectorFst(arc_type)
    count = int(rng.integers(1, 8))
    fst.add_states(count)
    fst.set_start(int(rng.integers(count)))

    def weight():
        value = rng.choice([0.0, math.inf, *(rng.normal(size=4) / 3)])
        return pywrapfst.Weight(fst.weight_type(), value)

    for state in range(count):
        if rng.random() < 0.5:
            fst.set_final(state, weight())
        for _ in range(int(rng.integers(4))):
            labels = (int(rng.integers(4)), int(rng.integers(4)))
            fst.add_arc(state, pywrapfst.Arc(*labels, weight(), int(rng.integers(count))))
    if rng.random() < 0.3:
        table = pywrapfst.SymbolTable()
        for number, symbol in enumerate(["<eps>", "a", "é", "c d"]):
            table.add_symbol(symbol, number)
        fst.set_input_symbols(table)
    return fst


def same(a, b):
    pywrapfst = pytest.importorskip("pywrapfst")
    return pywrapfst.equal(a, b, delta=0.0) and a.arc_type() == b.arc_type()


@pytest.mark.openfst
@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("arc_type", ["standard", "log", "log64"])
def test_files_of_openfst_agree_with_its_own_readers(tmp_path, seed, arc_type):
    pywrapfst = pytest.importorskip("pywrapfst")
    fst, path = random_fst(seed, arc_type), tmp_path / "graph.fst"
    graph = ag.from_openfst(fst)
    again = ag.to_openfst(graph, arc_type=arc_type)
    assert same(again, fst)
    assert again.verify()
    for form in ("vector", "const"):
        pywrapfst.convert(fst, form).write(str(path))
        assert content(ag.load(path)) == content(graph)
    ag.save(path, graph, "openfst", arc_type=arc_type)
    read = pywrapfst.Fst.read(str(path))
    assert same(read, fst)
    if fst.input_symbols() is not None:
        assert dict(read.input_symbols()) == dict(fst.input_symbols())
    fst.set_input_symbols(None)
    dtype = "float64" if arc_type == "log64" else "float32"
    ag.save(path, graph, "att")
    compiler = pywrapfst.Compiler(arc_type=arc_type, keep_state_numbering=True)
    compiler.write(path.read_text())
    assert same(compiler.compile(), fst)
    # OpenFst prints fewer digits.
    write(path, fst.print())
    printed = ag.load(path, "att", dtype=dtype, acceptor=False)
    assert printed.weights_to_list() == pytest.approx(
        ag.load(path, "att", dtype=dtype).weights_to_list()
    )
    assert same_shape(printed, graph)


def same_shape(a, b):
    rows = [
        sorted(zip(*(column.tolist() for column in graph.arcs()[:4]), strict=True))
        for graph in (a, b)
    ]
    return rows[0] == rows[1]


@pytest.mark.openfst
def test_archives_agree_with_openfst(tmp_path):
    pywrapfst = pytest.importorskip("pywrapfst")
    fsts = {f"key-{seed}": random_fst(seed) for seed in range(9)}
    for kind in ("sttable", "stlist"):
        path = str(tmp_path / kind)
        writer = pywrapfst.FarWriter.create(path, "standard", kind)
        for key, fst in fsts.items():
            writer[key] = fst
        del writer
        graphs = ag.load_archive(path)
        assert list(graphs) == list(fsts)
        ag.save_archive(path, graphs, kind)
        reader = pywrapfst.FarReader.open(path)
        for key, fst in fsts.items():
            assert reader.get_key() == key
            assert same(reader.get_fst(), fst)
            reader.next()
        assert reader.done()


@pytest.mark.openfst
def test_objects_of_openfst_are_checked():
    with pytest.raises(TypeError, match=r"from_openfst: fst must be an FST .* of type str"):
        ag.from_openfst("fst")
    pynini = pytest.importorskip("pynini")
    assert ag.from_openfst(pynini.accep("ab"), label_offset=0).ilabels().tolist() == [97, 98]
    with pytest.raises(ValueError, match="to_openfst: labels must be 1 or more"):
        ag.to_openfst(ag.chain_graph([0]), label_offset=0)


@pytest.mark.skipif(shutil.which("fstprint") is None, reason="OpenFst's tools are not installed")
def test_tools_of_openfst_read_and_write_the_same(tmp_path):
    path, text = tmp_path / "graph.fst", tmp_path / "graph.txt"
    for seed in range(10):
        graph = ag.from_openfst(random_fst(seed))
        graph.isymbols = None
        ag.save(path, graph, "openfst")
        ag.save(text, graph, "att")
        subprocess.run(["fstinfo", path], check=True, capture_output=True)
        printed = subprocess.run(["fstprint", path], check=True, capture_output=True, text=True)
        assert same_shape(
            ag.load(write(tmp_path / "printed", printed.stdout), "att", acceptor=False), graph
        )
        compiled = tmp_path / "compiled.fst"
        subprocess.run(["fstcompile", "--keep_state_numbering", text, compiled], check=True)
        assert content(ag.load(compiled)) == content(graph)
        aligned = tmp_path / "aligned.fst"
        command = ["fstconvert", "--fst_type=const", "--fst_align", path, aligned]
        subprocess.run(command, check=True)
        assert content(ag.load(aligned)) == content(graph)


# Archives


@pytest.mark.parametrize("format", ARCHIVES)
def test_archives_give_back_graphs(tmp_path, format):
    path = tmp_path / "archive"
    graphs = {"b": ag.chain_graph([1, 2], weights=[0.5, 1]), "a": build(1, {0}, {0}, [])}
    graphs["a"].set_accept_weight(0, -2.5)
    ag.save_archive(path, graphs, format)
    loaded = ag.load_archive(path)
    assert list(loaded) == (["a", "b"] if format == "sttable" else ["b", "a"])
    for name, graph in graphs.items():
        assert content(loaded[name]) == content(graph)
    ag.save_archive(path, {}, format)
    if not format.startswith("kaldi"):  # whose empty tables are empty files
        assert ag.load_archive(path) == {}


def test_names_of_archives_are_checked(tmp_path):
    path, graph = tmp_path / "archive", ag.chain_graph([1])
    for names, format in [({"": graph}, "stlist"), ({"a b": graph}, "kaldi")]:
        with pytest.raises(ValueError, match="save_archive: names must not be empty"):
            ag.save_archive(path, names, format)
    with pytest.raises(ValueError, match="save_archive: format must be sttable, stlist"):
        ag.save_archive(path, {"a": graph}, "far")
    with pytest.raises(TypeError, match=r"save_archive: .*graphs"):
        ag.save_archive(path, {"a": 1})
    with pytest.raises(TypeError, match=r"save_archive: .*graphs"):
        ag.save_archive(path, {1: graph})
    assert not path.exists()
    ag.save(path, graph)
    with pytest.raises(
        ValueError, match=r"load_archive: '.*' must be a FAR archive .* but it is a g"
    ):
        ag.load_archive(path)
    with pytest.raises(ValueError, match=r"must have different names, but .* is repeated"):
        ag.load_archive(write(path, "a \n0\n\na \n0\n\n"))
