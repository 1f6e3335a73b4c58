"""A recogniser: a network, the graphs of its loss, and the tokens that it spells texts in."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import arcgrad.torch as agt

from . import data, models
from .data import Batch, Dataset, Splits, Tokenizer, WordPieces
from .experiment import DataSettings, Experiment, ModelSettings

__all__ = ["Recognizer", "load_data"]

SPEECH = ("digits", "librispeech", "wsj")


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


def _network(settings: ModelSettings, is_speech: bool, height: int, num_outputs: int) -> nn.Module:
    if settings.preset == "plain":
        if is_speech or settings.subsampling is not None:
            raise ValueError(
                "Recognizer: the plain network is for images and has a fixed sub-sampling, but "
                f"model.subsampling is {settings.subsampling} and the data are "
                f"{'speech' if is_speech else 'images'}"
            )
        return models.PlainConv2d(height, num_outputs, dropout=settings.dropout)
    network = models.TDS1d if is_speech else models.TDS2d
    return network.preset(
        settings.preset,
        height,
        num_outputs,
        subsampling=settings.subsampling,
        dropout=settings.dropout,
    )


class Recognizer(nn.Module):
    """The network and the loss of an experiment.

    Args:
        experiment: The settings.
        tokenizer: Turns texts into labels; the loss puts a blank before them.
        height: The height of inputs: of images, or the number of features of a frame.

    Attributes:
        network: Gives emissions and their lengths.
        criterion: The loss, an :class:`arcgrad.torch.TransducerLoss`.
        tokenizer: That given.
        height: That given.

    >>> from arcgrad.recipes.data import collate
    >>> from arcgrad.recipes.catalog import find
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

    def __init__(self, experiment: Experiment, tokenizer: Tokenizer, height: int) -> None:
        super().__init__()
        loss = experiment.loss
        self.tokenizer, self.height = tokenizer, height
        self.first_label = int(loss.blank != "none")
        self.is_speech = experiment.data.corpus in SPEECH
        num_outputs = len(tokenizer.tokens) + self.first_label
        self.network = _network(experiment.model, self.is_speech, height, num_outputs)
        self.criterion = agt.TransducerLoss(
            tokenizer.tokens,
            transitions=loss.ngram,
            blank=loss.blank,
            allow_repeats=loss.allow_repeats,
            reduction="none",
            zero_infinity=True,
            nan="propagate",
        )

    @classmethod
    def for_data(cls, experiment: Experiment, dataset: Dataset) -> Recognizer:
        """A recogniser for inputs as those of a data set."""
        return cls(experiment, dataset.tokenizer, dataset[0].input.shape[0])

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The emissions ``[B, T, C]`` of a batch, and their lengths."""
        inputs = batch.inputs.transpose(1, 2) if self.is_speech else batch.inputs
        found: tuple[Tensor, Tensor] = self.network(inputs, batch.input_lengths)
        return found

    def loss(self, emissions: Tensor, lengths: Tensor, batch: Batch) -> Tensor:
        """The loss of each example, divided by the length of its target.

        It is 0 for a target that does not fit into its frames.
        """
        targets = batch.targets + self.first_label
        losses: Tensor = self.criterion(emissions, targets, lengths, batch.target_lengths)
        return losses / batch.target_lengths.clamp_min(1).to(losses)

    def transcribe(self, emissions: Tensor, lengths: Tensor) -> list[str]:
        """The text of the best path of each example."""
        return [
            self.tokenizer.decode(label - self.first_label for label in labels)
            for labels in self.criterion.viterbi(emissions, lengths)
        ]

    @torch.no_grad()
    def align(self, emissions: Tensor, length: int, text: str) -> list[agt.TokenSpan]:
        """Where each token of a text lies in the emissions ``[T, C]`` of an example."""
        labels = self.tokenizer.encode(text, skip_unknown=True)
        target = [label + self.first_label for label in labels]
        return self.criterion.forced_align(emissions[:length], [target])[0]
