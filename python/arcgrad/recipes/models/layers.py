"""Layers that mask the padding of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def conv_lengths(
    lengths: Any, kernel_size: int, stride: int, padding: int, dilation: int = 1
) -> Any:
    """The lengths of the outputs of a convolution: of a tensor of lengths, or of one number."""
    room = lengths + (2 * padding - dilation * (kernel_size - 1) - 1)
    if isinstance(room, Tensor):
        return (torch.div(room, stride, rounding_mode="floor") + 1).clamp_min(0)
    return max(0, room // stride + 1)


def frame_mask(lengths: Tensor, frames: int) -> Tensor:
    """Whether each frame ``[B, frames]`` belongs to its example."""
    return torch.arange(frames, device=lengths.device) < lengths[:, None]


def read_lengths(op: str, lengths: Any, x: Tensor, frames: int) -> Tensor:
    """Return the lengths of a batch as a tensor on its device; by default all frames."""
    if lengths is None:
        return torch.full((len(x),), frames, device=x.device)
    sizes = torch.as_tensor(lengths, device=x.device)
    if sizes.shape != (len(x),):
        raise ValueError(
            f"{op}: there must be one length per example, {len(x)} in all, but their shape is "
            f"{list(sizes.shape)}"
        )
    if not torch.compiler.is_compiling() and bool(((sizes < 0) | (sizes > frames)).any()):
        raise ValueError(
            f"{op}: a length must be between 0 and {frames}, the number of frames, but they are "
            f"{sizes.tolist()}"
        )
    return sizes


def convolve(conv: nn.Module, x: Tensor, depth: int = 1) -> Tensor:
    """Apply a convolution of one or two dimensions to ``[B, C, H, T]``, channels last in memory.

    Channels last are faster on processors: kernels for few channels and pooling are vectorised.

    Args:
        conv: A convolution of torch. One of one dimension takes all rows as channels.
        x: The input.
        depth: Into how many equal parts the channels are divided; each is convolved alone.
    """
    assert isinstance(conv, nn.Conv1d | nn.Conv2d)
    weight, bias = conv.weight, conv.bias
    stride: tuple[int, ...] = tuple(conv.stride)
    padding: Any = tuple(conv.padding)
    if isinstance(conv, nn.Conv1d):
        weight = weight.unflatten(1, (-1, x.shape[2]))
        stride, padding = (1, *stride), (0, *padding)
    if depth > 1:
        weight = weight.repeat(depth, 1, 1, 1)
        bias = None if bias is None else bias.repeat(depth)
    x = x.contiguous(memory_format=torch.channels_last)
    if x.shape[1] == 1:  # one channel can have the strides of either layout
        x = x.as_strided(x.shape, (x.shape[2] * x.shape[3], 1, x.shape[3], 1))
    return nn.functional.conv2d(x, weight, bias, stride, padding, groups=depth)


def spread(values: Tensor, frames: Tensor) -> Tensor:
    """Return ``[B, C]`` at the valid frames ``[B, T]``, and 0 elsewhere, as ``[B, C, 1, T]``.

    It is channels last. Operations with ``[B, C, H, T]`` then have long inner loops.
    """
    return (values[:, None, :] * frames[:, :, None]).transpose(1, 2).unsqueeze(2)


def _sums(x: Tensor, frames: Tensor) -> Tensor:
    """Return the sums ``[B, C]`` of ``[B, C, H, T]`` over all rows and valid frames."""
    batch, channels, height, length = x.shape
    rows = x.permute(0, 2, 3, 1).reshape(batch, height * length, channels)
    weights = frames[:, None, None].expand(-1, -1, height, -1).reshape(batch, 1, height * length)
    return torch.bmm(weights, rows).squeeze(1)


class Dropout(nn.Dropout):
    """Dropout as in torch, with 16 random bits per element on processors.

    Torch draws a number of its generator for each element there, which takes a quarter of a step.
    The probability is rounded to a multiple of 2**-16, and the scale with it.
    """

    def forward(self, x: Tensor) -> Tensor:
        """The input with some elements set to 0, in training."""
        threshold = round(self.p * 2**16)
        is_ours = self.training and 0 < threshold < 2**16 and x.device.type == "cpu"
        if not is_ours or torch.compiler.is_compiling():
            return super().forward(x)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
        keep = words.view(torch.int16)[: x.numel()] >= threshold - 2**15
        factors = torch.empty_like(x, requires_grad=False)
        # In the order of memory, whatever the layout.
        flat = factors.as_strided((x.numel(),), (1,))
        torch.mul(keep, 2**16 / (2**16 - threshold), out=flat)
        return x * factors


class _InstanceNorm(torch.autograd.Function):
    """Instance normalization over valid frames, in few passes over its input."""

    @staticmethod
    def _statistics(
        x: Tensor, frames: Tensor, count: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the centred input, the mean, and the inverse of the standard deviation."""
        mean = _sums(x, frames) / count
        # What lies outside becomes 0.
        centered = torch.addcmul(spread(-mean, frames), x, spread(torch.ones_like(mean), frames))
        variance = _sums(centered * centered, frames) / count
        return centered, mean, torch.rsqrt(variance + eps)

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, frames: Tensor, count: Tensor, weight: Tensor, bias: Tensor, eps: float
    ) -> Tensor:
        centered, mean, factor = _InstanceNorm._statistics(x, frames, count, eps)
        ctx.save_for_backward(x, frames, count, weight, mean, factor)
        ctx.eps = eps
        scale, shift = factor * weight, bias.expand_as(mean)
        return torch.addcmul(spread(shift, frames), centered, spread(scale, frames))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, frames, count, weight, mean, factor = ctx.saved_tensors
        if torch.is_grad_enabled():  # second derivatives go through the statistics
            _, mean, factor = _InstanceNorm._statistics(x, frames, count, ctx.eps)
        total = _sums(grad, frames)
        moment = _sums(grad * x, frames) - mean * total
        scale = factor * weight
        slope = -scale * factor.square() * moment / count
        shift = -scale * total / count - slope * mean
        grad_x = torch.addcmul(spread(shift, frames), grad, spread(scale, frames))
        grad_x = grad_x.addcmul(x, spread(slope, frames))
        return grad_x, None, None, (moment * factor).sum(0), total.sum(0), None


class MaskedInstanceNorm(nn.Module):
    """Instance normalization over valid frames, with a learned affine transformation.

    The mean and the variance of a channel are taken over what lies inside of the example, and what
    lies outside becomes 0. Without padding it is :class:`torch.nn.InstanceNorm2d`.

    Args:
        channels: The number of channels.
        eps: Added to the variance.

    Called with ``[B, channels, T]`` or ``[B, channels, H, T]``, finite everywhere, and a mask
    ``[B, T]`` of valid frames. It is fastest if channels are last in memory.

    >>> import torch
    >>> from arcgrad.recipes.models import MaskedInstanceNorm
    >>> norm = MaskedInstanceNorm(3)
    >>> x, mask = torch.randn(1, 3, 8, 5), torch.tensor([[True, True, True, False, False]])
    >>> out = norm(x, mask)
    >>> torch.allclose(out[..., :3], torch.nn.functional.instance_norm(x[..., :3]), atol=1e-5)
    True
    >>> out[..., 3:].abs().max().item()
    0.0
    """

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.channels, self.eps = channels, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def extra_repr(self) -> str:
        """The options, as modules of torch print them."""
        return f"{self.channels}, eps={self.eps}"

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The normalized input; see the class."""
        if x.dim() == 3:
            return self(x.unsqueeze(2), mask).squeeze(2)  # type: ignore[no-any-return]
        # An example without frames is all zeros, whatever the count.
        count = (mask.sum(1, keepdim=True) * x.shape[2]).clamp_min(1).to(x.dtype)
        out: Tensor = _InstanceNorm.apply(  # type: ignore[no-untyped-call]
            x, mask.to(x.dtype), count, self.weight, self.bias, self.eps
        )
        return out


class ControlConv1d(nn.Module):
    """An ordinary convolution instead of :class:`arcgrad.torch.ConvTransducer1d` (Table 3).

    Args:
        in_channels: The number of input channels.
        out_channels: The number of output channels.
        kernel_size: The number of frames of a window.
        stride: The distance between adjacent windows.
        padding: Frames of zeros on both sides.
        dilation: The distance between adjacent frames of a window.
        bias: Whether output channels have a bias; in the paper they do not.

    Called with ``[B, T, in_channels]`` and the lengths of examples, like the layer it replaces.

    >>> from arcgrad.recipes.models import ControlConv1d
    >>> layer = ControlConv1d(79, 200, kernel_size=5, stride=4, padding=2)
    >>> sum(p.numel() for p in layer.parameters())
    79000
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = kernel_size
        self.geometry = (kernel_size, stride, padding, dilation)
        self.conv = nn.Conv1d(in_channels, out_channels, *self.geometry, bias=bias)

    def output_lengths(self, lengths: Any) -> Tensor:
        """Return the lengths of outputs, given the lengths of inputs."""
        found: Tensor = conv_lengths(torch.as_tensor(lengths), *self.geometry)
        return found

    def forward(self, x: Tensor, lengths: Any = None) -> Tensor:
        """The convolution; outputs beyond :meth:`output_lengths` are 0."""
        sizes = read_lengths("ControlConv1d", lengths, x, x.shape[1])
        x = torch.where(frame_mask(sizes, x.shape[1])[..., None], x, 0.0)
        out = self.conv(x.transpose(1, 2)).transpose(1, 2)
        inside = frame_mask(self.output_lengths(sizes), out.shape[1])
        return torch.where(inside[..., None], out, 0.0)
