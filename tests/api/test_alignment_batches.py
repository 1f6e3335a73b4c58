"""`ctc_graph` and `alignment_graph` of several targets: formats, lengths and errors."""

import itertools
from functools import partial

import numpy as np
import pytest
from token_rules import eps
from tools import snapshot

import arcgrad as ag
from arcgrad.tokens import (
    Tokens,
    alignment_graph,
    ctc_graph,
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


# Errors


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
        match=r"ctc_graph: a label of the target must be 0 to 2147483646 and not the blank \(2\), "
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
