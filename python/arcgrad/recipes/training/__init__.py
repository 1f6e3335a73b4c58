"""Training: the loop, its processes, and what a run records."""

from .entry import Result, train
from .environment import describe_environment
from .loop import TrainingError

__all__ = ["Result", "TrainingError", "describe_environment", "train"]
