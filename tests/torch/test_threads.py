"""Batches run on the threads that torch has, where they can."""

import os
import sys

import numpy as np
import pytest
from tools import acceptor, run_python

import arcgrad as ag

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.serial

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="threads are shared on Linux")
START = """
import os, threading
import torch
import arcgrad as ag
torch.set_num_threads(2)
ag.set_num_threads(2)
batch = [ag.linear_graph(100, 20) for _ in range(64)]
def use_torch():
    torch.zeros(1_000_000).exp_()
"""


@linux_only
@pytest.mark.skipif("tsan" in os.environ.get("LD_PRELOAD", ""), reason="not under this sanitizer")
def test_the_threads_of_torch_are_used_while_they_spin():
    # On a busy machine they are often stopped at that time, so there are many attempts.
    code = f"""{START}
import time
from arcgrad import _core
end = time.monotonic() + 20
while time.monotonic() < end and _core.num_openmp_loops() < 3:
    use_torch()
    ag.forward_score(batch)
print(_core.num_openmp_loops())
"""
    assert int(run_python(code)) >= 3
    assert int(run_python(code.replace("+ 20", "+ 1"), ARCGRAD_OPENMP="0")) == 0


@linux_only
def test_sleeping_threads_of_torch_are_not_woken_up():
    code = f"""{START}
import time
from arcgrad import _core
use_torch()
ag.forward_score(batch)
before = _core.num_openmp_loops()
for _ in range(5):
    time.sleep(0.1)
    ag.forward_score(batch)
print(_core.num_openmp_loops() - before)
"""
    assert int(run_python(code)) == 0


def test_values_are_the_same_on_both_thread_pools():
    code = f"""{START}
import numpy as np
rng = np.random.default_rng(0)
batch = [ag.linear_graph(100, 20, rng.normal(size=(100, 20))) for _ in range(64)]
use_torch()
scores = ag.forward_score(batch)
ag.backward(scores)
print([s.item() for s in scores], sum(g.grad().weights_to_numpy() for g in batch).tolist())
"""
    assert run_python(code) == run_python(code, ARCGRAD_OPENMP="0")


@pytest.mark.parametrize("numbers", [(1, 2), (2, 1), (2, 3), (3, 2)])
def test_numbers_of_threads_may_differ(numbers, threads):
    before = torch.get_num_threads()
    rng = np.random.default_rng(0)
    batch = [ag.linear_graph(9, 4, rng.normal(size=(9, 4))) for _ in range(20)]
    expected = [ag.forward_score(graph).item() for graph in batch]
    try:
        torch.set_num_threads(numbers[0])
        threads(numbers[1])
        assert [score.item() for score in ag.forward_score(batch)] == expected
    finally:
        torch.set_num_threads(before)


def test_python_threads_use_the_pool_of_arcgrad():
    code = f"""{START}
use_torch()
expected = [s.item() for s in ag.forward_score(batch)]
results = []
def work():
    for _ in range(20):
        results.append([s.item() for s in ag.forward_score(batch)] == expected)
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
work()
for t in threads: t.join()
print(sum(results))
"""
    assert int(run_python(code)) == 80


def test_an_exception_is_raised_as_from_the_pool_of_arcgrad(threads):
    threads(torch.get_num_threads())
    bad = acceptor((0,))
    bad.set_weights([np.nan])
    with pytest.raises(ValueError, match=r"^forward_score \(element 3 of 8\): "):
        ag.forward_score([acceptor((0,))] * 3 + [bad] + [acceptor((0,))] * 4)


def test_a_function_of_python_may_use_torch(threads):
    threads(torch.get_num_threads())

    def work(seed):
        x = torch.full((300_000,), float(seed), requires_grad=True)
        x.square().sum().backward()
        return x.grad[0].item(), len(ag.forward_score([acceptor((0,))] * 4))

    assert ag.parallel_for(work, range(8)) == [(2.0 * seed, 4) for seed in range(8)]


CHILD = """
import sys, warnings
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    import arcgrad as ag
    ag.set_num_threads(2)
    batch = [ag.linear_graph(100, 20) for _ in range(64)]
    scores = ag.forward_score(batch)
    ag.backward(scores)
    os._exit(len({s.item() for s in scores}) - 1)
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize(
    "parent",
    [
        f"{START}\nag.forward_score(batch)",
        f"{START}\nuse_torch()",
        "import os, torch\ntorch.set_num_threads(2)\ntorch.zeros(1_000_000).exp_()",
    ],
    ids=["after_a_batch", "after_torch", "imported_in_the_child"],
)
def test_a_forked_child_does_not_wait_for_threads_of_its_parent(parent):
    assert int(run_python(f"{parent}\n{CHILD}")) == 0
