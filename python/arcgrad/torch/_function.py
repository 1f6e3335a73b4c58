"""From graphs to tensors: the one function on torch's tape that differentiates graph programs.

``_leaves`` makes the graphs that a program starts with. Here its results become tensors, and their
gradients flow back to the tensors of those leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

import arcgrad as ag
from arcgrad import _core
from arcgrad._arguments import checked, renamed

from ._leaves import NO_FORWARD_MODE, Array, Origin, borrow, graph, refuse_transforms

Floats = npt.NDArray[np.float64]

# Inside backward: whether torch keeps its graph for another backward. If torch cannot tell, the
# tape is kept.
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


class _Output:
    """The weights of graphs as one tensor, and the external arrays that its gradient goes to.

    Args:
        graphs: The graphs.
        is_list: Whether the tensor has a dimension for the graphs; else there is one graph.
        sources: The external arrays, as :func:`_core.find_sources` lists them.
        rows: The least number of rows of linear graphs, which are padded with zeros.
        joined: Whether graphs may have different sizes and follow each other in one row.
    """

    __slots__ = ("graphs", "is_list", "kind", "shape", "sources")

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

    def _find_shape(self, rows: int, joined: bool) -> None:
        views = [np.asarray(graph.weights_view()) for graph in self.graphs]
        if all(view.ndim == 2 for view in views):
            widths = {view.shape[1] for view in views}
            self.kind = "emissions"
            length = max([rows, *(view.shape[0] for view in views)])
        else:
            sizes = [graph.num_weights() for graph in self.graphs]
            widths = set(sizes)
            self.kind, length = "arcs", 0
            if len(widths) > 1 and joined:
                self.kind, self.shape = "joined", (sum(sizes),)
                return
        if len(widths) > 1:
            raise ValueError(
                "tensor: graphs of a list must have the same number of arcs (or of labels, if they "
                f"are linear), but they have {sorted(widths)}"
            )
        width = widths.pop() if widths else 0
        self.shape = (
            (len(views), length, width) if self.kind == "emissions" else (len(views), width)
        )

    def read(self, dtype: torch.dtype) -> Tensor:
        """The weights as a tensor of float32 or float64."""
        flat = torch.from_numpy(_core.read_weights(self.graphs, dtype is torch.float64))
        out = flat
        if self.kind in ("emissions", "arcs"):
            out = flat.new_zeros(self.shape)
            at = 0
            for row, graph in zip(out, self.graphs, strict=True):
                count = graph.num_weights()
                row.view(-1)[:count] = flat[at : at + count]
                at += count
        return out if self.is_list else out[0].clone()

    def seeds(self, grad: Tensor) -> Array:
        """A gradient of the tensor as those of all arcs, one graph after the other."""
        array = grad.detach().contiguous().numpy()
        if self.kind != "emissions":
            return cast(Array, array.reshape(-1))
        rows = array.reshape(len(self.graphs), -1)
        parts = [row[: g.num_arcs()] for row, g in zip(rows, self.graphs, strict=True)]
        return np.concatenate(parts) if parts else rows.reshape(-1)

    def recorded_seeds(self, grad: Tensor) -> list[ag.Graph]:
        """The same as graphs over the gradient, for a second derivative."""
        if not self.is_list:
            grad = grad.unsqueeze(0)
        if self.kind == "emissions":
            return borrow("tensor", grad, [g.num_nodes() - 1 for g in self.graphs], True)
        if not self.graphs:
            return []
        first = self.graphs[0]
        grad = grad.to(torch.float64 if first.dtype == np.float64 else torch.float32)
        if self.kind == "joined":
            return graph(self.graphs, grad)
        found: list[ag.Graph] = graph(first, grad.reshape(len(self.graphs), -1), batch=True)
        return found


class _Losses(_Output):
    """Losses ``[B]``, or with a factor for each of them their weighted sum ``[]``."""

    __slots__ = ("factors", "zero_infinity")

    def __init__(
        self,
        graphs: list[ag.Graph],
        sources: list[Any],
        factors: Floats | None,
        zero_infinity: bool,
    ) -> None:
        # What the base class finds out for any graphs is known for losses.
        self.graphs, self.sources, self.is_list = graphs, sources, True
        self.kind, self.shape = "scores", (len(graphs),)
        self.factors, self.zero_infinity = factors, zero_infinity

    def read(self, dtype: torch.dtype) -> Tensor:
        is_double = dtype is torch.float64
        losses = _core.reduce_losses(self.graphs, self.factors, self.zero_infinity, is_double)
        return torch.from_numpy(losses)

    def seeds(self, grad: Tensor) -> Array:
        if self.factors is None:
            return super().seeds(grad)
        scale = grad.item()
        # The usual gradient, 1, skips a NumPy operation: 5 % of the time of a tiny batch.
        return self.factors if scale == 1.0 else self.factors * scale

    def recorded_seeds(self, grad: Tensor) -> list[ag.Graph]:
        if self.factors is not None:
            grad = grad * torch.from_numpy(self.factors)
        return super().recorded_seeds(grad)


def _gradients(output: _Output, grad: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
    """The gradient of each wanted source."""
    sources = [source for source, want in zip(output.sources, wanted, strict=True) if want]
    found = iter(_core.source_gradients(output.graphs, output.seeds(grad), sources))
    return [
        torch.from_numpy(source.owner.fold(next(found))) if want else None
        for source, want in zip(output.sources, wanted, strict=True)
    ]


def _recorded_gradients(
    output: _Output, grad: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The same on both tapes, so that they can be differentiated again."""
    sources = [source for source, want in zip(output.sources, wanted, strict=True) if want]
    seeds = output.recorded_seeds(grad)
    found = iter(_core.record_source_gradients(output.graphs, seeds, sources))
    return [
        _unfold(source.owner, next(found)) if want else None
        for source, want in zip(output.sources, wanted, strict=True)
    ]


def _unfold(origin: Origin, graphs: list[ag.Graph]) -> Tensor:
    """The gradient graphs of the leaves of a tensor as a tensor of the same shape."""
    shape, layout = origin.tensor.shape, origin.layout
    # Leaves with fewer frames than the tensor are padded. Leaves of arcs may differ in size.
    rows = {"TC": 0, "TBC": 0, "BTC": 1}.get(layout)
    output = _Output(
        graphs,
        layout != "TC",
        _core.find_sources(graphs),
        0 if rows is None else shape[rows],
        joined=rows is None,
    )
    whole = _apply(output, origin.tensor.dtype)
    return whole.transpose(0, 1) if layout == "TBC" else whole.reshape(shape)


class _Function(torch.autograd.Function):
    """Graphs to a tensor, differentiable with respect to the tensors of their leaves."""

    @staticmethod
    def forward(ctx: Any, output: _Output, dtype: torch.dtype, *tensors: Tensor) -> Tensor:
        ctx.output = output
        # Torch checks them in backward: whether they were changed, or its graph was freed.
        ctx.save_for_backward(*tensors)
        return output.read(dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        _ = ctx.saved_tensors
        output: _Output = ctx.output
        wanted = ctx.needs_input_grad[2:]
        if torch.is_grad_enabled():
            return (None, None, *_recorded_gradients(output, grads[0], wanted))
        gradients = _gradients(output, grads[0], wanted)
        if not _keeps_graph():
            ctx.output = None
        return (None, None, *gradients)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise RuntimeError(NO_FORWARD_MODE)


_run: Callable[..., Tensor] = _Function.apply


def _apply(output: _Output, dtype: torch.dtype) -> Tensor:
    """The tensor of an output, on torch's tape if any leaf requires a gradient."""
    tensors = []
    for source in output.sources:
        source.owner.check()
        tensors.append(source.owner.tensor)
    return _run(output, dtype, *tensors) if tensors else output.read(dtype)


def losses_tensor(
    graphs: list[ag.Graph],
    factors: Floats | None,
    zero_infinity: bool,
    emissions: Tensor,
) -> Tensor:
    """Losses as a tensor: ``[B]``, or with a factor for each of them their weighted sum ``[]``.

    Their type and device follow the emissions. The result is the same as with torch's operations on
    :func:`tensor`, but all of it is one entry of torch's tape.
    """
    dtype = torch.float64 if emissions.dtype is torch.float64 else torch.float32
    out = _apply(_Losses(graphs, _core.find_sources(graphs), factors, zero_infinity), dtype)
    return out if emissions.is_cpu else out.to(emissions.device)


@checked
def tensor(
    graphs: ag.Graph | Sequence[ag.Graph],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The weights of graphs as a tensor on torch's tape.

    This makes a program on graphs a function of torch: gradients of the result flow to the tensors
    that :func:`emissions` and :func:`graph` were called with, to first and second order. A score
    that is not finite passes no gradient.

    Args:
        graphs: Usually scores: a scalar graph, or a list of them. Other graphs give one entry per
            arc.
        dtype: By default the type of the tensors that the graphs were made from, or the type of the
            graphs if none of these tensors requires a gradient.
        device: By default the device of the tensors that the graphs were made from, or the CPU if
            none of these tensors requires a gradient.

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
        raise TypeError(
            "tensor: graphs must be a Graph or a list of Graphs, but it is of type "
            f"{type(graphs).__name__}"
        )
    refuse_transforms("tensor")
    batch: Sequence[ag.Graph] = graphs if is_list else [graphs]  # type: ignore[assignment,list-item]
    with renamed("tensor"):
        found = _core.find_sources(batch)
    output = _Output(batch, is_list, found)
    sources = output.sources
    if dtype is None:
        kinds = {source.owner.tensor.dtype for source in sources} or {
            torch.float64 if g.dtype == np.float64 else torch.float32 for g in output.graphs
        }
        dtype = torch.float64 if torch.float64 in kinds else torch.float32
    own = torch.float64 if dtype is torch.float64 else torch.float32
    out = _apply(output, own)
    if dtype is not own:
        out = out.to(dtype)
    if device is None and sources:
        device = sources[0].owner.device
    if device is not None and torch.device(device).type != "cpu":
        out = out.to(device)
    return out
