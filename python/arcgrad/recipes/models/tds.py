"""Time-depth separable (TDS) networks for speech (1D) and handwriting (2D), appendix B."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .layers import Dropout, MaskedInstanceNorm, conv_lengths, convolve, frame_mask, read_lengths

# The convolutions over one and two dimensions.
_CONVS: tuple[Any, ...] = (nn.Conv1d, nn.Conv2d)

# The strides of the groups along the frames, by the number of groups and the sub-sampling.
_FRAME_STRIDES: dict[int, dict[int, tuple[int, ...]]] = {
    2: {2: (2, 1), 4: (2, 2), 8: (4, 2)},
    3: {2: (2, 1, 1), 4: (2, 2, 1), 8: (2, 2, 2), 16: (4, 2, 2), 24: (4, 3, 2)},
    4: {2: (2, 1, 1, 1), 4: (2, 2, 1, 1), 8: (2, 2, 2, 1), 16: (2, 2, 2, 2), 24: (3, 2, 2, 2)},
}


def frame_strides(op: str, num_groups: int, subsampling: int) -> tuple[int, ...]:
    """Return the stride of each group along the frames."""
    table = _FRAME_STRIDES[num_groups]
    if subsampling not in table:
        raise ValueError(
            f"{op}: the sub-sampling must be one of {', '.join(map(str, table))}, but it is "
            f"{subsampling}"
        )
    return table[subsampling]


def find_preset(op: str, presets: dict[str, Any], name: str) -> Any:
    """Return a preset by name."""
    if name not in presets:
        raise ValueError(
            f"{op}: the preset must be one of {', '.join(map(repr, presets))}, but it is {name!r}"
        )
    return presets[name]


@dataclass(frozen=True)
class TDSGroup:
    """A convolution that may sub-sample, and the TDS blocks after it.

    Args:
        channels: The channels of its blocks; each channel has as many features as the depth.
        blocks: The number of blocks.
        stride: The stride of the convolution in each dimension; frames are the last one.

    >>> from arcgrad.recipes.models import TDSGroup
    >>> TDSGroup(channels=16, blocks=3, stride=(2, 1))
    TDSGroup(channels=16, blocks=3, stride=(2, 1))
    """

    channels: int
    blocks: int
    stride: tuple[int, ...]


class TDSBlock(nn.Module):
    """A convolution of channels, then two layers across all features, with residuals and norms.

    The convolution shares its weights over the features of the depth.

    Args:
        channels: The number of channels, which the convolution mixes.
        depth: The number of features per channel, which the convolution does not mix.
        kernel_size: The odd kernel size in each dimension.
        dropout: The fraction of activations dropped in training.

    Called with ``[B, depth * channels, ..., T]`` and a mask ``[B, T]`` of valid frames.

    >>> import torch
    >>> from arcgrad.recipes.models import TDSBlock
    >>> block = TDSBlock(channels=2, depth=4, kernel_size=(5, 7))
    >>> block(torch.randn(3, 8, 16, 20), torch.ones(3, 20, dtype=torch.bool)).shape
    torch.Size([3, 8, 16, 20])
    """

    def __init__(
        self, channels: int, depth: int, kernel_size: Sequence[int], dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_kernel("TDSBlock", kernel_size)
        self.channels, self.depth = channels, depth
        width, conv = channels * depth, _CONVS[len(kernel_size) - 1]
        padding = tuple(k // 2 for k in kernel_size)
        self.conv = conv(channels, channels, tuple(kernel_size), padding=padding)
        self.mix = nn.Sequential(
            conv(width, width, 1),
            nn.ReLU(inplace=True),
            Dropout(dropout),
            conv(width, width, 1),
            Dropout(dropout),
        )
        self.dropout = Dropout(dropout)
        self.norms = nn.ModuleList([MaskedInstanceNorm(width), MaskedInstanceNorm(width)])

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """The output, of the shape of the input; see the class."""
        if x.dim() == 3:
            return self(x.unsqueeze(2), mask).squeeze(2)  # type: ignore[no-any-return]
        x = self.norms[0](x + self.dropout(convolve(self.conv, x, self.depth).relu_()), mask)
        first, relu, drop, second, last_drop = self.mix
        mixed = last_drop(convolve(second, drop(relu(convolve(first, x)))))
        out: Tensor = self.norms[1](x + mixed, mask)
        return out


class _Groups(nn.Module):
    """Groups of TDS blocks over ``[B, C, H, T]``; for one dimension, the height is 1."""

    def __init__(
        self,
        in_channels: int,
        depth: int,
        groups: Sequence[TDSGroup],
        kernel_size: Sequence[int],
        dropout: float,
    ) -> None:
        super().__init__()
        self.kernel_size = tuple(kernel_size)
        self.strides = [group.stride for group in groups]
        self.convs, self.norms, self.blocks = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        self.dropout = Dropout(dropout)
        for group in groups:
            width = group.channels * depth
            self.convs.append(
                _CONVS[len(kernel_size) - 1](
                    in_channels,
                    width,
                    self.kernel_size,
                    stride=group.stride,
                    padding=tuple(k // 2 for k in kernel_size),
                )
            )
            self.norms.append(MaskedInstanceNorm(width))
            self.blocks.append(
                nn.ModuleList(
                    TDSBlock(group.channels, depth, kernel_size, dropout)
                    for _ in range(group.blocks)
                )
            )
            in_channels = width
        self.out_channels = in_channels

    def output_size(self, size: Any, dim: int) -> Any:
        """Return the size of the output in a dimension, given the size of the input."""
        for stride in self.strides:
            size = conv_lengths(
                size, self.kernel_size[dim], stride[dim], self.kernel_size[dim] // 2
            )
        return size

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        k = self.kernel_size[-1]
        inside = frame_mask(lengths, x.shape[-1])
        x = torch.where(inside[:, None, None], x, 0.0)
        for conv, norm, blocks, stride in zip(
            self.convs, self.norms, self.blocks, self.strides, strict=True
        ):
            lengths = conv_lengths(lengths, k, stride[-1], k // 2)
            x = self.dropout(convolve(conv, x).relu_())
            mask = frame_mask(lengths, x.shape[-1])
            x = norm(x, mask)
            for block in blocks:  # type: ignore[attr-defined]
                x = block(x, mask)
        return x, lengths


def check_kernel(op: str, kernel_size: Sequence[int]) -> None:
    """Raise for even sizes, with which a stride of 1 would change the number of frames."""
    if not all(k >= 1 and k % 2 == 1 for k in kernel_size):
        raise ValueError(f"{op}: kernel sizes must be odd, but they are {tuple(kernel_size)}")


def _check_groups(op: str, groups: Sequence[TDSGroup], dims: int) -> None:
    if not groups or any(len(group.stride) != dims for group in groups):
        raise ValueError(
            f"{op}: there must be groups with strides in {dims} "
            f"dimension{'s' if dims > 1 else ''}, but the groups are {list(groups)}"
        )


class TDS1d(nn.Module):
    """The network for speech: TDS groups over frames of features.

    Args:
        num_features: The number of features of a frame.
        num_outputs: The number of output channels.
        groups: Channels, blocks and strides; see :meth:`preset`.
        kernel_size: The number of frames of all kernels, odd.
        dropout: The fraction of activations dropped in training.

    Called with ``[B, T, num_features]`` and lengths; returns ``[B, T', num_outputs]`` and their
    lengths. Outputs beyond the lengths are padding.

    >>> import torch
    >>> from arcgrad.recipes.models import TDS1d
    >>> network = TDS1d.preset("small", num_features=40, num_outputs=29)
    >>> out, lengths = network(torch.randn(2, 100, 40), lengths=[100, 61])
    >>> out.shape, lengths
    (torch.Size([2, 25, 29]), tensor([25, 16]))
    """

    def __init__(
        self,
        num_features: int,
        num_outputs: int,
        groups: Sequence[TDSGroup],
        kernel_size: int = 5,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        _check_groups("TDS1d", groups, 1)
        check_kernel("TDS1d", (kernel_size,))
        self.num_features = num_features
        self.groups = _Groups(num_features, num_features, groups, (kernel_size,), dropout)
        self.output = nn.Linear(self.groups.out_channels, num_outputs)

    @classmethod
    def preset(
        cls,
        name: str,
        num_features: int,
        num_outputs: int,
        *,
        subsampling: int | None = None,
        dropout: float = 0.1,
    ) -> TDS1d:
        """A network by name.

        Args:
            name: ``"paper"`` or ``"recipe"``, which have the same widths: three groups of five
                blocks with 4, 8 and 16 channels, sub-sampling 8. ``"small"`` suits processors.
            num_features: The number of features of a frame.
            num_outputs: The number of output channels.
            subsampling: The number of frames per output; None for the default of the preset.
            dropout: The fraction of activations dropped in training.

        >>> from arcgrad.recipes.models import TDS1d
        >>> TDS1d.preset("paper", 80, 1000).output_lengths(1600).item()
        200
        """
        channels, blocks, usual = find_preset("TDS1d", PRESETS_1D, name)
        strides = frame_strides("TDS1d", len(channels), subsampling or usual)
        groups = [TDSGroup(c, blocks, (s,)) for c, s in zip(channels, strides, strict=True)]
        return cls(num_features, num_outputs, groups, dropout=dropout)

    def output_lengths(self, lengths: Any) -> Tensor:
        """Return the lengths of outputs, given the lengths of inputs."""
        found: Tensor = self.groups.output_size(torch.as_tensor(lengths), 0)
        return found

    def forward(self, x: Tensor, lengths: Any = None) -> tuple[Tensor, Tensor]:
        """Outputs and their lengths; see the class."""
        if x.dim() != 3 or x.shape[-1] != self.num_features:
            raise ValueError(
                f"TDS1d: the input must have the shape [B, T, {self.num_features}], but its shape "
                f"is {list(x.shape)}"
            )
        sizes = read_lengths("TDS1d", lengths, x, x.shape[1])
        x, sizes = self.groups(x.transpose(1, 2).unsqueeze(2), sizes)
        return self.output(x.squeeze(2).transpose(1, 2)), sizes


class TDS2d(nn.Module):
    """The network for handwriting: TDS groups over images with two dimensions.

    Args:
        height: The height of images.
        num_outputs: The number of output channels.
        groups: Channels, blocks and strides (height, width); see :meth:`preset`.
        depth: The number of features per channel, which the convolutions of blocks do not mix.
        kernel_size: Height and width of all kernels, odd.
        dropout: The fraction of activations dropped in training.
        in_channels: The number of channels of images.

    Called with ``[B, height, W]`` (or ``[B, in_channels, height, W]``) and the widths of images;
    returns ``[B, W', num_outputs]`` and their lengths. Outputs beyond the lengths are padding.

    >>> import torch
    >>> from arcgrad.recipes.models import TDS2d
    >>> network = TDS2d.preset("small", height=16, num_outputs=80)
    >>> out, lengths = network(torch.randn(2, 16, 200), lengths=[200, 99])
    >>> out.shape, lengths
    (torch.Size([2, 50, 80]), tensor([50, 25]))
    """

    def __init__(
        self,
        height: int,
        num_outputs: int,
        groups: Sequence[TDSGroup],
        *,
        depth: int = 4,
        kernel_size: tuple[int, int] = (5, 7),
        dropout: float = 0.1,
        in_channels: int = 1,
    ) -> None:
        super().__init__()
        _check_groups("TDS2d", groups, 2)
        check_kernel("TDS2d", kernel_size)
        self.height, self.in_channels = height, in_channels
        self.groups = _Groups(in_channels, depth, groups, kernel_size, dropout)
        self.inner_height = int(self.groups.output_size(height, 0))
        self.output = nn.Linear(self.groups.out_channels * self.inner_height, num_outputs)

    @classmethod
    def preset(
        cls,
        name: str,
        height: int,
        num_outputs: int,
        *,
        subsampling: int | None = None,
        height_subsampling: int | None = None,
        dropout: float = 0.1,
    ) -> TDS2d:
        """A network by name.

        Args:
            name: ``"paper"``: four groups of three blocks, 8, 16, 32 and 64 features. ``"recipe"``:
                the same with the published widths of 16, 64, 128 and 256. ``"small"``: about 0.3
                million parameters, for lines that are 16 pixels high and processors.
            height: The height of images.
            num_outputs: The number of output channels.
            subsampling: The number of columns per output: 2, 4 (for letters), 8, 16 or 24; None for
                the default of the preset.
            height_subsampling: The number of rows per row of the last group, a power of 2: the
                first groups halve the height. None if every group does.
            dropout: The fraction of activations dropped in training.

        >>> from arcgrad.recipes.models import TDS2d
        >>> TDS2d.preset("paper", 64, 80, subsampling=4).output_lengths(1000).item()
        250
        """
        preset = find_preset("TDS2d", PRESETS_2D, name)
        return cls(
            height,
            num_outputs,
            preset.groups("TDS2d", subsampling or preset.subsampling, height_subsampling),
            depth=preset.depth,
            kernel_size=preset.kernel_size,
            dropout=dropout,
        )

    def output_lengths(self, lengths: Any) -> Tensor:
        """Return the lengths of outputs, given the widths of images."""
        found: Tensor = self.groups.output_size(torch.as_tensor(lengths), 1)
        return found

    def forward(self, x: Tensor, lengths: Any = None) -> tuple[Tensor, Tensor]:
        """Outputs and their lengths; see the class."""
        if x.dim() == 3 and self.in_channels == 1:
            x = x.unsqueeze(1)
        if x.dim() != 4 or x.shape[1:3] != (self.in_channels, self.height):
            raise ValueError(
                f"TDS2d: the input must have the shape [B, {self.in_channels}, {self.height}, W], "
                f"but its shape is {list(x.shape)}"
            )
        sizes = read_lengths("TDS2d", lengths, x, x.shape[-1])
        x, sizes = self.groups(x, sizes)
        return self.output(x.flatten(1, 2).transpose(1, 2)), sizes


@dataclass(frozen=True)
class Preset2d:
    """The widths of a network for images."""

    channels: tuple[int, ...]
    blocks: int
    depth: int
    kernel_size: tuple[int, int]
    subsampling: int

    def groups(
        self, op: str, subsampling: int, height_subsampling: int | None = None
    ) -> list[TDSGroup]:
        """Return its groups; by default each of them halves the height."""
        strides = frame_strides(op, len(self.channels), subsampling)
        count = len(strides)
        heights = {
            2**halved: (2,) * halved + (1,) * (count - halved) for halved in range(count + 1)
        }
        rows = 2**count if height_subsampling is None else height_subsampling
        if rows not in heights:
            raise ValueError(
                f"{op}: the sub-sampling of the height must be one of "
                f"{', '.join(map(str, heights))}, but it is {height_subsampling}"
            )
        return [
            TDSGroup(c, self.blocks, (h, s))
            for c, h, s in zip(self.channels, heights[rows], strides, strict=True)
        ]


# Channels, blocks and the default sub-sampling.
PRESETS_1D: dict[str, tuple[tuple[int, ...], int, int]] = {
    "paper": ((4, 8, 16), 5, 8),
    "recipe": ((4, 8, 16), 5, 8),
    "small": ((1, 2), 2, 4),
}
PRESETS_2D = {
    "paper": Preset2d((2, 4, 8, 16), 3, 4, (5, 7), 16),
    "recipe": Preset2d((4, 16, 32, 64), 3, 4, (5, 7), 16),
    "small": Preset2d((8, 16, 32), 2, 4, (3, 5), 4),
}
