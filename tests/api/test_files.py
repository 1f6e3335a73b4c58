"""save, load, savetxt, loadtxt and write_dot."""

import math
import os
import stat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec import table
from strategies import convergent
from tools import build, snapshot, with_dtype, with_weights

import arcgrad as ag

ODD = [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 1 / 3, 0.1]


@pytest.fixture
def graph():
    return build(4, {0, 3}, {2}, [(0, 1, 4, 5, 0.5), (1, 2, 6, -1, 1 / 3), (0, 2, -1, -1, -1e10)])


def odd(dtype="float64"):
    graph = build(2, {0}, {1}, [(0, 1, i, i, 0.0) for i in range(len(ODD))], dtype=dtype)
    with np.errstate(over="ignore"):
        return with_weights(graph, np.array(ODD).astype(dtype))


# Binary


@given(graph=convergent(), dtype=st.sampled_from(["float32", "float64"]))
def test_binary_files_give_back_every_bit(tmp_path_factory, graph, dtype):
    path = tmp_path_factory.mktemp("binary") / "graph"
    graph = with_dtype(graph, dtype)
    ag.save(path, graph)
    assert snapshot(ag.load(path)) == snapshot(graph)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_binary_files_hold_odd_weights(tmp_path, dtype):
    graph = odd(dtype)
    ag.save(tmp_path / "graph", graph)
    assert snapshot(ag.load(tmp_path / "graph")) == snapshot(graph)


def test_paths_may_be_strings_or_objects(tmp_path, graph):
    for path in (str(tmp_path / "one"), tmp_path / "two"):
        ag.save(path, graph)
        ag.savetxt(f"{path}.txt", graph)
        ag.write_dot(graph, f"{path}.dot")
        assert ag.equal(ag.load(path), graph)


def test_file_names_may_have_any_characters(tmp_path, graph):
    path = tmp_path / "gräph ψ.bin"
    ag.save(path, graph)
    assert ag.equal(ag.load(path), graph)


def test_linear_graphs_stay_linear(tmp_path):
    graph = ag.linear_graph(3, 2, np.arange(6.0).reshape(3, 2))
    ag.save(tmp_path / "graph", graph)
    loaded = ag.load(tmp_path / "graph")
    assert snapshot(loaded) == snapshot(graph)
    assert loaded.weights_view().shape == (3, 2)


def test_every_truncation_is_an_error(tmp_path, graph):
    path = tmp_path / "graph"
    ag.save(path, graph)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"load: .*, but"):
            ag.load(path)


def test_every_flipped_bit_is_an_error(tmp_path, graph):
    path = tmp_path / "graph"
    ag.save(path, graph)
    content = path.read_bytes()
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            path.write_bytes(damaged)
            with pytest.raises(ValueError, match=r"load: .*, but"):
                ag.load(path)


def test_extra_bytes_are_an_error(tmp_path, graph):
    path = tmp_path / "graph"
    ag.save(path, graph)
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(ValueError, match=r"load: .*, but"):
        ag.load(path)


@given(content=st.binary(max_size=200))
def test_other_files_are_an_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("other") / "file"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"load: .*, but"):
        ag.load(path)


@settings(max_examples=200)
@given(data=st.data())
def test_damaged_files_are_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("damaged") / "file"
    ag.save(path, build(3, {0}, {2}, [(0, 1, 0, 0, 0.5), (1, 2, 1, 1, 0.25)]))
    content = bytearray(path.read_bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    patch = data.draw(st.binary(min_size=1, max_size=8))
    damaged = content[:start] + patch + content[start + len(patch) :]
    if damaged != content:
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"load: .*, but"):
            ag.load(path)


def test_missing_files_are_named(tmp_path):
    for read in (ag.load, ag.loadtxt):
        with pytest.raises(FileNotFoundError, match="absent"):
            read(tmp_path / "absent")
    for read in (ag.load, ag.loadtxt):
        with pytest.raises(OSError, match=tmp_path.name):
            read(tmp_path)


@pytest.mark.parametrize("write", [ag.save, ag.savetxt])
def test_writing_is_atomic(tmp_path, graph, write):
    path = tmp_path / "graph"
    write(path, graph)
    write(path, graph)
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs resource limits")
@pytest.mark.parametrize("write", ["save", "savetxt"])
def test_a_failed_write_leaves_the_old_file(tmp_path, graph, write):
    from tools import run_python

    path = tmp_path / "graph"
    getattr(ag, write)(path, graph)
    before = path.read_bytes()
    code = f"""
import resource, signal
import numpy as np
import arcgrad as ag
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
graph = ag.linear_graph(1000, 100, np.random.default_rng(0).normal(size=(1000, 100)))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    ag.{write}({str(path)!r}, graph)
except OSError as error:
    print("refused")
"""
    assert run_python(code).strip() == "refused"
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]


def test_a_saved_file_has_default_permissions(tmp_path, graph):
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    for write in (ag.save, ag.savetxt):
        write(tmp_path / "graph", graph)
        mode = stat.S_IMODE((tmp_path / "graph").stat().st_mode)
        assert mode == stat.S_IMODE(ordinary.stat().st_mode)


def test_a_loaded_graph_is_a_leaf_with_a_gradient(tmp_path, graph):
    ag.save(tmp_path / "graph", graph)
    loaded = ag.load(tmp_path / "graph")
    loaded.calc_grad = True
    score = ag.forward_score(loaded)
    ag.backward(score)
    assert loaded.is_grad_available()


# Text


@given(graph=convergent(node_weights=False), dtype=st.sampled_from(["float32", "float64"]))
def test_text_files_give_back_every_digit(tmp_path_factory, graph, dtype):
    path = tmp_path_factory.mktemp("text") / "graph.txt"
    graph = with_dtype(graph, dtype)
    ag.savetxt(path, graph)
    assert snapshot(ag.loadtxt(path)) == snapshot(graph)


@given(st.lists(st.floats(), min_size=1, max_size=8))
def test_text_keeps_any_float(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("floats") / "graph.txt"
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, value) for value in values])
    ag.savetxt(path, graph)
    loaded = ag.loadtxt(path).weights_to_list()
    assert [repr(v) for v in loaded] == [repr(v if v == v else math.nan) for v in values]


def test_text_is_the_format_of_gtn(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text("0 1\n2\n0 1 5\n1 2 6 7\n0 2 8 9 -1.5\n")
    graph = ag.loadtxt(path)
    assert (graph.start().tolist(), graph.accept().tolist()) == ([0, 1], [2])
    assert [arc[1:] for arc in table(graph).arcs] == [
        (0, 1, 5, 5, 0.0),
        (1, 2, 6, 7, 0.0),
        (0, 2, 8, 9, -1.5),
    ]


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text("0\n1\n0 1 7\n", encoding="utf-8-sig")
    assert ag.equal(ag.loadtxt(path), ag.chain_graph([7]))
    path.write_text("# a comment\n\ufeff0\n1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="line 2"):
        ag.loadtxt(path)


@pytest.mark.parametrize(
    "text",
    [
        "0\n1\n0 1 5 5 0.5\n",
        "0\n1\n0 1 5 5 0.5",
        "0\n1\n0\t1\t5\t5\t0.5\n",
        "0\n1\n0  1   5 5 0.5  \n",
        "  0 \n\t1\n 0 1 5 5 0.5\n\n\n",
        "0\r\n1\r\n0 1 5 5 0.5\r\n",
        "0\n1\n\n0 1 5 5 0.5\n   \n",
    ],
)
def test_text_may_have_extra_whitespace(tmp_path, text):
    path = tmp_path / "graph.txt"
    path.write_bytes(text.encode())
    assert ag.equal(ag.loadtxt(path), build(2, {0}, {1}, [(0, 1, 5, 5, 0.5)]))


@pytest.mark.parametrize("word", ["inf", "-inf", "nan", "INF", "-Infinity", "1e-3", "+2.5"])
def test_text_reads_any_spelling_of_a_float(tmp_path, word):
    path = tmp_path / "graph.txt"
    path.write_text(f"0\n1\n0 1 5 5 {word}\n")
    assert repr(ag.loadtxt(path).weight(0)) == repr(float(np.float32(word)))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("0\n1\n0 1\n", 3),
        ("0\n1\n0 1 5 5 0.5 9\n", 3),
        ("0\n1\n0 1 5\n0 x 5\n", 4),
        ("0\n1\n0 1 5 5 much\n", 3),
        ("0\n1\n0 1 -4\n", 3),
        ("0\n1\n-1 1 5\n", 3),
        ("0\n1\n0 1 5.5\n", 3),
        ("zero\n1\n", 1),
        ("0\none\n", 2),
        ("0\n-1\n", 2),
        ("0 0\n1\n", 1),
        ("0\n1 1\n", 2),
        ("0\n1\n0 1 99999999999\n", 3),
        ("0\n1\n99999999999 1 5\n", 3),
        ("0\n1\n0 1 5 5 0.5x\n", 3),
    ],
)
def test_text_errors_name_the_line(tmp_path, text, line):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(
        ValueError, match=rf"loadtxt: .*line {line}.*, but|loadtxt: .*, but .*line {line}"
    ):
        ag.loadtxt(path)


def test_a_text_file_needs_its_first_two_lines(tmp_path):
    path = tmp_path / "graph.txt"
    for text in ("", "0\n"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"loadtxt: .*, but"):
            ag.loadtxt(path)


@given(content=st.one_of(st.text(max_size=60), st.from_regex(r"[0-9 \n.\-ainf]{0,40}")))
def test_any_text_is_read_or_refused(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(content.encode("utf8", "surrogatepass"))
    message = "loadtxt: "
    graph = ag.Graph()
    try:
        graph = ag.loadtxt(path)
    except ValueError as error:
        message = str(error)
    assert message.startswith("loadtxt: ")
    assert ag.clone(graph).num_arcs() == graph.num_arcs()


def test_text_of_a_graph_without_starts_or_nodes(tmp_path):
    for graph in (ag.Graph(), build(2, set(), {1}, [(0, 1, 3)]), build(2, {0}, set(), [(0, 1, 3)])):
        ag.savetxt(tmp_path / "graph.txt", graph)
        assert ag.equal(ag.loadtxt(tmp_path / "graph.txt"), graph)


def test_text_of_a_node_without_arcs_keeps_its_marks(tmp_path):
    graph = build(3, {0, 2}, {2}, [(0, 1, 3)])
    ag.savetxt(tmp_path / "graph.txt", graph)
    assert ag.equal(ag.loadtxt(tmp_path / "graph.txt"), graph)


# Dot


def test_dot_shows_nodes_marks_labels_and_weights(tmp_path, graph):
    ag.write_dot(graph, tmp_path / "graph.dot")
    text = (tmp_path / "graph.dot").read_text()
    assert text.lstrip().startswith("digraph")
    assert text.count("->") == 3
    assert "doublecircle" in text
    assert "bold" in text
    for part in ("4:5/0.5", "6:ε/0.333", "ε/-1e+10"):
        assert part in text, text


def test_dot_takes_symbols_as_dictionary_or_list(tmp_path):
    graph = ag.chain_graph([0, 1], [1, 0])
    for symbols in ({0: "ä", 1: 'say "b"'}, ["ä", 'say "b"']):
        ag.write_dot(graph, tmp_path / "graph.dot", symbols, symbols)
        text = (tmp_path / "graph.dot").read_text("utf8")
        assert 'ä:say \\"b\\"' in text


def test_dot_without_output_symbols_shows_numbers(tmp_path):
    ag.write_dot(ag.chain_graph([0], [7]), tmp_path / "graph.dot", {0: "zero"})
    assert "zero:7" in (tmp_path / "graph.dot").read_text()


def test_dot_of_an_acceptor_shows_one_label(tmp_path):
    ag.write_dot(ag.chain_graph([5], weights=[0.5]), tmp_path / "graph.dot")
    assert '"5/0.5"' in (tmp_path / "graph.dot").read_text()


def test_dot_of_the_empty_graph(tmp_path):
    ag.write_dot(ag.Graph(), tmp_path / "graph.dot")
    assert "digraph" in (tmp_path / "graph.dot").read_text()
