"""Compositions, removal and equal paths follow the rules of gtn."""

import random

import gtn_rules as rules
import numpy as np
import pytest

import arcgrad as ag
import arcgrad.gtn as gtn


def random_graph(
    rng, *, num_labels=3, acyclic=False, weighted=True, epsilons=True, transducer=True
):
    """A graph with many equal weights, so that paths often tie."""
    graph = gtn.Graph()
    num_nodes = rng.randint(1, 5)
    for _ in range(num_nodes):
        graph.add_node(rng.random() < 0.4, rng.random() < 0.4)
    labels = range(-1 if epsilons else 0, num_labels)
    for _ in range(rng.randint(0, 9)):
        src, dst = rng.randrange(num_nodes), rng.randrange(num_nodes)
        if acyclic and src >= dst:
            src, dst = dst, src
        if acyclic and src == dst:
            continue
        ilabel = rng.choice(labels)
        olabel = rng.choice(labels) if transducer else ilabel
        graph.add_arc(src, dst, ilabel, olabel, rng.randint(-1, 1) if weighted else 0)
    return graph


def sort(rng, graph, reference):
    """Sort the arcs of a graph, or not. Returns gtn's marks by input and output label."""
    kind = rng.choice(["no", "input", "output"])
    if kind != "no":
        graph.arc_sort(kind == "output")
        reference.sorted_by = 2 if kind == "input" else 3
    return kind == "input", kind == "output"


def outer(first, second):
    """Whose arcs the outer loop follows, from the marks of the two graphs."""
    return "smaller" if first and second else "second" if first else "first"


def check(graph, expected):
    found = rules.of(graph)
    expected.sorted_by = None
    assert found == expected


SEEDS = range(400)


@pytest.mark.parametrize("block", range(4))
def test_a_composition_has_the_nodes_and_arcs_of_gtn_in_their_order(block):
    for seed in SEEDS[block::4]:
        rng = random.Random(seed)
        first, second = random_graph(rng), random_graph(rng)
        a, b = rules.of(first), rules.of(second)
        marks1, marks2 = sort(rng, first, a), sort(rng, second, b)
        check(gtn.compose(first, second), rules.compose(a, b, outer(marks1[1], marks2[0])))
        check(gtn.intersect(first, second), rules.compose(a, b, outer(any(marks1), any(marks2))))


@pytest.mark.parametrize("block", range(4))
def test_a_composition_with_emissions_has_the_arcs_of_gtn(block):
    for seed in SEEDS[block::4]:
        rng = random.Random(seed)
        graph, emissions = random_graph(rng), gtn.linear_graph(rng.randint(0, 4), 3)
        emissions.set_weights([rng.randint(-1, 1) for _ in range(emissions.num_arcs())])
        a, b = rules.of(graph), rules.of(emissions)
        sort(rng, graph, a)
        check(gtn.compose(graph, emissions), rules.compose(a, b))
        check(gtn.intersect(emissions, graph), rules.compose(b, a, "second"))


def test_many_arcs_per_node_are_matched_in_the_order_of_gtn():
    for seed in range(20):
        rng = random.Random(seed)
        graphs = []
        for _ in range(2):
            graph = gtn.Graph()
            for i in range(3):
                graph.add_node(i == 0, i == 2)
            for _ in range(120):
                labels = rng.randint(-1, 9), rng.randint(-1, 9)
                graph.add_arc(rng.randrange(3), rng.randrange(3), *labels)
            graphs.append(graph)
        first, second = graphs
        a, b = rules.of(first), rules.of(second)
        marks1, marks2 = sort(rng, first, a), sort(rng, second, b)
        check(gtn.compose(first, second), rules.compose(a, b, outer(marks1[1], marks2[0])))


@pytest.mark.parametrize("block", range(4))
def test_remove_gives_the_nodes_and_arcs_of_gtn(block):
    for seed in SEEDS[block::4]:
        rng = random.Random(seed)
        graph = random_graph(rng, transducer=rng.random() < 0.5)
        reference = rules.of(graph)
        sort(rng, graph, reference)
        check(gtn.remove(graph), rules.remove(reference))
        check(gtn.remove(graph, 1, 2), rules.remove(reference, 1, 2))


def assert_best_paths(graph, reference):
    """The best path, the best score, and the gradient of the score."""
    if not reference.is_rooted():
        for call in (gtn.viterbi_path, gtn.viterbi_score):
            with pytest.raises(ValueError, match="must start or have an incoming arc"):
                call(graph)
        return
    found = gtn.viterbi_path(graph)
    expected = rules.viterbi_path(reference)
    if expected is None:
        assert found.num_nodes() == 0
    else:
        assert found.num_nodes() == len(expected) + 1
        arcs = [reference.arcs[a][2:] for a in expected]
        ilabels, olabels, weights = ([arc[k] for arc in arcs] for k in range(3))
        assert found.labels_to_list() == ilabels
        assert found.labels_to_list(False) == olabels
        assert found.weights_to_list() == weights
    score, arcs = rules.viterbi_score(reference)
    best = gtn.viterbi_score(graph)
    assert best.item() == score
    (counts,) = ag.grad(best, [graph])
    used = set(arcs or [])
    assert counts.weights_to_list() == [float(a in used) for a in range(graph.num_arcs())]


@pytest.mark.parametrize("block", range(4))
def test_of_equal_paths_the_one_of_gtn_is_taken(block):
    for seed in SEEDS[block::4]:
        rng = random.Random(seed)
        graph = random_graph(rng, acyclic=True, weighted=rng.random() < 0.5)
        reference = rules.of(graph)
        sort(rng, graph, reference)
        assert_best_paths(graph, reference)


@pytest.mark.parametrize("block", range(4))
def test_of_equal_paths_of_a_composition_the_one_of_gtn_is_taken(block):
    for seed in SEEDS[block::4]:
        rng = random.Random(seed)
        weighted = rng.random() < 0.5
        first = random_graph(rng, acyclic=True, weighted=weighted)
        second = random_graph(rng, weighted=weighted, epsilons=False)
        composed = gtn.compose(first, second)
        assert_best_paths(composed, rules.compose(rules.of(first), rules.of(second)))


@pytest.fixture
def large_products():
    """Every product with emissions is deferred, as large ones are."""
    before = ag._core.set_threshold("deferred_product", -1)
    yield
    ag._core.set_threshold("deferred_product", before)


@pytest.mark.parametrize("epsilons", [False, True])
@pytest.mark.parametrize("block", range(4))
def test_a_large_product_has_the_best_paths_of_gtn(large_products, epsilons, block):
    for seed in SEEDS[block::4]:
        rng = random.Random(seed)
        graph = random_graph(rng, epsilons=False)
        if epsilons:  # without cycles of epsilon arcs
            for src in range(graph.num_nodes() - 1):
                graph.add_arc(
                    src, rng.randrange(src + 1, graph.num_nodes()), -1, rng.randint(-1, 1)
                )
        emissions = gtn.linear_graph(rng.randint(0, 4), 3)
        emissions.set_weights([rng.randint(-1, 1) for _ in range(emissions.num_arcs())])
        a, b = rules.of(graph), rules.of(emissions)
        by_input, by_output = sort(rng, graph, a)
        for product, reference in (
            (gtn.compose(graph, emissions), rules.compose(a, b, outer(by_output, True))),
            (gtn.compose(emissions, graph), rules.compose(b, a, outer(True, by_input))),
        ):
            expected = rules.viterbi_path(reference)
            path = gtn.viterbi_path(product)
            assert path.num_nodes() == (0 if expected is None else len(expected) + 1)
            olabels = [reference.arcs[a][3] for a in expected or []]
            assert path.labels_to_list(False) == olabels
            assert gtn.viterbi_score(product).item() == rules.viterbi_score(reference)[0]
            assert rules.of(product) == reference


@pytest.mark.parametrize("call", [gtn.viterbi_score, gtn.viterbi_path])
def test_the_best_path_of_a_large_product_has_a_gradient_after_retain_grad(large_products, call):
    loop = gtn.Graph(False)
    loop.add_node(True, True)
    loop.add_arc(0, 0, 1)
    product, kept = (gtn.intersect(loop, gtn.linear_graph(3, 2)) for _ in range(2))
    with pytest.raises(RuntimeError, match=r"call retain_grad\(\) on it"):
        ag.grad(call(product), [product])
    kept.retain_grad()
    gtn.backward(call(kept))
    assert kept.grad().weights_to_list() == [1.0] * 3


def test_the_gradient_of_a_large_product_marks_the_path_of_gtn(large_products):
    for seed in SEEDS:
        rng = random.Random(seed)
        graph = random_graph(rng, epsilons=False)
        emissions = gtn.linear_graph(3, 3)
        gtn.backward(gtn.viterbi_score(gtn.intersect(graph, emissions)))
        reference = rules.compose(rules.of(graph), rules.of(emissions))
        _, arcs = rules.viterbi_score(reference)
        labels = [reference.arcs[a][3] for a in arcs or []]
        expected = np.zeros((3, 3))
        expected[range(len(labels)), labels] = 1
        assert emissions.grad().weights_to_numpy().reshape(3, 3).tolist() == expected.tolist()
