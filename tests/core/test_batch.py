"""Lists of graphs, threads, and fork."""

import math
import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from tools import acceptor, build, run_python, snapshot, weights

import arcgrad as ag

pytestmark = pytest.mark.serial


def emissions(count, length=20, labels=5):
    rng = np.random.default_rng(0)
    return [
        ag.linear_graph(length, labels, rng.normal(size=(length, labels))) for _ in range(count)
    ]


# Lists


def test_a_graph_gives_a_graph_and_a_list_gives_a_list():
    graph = acceptor((0,))
    assert isinstance(ag.forward_score(graph), ag.Graph)
    assert isinstance(ag.forward_score([graph]), list)
    assert isinstance(ag.compose(graph, [graph]), list)
    assert len(ag.compose([graph], [graph])) == 1


def test_a_tuple_is_a_list_too():
    graph = acceptor((0,))
    assert len(ag.forward_score((graph, graph))) == 2
    assert len(ag.compose((graph, graph), graph)) == 2


def test_an_empty_list_gives_an_empty_list():
    graph = acceptor((0,))
    assert ag.forward_score([]) == []
    assert ag.compose([], []) == []
    assert ag.compose(graph, []) == ag.compose([], graph) == []
    assert ag.backward([]) is None


def test_single_graphs_and_lists_of_one_broadcast():
    graph, many = acceptor((0,), (1,)), [acceptor((0,)), acceptor((1,)), acceptor((2,))]
    expected = [snapshot(ag.compose(graph, g)) for g in many]
    assert [snapshot(g) for g in ag.compose(graph, many)] == expected
    assert [snapshot(g) for g in ag.compose([graph], many)] == expected


def test_lengths_that_do_not_match_are_an_error():
    graph = acceptor((0,))
    for op in (ag.compose, ag.intersect, ag.add, ag.subtract):
        with pytest.raises(ValueError, match=rf"{op.__name__}: .*, but .*(2 and 3|3 and 2)"):
            op([graph] * 2, [graph] * 3)
    with pytest.raises(ValueError, match=r"compose: .*, but .*(0 and 3|3 and 0)"):
        ag.compose([], [graph] * 3)


def test_options_apply_to_every_element():
    graph = build(2, {0}, {1}, [(0, 1, 0, 0, 0.0), (0, 1, 1, 1, 0.0)])
    for result in ag.shortest_distance([graph] * 3, reverse=True, semiring="tropical"):
        assert result.weights_to_list() == [0.0, 0.0]
    for result in ag.scale([graph] * 2, 3.0):
        assert result.num_arcs() == 2


def test_an_exception_names_its_element():
    good, bad = acceptor((0,)), build(2, {0}, {1}, [(0, 1, 0, 0, math.nan)])
    for index in (0, 3, 7):
        batch = [good] * 8
        batch[index] = bad
        with pytest.raises(ValueError, match=rf"^forward_score \(element {index} of 8\): .*, but"):
            ag.forward_score(batch)


def test_the_first_of_several_exceptions_is_raised():
    bad = build(2, {0}, {1}, [(0, 1, 0, 0, math.nan)])
    for _ in range(20):
        with pytest.raises(ValueError, match=r"element 1 of 6"):
            ag.forward_score([acceptor((0,)), bad, bad, acceptor((0,)), bad, bad])


def test_the_batch_of_union_is_a_list_of_lists():
    bad = ag.chain_graph([0], [1])
    with pytest.raises(ValueError, match=r"intersect \(element 1 of 2\)"):
        ag.intersect(ag.union([[acceptor((0,))], [bad]]), acceptor((0,)))


def test_backward_of_a_list_equals_a_loop():
    batch = emissions(6)
    shared = acceptor((0, 1, 2), (1, 1), (3,))
    loop = build(1, {0}, {0}, [(0, 0, c, c, 0.1 * c) for c in range(5)])
    scores = ag.forward_score(ag.intersect(loop, batch))
    ag.backward(scores)
    together = [weights(g.grad()).tolist() for g in batch], weights(loop.grad())
    for graph in (*batch, loop):
        graph.zero_grad()
    for graph in batch:
        ag.backward(ag.forward_score(ag.intersect(loop, graph)))
    assert [weights(g.grad()).tolist() for g in batch] == together[0]
    assert weights(loop.grad()) == pytest.approx(together[1], rel=1e-12)
    assert not shared.is_grad_available()


def test_grad_of_a_list():
    batch = emissions(3)
    scores = ag.forward_score(batch)
    for graph, gradient in zip(batch, ag.grad(scores, batch), strict=True):
        assert (
            weights(gradient).tolist() == weights(ag.grad(ag.forward_score(graph), graph)).tolist()
        )


def test_the_same_graph_many_times_in_a_list():
    graph = acceptor((0,), (1,))
    ag.backward(ag.forward_score([graph] * 10))
    assert weights(graph.grad()) == pytest.approx([5.0, 5.0], abs=1e-12)


# Threads


def test_the_number_of_threads_can_be_set(threads):
    for number in (1, 2, 3, 7):
        threads(number)
        assert ag.get_num_threads() == number
        assert len(ag.forward_score(emissions(10))) == 10


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_and_gradients_do_not_depend_on_the_threads(threads, dtype):
    rng = np.random.default_rng(1)
    arrays = [rng.normal(size=(30, 6)).astype(dtype) for _ in range(37)]
    transitions = rng.normal(size=(7, 6)).astype(dtype)
    found = []
    for number in (1, 2, 3, 8):
        threads(number)
        batch = [ag.linear_graph(30, 6, array) for array in arrays]
        nodes = [(0, 1 + t, t, t, float(transitions[6, t])) for t in range(6)]
        nodes += [
            (1 + s, 1 + t, t, t, float(transitions[s, t])) for s in range(6) for t in range(6)
        ]
        bigram = build(7, {0}, set(range(7)), nodes, dtype=dtype)
        scores = ag.forward_score(ag.intersect(bigram, batch))
        ag.backward(scores)
        results = [snapshot(g) for g in (*scores, bigram.grad(), *(g.grad() for g in batch))]
        found.append(results)
    assert found[0] == found[1] == found[2] == found[3]


def test_a_shared_gradient_is_summed_in_one_order(threads):
    # Float32 sums of such numbers depend on their order, and every part takes long enough for the
    # threads to meet.
    rng = np.random.default_rng(0)
    graph = ag.linear_graph(1000, 200)
    seeds = []
    for _ in range(24):
        seeds.append(graph.detach())
        seeds[-1].set_weights(rng.normal(size=200_000))
    found = []
    for number in (1, 2, 4, 2, 4, 2, 4):
        threads(number)
        graph.zero_grad()
        ag.backward(ag.clone([graph] * 24), seeds)
        found.append(weights(graph.grad()))
    for gradient in found[1:]:
        assert np.array_equal(gradient, found[0])


@pytest.mark.parametrize(("value", "expected"), [("1", 1), ("3", 3), ("2", 2)])
def test_the_environment_sets_the_number_of_threads(value, expected):
    code = "import arcgrad as ag; print(ag.get_num_threads())"
    assert int(run_python(code, ARCGRAD_NUM_THREADS=value)) == expected


@pytest.mark.parametrize("value", ["zero", "-2", "0", "1e3", "2 ", "4097"])
def test_an_invalid_environment_variable_is_ignored_with_a_warning(value):
    code = """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import arcgrad as ag
(warning,) = caught
assert warning.category is RuntimeWarning and warning.filename == "<string>", warning
print(ag.get_num_threads(), len(ag.forward_score([ag.Graph()] * 3)), warning.message, sep="|")
"""
    found = run_python(code, ARCGRAD_NUM_THREADS=value, OMP_NUM_THREADS="1").strip()
    assert found == (
        "1|3|ARCGRAD_NUM_THREADS: the number of threads must be a whole number between 1 and 4096, "
        f"but it is '{value}'; the default is used"
    )


def test_an_empty_environment_variable_is_ignored():
    code = "import arcgrad as ag; print(ag.get_num_threads())"
    code = "import warnings; warnings.simplefilter('error'); " + code
    assert int(run_python(code, ARCGRAD_NUM_THREADS="", OMP_NUM_THREADS="")) >= 1


def count_threads_in_child(folder, method, before="import arcgrad", daemon=True, variable=""):
    """What a child of multiprocessing reports, whose main module begins with `before`."""
    program = folder / "program.py"
    program.write_text(f"""
import multiprocessing
{before}
def report():
    import arcgrad
    print(arcgrad.get_num_threads())
if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=report, daemon={daemon})
    child.start()
    child.join()
""")
    environment = {"ARCGRAD_NUM_THREADS": variable, "OMP_NUM_THREADS": ""}
    done = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
        env={**os.environ, **environment},
    )
    assert done.stderr == ""
    return int(done.stdout)


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_worker_has_one_thread_by_default(method, tmp_path):
    assert count_threads_in_child(tmp_path, method) == 1
    assert count_threads_in_child(tmp_path, method, before="", daemon=1) == 1
    assert count_threads_in_child(tmp_path, method, variable="3") == 3


def test_a_spawned_main_module_may_set_the_number_of_threads(tmp_path):
    before = "import arcgrad; arcgrad.set_num_threads(5)"
    assert count_threads_in_child(tmp_path, "spawn", before) == 5


def test_a_spawned_process_that_is_not_a_daemon_has_all_threads(tmp_path):
    default = run_python(
        "import arcgrad as ag; print(ag.get_num_threads())",
        ARCGRAD_NUM_THREADS="",
        OMP_NUM_THREADS="",
    )
    assert count_threads_in_child(tmp_path, "spawn", daemon=False) == int(default)


def test_importing_arcgrad_does_not_import_multiprocessing():
    code = "import sys, numpy; before = 'multiprocessing' in sys.modules; import arcgrad; "
    code += "print(before or 'multiprocessing' not in sys.modules)"
    assert run_python(code).strip() == "True"


def test_the_default_respects_affinity_and_openmp():
    code = "import arcgrad as ag; print(ag.get_num_threads())"
    assert int(run_python(code, ARCGRAD_NUM_THREADS="", OMP_NUM_THREADS="1")) == 1
    if hasattr(os, "sched_setaffinity"):
        pinned = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]); " + code
        assert int(run_python(pinned, ARCGRAD_NUM_THREADS="", OMP_NUM_THREADS="")) == 1


def test_a_batch_releases_the_gil(threads):
    # One Python thread scores while the other counts, so the GIL must be free.
    threads(1)
    rng = np.random.default_rng(0)
    src = rng.integers(0, 49_999, 1_000_000)
    dst = src + 1 + rng.integers(0, 50_000 - src - 1 + 1) % np.maximum(1, 49_999 - src)
    graph = ag.Graph.from_arrays(
        src, np.minimum(dst, 49_999), src % 50, start=[0], accept=[49_999], num_nodes=50_000
    )
    done = threading.Event()
    steps = 0

    def work():
        for _ in range(5):
            ag.forward_score([graph, graph])
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        time.sleep(0.001)
        steps += 1
    thread.join()
    assert steps > 5


# parallel_for


def test_parallel_for_returns_the_results_in_order():
    assert ag.parallel_for(lambda i: i * i, range(100)) == [i * i for i in range(100)]
    assert ag.parallel_for(str, []) == []
    assert ag.parallel_for(str.upper, ["a", "b"]) == ["A", "B"]
    assert ag.parallel_for(lambda i: i, (i for i in range(3))) == [0, 1, 2]


def test_parallel_for_passes_exceptions_on():
    def work(i):
        if i == 3:
            raise KeyError("three")
        return i

    with pytest.raises(KeyError, match="three"):
        ag.parallel_for(work, range(6))


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have no notes")
def test_an_exception_of_parallel_for_names_its_call(number, threads):
    threads(number)
    with pytest.raises(ZeroDivisionError) as caught:
        ag.parallel_for(lambda i: 1 // (3 - i), range(10))
    assert caught.value.__notes__ == ["parallel_for: raised by call 3 of 10"]


@pytest.mark.parametrize("number", [1, 4])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_exit_exception_starts_no_further_calls(number, kind, threads):
    threads(number)
    calls = []

    def work(i):
        calls.append(i)
        time.sleep(0.001)
        if len(calls) == 10:
            raise kind

    with pytest.raises(kind):
        ag.parallel_for(work, range(1000))
    assert len(calls) < 50
    with pytest.raises(ZeroDivisionError):  # the next call runs to its end
        ag.parallel_for(lambda i: calls.append(i) or 1 // i, range(100))
    assert calls[-1] == 99 or number > 1
    assert len(calls) < 150


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_exit_exception_propagates_through_nested_calls(number, kind, threads):
    threads(number)

    def outer(i):
        def inner(j):
            if i == 0 and j == 0:
                raise kind

        return ag.parallel_for(inner, range(3))

    for _ in range(20):
        with pytest.raises(kind):
            ag.parallel_for(outer, range(4))


@pytest.mark.parametrize("number", [1, 2])
def test_a_caught_exit_exception_does_not_stop_other_calls(number, threads):
    threads(number)
    made = []

    def leave(_):
        raise GeneratorExit

    def outer(i):
        made.append(i)
        if i == 0:
            with pytest.raises(GeneratorExit):
                ag.parallel_for(leave, range(2))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ag.parallel_for(outer, range(6))
    assert sorted(made) == list(range(6))


@pytest.mark.parametrize("number", [1, 4])
def test_ctrl_c_stops_parallel_for(number):
    code = f"""
import os, signal, threading, time
import arcgrad as ag
ag.set_num_threads({number})
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
calls = []
try:
    ag.parallel_for(lambda i: (calls.append(i), time.sleep(0.01)), range(100_000))
except KeyboardInterrupt:
    print(len(calls))
"""
    assert 0 < int(run_python(code)) < 10_000


def test_parallel_for_uses_several_threads(threads):
    threads(2)
    barrier = threading.Barrier(2, timeout=300)
    # Both calls must run at the same time to pass the barrier.
    assert len(ag.parallel_for(lambda _: barrier.wait(), range(2))) == 2


def test_parallel_for_runs_ops_and_their_gradients(threads):
    threads(2)
    batch = emissions(12)

    def work(graph):
        score = ag.forward_score(graph)
        ag.backward(score)
        return score.item()

    scores = ag.parallel_for(work, batch)
    assert scores == [s.item() for s in ag.forward_score(batch)]
    assert all(g.is_grad_available() for g in batch)


def test_parallel_for_inherits_no_grad(threads):
    threads(2)
    graph = acceptor((0,))
    with ag.no_grad():
        flags = ag.parallel_for(lambda _: ag.forward_score(graph).calc_grad, range(8))
    assert flags == [False] * 8


def test_nested_calls_run_inline():
    code = """
import arcgrad as ag
ag.set_num_threads(2)
batch = [ag.linear_graph(3, 2)] * 4
def inner(_):
    return len(ag.forward_score(batch))
def outer(_):
    return sum(ag.parallel_for(inner, range(4)))
print(sum(ag.parallel_for(outer, range(4))))
"""
    assert int(run_python(code)) == 64


def test_python_threads_and_batches_mix():
    code = """
import threading
import arcgrad as ag
ag.set_num_threads(2)
def work():
    for _ in range(50):
        batch = [ag.linear_graph(10, 4) for _ in range(8)]
        ag.backward(ag.forward_score(batch))
threads = [threading.Thread(target=work) for _ in range(4)]
for t in threads: t.start()
for n in (1, 2, 3, 1, 2): ag.set_num_threads(n)
for t in threads: t.join()
print("done")
"""
    assert run_python(code).strip() == "done"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_works_even_while_the_parent_does():
    code = """
import os, sys, threading, warnings
import arcgrad as ag
warnings.simplefilter("ignore")
ag.set_num_threads(2)
batch = [ag.linear_graph(100, 20) for _ in range(64)]
large = ag.linear_graph(1000, 200)
stop = threading.Event()
def busy():
    while not stop.is_set():
        ag.forward_score(batch)
def accumulate():
    while not stop.is_set():
        ag.backward(ag.forward_score(large))
threads = [threading.Thread(target=work, daemon=True) for work in (busy, accumulate)]
for thread in threads: thread.start()
expected = [s.item() for s in ag.forward_score(batch)]
for _ in range(20):
    child = os.fork()
    if child == 0:
        scores = ag.forward_score([*batch, large])
        ag.backward(scores)
        ok = [s.item() for s in scores[:-1]] == expected
        ok = ok and len(ag.parallel_for(abs, range(4))) == 4
        ok = ok and ag.get_num_threads() == 1
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
assert [s.item() for s in ag.forward_score(batch)] == expected
print("done")
"""
    assert run_python(code).strip() == "done"


def test_the_interpreter_exits_while_threads_wait():
    code = """
import arcgrad as ag
ag.set_num_threads(4)
ag.forward_score([ag.linear_graph(10, 4) for _ in range(8)])
print("done")
"""
    assert run_python(code).strip() == "done"
