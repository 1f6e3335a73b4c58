"""A recogniser: a network, a loss written as graphs, and a tokenizer."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad import _files

from . import models
from .data import BOUNDARY, Batch, Dataset, Tokenizer, WordPieces, load_tokenizer
from .experiments import Experiment, LossSettings, ModelSettings

__all__ = ["Recognizer"]

# The files of a run that depend on the training texts.
TOKENS, TRANSITIONS, INNER = "tokens", "transitions", "inner_pieces.json"
FILES = TOKENS, TRANSITIONS, INNER


def _check(experiment: Experiment) -> None:
    """Raise for settings that contradict each other."""
    tokens, model, loss = experiment.tokens, experiment.model, experiment.loss
    if tokens.marginalize and tokens.kind == "letters":
        raise ValueError(
            "Recognizer: only word pieces can be marginalised, but tokens.marginalize is true and "
            "tokens.kind is letters"
        )
    if experiment.data.is_speech and (model.preset == "plain" or model.inner != "none"):
        raise ValueError(
            "Recognizer: plain networks and those with an inner convolution are for images, but "
            f"data.corpus is {experiment.data.corpus}"
        )
    if model.preset == "plain" and model.inner != "none":
        raise ValueError(
            "Recognizer: an inner convolution must stand between TDS groups, but model.preset is "
            "plain"
        )
    if model.height_subsampling is not None and (
        model.preset == "plain" or experiment.data.is_speech
    ):
        raise ValueError(
            "Recognizer: only TDS networks for images sub-sample the height, but "
            f"model.height_subsampling is {model.height_subsampling}"
        )
    if loss.prune is not None and loss.ngram < 1:
        raise ValueError(
            "Recognizer: loss.ngram must be at least 1 for pruned transitions, but loss.prune is "
            f"{loss.prune} and loss.ngram is {loss.ngram}"
        )


def _network(
    experiment: Experiment, height: int, num_outputs: int, inner: Sequence[str] | None
) -> nn.Module:
    settings = experiment.model
    options: dict[str, Any] = {"dropout": settings.dropout}
    if settings.subsampling is not None:
        options["subsampling"] = settings.subsampling
    if settings.preset == "plain":
        options |= {"channels": settings.channels, "layers": settings.layers}
        return models.PlainConv2d(height, num_outputs, **options)
    if not experiment.data.is_speech:
        options["height_subsampling"] = settings.height_subsampling
    if inner is not None:
        return models.TDS2dTransducer.preset(
            settings.preset,
            height,
            num_outputs,
            inner,
            wfst=settings.inner == "wfst",
            stride=settings.inner_stride,
            **options,
        )
    network = models.TDS1d if experiment.data.is_speech else models.TDS2d
    return network.preset(settings.preset, height, num_outputs, **options)


def _transitions(settings: LossSettings, dataset: Dataset) -> ag.Graph | None:
    """Return the graph of the n-grams of the training targets, pruned; None without pruning."""
    if settings.prune is None:
        return None
    tokenizer, first = dataset.tokenizer, settings.first_label
    targets = ([label + first for label in tokenizer.encode(text)] for text in dataset.texts)
    counts = ag.ngram.count(targets, settings.ngram, num_tokens=len(tokenizer.tokens) + first)
    return ag.ngram.backoff_graph(
        counts.prune([*[0] * (settings.ngram - 1), settings.prune]),
        backoff=settings.backoff,
        blank=settings.blank,
        blank_label=0 if first else None,
        self_loops=settings.max_frames != 1,
        calc_grad=False,
    )


def _inner_pieces(settings: ModelSettings, texts: Sequence[str]) -> list[str] | None:
    """Return the word pieces that fit into the kernels of the inner convolution."""
    if settings.inner == "none":
        return None
    frames = models.TDS2dTransducer.kernel_size(settings.preset)
    pieces = WordPieces.train(texts, settings.inner_pieces, max_length=frames).tokens
    # Equal adjacent letters need a blank frame between them.
    return [p for p in pieces if len(p) + sum(map(str.__eq__, p, p[1:])) <= frames]


def _load_pieces(path: Path) -> list[str]:
    """Read the word pieces of the inner convolution."""
    pieces = _files.parse_json("Recognizer", repr(str(path)), path.read_bytes())
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError(
            f"Recognizer: {str(path)!r} must hold a list of word pieces, but it is "
            f"{_files.shown(pieces)}"
        )
    return pieces


class Recognizer(nn.Module):
    """The network and the loss of an experiment.

    Args:
        experiment: The settings.
        tokenizer: Converts texts to labels. If there is a blank, it has label 0 in the emissions,
            and the labels of the tokenizer are shifted by one.
        height: The height of inputs: of images, or the number of features of a frame.
        transitions: The graph of the pruned transitions, if the settings ask for pruning.
        inner: The word pieces of the inner convolution, if the settings have one.

    Attributes:
        network: The network, which returns emissions and their lengths.
        criterion: The loss, an :class:`arcgrad.torch.TransducerLoss`.
        tokenizer: The tokenizer.
        height: The height of inputs.
        first_label: The label of the first token in the emissions: 1 after a blank, else 0.
        is_speech: Whether inputs are recordings, not images.

    Raises:
        ValueError: If settings contradict each other, or an argument that they require is missing.

    >>> from arcgrad.recipes.data import collate, load_data
    >>> from arcgrad.recipes.experiments import find, override
    >>> from arcgrad.recipes.recognizer import Recognizer
    >>> tiny = override(find("demo"), ["data.train=8", "data.validation=4", "data.test=4"])
    >>> splits = load_data(tiny)
    >>> recognizer = Recognizer.for_data(tiny, splits.train)
    >>> batch = collate([splits.train[0], splits.train[1]])
    >>> emissions, lengths = recognizer(batch)
    >>> recognizer.loss(emissions, lengths, batch).shape
    torch.Size([2])
    >>> len(recognizer.transcribe(emissions, lengths))
    2
    """

    def __init__(
        self,
        experiment: Experiment,
        tokenizer: Tokenizer,
        height: int,
        *,
        transitions: ag.Graph | None = None,
        inner: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        _check(experiment)
        loss = experiment.loss
        for wanted, given, name in (
            (loss.prune is not None, transitions, "transitions"),
            (experiment.model.inner != "none", inner, "inner"),
        ):
            if wanted != (given is not None):
                raise ValueError(
                    f"Recognizer: {name} must be given if and only if the settings ask for them, "
                    f"but it is {type(given).__name__}"
                )
        self.tokenizer, self.height = tokenizer, height
        self._pruned, self._inner, self._divide = transitions, inner, loss.divide
        self.first_label, self.is_speech = loss.first_label, experiment.data.is_speech
        num_labels = len(tokenizer.tokens) + self.first_label
        self.network = _network(experiment, height, num_labels, inner)
        lexicon = None
        if experiment.tokens.marginalize:
            lexicon = ag.lexicon.Lexicon(
                tokenizer.tokens, separator=BOUNDARY, first_label=self.first_label
            )
        tokens = ag.tokens.Tokens(
            num_labels,
            blank=loss.blank,
            allow_repeats=loss.allow_repeats,
            min_frames=loss.min_frames,
            max_frames=loss.max_frames,
            min_blanks=loss.min_blanks,
            max_blanks=loss.max_blanks,
        )
        self.criterion = agt.TransducerLoss(
            tokens,
            lexicon,
            loss.ngram if transitions is None else transitions,
            reduction="none",
            nan="propagate",
        )

    @classmethod
    def for_data(cls, experiment: Experiment, dataset: Dataset) -> Recognizer:
        """Make a recogniser for the inputs of a data set, with the n-grams of its texts."""
        _check(experiment)
        return cls(
            experiment,
            dataset.tokenizer,
            dataset[0].input.shape[0],
            transitions=_transitions(experiment.loss, dataset),
            inner=_inner_pieces(experiment.model, dataset.texts),
        )

    @classmethod
    def load(
        cls, experiment: Experiment, folder: str | os.PathLike[str], height: int
    ) -> Recognizer:
        """Make a recogniser from the files of :meth:`save`, with new parameters.

        Raises:
            ValueError: If a file is missing or damaged, or does not fit the settings.
        """
        path = Path(folder)
        transitions, inner = None, None
        try:
            if experiment.loss.prune is not None:
                transitions = ag.load(path / TRANSITIONS)
            if experiment.model.inner != "none":
                inner = _load_pieces(path / INNER)
            tokenizer = load_tokenizer(path / TOKENS)
            if type(height) is not int or height < 1:
                raise ValueError(f"the height of inputs is {_files.shown(height)}")
            return cls(experiment, tokenizer, height, transitions=transitions, inner=inner)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"Recognizer: the files in {str(path)!r} must fit the settings, but they do not: "
                f"{_files.reason(error)}"
            ) from None

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write what depends on the training texts: tokens, transitions and inner pieces."""
        path = Path(folder)
        self.tokenizer.save(path / TOKENS)
        if self._pruned is not None:
            ag.save(path / TRANSITIONS, self._pruned)
        if self._inner is not None:
            text = json.dumps(list(self._inner), ensure_ascii=False)
            _files.write(path / INNER, text.encode())

    def load_parameters(self, content: Mapping[str, Any], *, assign: bool = False) -> None:
        """Load the parameters of a checkpoint into the network and the loss."""
        self.network.load_state_dict(content["network"], assign=assign)
        self.criterion.load_state_dict(content["criterion"], assign=assign)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the emissions ``[B, T, C]`` of a batch, and their lengths."""
        inputs = batch.inputs.transpose(1, 2) if self.is_speech else batch.inputs
        found: tuple[Tensor, Tensor] = self.network(inputs, batch.input_lengths)
        return found

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return next(self.parameters()).device

    def loss(self, emissions: Tensor, lengths: Tensor, batch: Batch) -> Tensor:
        """Return the loss of each example ``[B]``, as a rule divided by the letters of its text.

        A target that does not fit into its frames has an infinite loss without a gradient.
        """
        targets, target_lengths = self._targets(batch)
        losses: Tensor = self.criterion(emissions, targets, lengths, target_lengths)
        if not self._divide:
            return losses
        letters = torch.tensor([max(len(text), 1) for text in batch.texts])
        return losses / letters.to(losses)

    @torch.no_grad()
    def explain_infeasible(self, batch: Batch) -> str | None:
        """Return why the first target of a batch does not fit into its frames, or None."""
        emissions, lengths = self(batch.to(self.device))
        targets, target_lengths = self._targets(batch)
        found = self.criterion.explain_infeasible(emissions, targets, lengths, target_lengths)
        return found.get(0)

    def _targets(self, batch: Batch) -> tuple[Any, Tensor | None]:
        """Return the targets of the criterion and their lengths: labels, or texts."""
        if self.criterion.lexicon is not None:
            return [self._spellable(text) for text in batch.texts], None
        return batch.targets + self.first_label, batch.target_lengths

    def transcribe(self, emissions: Tensor, lengths: Tensor) -> list[str]:
        """Return the text of the best path of each example."""
        return [
            self.tokenizer.decode(label - self.first_label for label in labels)
            for labels in self.criterion.viterbi(emissions, lengths)
        ]

    @torch.no_grad()
    def align(self, emissions: Tensor, length: int, text: str) -> list[agt.TokenSpan]:
        """Return the position of each token of a text in the emissions ``[T, C]`` of an example."""
        target: str | list[int]
        if self.criterion.lexicon is not None:
            target = self._spellable(text)
        else:
            labels = self.tokenizer.encode(text, skip_unknown=True)
            target = [label + self.first_label for label in labels]
        return self.criterion.forced_align(emissions[:length], [target])[0]

    def _spellable(self, text: str) -> str:
        """Return a text without the letters that occur in no word piece."""
        assert isinstance(self.criterion.lexicon, ag.lexicon.Lexicon)
        known = {*self.criterion.lexicon.graphemes, " "}
        return "".join(letter for letter in text if letter in known)
