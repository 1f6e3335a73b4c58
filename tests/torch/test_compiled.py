"""Losses and layers in programs that torch.compile compiles, down to machine code."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
from tools import long_only, run_python
from torch_cases import random

import arcgrad.torch as agt
from arcgrad.tokens import Tokens

pytestmark = pytest.mark.filterwarnings("ignore")  # warnings of the compiler itself


def check_equal_to_eager(step, inputs, **options):
    torch._dynamo.reset()
    values = []
    for function in (torch.compile(step, **options), step):
        value = function()
        values.append((value, *torch.autograd.grad(value, inputs)))
    for compiled, eager in zip(*values, strict=True):
        assert torch.allclose(compiled, eager, rtol=1e-6, atol=1e-9)


def check_loss(backend):
    x = random(2, 6, 4).requires_grad_()
    loss = agt.TransducerLoss(Tokens.ctc(4), transitions=2).double()
    targets, lengths = torch.tensor([[1, 2], [3, 0]]), torch.tensor([2, 1])
    check_equal_to_eager(
        lambda: loss(torch.sin(x) * 2, targets, [6, 5], lengths) + 1,
        [x, *loss.parameters()],
        fullgraph=True,
        backend=backend,
    )


def check_layer(backend):
    x = random(2, 6, 4).requires_grad_()
    layer = agt.ConvTransducer1d(4, [[1], [1, 2], [3]], kernel_size=3, padding=1).double()
    check_equal_to_eager(
        lambda: torch.tanh(layer(torch.sin(x)) * 0.1).sum(),
        [x, *layer.parameters()],
        backend=backend,
    )


def test_a_layer_compiles():
    check_layer("aot_eager")


# The layer breaks the compiled program into parts, whose machine code takes four calls of g++.
@pytest.mark.serial
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++")
@pytest.mark.parametrize("check", ["check_loss", pytest.param("check_layer", marks=long_only)])
def test_machine_code_is_compiled(check):
    # In a process of its own: machine code of older versions of torch sets the processor to flush
    # small numbers to zero. Compiling the headers of torch once pays off for several programs only.
    code = f"""
import sys
sys.path[:0] = {sys.path!r}
import torch._dynamo, torch._inductor.config
import test_compiled
torch._dynamo.config.suppress_errors = False
torch._inductor.config.cpp_cache_precompile_headers = False
test_compiled.{check}("inductor")
print("equal")
"""
    # Without torch's pool of compiling processes, each of which would import torch, and without its
    # checks of vector instructions.
    options = {
        "PYTHONPATH": str(Path(__file__).parent),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }
    assert run_python(code, **options).strip() == "equal"


@pytest.mark.parametrize(
    "targets",
    [
        [[1, 2], [3]],
        [[2], []],
        [[], []],
        [torch.tensor([1, 2]), torch.tensor([3])],
        [torch.tensor([1, 2]), torch.tensor([3, 1])],
    ],
    ids=str,
)
def test_compiled_losses_take_the_lists_that_eager_ones_take(targets):
    loss = agt.TransducerLoss(Tokens.ctc(4)).double()
    x = random(2, 6, 4).requires_grad_()
    check_equal_to_eager(lambda: loss(x, targets), [x], fullgraph=True, backend="aot_eager")


@pytest.mark.parametrize("lengths", [[2, 1], torch.tensor([2, 1])], ids=["list", "tensor"])
def test_compiled_losses_take_lengths_beside_a_ragged_list(lengths):
    loss = agt.TransducerLoss(Tokens.ctc(4)).double()
    x = random(2, 6, 4).requires_grad_()
    check_equal_to_eager(
        lambda: loss(x, [[1, 2], [3]], target_lengths=lengths),
        [x],
        fullgraph=True,
        backend="aot_eager",
    )


@pytest.mark.parametrize(
    ("lengths", "pattern"),
    [([1, 2], "length 0 is -1"), ([2], "there must be one target")],
)
def test_compiled_losses_refuse_other_lengths_of_a_ragged_list(lengths, pattern):
    loss = agt.TransducerLoss(Tokens.ctc(4))
    torch._dynamo.reset()
    compiled = torch.compile(loss, backend="eager")
    with pytest.raises(ValueError, match=pattern):
        compiled(torch.zeros(2, 6, 4), [[1, 2], [3]], target_lengths=lengths)


def test_the_operators_do_not_need_torch_to_read_annotations():
    # Versions up to 2.6 cannot read postponed annotations, nor `Tensor | None`.
    code = """
import importlib, torch, torch._dynamo
def refuse(*args, **options):
    raise ValueError("annotations are not read")
for name in ("torch.library", "torch._library.infer_schema", "torch._library.custom_ops"):
    module = importlib.import_module(name)
    if hasattr(module, "infer_schema"):
        module.infer_schema = refuse
import arcgrad.torch._compiled
print(torch.ops.arcgrad.sequence_loss.default._schema)
"""
    assert run_python(code).strip() == (
        "arcgrad::sequence_loss(Tensor emissions, Tensor targets, Tensor? lengths, "
        "Tensor? target_lengths, Tensor[] weights, int handle, str reduction, "
        "bool zero_infinity) -> Tensor"
    )
