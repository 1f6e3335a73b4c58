"""Graphs of `arcgrad.gtn`: weights and their addresses, text, files, and the formats of gtn."""

import ctypes
import itertools
import math
import pickle
import sys

import numpy as np
import pytest
from gtn_programs import chain, fork

import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon

# Graphs


def test_arcs_have_one_label_or_two():
    graph = gtn.Graph()
    graph.add_node(True)
    graph.add_node(False, True)
    assert graph.add_arc(0, 1, 3) == 0
    assert graph.add_arc(src_node=0, dst_node=1, label=4) == 1
    assert graph.add_arc(0, 1, 5, 6) == 2
    assert graph.add_arc(0, 1, ilabel=7, olabel=8, weight=2.5) == 3
    assert graph.labels_to_list() == [3, 4, 5, 7]
    assert graph.labels_to_list(False) == [3, 4, 6, 8]
    assert graph.weights_to_list() == [0, 0, 0, 2.5]


def test_bad_arcs_are_errors_instead_of_corruption():
    graph = fork(0.0)
    with pytest.raises(TypeError):
        graph.add_arc(0, 1, 1, 2.5)
    with pytest.raises(TypeError):
        graph.add_arc(0, 1)
    with pytest.raises(ValueError, match="add_arc"):
        graph.add_arc(0, 5, 1)
    with pytest.raises(ValueError, match="add_arc"):
        graph.add_arc(0, 1, -2)
    assert graph.num_arcs() == 1


def read_floats(address, size):
    return np.frombuffer((ctypes.c_float * size).from_address(address), np.float32).tolist()


def test_weights_is_the_address_of_float32_weights():
    graph = fork(1.5, -2.5)
    assert read_floats(graph.weights(), 2) == [1.5, -2.5]
    emissions = gtn.linear_graph(2, 3)
    assert read_floats(emissions.weights(), 6) == [0.0] * 6


def test_the_address_of_a_score_holds_a_float32_too():
    score = gtn.forward_score(fork(1.0, 1.0))
    assert score.dtype == np.float64
    assert read_floats(score.weights(), 1) == pytest.approx([1 + math.log(2)])


def test_an_address_stays_readable_after_the_weights_are_replaced():
    graph = fork(1.5, -2.5)
    address = graph.weights()
    graph.set_weights([7.0, 8.0])
    assert read_floats(address, 2) == [1.5, -2.5]
    graph.set_weights(address)
    assert read_floats(graph.weights(), 2) == [1.5, -2.5]


def test_weights_are_set_from_an_address_a_list_or_an_array():
    graph = gtn.linear_graph(2, 2)
    values = np.arange(4, dtype=np.float32)
    for given in (values.ctypes.data, np.int64(values.ctypes.data), values, values.tolist()):
        graph.set_weights([9, 9, 9, 9])
        graph.set_weights(given)
        assert graph.weights_to_list() == [0, 1, 2, 3]
    graph.set_weights(np.arange(8.0)[::2])
    assert graph.weights_to_list() == [0, 2, 4, 6]
    other = gtn.linear_graph(2, 2)
    other.set_weights(graph.weights())
    assert gtn.equal(other, graph)


def test_weights_of_the_wrong_length_are_an_error():
    with pytest.raises(ValueError, match="set_weights"):
        fork(0.0, 0.0).set_weights([1.0])


def test_a_small_number_is_not_an_address():
    with pytest.raises(ValueError, match=r"set_weights: .* address of 2 float32 .*, but it is 3"):
        fork(0.0, 0.0).set_weights(3)
    gtn.Graph().set_weights(0)


def test_arrays_of_weights_are_float32():
    assert gtn.linear_graph(2, 2).weights_to_numpy().dtype == np.float32
    assert gtn.forward_score(fork(0.0)).weights_to_numpy().dtype == np.float32
    assert gtn.linear_graph(2, 2).weights_to_numpy().shape == (4,)


def test_arrays_of_weights_are_copies():
    graph = fork(1.0)
    graph.weights_to_numpy()[:] = 5
    assert graph.item() == 1.0


def test_repr_is_the_text_format(tmp_path):
    graph = fork(1.5, -math.inf)
    graph.add_arc(1, 1, epsilon, 3)
    assert repr(graph) == "0\n1\n0 1 0 0 1.5\n0 1 1 1 -inf\n1 1 -1 3 0\n"
    path = tmp_path / "graph.txt"
    path.write_text(str(graph))
    assert gtn.equal(gtn.loadtxt(str(path)), graph)


def test_repr_of_a_large_graph_is_short():
    graph = gtn.Graph()
    for _ in range(21):
        graph.add_node(True)
    for _ in range(11):
        graph.add_arc(0, 1, 0)
    lines = repr(graph).splitlines()
    assert lines[0] == "0 1 2 3 4 5 6 7 8 9 ..."
    assert lines[1] == ""
    assert lines[2:] == ["0 1 0 0 0"] * 10 + ["..."]


def test_item_needs_one_arc():
    with pytest.raises(ValueError, match="item"):
        fork(1.0, 2.0).item()


def test_sorting_is_accepted_and_changes_nothing():
    first, second = fork(1.0, 2.0), fork(3.0, 4.0)
    expected = gtn.compose(first, second)
    second.mark_arc_sorted(True)
    first.arc_sort(True)
    first.arc_sort(olabel=False)
    assert gtn.equal(gtn.compose(first, second), expected)


def test_a_graph_survives_pickling():
    graph = pickle.loads(pickle.dumps(fork(1.0, 2.0)))
    assert isinstance(graph, gtn.Graph)
    assert graph.weights_to_list() == [1.0, 2.0]


# Files


def gtn_bytes(num_nodes, start, accept, arcs, arc_weights):
    """What gtn writes: four counts, start nodes, accept nodes, arcs, weights."""
    ints = [num_nodes, len(arcs), len(start), len(accept), *start, *accept, *itertools.chain(*arcs)]
    return np.array(ints, np.int32).tobytes() + np.array(arc_weights, np.float32).tobytes()


def test_load_reads_what_gtn_saved(tmp_path):
    path = tmp_path / "transitions.bin"
    path.write_bytes(gtn_bytes(4, [0], [1, 2], [(0, 1, 3, 4), (0, 2, -1, 5)], [0.5, -1.5]))
    graph = gtn.load(str(path))
    assert repr(graph) == "0\n1 2\n0 1 3 4 0.5\n0 2 -1 5 -1.5\n"
    assert graph.num_nodes() == 4
    path.write_bytes(gtn_bytes(0, [], [], [], []))
    assert gtn.equal(gtn.load(path), gtn.Graph())


@pytest.mark.parametrize("cut", [1, 4, 20, 40])
def test_a_truncated_gtn_file_is_a_value_error(tmp_path, cut):
    path = tmp_path / "graph.bin"
    path.write_bytes(gtn_bytes(2, [0], [1], [(0, 1, 3, 3)], [0.5])[:-cut])
    with pytest.raises(ValueError, match="load"):
        gtn.load(path)


def test_a_gtn_file_with_a_bad_node_is_a_value_error(tmp_path):
    path = tmp_path / "graph.bin"
    path.write_bytes(gtn_bytes(2, [0], [1], [(0, 7, 3, 3)], [0.5]))
    with pytest.raises(ValueError, match="7"):
        gtn.load(path)


def test_save_and_load_give_the_graph_back(tmp_path):
    path = str(tmp_path / "graph.bin")
    for graph in (gtn.Graph(), fork(0.1, -math.inf), chain(1, 2, 3)):
        gtn.save(path, graph)
        assert gtn.equal(gtn.load(path), graph)
        assert isinstance(gtn.load(path), gtn.Graph)


def test_a_missing_file_is_a_value_error(tmp_path):
    for load in (gtn.load, gtn.loadtxt):
        with pytest.raises(ValueError, match="nowhere"):
            load(str(tmp_path / "nowhere"))


def test_text_files_have_the_lines_of_gtn(tmp_path):
    path = tmp_path / "graph.txt"
    lines = ["0 1", "2", "0 2 3 4 1.1", "1 2 5 -1 -0.3333333"]
    path.write_text("\n".join([*lines, "2 2 7", "2 2 8 9"]))
    graph = gtn.loadtxt(str(path))
    gtn.savetxt(str(path), graph)
    expected = [*lines, "2 2 7 7 0", "2 2 8 9 0"]
    assert path.read_text().splitlines() == expected
    assert repr(graph).splitlines() == [*expected[:3], "1 2 5 -1 -0.333333", *expected[4:]]


@pytest.mark.parametrize(
    "text", ["", "0", "0 0\n1", "0\n1 1", "0\n1\n0 1", "0\n1\n0 1 2 3 4 5", "0\n1\n0 1 x"]
)
def test_bad_text_is_a_value_error(tmp_path, text):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="loadtxt"):
        gtn.loadtxt(str(path))


def test_a_missing_symbol_is_an_index_error(tmp_path):
    for write, name in ((gtn.write_dot, "graph.dot"), (gtn.draw, "graph.svg")):
        with pytest.raises(IndexError, match="label 1 "):
            write(fork(1.0, 2.0), str(tmp_path / name), {0: "a"})
        assert not (tmp_path / name).exists()


def test_empty_symbols_mean_numbers(tmp_path):
    path = tmp_path / "graph.dot"
    gtn.write_dot(fork(1.0), str(path), {}, {})
    assert 'label="0/1"' in path.read_text()


def test_a_dot_file_that_cannot_be_written_is_a_runtime_error(tmp_path):
    with pytest.raises(RuntimeError, match="write_dot"):
        gtn.write_dot(fork(1.0), str(tmp_path / "nowhere" / "graph.dot"))


DOT = """#!{python}
import sys
kind, _, path = sys.argv[1:]
if "broken" in path:
    sys.exit("dot: cannot do that")
open(path, "w").write(kind + sys.stdin.read())
"""


@pytest.fixture
def dot_only(monkeypatch, tmp_path):
    """A machine without pygraphviz, where `dot` writes its input."""
    program = tmp_path / "bin/dot"
    program.parent.mkdir()
    program.write_text(DOT.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr("arcgrad.gtn._files.find_spec", lambda _: None)
    return program


@pytest.mark.parametrize("kind", ["svg", "jpg"])
def test_draw_without_pygraphviz_calls_dot(dot_only, tmp_path, kind):
    gtn.draw(fork(1.0, 2.0), tmp_path / f"graph.{kind}", {0: "a", 1: "b"})
    text = (tmp_path / f"graph.{kind}").read_text()
    assert text.startswith(f"-T{kind}digraph")
    assert 'label="a/1"' in text
    with pytest.raises(IndexError, match="label 1 "):
        gtn.draw(fork(1.0, 2.0), tmp_path / "other.svg", {0: "a"})


def test_draw_names_what_is_missing_or_failed(dot_only, tmp_path):
    with pytest.raises(RuntimeError, match=r"draw: dot must draw .*broken.*: dot: cannot do that"):
        gtn.draw(fork(1.0), tmp_path / "broken.svg")
    dot_only.unlink()
    with pytest.raises(FileNotFoundError, match=r"draw: the program dot .* was not found"):
        gtn.draw(fork(1.0), tmp_path / "graph.svg")
