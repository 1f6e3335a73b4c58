"""The guide for gtn users is true: a check for each row and point, named by its first words."""

import ctypes
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from gtn_programs import chain, fork

import arcgrad as ag
import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon

GUIDE = Path(__file__).parents[2] / "docs/gtn.md"
CHECKS = {}
FLOATS = np.float32([1.5, 2.5])


def guide(start):
    """Mark the check of a row or point that starts with these words."""

    def mark(check):
        assert start not in CHECKS
        CHECKS[start] = check
        return check

    return mark


def statements():
    """The rows of the tables, as their cells, and the points of the lists."""
    text = GUIDE.read_text()
    rows = re.findall(r"^\| (.*) \|$", text, re.MULTILINE)
    points = [
        " ".join(p.split()) for p in re.findall(r"^- ((?:.+\n)(?:  .+\n)*)", text, re.MULTILINE)
    ]
    heads = {"gtn | arcgrad", "| gtn and `arcgrad.gtn` | arcgrad", "gtn | `arcgrad.gtn`"}
    return [row for row in rows if row not in heads] + points


def test_every_statement_of_the_guide_is_checked():
    found = statements()
    assert len(found) > 45
    unmatched = [s for s in found if sum(s.startswith(start) for start in CHECKS) != 1]
    assert unmatched == []
    assert [start for start in CHECKS if not any(s.startswith(start) for s in found)] == []


def graph_of(nodes, arcs, cls=gtn.Graph):
    """A graph from letters (s: start, a: accept, b: both) and arcs."""
    graph = cls()
    for kind in nodes:
        graph.add_node(kind in "sb", kind in "ab")
    for arc in arcs:
        graph.add_arc(*arc)
    return graph


# What is the same


@guide("**`remove` keeps the strings")
def _(_):
    graph = graph_of("saa", [(0, 1, 7, 7, 2.0), (1, 2, epsilon)])
    assert gtn.forward_score(gtn.remove(graph)).item() == 0.0
    both = graph_of("s.a", [(0, 1, epsilon), (0, 1, 5), (1, 2, 6)])
    expected = graph_of("s.a", [(0, 1, 5), (0, 2, 6), (1, 2, 6)])
    assert gtn.equal(gtn.remove(both), expected)
    with pytest.raises(RuntimeError, match="remove"):
        gtn.backward(gtn.forward_score(gtn.remove(both)))


@guide("**The nodes and arcs of a composition**")
def _(_):
    graph = graph_of("sa", [(0, 1, 2), (0, 1, 1)])
    other = graph_of("sa", [(0, 1, 1), (0, 1, 2)])
    assert gtn.compose(graph, other).labels_to_list() == [2, 1]
    other.arc_sort()
    assert gtn.compose(graph, other).labels_to_list() == [2, 1]
    graph.mark_arc_sorted(True)  # which is wrong
    assert sorted(gtn.compose(graph, other).labels_to_list()) == [1, 2]
    graph = graph_of("sa", [(0, 1, 2), (0, 1, 1)])
    graph.arc_sort(True)
    assert gtn.compose(graph, other).labels_to_list() == [1, 2]


@guide("**Of equal paths** the same one")
def _(_):
    tokens = graph_of("ba", [(0, 1, 1, 1), (1, 1, 1, epsilon), (1, 0, epsilon)])
    best = gtn.viterbi_path(gtn.compose(chain(1, 1), tokens))
    assert gtn.remove(gtn.project_output(best)).labels_to_list() == [1]
    # Node 2 is visited before node 1, so its arc is first for the path, but not for the score.
    graph = graph_of("s...a", [(0, 2, 0), (0, 3, 1), (3, 1, 2), (1, 4, 3), (2, 4, 4)])
    assert gtn.viterbi_path(graph).labels_to_list() == [0, 4]
    gtn.backward(gtn.viterbi_score(graph))
    assert graph.grad().weights_to_list() == [0, 1, 1, 1, 0]


@guide("**NaN counts as `-inf`**")
def _(_):
    assert gtn.forward_score(fork(math.nan, 1.0)).item() == 1.0
    graph = fork(math.inf, 1.0)
    score = gtn.forward_score(graph)
    gtn.backward(score)
    assert score.item() == math.inf
    assert np.isnan(graph.grad().weights_to_list()).all()


@guide("A node that does not start, that no arc enters")
@guide("a node without a start and arcs that leads")
def _(_):
    graph = graph_of("s.a", [(0, 2, 0), (1, 2, 0)])
    for name in ("forward_score", "viterbi_score", "viterbi_path"):
        with pytest.raises(ValueError, match="node 1 has neither"):
            getattr(gtn, name)(graph)
        assert getattr(ag, name)(graph).num_arcs() == 1


@guide("`draw` calls the program `dot`")
def _(tmp_path):
    dot = tmp_path / "dot"
    dot.write_text("#!/bin/sh\ncat > $3\n")
    dot.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        gtn.draw(fork(1.0), tmp_path / "graph.gif")
    assert (tmp_path / "graph.gif").read_text().startswith("digraph")


# Differences to arcgrad


@guide("`set_weights(address)`, `weights()` |")
def _(_):
    graph = fork(0.0, 0.0)
    graph.set_weights(FLOATS.ctypes.data)
    assert (ctypes.c_float * 2).from_address(graph.weights())[:] == [1.5, 2.5]
    plain = ag.linear_graph(1, 2, FLOATS[None], copy=False)
    plain.set_weights(FLOATS)
    assert plain.weights_view().tolist() == [[1.5, 2.5]]


@guide("`Device`, `cuda()`, `cpu()`, `gtn.cuda` |")
def _(_):
    graph = fork(1.0)
    assert graph.cpu() is graph
    assert not graph.is_cuda()
    assert not gtn.cuda.is_available()
    assert not any(hasattr(ag, name) for name in ("Device", "cuda"))


@guide("`linear_graph(M, N, device, calc_grad)` and")
def _(_):
    assert not gtn.linear_graph(2, 3, False).calc_grad
    assert not gtn.linear_graph(2, 3, gtn.Device(gtn.CPU), False).calc_grad
    assert ag.linear_graph(1, 2, FLOATS[None], calc_grad=True).calc_grad


@guide("`add_arc(src_node, dst_node, label)` |")
def _(_):
    assert graph_of("sa", []).add_arc(src_node=0, dst_node=1, label=3) == 0
    assert graph_of("sa", [], ag.Graph).add_arc(src=0, dst=1, ilabel=3) == 0


@guide("`concat(g1, g2)`, `concat(graphs1, graphs2)` |")
def _(_):
    a, b = chain(0), chain(1)
    assert gtn.equal(gtn.concat(a, b), ag.concat([a, b]))
    assert gtn.equal(gtn.concat([a, b], [b, a])[1], ag.concat([[a, b], [b, a]])[1])


@guide("`remove(graphs, labels)`, without weights |")
def _(_):
    graph = graph_of("s.a", [(0, 1, epsilon, epsilon, 0.5), (1, 2, 0, 0, 1.0)])
    assert [g.num_arcs() for g in gtn.remove([graph, graph], [epsilon, 0])] == [1, 1]
    assert ag.remove([graph])[0].weights_to_list() == [1.5]
    ag.backward(ag.remove(graph, epsilon, epsilon))
    assert graph.grad().weights_to_list() == [1.0, 1.0]


@guide("`backward(g, True)`, `backward(graphs, retain_graphs)` |")
def _(_):
    graph = fork(1.0)
    score = gtn.forward_score(graph)
    gtn.backward(score, True)
    gtn.backward([score], [True])
    ag.backward(score, retain_graph=True)
    assert graph.grad().item() == 3.0


@guide("every graph keeps its gradient while a handle")
def _(_):
    for module, is_kept in ((gtn, True), (ag, False)):
        twice = module.negate(fork(1.0))
        module.backward(module.forward_score(twice))
        assert twice.is_grad_available() == is_kept


@guide("`parallel_for` returns nothing |")
def _(_):
    assert gtn.parallel_for(str, [1, 2]) is None
    assert ag.parallel_for(str, [1, 2]) == ["1", "2"]


@guide("`intersect` takes transducers and composes")
def _(_):
    transducer = graph_of("sa", [(0, 1, 1, 2)])
    assert gtn.intersect(transducer, chain(2)).labels_to_list(False) == [2]
    with pytest.raises(ValueError, match="acceptors"):
        ag.intersect(transducer, chain(2))


@guide("`equal` compares arcs in their order |")
def _(_):
    first, second = graph_of("sa", [(0, 1, 0), (0, 1, 1)]), graph_of("sa", [(0, 1, 1), (0, 1, 0)])
    assert ag.equal(first, second)
    assert not gtn.equal(first, second)


@guide("`add` and `subtract` take any two graphs with one arc")
def _(_):
    assert gtn.add(chain(3), graph_of("b", [(0, 0, 1, 2, 4.0)])).item() == 4.0
    with pytest.raises(ValueError, match="structure"):
        ag.add(chain(3), graph_of("b", [(0, 0, 1, 2, 4.0)]))


@guide("`sample` gives an empty graph")
def _(_):
    assert gtn.sample(graph_of("sa", [])).num_nodes() == 0
    with pytest.raises(ValueError, match="sample"):
        ag.sample(graph_of("sa", []))


@guide("a graph prints as text")
def _(_):
    assert repr(fork(1.5)) == "0\n1\n0 1 0 0 1.5\n"
    assert repr(ag.chain_graph([0])).startswith("Graph(2 nodes")


# Exceptions


@guide("backward on a freed tape |")
def _(_):
    for module, error in ((gtn, ValueError), (ag, RuntimeError)):
        score = module.forward_score(fork(1.0))
        module.backward(score)
        with pytest.raises(error, match="freed"):
            module.backward(score)


@guide("backward of a graph without gradient |")
def _(_):
    fixed = fork(1.0, calc_grad=False)
    assert gtn.backward(gtn.forward_score(fixed)) is None
    with pytest.raises(RuntimeError):
        ag.backward(ag.forward_score(fixed))


@guide("lists of different lengths |")
def _(_):
    for module, error in ((gtn, RuntimeError), (ag, ValueError)):
        with pytest.raises(error, match="compose"):
            module.compose([fork(1.0)] * 2, [fork(1.0)] * 3)


@guide("`add` of graphs with different structure |")
def _(_):
    for module, error in ((gtn, RuntimeError), (ag, ValueError)):
        with pytest.raises(error, match="add"):
            module.add(fork(1.0, 2.0), chain(1, 2))


@guide("loading a file that does not exist |")
def _(tmp_path):
    for module, error in ((gtn, ValueError), (ag, FileNotFoundError)):
        with pytest.raises(error, match="load"):
            module.load(tmp_path / "missing")


@guide("a dot file that cannot be written |")
def _(tmp_path):
    for module, error in ((gtn, RuntimeError), (ag, OSError)):
        with pytest.raises(error, match="write_dot"):
            module.write_dot(fork(1.0), tmp_path / "nowhere/graph.dot")


@guide("a label without a symbol |")
def _(tmp_path):
    for module, error in ((gtn, IndexError), (ag, ValueError)):
        with pytest.raises(error, match="label 1 "):
            module.write_dot(fork(1.0, 2.0), tmp_path / "graph.dot", {0: "a"})


@guide("`backward` through `remove` |")
def _(_):
    graph = fork(1.0)
    with pytest.raises(RuntimeError):
        gtn.backward(gtn.remove(graph))
    ag.backward(ag.remove(graph))
    assert graph.grad().item() == 1.0


@guide("a graph on a GPU |")
def _(_):
    for call in (fork(1.0).cuda, lambda: gtn.linear_graph(1, 1, gtn.Device(gtn.CUDA))):
        with pytest.raises(RuntimeError, match="CUDA"):
            call()


@guide("`cuda.device_count`, `get_device`")
def _(_):
    calls = (gtn.cuda.device_count, gtn.cuda.get_device, gtn.cuda.synchronize)
    for call in (*calls, lambda: gtn.cuda.set_device(0)):
        with pytest.raises(ValueError, match="CUDA"):
            call()


# Defects of gtn that are fixed


@guide("the gradient of `viterbi_path` is in reversed order |")
def _(_):
    graph, seed = chain(0, 1), chain(0, 1)
    seed.set_weights([10.0, 20.0])
    gtn.backward(gtn.viterbi_path(graph), seed)
    assert graph.grad().weights_to_list() == [10.0, 20.0]


@guide("a second `backward` with `retain_graph=True`")
def _(_):
    graph = fork(0.0, 0.0)
    loss = gtn.negate(gtn.forward_score(gtn.clone(graph)))
    for times in (1, 2, 3):
        gtn.backward(loss, True)
        assert graph.grad().weights_to_list() == [-0.5 * times] * 2


@guide("`forward_score` of a cyclic graph is a wrong number |")
def _(_):
    loop = graph_of("sa", [(0, 1, 0, 0, -1.0), (1, 1, 0, 0, -1.0)])
    assert gtn.forward_score(loop).item() == pytest.approx(-1 - math.log(1 - math.exp(-1)))
    with pytest.raises(ValueError, match="must converge"):
        gtn.forward_score(graph_of("sa", [(0, 1, 0), (1, 1, 0)]))


@guide("`forward_score` in float32 drifts")
def _(_):
    emissions = gtn.linear_graph(3000, 8)
    emissions.set_weights(np.random.default_rng(0).normal(size=24_000))
    gtn.backward(gtn.forward_score(emissions))
    assert emissions.grad().weights_to_numpy().reshape(3000, 8).sum(1) == pytest.approx(1, abs=1e-6)


@guide("a NaN weight makes the sum")
def _(_):
    assert gtn.forward_score(fork(math.nan, 1.0)).item() == 1.0


@guide("the gradient of a score of `-inf`")
def _(_):
    graphs = [fork(-math.inf), fork(1.0)]
    gtn.backward(gtn.forward_score(graphs))
    assert [graph.grad().item() for graph in graphs] == [0.0, 1.0]


@guide("`negate`, `add`, `subtract` take graphs with one arc |")
def _(_):
    graph = fork(1.0, 2.0)
    assert gtn.subtract(gtn.add(graph, graph), gtn.negate(graph)).weights_to_list() == [3.0, 6.0]


@guide("`sample` ignores the weights |")
def _(_):
    assert {gtn.sample(fork(-math.inf, 0.0)).labels_to_list()[0] for _ in range(50)} == {1}


@guide("`set_weights` ignores lengths")
def _(_):
    graph = fork(0.0, 0.0)
    with pytest.raises(ValueError, match="set_weights"):
        graph.set_weights([1.0])
    graph.set_weights(np.float32([1, 2, 3])[::2])
    assert graph.weights_to_list() == [1.0, 3.0]


@guide("a wrong node id corrupts memory")
def _(_):
    for arc, value in (((0, 7, 1), "7"), ((0, 1, -2), "-2")):
        with pytest.raises(ValueError, match=value):
            fork(1.0).add_arc(*arc)


@guide("stale sort flags lose paths |")
def _(_):
    graph = fork(0.0, 0.0, 0.0)
    graph.mark_arc_sorted()
    graph.mark_arc_sorted(True)
    other = graph_of("sa", [(0, 1, 2), (0, 1, 0), (0, 1, 1)])
    other.mark_arc_sorted()
    assert sorted(gtn.compose(graph, other).labels_to_list()) == [0, 1, 2]


@guide("`equal` ignores which nodes start and accept |")
def _(_):
    assert not gtn.equal(graph_of("sa", []), graph_of("as", []))


@guide("`savetxt` keeps six digits; an empty graph")
def _(tmp_path):
    for graph in (fork(np.float32(1 / 3)), gtn.Graph()):
        gtn.savetxt(tmp_path / "graph", graph)
        assert gtn.equal(gtn.loadtxt(tmp_path / "graph"), graph)


@guide("a truncated binary file loads |")
def _(tmp_path):
    path = tmp_path / "graph"
    gtn.save(path, fork(1.0))
    path.write_bytes(path.read_bytes()[:-2])
    with pytest.raises(ValueError, match="load"):
        gtn.load(path)


@guide("threads that share a graph can crash")
def _(_):
    graph, inner = fork(1.0, 2.0), []
    gtn.parallel_for(
        lambda _: gtn.parallel_for(lambda _: inner.append(gtn.forward_score(graph)), range(4)),
        range(4),
    )
    assert len({score.item() for score in inner}) == 1
    assert len(inner) == 16  # test_defects.py forks


# Notes


@guide("Weights are float32, but scores are float64")
def _(_):
    score = gtn.forward_score(fork(0.1, 0.1))
    assert score.item() != float(np.float32(score.item()))
    assert score.weights_to_numpy().dtype == np.float32


@guide("`weights()` returns the address")
def _(_):
    graph = fork(1.0, 2.0)
    address = graph.weights()
    graph.set_weights([3.0, 4.0])
    assert graph.weights() == gtn.Graph(graph).weights() == address
    assert (ctypes.c_float * 2).from_address(address)[:] == [3.0, 4.0]
    gtn.backward(gtn.forward_score(graph))
    address = graph.grad().weights()
    assert sum((ctypes.c_float * 2).from_address(address)[:]) == pytest.approx(1.0)


@guide("If the sum over the paths of a cyclic graph diverges")
def _(_):
    path = gtn.sample(graph_of("b", [(0, 0, 1)]))
    assert set(path.labels_to_list()) <= {1}


@guide("`savetxt` writes only gtn's text format")
def _(tmp_path):
    graph = graph_of("sa...", [(0, 1, 1)])
    gtn.savetxt(tmp_path / "graph.txt", graph)
    gtn.save(tmp_path / "graph", graph)
    assert gtn.loadtxt(tmp_path / "graph.txt").num_nodes() == 2
    assert gtn.load(tmp_path / "graph").num_nodes() == 5


@guide("a graph with node weights, which only arcgrad can make")
def _(_):
    graph = graph_of("b", [])
    graph.set_accept_weight(0, 1.0)
    with pytest.raises(ValueError, match="must have no node weights"):
        gtn.forward_score(graph)
    assert ag.forward_score(graph) is not None


@guide("A large lazy product prints")
@guide("A product with emissions that may have more than 4096 arcs")
def _(_):
    loop = graph_of("b", [(0, 0, 0), (0, 0, 1)])
    small = gtn.intersect(loop, gtn.linear_graph(100, 2))
    large = gtn.intersect(loop, gtn.linear_graph(10_000, 2))
    huge = gtn.intersect(loop, gtn.linear_graph(1_000_000, 2))
    assert repr(huge).startswith("Graph(product of")
    gtn.backward(gtn.forward_score([small, large]))
    assert small.is_grad_available()
    assert not large.is_grad_available()
    assert "not built" in ag.Graph.__repr__(large)
    large.retain_grad()
    gtn.backward(gtn.forward_score(large))
    assert large.is_grad_available()


@guide("`save` writes arcgrad's own format")
def _(tmp_path):
    numbers = np.int32([2, 1, 1, 1, 0, 1, 0, 1, 3, 4]).tobytes() + np.float32([0.5]).tobytes()
    (tmp_path / "gtn").write_bytes(numbers)
    graph = gtn.load(tmp_path / "gtn")
    assert (graph.labels_to_list(), graph.labels_to_list(False), graph.item()) == ([3], [4], 0.5)
    gtn.save(tmp_path / "ours", graph)
    assert gtn.equal(ag.load(tmp_path / "ours"), graph)


@pytest.mark.parametrize("start", CHECKS)
def test_the_guide_is_true(start, tmp_path):
    CHECKS[start](tmp_path)


def test_a_large_product_that_is_composed_again_is_rearranged():
    loop = graph_of("b", [(0, 0, 0), (0, 0, 1)])
    product = gtn.compose(gtn.linear_graph(5000, 2), loop)
    again = gtn.compose(product, graph_of("b", [(0, 0, 1, 3)]))
    assert "not built" in ag.Graph.__repr__(again)
    assert gtn.viterbi_path(again).labels_to_list(False) == [3] * 5000
