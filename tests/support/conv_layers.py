"""Layers of the tests of the convolution with graphs."""

import torch
from torch_cases import F64, random

import arcgrad.torch as agt

PIECES = {"a": [1], "ab": [1, 2], "bb": [2, 2], "": []}


def make(kernels=PIECES, kernel_size=3, *args, dtype=F64, seed=7, **options):
    layer = agt.ConvTransducer1d(3, kernels, kernel_size, *args, dtype=dtype, **options)
    with torch.no_grad():
        layer.weight.copy_(random(len(layer.weight), seed=seed))
    return layer
