"""A plain convolutional network for small images, which learns fastest on a processor."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .layers import (
    Dropout,
    MaskedInstanceNorm,
    conv_lengths,
    convolve,
    frame_mask,
    read_lengths,
    spread,
)

# The strides of the convolutions over columns, which follow a pooling by 2, by sub-sampling.
STRIDES = {2: (1, 1), 4: (2, 1), 8: (2, 2), 12: (3, 2)}
KERNEL = 5


class PlainConv2d(nn.Module):
    """Two convolutions over an image, then three or more over its columns.

    Args:
        height: The height of images, a multiple of 4.
        num_outputs: The number of output channels.
        subsampling: How many columns make one output: 2, 4, 8 or 12.
        channels: The channels of the second convolution; the first has half of them, and the
            convolutions over columns have twice as many.
        layers: The number of further convolutions over columns, with residuals. Without them an
            output sees 28 columns at sub-sampling 2 and 40 at 4, which is less than a long word
            piece; each adds 4 outputs.
        dropout: The fraction of activations over columns dropped in training.

    Called with ``[B, height, W]`` and the widths of images; returns ``[B, W', num_outputs]`` and
    their lengths. Outputs beyond the lengths are padding, and padding does not affect outputs.

    Raises:
        ValueError: If the height is not a multiple of 4, or the sub-sampling is unknown.

    >>> import torch
    >>> from arcgrad.recipes.models import PlainConv2d
    >>> network = PlainConv2d(height=16, num_outputs=28)
    >>> out, lengths = network(torch.randn(2, 16, 90), lengths=[90, 41])
    >>> out.shape, lengths
    (torch.Size([2, 45, 28]), tensor([45, 20]))
    """

    def __init__(
        self,
        height: int,
        num_outputs: int,
        *,
        subsampling: int = 2,
        channels: int = 64,
        layers: int = 0,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        if height < 4 or height % 4:
            raise ValueError(f"PlainConv2d: the height must be a multiple of 4, but it is {height}")
        if subsampling not in STRIDES:
            raise ValueError(
                f"PlainConv2d: the sub-sampling must be one of {', '.join(map(str, STRIDES))}, but "
                f"it is {subsampling}"
            )
        self.strides = STRIDES[subsampling]
        self.height = height
        self.image = nn.ModuleList(
            [
                nn.Conv2d(1, channels // 2, 3, padding=1),
                nn.Conv2d(channels // 2, channels, 3, padding=1),
            ]
        )
        self.pools = nn.ModuleList([nn.MaxPool2d(2), nn.MaxPool2d((2, 1))])
        width = 2 * channels
        self.columns = nn.ModuleList(
            [
                nn.Conv1d(channels * height // 4, width, KERNEL, self.strides[0], KERNEL // 2),
                nn.Conv1d(width, width, KERNEL, self.strides[1], KERNEL // 2),
                *(nn.Conv1d(width, width, KERNEL, 1, KERNEL // 2) for _ in range(layers)),
            ]
        )
        self.norms = nn.ModuleList(MaskedInstanceNorm(width) for _ in self.columns)
        self.dropout = Dropout(dropout)
        self.output = nn.Conv1d(width, num_outputs, 3, padding=1)

    def output_lengths(self, lengths: Any) -> Tensor:
        """Return the lengths of outputs, given the widths of images."""
        sizes = torch.as_tensor(lengths) // 2
        for stride in self.strides:
            sizes = conv_lengths(sizes, KERNEL, stride, KERNEL // 2)
        return sizes

    def forward(self, x: Tensor, lengths: Any = None) -> tuple[Tensor, Tensor]:
        """Outputs and their lengths; see the class."""
        if x.dim() != 3 or x.shape[1] != self.height:
            raise ValueError(
                f"PlainConv2d: the input must have the shape [B, {self.height}, W], but its shape "
                f"is {list(x.shape)}"
            )
        sizes = read_lengths("PlainConv2d", lengths, x, x.shape[-1])
        x = torch.where(frame_mask(sizes, x.shape[-1])[:, None], x, 0.0).unsqueeze(1)
        for i, (conv, pool) in enumerate(zip(self.image, self.pools, strict=True)):
            x = pool(convolve(conv, x)).relu_()
            sizes = sizes // 2 if i == 0 else sizes
            frames = frame_mask(sizes, x.shape[-1]).to(x.dtype)
            x = x * spread(frames.new_ones(x.shape[:2]), frames)
        for i, (conv, norm) in enumerate(zip(self.columns, self.norms, strict=True)):
            before, x = x, convolve(conv, x)
            if i < len(self.strides):
                sizes = conv_lengths(sizes, KERNEL, self.strides[i], KERNEL // 2)
            # The norm masks the padding, and its zeros stay zeros.
            x = self.dropout(norm(x, frame_mask(sizes, x.shape[-1])).relu_())
            if i >= len(self.strides):
                x = x + before
        return convolve(self.output, x).squeeze(2).transpose(1, 2), sizes
