"""The optimiser of a training and the schedule of its learning rates."""

from __future__ import annotations

import math
from typing import Any

import torch

from arcgrad.recipes.experiments import OptimSettings
from arcgrad.recipes.recognizer import Recognizer

__all__ = ["make_optimizer", "rate_factor"]

# The fraction of a one-cycle schedule in which rates rise.
WARM_UP = 0.1


def rate_factor(settings: OptimSettings, epoch: int, progress: float) -> float:
    """Return the factor of the learning rates, given the fraction of the training that is done."""
    if settings.schedule == "step":
        return settings.decay ** (epoch // settings.step_size)
    if progress < WARM_UP:
        return 0.1 + 0.9 * progress / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * min((progress - WARM_UP) / (1 - WARM_UP), 1.0)))


def make_optimizer(settings: OptimSettings, recognizer: Recognizer) -> torch.optim.Optimizer:
    """Return the optimiser, with one group for the network and one for the loss's parameters."""
    rate = settings.learning_rate
    criterion_rate = settings.criterion_learning_rate
    groups: list[dict[str, Any]] = [
        {"params": list(recognizer.network.parameters()), "lr": rate},
        {
            "params": list(recognizer.criterion.parameters()),
            "lr": rate if criterion_rate is None else criterion_rate,
            "weight_decay": 0.0,
        },
    ]
    method = torch.optim.SGD if settings.method == "sgd" else torch.optim.AdamW
    return method(groups, lr=rate, weight_decay=settings.weight_decay, fused=True)
