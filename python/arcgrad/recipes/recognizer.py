"""A recogniser: a network, the graphs of its loss, and the tokens that it spells texts in."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad import _files

from . import data, models
from .data import BOUNDARY, Batch, Dataset, Splits, Tokenizer, WordPieces, load_tokenizer
from .experiment import DataSettings, Experiment, LossSettings, ModelSettings

__all__ = ["Recognizer", "load_data"]

SPEECH = ("digits", "librispeech", "wsj")

# What the folder of a run keeps of the training texts.
TOKENS, TRANSITIONS, INNER = "tokens", "transitions", "inner_pieces.json"


def load_data(experiment: Experiment) -> Splits[Any]:
    """The data of an experiment, with its tokens.

    Raises:
        ValueError: If the corpus needs a folder, or does not have what is wanted of it.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.experiment import override
    >>> from arcgrad.recipes.recognizer import load_data
    >>> tiny = override(find("demo"), ["data.train=8", "data.validation=4", "data.test=4"])
    >>> len(load_data(tiny).train)
    8
    """
    splits = _load_corpus(experiment.data, experiment.seed)
    if experiment.tokens.kind == "pieces":
        pieces = WordPieces.train(splits.train.texts, experiment.tokens.num_pieces)
        splits = splits.with_tokenizer(pieces)
    return splits


def _load_corpus(settings: DataSettings, seed: int) -> Splits[Any]:
    options: dict[str, Any] = {} if settings.augment else {"augmentation": None}
    wanted = {"train": settings.train, "validation": settings.validation, "test": settings.test}
    sizes: dict[str, Any] = {split: size for split, size in wanted.items() if size is not None}
    if settings.corpus == "letters":
        return data.letters.load(settings.task, **sizes, seed=seed, **options)
    if settings.corpus == "digits":
        return data.digits.load(settings.path, **sizes, seed=seed, **options)
    if settings.path is None:
        raise ValueError(
            f"load_data: the corpus {settings.corpus} must have a folder, but data.path is not set"
        )
    if sizes:
        raise ValueError(
            f"load_data: the corpus {settings.corpus} is used whole, but data has the sizes {sizes}"
        )
    if settings.corpus == "iam":
        return data.iam.load(settings.path, unit=settings.task, seed=seed, **options)
    if settings.corpus == "librispeech":
        return data.librispeech.load(settings.path, seed=seed, **options)
    return data.wsj.load(settings.path, seed=seed, **options)


def _check(experiment: Experiment) -> None:
    """Raises for settings that do not go together."""
    tokens, model, loss = experiment.tokens, experiment.model, experiment.loss
    is_speech = experiment.data.corpus in SPEECH
    if tokens.marginalize and tokens.kind == "letters":
        raise ValueError(
            "Recognizer: only pieces can be marginalised, but tokens.marginalize is true and "
            "tokens.kind is letters"
        )
    if is_speech and (model.preset == "plain" or model.inner != "none"):
        raise ValueError(
            "Recognizer: plain networks and those with an inner convolution are for images, but "
            f"data.corpus is {experiment.data.corpus}"
        )
    if model.preset == "plain" and model.inner != "none":
        raise ValueError(
            "Recognizer: an inner convolution has TDS groups around it, but model.preset is plain"
        )
    if loss.prune is not None and loss.ngram < 1:
        raise ValueError(
            "Recognizer: pruned transitions must have an order, but loss.prune is "
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
        return models.PlainConv2d(height, num_outputs, **options)
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
    network = models.TDS1d if experiment.data.corpus in SPEECH else models.TDS2d
    return network.preset(settings.preset, height, num_outputs, **options)


def _transitions(settings: LossSettings, num_labels: int, dataset: Dataset) -> ag.Graph | None:
    """The n-grams of training targets that are not pruned, if any are to be."""
    if settings.prune is None:
        return None
    first = int(settings.blank != "none")
    targets = ([label + first for label in dataset.tokenizer.encode(t)] for t in dataset.texts)
    counts = ag.ngram.count(targets, settings.ngram, num_tokens=num_labels)
    return ag.ngram.backoff_graph(
        counts.prune([*[0] * (settings.ngram - 1), settings.prune]),
        blank=settings.blank,
        blank_label=0 if first else None,
        self_loops=settings.max_frames != 1,
        calc_grad=False,
    )


def _inner_pieces(settings: ModelSettings, texts: Sequence[str]) -> list[str] | None:
    """The pieces of the inner convolution: those of SentencePiece that fit into its kernels."""
    if settings.inner == "none":
        return None
    frames = models.TDS2dTransducer.kernel_size(settings.preset)
    pieces = WordPieces.train(texts, settings.inner_pieces, max_length=frames).tokens
    # Between equal letters there is a blank.
    return [p for p in pieces if len(p) + sum(map(str.__eq__, p, p[1:])) <= frames]


class Recognizer(nn.Module):
    """The network and the loss of an experiment.

    Args:
        experiment: The settings.
        tokenizer: Turns texts into labels; the loss puts a blank before them.
        height: The height of inputs: of images, or the number of features of a frame.
        transitions: The graph of the pruned transitions, if the settings want some.
        inner: The word pieces of the inner convolution, if the settings want one.

    Attributes:
        network: Gives emissions and their lengths.
        criterion: The loss, an :class:`arcgrad.torch.TransducerLoss`.
        tokenizer: That given.
        height: That given.

    Raises:
        ValueError: If settings do not go together, or what they want is not given.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.data import collate
    >>> from arcgrad.recipes.experiment import override
    >>> from arcgrad.recipes.recognizer import Recognizer, load_data
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
                    f"Recognizer: {name} must be given if the settings want them and else not, but "
                    f"it is {type(given).__name__}"
                )
        self.tokenizer, self.height = tokenizer, height
        self._pruned, self._inner = transitions, inner
        self.first_label = int(loss.blank != "none")
        self.is_speech = experiment.data.corpus in SPEECH
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
            zero_infinity=True,
            nan="propagate",
        )

    @classmethod
    def for_data(cls, experiment: Experiment, dataset: Dataset) -> Recognizer:
        """A recogniser for inputs as those of a data set, with the n-grams of its texts."""
        _check(experiment)
        num_labels = len(dataset.tokenizer.tokens) + (experiment.loss.blank != "none")
        return cls(
            experiment,
            dataset.tokenizer,
            dataset[0].input.shape[0],
            transitions=_transitions(experiment.loss, num_labels, dataset),
            inner=_inner_pieces(experiment.model, dataset.texts),
        )

    @classmethod
    def load(
        cls, experiment: Experiment, folder: str | os.PathLike[str], height: int
    ) -> Recognizer:
        """A recogniser with what :meth:`save` wrote; its parameters are new."""
        path = Path(folder)
        transitions, inner = None, None
        if experiment.loss.prune is not None:
            transitions = ag.load(path / TRANSITIONS)
        if experiment.model.inner != "none":
            inner = json.loads((path / INNER).read_bytes())
        tokenizer = load_tokenizer(path / TOKENS)
        return cls(experiment, tokenizer, height, transitions=transitions, inner=inner)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes what was learned of the training texts: tokens and transitions."""
        path = Path(folder)
        self.tokenizer.save(path / TOKENS)
        if self._pruned is not None:
            ag.save(path / TRANSITIONS, self._pruned)
        if self._inner is not None:
            text = json.dumps(list(self._inner), ensure_ascii=False)
            _files.write(path / INNER, text.encode())

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The emissions ``[B, T, C]`` of a batch, and their lengths."""
        inputs = batch.inputs.transpose(1, 2) if self.is_speech else batch.inputs
        found: tuple[Tensor, Tensor] = self.network(inputs, batch.input_lengths)
        return found

    def loss(self, emissions: Tensor, lengths: Tensor, batch: Batch) -> Tensor:
        """The loss of each example, divided by the number of its letters.

        It is 0 for a target that does not fit into its frames.
        """
        if self.criterion.lexicon is None:
            targets = batch.targets + self.first_label
            losses: Tensor = self.criterion(emissions, targets, lengths, batch.target_lengths)
        else:
            texts = [self._known(text) for text in batch.texts]
            losses = self.criterion(emissions, texts, lengths)
        letters = torch.tensor([max(len(text), 1) for text in batch.texts])
        return losses / letters.to(losses)

    def transcribe(self, emissions: Tensor, lengths: Tensor) -> list[str]:
        """The text of the best path of each example."""
        return [
            self.tokenizer.decode(label - self.first_label for label in labels)
            for labels in self.criterion.viterbi(emissions, lengths)
        ]

    @torch.no_grad()
    def align(self, emissions: Tensor, length: int, text: str) -> list[agt.TokenSpan]:
        """Where each token of a text lies in the emissions ``[T, C]`` of an example."""
        if self.criterion.lexicon is not None:
            return self.criterion.forced_align(emissions[:length], [self._known(text)])[0]
        labels = self.tokenizer.encode(text, skip_unknown=True)
        target = [label + self.first_label for label in labels]
        return self.criterion.forced_align(emissions[:length], [target])[0]

    def _known(self, text: str) -> str:
        """A text without the letters that no piece has."""
        assert isinstance(self.criterion.lexicon, ag.lexicon.Lexicon)
        known = {*self.criterion.lexicon.graphemes, " "}
        return "".join(letter for letter in text if letter in known)
