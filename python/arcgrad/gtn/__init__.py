"""The Python API of gtn on top of arcgrad: existing gtn programs run with their import changed.

The names, argument forms, exception types and results are those of gtn; the guide lists the defects
of gtn that are fixed. The graphs are arcgrad graphs, so functions of both can be mixed.

>>> import arcgrad.gtn as gtn
>>> emissions = gtn.linear_graph(3, 2)
>>> gtn.backward(gtn.forward_score(emissions))
>>> emissions.grad().weights_to_list()
[0.5, 0.5, 0.5, 0.5, 0.5, 0.5]
"""

from arcgrad import __version__, epsilon
from arcgrad._core import GtnGraph as Graph
from arcgrad.gtn import criterion, cuda
from arcgrad.gtn._device import CPU, CUDA, Device, DeviceType
from arcgrad.gtn._files import draw, load, loadtxt, save, savetxt, write_dot
from arcgrad.gtn._functions import (
    add,
    backward,
    clone,
    closure,
    compose,
    concat,
    equal,
    forward_score,
    intersect,
    isomorphic,
    linear_graph,
    negate,
    parallel_for,
    project_input,
    project_output,
    rand_equivalent,
    remove,
    sample,
    scalar_graph,
    subtract,
    union,
    viterbi_path,
    viterbi_score,
)

# Programs see the name of gtn, and pickle finds the class by it.
Graph.__module__, Graph.__name__, Graph.__qualname__ = __name__, "Graph", "Graph"

__all__ = [
    "CPU",
    "CUDA",
    "Device",
    "DeviceType",
    "Graph",
    "__version__",
    "add",
    "backward",
    "clone",
    "closure",
    "compose",
    "concat",
    "criterion",
    "cuda",
    "draw",
    "epsilon",
    "equal",
    "forward_score",
    "intersect",
    "isomorphic",
    "linear_graph",
    "load",
    "loadtxt",
    "negate",
    "parallel_for",
    "project_input",
    "project_output",
    "rand_equivalent",
    "remove",
    "sample",
    "save",
    "savetxt",
    "scalar_graph",
    "subtract",
    "union",
    "viterbi_path",
    "viterbi_score",
    "write_dot",
]
