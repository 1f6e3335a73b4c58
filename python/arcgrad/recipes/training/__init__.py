"""Training: the loop, its processes, and what a run records."""

from .environment import describe_environment
from .loop import Result, TrainingError, train

__all__ = ["Result", "TrainingError", "describe_environment", "train"]
