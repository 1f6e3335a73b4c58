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


class MaskedInstanceNorm(nn.Module):
    """Instance normalization over valid frames, with a learned affine transformation.

    The mean and the variance of a channel are taken over what lies inside of the example, and what
    lies outside becomes 0. Without padding it is :class:`torch.nn.InstanceNorm2d`.

    Args:
        channels: The number of channels.
        eps: Added to the variance.

    Called with ``[B, channels, ..., T]`` and a mask ``[B, T]`` of valid frames.

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
        dims = tuple(range(2, x.dim()))
        inside = mask.view(len(x), *[1] * (x.dim() - 2), -1)
        # An example without frames is all zeros, whatever the count.
        count = mask.sum(1).clamp_min(1).view(-1, *[1] * (x.dim() - 1)).to(x.dtype)
        for size in x.shape[2:-1]:
            count = count * size
        # The padding stays 0 in all that follows, so one mask of the input is enough.
        x = torch.where(inside, x, 0.0)
        centered = x - inside * (x.sum(dims, keepdim=True) / count)
        variance = centered.square().sum(dims, keepdim=True) / count
        shape = (1, -1, *[1] * len(dims))
        scale = torch.rsqrt(variance + self.eps) * self.weight.view(shape)
        return centered * scale + inside * self.bias.view(shape)


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
