"""`arcgrad.gtn` runs programs written for gtn: its names, arguments, exceptions and formats."""

import ctypes
import doctest
import inspect
import itertools
import math
import pickle

import numpy as np
import pytest
from tools import run_python, weights

import arcgrad as ag
import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon

UNARY = [
    "negate",
    "clone",
    "closure",
    "forward_score",
    "viterbi_score",
    "viterbi_path",
    "project_input",
    "project_output",
]
BINARY = ["add", "subtract", "compose", "intersect", "concat"]
NAMES = [
    *UNARY,
    *BINARY,
    *("Graph", "Device", "DeviceType", "CPU", "CUDA", "cuda", "criterion", "epsilon"),
    *("union", "remove", "backward", "linear_graph", "scalar_graph", "parallel_for"),
    *("equal", "isomorphic", "rand_equivalent", "sample"),
    *("load", "save", "loadtxt", "savetxt", "write_dot", "draw", "__version__"),
]


def chain(*labels, calc_grad=True):
    """An acceptor of one string, built as gtn programs do."""
    graph = gtn.Graph(calc_grad)
    graph.add_node(True, not labels)
    for i, label in enumerate(labels):
        graph.add_node(False, i + 1 == len(labels))
        graph.add_arc(i, i + 1, label)
    return graph


def fork(*arc_weights, calc_grad=True):
    """Parallel arcs with labels 0, 1, ... from a start to an accept node."""
    graph = gtn.Graph(calc_grad)
    graph.add_node(True)
    graph.add_node(False, True)
    for label, weight in enumerate(arc_weights):
        graph.add_arc(0, 1, label, label, weight)
    return graph


def token_graph(token):
    """One or more frames of a token, which is written once."""
    graph = gtn.Graph(False)
    graph.add_node(True)
    graph.add_node(False, True)
    graph.add_arc(0, 1, token, token)
    graph.add_arc(1, 1, token, epsilon)
    return graph


# Programs


def test_figure_1_of_the_paper_runs():
    program = """
from arcgrad.gtn import *

def ASG(emissions, transitions, target):
    A = intersect(intersect(target, transitions), emissions)
    Z = intersect(transitions, emissions)
    A_score = forward_score(A)
    Z_score = forward_score(Z)
    loss = negate(subtract(A_score, Z_score))
    emissions.zero_grad()
    transitions.zero_grad()
    backward(loss, retain_graph=False)
    return loss.item(), emissions.grad(), transitions.grad()

transitions = Graph()
transitions.add_node(True, True)
for token in range(2):
    transitions.add_arc(0, 0, token)

target = Graph(False)
target.add_node(True)
target.add_node()
target.add_node(False, True)
for node, token in [(1, 0), (2, 1)]:
    target.add_arc(node - 1, node, token)
    target.add_arc(node, node, token)

loss, emissions_grad, transitions_grad = ASG(linear_graph(3, 2), transitions, target)
print(round(loss, 4))
print(*emissions_grad.weights_to_list())
print(*transitions_grad.weights_to_list())
"""
    assert run_python(program).splitlines() == [
        "1.3863",
        "-0.5 0.5 0.0 0.0 0.5 -0.5",
        "0.0 0.0",
    ]


def ctc_by_operations(emissions, target, blank):
    """CTC from token graphs: labels, then an optional blank, forced between equal labels."""
    pieces = []
    optional = gtn.Graph(False)
    optional.add_node(True, True)
    optional.add_arc(0, 0, blank, epsilon)
    forced = gtn.Graph(False)
    forced.add_node(True)
    forced.add_node(False, True)
    forced.add_arc(0, 1, blank, epsilon)
    forced.add_arc(1, 1, blank, epsilon)
    for before, token in zip([None, *target], target, strict=False):
        pieces += [forced if before == token else optional, token_graph(token)]
    alignments = gtn.project_input(gtn.remove(gtn.concat([*pieces, optional])))
    return gtn.negate(gtn.forward_score(gtn.intersect(alignments, emissions)))


def ctc_by_enumeration(log_probs, target, blank):
    frames, labels = log_probs.shape
    total = -math.inf
    for path in itertools.product(range(labels), repeat=frames):
        if [x for x, _ in itertools.groupby(path) if x != blank] == target:
            total = np.logaddexp(total, log_probs[np.arange(frames), path].sum())
    return -total


@pytest.mark.parametrize("target", [[], [1], [1, 2], [2, 2], [1, 2, 1]])
def test_ctc_built_from_operations_equals_the_criterion(target):
    log_probs = np.log(np.random.default_rng(5).dirichlet(np.ones(3), 5)).astype(np.float32)
    losses, gradients = [], []
    for loss in (ctc_by_operations, gtn.criterion.ctc_loss):
        emissions = gtn.linear_graph(5, 3)
        emissions.set_weights(log_probs.ctypes.data)
        value = loss(emissions, target, 0)
        gtn.backward(value)
        losses.append(value.item())
        gradients.append(emissions.grad().weights_to_numpy())
    # Scores of float32 products have a relative error of up to 1e-6.
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert losses[0] == pytest.approx(ctc_by_enumeration(log_probs, target, 0), abs=1e-6)
    assert gradients[0] == pytest.approx(gradients[1], abs=1e-6)
    assert gradients[0].reshape(5, 3).sum(1) == pytest.approx(-1, abs=1e-6)


def test_a_batch_trains_by_gradient_descent():
    targets = [[1], [1, 2], [2, 1]]
    values = np.zeros((3, 4, 3), np.float32)
    history = []
    for _ in range(20):
        exact = values - np.logaddexp.reduce(values, axis=2, keepdims=True)
        emissions = [gtn.linear_graph(4, 3, True) for _ in targets]
        losses = [None] * len(targets)

        def process(b, emissions=emissions, exact=exact, losses=losses):
            emissions[b].set_weights(np.ascontiguousarray(exact[b]))
            losses[b] = gtn.criterion.ctc_loss(emissions[b], targets[b], 0)
            gtn.backward(losses[b])

        gtn.parallel_for(process, range(len(targets)))
        grads = np.stack([e.grad().weights_to_numpy().reshape(4, 3) for e in emissions])
        values -= grads - np.exp(exact) * grads.sum(2, keepdims=True)
        history.append(sum(loss.item() for loss in losses))
    assert history[-1] < history[0] / 3
    assert all(after < before for before, after in itertools.pairwise(history))


@pytest.mark.parametrize(
    ("source", "target", "distance"),
    [([0, 1, 2], [0, 1, 2], 0), ([0, 1, 2], [0, 2], 1), ([], [1, 1], 2), ([0, 1], [1, 0, 0], 2)],
)
def test_an_edit_transducer_gives_the_edit_distance(source, target, distance):
    edits = gtn.Graph(False)
    edits.add_node(True, True)
    for a, b in itertools.product([epsilon, 0, 1, 2], repeat=2):
        if (a, b) != (epsilon, epsilon):
            edits.add_arc(0, 0, a, b, 0.0 if a == b else -1.0)
    best = gtn.viterbi_score(gtn.compose(gtn.compose(chain(*source), edits), chain(*target)))
    assert best.item() == -distance


def test_decoding_frames_gives_labels():
    blank = gtn.Graph(False)
    blank.add_node(True, True)
    blank.add_arc(0, 0, 2, epsilon)
    tokens = gtn.concat([token_graph(0), blank, token_graph(1), blank])
    emissions = gtn.linear_graph(5, 3)
    emissions.set_weights([5, 0, 0, 5, 0, 0, 0, 0, 5, 0, 5, 0, 0, 0, 5])
    best = gtn.viterbi_path(emissions)
    assert best.labels_to_list() == [0, 0, 2, 1, 2]
    labels = gtn.remove(gtn.project_output(gtn.viterbi_path(gtn.compose(best, tokens))))
    assert labels.labels_to_list() == [0, 1]


def test_decoding_only_blanks_gives_no_labels():
    blank = gtn.Graph(False)
    blank.add_node(True, True)
    blank.add_arc(0, 0, 1, epsilon)
    emissions = gtn.linear_graph(3, 2)
    emissions.set_weights([0, 5, 0, 5, 0, 5])
    labels = gtn.remove(gtn.project_output(gtn.compose(gtn.viterbi_path(emissions), blank)))
    assert labels.labels_to_list() == []
    assert labels.labels_to_list(False) == []
    assert gtn.forward_score(labels).item() == 15.0


def test_the_module_can_stand_in_for_gtn_without_changing_imports():
    program = """
import sys, arcgrad.gtn
sys.modules["gtn"] = arcgrad.gtn
import gtn
import gtn.criterion
from gtn.criterion import ctc_loss
from gtn import Graph, cuda
print(ctc_loss(gtn.linear_graph(1, 2), [1], 0).item(), gtn.criterion.ctc_loss is ctc_loss)
print(isinstance(ctc_loss(gtn.linear_graph(1, 2), [1], 0), Graph), gtn.cuda.is_available())
"""
    assert run_python(program).split() == ["0.0", "True", "True", "False"]


# Names


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_gtn_is_here(name):
    assert name in gtn.__all__
    assert getattr(gtn, name) is not None


def test_nothing_else_is_exported():
    assert sorted(gtn.__all__) == sorted(NAMES)
    assert gtn.epsilon == -1
    assert gtn.__version__ == ag.__version__


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_take_the_argument_names_of_gtn(name):
    call, graph = getattr(gtn, name), fork(1.0)
    assert gtn.equal(call(g=graph), call(graph))
    assert gtn.equal(call(graphs=[graph])[0], call(graph))
    assert call.__name__ == name


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_take_the_argument_names_of_gtn(name):
    call, graph = getattr(gtn, name), fork(1.0)
    assert gtn.equal(call(g1=graph, g2=graph), call(graph, graph))
    assert gtn.equal(call(graphs1=[graph], graphs2=[graph])[0], call(graph, graph))
    assert call.__name__ == name


def test_the_other_functions_take_the_argument_names_of_gtn(tmp_path):
    graph = fork(1.0, 2.0)
    path = str(tmp_path / "graph")
    assert gtn.equal(gtn.clone(g1=graph), graph)
    assert gtn.union(graphs=[graph]).num_arcs() == 2
    assert gtn.concat(graphs=[graph, graph]).num_arcs() == 5
    assert gtn.remove(g=graph, label=0).num_arcs() == 2
    assert gtn.remove(g=graph, ilabel=1, olabel=1).num_arcs() == 2
    assert gtn.remove(graphs=[graph], labels=[7])[0].num_arcs() == 2
    assert gtn.equal(g1=graph, g2=graph)
    assert gtn.isomorphic(g1=graph, g2=graph)
    assert gtn.rand_equivalent(g1=graph, g2=graph, num_samples=3, tol=1e-3, max_length=5)
    assert gtn.sample(g=graph, max_length=5).num_arcs() == 1
    assert gtn.linear_graph(M=2, N=3, device=gtn.Device(gtn.CPU), calc_grad=False).num_arcs() == 6
    assert gtn.scalar_graph(weight=2.0, device=gtn.Device(gtn.CPU), calc_grad=False).item() == 2.0
    gtn.savetxt(file_name=path, graph=graph)
    assert gtn.equal(gtn.loadtxt(file_name=path), graph)
    gtn.save(file_name=path, graph=graph)
    assert gtn.equal(gtn.load(file_name=path), graph)
    gtn.write_dot(g=graph, file_name=path, isymbols={0: "a", 1: "b"}, osymbols={})
    gtn.backward(g=gtn.forward_score(graph), retain_graph=True)
    gtn.backward(graphs=[gtn.forward_score(graph)], retain_graphs=[1])
    score = gtn.forward_score(graph)
    gtn.backward(g=score, grad=gtn.scalar_graph(2.0), retain_graph=True)
    gtn.backward(graphs=[score], grads=[gtn.scalar_graph(2.0)], retain_graphs=[0])
    assert sum(graph.grad().weights_to_list()) == pytest.approx(6.0)


def test_rand_equivalent_draws_a_thousand_samples():
    assert inspect.signature(gtn.rand_equivalent).parameters["num_samples"].default == 1000


def test_everything_is_documented_and_the_example_runs():
    for name in gtn.__all__:
        thing = getattr(gtn, name)
        assert not callable(thing) or len((inspect.getdoc(thing) or "").split()) > 2, name
    results = doctest.testmod(gtn)
    assert results.attempted > 0
    assert results.failed == 0


# Graphs


def test_arcs_have_one_label_or_two():
    graph = gtn.Graph()
    graph.add_node(True)
    graph.add_node(False, True)
    assert graph.add_arc(0, 1, 3) == 0
    assert graph.add_arc(src_node=0, dst_node=1, label=4) == 1
    assert graph.add_arc(0, 1, 5, 6) == 2
    assert graph.add_arc(0, 1, ilabel=7, olabel=8, weight=2.5) == 3
    assert graph.labels_to_list() == [3, 4, 5, 7]
    assert graph.labels_to_list(False) == [3, 4, 6, 8]
    assert graph.weights_to_list() == [0, 0, 0, 2.5]


def test_bad_arcs_are_errors_instead_of_corruption():
    graph = fork(0.0)
    with pytest.raises(TypeError):
        graph.add_arc(0, 1, 1, 2.5)
    with pytest.raises(TypeError):
        graph.add_arc(0, 1)
    with pytest.raises(ValueError, match="add_arc"):
        graph.add_arc(0, 5, 1)
    with pytest.raises(ValueError, match="add_arc"):
        graph.add_arc(0, 1, -2)
    assert graph.num_arcs() == 1


def read_floats(address, size):
    return np.frombuffer((ctypes.c_float * size).from_address(address), np.float32).tolist()


def test_weights_is_the_address_of_float32_weights():
    graph = fork(1.5, -2.5)
    assert read_floats(graph.weights(), 2) == [1.5, -2.5]
    emissions = gtn.linear_graph(2, 3)
    assert read_floats(emissions.weights(), 6) == [0.0] * 6


def test_the_address_of_a_score_holds_a_float32_too():
    score = gtn.forward_score(fork(1.0, 1.0))
    assert score.dtype == np.float64
    assert read_floats(score.weights(), 1) == pytest.approx([1 + math.log(2)])


def test_an_address_stays_readable_after_the_weights_are_replaced():
    graph = fork(1.5, -2.5)
    address = graph.weights()
    graph.set_weights([7.0, 8.0])
    assert read_floats(address, 2) == [1.5, -2.5]
    graph.set_weights(address)
    assert read_floats(graph.weights(), 2) == [1.5, -2.5]


def test_weights_are_set_from_an_address_a_list_or_an_array():
    graph = gtn.linear_graph(2, 2)
    values = np.arange(4, dtype=np.float32)
    for given in (values.ctypes.data, np.int64(values.ctypes.data), values, values.tolist()):
        graph.set_weights([9, 9, 9, 9])
        graph.set_weights(given)
        assert graph.weights_to_list() == [0, 1, 2, 3]
    graph.set_weights(np.arange(8.0)[::2])
    assert graph.weights_to_list() == [0, 2, 4, 6]
    other = gtn.linear_graph(2, 2)
    other.set_weights(graph.weights())
    assert gtn.equal(other, graph)


def test_weights_of_the_wrong_length_are_an_error():
    with pytest.raises(ValueError, match="set_weights"):
        fork(0.0, 0.0).set_weights([1.0])


def test_a_small_number_is_not_an_address():
    with pytest.raises(ValueError, match=r"set_weights: .* address of 2 float32 .*, but it is 3"):
        fork(0.0, 0.0).set_weights(3)
    gtn.Graph().set_weights(0)


def test_arrays_of_weights_are_float32():
    assert gtn.linear_graph(2, 2).weights_to_numpy().dtype == np.float32
    assert gtn.forward_score(fork(0.0)).weights_to_numpy().dtype == np.float32
    assert gtn.linear_graph(2, 2).weights_to_numpy().shape == (4,)


def test_arrays_of_weights_are_copies():
    graph = fork(1.0)
    graph.weights_to_numpy()[:] = 5
    assert graph.item() == 1.0


def test_repr_is_the_text_format(tmp_path):
    graph = fork(1.5, -math.inf)
    graph.add_arc(1, 1, epsilon, 3)
    assert repr(graph) == "0\n1\n0 1 0 0 1.5\n0 1 1 1 -inf\n1 1 -1 3 0\n"
    path = tmp_path / "graph.txt"
    path.write_text(str(graph))
    assert gtn.equal(gtn.loadtxt(str(path)), graph)


def test_repr_of_a_large_graph_is_short():
    graph = gtn.Graph()
    for _ in range(21):
        graph.add_node(True)
    for _ in range(11):
        graph.add_arc(0, 1, 0)
    lines = repr(graph).splitlines()
    assert lines[0] == "0 1 2 3 4 5 6 7 8 9 ..."
    assert lines[1] == ""
    assert lines[2:] == ["0 1 0 0 0"] * 10 + ["..."]


def test_item_needs_one_arc():
    with pytest.raises(ValueError, match="item"):
        fork(1.0, 2.0).item()


def test_sorting_is_accepted_and_changes_nothing():
    first, second = fork(1.0, 2.0), fork(3.0, 4.0)
    expected = gtn.compose(first, second)
    second.mark_arc_sorted(True)
    first.arc_sort(True)
    first.arc_sort(olabel=False)
    assert gtn.equal(gtn.compose(first, second), expected)


def test_a_graph_survives_pickling():
    graph = pickle.loads(pickle.dumps(fork(1.0, 2.0)))
    assert isinstance(graph, gtn.Graph)
    assert graph.weights_to_list() == [1.0, 2.0]


# Devices


def test_devices_compare():
    assert gtn.Device(gtn.CUDA, 0) == gtn.Device(gtn.CUDA, 0)
    assert gtn.Device(gtn.CPU) == gtn.Device(gtn.DeviceType.CPU)
    assert gtn.Device(gtn.CPU) != gtn.Device(gtn.CUDA)
    assert gtn.Device(gtn.CUDA, 0) != gtn.Device(gtn.CUDA, 1)
    assert gtn.Device(type=gtn.CUDA, index=1) == gtn.Device(gtn.CUDA, 1)


def test_graphs_are_on_the_cpu():
    graph = fork(1.0)
    assert not graph.is_cuda()
    assert graph.cpu() is graph
    assert not gtn.cuda.is_available()


@pytest.mark.parametrize(
    "call",
    [
        lambda: fork(1.0).cuda(),
        lambda: fork(1.0).cuda(gtn.Device(gtn.CUDA, 1)),
        lambda: gtn.linear_graph(2, 2, gtn.Device(gtn.CUDA)),
        lambda: gtn.scalar_graph(2.0, device=gtn.Device(gtn.CUDA)),
        lambda: gtn.cuda.device_count(),
        lambda: gtn.cuda.get_device(),
        lambda: gtn.cuda.set_device(0),
        lambda: gtn.cuda.synchronize(),
        lambda: gtn.cuda.synchronize(0),
    ],
)
def test_a_gpu_is_a_runtime_error(call):
    with pytest.raises(RuntimeError, match=r"a CUDA device is needed, but .* CPU only"):
        call()


@pytest.mark.parametrize("calc_grad", [True, False])
def test_graphs_are_made_with_the_old_and_the_new_arguments(calc_grad):
    cpu = gtn.Device(gtn.CPU)
    for make, arguments in ((gtn.linear_graph, (3, 2)), (gtn.scalar_graph, (1.5,))):
        assert make(*arguments).calc_grad
        assert make(*arguments, calc_grad).calc_grad == calc_grad
        assert make(*arguments, calc_grad=calc_grad).calc_grad == calc_grad
        assert make(*arguments, cpu, calc_grad).calc_grad == calc_grad
        assert make(*arguments, cpu).calc_grad
        with pytest.raises(TypeError, match=make.__name__):
            make(*arguments, "cpu")


def test_a_scalar_graph_equals_one_that_is_built():
    built = gtn.Graph()
    built.add_node(True)
    built.add_node(False, True)
    built.add_arc(0, 1, epsilon, epsilon, 2.1)
    assert gtn.equal(gtn.scalar_graph(2.1), built)


# Both libraries together


def test_results_are_graphs_of_both_libraries():
    score = gtn.forward_score(fork(1.0, 2.0))
    assert isinstance(score, gtn.Graph)
    assert isinstance(score, ag.Graph)
    assert isinstance(gtn.union([fork(1.0), fork(2.0)]), gtn.Graph)
    assert all(isinstance(path, gtn.Graph) for path in gtn.viterbi_path([fork(1.0), fork(2.0)]))


def test_a_program_may_mix_both_libraries():
    emissions = ag.linear_graph(2, 2)
    score = gtn.forward_score(ag.intersect(gtn.clone(emissions), gtn.linear_graph(2, 2)))
    gtn.backward(score)
    assert emissions.grad().weights_to_list() == [0.5] * 4
    handle = gtn.Graph(emissions)
    assert handle.grad().weights_to_list() == [0.5] * 4
    handle.set_weights([1, 2, 3, 4])
    assert emissions.weights_to_list() == [1, 2, 3, 4]


def test_second_order_works_on_gtn_graphs():
    graph = fork(0.0, 0.0)
    product = ag.hvp(gtn.forward_score(graph), graph, [1.0, 0.0])
    assert product.weights_to_list() == [0.25, -0.25]


# Gradients


def test_intermediate_graphs_keep_their_gradient():
    graph = fork(0.0, 0.0)
    twice = gtn.add(graph, graph)
    score = gtn.forward_score(twice)
    loss = gtn.negate(score)
    gtn.backward(loss)
    assert loss.grad().item() == 1.0
    assert score.grad().item() == -1.0
    assert twice.grad().weights_to_list() == [-0.5, -0.5]
    assert graph.grad().weights_to_list() == [-1.0, -1.0]
    assert isinstance(twice.grad(), gtn.Graph)


def test_a_graph_that_is_not_used_has_no_gradient():
    graph = fork(1.0)
    cloned = gtn.clone(graph)
    gtn.backward(gtn.forward_score(graph))
    assert not cloned.is_grad_available()
    with pytest.raises(RuntimeError):
        cloned.grad()


def test_a_gradient_that_is_off_is_a_runtime_error():
    graph, fixed = fork(1.0), fork(2.0, calc_grad=False)
    gtn.backward(gtn.add(graph, fixed))
    assert graph.grad().item() == 1.0
    with pytest.raises(RuntimeError):
        fixed.grad()


def test_gradients_add_up_until_they_are_cleared():
    graph = fork(0.0, 0.0)
    gtn.backward(gtn.forward_score(graph))
    gtn.backward(gtn.forward_score(graph))
    assert graph.grad().weights_to_list() == [1.0, 1.0]
    graph.zero_grad()
    assert not graph.is_grad_available()


def test_a_second_backward_is_a_value_error():
    score = gtn.forward_score(fork(1.0))
    gtn.backward(score)
    with pytest.raises(ValueError, match="backward"):
        gtn.backward(score)
    with pytest.raises(ValueError, match="backward"):
        gtn.backward([score])


@pytest.mark.parametrize(
    "keep", [lambda s: gtn.backward(s, True), lambda s: gtn.backward([s], [1])]
)
def test_a_retained_tape_adds_the_same_gradient_again(keep):
    graph = fork(0.0, 0.0)
    score = gtn.negate(gtn.forward_score(gtn.clone(graph)))
    for times in (1, 2, 3):
        keep(score)
        assert graph.grad().weights_to_list() == [-0.5 * times] * 2


def test_backward_of_a_graph_without_gradient_does_nothing():
    fixed, graph = fork(1.0, calc_grad=False), fork(1.0)
    assert gtn.backward(gtn.forward_score(fixed)) is None
    gtn.backward(gtn.forward_score([fixed, graph]))
    assert graph.grad().item() == 1.0
    assert not fixed.is_grad_available()


def test_a_seed_needs_only_the_right_number_of_arcs():
    graph = fork(1.0, 2.0)
    gtn.backward(gtn.clone(graph), chain(5, 6))
    assert graph.grad().weights_to_list() == [0.0, 0.0]
    seed = chain(5, 6)
    seed.set_weights([3.0, 4.0])
    gtn.backward(gtn.clone(graph), seed, False)
    assert graph.grad().weights_to_list() == [3.0, 4.0]
    with pytest.raises(ValueError, match="seed"):
        gtn.backward(gtn.clone(graph), fork(1.0))


def test_lists_of_seeds_and_flags_have_length_one_or_the_same():
    graphs = [fork(float(i)) for i in range(3)]
    scores = gtn.forward_score(graphs)
    gtn.backward(scores, [gtn.scalar_graph(5.0)], [True])
    gtn.backward(scores, [gtn.scalar_graph(float(i)) for i in range(3)], [True, False, True])
    assert [graph.grad().item() for graph in graphs] == [5.0, 6.0, 7.0]
    gtn.backward([scores[0], scores[2]])
    with pytest.raises(ValueError, match="backward"):
        gtn.backward(scores[1])
    with pytest.raises(RuntimeError, match=r"backward: .* lengths are 3 and 2"):
        gtn.backward(gtn.forward_score(graphs), [False, True])
    gtn.backward([])


def test_setting_calc_grad_off_forgets_the_tape():
    graph = fork(1.0)
    score = gtn.forward_score(graph)
    score.calc_grad = False
    gtn.backward(score)
    assert not graph.is_grad_available()


# Lists


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions_take_lists(name):
    call = getattr(gtn, name)
    graphs = [fork(1.0), fork(2.0), fork(3.0)]
    results = call(graphs)
    assert isinstance(results, list)
    for result, graph in zip(results, graphs, strict=True):
        assert gtn.equal(result, call(graph))
    assert len(call(tuple(graphs))) == 3
    assert call([]) == []


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions_take_lists(name):
    call = getattr(gtn, name)
    first, second = [fork(1.0), fork(2.0), fork(3.0)], [fork(4.0), fork(5.0), fork(6.0)]
    for left, right in ((first, second), (first[:1], second), (first, second[:1])):
        results = call(left, right)
        expected = [call(left[i % len(left)], right[i % len(right)]) for i in range(3)]
        assert len(results) == 3
        assert all(map(gtn.equal, results, expected))
    assert call([], []) == []


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(("left", "right"), [(2, 3), (3, 2), (0, 1), (0, 3)])
def test_lists_of_other_lengths_are_a_runtime_error(name, left, right):
    with pytest.raises(RuntimeError, match=rf"^{name}: .* lengths are {left} and {right}"):
        getattr(gtn, name)([fork(1.0)] * left, [fork(1.0)] * right)


@pytest.mark.parametrize("name", [*UNARY, "union", "remove"])
def test_other_types_are_a_type_error(name):
    with pytest.raises(TypeError):
        getattr(gtn, name)(3)
    with pytest.raises(TypeError):
        getattr(gtn, name)()


# Single functions


def test_concat_has_four_signatures():
    a, b, c = chain(0), chain(1), chain(2)
    assert gtn.rand_equivalent(gtn.concat(a, b), chain(0, 1))
    assert gtn.rand_equivalent(gtn.concat([a, b, c]), chain(0, 1, 2))
    pairs = gtn.concat([a, b], [c])
    assert gtn.rand_equivalent(pairs[0], chain(0, 2))
    assert gtn.rand_equivalent(pairs[1], chain(1, 2))
    lists = gtn.concat([[a, b, c], [c]])
    assert gtn.rand_equivalent(lists[0], chain(0, 1, 2))
    assert gtn.rand_equivalent(lists[1], c)
    assert gtn.equal(gtn.concat([]), chain())


def test_union_has_two_signatures():
    graphs = [chain(0), chain(1)]
    assert gtn.union(graphs).num_arcs() == 2
    assert [g.num_arcs() for g in gtn.union([graphs, graphs * 2])] == [2, 4]
    assert gtn.equal(gtn.union([]), gtn.Graph())


def test_remove_has_three_signatures():
    graph = gtn.Graph()
    for node in range(4):
        graph.add_node(node == 0, node == 3)
    graph.add_arc(0, 1, epsilon)
    graph.add_arc(1, 2, 4)
    graph.add_arc(2, 3, 4, 5)
    assert gtn.remove(graph).labels_to_list() == [4, 4]
    assert gtn.remove(graph, epsilon).labels_to_list() == [4, 4]
    assert gtn.remove(graph, 4).labels_to_list() == [epsilon, 4]
    assert gtn.remove(graph, 4, 5).labels_to_list() == [epsilon, 4]
    results = gtn.remove([graph, graph], [epsilon, 4])
    assert [r.labels_to_list(False) for r in results] == [[4, 5], [epsilon, 5]]
    assert [r.num_arcs() for r in gtn.remove([graph, graph])] == [2, 2]
    assert len(gtn.remove([graph], [1, 2, 3])) == 3
    assert gtn.remove([]) == []
    with pytest.raises(RuntimeError, match=r"remove: .* lengths are 2 and 3"):
        gtn.remove([graph, graph], [1, 2, 3])


def test_remove_keeps_scores_and_gradients():
    graph = gtn.Graph()
    for node in range(3):
        graph.add_node(node == 0, node == 2)
    graph.add_arc(0, 1, epsilon, epsilon, 0.5)
    graph.add_arc(1, 2, 0, 0, 1.5)
    removed = gtn.remove(graph)
    assert removed.weights_to_list() == [2.0]
    gtn.backward(removed)
    assert graph.grad().weights_to_list() == [1.0, 1.0]


def test_intersect_composes_transducers():
    first, second = gtn.Graph(), gtn.Graph()
    for graph, labels in ((first, (0, 1)), (second, (1, 2))):
        graph.add_node(True)
        graph.add_node(False, True)
        graph.add_arc(0, 1, *labels)
    assert gtn.equal(gtn.intersect(first, second), gtn.compose(first, second))
    assert gtn.intersect(first, second).labels_to_list(False) == [2]


def test_graphs_with_one_arc_are_numbers_whatever_their_labels():
    first, second = chain(3), gtn.scalar_graph(2.0)
    first.set_weights([5.0])
    assert gtn.add(first, second).item() == 7.0
    assert gtn.subtract([first, second], [second])[0].item() == 3.0
    difference = gtn.subtract(gtn.forward_score(first), first)
    gtn.backward(gtn.subtract(gtn.add(first, second), second))
    assert difference.item() == 0.0
    assert first.grad().item() == 1.0
    assert second.grad().item() == 0.0


def test_whole_graphs_are_added_and_negated():
    graph = fork(1.0, 2.0)
    assert gtn.negate(graph).weights_to_list() == [-1.0, -2.0]
    assert gtn.subtract(gtn.add(graph, graph), graph).weights_to_list() == [1.0, 2.0]


def test_adding_graphs_of_other_structure_is_a_runtime_error():
    for other in (chain(0, 1), fork(1.0, 2.0, 3.0), fork(1.0)):
        with pytest.raises(RuntimeError, match="add: both graphs must have the same structure"):
            gtn.add(fork(1.0, 2.0), other)


def test_equal_sees_which_nodes_start_and_accept():
    first, second = gtn.Graph(), gtn.Graph()
    for graph, start in ((first, True), (second, False)):
        graph.add_node(start)
        graph.add_node(not start)
    assert not gtn.equal(first, second)
    assert gtn.isomorphic(first, second)


def test_sample_draws_by_weight():
    graph = fork(0.0, -math.inf, 5.0)
    drawn = [gtn.sample(graph).labels_to_list() for _ in range(200)]
    assert [1] not in drawn
    assert drawn.count([2]) > drawn.count([0])


def test_sample_takes_graphs_whose_scores_have_no_finite_sum():
    graph = gtn.Graph()
    for node in range(3):
        graph.add_node(node == 0, node == 2)
    for src, dst, label, weight in ((0, 0, 0, 0.0), (0, 1, 1, 0.5), (1, 0, 2, 2.0), (1, 2, 3, 0.0)):
        graph.add_arc(src, dst, label, label, weight)
    lengths = set()
    for _ in range(300):
        graph.zero_grad()
        path = gtn.sample(graph)
        labels = path.labels_to_list()
        assert path.weights_to_numpy() == pytest.approx([[0.0, 0.5, 2.0, 0.0][k] for k in labels])
        gtn.backward(path)
        assert graph.grad().weights_to_list() == [labels.count(k) for k in range(4)]
        lengths.add(len(labels))
    assert len(lengths) > 1


def test_sample_gives_the_empty_graph_where_gtn_does():
    dead = chain(0, 1)
    assert gtn.sample(dead, 1).num_nodes() == 0
    assert gtn.sample(dead, 2).num_nodes() == 3
    unreachable = gtn.Graph()
    unreachable.add_node(True)
    unreachable.add_node(False, True)
    assert gtn.sample(unreachable).num_nodes() == 0


def test_sample_names_a_bad_weight():
    with pytest.raises(ValueError, match=r"sample: .* nan"):
        gtn.sample(fork(math.nan))


def test_parallel_for_returns_nothing_and_calls_all():
    seen = [0] * 8

    def process(i):
        seen[i] = gtn.forward_score(fork(float(i))).item()

    assert gtn.parallel_for(process, list(range(8))) is None
    assert seen == list(range(8))


def test_parallel_for_passes_an_exception_on():
    def process(i):
        if i == 3:
            raise KeyError(i)

    with pytest.raises(KeyError):
        gtn.parallel_for(process, range(5))


def test_an_infeasible_ctc_target_costs_infinity():
    emissions = gtn.linear_graph(1, 3)
    loss = gtn.criterion.ctc_loss(emissions, [1, 2], 0)
    gtn.backward(loss)
    assert loss.item() == math.inf
    assert not np.any(weights(emissions.grad()))


# Files


def gtn_bytes(num_nodes, start, accept, arcs, arc_weights):
    """What gtn writes: four counts, start nodes, accept nodes, arcs, weights."""
    ints = [num_nodes, len(arcs), len(start), len(accept), *start, *accept, *itertools.chain(*arcs)]
    return np.array(ints, np.int32).tobytes() + np.array(arc_weights, np.float32).tobytes()


def test_load_reads_what_gtn_saved(tmp_path):
    path = tmp_path / "transitions.bin"
    path.write_bytes(gtn_bytes(4, [0], [1, 2], [(0, 1, 3, 4), (0, 2, -1, 5)], [0.5, -1.5]))
    graph = gtn.load(str(path))
    assert repr(graph) == "0\n1 2\n0 1 3 4 0.5\n0 2 -1 5 -1.5\n"
    assert graph.num_nodes() == 4
    path.write_bytes(gtn_bytes(0, [], [], [], []))
    assert gtn.equal(gtn.load(path), gtn.Graph())


@pytest.mark.parametrize("cut", [1, 4, 20, 40])
def test_a_truncated_gtn_file_is_a_value_error(tmp_path, cut):
    path = tmp_path / "graph.bin"
    path.write_bytes(gtn_bytes(2, [0], [1], [(0, 1, 3, 3)], [0.5])[:-cut])
    with pytest.raises(ValueError, match="load"):
        gtn.load(path)


def test_a_gtn_file_with_a_bad_node_is_a_value_error(tmp_path):
    path = tmp_path / "graph.bin"
    path.write_bytes(gtn_bytes(2, [0], [1], [(0, 7, 3, 3)], [0.5]))
    with pytest.raises(ValueError, match="7"):
        gtn.load(path)


def test_save_and_load_give_the_graph_back(tmp_path):
    path = str(tmp_path / "graph.bin")
    for graph in (gtn.Graph(), fork(0.1, -math.inf), chain(1, 2, 3)):
        gtn.save(path, graph)
        assert gtn.equal(gtn.load(path), graph)
        assert isinstance(gtn.load(path), gtn.Graph)


def test_a_missing_file_is_a_value_error(tmp_path):
    for load in (gtn.load, gtn.loadtxt):
        with pytest.raises(ValueError, match="nowhere"):
            load(str(tmp_path / "nowhere"))


def test_text_files_have_the_lines_of_gtn(tmp_path):
    path = tmp_path / "graph.txt"
    lines = ["0 1", "2", "0 2 3 4 1.1", "1 2 5 -1 -0.3333333"]
    path.write_text("\n".join([*lines, "2 2 7", "2 2 8 9"]))
    graph = gtn.loadtxt(str(path))
    gtn.savetxt(str(path), graph)
    expected = [*lines, "2 2 7 7 0", "2 2 8 9 0"]
    assert path.read_text().splitlines() == expected
    assert repr(graph).splitlines() == [*expected[:3], "1 2 5 -1 -0.333333", *expected[4:]]


@pytest.mark.parametrize(
    "text", ["", "0", "0 0\n1", "0\n1 1", "0\n1\n0 1", "0\n1\n0 1 2 3 4 5", "0\n1\n0 1 x"]
)
def test_bad_text_is_a_value_error(tmp_path, text):
    path = tmp_path / "graph.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match="loadtxt"):
        gtn.loadtxt(str(path))


def test_a_missing_symbol_is_an_index_error(tmp_path):
    for write, name in ((gtn.write_dot, "graph.dot"), (gtn.draw, "graph.svg")):
        with pytest.raises(IndexError, match="label 1 "):
            write(fork(1.0, 2.0), str(tmp_path / name), {0: "a"})
        assert not (tmp_path / name).exists()


def test_empty_symbols_mean_numbers(tmp_path):
    path = tmp_path / "graph.dot"
    gtn.write_dot(fork(1.0), str(path), {}, {})
    assert 'label="0/1"' in path.read_text()


def test_a_dot_file_that_cannot_be_written_is_a_runtime_error(tmp_path):
    with pytest.raises(RuntimeError, match="write_dot"):
        gtn.write_dot(fork(1.0), str(tmp_path / "nowhere" / "graph.dot"))
