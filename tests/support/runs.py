"""Helpers of the tests of training."""

import torch

from arcgrad.recipes.experiments import find, override
from arcgrad.recipes.run import Run

TINY = [
    "data.train=10",
    "data.validation=3",
    "data.test=3",
    "optim.batch_size=4",
    "optim.epochs=2",
    "model.dropout=0.2",
]
BIGRAM = override(find("table1/letters/ngram2/no_blank"), TINY)
SGD = override(BIGRAM, ["optim.method=sgd", "optim.schedule=step", "optim.step_size=1"])


def checkpoint(folder, name="last.safetensors"):
    return Run(folder).load("test", name)


def assert_same_state(one, other):
    """Every number of two checkpoints is the same, but for times."""
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            if not str(key).endswith("seconds"):
                assert_same_state(one[key], other[key])
    elif isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            assert_same_state(a, b)
    else:
        assert one == other
