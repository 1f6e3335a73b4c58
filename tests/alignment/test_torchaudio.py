"""forced_align and merge_tokens with the interface of torchaudio."""

import itertools

import pytest
import torch

from arcgrad.torch.torchaudio import TokenSpan, forced_align, merge_tokens


def collapse(path, blank):
    return [label for label, _ in itertools.groupby(path) if label != blank]


def best_path(log_probs, target, blank):
    """The best of all paths, by enumeration."""
    paths = [
        path
        for path in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs))
        if collapse(path, blank) == target
    ]
    scores = [log_probs[range(len(path)), list(path)].sum().item() for path in paths]
    return paths[scores.index(max(scores))]


def test_paths_are_the_best_of_all():
    torch.manual_seed(0)
    for target, blank in ([1, 2], 0), ([0, 0], 2), ([], 0), ([2, 1, 2], 0):
        log_probs = torch.randn(1, 6, 3).log_softmax(-1)
        paths, scores = forced_align(
            log_probs, torch.tensor([target], dtype=torch.int64), blank=blank
        )
        expected = best_path(log_probs[0], target, blank)
        assert paths.tolist() == [list(expected)]
        assert scores.equal(log_probs[:, range(6), list(expected)])


def test_types_and_lengths():
    log_probs = torch.randn(3, 9, 4, requires_grad=True).log_softmax(-1)
    targets = torch.tensor([[1, 2, 3], [2, 2, 0], [3, 0, 0]], dtype=torch.int32)
    lengths, sizes = torch.tensor([9, 5, 4]), torch.tensor([3, 2, 1])
    paths, scores = forced_align(log_probs.double(), targets, lengths, sizes)
    assert (paths.dtype, scores.dtype) == (torch.int32, torch.float64)
    assert paths.shape == scores.shape == (3, 9)
    assert not scores.requires_grad
    for i, size in enumerate(sizes.tolist()):
        assert collapse(paths[i].tolist(), 0) == targets[i, :size].tolist()
        one = forced_align(log_probs[i : i + 1, : lengths[i]], targets[i : i + 1, :size])
        assert one[0][0].tolist() == paths[i, : lengths[i]].tolist()
        assert scores[i, lengths[i] :].tolist() == [0.0] * (9 - lengths[i].item())


def test_tokens_are_merged():
    tokens = torch.tensor([0, 1, 1, 0, 1, 2, 2, 0])
    scores = torch.tensor([0.0, -1.0, -3.0, 0.0, -4.0, -5.0, -6.0, 0.0])
    spans = merge_tokens(tokens, scores)
    assert spans == [TokenSpan(1, 1, 3, -2.0), TokenSpan(1, 4, 5, -4.0), TokenSpan(2, 5, 7, -5.5)]
    assert [len(span) for span in spans] == [2, 1, 2]
    assert [span.token for span in merge_tokens(tokens, scores, blank=1)] == [0, 0, 2, 0]
    assert merge_tokens(tokens[:1], scores[:1]) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"log_probs": torch.zeros(5, 4)},
            "log_probs must have 3 dimensions and targets 2, but .* 2 and 2",
        ),
        (
            {"targets": torch.zeros(1, 2)},
            "targets must be int32 or int64, but they are torch.float32",
        ),
        (
            {"targets": torch.ones(2, 2, dtype=int)},
            "a target for each of 1 examples, but there are 2",
        ),
        ({"blank": 4}, "the blank must be a label from 0 to 3, but it is 4"),
        (
            {"targets": torch.tensor([[1, 0]])},
            r"must be 0 to 3 and not the blank \(0\), but label 1 is 0",
        ),
        (
            {"targets": torch.tensor([[1, 4]])},
            r"must be 0 to 3 and not the blank \(0\), but label 1 is 4",
        ),
        (
            {"input_lengths": torch.tensor([6])},
            "input_lengths must be between 0 and 5, but one is 6",
        ),
        (
            {"target_lengths": torch.tensor([1, 2])},
            "target_lengths must have 1 entries, but it has 2",
        ),
        ({"targets": torch.tensor([[1, 1, 1, 2]])}, "4 labels and 2 repeats for 5 frames"),
    ],
)
def test_bad_arguments_are_refused(change, message):
    arguments = {"log_probs": torch.zeros(1, 5, 4), "targets": torch.tensor([[1, 2]]), **change}
    with pytest.raises(ValueError, match=f"forced_align: .*{message}"):
        forced_align(**arguments)


def test_bad_paths_are_refused():
    with pytest.raises(ValueError, match="merge_tokens: tokens and scores must have one dimension"):
        merge_tokens(torch.zeros(1, 3), torch.zeros(3))
    with pytest.raises(ValueError, match="must have the same length, but they have 3 and 2"):
        merge_tokens(torch.zeros(3), torch.zeros(2))
