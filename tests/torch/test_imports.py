"""What importing and calling arcgrad.torch imports of torch."""

from tools import run_python

# Torch's compiler takes longer to import than torch itself.
START = """
import sys, torch
def has_compiler():
    return "torch._dynamo" in sys.modules
torch.zeros(1, requires_grad=True).mul(2).sum().backward()
found = [has_compiler()]
import arcgrad.torch as agt
found.append(has_compiler())
x = torch.zeros(4, 2, 3, requires_grad=True)
targets, lengths, sizes = torch.tensor([[1], [2]]), torch.tensor([4, 3]), torch.tensor([1, 1])
"""


def test_only_compiled_programs_import_the_compiler_and_register_operators():
    code = f"""{START}
agt.ctc_loss(x, targets, lengths, sizes, from_logits=True).backward()
found.append(has_compiler())
agt.ConvTransducer1d(3, [[1], [1, 2]], kernel_size=2)(x).sum().backward()
found.append(has_compiler())
print(*found)

import warnings
warnings.simplefilter("ignore")
def has_operator():
    return hasattr(torch.ops.arcgrad, "sequence_loss")
def step(x):
    return agt.ctc_loss(x, targets, lengths, sizes)
before = has_operator()
torch.compile(step, fullgraph=True, backend="eager")(x)
print(before, has_operator())
"""
    imported, registered = run_python(code).splitlines()
    first, *others = imported.split()
    assert others == [first] * 3
    assert registered.split() == ["False", "True"]


def test_modules_that_losses_do_not_need_are_imported_on_first_access():
    code = """
import sys, arcgrad as ag, arcgrad.torch as agt
lazy = {"decoding", "lexicon", "ngram", "text"}
print(sorted(name for name in lazy if f"arcgrad.{name}" in sys.modules))
print(lazy <= {*dir(ag)}, {"CTCDecoder", "align_words"} <= {*dir(agt)})
print(ag.ngram.START, agt.CTCDecoder.__name__, issubclass(agt.CTCDecoder, ag.decoding.CTCDecoder))
"""
    assert run_python(code).splitlines() == ["[]", "True True", "-1 CTCDecoder True"]
