"""What losses answer to arguments that are not one dense batch, and inside torch.func."""

import pytest
import torch
from torch_cases import random

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens


def losses():
    return {
        "CTCLoss": agt.CTCLoss(),
        "ASGLoss": agt.ASGLoss(4),
        "STCLoss": agt.STCLoss(),
        "TransducerLoss": agt.TransducerLoss(Tokens.ctc(4), transitions=2),
        "SequenceLoss": agt.SequenceLoss(ag.tokens.alignment_graph(Tokens.ctc(4), [[1], [2, 1]])),
    }


@pytest.mark.parametrize(
    ("emissions", "given"),
    [
        ([torch.zeros(6, 4), torch.zeros(5, 4)], "type list; pad it"),
        (torch.zeros(2, 6, 4).numpy(), "type ndarray"),
        (torch.zeros(2, 6, 4, dtype=torch.int64), "its dtype is torch.int64"),
        (torch.zeros(2, 6, 4).to_sparse(), "its layout is torch.sparse_coo"),
    ],
    ids=["list", "array", "integers", "sparse"],
)
def test_emissions_must_be_one_dense_tensor(emissions, given):
    layer = agt.ConvTransducer1d(4, [[1], [1, 2]], kernel_size=2)
    with pytest.raises(TypeError, match=f"ConvTransducer1d: .*{given}"):
        layer(emissions)
    for name, loss in losses().items():
        with pytest.raises(TypeError, match=f"{name}: .*{given}"):
            loss(emissions, [[1], [2, 1]], [6, 5])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused():
    nested = torch.nested.nested_tensor([torch.zeros(6, 4), torch.zeros(5, 4)])
    for name, loss in losses().items():
        with pytest.raises(TypeError, match=f"{name}: .*it is nested; pad it"):
            loss(nested, [[1], [2, 1]])


@pytest.mark.parametrize(
    ("targets", "rule"),
    [
        ([1, [2, 3]], "targets must hold whole numbers"),
        ([1, 2**70], "targets must hold whole numbers"),
        ([[1], None], "a target must be a sequence of labels or a graph, but target 1 is None"),
        ([[1], torch.tensor(2)], "a target must be a sequence of labels or a graph"),
        ([[1], torch.tensor([[2]])], "a target must be a sequence of labels or a graph"),
    ],
    ids=str,
)
def test_ragged_targets_are_refused_under_the_name_of_the_loss(targets, rule):
    for name, loss in losses().items():
        x = torch.zeros(6, 2, 4) if name == "CTCLoss" else torch.zeros(2, 6, 4)
        with pytest.raises(TypeError, match=f"{name}: {rule}"):
            loss(x, targets, [6, 5], None)


@pytest.mark.parametrize("target", [[[1, 2], [3]], [1.5], "ab"], ids=str)
def test_losses_that_read_labels_refuse_anything_else(target):
    for loss in (agt.STCLoss(), agt.ASGLoss(4, repeats=1)):
        with pytest.raises(TypeError, match="a target must hold whole numbers in one dimension"):
            loss(torch.zeros(1, 6, 5), [target])


def test_ragged_target_lengths_are_refused():
    padded = torch.tensor([[1, 2], [3, 1]])
    with pytest.raises(TypeError, match=r"STCLoss: (target_)?lengths must be"):
        agt.STCLoss()(torch.zeros(2, 6, 5), padded, None, [[1], [1, 2]])


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", losses())
def test_transforms_are_refused_under_the_name_of_the_loss(name):
    loss = losses()[name]
    x, targets = random(6, 4, dtype=torch.float32), [[2, 1]]

    def of_emissions(x):
        return loss(x, targets, [6], None)

    def of_weights(weights):
        return torch.func.functional_call(loss, weights, (x, targets))

    weights = {key: weight.detach() for key, weight in loss.named_parameters()}
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.vmap):
        refused = pytest.raises(RuntimeError, match=f"{name}: graphs cannot be used under transf")
        with refused:
            transform(of_emissions)(x[None] if transform is torch.func.vmap else x)
        if weights and transform is not torch.func.vmap:
            with refused:
                transform(of_weights)(weights)


def test_a_list_with_anything_but_graphs_is_refused_under_the_name_of_the_function():
    pattern = r"tensor \(element 1 of 2\): graphs must be a Graph, but it is 1 \(int\)"
    with pytest.raises(TypeError, match=pattern):
        agt.tensor([ag.scalar_graph(1.0), 1])
