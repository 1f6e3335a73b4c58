"""Training: the same bits with and without interruption, and a clean end in every case."""

import json
import os
import platform
import re
import signal

import pytest
import torch
from runs import BIGRAM, SGD, TINY, assert_same_state, checkpoint

from arcgrad.recipes.data import collate, load_data
from arcgrad.recipes.experiments import find, override
from arcgrad.recipes.inference import evaluate_run
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import Run, load_environment, load_history, load_run
from arcgrad.recipes.training import TrainingError, loop, progress, train
from arcgrad.recipes.training.optimizer import rate_factor


def interrupt_at(monkeypatch, step, number=signal.SIGINT):
    """Sends a signal, by default that of Ctrl-C, while a step is done."""
    do, count = loop.Training.step, []

    def interrupted(self, *batch):
        count.append(None)
        if len(count) == step:
            os.kill(os.getpid(), number)
        do(self, *batch)

    monkeypatch.setattr(loop.Training, "step", interrupted)


def test_one_epoch_and_a_resumed_epoch_equal_two_epochs(tmp_path):
    whole = train(SGD, tmp_path / "whole", quiet=True)
    half = train(override(SGD, ["optim.epochs=1"]), tmp_path / "halves", quiet=True)
    assert (half.epochs, half.finished) == (1, True)
    assert len((tmp_path / "halves/metrics.jsonl").read_text().splitlines()) == 1
    resumed = train(SGD, tmp_path / "halves", resume=True, quiet=True)
    assert (whole.epochs, resumed.epochs) == (2, 2)
    assert_same_state(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "halves"))


@pytest.mark.parametrize("step", [1, 3, 5])
def test_an_interrupted_run_is_resumed_exactly(tmp_path, monkeypatch, step):
    # Three batches make an epoch: the third step is the last of one.
    train(BIGRAM, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as patch:
        interrupt_at(patch, step)
        stopped = train(BIGRAM, tmp_path / "stopped", quiet=True)
    assert stopped.interrupted
    assert not stopped.finished
    assert stopped.epochs == (step - 1) // 3
    if stopped.epochs == 0:
        with pytest.raises(ValueError, match=r"no '.*best.safetensors'; it was interrupted in"):
            load_run(tmp_path / "stopped")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert train(BIGRAM, tmp_path / "stopped", resume=True, quiet=True).finished
    assert_same_state(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "stopped"))


def test_a_run_has_its_settings_numbers_and_checkpoints(tmp_path):
    result = train(BIGRAM, tmp_path, quiet=True)
    assert {path.name for path in tmp_path.iterdir()} == {
        *("best.safetensors", "environment.json", "experiment.json", "last.safetensors"),
        *("metrics.jsonl", "tokens"),
    }
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert all(len(row.pop("sha256")) == 64 for row in rows)
    assert rows == list(result.history) == load_history(tmp_path)
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["steps"] for row in rows] == [3, 6]
    assert min(row["validation_cer"] for row in rows) == result.best_cer
    for split in ("train", "validation"):
        assert {f"{split}_{what}" for what in ("loss", "cer", "wer")} <= rows[0].keys()
    experiment, recognizer = load_run(tmp_path)
    assert experiment == BIGRAM
    assert not recognizer.training
    best = checkpoint(tmp_path, "best.safetensors")
    assert torch.equal(recognizer.criterion.transitions, best["criterion"]["transitions"])
    assert recognizer.criterion.transitions.abs().max() > 0  # learned


def test_a_run_keeps_the_versions_and_options_of_its_training(tmp_path):
    train(override(BIGRAM, ["optim.epochs=1"]), tmp_path, quiet=True, max_seconds=900)
    kept = load_environment(tmp_path)
    assert (kept["torch"], kept["python"]) == (torch.__version__, platform.python_version())
    assert (kept["device"], kept["threads"], kept["max_seconds"]) == ("cpu", 1, 900)


def test_a_run_without_epochs_has_no_metrics(tmp_path):
    assert load_history(tmp_path) == []


@pytest.mark.parametrize("text", ["{", "3", '{"epoch": 1}', "\xff", "[" * 100_000])
def test_damaged_metrics_are_errors(tmp_path, text):
    (tmp_path / "metrics.jsonl").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"^load_history: line 1 of '.*metrics.jsonl' must be"):
        load_history(tmp_path)


def test_evaluation_returns_the_examples_in_order(tmp_path):
    train(BIGRAM, tmp_path, quiet=True)
    splits = load_data(BIGRAM)
    assert [e.reference for e in evaluate_run(tmp_path).examples] == splits.test.texts
    result = evaluate_run(tmp_path, "validation", checkpoint="last")
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert result.cer == json.loads(rows[-1])["validation_cer"]


def test_training_learns(tmp_path):
    settings = ["optim.epochs=30", "data.train=4", "data.augment=false", "model.dropout=0"]
    history = train(override(find("demo"), [*TINY, *settings]), tmp_path, quiet=True).history
    assert history[-1]["train_loss"] < 0.5 * history[0]["train_loss"]


@pytest.mark.parametrize(
    ("settings", "progress", "epoch", "factor"),
    [
        (["optim.schedule=step"], 0.9, 99, 1.0),
        (["optim.schedule=step"], 0.0, 100, 0.5),
        (["optim.schedule=step", "optim.step_size=2", "optim.decay=0.1"], 0.0, 5, 0.01),
        (["optim.schedule=one-cycle"], 0.0, 0, 0.1),
        (["optim.schedule=one-cycle"], 0.1, 7, 1.0),
        (["optim.schedule=one-cycle"], 0.55, 7, 0.5),
        (["optim.schedule=one-cycle"], 1.0, 7, 0.0),
    ],
)
def test_schedules(settings, progress, epoch, factor):
    optim = override(find("demo"), settings).optim
    assert rate_factor(optim, epoch, progress) == pytest.approx(factor)


def test_the_loss_has_a_learning_rate_of_its_own(tmp_path):
    still = override(SGD, ["optim.criterion_learning_rate=0", "optim.epochs=1"])
    train(still, tmp_path, quiet=True)
    transitions = checkpoint(tmp_path)["criterion"]["transitions"]
    assert transitions.abs().max() == 0


def test_gradients_are_clipped(tmp_path):
    settings = ["optim.max_grad_norm=1e-20", "optim.epochs=1", "optim.weight_decay=0"]
    train(override(SGD, settings), tmp_path, quiet=True)
    assert checkpoint(tmp_path)["criterion"]["transitions"].abs().max() < 1e-18


def test_a_loss_that_is_nan_stops_the_training_and_saves_the_batch(tmp_path, monkeypatch):
    forward, count = loop.Recognizer.forward, []

    def broken(self, batch):
        emissions, lengths = forward(self, batch)
        count.append(None)
        if len(count) == 2:
            emissions = emissions.clone()
            emissions[0, 0, 0] = torch.nan
        return emissions, lengths

    monkeypatch.setattr(loop.Recognizer, "forward", broken)
    with pytest.raises(TrainingError, match=r"in epoch 1, batch 2, the loss of train-line-\d is"):
        train(BIGRAM, tmp_path, quiet=True)
    batch = checkpoint(tmp_path, "bad_batch.safetensors")
    assert batch["losses"].isnan().tolist() == [True, *[False] * (len(batch["ids"]) - 1)]
    assert len(batch["inputs"]) == len(batch["texts"]) == len(batch["ids"])


def test_training_stops_at_its_time_limit(tmp_path, capsys):
    endless = override(BIGRAM, ["optim.epochs=100000"])
    result = train(endless, tmp_path, max_seconds=0.3)
    assert capsys.readouterr().out.endswith("stopped at the time limit of 0.3 s\n")
    assert not result.finished
    assert result.epochs >= 1
    assert (tmp_path / "best.safetensors").exists()


def test_plain_lines_are_printed_without_a_terminal(tmp_path, capsys):
    train(BIGRAM, tmp_path / "loud")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("10 training examples, ")
    assert [line.split("  ")[0] for line in lines[1:]] == ["epoch 1/2", "epoch 2/2"]
    train(BIGRAM, tmp_path / "quiet", quiet=True)
    assert capsys.readouterr().out == ""


def test_a_run_is_never_overwritten_or_resumed_with_other_settings(tmp_path):
    with pytest.raises(ValueError, match="a run must have a checkpoint, but there is no "):
        train(BIGRAM, tmp_path, resume=True, quiet=True)
    train(override(BIGRAM, ["optim.epochs=1"]), tmp_path, quiet=True)
    with pytest.raises(ValueError, match=r"must not have a run, but .* has one; resume it"):
        train(BIGRAM, tmp_path, quiet=True)
    with pytest.raises(ValueError, match="must be resumed with its own settings, but the settings"):
        train(override(BIGRAM, ["seed=1"]), tmp_path, resume=True, quiet=True)


def test_a_checkpoint_of_another_version_cannot_be_resumed(tmp_path):
    train(BIGRAM, tmp_path, quiet=True)
    content = checkpoint(tmp_path)
    content["position"]["sums"] = content["position"].pop("metrics")
    Run(tmp_path).save("last.safetensors", content)
    with pytest.raises(ValueError, match=r"started by this version .* differs in metrics, sums;"):
        train(BIGRAM, tmp_path, resume=True, quiet=True)


def test_missing_runs_are_errors(tmp_path):
    with pytest.raises(ValueError, match=r"the folder of a run must have experiment.json, but"):
        load_run(tmp_path)
    with pytest.raises(ValueError, match="the checkpoint must be 'best' or 'last', but it is 'x'"):
        load_run(tmp_path, "x")
    train(override(BIGRAM, ["optim.epochs=1"]), tmp_path, quiet=True)
    with pytest.raises(ValueError, match=r"the split must be 'train', .* but it is 'exam'"):
        evaluate_run(tmp_path, "exam")


def test_training_restores_the_number_of_torch_threads(tmp_path):
    before = torch.get_num_threads()
    train(override(BIGRAM, ["optim.epochs=1"]), tmp_path, quiet=True, threads=1)
    assert torch.get_num_threads() == before


# Targets that do not fit into their frames


def test_infeasible_examples_are_counted_and_left_out_of_the_mean(tmp_path, capsys):
    # Some of the targets need more frames than there are.
    settings = ["loss.min_frames=4", "data.augment=false"]
    short = override(find("demo"), [*TINY, *settings])
    recognizer = Recognizer.for_data(short, load_data(short).train)
    data = load_data(short).train
    batch = collate([data[index] for index in range(len(data))])
    losses = recognizer.loss(*recognizer(batch), batch)
    count = losses.isinf().sum().item()
    assert 0 < count < len(data)
    rows = train(short, tmp_path).history
    assert [row["train_infeasible"] for row in rows] == [count, count]
    assert all(0 < row["train_loss"] < 100 for row in rows)
    assert f"too short: {count} train" in capsys.readouterr().out
    assert load_history(tmp_path) == list(rows)


def test_the_gradient_is_that_of_the_mean_over_feasible_examples(tmp_path):
    settings = ["loss.min_frames=4", "data.augment=false", "model.dropout=0", "optim.epochs=1"]
    settings += ["optim.batch_size=10", "optim.method=sgd", "optim.schedule=step"]
    settings += ["optim.weight_decay=0", "optim.max_grad_norm=1e9", "optim.learning_rate=0.1"]
    short = override(find("demo"), [*TINY, *settings])
    data = load_data(short).train
    torch.manual_seed(short.seed)
    recognizer = Recognizer.for_data(short, data)
    batch = collate([data[index] for index in range(len(data))])
    losses = recognizer.loss(*recognizer(batch), batch)
    losses[~losses.isinf()].mean().backward()
    train(short, tmp_path, quiet=True)
    after = checkpoint(tmp_path)["network"]
    for name, parameter in recognizer.network.named_parameters():
        expected = parameter.detach() - 0.1 * parameter.grad
        assert torch.allclose(after[name], expected, atol=1e-5), name


def test_a_training_without_a_feasible_example_names_the_longest_target(tmp_path):
    short = override(find("demo"), [*TINY, "loss.min_frames=40"])
    longest = max(load_data(short).train.texts, key=len)
    message = (
        rf"targets must fit into .* in epoch 1 none does; the longest, '{longest}' of "
        rf"train-line-\d, has {len(longest)} tokens in \d+ frames: the target needs at least "
    )
    with pytest.raises(TrainingError, match=message):
        train(short, tmp_path, quiet=True)


# Signals and checkpoints within an epoch


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_signals_of_batch_systems_save_like_ctrl_c(tmp_path, monkeypatch, name):
    train(BIGRAM, tmp_path / "whole", quiet=True)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 2, getattr(signal, name))
        stopped = train(BIGRAM, tmp_path / "stopped", quiet=True)
    assert (stopped.interrupted, stopped.signal) == (True, getattr(signal, name))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert train(BIGRAM, tmp_path / "stopped", resume=True, quiet=True).finished
    assert_same_state(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "stopped"))


class Killed(Exception):
    pass


def test_a_run_that_is_killed_continues_from_its_checkpoint_within_an_epoch(tmp_path, monkeypatch):
    train(BIGRAM, tmp_path / "whole", quiet=True)
    do, count = loop.Training.step, []

    def killed(self, *batch):
        count.append(None)
        if len(count) == 5:
            raise Killed
        do(self, *batch)

    with monkeypatch.context() as patch:
        patch.setattr(loop.Training, "step", killed)
        with pytest.raises(Killed):
            train(BIGRAM, tmp_path / "killed", quiet=True, save_every=1e-9)
    position = checkpoint(tmp_path / "killed")["position"]
    assert (position["epoch"], position["batches"]) == (1, 1)
    assert train(BIGRAM, tmp_path / "killed", resume=True, quiet=True, save_every=3600).finished
    assert_same_state(checkpoint(tmp_path / "whole"), checkpoint(tmp_path / "killed"))


def test_checkpoints_within_an_epoch_wait_for_their_time(tmp_path, monkeypatch):
    saved = []
    monkeypatch.setattr(loop.Training, "save", lambda self, name, _: saved.append(name))
    train(override(BIGRAM, ["optim.epochs=1"]), tmp_path, quiet=True, save_every=3600)
    assert saved == ["best.safetensors", "last.safetensors"]


@pytest.mark.parametrize("name", ["max_seconds", "save_every"])
def test_times_must_be_positive(tmp_path, name):
    with pytest.raises(ValueError, match=f"train: {name} must be positive, but it is 0"):
        train(BIGRAM, tmp_path, **{name: 0})
    assert not list(tmp_path.iterdir())


# Progress


def test_lines_within_an_epoch_are_printed_at_times(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    train(override(BIGRAM, ["optim.epochs=1"]), tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[1] for line in lines[1:-1]] == [f"batch {k}/4" for k in (1, 2, 3)]
    assert re.search(r"loss \d.* CER \d.*%  [\d.]+ batches/s  learning rate \d", lines[1])
    assert lines[-1].startswith("epoch 1/1  train loss")


def test_validation_moves_the_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    with progress.Reporter(False, 2, (10, 5)) as reporter:
        reporter.validate(progress.Position(1, 10), 3)
    shown = re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().out)
    assert re.search(r"epoch 2/2 validation .* 28/30", shown)
