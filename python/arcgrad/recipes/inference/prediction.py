"""The prediction of a recogniser for one example: its text, best path and word pieces."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from arcgrad.recipes.data import Example, WordPieces, collate
from arcgrad.recipes.recognizer import Recognizer

from .alignment import token_names
from .decompositions import PieceSpan

__all__ = ["Prediction", "predict"]


@dataclass(frozen=True, eq=False)
class Prediction:
    """The prediction of a recogniser for an example.

    Attributes:
        reference: The text of the example.
        hypothesis: The recognised text.
        image: ``[height, width]``: dark writing on light paper; for speech the features, with high
            energy dark and the highest band in the first row.
        emissions: The scores ``[T, C]`` of labels.
        path: The best path: the label of each frame; empty if there is no path.
        names: The name of each label.
        pieces: The word pieces of the best alignment of the reference. The list is empty if tokens
            are letters, or the reference does not fit into the frames.
    """

    reference: str
    hypothesis: str
    image: Tensor
    emissions: Tensor
    path: list[int]
    names: list[str]
    pieces: list[PieceSpan]


@torch.no_grad()
def predict(recognizer: Recognizer, example: Example) -> Prediction:
    """Apply a recogniser to an example.

    Args:
        recognizer: The recogniser, which is set to evaluation mode.
        example: The example.

    >>> from arcgrad.recipes.data import load_data
    >>> from arcgrad.recipes.experiments import find, override
    >>> from arcgrad.recipes.inference import predict
    >>> from arcgrad.recipes.recognizer import Recognizer
    >>> from arcgrad.recipes.report import draw_prediction
    >>> tiny = override(find("demo"), ["data.train=8", "data.validation=4", "data.test=4"])
    >>> data = load_data(tiny)
    >>> prediction = predict(Recognizer.for_data(tiny, data.train), data.test[0])
    >>> len(prediction.path) == len(prediction.emissions)
    True
    >>> draw_prediction(prediction).savefig("alignment.png")
    """
    recognizer.eval()
    emissions, lengths = recognizer(collate([example]).to(recognizer.device))
    names, length = token_names(recognizer), int(lengths[0])
    pieces = []
    if isinstance(recognizer.tokenizer, WordPieces):
        pieces = [
            PieceSpan(names[span.token], span.start, span.end, span.score)
            for span in recognizer.align(emissions[0], length, example.text)
        ]
    return Prediction(
        reference=example.text,
        hypothesis=recognizer.transcribe(emissions, lengths)[0],
        image=-example.input.flip(0) if recognizer.is_speech else example.input,
        emissions=emissions[0, :length].cpu(),
        path=recognizer.criterion.viterbi_frames(emissions, lengths)[0],
        names=names,
        pieces=pieces,
    )
