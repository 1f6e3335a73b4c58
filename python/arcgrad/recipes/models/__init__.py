"""The networks of the paper's experiments (appendix B).

All of them take a batch with the lengths of its examples and return outputs ``[B, T, C]`` with
their lengths. Padding is masked in every layer, so the outputs of an example do not depend on the
other examples of its batch.
"""

from .grid import Grid, output_grid
from .layers import ControlConv1d, MaskedInstanceNorm
from .plain import PlainConv2d
from .tds import TDS1d, TDS2d, TDSBlock, TDSGroup
from .transducer import TDS2dTransducer, num_arcs, operations

__all__ = [
    "ControlConv1d",
    "Grid",
    "MaskedInstanceNorm",
    "PlainConv2d",
    "TDS1d",
    "TDS2d",
    "TDS2dTransducer",
    "TDSBlock",
    "TDSGroup",
    "num_arcs",
    "operations",
    "output_grid",
]
