"""`draw` and the pictures that notebooks show."""

import os
import stat
import sys
import xml.etree.ElementTree as ET
from importlib.util import find_spec

import pytest
from tools import build, run_python

import arcgrad as ag
from arcgrad import drawing

pytestmark = pytest.mark.skipif(
    find_spec("pygraphviz") is None, reason="pygraphviz is not installed"
)

MAGIC = {"svg": b"<?xml", "png": b"\x89PNG\r\n", "pdf": b"%PDF-"}


@pytest.fixture
def token():
    """The token graph of the paper: one or more frames of a, which is written once."""
    return build(2, {0}, {1}, [(0, 1, 0, 0, 0.5), (1, 1, 0, ag.epsilon, -1.25)])


def texts(svg):
    nodes = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return [
        node.text.replace("\N{MINUS SIGN}", "-").replace("\N{NO-BREAK SPACE}", " ")
        for node in nodes
    ]


def shapes(svg):
    """For every node, the widths of its outlines."""
    found = {}
    for group in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        if group.get("class") == "node":
            name = group.find("{http://www.w3.org/2000/svg}title").text
            rings = group.findall("{http://www.w3.org/2000/svg}ellipse")
            found[int(name)] = [ring.get("stroke-width") for ring in rings]
    return found


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_the_file_extension_selects_the_format(token, tmp_path, kind):
    for path in (tmp_path / f"token.{kind}", str(tmp_path / f"TOKEN.{kind.upper()}")):
        ag.draw(token, path)
        with open(path, "rb") as file:
            assert file.read().startswith(MAGIC[kind])


def test_a_transducer_shows_both_labels_and_the_weight(token, tmp_path):
    path = tmp_path / "token.svg"
    ag.draw(token, path, {0: "a"}, ["A"])
    assert sorted(texts(path.read_text())) == ["0", "1", "a:A/0.5", "a:ε/-1.25"]


def test_an_acceptor_shows_one_label(tmp_path):
    path = tmp_path / "graph.svg"
    ag.draw(ag.chain_graph([1, 0], weights=[0.5, 2.0]), path, ["a", "b"])
    assert texts(path.read_text()) == ["0", "1", "b/0.5", "2", "a/2"]


def test_without_symbols_labels_are_numbers(tmp_path):
    path = tmp_path / "graph.svg"
    ag.draw(ag.chain_graph([17, ag.epsilon], weights=[1.0, 1.0]), path)
    assert {"17/1", "ε/1"} <= set(texts(path.read_text()))


def test_any_text_can_be_a_symbol(tmp_path):
    path = tmp_path / "graph.svg"
    symbols = ['say "hi"', "back\\slash", "<b>&amp;</b>", "ψ→日本", "\\N", "two words"]
    ag.draw(ag.chain_graph(range(6)), path, symbols)
    assert set(symbols) <= set(texts(path.read_text()))


def test_starts_are_bold_and_accepts_have_two_rings(tmp_path):
    path = tmp_path / "graph.svg"
    arcs = [(0, 1, 0, 0, 0.0), (1, 2, 0, 0, 0.0), (3, 2, 0, 0, 0.0)]
    ag.draw(build(4, {0, 3}, {2, 3}, arcs), path)
    found = shapes(path.read_text())
    assert [len(found[node]) for node in range(4)] == [1, 1, 2, 2]
    bold = [node for node in range(4) if "2" in found[node]]
    assert bold == [0, 3]


def test_arcs_go_from_left_to_right(tmp_path):
    path = tmp_path / "graph.svg"
    ag.draw(ag.chain_graph([0, 1, 2]), path)
    centres = {}
    for group in ET.fromstring(path.read_text()).iter("{http://www.w3.org/2000/svg}g"):
        if group.get("class") == "node":
            ring = group.find("{http://www.w3.org/2000/svg}ellipse")
            name = group.find("{http://www.w3.org/2000/svg}title").text
            centres[name] = float(ring.get("cx"))
    assert sorted(centres, key=centres.get) == ["0", "1", "2", "3"]


def test_an_empty_graph_can_be_drawn(tmp_path):
    ag.draw(ag.Graph(), tmp_path / "empty.svg")
    assert texts((tmp_path / "empty.svg").read_text()) == []


@pytest.mark.parametrize("name", ["graph", "graph.gif", "graph.dot", "svg"])
def test_other_formats_are_an_error(token, tmp_path, name):
    with pytest.raises(
        ValueError, match=r"draw: the file name must end in .*, but it is .*graph|svg"
    ):
        ag.draw(token, tmp_path / name)
    assert not (tmp_path / name).exists()


def test_a_label_without_a_symbol_is_named(token, tmp_path):
    with pytest.raises(ValueError, match=r"draw: the input symbols .* label 0 is missing"):
        ag.draw(token, tmp_path / "graph.svg", {7: "x"})
    with pytest.raises(ValueError, match=r"draw: the output symbols .* label 0 is missing"):
        ag.draw(token, tmp_path / "graph.svg", ["a"], [])
    for key in ("0", 0.0, None, 2**70):
        with pytest.raises(TypeError, match="draw: the keys of isymbols must be whole numbers"):
            ag.draw(token, tmp_path / "graph.svg", {key: "a"})
    with pytest.raises(ValueError, match=f"draw: a key of isymbols must fit .*, but it is {2**40}"):
        ag.draw(token, tmp_path / "graph.svg", {2**40: "a"})
    for name in ("\ud800", "a\0b"):
        with pytest.raises(ValueError, match=r"draw: the names in isymbols .*, but one is '.*\\"):
            ag.draw(token, tmp_path / "graph.svg", [name])
    with pytest.raises(TypeError, match="draw: isymbols must be a dict"):
        ag.draw(token, tmp_path / "graph.svg", "a")
    assert list(tmp_path.iterdir()) == []


def test_a_large_graph_is_refused_with_its_size(tmp_path):
    large = ag.linear_graph(1000, 3)
    with pytest.raises(
        ValueError, match=r"draw: .* at most 2000 .*, but it has 1001 nodes and 3000"
    ):
        ag.draw(large, tmp_path / "graph.svg")
    with pytest.raises(ValueError, match=r"at most 3 nodes .*; .* max_size, or use write_dot"):
        ag.draw(ag.chain_graph([0] * 3), tmp_path / "graph.svg", max_size=3)
    ag.draw(ag.chain_graph([0] * 3), tmp_path / "graph.svg", max_size=4)
    assert (tmp_path / "graph.svg").exists()


def test_a_product_that_is_too_large_is_refused_without_materializing_it(tmp_path):
    star = ag.remove(ag.closure(ag.linear_graph(1, 30)))
    product = ag.intersect(star, ag.linear_graph(3000, 30))
    assert product._repr_svg_() is None
    with pytest.raises(ValueError, match=r"draw: .*, but it has up to \d+ nodes .* lazy product"):
        ag.draw(product, tmp_path / "graph.svg")
    assert "not built" in repr(product)
    # The sizes of the factors alone do not show that this product is small.
    small = ag.intersect(ag.chain_graph([0] * 40), ag.linear_graph(40, 3))
    assert small._repr_svg_() is not None


def test_a_slow_layout_times_out(tmp_path):
    size = 40
    arcs = [(a, b, 0, 0, 1.0) for a in range(size) for b in range(size)]
    with pytest.raises(TimeoutError, match=r"draw: .* in 0.5 seconds, .* 40 nodes and 1600 arcs; "):
        ag.draw(build(size, {0}, {1}, arcs), tmp_path / "graph.svg", max_seconds=0.5)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_picture(token, tmp_path, monkeypatch):
    path = tmp_path / "graph.svg"
    path.write_text("old")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="draw: Graphviz must render"):
        ag.draw(token, path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_picture_replaces_the_old_one_with_default_permissions(token, tmp_path):
    path = tmp_path / "graph.svg"
    ag.draw(token, path)
    ag.draw(ag.chain_graph([5]), path)
    assert "5" in texts(path.read_text())
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_folder_is_an_os_error(token, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"draw: cannot write '.*nowhere/graph.svg': No such"
    ):
        ag.draw(token, tmp_path / "nowhere" / "graph.svg")


def test_only_a_graph_can_be_drawn(token, tmp_path):
    with pytest.raises(TypeError, match="draw: graph must be a Graph, but it is of type list"):
        ag.draw([token], tmp_path / "graph.svg")


def test_without_pygraphviz_the_message_says_what_to_do(token, tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"pip install arcgrad\[draw\].*write_dot"):
        ag.draw(token, tmp_path / "graph.svg")
    assert token._repr_svg_() is None
    ag.write_dot(token, tmp_path / "graph.dot")
    assert "digraph" in (tmp_path / "graph.dot").read_text()


def test_importing_arcgrad_does_not_import_pygraphviz():
    assert run_python("import sys, arcgrad; print('pygraphviz' in sys.modules)").strip() == "False"


def test_a_notebook_shows_the_picture(token):
    assert "0:ε/-1.25" in texts(token._repr_svg_())


def test_a_notebook_shows_text_for_a_large_graph():
    large = ag.linear_graph(1000, 3)
    assert large._repr_svg_() is None
    assert "1001 nodes" in repr(large)


def test_a_notebook_shows_text_if_the_layout_times_out(monkeypatch):
    monkeypatch.setattr(drawing, "NOTEBOOK_SECONDS", 0.001)
    assert ag.chain_graph([0])._repr_svg_() is None


def edges(svg):
    """The colours and widths of the lines of each arc."""
    found = []
    for group in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        if group.get("class") == "edge":
            lines = group.findall(".//{http://www.w3.org/2000/svg}path")
            found.append([(line.get("stroke"), line.get("stroke-width")) for line in lines])
    return found


def test_values_color_arcs_and_have_a_legend(tmp_path):
    path = tmp_path / "graph.svg"
    graph = build(2, {0}, {1}, [(0, 1, label, label, 0.0) for label in range(3)])
    ag.draw(graph, path, color=[0.0, 2.0, -4.0])
    (zero, high, low) = (lines[0] for lines in edges(path.read_text()))
    assert low == ("#b2182b", "4")
    assert zero == ("#c8c8c8", "0.6")
    assert float(zero[1]) < float(high[1]) < float(low[1])
    assert {"-4", "-2.5", "-1", "0.5", "2"} <= set(texts(path.read_text()))
    posteriors = ag.arc_posteriors(graph)
    ag.draw(graph, path, color=posteriors)
    assert len({line for lines in edges(path.read_text()) for line in lines}) == 1
    ag.draw(build(1, {0}, {0}, []), path, color=[])


def test_the_best_path_is_orange(tmp_path):
    path = tmp_path / "graph.svg"
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, -1.0), (0, 1, 1, 1, 0.5)])
    ag.draw(graph, path, best_path=True)
    assert [lines[0][0] for lines in edges(path.read_text())] == ["#000000", "#e66101"]
    ag.draw(graph, path, color=ag.arc_posteriors(graph), best_path=True)
    assert [len(lines) for lines in edges(path.read_text())] == [1, 2]


@pytest.mark.parametrize("color", [[1.0], [1.0, float("nan")], [1.0, float("inf")]])
def test_a_value_per_arc_is_needed(tmp_path, color):
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, -1.0), (0, 1, 1, 1, 0.5)])
    with pytest.raises(ValueError, match=r"draw: .*color must .*, but"):
        ag.draw(graph, tmp_path / "graph.svg", color=color)
    with pytest.raises(ValueError, match=r"draw: "):
        ag.draw(graph, tmp_path / "graph.svg", color="red")
    assert not (tmp_path / "graph.svg").exists()
