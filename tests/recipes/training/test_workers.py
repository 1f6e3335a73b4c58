"""Processes that load data: the same batches, errors and ends as without them."""

import os
import signal
import sys

import pytest
import torch
from runs import BIGRAM, assert_same_state, checkpoint

from arcgrad.recipes.data import letters
from arcgrad.recipes.inference import emissions
from arcgrad.recipes.training import loop, train

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs fork")


def test_workers_change_no_bit_also_after_an_interruption(tmp_path, monkeypatch):
    train(BIGRAM, tmp_path / "alone", quiet=True, workers=0)
    do, count = loop.Training.step, []

    def interrupted(self, *batch):
        count.append(None)
        if len(count) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        do(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "step", interrupted)
        assert train(BIGRAM, tmp_path / "workers", quiet=True, workers=2).interrupted
    train(BIGRAM, tmp_path / "workers", quiet=True, workers=1, resume=True)
    assert_same_state(checkpoint(tmp_path / "alone"), checkpoint(tmp_path / "workers"))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_a_worker_keeps_its_class_and_message(workers):
    data = letters.load("words", train=4, validation=1, test=1).train
    data.texts[2] = "?"
    batches = emissions.fixed_batches(data, 1)
    with pytest.raises(ValueError, match=r"^encode: the tokens must spell the text, but '\?'"):
        list(emissions.load_batches(data, batches, workers))


def test_workers_leave_signals_to_the_training():
    emissions.ignore_signals()
    try:
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, signal.SIG_DFL)


def test_the_default_number_of_workers(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    found = [
        emissions.default_workers(*given) for given in [(999,), (1000,), (10**6, 4), (10**6, 8)]
    ]
    assert found == [0, 4, 1, 0]
    monkeypatch.setattr(sys, "platform", "darwin")
    assert emissions.default_workers(10**6) == 0


def test_batches_for_a_gpu_are_in_pinned_memory(monkeypatch):
    options = {}

    def loader(dataset, **given):
        options.update(given)
        return []

    monkeypatch.setattr(emissions.torch_data, "DataLoader", loader)
    for device in ("cuda", "cpu"):
        list(emissions.load_batches(None, [], 0, torch.device(device)))
        assert options["pin_memory"] is (device == "cuda")


def test_a_negative_number_of_workers_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="train: workers must not be negative, but they are -1"):
        train(BIGRAM, tmp_path, workers=-1)
