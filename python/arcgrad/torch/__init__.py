"""PyTorch: graph programs as functions of tensors, and sequence losses and layers as modules.

``import arcgrad.torch as agt``. It needs PyTorch (``pip install 'arcgrad[torch]'``). The core does
not link it, so one build works with every version.
"""

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
from .decoding import (
    CTCDecoder,
    LabelSequence,
    TokenSpan,
    align_words,
    beam_search,
    forced_align,
    viterbi,
)
from .sequence import SequenceLoss
from .stc import STCLoss
from .transducer import TransducerLoss

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
