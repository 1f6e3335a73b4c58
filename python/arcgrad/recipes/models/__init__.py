"""The networks of the paper's experiments (appendix B).

All of them take a batch with the lengths of its examples and return outputs ``[B, T, C]`` with
their lengths. Lengths are followed exactly, and nothing beyond them reaches a valid output: an
example gets the same outputs whatever it is batched with.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "arcgrad.recipes needs PyTorch, but it is not installed; pip install 'arcgrad[recipes]'"
    ) from error

from .layers import ControlConv1d, MaskedInstanceNorm
from .plain import PlainConv2d
from .tds import TDS1d, TDS2d, TDSBlock, TDSGroup
from .transducer import TDS2dTransducer

__all__ = [
    "ControlConv1d",
    "MaskedInstanceNorm",
    "PlainConv2d",
    "TDS1d",
    "TDS2d",
    "TDS2dTransducer",
    "TDSBlock",
    "TDSGroup",
]
