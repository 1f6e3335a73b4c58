"""intersect: composition of acceptors."""

import pytest
from tools import acceptor, snapshot

import arcgrad as ag


def test_rejects_a_transducer_and_names_the_arc():
    transducer = ag.chain_graph([0, 1], [0, 2])
    with pytest.raises(ValueError, match=r"intersect: .*acceptor.*, but .*arc 1.*compose"):
        ag.intersect(transducer, acceptor((0, 1)))
    with pytest.raises(ValueError, match=r"intersect: .*acceptor.*, but .*arc 1.*compose"):
        ag.intersect(acceptor((0, 1)), transducer)


def test_equals_compose_on_acceptors():
    first, second = acceptor((0, 1), (0,)), acceptor((0, 1), (1,))
    assert snapshot(ag.intersect(first, second)) == snapshot(ag.compose(first, second))


def test_scores_add():
    both = ag.intersect(acceptor((0, 1), weight=1.0), acceptor((0, 1), weight=0.25))
    assert ag.forward_score(both).item() == 2.5


def test_says_which_element_of_a_list_is_wrong():
    good, bad = acceptor((0,)), ag.chain_graph([0], [1])
    with pytest.raises(ValueError, match=r"intersect \(element 1 of 3\): .*acceptor"):
        ag.intersect([good, bad, good], good)
