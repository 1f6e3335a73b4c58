"""Training in two processes: the metrics of one process, one writer, and a common end."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from runs import BIGRAM, TINY, assert_same_state, checkpoint, override
from two_processes import BIGRAM_SGD, CTC_SGD

from arcgrad.recipes.data import load_data
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import load_environment
from arcgrad.recipes.training import train

pytestmark = pytest.mark.serial

# A generous limit for slow machines.
SECONDS = 300


@contextlib.contextmanager
def torchrun(*arguments):
    """A program in two processes, which are terminated at the end."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    where = ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
    program = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *where, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    watch = threading.Timer(SECONDS, program.terminate)  # torchrun terminates its processes
    watch.start()
    try:
        yield program
    finally:
        watch.cancel()
        program.terminate()
        try:
            program.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            program.kill()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of the runs, the results of each process, and the output."""
    folder = tmp_path_factory.mktemp("trained")
    with torchrun(Path(__file__).parents[2] / "support/two_processes.py", folder) as program:
        out, err = program.communicate()
    assert program.returncode == 0, err
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    return folder, found, out


@pytest.mark.parametrize(("name", "experiment"), [("bigram", BIGRAM_SGD), ("ctc", CTC_SGD)])
def test_two_processes_train_like_one(trained, tmp_path, name, experiment):
    folder, (found, _), _ = trained
    result = train(experiment, tmp_path, quiet=True)
    torch.manual_seed(experiment.seed)
    start = Recognizer.for_data(experiment, load_data(experiment).train)
    one, two = checkpoint(tmp_path), checkpoint(folder / name)
    for part in ("network", "criterion"):
        for key, before in getattr(start, part).named_parameters():
            change = one[part][key] - before
            assert change.norm() > 0
            assert (two[part][key] - before - change).norm() < 1e-3 * change.norm(), key
    for row, other in zip(result.history, found[name]["history"], strict=True):
        for key, value in row.items():
            if not key.endswith("seconds"):
                assert value == pytest.approx(other[key], rel=1e-4), key
    assert ("transitions" in two["criterion"]) == (name == "bigram")


def test_a_run_interrupted_in_one_process_is_resumed_exactly(trained):
    folder, found, _ = trained
    for results in found:
        assert results["stopped"]["interrupted"]
        assert (results["stopped"]["epochs"], results["resumed"]["epochs"]) == (0, 2)
    assert_same_state(checkpoint(folder / "whole"), checkpoint(folder / "stopped"))
    states = [state["host"] for state in checkpoint(folder / "whole")["rng"]]
    assert len(states) == 2
    assert not torch.equal(*states)  # each drops other units


def test_all_processes_return_the_same_metrics(trained):
    assert trained[1][0] == trained[1][1]


def test_only_the_first_process_prints(trained):
    lines = trained[2].splitlines()
    assert re.fullmatch(r"10 training examples, \d+ parameters, 2 processes", lines[0])
    assert [line.split("  ")[0] for line in lines[1:]] == ["epoch 1/2", "epoch 2/2"]


def test_a_nan_in_one_process_stops_all_and_the_joint_batch_is_saved(trained):
    folder, (found, _), _ = trained
    expected = r"TrainingError: .*, but in epoch 1, batch 2, the loss of train-line-\d is not; "
    assert re.match(expected, found["nan"])
    batch = checkpoint(folder / "nan", "bad_batch.safetensors")
    # The second process trains on every second example.
    assert batch["losses"].isfinite().tolist() == [i != 1 for i in range(len(batch["ids"]))]
    assert batch["ids"][1] in found["nan"]
    assert len(batch["inputs"]) == len(batch["ids"]) >= 3


def test_the_time_limit_stops_all_processes_at_the_same_step(trained):
    _, (found, _), _ = trained
    assert found["short"]["epochs"] >= 1
    assert not found["short"]["finished"]


def test_batches_that_cannot_be_split_are_errors(trained):
    folder, (found, _), _ = trained
    assert found["odd"] == (
        "ValueError: train: optim.batch_size must be a multiple of the number of processes, 2, "
        "but it is 3"
    )
    assert "each process must have an example in a batch" in found["few"]
    assert not (folder / "odd").exists()
    assert not (folder / "few").exists()


def test_ctrl_c_ends_torchrun_with_a_checkpoint_that_one_process_can_resume(tmp_path, capsys):
    settings = [f"--set={text}" for text in (*TINY, "optim.epochs=1000000")]
    command = ["train", "table1/letters/ngram2/no_blank", *settings, "--out", tmp_path / "run"]
    with torchrun("-m", "arcgrad.recipes.cli", *command) as program:
        lines = iter(program.stdout.readline, "")
        assert any(line.startswith("epoch 1/1000000") for line in lines), program.stderr.read()
        program.send_signal(signal.SIGINT)
        out, err = program.communicate()
    assert program.returncode != 0
    assert out.splitlines()[-1] == f"interrupted; resume the run in '{tmp_path / 'run'}'", err
    saved = checkpoint(tmp_path / "run")
    assert saved["position"]["epoch"] >= 1
    environment = load_environment(tmp_path / "run")
    assert environment["world_size"] == 2
    assert environment["command"].startswith(
        "arcgrad train table1/letters/ngram2/no_blank --set=data.tr"
    )

    done = override(BIGRAM, [f"optim.epochs={saved['position']['epoch'] + 1}"])
    assert train(done, tmp_path / "run", resume=True).finished
    assert "the run had 2 processes and continues with 1: its results" in capsys.readouterr().out
    environment = load_environment(tmp_path / "run")
    assert (environment["world_size"], environment["command"]) == (1, None)
    assert [earlier["world_size"] for earlier in environment["earlier"]] == [2]
