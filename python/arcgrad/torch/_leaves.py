"""From tensors to graphs: leaves of arcgrad's tape that read their weights from torch's memory.

``_function`` is the way back: it sends the gradients of these leaves to their tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd import forward_ad

import arcgrad as ag
from arcgrad import _core
from arcgrad._arguments import explained

Array = npt.NDArray[Any]
Layout = Literal["BTC", "TBC", "TC", "arcs"]

PAD = "; pad it (torch.nn.utils.rnn.pad_sequence) and pass lengths"
NO_FORWARD_MODE = (
    "arcgrad: graphs have no forward-mode derivative, but a tensor has a tangent; "
    "use reverse mode (backward or torch.autograd.grad)"
)


class Origin:
    """The tensor that leaves read their weights from.

    Attributes:
        op: The function that made the leaves.
        tensor: The tensor in host memory.
        device: The device of the tensor that the caller passed.
        layout: The dimensions of the tensor.
    """

    __slots__ = ("_version", "device", "layout", "op", "tensor")

    def __init__(self, op: str, tensor: Tensor, device: torch.device, layout: Layout) -> None:
        self.op, self.tensor, self.device, self.layout = op, tensor, device, layout
        self._version = tensor._version

    def check(self) -> None:
        """Raise RuntimeError if the tensor was changed in place since the leaves were made."""
        if self.tensor._version != self._version:
            raise RuntimeError(
                f"{self.op}: the tensor must not be changed in place between this call and "
                f"agt.tensor, but it was (version {self._version} before, "
                f"{self.tensor._version} now)"
            )

    def fold(self, gradient: Array) -> Array:
        """The gradients of all leaves, ``[leaves, rows, columns]``, in the shape of the tensor."""
        if self.layout == "BTC":
            return gradient
        if self.layout == "TBC":
            return gradient.transpose(1, 0, 2)
        return gradient.reshape(tuple(self.tensor.shape))


def to_host(x: Tensor) -> Tensor:
    """The tensor in host memory as float32 or float64.

    The only place where data leaves a device. It uses torch's operations, so gradients find their
    way back.
    """
    if x.dtype is not torch.float32 and x.dtype is not torch.float64:
        x = x.float()
    if x.is_neg():  # a view that torch negates on reading
        x = x.resolve_neg()
    return x if x.is_cpu else x.cpu()


def to_ints(values: Any) -> Any:
    """Lengths or labels as NumPy or the core reads them."""
    if not isinstance(values, Tensor):
        return values
    try:
        return values.numpy()  # refuses what is not dense, not on the host, or differentiable
    except (RuntimeError, TypeError):
        if values.is_nested or values.layout is not torch.strided:
            raise TypeError(
                "lengths and labels must be dense tensors or lists, but they are nested or sparse"
            ) from None
        return values.detach().cpu().numpy()


def refuse_transforms(op: str) -> None:
    """Raise RuntimeError inside a transform of torch.func: its tensors have no memory."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise RuntimeError(
            f"{op}: graphs cannot be used under transforms of torch.func (grad, vmap), but one is "
            "active; use torch.autograd, and lists of graphs as batches"
        )


def check_tensor(op: str, x: Any) -> None:
    """Raise unless the argument is a dense tensor of real numbers, outside of transforms."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{op}: a tensor is needed, but it is of type {type(x).__name__}"
            + (PAD if isinstance(x, Sequence) else "")
        )
    refuse_transforms(op)
    if x.dtype is not torch.float32 and not x.is_floating_point():
        raise TypeError(f"{op}: the tensor must hold real numbers, but its dtype is {x.dtype}")
    if x.is_nested:
        raise TypeError(f"{op}: the tensor must be dense, but it is nested{PAD}")
    if x.layout is not torch.strided:
        raise TypeError(f"{op}: the tensor must be dense, but its layout is {x.layout}")


def to_counts(op: str, lengths: Any, width: int | None = None) -> Array:
    """Lengths as an array. Those of a mask of bools are the numbers of its leading ones.

    ``width`` is the number of columns that a mask must have.
    """
    try:
        array = np.asarray(to_ints(lengths))
    except ValueError as error:
        raise TypeError(f"{op}: lengths must be array-like, but NumPy says: {error}") from None
    if array.dtype != np.bool_:
        return array
    mask = np.atleast_2d(array)
    if mask.ndim > 2 or width not in (None, mask.shape[1]):
        raise ValueError(
            f"{op}: a mask of lengths must have the shape [B, {width}], but its shape is "
            f"{list(array.shape)}"
        )
    holes = (mask[:, 1:] & ~mask[:, :-1]).any(1)
    if holes.any():
        raise ValueError(
            f"{op}: each row of a mask of lengths must be true up to a length and false after it, "
            f"but row {holes.argmax()} has true after false"
        )
    return np.asarray(mask.sum(1))


def all_weights(graphs: Sequence[ag.Graph]) -> Any:
    """The weights of graphs, with node weights, as one array."""
    return _core.read_weights(graphs, any(graph.dtype == np.float64 for graph in graphs))


def _prepare(op: str, x: Tensor) -> Tensor:
    """Check a tensor and move it to the host."""
    check_tensor(op, x)
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
        raise RuntimeError(NO_FORWARD_MODE)
    if x._is_zerotensor():
        x = x.clone()
    return to_host(x)


def _constant(host: Tensor, x: Tensor, is_final: bool) -> Tensor:
    """Weights without a gradient.

    They are copied if a gradient of other weights may depend on them: torch does not notice when
    the caller changes this tensor before backward.
    """
    host = host.detach()
    is_alias = x.is_cpu and host.data_ptr() == x.data_ptr()
    return host.clone() if is_alias and torch.is_grad_enabled() and not is_final else host


def borrow(
    op: str, x: Tensor, lengths: Any, batch_first: bool, *, is_final: bool = False
) -> list[ag.Graph]:
    """Dense linear graphs over a tensor, reported as ``op``.

    ``is_final`` promises that nothing made from them is differentiated, so no copy is needed.
    """
    host = _prepare(op, x)
    calc_grad = host.requires_grad and torch.is_grad_enabled()
    if not calc_grad:
        host = _constant(host, x, is_final)
    shape, strides = tuple(host.shape), host.stride()
    layout: Layout
    if len(shape) == 2:
        layout = "TC"
        shape, strides = (1, *shape), (0, *strides)
        if lengths is not None:
            lengths = to_counts(op, lengths, shape[1]).reshape(-1)
    elif len(shape) == 3:
        layout = "BTC"
        if not batch_first:
            layout = "TBC"
            shape, strides = (shape[1], shape[0], shape[2]), (strides[1], strides[0], strides[2])
    else:
        raise ValueError(
            f"{op}: the tensor must have the shape [T, C] or "
            f"{'[B, T, C]' if batch_first else '[T, B, C]'}, but its shape is {list(shape)}"
        )
    return _core.borrow_emissions(
        Origin(op, host, x.device, layout) if calc_grad else host,
        host.data_ptr(),
        host.dtype is torch.float64,
        shape,
        strides,
        to_ints(lengths),
        calc_grad,
    )


@explained
def emissions(
    x: Tensor, lengths: Any = None, *, batch_first: bool = True
) -> ag.Graph | list[ag.Graph]:
    """Dense linear graphs over a tensor, without a copy.

    The weight of the arc with label ``c`` at frame ``t`` is ``x[b, t, c]``. Gradients of the graphs
    become the gradient of the tensor through :func:`tensor`. A tensor that requires no gradient
    gets none. It is copied unless under ``torch.no_grad()``, because gradients of other weights may
    depend on its present values.

    Args:
        x: A tensor ``[B, T, C]``, or ``[T, C]`` for a single example. float16 and bfloat16 are
            computed in float32. A tensor on another device is moved to the host.
        lengths: The number of frames of each example; by default all of them. Frames beyond are
            padding: they are never read, and their gradient is 0. Or a mask ``[B, T]`` of bools,
            true up to the length of each example, also if time comes first.
        batch_first: Whether the tensor is ``[B, T, C]`` rather than ``[T, B, C]``.

    Returns:
        A list of B graphs, or one graph for ``[T, C]``.

    Raises:
        ValueError: If the number of dimensions is neither 2 nor 3, or a length does not fit.
        TypeError: If the tensor does not hold real numbers.
        RuntimeError: Under transforms of ``torch.func`` and in forward mode.

    >>> import torch, arcgrad as ag, arcgrad.torch as agt
    >>> x = torch.zeros(2, 3, 4, requires_grad=True)
    >>> graphs = agt.emissions(x, lengths=[3, 2])
    >>> [graph.num_nodes() for graph in graphs]
    [4, 3]
    >>> agt.tensor(ag.forward_score(graphs)).sum().backward()
    >>> x.grad[1, :, 0]
    tensor([0.2500, 0.2500, 0.0000])
    """
    graphs = borrow("emissions", x, lengths, batch_first)
    return graphs[0] if x.dim() == 2 else graphs


@overload
def graph(graph: ag.Graph, weights: Tensor) -> ag.Graph: ...
@overload
def graph(graph: Sequence[ag.Graph], weights: Tensor) -> list[ag.Graph]: ...
@overload
def graph(graph: ag.Graph, weights: Tensor, *, batch: bool) -> Any: ...
@explained
def graph(
    graph: ag.Graph | Sequence[ag.Graph], weights: Tensor, *, batch: bool = False
) -> ag.Graph | list[ag.Graph]:
    """A graph with the nodes and arcs of another, whose weights are a tensor.

    Args:
        graph: The nodes, arcs and labels; its own weights are ignored. The graphs of a list share
            the tensor.
        weights: One entry per arc, in the order of the arcs and in any shape. If the graph has node
            weights, those of start nodes and then of accept nodes follow. For a list, the weights
            of the first graph come first.
        batch: The first dimension of ``weights`` is a batch, and the result is a list of graphs.

    Returns:
        A graph, or a list of graphs.

    Raises:
        ValueError: If the number of weights is not the number of arcs.

    >>> import torch, arcgrad as ag, arcgrad.torch as agt
    >>> weights = torch.tensor([0.0, 0.0], requires_grad=True)
    >>> two = ag.Graph.from_arrays([0, 0], [1, 1], [0, 1], start=[0], accept=[1])
    >>> agt.tensor(ag.forward_score(agt.graph(two, weights))).backward()
    >>> weights.grad
    tensor([0.5000, 0.5000])
    """
    host = _prepare("graph", weights)
    if batch and host.dim() == 0:
        raise ValueError("graph: a batch of weights needs a dimension, but the tensor has none")
    is_list = not isinstance(graph, ag.Graph)
    if batch and is_list:
        raise ValueError("graph: a batch of weights needs a single graph, but there is a list")
    parts: Sequence[ag.Graph] = graph if is_list else [graph]  # type: ignore[assignment,list-item]
    num_weights, count = sum(g.num_weights() for g in parts), host.shape[0] if batch else 1
    if host.numel() != count * num_weights:
        ends = ", start and accept node" * any(g.has_node_weights() for g in parts)
        raise ValueError(
            f"graph: there must be one weight per arc{ends}, {num_weights}"
            f"{f' for each of {count} graphs' if batch else ''}, but the tensor has the shape "
            f"{list(weights.shape)}"
        )
    calc_grad = host.requires_grad and torch.is_grad_enabled()
    if not calc_grad:
        host = _constant(host, weights, False)
    flat = host.reshape(count, num_weights)
    owner: Any = flat
    if calc_grad:
        # If reshape had to copy, the copy is the leaf: torch's tape leads from it to the tensor.
        is_alias = flat.data_ptr() == host.data_ptr()
        owner = Origin("graph", host if is_alias else flat, weights.device, "arcs")
    strides = flat.stride()
    is_double = host.dtype is torch.float64
    if is_list:
        return _core.borrow_parts(parts, owner, flat.data_ptr(), is_double, strides[1], calc_grad)
    graphs = _core.borrow_graphs(
        parts[0],
        owner,
        flat.data_ptr(),
        is_double,
        count,
        (strides[0], strides[1]),
        calc_grad,
    )
    return graphs if batch else graphs[0]
