"""PyTorch: graph programs as functions of tensors, and sequence losses and layers as modules.

``import arcgrad.torch as agt``. It needs PyTorch (``pip install 'arcgrad[torch]'``). The core does
not link it, so one build works with every version.
"""

import importlib
import typing

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "arcgrad.torch needs PyTorch, but it is not installed; pip install 'arcgrad[torch]'"
    ) from error

from ._function import tensor
from ._leaves import emissions, graph
from .asg import ASGLoss
from .conv import ConvTransducer1d
from .ctc import CTCLoss, ctc_loss
from .decoding import LabelSequence, TokenSpan, beam_search, forced_align, viterbi
from .sequence import SequenceLoss
from .stc import STCLoss
from .transducer import TransducerLoss

if typing.TYPE_CHECKING:
    from .words import CTCDecoder, align_words

# The decoder is imported on first access, since losses do not need it.
_LAZY = {"CTCDecoder": "words", "align_words": "words"}


def __getattr__(name: str) -> typing.Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})


__all__ = [
    "ASGLoss",
    "CTCDecoder",
    "CTCLoss",
    "ConvTransducer1d",
    "LabelSequence",
    "STCLoss",
    "SequenceLoss",
    "TokenSpan",
    "TransducerLoss",
    "align_words",
    "beam_search",
    "ctc_loss",
    "emissions",
    "forced_align",
    "graph",
    "tensor",
    "viterbi",
]
