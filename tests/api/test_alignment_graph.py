"""`alignment_graph` of labels and of graphs against a definition by enumeration."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from spec import language, strings
from strategies import acceptors, closable, convergent, graphs
from token_rules import all_frames, eps, every_preset, frames_of, kinds, spellings
from tools import build, snapshot, weights

import arcgrad as ag
from arcgrad.tokens import (
    Tokens,
    alignment_graph,
    blank_graph,
    ctc_graph,
    token_graph,
)

# The definition


def alignments(tokens, length, target):
    """The frames of one length that spell the target, a language of token sequences."""
    found = {}
    for frames in all_frames(tokens.num_labels, length):
        scores = [
            target[spelled] + math.log(count)
            for spelled, count in spellings(tokens, frames).items()
            if spelled in target
        ]
        if scores:
            found[frames, frames] = float(np.logaddexp.reduce(scores))
    return found


# Alignments of labels


def targets_of(tokens, max_size=3):
    labels = [c for c in range(tokens.num_labels) if c != tokens.blank_label]
    return st.lists(st.sampled_from(labels), max_size=max_size)


def assert_aligns(graph, tokens, target, length):
    """The language of the graph on frames of this length equals the definition."""
    assert graph.is_acceptor()
    found = language(ag.intersect(graph, frames_of(length, tokens.num_labels)))
    assert found == pytest.approx(alignments(tokens, length, target), abs=1e-9)


@every_preset
def test_alignments_of_all_short_targets(tokens):
    labels = [c for c in range(tokens.num_labels) if c != tokens.blank_label]
    for size in range(4):
        for target in itertools.product(labels, repeat=size):
            graph = alignment_graph(tokens, list(target))
            assert not graph.calc_grad
            assert_aligns(graph, tokens, {target: 0.0}, 4)


@given(st.data(), kinds())
def test_alignments_of_labels(data, tokens):
    target = data.draw(targets_of(tokens))
    length = data.draw(st.integers(0, 5))
    assert_aligns(alignment_graph(tokens, target), tokens, {tuple(target): 0.0}, length)


@given(st.data(), kinds())
def test_alignments_equal_the_composition_with_the_token_graph(data, tokens):
    target = data.draw(targets_of(tokens))
    composed = ag.project_input(ag.compose(tokens.graph(), ag.chain_graph(target)))
    assert strings(alignment_graph(tokens, target)) == pytest.approx(strings(ag.remove(composed)))


@given(st.data(), kinds())
def test_every_node_is_on_an_accepted_path(data, tokens):
    assert ag.connect(tokens.graph()).num_nodes() == tokens.graph().num_nodes()
    graph = alignment_graph(tokens, data.draw(targets_of(tokens)))
    assert snapshot(ag.connect(graph)) == snapshot(graph)
    assert eps not in graph.labels_to_list()


def test_alignments_of_the_empty_target():
    only_blanks = {((0,) * n, (0,) * n): 0.0 for n in range(4)}
    empty = {((), ()): 0.0}
    assert strings(alignment_graph(Tokens.asg(3), [])) == empty
    assert strings(alignment_graph(Tokens.ctc(3), [])) == only_blanks
    assert strings(alignment_graph(Tokens.spaced(3, 2, 3), [])) == only_blanks
    del only_blanks[(), ()]
    assert strings(alignment_graph(Tokens(3, blank="forced"), [])) == only_blanks
    assert strings(alignment_graph(Tokens(3, blank="forced", min_blanks=3), [])) == only_blanks


def test_repeated_labels_of_asg_have_one_or_more_frames_each():
    graph = alignment_graph(Tokens.asg(2), [1, 1])
    score = ag.forward_score(ag.intersect(graph, ag.chain_graph([1, 1, 1, 1])))
    assert score.item() == pytest.approx(math.log(3))


@given(st.data(), st.integers(0, 2), st.integers(0, 6))
def test_ctc_tokens_equal_the_definition_of_ctc(data, blank, length):
    tokens = Tokens.ctc(3, blank)
    target = tuple(data.draw(targets_of(tokens)))

    def collapse(frames):
        return tuple(label for label, _ in itertools.groupby(frames) if label != blank)

    expected = {
        (w, w): 0.0 for w in itertools.product(range(3), repeat=length) if collapse(w) == target
    }
    for graph in (alignment_graph(tokens, list(target)), ctc_graph(list(target), blank)):
        found = language(ag.intersect(graph, frames_of(length, 3)))
        assert found == expected


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(0, 4))
def test_a_ctc_graph_is_an_alignment_graph(target, blank):
    target = [label + (label >= blank) for label in target]
    graph = alignment_graph(Tokens.ctc(5, blank), target)
    assert snapshot(graph) == snapshot(ctc_graph(target, blank))


KERNELS = [
    *(Tokens.asg(5), Tokens.ctc(5), Tokens.spike(5), Tokens(5, blank="optional")),
    *(Tokens.limited(5, 2), Tokens.limited(5, 4), Tokens.limited(5, 4, min_frames=2)),
    *(Tokens.spaced(5, 2, 3), Tokens.spaced(5, 0, 2), Tokens.spaced(5, 3, None)),
    *(Tokens(5, blank="forced"), Tokens(5, blank="forced", max_blanks=3)),
    Tokens(5, max_frames=2),
    Tokens(5, blank="optional", allow_repeats=False, max_frames=3),
    Tokens(5, blank="optional", overrides={1: (1, 1), 2: (1, 2)}),
]


@pytest.mark.parametrize("tokens", KERNELS, ids=repr)
def test_alignments_of_labels_use_the_diagonal_kernel(tokens):
    target = [1, 2, 2, 3, 4, 1, 3, 3, 2, 1]
    for labels in (target, ag.chain_graph(target)):
        product = ag.intersect(alignment_graph(tokens, labels), ag.linear_graph(18, 5))
        assert ag.explain(product).kernel == "diagonal"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_and_calc_grad_follow_the_arguments(dtype):
    for build_graph in (partial(alignment_graph, Tokens.ctc(4)), ctc_graph):
        graph = build_graph([1, 2, 2], calc_grad=True, dtype=dtype)
        assert graph.calc_grad
        assert str(graph.dtype) == dtype
        graphs = build_graph([[1], []], calc_grad=True, dtype=np.dtype(dtype))
        assert [str(g.dtype) for g in graphs] == [dtype] * 2
        assert str(build_graph([1]).dtype) == "float32"


def test_weights_of_alignments_can_be_learned():
    graph = alignment_graph(Tokens.limited(3, 2), [1, 2], calc_grad=True, dtype="float64")
    emissions = frames_of(4, 3)
    assert_gradient(lambda a, e: ag.forward_score(ag.intersect(a, e)), graph, emissions)


# Alignments of graphs


@given(acceptors(num_labels=2, max_nodes=4, max_arcs=6), st.integers(0, 4), kinds())
def test_alignments_of_lattices(target, length, tokens):
    # Labels of the target are 0 and 1; a blank label below them shifts them up.
    blank = tokens.blank_label
    target = relabelled(target, blank)
    expected = {y: score for (y, _), score in language(target).items()}
    assert_aligns(alignment_graph(tokens, target), tokens, expected, length)


def relabelled(graph, blank):
    src, dst, label, _, weight = (column.tolist() for column in graph.arcs())
    if blank is not None:
        label = [c + (c >= blank) for c in label]
    arcs = list(zip(src, dst, label, label, weight, strict=True))
    return build(graph.num_nodes(), set(graph.start().tolist()), set(graph.accept().tolist()), arcs)


@given(graphs(num_labels=2, max_nodes=4, max_arcs=6), kinds())
def test_alignments_of_transducers_keep_output_labels(target, tokens):
    src, dst, label, out, weight = (column.tolist() for column in target.arcs())
    if (blank := tokens.blank_label) is not None:
        label = [c + (c >= blank) for c in label]
    arcs = [a for a in zip(src, dst, label, out, weight, strict=True) if a[2] >= 0 or a[3] < 0]
    starts, accepts = set(target.start().tolist()), set(target.accept().tolist())
    target = build(target.num_nodes(), starts, accepts, arcs)
    frames = ag.linear_graph(3, 3, np.random.default_rng(0).normal(size=(3, 3)))
    found = language(ag.compose(frames, alignment_graph(tokens, target, outputs=True)))
    expected = language(ag.compose(frames, ag.compose(tokens.graph(), target)))
    assert found == pytest.approx(expected, abs=1e-9)


@given(convergent(transducer=False, max_nodes=4, max_arcs=6), kinds())
def test_alignments_of_graphs_with_cycles(target, tokens):
    target = relabelled(target, tokens.blank_label)
    composed = ag.project_input(ag.compose(tokens.graph(), target))
    found = strings(alignment_graph(tokens, target))
    assert found == pytest.approx(strings(ag.remove(composed)), abs=1e-9)


@given(closable(transducer=False), kinds())
def test_alignments_of_closures(target, tokens):
    target = ag.closure(relabelled(target, tokens.blank_label))
    composed = ag.project_input(ag.compose(tokens.graph(), target))
    found = strings(alignment_graph(tokens, target))
    assert found == pytest.approx(strings(ag.remove(composed)), abs=1e-9)


@given(acceptors(num_labels=2, max_nodes=4, max_arcs=6, impossible=False), kinds())
def test_the_gradient_of_a_target_graph(target, tokens):
    target = relabelled(target, tokens.blank_label)
    emissions = ag.linear_graph(4, 3, np.random.default_rng(0).normal(size=(4, 3)))

    def score(y, e):
        return ag.forward_score(ag.intersect(alignment_graph(tokens, y), e))

    assert_gradient(partial(alignment_graph, tokens), target)
    assert_gradient(score, target, emissions)
    if ag.forward_score(ag.intersect(alignment_graph(tokens, target), emissions)).item() > -1e9:
        assert_second_order(score, target, emissions)


@given(st.data(), kinds())
def test_a_chain_gives_the_same_graph_as_its_labels(data, tokens):
    target = data.draw(targets_of(tokens, max_size=5))
    graph = alignment_graph(tokens, ag.chain_graph(target, dtype="float64"))
    labels = alignment_graph(tokens, target, dtype="float64")
    assert snapshot(graph) == snapshot(labels)
    # The numbers of its nodes do not matter.
    order = data.draw(st.permutations(range(len(target) + 1)))
    arcs = [(order[i], order[i + 1], label) for i, label in enumerate(target)]
    mixed = build(len(order), {order[0]}, {order[-1]}, arcs)
    assert snapshot(alignment_graph(tokens, mixed)) == snapshot(labels)


def test_the_weight_of_a_target_arc_is_added_where_its_token_begins():
    target = build(3, {0}, {2}, [(0, 1, 1, 1, 0.5), (1, 2, 2, 2, 0.25), (0, 2, 2, 2, 4.0)])
    graph = alignment_graph(Tokens.ctc(3), target)
    assert graph.calc_grad
    found = language(ag.intersect(graph, frames_of(3, 3)))
    assert found[(1, 1, 2), (1, 1, 2)] == 0.75
    assert found[(0, 2, 2), (0, 2, 2)] == 4.0
    ag.backward(ag.forward_score(ag.intersect(graph, ag.chain_graph([1, 0, 2]))))
    assert weights(target.grad()).tolist() == [1.0, 1.0, 0.0]


def test_parallel_arcs_of_a_target_add_up():
    target = build(2, {0}, {1}, [(0, 1, 1, 1, 0.0), (0, 1, 1, 1, 1.0)])
    score = ag.forward_score(
        ag.intersect(alignment_graph(Tokens.asg(2), target), ag.chain_graph([1, 1]))
    )
    assert score.item() == pytest.approx(np.logaddexp(0.0, 1.0))


@pytest.mark.parametrize("blank", ["none", "forced", "optional"])
def test_the_empty_string_of_a_target_keeps_its_score(blank):
    tokens = Tokens(3, blank=blank)
    target = build(2, {0}, {1}, [(0, 1, eps, eps, -1.5), (0, 1, 2, 2, 0.5)])
    expected = {(): -1.5, (2,): 0.5}
    for length in range(4):
        assert_aligns(alignment_graph(tokens, target), tokens, expected, length)


def test_a_target_graph_without_paths_has_no_alignments():
    nothing = [build(0, set(), set(), []), build(2, {0}, set(), [(0, 1, 1)]), build(1, {0}, {}, [])]
    for target in nothing:
        graph = alignment_graph(Tokens.ctc(3), target)
        assert ag.forward_score(graph).item() == -math.inf
        assert graph.num_nodes() == 0


def test_only_reachable_nodes_of_a_target_are_built():
    # A target with a thousand nodes of which three matter.
    arcs = [(0, 1, 1), (1, 2, 2)] + [(n, n + 1, 1) for n in range(3, 999)]
    graph = alignment_graph(Tokens.ctc(3), build(1000, {0, 3}, {2}, arcs))
    assert snapshot(graph) == snapshot(alignment_graph(Tokens.ctc(3), [1, 2], dtype="float64"))


def test_alignments_of_word_piece_decompositions():
    # "the" as t h e, th e, t he and the; one node per letter boundary.
    pieces = [(0, 1, 1), (1, 2, 2), (2, 3, 3), (0, 2, 4), (1, 3, 5), (0, 3, 6)]
    tokens = Tokens.ctc(7)
    target = build(4, {0}, {3}, pieces)
    graph = alignment_graph(tokens, target)
    # A node per piece and three for blanks before, between and after.
    assert graph.num_nodes() == 6 + 4
    splits = [(1, 2, 3), (4, 3), (1, 5), (6,)]
    assert_aligns(graph, tokens, dict.fromkeys(splits, 0.0), 3)
    scores = [
        ag.forward_score(ag.intersect(alignment_graph(tokens, list(split)), frames_of(6, 7))).item()
        for split in splits
    ]
    total = ag.forward_score(ag.intersect(graph, frames_of(6, 7))).item()
    assert total == pytest.approx(np.logaddexp.reduce(scores))


def test_a_dense_graph_may_be_a_target():
    # Any two of three tokens, each with its own weight.
    values = np.random.default_rng(1).normal(size=(2, 3))
    target = ag.linear_graph(2, 3, values)
    tokens = Tokens.asg(3)
    assert_aligns(
        alignment_graph(tokens, target),
        tokens,
        {y: values[0, y[0]] + values[1, y[1]] for y in itertools.product(range(3), repeat=2)},
        4,
    )


# Errors


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_graph(-1), "token_graph: the label must be 0 or more, but it is -1"),
        (lambda: blank_graph(-1), "blank_graph: the blank must be 0 or more, but it is -1"),
        (
            lambda: token_graph(1, min_frames=0),
            "token_graph: the least number of frames must be 1 or more, but it is 0",
        ),
        (
            lambda: blank_graph(1, min_frames=2, max_frames=1),
            "blank_graph: the most frames must not be fewer than the least, but they are 1 and 2",
        ),
        (
            lambda: token_graph(1, min_frames=2**31 - 1),
            r"token_graph: a graph holds at most 2\^31 - 1 nodes, but this one would have 21474836",
        ),
        (
            lambda: Tokens(3, min_frames=2**31 - 1).graph(),
            r"Tokens.graph: a graph holds at most 2\^31 - 1 nodes and arcs, but that of 3 labels",
        ),
        (
            lambda: Tokens(3, blank="optional", min_blanks=2**31 - 1).graph(),
            r"Tokens.graph: a graph holds at most 2\^31 - 1 nodes, but this one would have",
        ),
        (
            lambda: alignment_graph(Tokens(3, min_frames=2**30), [1, 2]),
            r"alignment_graph: a graph holds at most 2\^31 - 1 nodes, but this one would have",
        ),
        (
            lambda: token_graph(2**40),
            "token_graph: the label must fit 32 bits, but it is 1099511627776",
        ),
    ],
)
def test_invalid_target_graphs_are_errors(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_epsilon_cycle_of_a_target_that_diverges_is_an_error():
    target = build(2, {0}, {1}, [(0, 0, eps, eps, 0.5), (0, 1, 1)])
    with pytest.raises(ValueError, match=r"alignment_graph: .*, but"):
        alignment_graph(Tokens.asg(2), target)
