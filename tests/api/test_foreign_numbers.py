"""Numbers that files of other programs must not have: NaN, and more nodes than they describe."""

import math

import numpy as np
import pytest

import arcgrad as ag

FOREIGN = ["openfst", "att", "k2"]


@pytest.mark.parametrize("format", FOREIGN)
def test_formats_of_costs_have_no_nan(tmp_path, format):
    path = tmp_path / "graph"
    graph = ag.chain_graph([1, 2], weights=[0.5, math.nan])
    pattern = "save: the graph must have weights that are numbers, inf or -inf, but weight 1 is nan"
    with pytest.raises(ValueError, match=pattern):
        ag.save(path, graph, format)
    assert not path.exists()
    graph.set_weights([0.5, 123.0])
    ag.save(path, graph, format)
    one, nan = (np.float32(value).tobytes() for value in (-123.0, math.nan))
    content = path.read_bytes()
    if format == "openfst":
        path.write_bytes(content.replace(one, nan))
        pattern = "load: '.*graph' must have weights that are numbers, .* but weight 1 is nan"
    else:
        path.write_bytes(content.replace(b"123", b"nan").replace(b"-nan", b"nan"))
        pattern = "load: the weight on line 2 of '.*' must be a number, inf or -inf, but it is "
    with pytest.raises(ValueError, match=pattern):
        ag.load(path, format, **({"acceptor": False} if format == "att" else {}))


@pytest.mark.parametrize("text", ["0 1 1 2 nan\n1\n", "0 1 1 2\n1 NaN\n", "0 1 1 2 nan,1\n1\n"])
def test_text_of_openfst_with_nan_names_the_line(tmp_path, text):
    path = tmp_path / "graph"
    path.write_text(text)
    line = 1 + text.lower().startswith("0 1 1 2\n")
    with pytest.raises(ValueError, match=f"the weight on line {line} of '.*' must be a number"):
        ag.load(path, "att", acceptor=False)


def test_an_end_that_is_not_a_number_is_an_error(tmp_path):
    graph = ag.chain_graph([1])
    graph.set_accept_weight(1, 123.0)
    ag.save(tmp_path / "graph", graph, "openfst")
    content = (tmp_path / "graph").read_bytes()
    one, nan = (np.float32(value).tobytes() for value in (-123.0, math.nan))
    (tmp_path / "graph").write_bytes(content.replace(one, nan))
    with pytest.raises(ValueError, match="inf or -inf, but that of state 1 is nan"):
        ag.load(tmp_path / "graph")


@pytest.mark.parametrize(
    ("format", "content"),
    [
        ("gtn", np.array([2**24, 0, 1, 0, 0], np.int32).tobytes()),
        ("gtn-text", b"0\n16777215\n0 16777215 1\n"),
        ("gtn-text", b"# arcgrad: nodes=16777216\n0\n1\n0 1 1\n"),
        ("att", b"0 16777215 1 1 0.5\n16777215\n"),
        ("att", b"0 16777215 1 0.5,1,2_3\n16777215\n"),
        ("k2", b"0 1 1 0.5\n1 16777215 -1 0.5\n16777215\n"),
    ],
)
def test_more_nodes_than_a_file_can_describe_are_refused(tmp_path, format, content):
    path = tmp_path / "graph"
    path.write_bytes(content)
    pattern = r"load: '.*graph' must have at most 2\^20 nodes, or one per byte, but it has 1677721"
    with pytest.raises(ValueError, match=pattern):
        ag.load(path, format)
