"""The recipes need optional packages; without them these tests are skipped."""

import importlib.util
import sys

import pytest

NEEDED = (
    *("torch", "safetensors", "sentencepiece", "soundfile", "PIL", "rapidfuzz"),
    *("typer", "rich", "matplotlib", "yaml", "jinja2", "pydantic", "tabulate", "praatio"),
)

collect_ignore_glob = (
    [] if all(importlib.util.find_spec(name) for name in NEEDED) else ["*test_*.py"]
)


@pytest.fixture(autouse=True)
def no_tensorboard(monkeypatch):
    """Trainings of tests write nothing for TensorBoard, even where it is installed."""
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
