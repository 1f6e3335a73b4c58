"""The data of an experiment: its corpus, with targets in its tokens."""

from __future__ import annotations

from typing import Any

from arcgrad.recipes.experiments import Experiment

from . import digits, iam, letters, librispeech, wsj
from .examples import SPLITS, Dataset, Split, Splits
from .speech import LogMel
from .tokenizers import WordPieces

__all__ = ["load_data", "load_split", "read_split"]


def load_data(experiment: Experiment) -> Splits[Any]:
    """Load the data of an experiment, with its tokenizer.

    Raises:
        ValueError: If the corpus needs a folder, or does not have the requested examples.

    >>> from arcgrad.recipes.data import load_data
    >>> from arcgrad.recipes.experiments import find, override
    >>> tiny = override(find("demo"), ["data.train=8", "data.validation=4", "data.test=4"])
    >>> len(load_data(tiny).train)
    8
    """
    splits = _load_corpus(experiment)
    if experiment.tokens.kind == "pieces":
        pieces = WordPieces.train(splits.train.texts, experiment.tokens.num_pieces)
        splits = splits.with_tokenizer(pieces)
    return splits


def load_split(experiment: Experiment, split: str) -> Dataset:
    """Load the training, validation or test data of an experiment.

    Raises:
        ValueError: If there is no such split, or the data cannot be loaded.

    >>> from arcgrad.recipes.data import load_split
    >>> from arcgrad.recipes.experiments import find
    >>> load_split(find("demo"), "exam")
    Traceback (most recent call last):
    ...
    ValueError: load_split: the split must be 'train', 'validation' or 'test', but it is 'exam'
    """
    name = read_split("load_split", split)
    dataset: Dataset = getattr(load_data(experiment), name)
    if not len(dataset):
        raise ValueError(
            f"load_split: the {split} data must have been prepared, but there is no manifest of "
            f"them in {experiment.data.path!r}; prepare that part, or set data.{split}_parts"
        )
    return dataset


def read_split(op: str, name: str) -> Split:
    """Return the split of a name; raise ValueError if there is no such split."""
    for split in SPLITS:
        if name == split:
            return split
    raise ValueError(f"{op}: the split must be 'train', 'validation' or 'test', but it is {name!r}")


def _load_corpus(experiment: Experiment) -> Splits[Any]:
    settings = experiment.data
    options: dict[str, Any] = {"seed": experiment.seed}
    if not settings.augment:
        options["augmentation"] = None
    sizes = {split: getattr(settings, split) for split in SPLITS}
    sizes = {split: size for split, size in sizes.items() if size is not None}
    if settings.is_speech:
        rate = digits.RATE if settings.corpus == "digits" else librispeech.RATE
        options["features"] = LogMel(rate=rate, window=settings.window)
    else:
        options["normalize"] = settings.normalize
        if settings.height is not None:
            options["height"] = settings.height
    parts: dict[str, Any] = {
        split: tuple(part.strip() for part in names.split(","))
        for split in SPLITS
        if (names := getattr(settings, f"{split}_parts")) is not None
    }
    if parts and settings.corpus not in ("librispeech", "wsj"):
        first = next(iter(parts))
        raise ValueError(
            f"load_data: only librispeech and wsj have parts to choose, but data.{first}_parts is "
            f"set and data.corpus is {settings.corpus}"
        )
    if settings.corpus == "letters":
        options["single_words"] = settings.single_words
        return letters.load(settings.task, **sizes, **options)
    if settings.corpus == "digits":
        return digits.load(settings.path, **sizes, **options)
    if settings.path is None:
        raise ValueError(
            f"load_data: the corpus {settings.corpus} must have a folder, but data.path is not set"
        )
    options |= {"limits": sizes, "damaged": settings.damaged}
    if settings.corpus == "iam":
        return iam.load(settings.path, unit=settings.task, **options)
    if settings.corpus == "librispeech":
        return librispeech.load(settings.path, **parts, **options)
    return wsj.load(settings.path, **parts, **options)
