"""The lifetime of tapes of graph programs in torch: retained graphs, edits and memory."""

import gc
import os
import weakref

import numpy as np
import psutil
import pytest
import torch

import arcgrad as ag
import arcgrad.torch as agt

F64 = torch.float64


def random(*shape, dtype=F64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def total(x, lengths=None, **options):
    return agt.tensor(ag.forward_score(agt.emissions(x, lengths, **options)))


def test_retained_graphs_are_differentiated_again():
    x = random(2, 3, 4)
    out = total(x).sum()
    out.backward(retain_graph=True)
    first = x.grad.clone()
    out.backward()
    assert torch.equal(x.grad, 2 * first)
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_a_tensor_changed_before_the_result_is_refused():
    x = random(2, 3, 4) * 1.0
    graphs = agt.emissions(x)
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="emissions: the tensor must not be changed in place"):
        agt.tensor(ag.forward_score(graphs))


def test_a_tensor_changed_before_backward_is_refused():
    x = random(2, 3, 4) * 1.0
    out = total(x)
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_a_leaf_with_other_weights_or_arcs_leaves_its_tensor():
    x = random(2, 3, 4)
    one, two = agt.emissions(x)
    one.set_weights(np.zeros(12))
    two.add_node()
    assert not agt.tensor(ag.forward_score([one, two])).requires_grad


def test_memory_is_freed_after_backward():
    class Tracked(torch.Tensor):
        pass

    x = random(2, 3, 4).detach().as_subclass(Tracked).requires_grad_()
    alive = weakref.ref(x)
    total(x).sum().backward()
    del x
    gc.collect()
    assert alive() is None


@pytest.mark.skipif("asan" in os.environ.get("LD_PRELOAD", ""), reason="ASan keeps freed memory")
def test_memory_stays_flat_over_many_steps():
    process = psutil.Process(os.getpid())
    x = random(4, 50, 30)

    def step():
        out = total(x)
        grad = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
        grad.pow(2).sum().backward()
        x.grad = None

    for _ in range(200):
        step()
    before = process.memory_info().rss
    for _ in range(1000):
        step()
    assert process.memory_info().rss - before < 16 << 20


@pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_get_current_graph_task_keep_graph"),
    reason="this torch does not tell whether it keeps its graph, so the tape is kept",
)
def test_results_are_freed_although_a_loss_is_kept():
    """Backward frees the tape of graphs, like the tape of torch."""
    x = random(1, 3, 4)
    out = total(x)
    out.sum().backward()
    assert out.grad_fn.output is None
