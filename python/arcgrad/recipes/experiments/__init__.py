"""Experiments: typed settings, files of settings, and the named experiments of the paper."""

from .catalog import EXPERIMENTS, cells, find
from .files import load_settings
from .settings import (
    DataSettings,
    Experiment,
    LossSettings,
    ModelSettings,
    OptimSettings,
    TokenSettings,
    flatten,
    from_dict,
    nearest,
    override,
    to_dict,
)

__all__ = [
    "EXPERIMENTS",
    "DataSettings",
    "Experiment",
    "LossSettings",
    "ModelSettings",
    "OptimSettings",
    "TokenSettings",
    "cells",
    "find",
    "flatten",
    "from_dict",
    "load_settings",
    "nearest",
    "override",
    "to_dict",
]
