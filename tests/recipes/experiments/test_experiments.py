"""Experiments: each is built and makes one step; settings are parsed and checked."""

import dataclasses
import itertools
import json
import math
import os

import pytest
import torch
import trees

import arcgrad as ag
from arcgrad.recipes import experiments
from arcgrad.recipes.data import collate, iam, librispeech, load_data, wsj
from arcgrad.recipes.experiments import (
    EXPERIMENTS,
    Experiment,
    catalog,
    cells,
    find,
    from_dict,
    override,
    to_dict,
)
from arcgrad.recipes.models import TDS2d
from arcgrad.recipes.recognizer import Recognizer

TINY = ["data.train=4", "data.validation=2", "data.test=2"]


def as_wide_as_needed(recognizer, batch):
    """A batch with inputs repeated or cut to the fewest frames for letters with blanks around."""
    needed = max(2 * len(text) + 3 for text in batch.texts)
    length = 1
    while recognizer.network.output_lengths([length])[0] < needed:
        length += 1
    inputs = [
        inputs[:, :own].repeat(1, -(-length // own))[:, :length]
        for inputs, own in zip(batch.inputs, batch.input_lengths.tolist(), strict=True)
    ]
    lengths = torch.full_like(batch.input_lengths, length)
    return dataclasses.replace(batch, inputs=torch.stack(inputs), input_lengths=lengths)


def short(dataset, num_letters=6):
    """A batch of two examples, whose texts are the first letters of the shortest texts."""
    order = sorted(range(len(dataset)), key=lambda i: len(dataset.texts[i]))
    examples = []
    for example in (dataset[i] for i in order[:2]):
        text = example.text[:num_letters].strip()
        target = torch.tensor(dataset.tokenizer.encode(text))
        examples.append(dataclasses.replace(example, text=text, target=target))
    return collate(examples)


def step(experiment, batch_of=short):
    """The recogniser of an experiment after one step, the batch, its loss, and a transcript."""
    torch.manual_seed(0)
    splits = load_data(experiment)
    recognizer = Recognizer.for_data(experiment, splits.train)
    batch = as_wide_as_needed(recognizer, batch_of(splits.train))
    emissions, lengths = recognizer(batch)
    losses = recognizer.loss(emissions, lengths, batch)
    losses.mean().backward()
    return recognizer, batch, losses, recognizer.transcribe(emissions.detach(), lengths)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
    """Small folders with the layout of the licensed corpora."""
    root = tmp_path_factory.mktemp("corpora")
    iam.prepare(trees.iam(root / "iam"))
    librispeech.prepare(trees.librispeech(root / "librispeech"))
    wsj.prepare(trees.wsj(root / "wsj"))
    return {name: root / name for name in ("iam", "librispeech", "wsj")}


def small(experiment, corpora):
    """The experiment with a few examples, and as many word pieces as these have."""
    corpus, settings = experiment.data.corpus, ["data.train=60", *TINY[1:]]
    if corpus in corpora:
        settings = [f"data.path={corpora[corpus]}"]
    experiment = override(experiment, settings)
    if experiment.tokens.kind == "pieces":
        letters = set("".join(load_data(letters_of(experiment)).train.texts)) - {" "}
        size = len(letters) + 3
        settings = [f"tokens.num_pieces={size}", f"model.inner_pieces={size}"]
        experiment = override(experiment, settings)
    return experiment


def letters_of(experiment):
    return override(experiment, ["tokens.kind=letters", "tokens.marginalize=false"])


def covering(experiments):
    """Names of experiments that together have each network and each loss with its tokens."""
    chosen, seen = [], set()
    for name, experiment in experiments.items():
        tokens = dataclasses.replace(experiment.tokens, num_pieces=1)
        network = experiment.model, experiment.data.is_speech, tokens.kind
        parts = {network, (experiment.loss, tokens)}
        if not parts <= seen:
            chosen.append(name)
            seen |= parts
    return chosen


# All of them take minutes: make test-long.
IS_LONG = os.environ.get("HYPOTHESIS_PROFILE") == "nightly"


@pytest.mark.parametrize("name", EXPERIMENTS if IS_LONG else covering(EXPERIMENTS))
def test_an_experiment_is_built_and_steps(name, corpora):
    recognizer, _, losses, texts = step(small(find(name), corpora))
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
def test_other_networks_tokens_and_corpora_make_a_step(settings):
    _, _, losses, texts = step(override(find("demo"), [*TINY, *settings]))
    assert losses.isfinite().all()
    assert len(texts) == 2


def test_the_cells_of_table_1_are_all_there_and_differ_in_the_loss_only():
    found = cells("table1", "letters")
    assert len(found) == 9
    assert len({cell.loss for cell in found.values()}) == 9
    assert len({(c.data, c.model, c.optim, c.seed) for c in found.values()}) == 1
    assert found["ngram2/no_blank"].loss == experiments.LossSettings("none", True, 2)
    assert found["ngram0/optional_blank"].loss == find("demo").loss


@pytest.mark.parametrize(
    ("name", "corpus", "count"),
    [
        *[("table1", corpus, 9) for corpus in ("letters", "iam")],
        *[("table2", corpus, 6) for corpus in ("letters", "iam")],
        *[("fig5", corpus, 8) for corpus in ("iam", "digits", "librispeech", "wsj")],
        *[("fig5", "letters", 6), ("fig5d", "letters", 4), ("fig5d", "iam", 8)],
        *[("table3", corpus, 2) for corpus in ("letters", "iam")],
        *[("variants", corpus, 3) for corpus in ("letters", "iam")],
    ],
)
def test_the_cells_of_each_paper_table_differ(name, corpus, count):
    found = cells(name, corpus)
    assert len(found) == count
    assert len({dataclasses.replace(cell, description="") for cell in found.values()}) == count
    assert all(cell.data.corpus == corpus for cell in found.values())


def test_cells_on_the_corpora_of_the_paper_are_trained_as_published_or_as_in_the_paper():
    for corpus, preset in itertools.product(("iam", "librispeech", "wsj"), ("published", "paper")):
        for name, experiment in catalog(corpus, preset).items():
            optim, model, data = experiment.optim, experiment.model, experiment.data
            is_paper = preset == "paper"
            assert (optim.method, optim.schedule, optim.epochs) == ("sgd", "step", 400), name
            assert (optim.step_size, optim.decay) == (100, 0.5)
            assert optim.max_grad_norm == (None if is_paper else 5.0)
            assert experiment.loss.divide
            assert model.preset == ("paper" if is_paper else "recipe")
            if corpus == "iam":
                assert data.normalize == ("image" if is_paper else "corpus")
                is_letters = experiment.tokens.kind == "letters"
                assert model.height_subsampling == (4 if is_paper and is_letters else None)
                assert optim.batch_size == (8 if not is_paper and "table3" in name else 32)
            else:
                assert data.window == (0.020 if is_paper else 0.025)
                is_large = corpus == "librispeech" and not is_paper
                assert optim.batch_size == (32 if is_large else 16)


def test_the_network_for_letters_sub_samples_in_its_first_two_groups():
    network = TDS2d.preset("paper", 64, 80, subsampling=4, height_subsampling=4)
    assert network.groups.strides == [(2, 2), (2, 2), (1, 1), (1, 1)]
    assert network.inner_height == 16
    assert [conv.out_channels for conv in network.groups.convs] == [8, 16, 32, 64]
    with pytest.raises(ValueError, match="the height must be one of 1, 2, 4, 8, 16, but it is 3"):
        TDS2d.preset("paper", 64, 80, height_subsampling=3)


def test_presets_that_do_not_exist_are_errors():
    with pytest.raises(ValueError, match="must be one of small, published, paper, but it is 'pap'"):
        find("table1/iam/ngram0/no_blank", "pap")
    with pytest.raises(ValueError, match="of wsj must be published or paper, but it is 'small'"):
        catalog("wsj", "small")
    assert find("demo", "paper") == find("demo")


def test_a_marginalised_loss_sums_over_the_spellings_and_is_lower():
    name = "fig5/letters/pieces200/{}"
    losses = {}
    for way in ("sentencepiece", "marginal"):
        recognizer, _, losses[way], _ = step(
            small(find(name.format(way)), {}), lambda data: collate([data[i] for i in range(9)])
        )
        assert (recognizer.criterion.lexicon is not None) == (way == "marginal")
    # The networks are the same, as they come from the same seed.
    assert (losses["marginal"] <= losses["sentencepiece"]).all()
    assert (losses["marginal"] < losses["sentencepiece"]).any()


def test_pruned_transitions_are_those_of_the_training_targets():
    experiment = small(find("table2/letters/letters/prune0"), {})
    splits = load_data(experiment)
    graph = Recognizer.for_data(experiment, splits.train).criterion._transition_graph
    counts = ag.ngram.count(
        ([x + 1 for x in splits.train.tokenizer.encode(t)] for t in splits.train.texts),
        2,
        num_tokens=28,
    )
    expected = ag.ngram.backoff_graph(
        counts.prune([0, 0]), backoff="epsilon", blank="optional", blank_label=0, self_loops=True
    )
    assert ag.equal(graph, expected)
    pruned = small(find("table2/letters/letters/prune10"), {})
    found = Recognizer.for_data(pruned, splits.train).criterion._transition_graph
    assert found.num_arcs() < graph.num_arcs()


def test_pieces_of_an_inner_convolution_fit_into_its_kernels():
    experiment = override(find("table3/letters/wfst"), ["data.train=300", *TINY[1:]])
    experiment = override(experiment, ["tokens.num_pieces=100", "model.inner_pieces=150"])
    recognizer = Recognizer.for_data(experiment, load_data(experiment).train)
    pieces = recognizer._inner
    assert 140 <= len(pieces) <= 150
    assert max(map(len, pieces)) == 5
    assert len(recognizer.network.conv.state_dict()) > 0


@pytest.mark.parametrize(
    "name",
    ["table2/letters/pieces/prune0", "table3/letters/wfst", "fig5/letters/pieces200/marginal"],
)
def test_models_of_the_training_texts_are_saved_and_loaded(name, tmp_path):
    experiment = small(find(name), {})
    splits = load_data(experiment)
    recognizer = Recognizer.for_data(experiment, splits.train)
    recognizer.save(tmp_path)
    again = Recognizer.load(experiment, tmp_path, recognizer.height)
    again.load_state_dict(recognizer.state_dict())
    batch = collate([splits.test[0], splits.test[1]])
    with torch.no_grad():
        for one, other in ((recognizer.eval(), again.eval()),):
            emissions, lengths = one(batch)
            assert torch.equal(other(batch)[0], emissions)
            losses = one.loss(emissions, lengths, batch)
            assert torch.equal(other.loss(emissions, lengths, batch), losses)
            assert other.transcribe(emissions, lengths) == one.transcribe(emissions, lengths)


def test_letters_that_no_piece_has_are_left_out_of_marginalised_targets():
    experiment = small(find("fig5/letters/pieces200/marginal"), {})
    splits = load_data(experiment)
    recognizer = Recognizer.for_data(experiment, splits.train)
    emissions = torch.randn(1, 40, len(splits.train.tokenizer.tokens) + 1)
    spans = recognizer.align(emissions[0], 40, "a caé")
    pieces = [splits.train.tokenizer.tokens[span.token - 1] for span in spans]
    assert "".join(pieces) == "▁a▁ca"


def test_the_loss_of_an_experiment_is_ctc():
    recognizer, batch, losses, _ = step(override(find("demo"), TINY))
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


def test_settings_are_parsed_by_type():
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
        ("optim.epochs=0", "optim.epochs must be positive, but it is '0'"),
        ("optim.learning_rate=-1", "learning_rate must be at least 0, but it is '-1'"),
        ("optim.learning_rate=nan", "learning_rate must be at least 0, but it is 'nan'"),
        ("seed=", "seed must be a whole number, but it is ''"),
        ("optim.learning_rate=fast", "optim.learning_rate must be a number, but it is 'fast'"),
        ("data.augment=perhaps", "data.augment must be true or false, but it is 'perhaps'"),
        (
            "loss.blank=maybe",
            "loss.blank must be one of 'none', .* or 'optional', but it is",
        ),
    ],
)
def test_invalid_settings_are_errors_that_give_the_reason(setting, message):
    with pytest.raises(ValueError, match=message):
        override(find("demo"), [setting])


def test_an_unknown_experiment_is_an_error_that_suggests_one():
    with pytest.raises(
        ValueError, match="'table1/letters/ngram2/noblank'; did you mean 'table1/letters/ngram2/no"
    ):
        find("table1/letters/ngram2/noblank")


def test_experiments_survive_json():
    for name, experiment in EXPERIMENTS.items():
        assert from_dict(json.loads(json.dumps(to_dict(experiment)))) == experiment, name


def test_settings_missing_from_a_file_have_defaults():
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
    ],
)
def test_a_corpus_that_cannot_be_loaded_is_an_error(settings, message):
    with pytest.raises(ValueError, match=message):
        load_data(override(Experiment(""), settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["tokens.marginalize=true"], "only word pieces can be marginalised, but .* is letters"),
        (["data.corpus=digits"], "plain networks .* are for images, but data.corpus is digits"),
        (["model.inner=wfst"], "must stand between TDS groups, but model.preset is plain"),
        (
            ["loss.prune=0"],
            "must be at least 1 .* but loss.prune is 0 and loss.ngram is 0",
        ),
        (["model.height_subsampling=2"], "only TDS networks for images sub-sample the height, but"),
        (["model.subsampling=3"], "sub-sampling must be one of 2, 4, 8, 12, but it is 3"),
    ],
)
def test_inconsistent_settings_are_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        step(override(find("demo"), [*TINY, *settings]))


def test_a_recogniser_needs_the_data_that_its_settings_name():
    experiment = override(find("table2/letters/letters/prune0"), TINY)
    tokenizer = load_data(experiment).train.tokenizer
    with pytest.raises(ValueError, match=r"transitions must be given if .* but it is NoneType"):
        Recognizer(experiment, tokenizer, 16)


def test_experiments_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        find("demo").seed = 1
    assert math.isclose(find("demo").optim.max_grad_norm, 5.0)
