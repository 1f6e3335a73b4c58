"""Every cell of every table, with every preset, makes a step on its corpus in its real format.

Only the folder of the corpus is set. Cells share data, networks and emissions where these are
equal, so that a step of a cell is little more than that of its loss.
"""

import miniature
import pytest
import torch

from arcgrad.recipes import recognizer as recognizers
from arcgrad.recipes.data import collate, iam, librispeech, load_data, wsj
from arcgrad.recipes.experiments import PRESETS, catalog, override
from arcgrad.recipes.inference import torch_threads
from arcgrad.recipes.recognizer import Recognizer

MODULES = {"iam": iam, "librispeech": librispeech, "wsj": wsj}
# The letters of a target, and the frames for it, with blanks around each letter.
NUM_LETTERS, NUM_FRAMES = 3, 9


def batch_of(dataset, network):
    """Two examples with the first letters of their texts, as wide as these need."""
    width = next(w for w in range(1, 999) if network.output_lengths([w])[0] >= NUM_FRAMES)
    examples = []
    for example in (dataset[0], dataset[1]):
        text = example.text.replace(" ", "")[:NUM_LETTERS]
        labels = torch.tensor(dataset.tokenizer.encode(text))
        repeats = -(-width // example.length)
        inputs = example.input.repeat(1, repeats)[:, :width]
        examples.append(type(example)(inputs, labels, text, example.id))
    return collate(examples)


class Emissions:
    """Emissions that the losses of several cells share; one backward for all of them."""

    def __init__(self, recognizer, dataset):
        self.batch = batch_of(dataset, recognizer.network)
        self.out, self.lengths = recognizer(self.batch)
        self.leaf = self.out.detach().requires_grad_()

    def backward(self):
        self.out.backward(self.leaf.grad)


@pytest.mark.parametrize("corpus", MODULES)
def test_every_cell_makes_a_step(corpus, tmp_path, monkeypatch):
    with torch_threads(1):
        step_every_cell(corpus, tmp_path, monkeypatch)


def step_every_cell(corpus, tmp_path, monkeypatch):
    MODULES[corpus].prepare(getattr(miniature, corpus)(tmp_path))
    make_network, networks = recognizers._network, {}

    def network_of(experiment, height, size, inner):
        key = experiment.model, height, size
        if key not in networks:
            networks[key] = make_network(experiment, height, size, inner)
        return networks[key]

    monkeypatch.setattr(recognizers, "_network", network_of)
    datasets, emissions, cells = {}, {}, 0
    for preset in PRESETS[1:]:
        for name, experiment in catalog(corpus, preset).items():
            torch.manual_seed(0)
            current = override(experiment, [f"data.path={tmp_path}"])
            key = current.data, current.tokens.kind, current.tokens.num_pieces
            if key not in datasets:
                datasets[key] = load_data(current).train
            dataset = datasets[key]
            found = Recognizer.for_data(current, dataset)
            shared = emissions.get((key, found.network))
            if shared is None:
                shared = emissions[key, found.network] = Emissions(found, dataset)
            losses = found.loss(shared.leaf, shared.lengths, shared.batch)
            losses.mean().backward()
            assert losses.shape == (2,), name
            assert (losses > 0).all(), name
            assert losses.isfinite().all(), name
            for parameter in found.criterion.parameters():
                assert parameter.grad.isfinite().all(), name
            texts = found.transcribe(shared.leaf.detach(), shared.lengths)
            assert len(texts) == 2, name
            cells += 1
    for (_, network), shared in emissions.items():
        shared.backward()
        grads = [parameter.grad for parameter in network.parameters()]
        assert all(grad is not None and grad.isfinite().all() for grad in grads)
        assert any(grad.abs().max() > 0 for grad in grads)
    assert cells == {"iam": 72, "librispeech": 16, "wsj": 16}[corpus]
