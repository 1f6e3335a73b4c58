"""Experiments: each named one is built and steps once, and settings are read with care."""

import dataclasses
import json
import math

import pytest
import torch

from arcgrad.recipes import experiment as experiments
from arcgrad.recipes.catalog import EXPERIMENTS, find
from arcgrad.recipes.data import collate
from arcgrad.recipes.experiment import Experiment, from_dict, override, to_dict
from arcgrad.recipes.recognizer import Recognizer, load_data

TINY = ["data.train=4", "data.validation=2", "data.test=2"]


def step(experiment):
    """The recogniser of an experiment before and after a step, its loss, and a transcript."""
    torch.manual_seed(0)
    splits = load_data(experiment)
    recognizer = Recognizer.for_data(experiment, splits.train)
    batch = collate([splits.train[i] for i in range(2)])
    emissions, lengths = recognizer(batch)
    losses = recognizer.loss(emissions, lengths, batch)
    losses.mean().backward()
    return recognizer, losses, recognizer.transcribe(emissions.detach(), lengths)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_each_experiment_is_built_and_steps(name):
    recognizer, losses, texts = step(override(find(name), TINY))
    assert losses.shape == (2,)
    assert (losses > 0).all()
    assert losses.isfinite().all()
    assert len(texts) == 2
    for parameter in recognizer.parameters():
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()
    assert any(parameter.grad.abs().max() > 0 for parameter in recognizer.network.parameters())


@pytest.mark.parametrize(
    "settings",
    [
        ["model.preset=small"],
        ["data.task=words", "data.augment=false"],
        ["tokens.kind=pieces", "tokens.num_pieces=30", "data.train=60"],
        ["data.corpus=digits", "model.preset=small"],
    ],
    ids=lambda settings: settings[0],
)
def test_other_networks_tokens_and_corpora_step_too(settings):
    _, losses, texts = step(override(find("demo"), [*TINY, *settings]))
    assert losses.isfinite().all()
    assert len(texts) == 2


def test_the_cells_of_table_1_are_all_there_and_differ_in_the_loss_only():
    cells = {name: e for name, e in EXPERIMENTS.items() if name.startswith("table1/")}
    assert len(cells) == 9
    assert len({cell.loss for cell in cells.values()}) == 9
    assert {(c.data, c.model, c.optim, c.seed) for c in cells.values()} == {
        (e.data, e.model, e.optim, e.seed) for e in [find("demo")]
    }
    assert find("table1/ngram2/no_blank").loss == experiments.LossSettings("none", True, 2)
    assert find("table1/ngram0/optional_blank").loss == find("demo").loss


def test_the_loss_of_an_experiment_is_ctc():
    recognizer, losses, _ = step(override(find("demo"), TINY))
    splits = load_data(override(find("demo"), TINY))
    batch = collate([splits.train[i] for i in range(2)])
    with torch.no_grad():
        emissions, lengths = recognizer(batch)
    expected = torch.nn.functional.ctc_loss(
        emissions.log_softmax(-1).transpose(0, 1),
        batch.targets + 1,
        lengths,
        batch.target_lengths,
        reduction="none",
    )
    assert torch.allclose(losses, expected / batch.target_lengths, rtol=1e-4)


def test_settings_are_read_as_their_types():
    changed = override(
        find("demo"),
        [
            "seed=3",
            "data.path=some where",
            "data.train=none",
            "data.augment=False",
            "optim.learning_rate=1e-3",
            "optim.criterion_learning_rate=2",
            "loss.blank=forced",
        ],
    )
    assert (changed.seed, changed.data.path, changed.data.train) == (3, "some where", None)
    assert changed.data.augment is False
    assert changed.optim.learning_rate == 1e-3
    assert isinstance(changed.optim.criterion_learning_rate, float)
    assert changed.loss.blank == "forced"
    assert override(find("demo"), []) == find("demo")
    assert override(find("demo"), ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("optim.learning_rat=1", "is 'optim.learning_rat'; did you mean 'optim.learning_rate'"),
        ("epochs=1", "did you mean 'optim.epochs'"),
        ("optim=1", "a key must be a setting, but it is 'optim'"),
        ("zzzz=1", "there are description, data.corpus, "),
        ("seed", "a setting must be key=value, but it is 'seed'"),
        ("seed=1.5", "seed must be a whole number, but it is '1.5'"),
        ("optim.epochs=0", "OptimSettings: epochs must be positive, but it is 0"),
        ("optim.learning_rate=-1", "learning_rate must not be negative, but it is -1.0"),
        ("optim.learning_rate=nan", "learning_rate must not be negative, but it is nan"),
        ("seed=", "seed must be a whole number, but it is ''"),
        ("optim.learning_rate=fast", "optim.learning_rate must be a number, but it is 'fast'"),
        ("data.augment=perhaps", "data.augment must be true or false, but it is 'perhaps'"),
        ("loss.blank=maybe", "loss.blank must be one of none, forced, optional, but it is 'maybe'"),
    ],
)
def test_what_cannot_be_set_is_an_error_that_says_why(setting, message):
    with pytest.raises(ValueError, match=message):
        override(find("demo"), [setting])


def test_an_unknown_experiment_is_an_error_that_suggests_one():
    with pytest.raises(ValueError, match="'table1/ngram2/noblank'; did you mean 'table1/ngram2/no"):
        find("table1/ngram2/noblank")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_experiments_survive_json(name):
    assert from_dict(json.loads(json.dumps(to_dict(find(name))))) == find(name)


def test_settings_that_a_file_leaves_out_are_the_usual_ones():
    assert from_dict({"data": {}, "seed": 2}) == Experiment("", seed=2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": {"trai": 3}}, "it is 'data.trai'; did you mean 'data.train'"),
        ({"seed": True}, "seed must be a whole number, but it is True"),
        ({"seed": 1.5}, "seed must be a whole number, but it is 1.5"),
        ({"optim": {"epochs": None}}, "optim.epochs must be a whole number, but it is None"),
    ],
)
def test_bad_files_of_settings_are_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        from_dict(settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["data.corpus=iam"], "the corpus iam must have a folder, but data.path is not set"),
        (["data.corpus=wsj", "data.path=x", "data.train=1"], "wsj is used whole, but data has"),
    ],
)
def test_a_corpus_that_cannot_be_loaded_is_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        load_data(override(Experiment(""), settings))


def test_the_plain_network_refuses_what_it_cannot_do():
    experiment = override(find("demo"), [*TINY, "model.subsampling=4"])
    with pytest.raises(ValueError, match=r"model.subsampling is 4 and the data are images"):
        Recognizer(experiment, load_data(experiment).train.tokenizer, 16)


def test_experiments_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        find("demo").seed = 1
    assert math.isclose(find("demo").optim.max_grad_norm, 5.0)
