"""Losses of targets that no path spells, and masks of bools instead of lengths."""

import math

import numpy as np
import pytest
import torch
from torch_cases import random

import arcgrad as ag
import arcgrad.torch as agt

# Infeasible targets that raise


def test_an_infeasible_target_is_infinite_or_raises():
    x = torch.zeros(4, 2, 4)
    call = x, [[1, 2], [3, 3, 3]], [4, 4], [2, 3]
    assert agt.ctc_loss(*call, reduction="none")[1] == math.inf
    with pytest.raises(ValueError, match="infeasible must be 'raise' or 'propagate', but it is 3"):
        agt.ctc_loss(*call, infeasible=3)
    with pytest.raises(
        ValueError,
        match=r"^CTCLoss \(element 1 of 2\): the target must have an alignment with a finite score,"
        r" but \[3, 3, 3\] has none: the target needs at least 5 frames, but there are 4$",
    ):
        agt.ctc_loss(*call, infeasible="raise")
    assert agt.ctc_loss(x, [[1, 2], [3, 3]], [4, 4], [2, 2], infeasible="raise") < math.inf


def tag_loss(transitions):
    """A linear-chain CRF: one label per frame, with scores of transitions."""
    bigram = ag.ngram.dense_graph(3, 2)
    bigram.set_weights(transitions)

    def alignments(targets):
        return [ag.intersect(ag.chain_graph(list(map(int, tags))), bigram) for tags in targets]

    return agt.SequenceLoss(alignments, bigram, infeasible="raise")


def test_an_illegal_tag_raises_with_its_position():
    transitions = np.zeros((4, 3))
    transitions[1 + 2, 1] = -math.inf  # tag 1 may not follow tag 2
    loss = tag_loss(transitions)
    x = random(2, 4, 3).requires_grad_()
    loss(x, [[0, 1, 2, 0], [1, 1, 0, 2]]).backward()
    with pytest.raises(
        ValueError,
        match=r"\(element 1 of 2\): .* but \[0, 2, 1, 1\] has none: no alignment has a finite score"
        r" beyond frame 2, whose label must be 1, because the weights of its arcs are -inf$",
    ):
        loss(x, [[0, 1, 2, 0], [0, 2, 1, 1]])


def test_an_impossible_emission_raises_with_its_frame():
    loss = tag_loss(np.zeros((4, 3)))
    x = random(1, 4, 3)
    x[0, 3, 2] = -math.inf
    assert loss(x, [[2, 2, 2, 1]]) < math.inf
    with pytest.raises(
        ValueError, match="beyond frame 3, whose label must be 2, because its emission is -inf"
    ):
        loss(x, [[2, 2, 2, 2]])


def test_an_explanation_follows_epsilons_and_names_the_end():
    lattice = ag.concat([ag.chain_graph([0]), ag.union([ag.chain_graph([1]), ag.chain_graph([2])])])
    loss = agt.SequenceLoss([lattice])
    x = torch.zeros(1, 2, 3)
    assert loss.explain_infeasible(x, [[0]]) == {}
    x[0, 1, 1:] = -math.inf
    assert loss.explain_infeasible(x, [[0]]) == {
        0: "no alignment has a finite score beyond frame 1, whose label must be 1 or 2, because "
        "its emission is -inf"
    }
    assert "length is not 3 frames" in loss.explain_infeasible(torch.zeros(1, 3, 3), [[0]])[0]


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: agt.CTCLoss(**o),
        lambda **o: agt.STCLoss(**o),
        lambda **o: agt.ASGLoss(3, **o),
        lambda **o: agt.TransducerLoss(3, **o),
    ],
)
def test_every_loss_has_the_option(make):
    assert make(infeasible="raise").infeasible == "raise"
    with pytest.raises(ValueError, match="infeasible must be"):
        make(infeasible="never")


# Masks


def mask(lengths, width):
    return torch.arange(width) < torch.tensor(lengths)[:, None]


FORMS = [lambda m: m, lambda m: m.numpy(), lambda m: m.tolist()]


@pytest.mark.parametrize("form", FORMS)
def test_masks_are_accepted_where_lengths_are(form):
    x, frames, labels = random(3, 6, 4), [6, 4, 5], [2, 0, 1]
    targets = torch.tensor([[1, 2, 0], [0, 0, 0], [3, 0, 0]])
    masks = form(mask(frames, 6)), form(mask(labels, 3))
    turned = x.transpose(0, 1).log_softmax(-1)
    assert torch.equal(
        agt.ctc_loss(turned, targets, *masks), agt.ctc_loss(turned, targets, frames, labels)
    )
    loss = agt.TransducerLoss(3, blank="optional", nan="propagate")
    assert torch.equal(loss(x, targets, *masks), loss(x, targets, frames, labels))
    broken = x.clone()
    broken[1, 5] = math.nan
    assert torch.equal(loss(broken, targets, *masks), loss(x, targets, frames, labels))
    broken[1, 3] = math.nan
    assert loss(broken, targets, *masks).isnan()
    for one, other in zip(agt.emissions(x, masks[0]), agt.emissions(x, frames), strict=True):
        assert ag.equal(one, other)
    assert agt.viterbi(x, masks[0]) == agt.viterbi(x, frames)
    assert agt.forced_align(x, targets, *masks) == agt.forced_align(x, targets, frames, labels)
    found = agt.beam_search(x, lengths=masks[0], nbest=1)
    assert found == agt.beam_search(x, lengths=frames, nbest=1)
    layer = agt.ConvTransducer1d(4, [[1], [2, 3]], 3, dtype=torch.float64)
    assert torch.equal(layer(x, masks[0]), layer(x, frames))
    assert layer.output_lengths(masks[0]).tolist() == layer.output_lengths(frames).tolist()


@pytest.mark.parametrize("form", FORMS)
def test_one_example_may_have_a_mask(form):
    x = random(6, 4)
    short = form(mask([4], 6)[0])
    assert ag.equal(agt.emissions(x, short), agt.emissions(x, 4))


@pytest.mark.parametrize("form", [np.array, lambda m: m])
def test_masks_in_numpy(form):
    x, frames = random(3, 6, 4).numpy(), [6, 4, 5]
    lengths = form(mask(frames, 6).tolist())
    for one, other in zip(ag.linear_graphs(x, lengths), ag.linear_graphs(x, frames), strict=True):
        assert ag.equal(one, other)
    targets, sizes = np.array([[1, 2], [1, 0]]), [2, 1]
    rows = form(mask(sizes, 2).tolist())
    tokens = ag.tokens.Tokens.ctc(4)
    for make in (
        lambda lengths: ag.tokens.ctc_graph(targets, lengths=lengths),
        lambda lengths: ag.tokens.alignment_graph(tokens, targets, lengths=lengths),
    ):
        assert all(map(ag.equal, make(rows), make(sizes)))
    assert tokens.collapse(targets, lengths=rows) == tokens.collapse(targets, lengths=sizes)


def test_a_mask_must_be_true_up_to_a_length_and_have_a_column_per_frame():
    x = random(2, 3, 4)
    hole = torch.tensor([[True, True, True], [True, False, True]])
    layer = agt.ConvTransducer1d(4, [[1]], 1, dtype=torch.float64)
    calls = {
        "emissions": lambda lengths: agt.emissions(x, lengths),
        "linear_graphs": lambda lengths: ag.linear_graphs(x.numpy(), lengths.numpy()),
        "ConvTransducer1d": lambda lengths: layer(x, lengths),
        "CTCLoss": lambda lengths: agt.ctc_loss(
            x.transpose(0, 1), torch.ones(2, 3, dtype=torch.int64), [3, 3], lengths
        ),
    }
    for op, call in calls.items():
        with pytest.raises(ValueError, match=rf"^{op}: each row of a mask .*, but row 1 "):
            call(hole)
        with pytest.raises(ValueError, match=rf"^{op}: a mask of lengths must have .*, but it"):
            call(mask([1, 2], 2))
        with pytest.raises(ValueError, match=rf"^{op}: "):
            call(mask([1, 2, 3], 3))
