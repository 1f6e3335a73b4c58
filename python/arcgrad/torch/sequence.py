"""Sequence losses: the difference of two forward scores.

:class:`SequenceLoss` is the base of all losses; each of them says which graphs it compares.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

import arcgrad as ag
from arcgrad._arguments import checked

from . import _registry
from ._function import Floats, losses_tensor
from ._leaves import borrow, check_tensor, to_counts
from ._parameters import ChecksState
from ._targets import Targets

Reduction = Literal["none", "sum", "mean"]
Graphs = ag.Graph | Sequence[ag.Graph]
"""One graph for all examples, or one for each."""


def check_options(op: str, reduction: str, nan: str, infeasible: str) -> None:
    """Raise ValueError for an unknown `reduction`, `nan` or `infeasible`."""
    if not isinstance(reduction, str) or reduction not in ("none", "sum", "mean"):
        raise ValueError(
            f"{op}: the reduction must be 'none', 'sum' or 'mean', but it is {reduction!r}"
        )
    for name, value in (("nan", nan), ("infeasible", infeasible)):
        if not isinstance(value, str) or value not in ("raise", "propagate"):
            raise ValueError(f"{op}: {name} must be 'raise' or 'propagate', but it is {value!r}")


class SequenceLoss(ChecksState):
    r"""The negative log-likelihood of targets under two graphs (equation 1 of the paper).

    .. math:: \log\sum_{p \in Z_X} e^{s(p)} - \log\sum_{p \in A_{X,y}} e^{s(p)}

    Both graphs are intersected with the emissions here. Pass the graphs, or functions that make
    them; or write a subclass with the method :meth:`graphs`.

    Args:
        alignments: The paths that spell a target: a function of a list of targets that returns a
            list of graphs, or a graph or list of graphs for every call.
        normalizer: The paths of the normalizer: ``"emissions"`` for all paths, so that emissions
            may be any scores; None if emissions are log-probabilities; a graph; or a function
            without arguments that returns one. It must contain every path of the alignments.
        reduction: ``"mean"`` (divide each loss by the length of its target, then take the mean, as
            torch does), ``"sum"`` or ``"none"``.
        zero_infinity: Count a loss that is infinite, because no alignment fits, as 0. Its gradient
            is 0 in any case; :meth:`explain_infeasible` says why.
        nan: ``"raise"`` for NaN or +inf in the emissions, or ``"propagate"``: the loss and the
            gradient of that example are NaN.
        infeasible: ``"propagate"`` an infinite loss, or ``"raise"`` a ValueError that names the
            example, its target, and the frame at which its alignments end, if they do.

    Called with emissions ``[B, T, C]`` (or ``[T, C]`` for one example), targets, the lengths of the
    emissions and of the targets. Targets are padded ``[B, S]``, concatenated in one dimension, or
    a list of label sequences or graphs. Instead of lengths there may be masks ``[B, T]`` and
    ``[B, S]`` of bools, true up to the length of each example.

    >>> import torch, arcgrad as ag, arcgrad.torch as agt
    >>> tokens = ag.tokens.Tokens.ctc(num_labels=4)
    >>> loss = agt.SequenceLoss(lambda targets: ag.tokens.alignment_graph(tokens, targets))
    >>> x = torch.zeros(2, 5, 4, requires_grad=True)
    >>> value = loss(x, [[1, 2], [3]], lengths=[5, 4])
    >>> value.backward()
    >>> x.grad[1, 4]
    tensor([0., 0., 0., 0.])
    """

    batch_first = True

    @checked
    def __init__(
        self,
        alignments: Graphs | Callable[[list[Any]], Graphs] | None = None,
        normalizer: Graphs | Callable[[], Graphs] | Literal["emissions"] | None = "emissions",
        *,
        reduction: Reduction = "mean",
        zero_infinity: bool = False,
        nan: Literal["raise", "propagate"] = "raise",
        infeasible: Literal["raise", "propagate"] = "propagate",
    ) -> None:
        super().__init__()
        check_options(self._name(), reduction, nan, infeasible)
        if isinstance(normalizer, str) and normalizer != "emissions":
            raise ValueError(
                f"{self._name()}: the normalizer must be 'emissions', None, a graph or a function, "
                f"but it is {normalizer!r}"
            )
        self._alignments, self._normalizer = alignments, normalizer
        self.reduction, self.zero_infinity = reduction, zero_infinity
        self.nan, self.infeasible = nan, infeasible
        self._handle = _registry.register(self)

    def _name(self) -> str:
        return type(self).__name__

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._handle = _registry.register(self)

    def extra_repr(self) -> str:
        """The options, as modules of torch print them."""
        return f"reduction={self.reduction!r}, zero_infinity={self.zero_infinity}"

    def weights(self) -> tuple[Tensor, ...]:
        """The learned weights that :meth:`graphs` gets; none by default."""
        return ()

    def graphs(self, targets: Targets, *weights: Tensor) -> tuple[Graphs, Graphs | bool]:
        """The alignments of targets, and the normalizer: a graph, True for all paths, or False.

        A pure function of its arguments, so that it can be compiled and differentiated.
        """
        if self._alignments is None:
            raise ValueError(
                f"{self._name()}: there must be alignments, or a subclass with the method graphs, "
                "but there are none"
            )
        alignments: Any = self._alignments
        if callable(alignments):
            alignments = alignments(targets.sequences())
        normalizer: Any = self._normalizer
        if normalizer is None or normalizer == "emissions":
            return alignments, normalizer == "emissions"
        return alignments, normalizer() if callable(normalizer) else normalizer

    def emissions(self, scores: Tensor, targets: Targets) -> Tensor:
        """What the graphs are intersected with; by default the scores unchanged."""
        return scores

    def losses(
        self, emissions: Tensor, targets: Any, lengths: Any, target_lengths: Any, *weights: Tensor
    ) -> Tensor:
        """The loss of each example ``[B]``, given what :meth:`weights` returns."""
        read = self._read(emissions, targets, target_lengths)
        return self._score(emissions, read, lengths, weights, None, False)

    def forward(
        self, emissions: Tensor, targets: Any, lengths: Any = None, target_lengths: Any = None
    ) -> Tensor:
        """The loss of a batch; see the class for the forms of the arguments."""
        call = emissions, targets, lengths, target_lengths, self.weights()
        if torch.compiler.is_compiling():
            from ._compiled import compiled_loss

            return compiled_loss(self._handle, *call, self.reduction, self.zero_infinity)
        return self._compute(*call, self.reduction, self.zero_infinity)

    def _compute(
        self,
        emissions: Tensor,
        targets: Any,
        lengths: Any,
        target_lengths: Any,
        weights: tuple[Tensor, ...],
        reduction: str,
        zero_infinity: bool,
    ) -> Tensor:
        """The reduced loss of a batch. Every call of a loss ends here, eager or compiled."""
        read = self._read(emissions, targets, target_lengths)
        if not read.size:
            # Zero, but with a gradient: a process without examples takes part in the all-reduce.
            zero = (emissions * 0.0).sum()
            for weight in weights:
                zero = zero + (weight * 0.0).sum()
            if reduction == "none":
                return emissions.sum((1, 2) if self.batch_first else (0, 2))
            return zero if reduction == "sum" else zero / 0.0
        factors = _factors(reduction, read)
        out = self._score(emissions, read, lengths, weights, factors, zero_infinity)
        return out[0] if reduction == "none" and emissions.dim() == 2 else out

    def _read(self, emissions: Tensor, targets: Any, target_lengths: Any) -> Targets:
        check_tensor(self._name(), emissions)
        shape = emissions.shape
        if len(shape) not in (2, 3):
            order = "[B, T, C]" if self.batch_first else "[T, B, C]"
            raise ValueError(
                f"{self._name()}: the input must be {order} or [T, C], but it is {list(shape)}"
            )
        batch = shape[0 if self.batch_first else 1] if len(shape) == 3 else 1
        dtype = np.float64 if emissions.dtype is torch.float64 else np.float32
        return Targets(self._name(), targets, target_lengths, batch, shape[-1], dtype)

    def _score(
        self,
        emissions: Tensor,
        targets: Targets,
        lengths: Any,
        weights: tuple[Tensor, ...],
        factors: Floats | None,
        zero_infinity: bool,
    ) -> Tensor:
        """The losses ``[B]``, or with a factor for each of them their weighted sum ``[]``."""
        try:
            return self._fused(emissions, targets, lengths, weights, factors, zero_infinity)
        except ValueError:
            batch_dim = 0 if self.batch_first else 1
            if self.nan == "raise" or not (bad := _find_bad(emissions, lengths, batch_dim)).any():
                raise
        clean, touched, nan = _mask_bad(emissions, bad, batch_dim)
        losses = self._fused(clean, targets, lengths, weights, None, zero_infinity)
        losses = (losses + touched) * nan
        if factors is None:
            return losses
        return torch.dot(losses, torch.from_numpy(factors).to(losses))

    def _fused(
        self,
        emissions: Tensor,
        targets: Targets,
        lengths: Any,
        weights: tuple[Tensor, ...],
        factors: Floats | None,
        zero_infinity: bool,
    ) -> Tensor:
        """The same without NaN or +inf in the emissions: one entry of torch's tape."""
        name = self._name()
        alignments, normalizer = self.graphs(targets, *weights)
        is_final = not emissions.requires_grad and not _need_grad(alignments, normalizer)
        scores = self.emissions(emissions, targets)
        graphs = borrow(name, scores, lengths, self.batch_first, is_final=is_final)
        losses = _loss_graphs(name, graphs, alignments, normalizer)
        if self.infeasible == "raise":
            self._check_feasible(losses, targets, graphs, alignments)
        return losses_tensor(losses, factors, zero_infinity, emissions)

    def _check_feasible(
        self,
        losses: list[ag.Graph],
        targets: Targets,
        emissions: list[ag.Graph],
        alignments: Graphs,
    ) -> None:
        for i, loss in enumerate(losses):
            if not loss.item() < math.inf:
                target = targets.sequences()[i]
                is_graph = isinstance(target, ag.Graph)
                shown = "its graph" if is_graph else np.asarray(target).tolist()
                raise ValueError(
                    f"{self._name()} (element {i} of {len(losses)}): the target must have an "
                    f"alignment with a finite score, but {shown} has none: "
                    + _explain(_graph_of(alignments, i), emissions[i])
                )

    def explain_infeasible(
        self, emissions: Tensor, targets: Any, lengths: Any = None, target_lengths: Any = None
    ) -> dict[int, str]:
        """Why the losses of some examples are infinite: a reason for each of them.

        >>> import torch, arcgrad.torch as agt
        >>> loss = agt.TransducerLoss(3, blank="optional", allow_repeats=False)
        >>> loss.explain_infeasible(torch.zeros(2, 3, 4), [[1, 1], [1, 2, 2]])
        {1: 'the target needs at least 4 frames, but there are 3'}
        """
        read = self._read(emissions, targets, target_lengths)
        with torch.no_grad():
            weights = self.weights()
            alignments, normalizer = self.graphs(read, *weights)
            scores = self.emissions(emissions, read)
            graphs = borrow(self._name(), scores, lengths, self.batch_first, is_final=True)
            losses = _loss_graphs(self._name(), graphs, alignments, normalizer)
        return {
            i: _explain(_graph_of(alignments, i), graphs[i])
            for i, loss in enumerate(losses)
            if not loss.item() < math.inf
        }


def _graph_of(graphs: Graphs, i: int) -> ag.Graph:
    return graphs if isinstance(graphs, ag.Graph) else graphs[i if len(graphs) > 1 else 0]


_ONE = np.array(1)  # an array spares NumPy a conversion in each call


def _factors(reduction: str, targets: Targets) -> Floats | None:
    """The weight of each loss in the sum that a reduction is; None if it keeps them apart."""
    if reduction == "none":
        return None
    if reduction == "sum":
        return np.ones(targets.size)
    factors: Floats = (1.0 / targets.size) / np.maximum(targets.sizes(), _ONE)
    return factors


def _loss_graphs(
    op: str, emissions: list[ag.Graph], alignments: Graphs, normalizer: Graphs | bool
) -> list[ag.Graph]:
    """Equation 1 of the paper, negated, for a batch: log-sum over Z minus log-sum over A."""
    for name, graphs in (("alignments", alignments), ("normalizers", normalizer)):
        if isinstance(graphs, list) and len(graphs) not in (1, len(emissions)):
            raise ValueError(
                f"{op}: there must be one graph of {name} per example, {len(emissions)} in all, "
                f"but there are {len(graphs)}"
            )
    if isinstance(normalizer, bool):
        return ag.sequence_loss(alignments, emissions, normalizer)
    scores = ag.forward_score(ag.intersect(alignments, emissions))
    return ag.subtract(ag.forward_score(ag.intersect(normalizer, emissions)), scores)


def _need_grad(*graphs: Graphs | bool) -> bool:
    lists = [g if isinstance(g, list) else [g] for g in graphs]
    return any(isinstance(g, ag.Graph) and g.calc_grad for g in itertools.chain(*lists))


def _by_example(x: Tensor, batch_dim: int) -> Tensor:
    return (x.unsqueeze(batch_dim) if x.dim() == 2 else x).movedim(batch_dim, 0)


def _find_bad(x: Tensor, lengths: Any, batch_dim: int) -> Tensor:
    """Which examples have NaN or +inf within their lengths."""
    by_example = _by_example(x, batch_dim)
    bad = (by_example.isnan() | by_example.isposinf()).any(-1)
    if lengths is not None:
        counts = torch.as_tensor(to_counts("lengths", lengths), device=x.device).reshape(-1, 1)
        if len(counts) != len(bad):
            return torch.zeros(len(bad), dtype=torch.bool)  # the lengths are the error
        bad &= torch.arange(bad.shape[1], device=x.device) < counts
    return bad.any(-1)


def _mask_bad(x: Tensor, bad: Tensor, batch_dim: int) -> tuple[Tensor, Tensor, Tensor]:
    """The input with zeros for bad examples, and what makes their losses and gradients NaN.

    With the losses of that input, ``(losses + second) * third`` are the losses: the gradient of
    every entry of a bad example is then NaN too.
    """
    shape = [1] * x.dim()
    if x.dim() == 3:
        shape[batch_dim] = -1
    clean = torch.where(bad.view(shape), 0.0, x)
    touched = torch.where(bad, (_by_example(x, batch_dim) * 0.0).sum((1, 2)), 0.0)
    return clean, touched, torch.where(bad, torch.nan, 1.0)


def least_frames(graphs: Sequence[ag.Graph]) -> list[float]:
    """The least frames of any path of each graph, by its output labels; inf without a path.

    With failure arcs it may be less.
    """
    steps = []
    for graph in graphs:
        labels = graph.olabels()
        is_frame = (labels >= 0) | (labels == ag.rho)
        step = ag.Graph.from_arrays(
            graph.src_nodes(),
            graph.dst_nodes(),
            np.where(is_frame, 0, ag.epsilon),
            weight=np.where(is_frame, -1.0, 0.0),
            start=graph.start(),
            accept=graph.accept(),
            num_nodes=graph.num_nodes(),
            calc_grad=False,
        )
        steps.append(step)
    return [-score.item() for score in ag.viterbi_score(steps)]


def _explain(alignments: ag.Graph, emissions: ag.Graph) -> str:
    """Why no path of the alignments has a finite score with these emissions."""
    (shortest,) = least_frames([alignments])
    num_frames = emissions.num_nodes() - 1
    if shortest == math.inf:
        return "the target has no alignment at all"
    if shortest > num_frames:
        return f"the target needs at least {shortest:.0f} frames, but there are {num_frames}"
    has_failures = (alignments.olabels() < ag.epsilon).any()
    if not has_failures and (end := _find_end(alignments, emissions)) is not None:
        frame, labels, reason = end
        return (
            f"no alignment has a finite score beyond frame {frame}, whose label must be "
            f"{' or '.join(map(str, labels))}, because {reason}"
        )
    return f"every alignment has a score of -inf, or its length is not {num_frames} frames"


def _find_end(alignments: ag.Graph, emissions: ag.Graph) -> tuple[int, list[int], str] | None:
    """The first frame that no path reaches with a finite score, its possible labels, and why."""
    src, dst, _, label, weight = alignments.arcs()
    scores = np.asarray(emissions.weights_view())
    is_epsilon, is_finite = label == ag.epsilon, weight > -np.inf
    live = np.zeros(alignments.num_nodes(), np.bool_)
    live[alignments.start()] = True
    for frame, row in enumerate(scores):
        for _ in range(len(live)):  # at most: a longer epsilon path passes a node twice
            found = dst[is_epsilon & is_finite & live[src]]
            if live[found].all():
                break
            live[found] = True
        usable = live[src] & ~is_epsilon
        taken = usable & is_finite
        taken[taken] = row[label[taken]] > -np.inf
        if not taken.any():
            if not usable.any():
                return None  # all paths are shorter
            reason = "the weights of its arcs are -inf"
            if (usable & is_finite).any():
                reason = "its emission is -inf"
            return frame, np.unique(label[usable]).tolist(), reason
        live[:] = False
        live[dst[taken]] = True
    return None
