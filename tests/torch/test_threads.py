"""Batches run on the threads that torch has, where they can."""

import json
import os
import sys

import numpy as np
import pytest
from tools import acceptor, run_python

import arcgrad as ag

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.serial

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="threads are shared on Linux")

# Everything that needs processes of its own, in one process: importing torch takes a second.
PROGRAM = """
import json, os, threading, time, warnings
warnings.simplefilter("ignore")  # forks of processes with threads

def waits_for_child():
    child = os.fork()
    if child == 0:
        import arcgrad as ag
        ag.set_num_threads(2)
        batch = [ag.linear_graph(100, 20) for _ in range(64)]
        scores = ag.forward_score(batch)
        ag.backward(scores)
        os._exit(len({s.item() for s in scores}) - 1)
    return os.waitpid(child, 0)[1]

found = {}
import torch
torch.set_num_threads(2)
def use_torch():
    torch.zeros(1_000_000).exp_()
use_torch()
found["imported_in_the_child"] = waits_for_child()
import arcgrad as ag
use_torch()
found["after_torch"] = waits_for_child()

import numpy as np
from arcgrad import _core
ag.set_num_threads(2)
rng = np.random.default_rng(0)
batch = [ag.linear_graph(100, 20, rng.normal(size=(100, 20))) for _ in range(64)]
use_torch()
scores = ag.forward_score(batch)
ag.backward(scores)
expected = [s.item() for s in scores]
found["values"] = [expected, sum(g.grad().weights_to_numpy() for g in batch).tolist()]
found["after_a_batch"] = waits_for_child()

same = []
def work():
    for _ in range(20):
        same.append([s.item() for s in ag.forward_score(batch)] == expected)
use_torch()
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
work()
for t in threads: t.join()
found["python_threads"] = sum(same)

use_torch()
ag.forward_score(batch)
before = _core.num_openmp_loops()
for _ in range(5):
    time.sleep(0.1)
    ag.forward_score(batch)
found["sleeping"] = _core.num_openmp_loops() - before

# On a busy machine the threads are often stopped while they spin, so there are many attempts.
before = _core.num_openmp_loops()
end = time.monotonic() + SECONDS
while time.monotonic() < end and _core.num_openmp_loops() < before + 3:
    use_torch()
    ag.forward_score(batch)
found["spinning"] = _core.num_openmp_loops() - before
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def shared():
    """What the program found where the threads of torch are used."""
    return json.loads(run_python(PROGRAM.replace("SECONDS", "20")))


@pytest.fixture(scope="module")
def separate():
    """What it found where they are not."""
    return json.loads(run_python(PROGRAM.replace("SECONDS", "0.5"), ARCGRAD_OPENMP="0"))


@linux_only
@pytest.mark.skipif("tsan" in os.environ.get("LD_PRELOAD", ""), reason="not under this sanitizer")
def test_the_threads_of_torch_are_used_while_they_spin(shared, separate):
    assert shared["spinning"] >= 3
    assert separate["spinning"] == 0


@linux_only
def test_sleeping_threads_of_torch_are_not_woken_up(shared):
    assert shared["sleeping"] == 0


def test_values_are_the_same_on_both_thread_pools(shared, separate):
    assert shared["values"] == separate["values"]


@pytest.mark.parametrize("run", ["shared", "separate"])
def test_python_threads_use_the_pool_of_arcgrad(run, request):
    assert request.getfixturevalue(run)["python_threads"] == 80


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("parent", ["imported_in_the_child", "after_torch", "after_a_batch"])
def test_a_forked_child_does_not_wait_for_threads_of_its_parent(parent, shared, separate):
    assert shared[parent] == separate[parent] == 0


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
