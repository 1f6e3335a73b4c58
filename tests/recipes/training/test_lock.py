"""The lock of the folder of a run."""

import json
import os
import platform
import subprocess
import sys

import pytest
from runs import BIGRAM, override

from arcgrad.recipes.training import loop, train
from arcgrad.recipes.training.lock import LOCK, lock

ONE_EPOCH = override(BIGRAM, ["optim.epochs=1"])


def ended():
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_second_training_is_refused_while_the_first_one_runs(tmp_path, monkeypatch):
    do, found = loop.Training.step, []

    def second(self, *batch):
        if not found:
            for resume in (False, True):
                with pytest.raises(ValueError, match="train: ") as error:
                    train(ONE_EPOCH, tmp_path / "run", quiet=True, resume=resume)
                found.append(str(error.value))
        do(self, *batch)

    monkeypatch.setattr(loop.Training, "step", second)
    assert train(ONE_EPOCH, tmp_path / "run", quiet=True).finished
    assert f"but process {os.getpid()} on {platform.node()} has written" in found[0]
    assert "a run must have a checkpoint" in found[1]
    assert not (tmp_path / "run" / LOCK).exists()
    assert train(BIGRAM, tmp_path / "run", quiet=True, resume=True).finished


def test_a_resumed_run_is_locked_too(tmp_path):
    train(ONE_EPOCH, tmp_path, quiet=True)
    with lock(tmp_path), pytest.raises(ValueError, match="only one training may write a run"):
        train(BIGRAM, tmp_path, quiet=True, resume=True)


def test_the_lock_of_a_process_that_has_ended_is_replaced(tmp_path):
    owner = {"host": platform.node(), "process": ended(), "begin": "1", "since": "then"}
    (tmp_path / LOCK).write_text(json.dumps(owner))
    with lock(tmp_path):
        assert json.loads((tmp_path / LOCK).read_text())["process"] == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_the_lock_of_an_earlier_process_of_the_same_number_is_replaced(tmp_path):
    if not os.path.exists("/proc/self/stat"):
        pytest.skip("this system does not tell when a process began")
    owner = {"host": platform.node(), "process": os.getpid(), "begin": "1", "since": "then"}
    (tmp_path / LOCK).write_text(json.dumps(owner))
    with lock(tmp_path):
        pass


def test_the_lock_of_another_host_is_kept(tmp_path):
    owner = {"host": "elsewhere", "process": ended(), "begin": "1", "since": "noon"}
    (tmp_path / LOCK).write_text(json.dumps(owner))
    with pytest.raises(ValueError, match=r"on elsewhere has written '.*' since 'noon'; .* remove"):
        train(ONE_EPOCH, tmp_path, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


@pytest.mark.parametrize("content", ["", "{", "3", "[]"])
def test_a_damaged_lock_is_an_error(tmp_path, content):
    (tmp_path / LOCK).write_text(content)
    with pytest.raises(ValueError, match=r"must have a host and a process, but '.*' is damaged"):
        train(ONE_EPOCH, tmp_path, quiet=True)


def test_a_training_that_fails_removes_its_lock(tmp_path):
    with pytest.raises(ValueError, match=r"data\.path is not set"):
        train(override(ONE_EPOCH, ["data.corpus=iam"]), tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
