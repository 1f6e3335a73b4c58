"""Experiments: typed settings, files of settings, and the named experiments of the paper."""

from .catalog import EXPERIMENTS, catalog, cells, find
from .files import load_settings
from .presets import PRESETS, Preset
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
    "PRESETS",
    "DataSettings",
    "Experiment",
    "LossSettings",
    "ModelSettings",
    "OptimSettings",
    "Preset",
    "TokenSettings",
    "catalog",
    "cells",
    "find",
    "flatten",
    "from_dict",
    "load_settings",
    "nearest",
    "override",
    "to_dict",
]
