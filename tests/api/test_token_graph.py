"""Full token graphs, and token graphs built by operations, against a definition by enumeration."""

import copy
import math

import numpy as np
import pytest
from gradients import assert_gradient, assert_second_order
from hypothesis import given
from hypothesis import strategies as st
from spec import language, strings
from token_rules import (
    all_frames,
    durations,
    eps,
    every_preset,
    frames_of,
    kinds,
    spellings,
    within,
)
from tools import build, snapshot

import arcgrad as ag
from arcgrad.tokens import (
    Tokens,
    blank_graph,
    closed_graph,
    token_graph,
)

# The definition


def transductions(tokens, length):
    """The language of the full token graph on inputs of one length."""
    return {
        (frames, spelled): math.log(count)
        for frames in all_frames(tokens.num_labels, length)
        for spelled, count in spellings(tokens, frames).items()
    }


# The full token graph


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


def test_the_graphs_of_single_tokens_equal_the_paper():
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
