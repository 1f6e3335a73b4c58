"""The network with a convolutional WFST inside (section 5.3 and Table 3 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

import arcgrad as ag
from arcgrad.torch import ConvTransducer1d

from .layers import ControlConv1d, frame_mask
from .tds import PRESETS_2D, TDS2d, TDSGroup, find_preset


class TDS2dTransducer(nn.Module):
    """TDS groups that score letters, a convolution to pieces, and a TDS group after it.

    Args:
        height: The height of images.
        num_outputs: The number of output channels.
        pieces: The word pieces that the convolution knows, as strings of letters.
        groups: The groups before the convolution.
        last_groups: Those after it.
        letters: The letters, which the first groups score; by default the letters of the pieces in
            order. Label 0 is the blank, so letter ``i`` has label ``i + 1``.
        kernel_size: The number of frames of the convolution, odd.
        stride: Its stride.
        wfst: Whether the convolution is :class:`arcgrad.torch.ConvTransducer1d`; otherwise it is an
            ordinary one of the same geometry.
        depth: The number of features per channel, which the convolutions of blocks do not mix.
        block_kernel_size: Height and width of the kernels of TDS groups, odd.
        dropout: The fraction of activations dropped in training.
        options: Further options of :class:`arcgrad.torch.ConvTransducer1d`.

    Called with ``[B, height, W]`` and the widths of images; returns ``[B, W', num_outputs]`` and
    their lengths.

    >>> import torch
    >>> from arcgrad.recipes.models import TDS2dTransducer
    >>> network = TDS2dTransducer.preset("small", 16, 30, pieces=["a", "ab", "b"])
    >>> network.conv
    ConvTransducer1d(3, 3, kernel_size=5, stride=4, padding=2, arcs=20)
    >>> out, lengths = network(torch.randn(2, 16, 100), lengths=[100, 80])
    >>> out.shape, lengths
    (torch.Size([2, 7, 30]), tensor([7, 5]))
    """

    def __init__(
        self,
        height: int,
        num_outputs: int,
        pieces: Sequence[str],
        groups: Sequence[TDSGroup],
        last_groups: Sequence[TDSGroup],
        *,
        letters: Sequence[str] | None = None,
        kernel_size: int = 5,
        stride: int = 4,
        wfst: bool = True,
        depth: int = 4,
        block_kernel_size: tuple[int, int] = (5, 7),
        dropout: float = 0.1,
        **options: Any,
    ) -> None:
        super().__init__()
        if options and not wfst:
            raise ValueError(
                "TDS2dTransducer: an ordinary convolution must not have further options, but wfst "
                f"is False and there are {', '.join(options)}"
            )
        if stride < 1:
            raise ValueError(f"TDS2dTransducer: the stride must be at least 1, but it is {stride}")
        lexicon = ag.lexicon.Lexicon(pieces, graphemes=letters)
        self.pieces, self.letters = list(pieces), list(lexicon.graphemes)
        num_labels = len(self.letters) + 1
        shape: dict[str, Any] = {
            "depth": depth,
            "kernel_size": block_kernel_size,
            "dropout": dropout,
        }
        self.first = TDS2d(height, num_labels, groups, **shape)
        self.conv: ConvTransducer1d | ControlConv1d
        padding = kernel_size // 2
        if wfst:
            self.conv = ConvTransducer1d(
                num_labels, lexicon, kernel_size, stride, padding, **options
            )
        else:
            self.conv = ControlConv1d(num_labels, len(pieces), kernel_size, stride, padding)
        channels, inner = self.first.groups.out_channels, self.first.inner_height
        self.spread = nn.Linear(len(pieces), channels * inner)
        self.last = TDS2d(inner, num_outputs, last_groups, in_channels=channels, **shape)

    @classmethod
    def preset(
        cls,
        name: str,
        height: int,
        num_outputs: int,
        pieces: Sequence[str],
        *,
        letters: Sequence[str] | None = None,
        subsampling: int = 4,
        height_subsampling: int | None = None,
        wfst: bool = True,
        dropout: float = 0.1,
        **options: Any,
    ) -> TDS2dTransducer:
        """A network by name: the groups of :meth:`TDS2d.preset`, the last after the convolution.

        Args:
            name: ``"paper"`` has kernels of 5 frames that are learned (Table 3), ``"recipe"`` the
                published widths and kernels of 7 frames that are not, with scores scaled by their
                root. ``"small"`` is for processors.
            height: The height of images.
            num_outputs: The number of output channels.
            pieces: The word pieces that the convolution knows.
            letters: The letters; by default the letters of the pieces.
            subsampling: The number of columns per frame before the convolution, whose stride is
                another factor of 4 by default.
            height_subsampling: The number of rows per row of the last group; None if every group
                halves the height.
            wfst: Whether the convolution is one of graphs.
            dropout: The fraction of activations dropped in training.
            options: Further options, which override the options of the preset.
        """
        preset = find_preset("TDS2dTransducer", PRESETS_2D, name)
        *groups, last = preset.groups("TDS2dTransducer", subsampling, height_subsampling)
        if last.stride[-1] != 1:
            raise ValueError(
                "TDS2dTransducer: the last group must have stride 1, but for sub-sampling "
                f"{subsampling} it has stride {last.stride[-1]}"
            )
        if name == "recipe" and wfst:
            options = {"learn": False, "scale": "sqrt", **options}
        options = {"kernel_size": cls.kernel_size(name), **options}
        return cls(
            height,
            num_outputs,
            pieces,
            groups,
            [last],
            letters=letters,
            wfst=wfst,
            depth=preset.depth,
            block_kernel_size=preset.kernel_size,
            dropout=dropout,
            **options,
        )

    @staticmethod
    def kernel_size(name: str) -> int:
        """Return the number of frames of a preset's convolution, which limits its pieces."""
        return 7 if name == "recipe" else 5

    def output_lengths(self, lengths: Any) -> Tensor:
        """Return the lengths of outputs, given the widths of images."""
        inner = self.conv.output_lengths(self.first.output_lengths(lengths))
        return self.last.output_lengths(inner)

    def forward(self, x: Tensor, lengths: Any = None) -> tuple[Tensor, Tensor]:
        """Outputs and their lengths; see the class."""
        scores, sizes = self.first(x, lengths)
        pieces = self.conv(scores, sizes)
        sizes = self.conv.output_lengths(sizes)
        inside = frame_mask(sizes, pieces.shape[1])[..., None]
        hidden = torch.where(inside, self.spread(pieces), 0.0).transpose(1, 2)
        out: tuple[Tensor, Tensor] = self.last(
            hidden.unflatten(1, (self.last.in_channels, self.last.height)), sizes
        )
        return out


def operations(conv: ConvTransducer1d | ControlConv1d) -> int:
    """Return the multiplications for one output in time, over all output channels (Table 3).

    A kernel of graphs visits each arc in each frame of a window, so this is of the order
    :math:`k w c_o` for pieces of :math:`w` letters; an ordinary one needs :math:`k c_i c_o`.

    >>> from arcgrad.recipes.models import ControlConv1d, operations
    >>> operations(ControlConv1d(80, 200, kernel_size=5))
    80000
    """
    if isinstance(conv, ControlConv1d):
        return conv.kernel_size * conv.in_channels * conv.out_channels
    return conv.kernel_size * conv.weight.numel()


def num_arcs(pieces: Sequence[str]) -> int:
    """Return the number of arcs of the kernels of word pieces: the parameters of a convolution.

    With an optional blank a letter has five arcs: into it, its loop, and the blank after it with
    its loop and the way around it. Equal adjacent letters have no way around the blank.

    >>> from arcgrad.recipes.models import num_arcs
    >>> num_arcs(["a", "ab", "aa"])
    24
    """
    return sum(5 * len(p) - sum(map(str.__eq__, p, p[1:])) for p in pieces)
