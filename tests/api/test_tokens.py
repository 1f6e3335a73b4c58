"""`arcgrad.tokens` against a definition of alignments that tries every way to cut frames."""

import copy
import itertools
import math
import pickle
from collections import Counter
from functools import partial

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from spec import language, strings
from strategies import acceptors, closable, convergent, graphs
from tools import build, snapshot, weights

import arcgrad as ag
from arcgrad.tokens import (
    Tokens,
    alignment_graph,
    blank_graph,
    closed_graph,
    ctc_graph,
    token_graph,
)

eps = ag.epsilon


# The definition


def within(number, least, most):
    return least <= number and (most is None or number <= most)


def gaps_fit(tokens, runs):
    """Whether the numbers of blanks before, between and after the tokens of `runs` are allowed."""
    forced = tokens.blank == "forced"
    if forced and not (runs and runs[0][0] == runs[-1][0] == tokens.blank_label):
        return False
    last, num_blanks = None, 0
    for label, *rest in runs:
        if label == tokens.blank_label:
            num_blanks += 1 + len(rest)
            continue
        if last is not None:
            if not within(num_blanks, tokens.min_blanks, tokens.max_blanks):
                return False
            if num_blanks == 0 and (forced or (label == last and not tokens.allow_repeats)):
                return False
        last, num_blanks = label, 0
    return True


def is_alignment(tokens, runs):
    for run in runs:
        if len(set(run)) > 1:
            return False
        limits = tokens.overrides.get(run[0], (tokens.min_frames, tokens.max_frames))
        if run[0] != tokens.blank_label and not within(len(run), *limits):
            return False
    # All blanks in a row are one run.
    blank = (tokens.blank_label,)
    if any(a[:1] == b[:1] == blank for a, b in itertools.pairwise(runs)):
        return False
    return gaps_fit(tokens, runs)


def spellings(tokens, frames):
    """How many ways there are to cut `frames` into each sequence of tokens."""
    found = Counter()
    for cuts in itertools.product([False, True], repeat=max(len(frames) - 1, 0)):
        ends = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), len(frames)]
        runs = [tuple(frames[a:b]) for a, b in itertools.pairwise(ends) if a < b]
        if is_alignment(tokens, runs):
            found[tuple(run[0] for run in runs if run[0] != tokens.blank_label)] += 1
    return found


def all_frames(num_labels, length):
    return itertools.product(range(num_labels), repeat=length)


def transductions(tokens, length):
    """The language of the full token graph on inputs of one length."""
    return {
        (frames, spelled): math.log(count)
        for frames in all_frames(tokens.num_labels, length)
        for spelled, count in spellings(tokens, frames).items()
    }


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


# The kinds of tokens that are tried


def blank_kinds(blank):
    """Options of blanks, with all kinds of limits between tokens."""
    if blank == "none":
        return st.just({})
    lowest = 1 if blank == "forced" else 0
    limits = st.tuples(st.integers(0, 2), st.none() | st.integers(lowest, 3))
    limits = limits.filter(lambda pair: pair[1] is None or pair[1] >= pair[0])
    allow_repeats = st.booleans()

    def options(pair, label, repeats):
        repeats = repeats or pair[1] == 0
        return {
            "blank_label": label,
            "allow_repeats": repeats,
            "min_blanks": pair[0],
            "max_blanks": pair[1],
        }

    return st.builds(options, limits, st.integers(0, 2), allow_repeats)


def durations():
    limits = st.tuples(st.integers(1, 3), st.none() | st.integers(1, 3))
    return limits.filter(lambda pair: pair[1] is None or pair[1] >= pair[0])


@st.composite
def kinds(draw, num_labels=3):
    blank = draw(st.sampled_from(["none", "forced", "optional"]))
    options = draw(blank_kinds(blank))
    min_frames, max_frames = draw(st.just((1, None)) | durations())
    labels = [c for c in range(num_labels) if c != options.get("blank_label")]
    overrides = draw(st.dictionaries(st.sampled_from(labels), durations(), max_size=2))
    return Tokens(
        num_labels,
        blank=blank,
        min_frames=min_frames,
        max_frames=max_frames,
        overrides=overrides,
        **options,
    )


PRESETS = [
    Tokens.asg(3),
    Tokens.ctc(3),
    Tokens.ctc(3, 2),
    Tokens.spike(3),
    Tokens.limited(3, 2),
    Tokens.spaced(3, 2, 3),
    Tokens.spaced(3, 0, 1, blank_label=1),
    Tokens(3, blank="forced"),
    Tokens(3, blank="forced", min_blanks=2, max_blanks=2),
    Tokens(3, blank="optional"),
    Tokens(3, blank="optional", allow_repeats=False, max_blanks=2),
    Tokens(3, blank="optional", allow_repeats=False, max_frames=2, overrides={2: (2, None)}),
    Tokens(3, max_frames=2, overrides={0: (1, 1), 1: (2, None)}),
    Tokens(3, blank="optional", max_blanks=0),
]
every_preset = pytest.mark.parametrize("tokens", PRESETS, ids=repr)


# The full token graph


def frames_of(length, num_labels, **options):
    return ag.linear_graph(length, num_labels, dtype="float64", **options)


def read(graph, tokens, length):
    return language(ag.compose(frames_of(length, tokens.num_labels), graph))


@every_preset
@pytest.mark.parametrize("length", range(5))
def test_the_token_graph_has_one_path_per_way_to_cut_the_frames(tokens, length):
    assert read(tokens.graph(), tokens, length) == pytest.approx(transductions(tokens, length))


@given(kinds(), st.integers(0, 4))
def test_the_token_graph_of_any_kind(tokens, length):
    assert read(tokens.graph(), tokens, length) == pytest.approx(transductions(tokens, length))


@pytest.mark.parametrize("num_labels", range(1, 11))
def test_tokens_that_differ_follow_one_another_by_one_path(num_labels):
    for tokens in (Tokens.ctc(num_labels), Tokens(num_labels, max_frames=1)):
        assert read(tokens.graph(), tokens, 2) == pytest.approx(transductions(tokens, 2))


def test_the_token_graph_of_many_tokens_is_small():
    for tokens in (Tokens.ctc(1000), Tokens.asg(1000), Tokens.spike(1000)):
        graph = tokens.graph()
        assert graph.num_arcs() < 10 * 1000
        assert graph.num_nodes() < 4 * 1000
    # All sequences of 3 frames over 1000 labels without repeats, scored without the product.
    score = ag.forward_score(ag.compose(frames_of(3, 1000), Tokens.ctc(1000).graph()))
    assert score.item() == pytest.approx(3 * math.log(1000))


def test_the_token_graph_is_built_once_and_cannot_be_changed_by_its_users():
    tokens = Tokens.ctc(3)
    first = tokens.graph()
    before = snapshot(first)
    first.set_weights(np.ones(first.num_arcs()))
    first.add_node()
    assert snapshot(tokens.graph()) == snapshot(copy.copy(tokens).graph()) == before
    assert not tokens.graph().calc_grad


# Token graphs by operations


def test_the_graphs_of_single_tokens_are_those_of_the_paper():
    drawn = build(2, {0}, {1}, [(0, 1, 5, 5), (1, 1, 5, eps)])
    assert ag.isomorphic(token_graph(5), drawn)
    spike = build(2, {0}, {1}, [(0, 1, 5, 5)])
    assert ag.isomorphic(token_graph(5, max_frames=1), spike)
    limited = build(3, {0}, {1, 2}, [(0, 1, 5, 5), (1, 2, 5, eps)])
    assert ag.isomorphic(token_graph(5, min_frames=1, max_frames=2), limited)
    blank = build(1, {0}, {0}, [(0, 0, 7, eps)])
    assert ag.isomorphic(blank_graph(7), blank)
    arcs = [(n, n + 1, 7, eps) for n in range(3)]
    spaced = build(4, {0}, {2, 3}, arcs)
    assert ag.isomorphic(blank_graph(7, min_frames=2, max_frames=3), spaced)


@given(durations(), st.integers(0, 4))
def test_a_token_lasts_as_many_frames_as_its_limits_allow(limits, length):
    graph = token_graph(1, min_frames=limits[0], max_frames=limits[1])
    expected = {((1,) * length, (1,)): 0.0} if within(length, *limits) else {}
    assert language(ag.compose(frames_of(length, 2), graph)) == expected
    graph = blank_graph(1, min_frames=limits[0] - 1, max_frames=limits[1])
    expected = {((1,) * length, ()): 0.0} if within(length, limits[0] - 1, limits[1]) else {}
    assert language(ag.compose(frames_of(length, 2), graph)) == expected


def by_operations(tokens):
    """The full token graph of tokens without limits between them."""
    graphs = []
    for label in range(tokens.num_labels):
        if label != tokens.blank_label:
            limits = tokens.overrides.get(label, (tokens.min_frames, tokens.max_frames))
            graphs.append(token_graph(label, min_frames=limits[0], max_frames=limits[1]))
    if tokens.blank == "none":
        return closed_graph(graphs)
    forced = tokens.blank == "forced"
    return closed_graph(graphs, blank_graph(tokens.blank_label, min_frames=int(forced)))


@pytest.mark.parametrize("blank", ["none", "forced", "optional"])
@pytest.mark.parametrize("limits", [(1, None), (1, 1), (1, 2), (2, None)])
@pytest.mark.parametrize("length", range(5))
def test_the_closure_of_token_graphs_has_one_path_per_way_to_cut(blank, limits, length):
    for overrides in ({}, {1: (2, 3)}):
        tokens = Tokens(
            3, blank=blank, min_frames=limits[0], max_frames=limits[1], overrides=overrides
        )
        closed = by_operations(tokens)
        assert read(closed, tokens, length) == pytest.approx(transductions(tokens, length))


@pytest.mark.parametrize("length", range(6))
def test_a_blank_graph_with_limits_holds_before_between_and_after_tokens(length):
    closed = closed_graph([token_graph(1), token_graph(2)], blank_graph(min_frames=1, max_frames=2))
    spaced = Tokens(3, blank="forced", max_blanks=2)
    expected = {
        (frames, spelled): value
        for (frames, spelled), value in transductions(spaced, length).items()
        if frames[:3] != (0, 0, 0) and frames[-3:] != (0, 0, 0)
    }
    assert read(closed, spaced, length) == pytest.approx(expected)


def test_a_closed_graph_takes_any_graphs_and_carries_their_gradients():
    three = build(4, {0}, {3}, [(0, 1, 1, 1, -0.5), (1, 2, 2, eps, 0.25), (2, 3, 1, eps, 1.0)])
    token = with_gradient(token_graph(2))
    blank = with_gradient(blank_graph(0, max_frames=1))
    closed = closed_graph([three, token], blank)
    found = language(ag.compose(frames_of(4, 3), closed))
    assert found[(1, 2, 1, 2), (1, 2)] == 0.75
    assert found[(0, 1, 2, 1), (1,)] == 0.75

    def score(*graphs):
        return ag.forward_score(ag.compose(frames_of(4, 3), closed_graph(graphs[:2], graphs[2])))

    assert_gradient(score, three, token, blank)
    assert_second_order(score, three, token, blank)


def with_gradient(graph):
    return build(
        graph.num_nodes(),
        set(graph.start().tolist()),
        set(graph.accept().tolist()),
        list(zip(*(column.tolist() for column in graph.arcs()), strict=True)),
    )


def test_closed_graphs_of_an_empty_list_accept_only_blanks():
    assert strings(closed_graph([])) == {((), ()): 0.0}
    only_blanks = {((0,) * n, ()): 0.0 for n in range(4)}
    assert strings(closed_graph([], blank_graph())) == only_blanks


# Alignments of labels


def targets_of(tokens, max_size=3):
    labels = [c for c in range(tokens.num_labels) if c != tokens.blank_label]
    return st.lists(st.sampled_from(labels), max_size=max_size)


def assert_aligns(graph, tokens, target, length):
    """The graph accepts frames of this length as often as they spell the target's sequences."""
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


def test_repeats_of_asg_last_a_frame_or_more_each():
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
    # Any two of three tokens, each with a weight of its own.
    values = np.random.default_rng(1).normal(size=(2, 3))
    target = ag.linear_graph(2, 3, values)
    tokens = Tokens.asg(3)
    assert_aligns(
        alignment_graph(tokens, target),
        tokens,
        {y: values[0, y[0]] + values[1, y[1]] for y in itertools.product(range(3), repeat=2)},
        4,
    )


# Several targets


def rows_and_lengths():
    rows = [[1, 2, 2], [], [3], [1, 3, 1, 2]]
    lengths = [len(row) for row in rows]
    padded = np.full((4, 5), -1)
    for row, labels in zip(padded, rows, strict=True):
        row[: len(labels)] = labels
    return rows, lengths, padded, np.array(list(itertools.chain(*rows)))


@pytest.mark.parametrize("build_graph", [partial(alignment_graph, Tokens.ctc(4)), ctc_graph])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.int8, np.int16])
def test_several_targets_in_every_format(build_graph, dtype):
    rows, lengths, padded, joined = rows_and_lengths()
    expected = [snapshot(build_graph(row)) for row in rows]
    padded, joined = padded.astype(dtype), joined.astype(dtype)
    formats = [
        build_graph(rows),
        build_graph(tuple(tuple(row) for row in rows)),
        build_graph([np.array(row, dtype) for row in rows]),
        build_graph(padded, lengths=lengths),
        build_graph(padded, lengths=np.array(lengths)),
        build_graph(np.asfortranarray(padded), lengths=tuple(lengths)),
        build_graph(padded.tolist(), lengths=lengths),
        build_graph(joined, lengths=lengths),
        build_graph(joined.tolist(), lengths=lengths),
        build_graph(np.repeat(joined, 2)[::2], lengths=lengths),
    ]
    for item in formats:
        assert [snapshot(graph) for graph in item] == expected
    square = build_graph(np.array([[1, 2], [3, 3]], dtype))
    assert [snapshot(g) for g in square] == [snapshot(build_graph(r)) for r in ([1, 2], [3, 3])]


def test_one_target_in_every_format():
    expected = snapshot(ctc_graph([1, 2, 2]))
    array = np.array([1, 2, 2])
    formats = [(1, 2, 2), range(1, 3), array, array.astype(np.uint8), array.astype(np.int32)]
    formats += [list(array), np.array([1, 0, 2, 0, 2])[::2]]
    found = [ctc_graph(item) for item in formats]
    assert snapshot(found.pop(1)) == snapshot(ctc_graph([1, 2]))
    assert [snapshot(graph) for graph in found] == [expected] * len(found)


def test_several_target_graphs_are_a_list():
    targets = [ag.chain_graph([1, 2]), ag.chain_graph([3], calc_grad=True)]
    tokens = Tokens.ctc(4)
    graphs = alignment_graph(tokens, targets)
    assert [snapshot(graph) for graph in graphs] == [
        snapshot(alignment_graph(tokens, target)) for target in targets
    ]
    assert [graph.calc_grad for graph in graphs] == [False, True]
    assert len(alignment_graph(tokens, tuple(targets))) == 2


class Tensor:
    """A tensor of another library, which offers DLPack only."""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_tensors_of_other_libraries_are_read_in_place():
    rows, lengths, padded, joined = rows_and_lengths()
    expected = [snapshot(ctc_graph(row)) for row in rows]
    for target in (Tensor(padded), Tensor(joined), Tensor(joined.astype(np.int32))):
        found = ctc_graph(target, lengths=Tensor(np.array(lengths)))
        assert [snapshot(graph) for graph in found] == expected
    assert snapshot(ctc_graph(Tensor(joined))) == snapshot(ctc_graph(joined.tolist()))


def test_padding_is_not_read():
    padded = np.array([[1, 2**40], [-(2**40), 5]])
    graphs = ctc_graph(padded, lengths=[1, 0])
    assert [graph.num_nodes() for graph in graphs] == [3, 1]


def test_an_empty_list_of_targets():
    assert ctc_graph(np.zeros((0, 5), int)) == []
    assert ctc_graph(np.zeros((0, 5), int), lengths=[]) == []
    assert ctc_graph([], lengths=[]) == []
    assert len(ctc_graph(np.zeros((2, 0), int))) == 2
    assert len(ctc_graph([], lengths=[0, 0])) == 2
    assert ctc_graph([]).num_nodes() == 1


def test_a_batch_is_the_same_on_any_number_of_threads(threads):
    targets = np.random.default_rng(0).integers(1, 30, (300, 20))
    expected = [snapshot(graph) for graph in ctc_graph(targets)]
    threads(4)
    assert [snapshot(graph) for graph in ctc_graph(targets)] == expected


# Tokens that frames spell


@given(st.data(), kinds(), st.integers(0, 6))
def test_collapse_finds_the_shortest_spelling(data, tokens, length):
    frames = data.draw(st.lists(st.integers(0, 2), min_size=length, max_size=length))
    found = spellings(tokens, frames)
    if not found:
        with pytest.raises(ValueError, match=r"collapse: .* must .*, but "):
            tokens.collapse(frames)
        return
    fewest = min(map(len, found))
    (expected,) = [y for y in found if len(y) == fewest]
    assert tokens.collapse(frames) == list(expected)
    if not tokens.allow_repeats:
        assert list(found.items()) == [(expected, 1)]


@given(st.data(), kinds())
def test_collapse_undoes_an_alignment(data, tokens):
    frames = data.draw(st.lists(st.integers(0, 2), max_size=5))
    if not spellings(tokens, frames):
        return
    graph = alignment_graph(tokens, tokens.collapse(frames))
    assert ag.forward_score(ag.intersect(graph, ag.chain_graph(frames))).item() > -math.inf


def test_collapse_of_several_sequences():
    tokens = Tokens.ctc(3)
    rows = [[1, 1, 0, 1], [0, 0, 0, 0], [2, 1, 1, 2]]
    expected = [[1, 1], [], [2, 1, 2]]
    assert tokens.collapse(rows) == expected
    assert tokens.collapse(np.array(rows)) == expected
    assert tokens.collapse(np.array(rows), lengths=[4, 2, 1]) == [[1, 1], [], [2]]
    assert tokens.collapse(np.array(rows).ravel(), lengths=[4, 4, 4]) == expected
    assert tokens.collapse([]) == []
    assert tokens.collapse(np.array(rows[0], np.int32)) == expected[0]


@pytest.mark.parametrize(
    ("tokens", "frames", "message"),
    [
        (Tokens.ctc(3), [1, 3], "a label of the frames must be 0 to 2, but label 1 is 3"),
        (Tokens.ctc(3), [-1], "a label of the frames must be 0 to 2, but label 0 is -1"),
        (
            Tokens(3, blank="optional", allow_repeats=False, max_frames=2),
            [0, 1, 1, 1],
            "a run of label 1 must be one token of 1 to 2 frames, but the one at frame 1 has 3",
        ),
        (
            Tokens(3, min_frames=3, max_frames=4),
            [1] * 5,
            "a run of label 1 must be one token of 3 to 4 frames or several, "
            "but the one at frame 0 has 5",
        ),
        (
            Tokens(3, min_frames=2),
            [1, 1, 2],
            "a run of label 2 must be one token of 2 or more frames or several, "
            "but the one at frame 2 has 1",
        ),
        (
            Tokens.spaced(3, 2, 3),
            [0, 1, 0, 1],
            "there must be 2 to 3 blanks between tokens, but there are 1 before frame 3",
        ),
        (
            Tokens.spaced(3, 2, 2),
            [1, 0, 0, 0, 2],
            "there must be 2 blanks between tokens, but there are 3 before frame 4",
        ),
        (
            Tokens(3, blank="forced"),
            [0, 1, 2, 0],
            "there must be 1 or more blanks between tokens, but there are 0 before frame 2",
        ),
        (
            Tokens(3, blank="forced"),
            [0, 1],
            r"frames must begin and end with the blank \(0\), but they begin with 0 and end with 1",
        ),
        (
            Tokens(3, blank="forced"),
            [],
            r"frames must begin and end with the blank \(0\), but there are none",
        ),
    ],
)
def test_frames_that_spell_no_tokens_are_named(tokens, frames, message):
    with pytest.raises(ValueError, match=f"collapse: {message}"):
        tokens.collapse(frames)
    with pytest.raises(ValueError, match=rf"collapse \(element 1 of 2\): {message}"):
        tokens.collapse([[0] if tokens.blank == "forced" else [], frames])


# The class


@given(kinds())
def test_tokens_can_be_compared_copied_pickled_and_read_back(tokens):
    copies = [
        copy.copy(tokens),
        copy.deepcopy(tokens),
        pickle.loads(pickle.dumps(tokens)),
        eval(repr(tokens)),
    ]
    for other in copies:
        assert other == tokens
        assert hash(other) == hash(tokens)
        assert repr(other) == repr(tokens)
        assert snapshot(other.graph()) == snapshot(tokens.graph())
    assert tokens != Tokens.asg(17)
    assert tokens != "tokens"


def test_different_tokens_are_not_equal():
    assert len(set(PRESETS)) == len(PRESETS)
    assert Tokens.ctc(3) != Tokens.ctc(4)
    assert Tokens(3, blank_label=2) == Tokens(3)  # there is no blank


def test_repr_of_tokens_is_their_constructor_call():
    tokens = Tokens(
        5,
        blank="optional",
        blank_label=4,
        allow_repeats=False,
        min_frames=2,
        max_frames=3,
        min_blanks=1,
        max_blanks=6,
        overrides={2: (1, None)},
    )
    assert (tokens.num_labels, tokens.blank, tokens.blank_label) == (5, "optional", 4)
    assert not tokens.allow_repeats
    assert (tokens.min_frames, tokens.max_frames) == (2, 3)
    assert (tokens.min_blanks, tokens.max_blanks) == (1, 6)
    assert tokens.overrides == {2: (1, None)}
    assert repr(tokens) == (
        "Tokens(5, blank='optional', blank_label=4, allow_repeats=False, min_frames=2, "
        "max_frames=3, min_blanks=1, max_blanks=6, overrides={2: (1, None)})"
    )
    assert repr(Tokens.asg(3)) == "Tokens(3)"
    assert Tokens.asg(3).blank_label is None


def test_tokens_are_immutable():
    tokens = Tokens.ctc(3)
    with pytest.raises(AttributeError):
        tokens.num_labels = 4
    tokens.overrides[1] = (2, 2)
    assert tokens.overrides == {}


def test_named_constructors_set_their_options():
    assert Tokens.asg(3) == Tokens(3)
    assert Tokens.ctc(3, 1) == Tokens(3, blank="optional", blank_label=1, allow_repeats=False)
    assert Tokens.spike(3) == Tokens(3, blank="optional", max_frames=1)
    assert Tokens.limited(3) == Tokens(3, blank="optional", max_frames=2)
    assert Tokens.limited(3, 5, min_frames=2, blank_label=1) == Tokens(
        3, blank="optional", blank_label=1, min_frames=2, max_frames=5
    )
    assert Tokens.spaced(3, 1, None) == Tokens(3, blank="optional", min_blanks=1)


# Errors


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_labels": 0}, "there must be 1 label or more, but there are 0"),
        ({"num_labels": 2**31}, "the number of labels must fit 32 bits, but it is 2147483648"),
        ({"blank": "maybe"}, "blank must be 'none', 'forced' or 'optional', but it is 'maybe'"),
        (
            {"blank": "optional", "blank_label": 3},
            "the blank must be one of the 3 labels, but it is 3",
        ),
        ({"blank": "forced", "blank_label": -1}, ".* the 3 labels, but it is -1"),
        (
            {"allow_repeats": False},
            "without repeats equal tokens need a blank between them, but blank is 'none'",
        ),
        ({"min_frames": 0}, "the least number of frames must be 1 or more, but it is 0"),
        (
            {"min_frames": 3, "max_frames": 2},
            "the most frames must not be fewer than the least, but they are 2 and 3",
        ),
        ({"max_frames": 0}, "the most frames must not be fewer .* 0 and 1"),
        (
            {"blank": "optional", "min_blanks": -1},
            "the least number of blanks must be 0 or more, but it is -1",
        ),
        (
            {"blank": "optional", "min_blanks": 3, "max_blanks": 2},
            "the most blanks must not be fewer than the least, but they are 2 and 3",
        ),
        (
            {"max_blanks": 2},
            "limits on the number of blanks need a blank, but blank is 'none' and the limits are "
            "0 to 2",
        ),
        (
            {"blank": "forced", "max_blanks": 0},
            "a forced blank needs room for a blank between tokens, but at most 0 are allowed",
        ),
        (
            {"blank": "optional", "allow_repeats": False, "max_blanks": 0},
            "disallowing repeats needs room for a blank between tokens, but at most 0 are allowed",
        ),
        (
            {"overrides": {3: (1, 2)}},
            "overrides must be for labels that are 0 to 2, but one is for 3",
        ),
        (
            {"blank": "optional", "overrides": {0: (1, 2)}},
            r"overrides must be for labels that are 0 to 2 and not the blank \(0\), "
            "but one is for 0",
        ),
        (
            {"overrides": {1: (2, 1)}},
            "the most frames of token 1 must not be fewer than the least, but they are 1 and 2",
        ),
        ({"overrides": {1: (0, 1)}}, "the least number of frames of token 1 must be 1 or more"),
    ],
)
def test_invalid_tokens_are_errors(options, message):
    with pytest.raises(ValueError, match=f"Tokens: {message}"):
        Tokens(**{"num_labels": 3} | options)


@pytest.mark.parametrize("overrides", [3, [1, 2], {1: 2}, {"a": (1, 2)}, {1: (None, 2)}])
def test_overrides_must_map_labels_to_pairs(overrides):
    with pytest.raises(TypeError, match=r"Tokens: overrides must .*, but "):
        Tokens(3, overrides=overrides)


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
            r"Tokens.graph: a graph holds at most 2\^31 - 1 nodes, but this one would have",
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


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([1, 3], r"must be 0 to 2 and not the blank \(0\), but label 1 is 3"),
        ([-1], r"must be 0 to 2 and not the blank \(0\), but label 0 is -1"),
        ([2, 1, 0], r"must be 0 to 2 and not the blank \(0\), but label 2 is 0"),
        (ag.chain_graph([1, 4]), r"must be 0 to 2 and .*, but the label of arc 1 is 4"),
        (ag.chain_graph([0]), r"must be 0 to 2 and .*, but the label of arc 0 is 0"),
    ],
)
def test_labels_that_are_not_tokens_are_named(target, message):
    tokens = Tokens.ctc(3)
    message = f"a label of the target {message}"
    with pytest.raises(ValueError, match=f"alignment_graph: {message}"):
        alignment_graph(tokens, target)
    good = ag.chain_graph([1]) if isinstance(target, ag.Graph) else [1]
    with pytest.raises(ValueError, match=rf"alignment_graph \(element 2 of 3\): {message}"):
        alignment_graph(tokens, [good, good, target])


def test_labels_of_a_ctc_graph_are_named():
    with pytest.raises(
        ValueError,
        match=r"ctc_graph: a label of the target must be 0 or more and not the blank \(2\), "
        "but label 1 is 2",
    ):
        ctc_graph([1, 2], 2)
    with pytest.raises(ValueError, match=r"ctc_graph \(element 1 of 2\): .*, but label 0 is -3"):
        ctc_graph(np.array([[1], [-3]]))
    with pytest.raises(ValueError, match="ctc_graph: the blank must be 0 or more, but it is -1"):
        ctc_graph([1], -1)
    with pytest.raises(ValueError, match=r"fit 32 bits, but number 1 of sequence 0 is 109951"):
        ctc_graph(np.array([[1, 2**40]]))
    with pytest.raises(ValueError, match="fit 32 bits"):
        ctc_graph([1, 2**40])


@pytest.mark.parametrize(
    ("target", "lengths", "message"),
    [
        ([[1, 2]], [1, 1], "there must be one length per row, but there are 2 lengths for 1 rows"),
        ([[1, 2]], [3], "a length must be 0 or more and at most 2, but length 0 is 3"),
        ([[1, 2]], [-1], "a length must be 0 or more and at most 2, but length 0 is -1"),
        ([1, 2], [1, -1], "a length must be 0 or more, but length 1 is -1"),
        ([1, 2], [1, 2], "the lengths must add up to the 2 labels of .*, but they add up to 3"),
        (np.zeros((1, 1, 1), int), [1], "the target must have one or two dimensions, but .*shape"),
        (np.zeros((1, 1, 1), int), None, "the target must have one or two dimensions, but .*shape"),
    ],
)
def test_lengths_that_do_not_fit_are_errors(target, lengths, message):
    with pytest.raises(ValueError, match=f"ctc_graph: {message}"):
        ctc_graph(target, lengths=lengths)


@pytest.mark.parametrize(
    "target", [[1.5], [[1.5]], np.array([1.5]), np.array([[True]]), 5, "ab", [[1], 2], [["a"]]]
)
def test_targets_that_are_not_integers_are_type_errors(target):
    for build_graph in (ctc_graph, partial(alignment_graph, Tokens.ctc(4))):
        with pytest.raises(TypeError):
            build_graph(target)


def test_target_graphs_determine_the_dtype():
    tokens, target = Tokens.ctc(3), ag.chain_graph([1])
    for options in ({"calc_grad": True}, {"dtype": "float64"}):
        with pytest.raises(ValueError, match="alignment_graph: calc_grad and dtype need a target"):
            alignment_graph(tokens, target, **options)
    with pytest.raises(ValueError, match="alignment_graph: lengths needs a target"):
        alignment_graph(tokens, target, lengths=[1])
    with pytest.raises(ValueError, match="a target graph must be an acceptor, but it is a trans"):
        alignment_graph(tokens, ag.chain_graph([1], [2]))
    with pytest.raises(
        ValueError, match="a token as input label, but arc 0 has epsilon and the output label 2"
    ):
        alignment_graph(tokens, ag.chain_graph([eps], [2]), outputs=True)
    with pytest.raises(ValueError, match="outputs needs a target graph, but the target is given"):
        alignment_graph(tokens, [1], outputs=True)
    with pytest.raises(TypeError, match="must hold graphs only or labels only, but it holds both"):
        alignment_graph(tokens, [target, [1]])
    with pytest.raises(TypeError):
        alignment_graph(tokens, [[1], target])


def test_an_epsilon_cycle_of_a_target_that_diverges_is_an_error():
    target = build(2, {0}, {1}, [(0, 0, eps, eps, 0.5), (0, 1, 1)])
    with pytest.raises(ValueError, match=r"remove: .*, but"):
        alignment_graph(Tokens.asg(2), target)
