"""A convolution layer whose kernels are graphs (equation 5 of the paper)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, Union

import torch
from torch import Tensor, nn

import arcgrad as ag
from arcgrad._arguments import checked

from ._function import tensor
from ._leaves import all_weights, check_tensor, emissions, graph, to_counts
from ._parameters import ChecksState, check_fingerprint, fingerprint
from .sequence import least_frames

# The name of a class in a string is imported on first use.
Kernels: TypeAlias = Union[
    Sequence[ag.Graph], Sequence[Sequence[int]], Mapping[str, Any], "ag.lexicon.Lexicon"
]
"""Graphs, or the labels of word pieces, with or without names."""


class ConvTransducer1d(ChecksState):
    r"""A one-dimensional convolution whose kernels are graphs (equation 5 of the paper).

    Output channel :math:`i` at position :math:`t` is the score of kernel :math:`K_i` composed with
    the window of the input at :math:`t`: a linear graph with one label per input channel.

    .. math:: H'_{t, i} = \operatorname{logadd}_{p \in K_i \circ R(H_{st : st + k})} s(p)

    Windows, strides, padding and dilation are as in :class:`torch.nn.Conv1d`, but channels come
    last. Padding is a score of 0 for every label, before ``normalize``: with ``"pre"`` all labels
    of a padded frame have the probability ``1 / in_channels``. All kernels, windows and examples
    are computed in one fused call. It is differentiable twice with respect to the input and the arc
    weights.

    Args:
        in_channels: The number of labels.
        kernels: One for each output channel. A graph matches the input by its output labels, and
            its weights are the initial values of the parameter. A word piece is a sequence of
            labels; its kernel is the graph of its alignments under ``tokens`` (Figure 3b), with
            weights of 0. Word pieces are a list, a mapping from names, or an
            :class:`arcgrad.lexicon.Lexicon`, whose graphemes are all labels but the blank. A
            function of ``in_channels`` may return any of these.
        kernel_size: The number of frames of a window.
        stride: From the start of one window to that of the next.
        padding: Frames of zeros on both sides, or ``"valid"`` for none, or ``"same"`` for as many
            outputs as inputs.
        dilation: From one frame of a window to the next.
        tokens: How frames spell word pieces; by default as in CTC with the blank 0. Labels last
            a single frame with ``Tokens.spike(in_channels)``, and blanks between them are required
            with ``Tokens(in_channels, blank="forced")``.
        learn: Whether the weights of arcs are a parameter; else they are constant.
        viterbi: Take the score of the best path instead of the sum over all.
        scale: Divide scores by the kernel size (``"linear"``) or its square root (``"sqrt"``), so
            that they do not grow with it.
        normalize: ``"pre"`` applies ``log_softmax`` to the padded input and ``exp`` to the scores,
            ``"post"`` applies ``softmax`` to the scores.
        floor: The least score, applied before ``normalize``. Without one, a kernel that matches no
            path of a window has the score -inf. Its gradient is 0 in any case.
        batch_first: Whether tensors are ``[B, T, C]`` rather than ``[T, B, C]``.
        device: Where the weights are.
        dtype: The type of the weights.

    Attributes:
        weight: The weights of all arcs, in the order of kernels, then of arcs.

    Raises:
        ValueError: If an option is unknown, a label is not below ``in_channels``, or a kernel needs
            more frames than a window has.

    Called with the input ``[B, T, in_channels]`` (or ``[T, in_channels]`` for one example) and the
    lengths of examples. Frames beyond them count as padding, so an output does not depend on the
    rest of the batch. Outputs beyond :meth:`output_lengths` are 0.

    >>> import torch, arcgrad.torch as agt
    >>> pieces = {"a": [1], "ab": [1, 2], "ba": [2, 1], "aa": [1, 1]}
    >>> layer = agt.ConvTransducer1d(3, pieces, kernel_size=5, stride=4, padding=2)
    >>> layer
    ConvTransducer1d(3, 4, kernel_size=5, stride=4, padding=2, arcs=34)
    >>> x = torch.randn(2, 20, 3, requires_grad=True)
    >>> layer(x, lengths=[20, 13]).shape, layer.output_lengths([20, 13])
    (torch.Size([2, 5, 4]), tensor([5, 4]))
    """

    weight: Tensor

    @checked
    def __init__(
        self,
        in_channels: int,
        kernels: Kernels | Callable[[int], Kernels],
        kernel_size: int | tuple[int],
        stride: int | tuple[int] = 1,
        padding: int | tuple[int] | Literal["valid", "same"] = 0,
        dilation: int | tuple[int] = 1,
        *,
        tokens: ag.tokens.Tokens | None = None,
        learn: bool = True,
        viterbi: bool = False,
        scale: Literal["none", "sqrt", "linear"] = "none",
        normalize: Literal["none", "pre", "post"] = "none",
        floor: float | None = None,
        batch_first: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_channels = in_channels
        self.kernel_size = _size("kernel_size", kernel_size, 1)
        self.stride = _size("stride", stride, 1)
        self.dilation = _size("dilation", dilation, 1)
        self.padding = padding if isinstance(padding, str) else _size("padding", padding, 0)
        self._pads = _pads(self.padding, self.kernel_size, self.stride, self.dilation)
        _check_option("scale", scale, ("none", "sqrt", "linear"))
        _check_option("normalize", normalize, ("none", "pre", "post"))
        self.learn, self.viterbi, self.batch_first = learn, viterbi, batch_first
        self.scale, self.normalize, self.floor = scale, normalize, floor

        self._kernels = _make_kernels(in_channels, kernels, self.kernel_size, tokens)
        self.out_channels = len(self._kernels)
        start = all_weights(self._kernels)
        weight = torch.as_tensor(start, dtype=dtype or torch.get_default_dtype(), device=device)
        if learn:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)

    def extra_repr(self) -> str:
        """The options, as modules of torch print them."""
        parts = [str(self.in_channels), str(self.out_channels), f"kernel_size={self.kernel_size}"]
        defaults = {
            "stride": 1,
            "padding": 0,
            "dilation": 1,
            "learn": True,
            "viterbi": False,
            "scale": "none",
            "normalize": "none",
            "floor": None,
            "batch_first": True,
        }
        for name, default in defaults.items():
            if (value := getattr(self, name)) != default:
                parts.append(f"{name}={value!r}")
        return ", ".join([*parts, f"arcs={self.weight.numel()}"])

    def get_extra_state(self) -> str:
        """The fingerprint of the kernels whose arcs have these weights."""
        return fingerprint(*self._kernels)

    def set_extra_state(self, state: object) -> None:
        """Raise RuntimeError for weights of other kernels."""
        check_fingerprint("ConvTransducer1d", self._kernels, state)

    def kernels(self) -> list[ag.Graph]:
        """The kernels with their present weights, for drawing and saving."""
        with torch.no_grad():
            return [kernel.detach() for kernel in graph(self._kernels, self.weight)]

    def output_lengths(self, lengths: Any) -> Tensor:
        """The lengths of the outputs for inputs of these lengths."""
        span = self.dilation * (self.kernel_size - 1) + 1
        if torch.as_tensor(lengths).dtype is torch.bool:
            lengths = to_counts("ConvTransducer1d", lengths)
        room = torch.as_tensor(lengths) + (sum(self._pads) - span)
        return (torch.div(room, self.stride, rounding_mode="floor") + 1).clamp_min(0)

    def forward(self, x: Tensor, lengths: Any = None) -> Tensor:
        """The scores of all kernels on all windows; see the class."""
        if torch.compiler.is_compiling():
            from ._compiled import forward_eagerly

            out: Tensor = forward_eagerly(self, x, lengths)
            return out
        return self._forward(x, lengths)

    def _forward(self, x: Tensor, lengths: Any) -> Tensor:
        check_tensor("ConvTransducer1d", x)
        if x.dim() not in (2, 3) or x.shape[-1] != self.in_channels:
            order = "[B, T, C]" if self.batch_first else "[T, B, C]"
            raise ValueError(
                f"ConvTransducer1d: the input must have the shape [T, C] or {order} with C = "
                f"{self.in_channels}, but its shape is {list(x.shape)}"
            )
        is_turned = x.dim() == 3 and not self.batch_first
        batch = x.unsqueeze(0) if x.dim() == 2 else x.transpose(0, 1) if is_turned else x
        sizes = None
        if lengths is not None:
            counts = to_counts("ConvTransducer1d", lengths, batch.shape[1])
            if counts.dtype.kind not in "iuf":
                raise TypeError(
                    f"ConvTransducer1d: lengths must be numbers, but they are {counts.dtype}"
                )
            sizes = torch.as_tensor(counts, device=x.device).reshape(-1)
            batch = _zero_beyond(batch, sizes)
        batch = nn.functional.pad(batch, (0, 0, *self._pads))
        if self.normalize == "pre":
            batch = batch.log_softmax(-1)
        out = self._scores(batch, sizes)
        if x.dim() == 2:
            return out.squeeze(0)
        return out.transpose(0, 1) if is_turned else out

    def _scores(self, x: Tensor, sizes: Tensor | None) -> Tensor:
        """The outputs for padded input ``[B, T, C]``."""
        count, frames = x.shape[:2]
        span = self.dilation * (self.kernel_size - 1) + 1
        if frames < span:
            raise ValueError(
                f"ConvTransducer1d: the input must have at least {span - sum(self._pads)} frames, "
                f"but it has {frames - sum(self._pads)}"
            )
        most = (frames - span) // self.stride + 1
        inputs = emissions(x, None if sizes is None else sizes + sum(self._pads))
        table = ag.outer_score(
            graph(self._kernels, self.weight),
            inputs,
            window=self.kernel_size,
            stride=self.stride,
            dilation=self.dilation,
            semiring="tropical" if self.viterbi else "log",
        )
        is_double = x.dtype is torch.float64
        out = tensor(
            table, dtype=torch.float64 if is_double else torch.float32, device=x.device
        ).to(x.dtype)
        if self.scale != "none":
            out = out / (self.kernel_size if self.scale == "linear" else self.kernel_size**0.5)
        if self.floor is not None:
            out = out.clamp_min(self.floor)
        if self.normalize != "none":
            out = out.exp() if self.normalize == "pre" else out.softmax(-1)
        if len(out) < count * most:
            assert sizes is not None
            is_output = torch.arange(most, device=x.device) < self.output_lengths(sizes)[:, None]
            rows = is_output.flatten().nonzero().squeeze(1)
            out = out.new_zeros(count * most, self.out_channels).index_copy(0, rows, out)
        return out.view(count, most, self.out_channels)


def _size(name: str, value: Any, least: int) -> int:
    """A number, or a tuple with one number as torch also takes it."""
    if isinstance(value, tuple) and len(value) == 1:
        value = value[0]
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(
            f"ConvTransducer1d: {name} must be a whole number of {least} or more, but it is "
            f"{value!r}"
        )
    return value


def _check_option(name: str, value: str, options: tuple[str, ...]) -> None:
    if value not in options:
        raise ValueError(
            f"ConvTransducer1d: {name} must be one of {', '.join(map(repr, options))}, but it is "
            f"{value!r}"
        )


def _pads(padding: str | int, kernel_size: int, stride: int, dilation: int) -> tuple[int, int]:
    """The frames of padding before and after the input."""
    if isinstance(padding, int):
        return padding, padding
    _check_option("padding", padding, ("valid", "same"))
    if padding == "valid":
        return 0, 0
    if stride != 1:
        raise ValueError(
            f"ConvTransducer1d: padding 'same' is for a stride of 1, but the stride is {stride}"
        )
    total = dilation * (kernel_size - 1)
    return total // 2, total - total // 2


def _zero_beyond(x: Tensor, sizes: Tensor) -> Tensor:
    """A batch ``[B, T, C]`` with zeros beyond the lengths."""
    count, frames = x.shape[:2]
    if len(sizes) != count:
        raise ValueError(
            f"ConvTransducer1d: there must be one length per example, {count} in all, but there "
            f"are {len(sizes)}"
        )
    if bool(((sizes < 0) | (sizes > frames)).any()):
        raise ValueError(
            f"ConvTransducer1d: a length must be between 0 and {frames}, the number of frames, but "
            f"they are {sizes.tolist()}"
        )
    is_input = torch.arange(frames, device=x.device) < sizes[:, None]
    return torch.where(is_input[..., None], x, 0.0)


def _make_kernels(
    in_channels: int,
    kernels: Kernels | Callable[[int], Kernels],
    kernel_size: int,
    tokens: ag.tokens.Tokens | None,
) -> list[ag.Graph]:
    if callable(kernels):
        kernels = kernels(in_channels)
    if isinstance(kernels, ag.lexicon.Lexicon):
        kernels = _spellings(in_channels, kernels, tokens)
    names = None
    if isinstance(kernels, Mapping):
        names, kernels = list(kernels), list(kernels.values())
    items: list[Any] = list(kernels)
    if not items:
        raise ValueError("ConvTransducer1d: there must be at least one kernel, but there is none")

    def name(i: int) -> str:
        if names is not None:
            return f"{names[i]!r}"
        return str(i) if isinstance(items[i], ag.Graph) else f"{i}, {[int(c) for c in items[i]]},"

    are_graphs = [isinstance(item, ag.Graph) for item in items]
    if all(are_graphs):
        if tokens is not None:
            raise ValueError(
                "ConvTransducer1d: tokens are for a lexicon, but the kernels are graphs"
            )
        graphs = [_explicit(item) for item in items]
    elif any(are_graphs):
        raise ValueError(
            "ConvTransducer1d: kernels must be all graphs or all word pieces, but both kinds are "
            "given"
        )
    else:
        graphs = _align(in_channels, items, tokens, name)
    for i, kernel in enumerate(graphs):
        label = int(max(kernel.olabels(), default=ag.epsilon))
        if label >= in_channels:
            raise ValueError(
                f"ConvTransducer1d: labels must be below {in_channels}, the number of input "
                f"channels, but kernel {name(i)} has the label {label}"
            )
    for i, least in enumerate(least_frames(graphs)):
        if kernel_size < least < math.inf:
            raise ValueError(
                f"ConvTransducer1d: a kernel must fit into {kernel_size} frames, the kernel size, "
                f"but kernel {name(i)} needs {least:.0f}"
            )
    return graphs


def _explicit(kernel: ag.Graph) -> ag.Graph:
    """A copy with stored arcs: a dense linear graph has none."""
    src, dst, ilabel, olabel, weight = kernel.arcs()
    return ag.Graph.from_arrays(
        src,
        dst,
        ilabel,
        olabel,
        weight=weight,
        start=kernel.start(),
        accept=kernel.accept(),
        num_nodes=kernel.num_nodes(),
        calc_grad=False,
    )


def _spellings(
    in_channels: int, lexicon: ag.lexicon.Lexicon, tokens: ag.tokens.Tokens | None
) -> dict[str, list[int]]:
    """The labels of each word piece. Graphemes are all labels but the blank, in their order."""
    tokens = tokens or ag.tokens.Tokens.ctc(in_channels)
    blank = None if tokens.blank == "none" else tokens.blank_label
    labels = [label for label in range(in_channels) if label != blank]
    if len(labels) != len(lexicon.graphemes):
        raise ValueError(
            f"ConvTransducer1d: there must be one label for each of the {len(lexicon.graphemes)} "
            f"graphemes of the lexicon, and one for the blank if any, but there are {in_channels} "
            "input channels"
        )
    label_of = dict(zip(lexicon.graphemes, labels, strict=True))
    return {piece: [label_of[grapheme] for grapheme in piece] for piece in lexicon.pieces}


def _align(
    in_channels: int,
    pieces: list[Any],
    tokens: ag.tokens.Tokens | None,
    name: Callable[[int], str],
) -> list[ag.Graph]:
    """The graph of the frames that spell each word piece."""
    tokens = tokens or ag.tokens.Tokens.ctc(in_channels)
    if tokens.num_labels != in_channels:
        raise ValueError(
            f"ConvTransducer1d: tokens must have {in_channels} labels, as many as there are input "
            f"channels, but they have {tokens.num_labels}"
        )
    blank = None if tokens.blank == "none" else tokens.blank_label
    for i, piece in enumerate(pieces):
        for label in piece:
            if not 0 <= operator.index(label) < in_channels or label == blank:
                raise ValueError(
                    f"ConvTransducer1d: the labels of a word piece must be below {in_channels} and "
                    f"not the blank, but piece {name(i)} has the label {label}"
                )
    return ag.tokens.alignment_graph(tokens, [[int(label) for label in p] for p in pieces])
