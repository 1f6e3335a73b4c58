"""Graph programs as functions of torch."""

import copy

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad import _core
from arcgrad.torch import _leaves

F64 = torch.float64


def random(*shape, dtype=F64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def bigram():
    """All pairs of two labels."""
    return ag.Graph.from_arrays(
        [0, 0, 1, 1, 2, 2], [1, 2, 1, 2, 1, 2], [0, 1] * 3, start=[0], accept=[1, 2]
    )


def total(x, lengths=None, **options):
    return agt.tensor(ag.forward_score(agt.emissions(x, lengths, **options)))


def normalized(x, weights):
    """A program of several ops: a loss with learned transitions."""
    emissions, transitions = agt.emissions(x), agt.graph(bigram(), weights)
    targets = [ag.tokens.ctc_graph([1], blank=0), ag.tokens.ctc_graph([1, 1], blank=0)]
    allowed = ag.intersect(ag.intersect(targets, transitions), emissions)
    everything = ag.intersect(transitions, emissions)
    return agt.tensor(ag.subtract(ag.forward_score(everything), ag.forward_score(allowed)))


# Values and gradients


def test_a_score_equals_logsumexp():
    x = random(3, 5, 4)
    assert torch.allclose(total(x), x.logsumexp(-1).sum(-1))
    assert torch.allclose(total(x[0]), x[0].logsumexp(-1).sum())
    assert total(x[0]).shape == ()


@pytest.mark.parametrize("lengths", [None, [5, 3, 0], torch.tensor([5, 3, 0]), np.array([5, 3, 0])])
def test_derivatives_of_emissions(lengths):
    x = random(3, 5, 4)
    assert gradcheck(total, (x, lengths))
    assert gradgradcheck(total, (x, lengths))


def test_derivatives_of_a_program_with_weights():
    x, weights = random(2, 4, 2), random(6)
    assert gradcheck(normalized, (x, weights))
    assert gradgradcheck(normalized, (x, weights))


def test_derivatives_of_time_major_and_strided_tensors():
    x = random(5, 3, 4)
    assert gradcheck(lambda x: total(x, [5, 2, 4], batch_first=False), x)
    assert gradgradcheck(lambda x: total(x, [5, 2, 4], batch_first=False), x)
    wide = random(3, 4, 10)
    assert gradcheck(lambda x: total(x.transpose(1, 2)[:, ::2, 1:3]), wide)
    assert gradcheck(lambda x: total(x.expand(3, 5, 4)), random(1, 5, 1))


def test_a_graph_of_many_arcs_is_a_tensor():
    weights = random(6)
    assert agt.tensor(ag.negate(agt.graph(bigram(), weights))).tolist() == (-weights).tolist()
    assert gradcheck(lambda w: agt.tensor(ag.scale(agt.graph(bigram(), w), 3.0)), weights)
    several = agt.graph(bigram(), random(4, 6), batch=True)
    assert agt.tensor(several).shape == (4, 6)


def test_weights_may_have_any_shape_and_strides():
    matrix = random(3, 2)

    def score(w):
        return agt.tensor(ag.forward_score(ag.intersect(agt.graph(bigram(), w), constant)))

    constant = ag.linear_graph(3, 2, np.ones((3, 2)), calc_grad=False)
    assert torch.equal(score(matrix), score(matrix.reshape(-1)))
    assert gradcheck(score, matrix)
    assert gradcheck(lambda w: score(w.T), random(2, 3))
    assert gradgradcheck(lambda w: score(w.T), random(2, 3))


def test_graphs_of_a_list_share_a_tensor():
    parts = [bigram(), ag.chain_graph([0, 1, 1]), ag.chain_graph([1])]
    weights = random(10)

    def scores(weights):
        graphs = agt.graph(parts, weights)
        finite = ag.intersect([graphs[0], graphs[1]], ag.linear_graph(3, 2, calc_grad=False))
        return agt.tensor(ag.forward_score([*finite, graphs[2]]))

    own = weights.split([6, 3, 1])
    assert torch.allclose(scores(weights)[1:], torch.stack([own[1].sum(), own[2].sum()]))
    assert gradcheck(scores, weights)
    assert gradgradcheck(scores, weights)
    assert gradcheck(lambda w: scores(w[::2]), random(20))
    assert gradgradcheck(lambda w: scores(w.T), random(2, 5))
    unused = agt.tensor(ag.forward_score(agt.graph(parts, weights)[2]))
    assert torch.autograd.grad(unused, weights)[0].tolist() == [0.0] * 9 + [1.0]


def test_linear_graphs_of_a_list_are_padded():
    x = random(2, 4, 3)

    def posteriors(x):
        graphs = agt.emissions(x, [4, 2])
        return agt.tensor(ag.scale(graphs, 2.0))

    out = posteriors(x)
    assert out.shape == (2, 4, 3)
    assert out[1, 2:].tolist() == [[0.0] * 3] * 2
    assert gradcheck(posteriors, x)


def test_the_same_tensor_may_be_used_twice():
    x = random(2, 3, 4)

    def twice(x):
        return total(x) * agt.tensor(ag.viterbi_score(agt.emissions(x)))

    assert gradcheck(twice, x)


def test_best_paths_are_differentiable():
    x = random(2, 4, 2)
    assert gradcheck(
        lambda x: agt.tensor(ag.viterbi_score(ag.intersect(bigram(), agt.emissions(x)))), x
    )


def test_a_third_derivative_is_refused():
    x = random(3, 2)
    first = torch.autograd.grad(total(x), x, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="beyond the second order"):
        torch.autograd.grad(first.pow(2).sum(), x, create_graph=True)


def test_gradients_are_those_of_both_tapes():
    x = random(2, 3, 4, dtype=torch.float32)
    total(x).sum().backward()
    graph = ag.linear_graph(3, 4, x[1].detach().numpy())
    ag.backward(ag.forward_score(graph))
    np.testing.assert_array_equal(x.grad[1], graph.grad().weights_view())


def test_backward_on_graphs_gives_the_tensor_no_gradient():
    x = random(2, 3, 4)
    graphs = agt.emissions(x)
    ag.backward(ag.forward_score(graphs))
    assert graphs[1].grad().num_arcs() == 12
    assert x.grad is None


# What is computed, and where


def test_padding_is_never_read():
    clean, dirty = random(2, 5, 3), random(2, 5, 3).detach()
    dirty[1, 2:] = torch.nan
    dirty.requires_grad_()
    for x in (clean, dirty):
        total(x, [5, 2]).sum().backward()
    assert torch.equal(clean.grad, dirty.grad)
    assert clean.grad[1, 2:].abs().max() == 0


@pytest.mark.parametrize("batch_first", [True, False])
def test_gradients_have_the_layout_of_the_tensor(batch_first):
    x = random(4, 3, 5, dtype=torch.float32)
    (grad,) = torch.autograd.grad(total(x, batch_first=batch_first).sum(), x)
    assert grad.stride() == x.stride()
    assert torch.allclose(grad, x.softmax(-1), atol=1e-6)


def test_tensors_are_not_copied():
    x = torch.zeros(2, 3, 4)
    with torch.no_grad():
        graphs = agt.emissions(x)
    learned = agt.emissions(x.requires_grad_())
    with torch.no_grad():
        x[1, 2, 3] = 5.0
    assert graphs[1].weights_view()[2, 3] == 5.0
    assert learned[1].weights_view()[2, 3] == 5.0  # and agt.tensor would refuse them


def test_inputs_without_requires_grad_get_no_gradient():
    x, weights = random(1, 3, 2), random(6)
    assert not agt.emissions(x.detach())[0].calc_grad
    assert not agt.graph(bigram(), weights.detach()).calc_grad
    with torch.no_grad():
        assert not agt.emissions(x)[0].calc_grad
        assert not total(x).requires_grad
    with torch.inference_mode():
        assert total(random(2, 3, 4).detach() + 1).shape == (2,)
    score = agt.tensor(
        ag.forward_score(ag.intersect(agt.graph(bigram(), weights), agt.emissions(x.detach())))
    )
    score.sum().backward()
    assert x.grad is None
    assert weights.grad is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    x = random(2, 3, 4, dtype=torch.float32).detach().to(dtype).requires_grad_()
    out = total(x)
    assert out.dtype is torch.float32
    out.sum().backward()
    assert x.grad.dtype is dtype
    assert torch.allclose(x.grad.float(), x.float().softmax(-1), atol=1e-2)


def test_under_autocast():
    layer = torch.nn.Linear(4, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = layer(torch.ones(2, 5, 4))
        assert hidden.dtype is torch.bfloat16
        out = total(hidden)
    assert out.dtype is torch.float32
    out.sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_types_of_results():
    x32, x64 = random(2, 3, 2, dtype=torch.float32), random(2, 3, 2)
    assert total(x32).dtype is torch.float32
    assert total(x64).dtype is F64
    assert total(x32.detach()).dtype is F64  # scores are float64, as no tensor determines the dtype
    assert agt.tensor(ag.forward_score(agt.emissions(x32)), dtype=F64).dtype is F64
    mixed = ag.intersect(agt.graph(bigram(), random(6)), agt.emissions(x32))
    assert agt.tensor(ag.forward_score(mixed)).dtype is F64


def test_only_to_host_copies_from_a_device_and_results_return_to_it(monkeypatch):
    """A device that only `to_host` can read."""
    moved = []

    def to_host(x):
        moved.append(tuple(x.shape))
        return x * 1.0  # a copy, on the tape

    monkeypatch.setattr(_leaves, "to_host", to_host)
    x, weights = random(2, 4, 2), random(6)
    out = normalized(x, weights)
    assert moved == [(2, 4, 2), (6,)]
    out.sum().backward()
    monkeypatch.undo()
    expected = torch.autograd.grad(normalized(x, weights).sum(), (x, weights))
    assert torch.allclose(x.grad, expected[0])
    assert torch.allclose(weights.grad, expected[1])


def test_results_are_on_the_requested_device():
    score = ag.forward_score(agt.emissions(random(2, 3, 4)))
    assert agt.tensor(score, device="meta").device.type == "meta"


def test_hooks_see_gradients():
    x = random(2, 3, 4)
    seen = []
    out = total(x)
    out.register_hook(lambda grad: seen.append(grad.shape))
    x.register_hook(lambda grad: grad * 0)
    out.sum().backward()
    assert seen == [(2,)]
    assert x.grad.abs().max() == 0


def test_an_infinite_score_passes_no_gradient():
    x = random(2, 2, 3)
    graphs = agt.emissions(x)
    impossible = ag.intersect(ag.tokens.ctc_graph([1, 1, 1, 1]), graphs)
    loss = agt.tensor(ag.subtract(ag.forward_score(graphs), ag.forward_score(impossible)))
    assert loss.tolist() == [np.inf, np.inf]
    loss.sum().backward()
    assert x.grad.abs().max() == 0


# Errors


def test_shapes_are_checked():
    with pytest.raises(ValueError, match=r"emissions: the tensor must have the shape \[T, C\] or"):
        agt.emissions(torch.zeros(3))
    with pytest.raises(ValueError, match=r"\[T, B, C\], but its shape is \[1, 2, 3, 4\]"):
        agt.emissions(torch.zeros(1, 2, 3, 4), batch_first=False)
    with pytest.raises(ValueError, match="emissions: there must be one length per example, 2 in"):
        agt.emissions(torch.zeros(2, 3, 4), [1])
    with pytest.raises(ValueError, match="between 0 and 3, the number of frames, but the length"):
        agt.emissions(torch.zeros(2, 3, 4), [1, 4])
    with pytest.raises(
        ValueError, match=r"graph: there must be one weight per arc, 6, but the ten"
    ):
        agt.graph(bigram(), torch.zeros(5))
    with pytest.raises(ValueError, match="graph: a batch of weights needs a dimension"):
        agt.graph(bigram(), torch.tensor(0.0), batch=True)
    with pytest.raises(ValueError, match="graph: a batch of weights needs a single graph, but"):
        agt.graph([bigram()], torch.zeros(1, 6), batch=True)
    with pytest.raises(ValueError, match="per arc, 12, but the tensor has the shape"):
        agt.graph([bigram(), bigram()], torch.zeros(6))
    with pytest.raises(ValueError, match="must not be dense and linear, but element 1 is"):
        agt.graph([bigram(), ag.linear_graph(1, 2)], torch.zeros(8))
    with pytest.raises(ValueError, match=r"the same number of arcs .*, but they have \[1, 6\]"):
        agt.tensor([bigram(), ag.linear_graph(1, 1), ag.scalar_graph(1.0)])


def test_types_are_checked():
    with pytest.raises(TypeError, match="emissions: a tensor is needed, but it is of type ndarray"):
        agt.emissions(np.zeros((2, 3)))
    with pytest.raises(TypeError, match=r"must hold real numbers, but its dtype is torch.int64"):
        agt.emissions(torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(
        TypeError, match=r"must hold real numbers, but its dtype is torch.complex64"
    ):
        agt.emissions(torch.zeros(2, 3, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"must be dense, but its layout is torch.sparse_coo"):
        agt.emissions(torch.zeros(2, 3).to_sparse())


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_transforms_and_forward_mode_are_refused():
    x = random(3, 4)
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.vmap):
        with pytest.raises(RuntimeError, match="emissions: graphs cannot be used under transforms"):
            transform(total)(x if transform is not torch.func.vmap else x[None])
    scores = ag.forward_score(agt.emissions(x))
    with pytest.raises(RuntimeError, match="tensor: graphs cannot be used under transforms"):
        torch.func.grad(lambda x: x.sum() + agt.tensor(scores))(x)
    for needs_grad in (True, False):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x.detach().requires_grad_(needs_grad), torch.ones(3, 4))
            with pytest.raises(RuntimeError, match="graphs have no forward-mode derivative"):
                total(dual)


def test_a_graph_over_a_tensor_can_be_copied():
    graph = agt.emissions(random(1, 3, 4))[0]
    other = copy.deepcopy(graph)
    assert ag.equal(graph, other)
    assert not agt.tensor(ag.forward_score(other)).requires_grad


# Programs that torch compiles


@pytest.mark.filterwarnings("ignore")  # a warning of the compiler itself
def test_a_compiled_program_has_one_break():
    @torch.compiler.disable
    def loss(x):
        return total(x)

    def step(x):
        return loss(torch.sin(x)).sum() * 2

    x = random(2, 3, 4)
    explained = torch._dynamo.explain(step)(x)
    assert explained.graph_break_count == 1
    torch._dynamo.reset()
    compiled = torch.compile(step, backend="aot_eager")
    assert torch.allclose(compiled(x), step(x))
    (grad,) = torch.autograd.grad(compiled(x), x)
    assert torch.allclose(grad, torch.autograd.grad(step(x), x)[0])


# Regression tests


@pytest.mark.parametrize("kernel", [None, "csr", "lanes"])
def test_emissions_without_a_gradient_may_change_before_backward(kernel):
    x, weights = random(2, 6, 2).detach(), random(6)
    expected = torch.autograd.grad(normalized(x, weights).sum(), weights)[0]
    _core.force_kernel(kernel)
    try:
        out = normalized(x, weights)
        x.mul_(5.0)
        (grad,) = torch.autograd.grad(out.sum(), weights)
    finally:
        _core.force_kernel(None)
    assert torch.allclose(grad, expected)


@pytest.mark.parametrize(("dtype", "other"), [(F64, torch.float32), (torch.float32, F64)])
def test_second_derivatives_survive_another_type(dtype, other):
    x = random(3, 4, dtype=dtype)
    y = agt.tensor(agt.emissions(x), dtype=other).double()
    (first,) = torch.autograd.grad((y**3).sum() + (x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(second, 12 * x, rtol=1e-5)


def test_negated_and_zero_views_are_read_as_torch_reads_them():
    x = torch.randn(1, 3, 4, dtype=torch.complex64).conj().imag
    assert x.is_neg()
    assert torch.allclose(total(x).float(), x.logsumexp(-1).sum(-1))
    zeros = torch._efficientzerotensor((1, 2, 3))
    assert total(zeros).item() == pytest.approx(2 * np.log(3))


def test_a_single_result_may_be_changed_in_place():
    x = random(5, 4)
    value = total(x)
    value += 1
    value.backward()
    assert torch.allclose(x.grad, x.softmax(-1))


def test_one_example_has_one_length():
    with pytest.raises(ValueError, match="emissions: there must be one length per example, 1 in"):
        agt.emissions(torch.zeros(3, 4), [3, 3])
    with pytest.raises(TypeError, match="tensor: graphs must be a Graph or a list of Graphs"):
        agt.tensor(3)
