"""The folder of a run: its environment, times, TensorBoard files, and random state."""

import json
import os
import platform
import random
import re
import shutil
import signal
import subprocess
import sys
import types
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from runs import BIGRAM, assert_same_state, checkpoint, override

import arcgrad as ag
from arcgrad.recipes import cli
from arcgrad.recipes.inference import evaluate_run
from arcgrad.recipes.metrics import Errors
from arcgrad.recipes.run import Run, load_environment, load_run
from arcgrad.recipes.training import environment, loop, train
from arcgrad.recipes.training.progress import EpochMetrics, Position, Reporter

ONE_EPOCH = override(BIGRAM, ["optim.epochs=1"])


def test_a_run_records_its_environment(tmp_path, monkeypatch):
    settings = ["--set=data.train=4", "--set=data.validation=2", "--set=data.test=2", "--quiet"]
    monkeypatch.chdir(tmp_path)
    command = ["arcgrad", "train", "demo", *settings, "--epochs", "1", "--out", "my run"]
    monkeypatch.setattr(sys, "argv", ["/some/where/arcgrad", *command[1:]])
    with pytest.raises(SystemExit) as exit:
        cli.main()
    assert exit.value.code == 0
    found = load_environment("my run")
    assert found["command"] == " ".join(command[:-1]) + " 'my run'"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["date"])
    assert (found["arcgrad"], found["torch"]) == (ag.__version__, torch.__version__)
    assert (found["python"], found["numpy"]) == (platform.python_version(), np.__version__)
    assert (found["device"], found["threads"], found["world_size"]) == ("cpu", 1, 1)
    assert found["cores"] == os.cpu_count()
    assert found["processor"]
    assert found["earlier"] == []
    text = Path("my run/environment.json").read_text()
    assert "some/where" not in text
    assert platform.node() not in found.values()


def test_a_resumed_run_keeps_its_earlier_environments(tmp_path):
    train(ONE_EPOCH, tmp_path, quiet=True, command="first")
    train(BIGRAM, tmp_path, quiet=True, resume=True, command="second")
    train(BIGRAM, tmp_path, quiet=True, resume=True, command="third")
    found = load_environment(tmp_path)
    assert found["command"] == "third"
    assert [earlier["command"] for earlier in found["earlier"]] == ["first", "second"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_the_commit_is_recorded_if_the_file_is_tracked(tmp_path, monkeypatch):
    def git(*arguments):
        names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        command = ["git", "-C", str(tmp_path), *names, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    file = tmp_path / "environment.py"
    file.write_text("one")
    monkeypatch.setattr(environment, "HERE", file)
    git("init", "-q")
    assert environment._commit() is None  # a folder within the checkout of another project
    git("add", ".")
    git("commit", "-qm", "one")
    git("tag", "v1")
    short = git("rev-parse", "--short", "HEAD")
    assert environment._commit() == short
    file.write_text("two")
    assert environment._commit() == f"{short}-dirty"
    monkeypatch.setenv("PATH", "")
    assert environment._commit() is None


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("environment.json", None, "load_environment: the folder of a run must have environment.j"),
        ("environment.json", "{", "load_environment: '.*environment.json' must be JSON, but it is"),
    ],
)
def test_a_folder_without_an_environment_is_an_error(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        load_environment(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 400])
def test_a_truncated_checkpoint_is_an_error_that_names_the_file(tmp_path, size):
    run = Run(tmp_path)
    run.save("best.safetensors", {"values": torch.zeros(100)})
    whole = (tmp_path / "best.safetensors").read_bytes()
    (tmp_path / "best.safetensors").write_bytes(whole[:size])
    with pytest.raises(ValueError, match=r"^test: '.*best.safetensors' must be"):
        run.load("test", "best.safetensors")


def test_damaged_settings_of_a_run_are_errors_that_name_the_file(tmp_path):
    train(ONE_EPOCH, tmp_path, quiet=True)
    settings = json.loads((tmp_path / "experiment.json").read_text())
    settings["optim"]["epoch"] = 3
    del settings["sha256"]
    (tmp_path / "experiment.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=r"'optim.epoch' in '.*experiment.json'; did you mean"):
        load_run(tmp_path)


def test_each_epoch_has_its_time_without_validation(tmp_path, monkeypatch):
    validate = loop.Training.validate

    def slow(self, reporter):
        loop.time.sleep(0.3)
        return validate(self, reporter)

    monkeypatch.setattr(loop.Training, "validate", slow)
    rows = train(BIGRAM, tmp_path, quiet=True).history
    assert all(row["epoch_seconds"] > 0 for row in rows)
    assert all(row["epoch_cpu_seconds"] > 0 for row in rows)
    outside = [row["seconds"] - row["epoch_seconds"] for row in rows]
    assert outside[0] >= 0.299
    assert outside[1] - rows[0]["seconds"] >= 0.299
    assert rows[-1]["cpu_seconds"] >= sum(row["epoch_cpu_seconds"] for row in rows) - 0.002


def test_the_time_of_an_epoch_continues_after_an_interruption(tmp_path, monkeypatch):
    do, count = loop.Training.step, []

    def slow(self, *batch):
        count.append(None)
        if len(count) == 2:
            os.kill(os.getpid(), signal.SIGINT)
        loop.time.sleep(0.1)
        do(self, *batch)

    monkeypatch.setattr(loop.Training, "step", slow)
    assert train(ONE_EPOCH, tmp_path, quiet=True).interrupted
    rows = train(ONE_EPOCH, tmp_path, quiet=True, resume=True).history
    assert rows[0]["epoch_seconds"] + 0.001 >= 0.3


def test_ctrl_c_during_validation_saves_the_epoch_before_it(tmp_path, monkeypatch):
    train(BIGRAM, tmp_path / "whole", quiet=True)
    batch_emissions = loop.batch_emissions

    def interrupt(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        yield from batch_emissions(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "batch_emissions", interrupt)
        result = train(BIGRAM, tmp_path / "stopped", quiet=True)
    assert result.interrupted
    assert result.epochs == 0
    assert checkpoint(tmp_path / "stopped")["position"]["batches"] == 3
    assert torch.is_grad_enabled()
    assert train(BIGRAM, tmp_path / "stopped", quiet=True, resume=True).finished
    assert_same_state(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "stopped"))


@pytest.mark.parametrize("device", ["cude", "cuda:97"])
def test_an_unknown_device_is_an_error_before_files_are_written(tmp_path, device):
    with pytest.raises(ValueError, match=f"^train: the device must be one of .* it is '{device}'"):
        train(ONE_EPOCH, tmp_path / "run", device=device, quiet=True)
    assert not list(tmp_path.iterdir())
    train(ONE_EPOCH, tmp_path / "run", quiet=True)
    with pytest.raises(ValueError, match=f"^evaluate_run: the device must .* it is '{device}'"):
        evaluate_run(tmp_path / "run", device=device)


@pytest.mark.parametrize("corpus", ["letters", "digits"])
def test_the_random_numbers_of_python_and_numpy_are_not_used(tmp_path, corpus):
    settings = [f"data.corpus={corpus}", "model.preset=small", "data.train=4"]
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    train(override(ONE_EPOCH, settings), tmp_path / "one", quiet=True)
    after = random.getstate(), np.random.get_state()  # noqa: NPY002
    assert before[0] == after[0]
    for one, other in zip(before[1], after[1], strict=True):
        assert np.array_equal(one, other)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002
    torch.manual_seed(3)
    train(override(ONE_EPOCH, settings), tmp_path / "two", quiet=True)
    assert_same_state(checkpoint(tmp_path / "one"), checkpoint(tmp_path / "two"))


def test_a_bar_shows_loss_cer_rates_and_the_time_left(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with Reporter(False, 4, (10, 2)) as reporter:
        for batches in (5, 6):
            metrics = EpochMetrics(30.0, 12, 2, Errors(1, 0, 0, 4))
            position = Position(1, batches, epoch_seconds=3.0, metrics=metrics)
            reporter.step(position, 0.0125)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().out)
    assert "epoch 2/4 loss 3.000 CER 25.0%" in shown
    assert "18/48 2.0 batches/s  learning rate 0.013" in shown
    assert re.search(r"learning rate 0.013 +(-:--:--|\d:\d\d:\d\d)", shown)


def test_metrics_survive_serialization():
    metrics = EpochMetrics(1 / 3, 2, 1, Errors(1, 2, 3, 4), Errors(5, 6, 7, 8))
    assert EpochMetrics.from_list([float(number) for number in metrics.to_list()]) == metrics
    assert Position.from_dict(asdict(Position(1, metrics=metrics))) == Position(1, metrics=metrics)


class Writer:
    """Records the calls of a TensorBoard writer."""

    calls: list

    def __init__(self, folder, purge_step):
        Writer.calls = [("open", folder, purge_step)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        Writer.calls.append(("close",))

    def flush(self):
        Writer.calls.append(("flush",))

    def add_scalar(self, tag, value, step):
        Writer.calls.append((tag, value, step))


def test_metrics_are_written_to_tensorboard_if_it_is_installed(tmp_path, monkeypatch):
    fake = types.SimpleNamespace(SummaryWriter=Writer)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    rows = train(BIGRAM, tmp_path, quiet=True).history
    calls = Writer.calls
    assert calls[0] == ("open", str(tmp_path / "tensorboard"), 1)
    assert calls[-1] == ("close",)
    for row in rows:
        assert ("loss/train", row["train_loss"], row["epoch"]) in calls
        assert ("cer/validation", row["validation_cer"], row["epoch"]) in calls
        assert ("learning_rate", row["learning_rate"], row["epoch"]) in calls
    assert sum(call == ("flush",) for call in calls) == 2
    train(override(BIGRAM, ["optim.epochs=3"]), tmp_path, quiet=True, resume=True)
    assert Writer.calls[0] == ("open", str(tmp_path / "tensorboard"), 3)
    assert {call[2] for call in Writer.calls[1:] if len(call) == 3} == {3}


def test_no_metrics_are_written_without_tensorboard(tmp_path):
    train(ONE_EPOCH, tmp_path, quiet=True)
    assert not (tmp_path / "tensorboard").exists()
