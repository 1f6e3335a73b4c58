"""`arcgrad.gtn` as a module: its names, arguments, devices, and mixed programs."""

import doctest
import inspect

import pytest
from gtn_programs import BINARY, UNARY, fork

import arcgrad as ag
import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon

NAMES = [
    *UNARY,
    *BINARY,
    *("Graph", "Device", "DeviceType", "CPU", "CUDA", "cuda", "criterion", "epsilon"),
    *("union", "remove", "backward", "linear_graph", "scalar_graph", "parallel_for"),
    *("equal", "isomorphic", "rand_equivalent", "sample"),
    *("load", "save", "loadtxt", "savetxt", "write_dot", "draw", "__version__"),
]


# Names


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_gtn_exists(name):
    assert name in gtn.__all__
    assert getattr(gtn, name) is not None


def test_no_other_name_is_exported():
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
    assert gtn.remove(g=graph, label=0).num_arcs() == 1
    assert gtn.remove(g=graph, ilabel=1, olabel=1).num_arcs() == 1
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


def test_the_signature_of_a_graph_has_its_options():
    assert list(inspect.signature(gtn.Graph).parameters) == ["calc_grad", "dtype"]


def test_draw_reports_errors_under_its_own_name(tmp_path):
    with pytest.raises(TypeError, match=r"draw: graph must be a Graph, but it is 'x' \(str\)"):
        gtn.draw("x", tmp_path / "graph.svg")
    with pytest.raises(IndexError, match="draw: the input symbols must name every label"):
        gtn.draw(gtn.linear_graph(1, 2), tmp_path / "graph.svg", {0: "a"})


def test_everything_is_documented_and_the_example_runs():
    for name in gtn.__all__:
        thing = getattr(gtn, name)
        assert not callable(thing) or len((inspect.getdoc(thing) or "").split()) > 2, name
    results = doctest.testmod(gtn)
    assert results.attempted > 0
    assert results.failed == 0


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
    ],
)
def test_a_gpu_is_a_runtime_error(call):
    with pytest.raises(RuntimeError, match=r"a CUDA device is needed, but .* CPU only"):
        call()


@pytest.mark.parametrize(
    "call",
    [
        gtn.cuda.device_count,
        gtn.cuda.get_device,
        lambda: gtn.cuda.set_device(0),
        gtn.cuda.synchronize,
        lambda: gtn.cuda.synchronize(0),
    ],
)
def test_questions_about_a_gpu_are_a_value_error(call):
    with pytest.raises(ValueError, match=r"^cuda\.\w+: a CUDA device is needed, but .* CPU only"):
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
