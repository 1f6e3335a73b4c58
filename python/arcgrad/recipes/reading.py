"""What a recogniser makes of an example, and pictures of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor

from . import analysis
from .alignment import token_names
from .data import Example, WordPieces, collate
from .plots import figure_width, plot_alignment
from .recognizer import Recognizer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Reading", "read"]


@dataclass(frozen=True, eq=False)
class Reading:
    """What a recogniser makes of an example.

    Attributes:
        reference: What the example says.
        hypothesis: What was recognised.
        image: ``[height, width]``, dark writing on light paper; of speech the features, the loudest
            darkest, with the highest band in the first row.
        emissions: The scores ``[T, C]`` of labels.
        path: The best path: the label of each frame. It is empty if there is none.
        names: The name of each label.
        pieces: The word pieces of the reference on its best alignment, and where they lie. There
            are none if tokens are letters, or nothing fits.
    """

    reference: str
    hypothesis: str
    image: Tensor
    emissions: Tensor
    path: list[int]
    names: list[str]
    pieces: list[analysis.PieceSpan]

    def draw_alignment(self, title: str | None = None) -> Figure:
        """The image, the probabilities of labels, and the best path."""
        figure = plot_alignment(
            self.emissions, self.path, tokens=self.names, image=self.image, title=title
        )
        return cast("Figure", figure)

    def draw_pieces(self) -> Figure:
        """The image, and where each word piece was read."""
        from matplotlib.figure import Figure

        num_frames = len(self.emissions)
        figure = Figure(figsize=(figure_width(num_frames), 1.6), layout="constrained")
        analysis.draw_decomposition(self.image, self.pieces, num_frames, axes=figure.subplots())
        return figure


@torch.no_grad()
def read(recognizer: Recognizer, example: Example) -> Reading:
    """What a recogniser makes of an example.

    Args:
        recognizer: The recogniser, which is set to evaluation.
        example: The example.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.experiment import override
    >>> from arcgrad.recipes.reading import read
    >>> from arcgrad.recipes.recognizer import Recognizer, load_data
    >>> tiny = override(find("demo"), ["data.train=8", "data.validation=4", "data.test=4"])
    >>> data = load_data(tiny)
    >>> reading = read(Recognizer.for_data(tiny, data.train), data.test[0])
    >>> len(reading.path) == len(reading.emissions)
    True
    >>> reading.draw_alignment().savefig("alignment.png")
    """
    recognizer.eval()
    device = next(recognizer.parameters()).device
    emissions, lengths = recognizer(collate([example]).to(device))
    names, length = token_names(recognizer), int(lengths[0])
    pieces = []
    if isinstance(recognizer.tokenizer, WordPieces):
        pieces = [
            analysis.PieceSpan(names[span.token], span.start, span.end, span.score)
            for span in recognizer.align(emissions[0], length, example.text)
        ]
    return Reading(
        reference=example.text,
        hypothesis=recognizer.transcribe(emissions, lengths)[0],
        image=-example.input.flip(0) if recognizer.is_speech else example.input,
        emissions=emissions[0, :length].cpu(),
        path=recognizer.criterion.viterbi_frames(emissions, lengths)[0],
        names=names,
        pieces=pieces,
    )
