"""The bridge between the tapes of arcgrad and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.autograd import forward_ad

import arcgrad as ag
from arcgrad import _core

Array = npt.NDArray[Any]

# Inside backward, whether the caller will differentiate the same graph again. Without it the tape
# is kept as long as torch keeps its own.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def to_host(x: Tensor) -> Tensor:
    """A tensor in the memory of the processor, float32 or float64: the one way off a device.

    It is made with operations of torch, so gradients find their way back.
    """
    if x.dtype is not torch.float32 and x.dtype is not torch.float64:
        x = x.float()
    if x.is_neg():  # a view that torch negates when it reads
        x = x.resolve_neg()
    return x if x.is_cpu else x.cpu()


def _prepare(op: str, x: Tensor) -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{op}: expected a tensor, but got {type(x).__name__}")
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        raise RuntimeError(
            f"{op}: graphs cannot be used under transforms of torch.func (grad, vmap), but the "
            "tensor is inside of one; use torch.autograd, and lists of graphs as batches"
        )
    if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
        raise RuntimeError(_NO_FORWARD_MODE)
    if x._is_zerotensor():
        x = x.clone()
    if x.dtype is not torch.float32 and not x.is_floating_point():
        raise TypeError(f"{op}: the tensor must hold real numbers, but its dtype is {x.dtype}")
    if x.layout is not torch.strided:
        raise TypeError(f"{op}: the tensor must be dense, but its layout is {x.layout}")
    return to_host(x)


_NO_FORWARD_MODE = (
    "arcgrad: forward-mode differentiation of graphs does not exist, but a tensor has a tangent; "
    "use reverse mode (backward or torch.autograd.grad)"
)


class _Origin:
    """A tensor that leaves were made from, and how their gradients make up its own."""

    __slots__ = ("device", "fold", "op", "tensor", "version")

    def __init__(self, op: str, host: Tensor, device: torch.device, fold: Any) -> None:
        self.op, self.tensor, self.device, self.fold = op, host, device, fold
        self.version = host._version

    def check(self) -> None:
        """Raises if the tensor was changed after its values became weights."""
        if self.tensor._version != self.version:
            raise RuntimeError(
                f"{self.op}: the tensor must not be changed in place between this call and "
                f"agt.tensor, but it was ({self.version} changes before, "
                f"{self.tensor._version} now)"
            )


def _fold_batch(gradient: Array) -> Array:
    return gradient


def _fold_time(gradient: Array) -> Array:
    return gradient.transpose(1, 0, 2)


def _fold_one(gradient: Array) -> Array:
    return cast(Array, gradient[0])


def ints(values: Any) -> Any:
    """Lengths or labels as NumPy or the core take them."""
    if not isinstance(values, Tensor):
        return values
    return values.numpy() if values.is_cpu else values.cpu().numpy()


def _borrow(
    op: str, x: Tensor, lengths: Any, batch_first: bool, *, is_final: bool = False
) -> list[ag.Graph]:
    """Graphs over a tensor; ``is_final`` says that nothing made from them is differentiated."""
    host = _prepare(op, x)
    calc_grad = host.requires_grad and torch.is_grad_enabled()
    if not calc_grad:
        host = _constant(host, x, is_final)
    shape, strides = tuple(host.shape), host.stride()
    if len(shape) == 2:
        fold: Any = _fold_one
        shape, strides = (1, *shape), (0, *strides)
        if lengths is not None:
            lengths = np.reshape(ints(lengths), -1)
    elif len(shape) == 3:
        fold = _fold_batch
        if not batch_first:
            fold = _fold_time
            shape, strides = (shape[1], shape[0], shape[2]), (strides[1], strides[0], strides[2])
    else:
        raise ValueError(
            f"{op}: the tensor must have the shape [T, C] or "
            f"{'[B, T, C]' if batch_first else '[T, B, C]'}, but its shape is {list(shape)}"
        )
    owner = _Origin(op, host, x.device, fold) if calc_grad else host
    return _core.borrow_emissions(
        owner,
        host.data_ptr(),
        host.dtype is torch.float64,
        shape,
        strides,
        ints(lengths),
        calc_grad,
    )


def _constant(host: Tensor, x: Tensor, is_final: bool) -> Tensor:
    """Weights without a gradient, which no later change of the tensor may reach.

    Gradients of other weights can depend on them, and nothing watches over their tensor.
    """
    host = host.detach()
    shares = x.is_cpu and host.data_ptr() == x.data_ptr()
    return host.clone() if shares and torch.is_grad_enabled() and not is_final else host


def emissions(
    x: Tensor, lengths: Any = None, *, batch_first: bool = True
) -> ag.Graph | list[ag.Graph]:
    """Dense linear graphs over a tensor, without a copy.

    The weight of the arc with label ``c`` at frame ``t`` is ``x[b, t, c]``. Gradients of the graphs
    become the gradient of the tensor through :func:`tensor`. If the tensor needs no gradient, none
    is computed; it is then copied unless under ``torch.no_grad()``, since gradients of other
    weights may depend on its present values.

    Args:
        x: A tensor ``[B, T, C]``, or ``[T, C]`` for a single example. float16 and bfloat16 are
            computed in float32. A tensor on another device is moved to the host.
        lengths: The number of frames of each example; by default all of them. Frames beyond are
            never looked at, and their gradient is 0.
        batch_first: Whether the tensor is ``[B, T, C]`` rather than ``[T, B, C]``.

    Returns:
        A list of B graphs, or one graph for ``[T, C]``.

    Raises:
        ValueError: If the shape has another number of dimensions, or a length does not fit.
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
    graphs = _borrow("emissions", x, lengths, batch_first)
    return graphs[0] if x.dim() == 2 else graphs


@overload
def graph(graph: ag.Graph, weights: Tensor) -> ag.Graph: ...
@overload
def graph(graph: Sequence[ag.Graph], weights: Tensor) -> list[ag.Graph]: ...
@overload
def graph(graph: ag.Graph, weights: Tensor, *, batch: bool) -> Any: ...
def graph(
    graph: ag.Graph | Sequence[ag.Graph], weights: Tensor, *, batch: bool = False
) -> ag.Graph | list[ag.Graph]:
    """A graph with the nodes and arcs of another, whose weights are a tensor.

    Args:
        graph: Gives nodes, arcs and labels; its own weights do not matter. A list of graphs shares
            the tensor.
        weights: One entry per arc, in the order of the arcs and in any shape; those of the first
            graph of a list come first.
        batch: The first dimension of ``weights`` is a batch: a list of graphs results.

    Returns:
        A graph, or a list of graphs.

    Raises:
        ValueError: If there is not one weight per arc.

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
        raise ValueError("graph: a batch of weights is for one graph, but there is a list of them")
    parts: Sequence[ag.Graph] = graph if is_list else [graph]  # type: ignore[assignment,list-item]
    num_arcs, count = sum(part.num_arcs() for part in parts), host.shape[0] if batch else 1
    if host.numel() != count * num_arcs:
        raise ValueError(
            f"graph: there must be one weight per arc, {num_arcs}"
            f"{f' for each of {count} graphs' if batch else ''}, but the tensor has the shape "
            f"{list(weights.shape)}"
        )
    calc_grad = host.requires_grad and torch.is_grad_enabled()
    if not calc_grad:
        host = _constant(host, weights, False)
    shape = host.shape
    # A tensor that had to be copied keeps its history with torch, so what is folded is the copy.
    flat = host.reshape(count, num_arcs)
    owner: Any = flat
    if calc_grad:
        direct = flat.data_ptr() == host.data_ptr()
        source = host if direct else flat
        goal = tuple(shape) if direct else (count, num_arcs)
        owner = _Origin("graph", source, weights.device, lambda array: array.reshape(goal))
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


class _Program:
    """Graphs that become one tensor, and the sources their gradients go to.

    Linear graphs get at least so many ``rows``. Graphs of different sizes can be ``joined``, one
    after the other.
    """

    __slots__ = ("factors", "graphs", "is_list", "kind", "shape", "sources", "sum")
    # Of a sum of scores: its value, and the factor of each score.
    sum: Array
    factors: Array

    def __init__(
        self,
        graphs: Sequence[ag.Graph],
        is_list: bool,
        sources: list[Any],
        rows: int = 0,
        joined: bool = False,
    ) -> None:
        self.graphs, self.sources, self.is_list = list(graphs), sources, is_list
        self.kind = "scores"
        self.shape: tuple[int, ...] = (len(self.graphs),)
        if not _core.are_scores(self.graphs):
            self._find_shape(rows, joined)

    @classmethod
    def of_sum(
        cls,
        graphs: Sequence[ag.Graph],
        sources: list[Any],
        sizes: Any,
        zero_infinity: bool,
        dtype: torch.dtype,
    ) -> _Program:
        """The sum of scores as one number, or their mean after a division by sizes."""
        out = cls(graphs, False, sources)
        out.kind = "sum"
        parts: Any = _core.sum_scores(graphs, sizes, zero_infinity, dtype is torch.float64)
        out.sum, out.factors = parts
        return out

    def _find_shape(self, rows: int, joined: bool) -> None:
        views = [np.asarray(graph.weights_view()) for graph in self.graphs]
        if all(view.ndim == 2 for view in views):
            widths = {view.shape[1] for view in views}
            self.kind = "emissions"
            length = max([rows, *(view.shape[0] for view in views)])
        else:
            widths = {view.size for view in views}
            self.kind, length = "arcs", 0
        if len(widths) > 1 and joined:
            self.kind, self.shape = "joined", (sum(view.size for view in views),)
            return
        if len(widths) > 1:
            raise ValueError(
                "tensor: graphs of a list must have as many arcs each (or labels, if they are "
                f"linear), but they have {sorted(widths)}"
            )
        width = widths.pop() if widths else 0
        self.shape = (
            (len(views), length, width) if self.kind == "emissions" else (len(views), width)
        )

    def read(self, dtype: torch.dtype) -> Tensor:
        """The weights as a tensor, with padding where linear graphs are shorter."""
        if self.kind == "sum":
            return torch.from_numpy(self.sum)
        flat = torch.from_numpy(_core.read_weights(self.graphs, dtype is torch.float64))
        out = flat
        if self.kind in ("emissions", "arcs"):
            out = flat.new_zeros(self.shape)
            at = 0
            for row, graph in zip(out, self.graphs, strict=True):
                count = graph.num_arcs()
                row.view(-1)[:count] = flat[at : at + count]
                at += count
        return out if self.is_list else out[0].clone()

    def flatten(self, grad: Tensor) -> Array:
        """A gradient of the tensor without the padding, as the weights of all graphs in a row."""
        array = grad.detach().contiguous().numpy()
        if self.kind != "emissions":
            return cast(Array, array.reshape(-1))
        rows = array.reshape(len(self.graphs), -1)
        parts = [row[: g.num_arcs()] for row, g in zip(rows, self.graphs, strict=True)]
        return np.concatenate(parts) if parts else rows.reshape(-1)

    def gradients(self, grad: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        """One gradient for each source that wants one."""
        sources = [source for source, want in zip(self.sources, wanted, strict=True) if want]
        if self.kind == "sum":
            found = _core.source_gradients(self.graphs, self.factors, sources, grad.item())
        else:
            found = _core.source_gradients(self.graphs, self.flatten(grad), sources)
        arrays = iter(found)
        return [
            torch.from_numpy(source.owner.fold(next(arrays))) if want else None
            for source, want in zip(self.sources, wanted, strict=True)
        ]

    def recorded_gradients(self, grad: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        """The same on both tapes, so that they can be differentiated again."""
        if self.kind == "sum":
            grad = grad * torch.from_numpy(self.factors)
        elif not self.is_list:
            grad = grad.unsqueeze(0)
        seeds: list[ag.Graph]
        if self.kind == "emissions":
            seeds = _borrow("tensor", grad, [g.num_nodes() - 1 for g in self.graphs], True)
        elif self.graphs:
            first = self.graphs[0]
            grad = grad.to(torch.float64 if first.dtype == np.float64 else torch.float32)
            if self.kind == "joined":
                seeds = graph(self.graphs, grad)
            else:
                seeds = graph(first, grad.reshape(len(self.graphs), -1), batch=True)
        else:
            seeds = []
        sources = [source for source, want in zip(self.sources, wanted, strict=True) if want]
        found = iter(_core.record_source_gradients(self.graphs, seeds, sources))
        out: list[Tensor | None] = []
        for source, want in zip(self.sources, wanted, strict=True):
            out.append(_unfold(source.owner, next(found)) if want else None)
        return out


def _unfold(origin: _Origin, graphs: list[ag.Graph]) -> Tensor:
    """The gradient graphs of a source's leaves as a tensor shaped like its tensor."""
    shape = origin.tensor.shape
    if origin.fold is _fold_one:
        return _apply(_Program(graphs, False, _core.find_sources(graphs), shape[0]), origin)
    rows, joined = 0, True
    if origin.fold in (_fold_batch, _fold_time):
        rows, joined = shape[0 if origin.fold is _fold_time else 1], False
    whole = _apply(_Program(graphs, True, _core.find_sources(graphs), rows, joined), origin)
    return whole.transpose(0, 1) if origin.fold is _fold_time else whole.reshape(shape)


def _apply(program: _Program, like: _Origin) -> Tensor:
    return _run(program, like.tensor.dtype, *_tensors(program.sources))


def _tensors(sources: list[Any]) -> list[Tensor]:
    tensors = []
    for source in sources:
        source.owner.check()
        tensors.append(source.owner.tensor)
    return tensors


class _Bridge(torch.autograd.Function):
    """Graphs to a tensor, differentiable with respect to the tensors they were made from."""

    @staticmethod
    def forward(ctx: Any, program: _Program, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        ctx.program = program
        # Reading them back in backward raises if torch freed its graph or they were changed.
        ctx.save_for_backward(*tensors)
        return program.read(dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        _ = ctx.saved_tensors
        program: _Program = ctx.program
        wanted = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return (None, None, *program.recorded_gradients(grads[0], wanted))
        gradients = program.gradients(grads[0], wanted)
        if not _keeps_graph():
            ctx.program = None
        return (None, None, *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(_NO_FORWARD_MODE)


_run: Callable[..., Tensor] = _Bridge.apply


def sum_tensor(
    graphs: Sequence[ag.Graph], sizes: Any, zero_infinity: bool, dtype: torch.dtype
) -> Tensor:
    """The sum of scores, or with sizes their mean after a division by them, as one tensor.

    The same as operations of torch on :func:`tensor`, without their cost.
    """
    sources: list[Any] = _core.find_sources(graphs)
    program = _Program.of_sum(graphs, sources, sizes, zero_infinity, dtype)
    if not sources:
        return program.read(dtype)
    out = _run(program, dtype, *_tensors(sources))
    device = sources[0].owner.device
    return out if device.type == "cpu" else out.to(device)


def tensor(
    graphs: ag.Graph | Sequence[ag.Graph],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The weights of graphs as a tensor on torch's tape.

    This is how a program on graphs becomes a function of torch: gradients of the result flow to
    the tensors that :func:`emissions` and :func:`graph` were called with, once or twice
    differentiated. A score that is not finite passes no gradient.

    Args:
        graphs: Most often scores: a scalar graph, or a list of them. Other graphs give one entry
            per arc.
        dtype: By default that of the tensors the graphs were made from, and that of the graphs if
            there are none with a gradient.
        device: By default that of the tensors the graphs were made from, else the processor.

    Returns:
        A tensor ``[]`` for a score, ``[B]`` for a list of scores, ``[arcs]`` for another graph,
        ``[frames, labels]`` for a linear one. Lists of linear graphs are padded with 0.

    Raises:
        ValueError: If graphs of a list have different numbers of arcs.
        RuntimeError: If a tensor was changed after the graphs were made from it.

    >>> import torch, arcgrad as ag, arcgrad.torch as agt
    >>> x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    >>> def log_normalizer(x):
    ...     return agt.tensor(ag.forward_score(agt.emissions(x)))
    >>> torch.allclose(log_normalizer(x), x.logsumexp(-1).sum())
    True
    >>> torch.autograd.gradcheck(log_normalizer, x)
    True
    >>> torch.autograd.gradgradcheck(log_normalizer, x)
    True
    """
    is_list = not isinstance(graphs, ag.Graph)
    if is_list and not isinstance(graphs, Sequence):
        raise TypeError(f"tensor: expected a graph or a list, but got {type(graphs).__name__}")
    batch: Sequence[ag.Graph] = graphs if is_list else [graphs]  # type: ignore[assignment,list-item]
    sources: list[Any] = _core.find_sources(batch)
    tensors = _tensors(sources)
    program = _Program(batch, is_list, sources)
    if dtype is None:
        kinds = {t.dtype for t in tensors} or {
            torch.float64 if g.dtype == np.float64 else torch.float32 for g in program.graphs
        }
        dtype = torch.float64 if torch.float64 in kinds else torch.float32
    own = torch.float64 if dtype is torch.float64 else torch.float32
    out = _run(program, own, *tensors) if tensors else program.read(own)
    if dtype is not own:
        out = out.to(dtype)
    if device is None and sources:
        device = sources[0].owner.device
    if device is not None and torch.device(device).type != "cpu":
        out = out.to(device)
    return out
