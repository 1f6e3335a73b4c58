"""Trainings of two processes: the program that ``test_processes.py`` starts with torchrun."""

import json
import os
import signal
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

import torch
from runs import BIGRAM, SGD, override

from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.training import TrainingError, loop, processes, train

# Batches of 4, 3 and 3 examples: the parts of two processes differ in size. The validation data are
# one batch, so that the second process has none. Without clipping, the scale of gradients matters.
BIGRAM_SGD = override(SGD, ["model.dropout=0", "optim.max_grad_norm=1e6"])
CTC_SGD = override(BIGRAM_SGD, ["loss.blank=optional", "loss.allow_repeats=false", "loss.ngram=0"])


def interrupted(experiment, folder, step):
    """A training that SIGINT ends, sent to the second process only."""
    do, count = loop.Training.step, []

    def interrupt(self, *batch):
        count.append(None)
        if len(count) == step and processes.rank() == 1:
            os.kill(os.getpid(), signal.SIGINT)
        do(self, *batch)

    loop.Training.step = interrupt
    try:
        return train(experiment, folder, quiet=True)
    finally:
        loop.Training.step = do


def nan_in_the_second(folder):
    """The error of a training whose second process finds a NaN in its second step."""
    forward, count = Recognizer.forward, []

    def broken(self, batch):
        emissions, lengths = forward(self, batch)
        count.append(None)
        # The first call is not a training step.
        if len(count) == 3 and processes.rank() == 1:
            emissions = emissions.clone()
            emissions[0, 0, 0] = torch.nan
        return emissions, lengths

    Recognizer.forward = broken
    try:
        return raised(BIGRAM, folder)
    finally:
        Recognizer.forward = forward


def raised(experiment, folder):
    """The error of a training."""
    try:
        train(experiment, folder, quiet=True)
    except (ValueError, TrainingError) as error:
        return f"{type(error).__name__}: {error}"


def main(folder):
    processes.TIMEOUT = timedelta(seconds=60)  # tests that hang end soon
    found = {
        "bigram": asdict(train(BIGRAM_SGD, folder / "bigram", quiet=True)),
        "ctc": asdict(train(CTC_SGD, folder / "ctc", quiet=True)),
        "whole": asdict(train(BIGRAM, folder / "whole")),
        "stopped": asdict(interrupted(BIGRAM, folder / "stopped", 2)),
        "resumed": asdict(train(BIGRAM, folder / "stopped", resume=True, quiet=True)),
        "nan": nan_in_the_second(folder / "nan"),
        "short": asdict(
            train(
                override(BIGRAM, ["optim.epochs=100000"]),
                folder / "short",
                quiet=True,
                max_seconds=0.3,
            )
        ),
        "odd": raised(override(BIGRAM, ["optim.batch_size=3"]), folder / "odd"),
        "few": raised(override(BIGRAM, ["data.train=1"]), folder / "few"),
    }
    (folder / f"{processes.rank()}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
