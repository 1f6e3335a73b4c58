"""Experiments: typed settings, and how they are read and written."""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = [
    "DataSettings",
    "Experiment",
    "LossSettings",
    "ModelSettings",
    "OptimSettings",
    "TokenSettings",
    "from_dict",
    "nearest",
    "override",
    "to_dict",
]

Blank = Literal["none", "forced", "optional"]
Inner = Literal["none", "wfst", "ordinary"]


@dataclass(frozen=True)
class DataSettings:
    """What is recognised; see the guide to data.

    Attributes:
        corpus: The corpus, a module of :mod:`arcgrad.recipes.data`.
        task: What an example of handwriting is.
        path: The folder of the corpus, of those that are not found by themselves.
        train: The number of training examples, by default that of the corpus.
        validation: The number of validation examples, likewise.
        test: The number of test examples, likewise.
        augment: Whether training examples are changed at random.
    """

    corpus: Literal["letters", "digits", "iam", "librispeech", "wsj"] = "letters"
    task: Literal["lines", "words"] = "lines"
    path: str | None = None
    train: int | None = None
    validation: int | None = None
    test: int | None = None
    augment: bool = True


@dataclass(frozen=True)
class TokenSettings:
    """What targets are spelled in.

    Attributes:
        kind: Letters, or word pieces that are learned from the training texts.
        num_pieces: The number of word pieces.
        marginalize: Whether the loss sums over all ways to spell a text in word pieces; else it
            takes the one of SentencePiece.

    Raises:
        ValueError: If the number of pieces is not positive.
    """

    kind: Literal["letters", "pieces"] = "letters"
    num_pieces: int = 1000
    marginalize: bool = False

    def __post_init__(self) -> None:
        if self.num_pieces < 1:
            raise ValueError(
                f"TokenSettings: num_pieces must be positive, but it is {self.num_pieces}"
            )


@dataclass(frozen=True)
class ModelSettings:
    """The network: that for images or that for speech, as the corpus needs.

    Attributes:
        preset: Its size, see :meth:`arcgrad.recipes.models.TDS2d.preset`; or ``"plain"`` for
            :class:`arcgrad.recipes.models.PlainConv2d`, for images.
        subsampling: How many columns or frames make one output, by default that of the preset.
            Those before an inner convolution, which sub-samples once more, if there is one.
        dropout: The share of activations that are dropped in training.
        inner: A convolution inside of the network for images, from letters to word pieces:
            ``"wfst"`` for one whose kernels are graphs
            (:class:`arcgrad.recipes.models.TDS2dTransducer`), ``"ordinary"`` for a usual one.
        inner_pieces: The number of word pieces that it knows.
        inner_stride: Its stride.
    """

    preset: Literal["small", "paper", "recipe", "plain"] = "small"
    subsampling: int | None = None
    dropout: float = 0.1
    inner: Inner = "none"
    inner_pieces: int = 200
    inner_stride: int = 4


@dataclass(frozen=True)
class LossSettings:
    """The graphs of the loss, an :class:`arcgrad.torch.TransducerLoss`.

    Attributes:
        blank: Whether there is a blank, and whether it must stand between tokens.
        allow_repeats: Whether equal tokens may follow one another without a blank.
        ngram: The order of the transitions that are learned; 0 for none.
        prune: Transitions are those n-grams of the highest order that the training targets have
            more often than this, with back-off to lower orders, of which all are kept. By default
            there is one for every n-gram, and no back-off.
        min_frames: How many frames a token lasts at least.
        max_frames: How many it lasts at most, by default any number.
        min_blanks: How many blanks are between tokens at least.
        max_blanks: How many are between them at most, by default any number.
    """

    blank: Blank = "optional"
    allow_repeats: bool = False
    ngram: int = 0
    prune: int | None = None
    min_frames: int = 1
    max_frames: int | None = None
    min_blanks: int = 0
    max_blanks: int | None = None


@dataclass(frozen=True)
class OptimSettings:
    """How parameters are learned.

    Attributes:
        method: Stochastic gradient descent without momentum, as in the paper, or AdamW.
        learning_rate: At the start.
        criterion_learning_rate: That of the parameters of the loss, by default the same.
        schedule: ``"step"`` multiplies rates by ``decay`` every ``step_size`` epochs.
            ``"one-cycle"`` raises them in the first tenth of the training and then lowers them to
            zero along a cosine.
        step_size: A number of epochs.
        decay: A factor.
        weight_decay: Of the network's parameters.
        max_grad_norm: Gradients of all parameters together are scaled down to this norm.
        batch_size: The number of examples of a step.
        epochs: How often all training examples are used.

    Raises:
        ValueError: If a number that counts something is not positive, or a rate is negative.
    """

    method: Literal["sgd", "adamw"] = "sgd"
    learning_rate: float = 0.1
    criterion_learning_rate: float | None = None
    schedule: Literal["step", "one-cycle"] = "step"
    step_size: int = 100
    decay: float = 0.5
    weight_decay: float = 0.0
    max_grad_norm: float = 5.0
    batch_size: int = 32
    epochs: int = 400

    def __post_init__(self) -> None:
        for name in ("step_size", "max_grad_norm", "batch_size", "epochs"):
            if not getattr(self, name) > 0:
                raise ValueError(
                    f"OptimSettings: {name} must be positive, but it is {getattr(self, name)}"
                )
        for name in ("learning_rate", "criterion_learning_rate", "decay", "weight_decay"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise ValueError(f"OptimSettings: {name} must not be negative, but it is {value}")


@dataclass(frozen=True)
class Experiment:
    """All settings of a training.

    Attributes:
        description: What it is, and what the paper reports.
        data: What is recognised.
        tokens: What targets are spelled in.
        model: The network.
        loss: The graphs of the loss.
        optim: How parameters are learned.
        seed: What all randomness derives from.

    >>> from dataclasses import replace
    >>> from arcgrad.recipes.experiment import Experiment, LossSettings
    >>> ctc = Experiment("CTC")
    >>> asg = replace(ctc, loss=LossSettings("none", allow_repeats=True, ngram=2))
    >>> asg.loss.ngram, asg.optim == ctc.optim
    (2, True)
    """

    description: str
    data: DataSettings = field(default_factory=DataSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    optim: OptimSettings = field(default_factory=OptimSettings)
    seed: int = 0


def override(
    experiment: Experiment,
    settings: Iterable[str] | Mapping[str, Any],
    *,
    source: str | os.PathLike[str] | None = None,
) -> Experiment:
    """An experiment with other settings.

    Args:
        experiment: The experiment.
        settings: Texts ``key=value`` with dotted names, or values by their names, in tables within
            a table, as :func:`arcgrad.recipes.settings.load_settings` gives them. Values are read
            as the type of the setting; ``none`` stands for None where that is possible.
        source: Where the settings are from, for errors.

    Returns:
        The experiment with all of them; of a key that is given twice, the last.

    Raises:
        ValueError: If a key is unknown, its value cannot be read, or values are out of their range.

    >>> from arcgrad.recipes import catalog, experiment
    >>> changed = experiment.override(
    ...     catalog.find("demo"), ["optim.learning_rate=1e-3", "data.train=100", "seed=7"]
    ... )
    >>> changed.optim.learning_rate, changed.data.train, changed.seed
    (0.001, 100, 7)
    >>> experiment.override(changed, {"seed": 8, "data": {"train": "none"}}).data.train is None
    True
    """
    if not isinstance(settings, Mapping):
        pairs = [(text, *text.partition("=")) for text in settings]
        for text, _, equals, _ in pairs:
            if not equals:
                raise ValueError(f"override: a setting must be key=value, but it is {text!r}")
        settings = {key.strip(): value.strip() for _, key, _, value in pairs}
    return _changed("override", experiment, settings, source)


def to_dict(experiment: Experiment) -> dict[str, Any]:
    """All settings, as JSON can hold them.

    >>> from arcgrad.recipes import catalog, experiment
    >>> experiment.to_dict(catalog.find("demo"))["tokens"]
    {'kind': 'letters', 'num_pieces': 1000, 'marginalize': False}
    """
    return dataclasses.asdict(experiment)


def from_dict(
    settings: Mapping[str, Any], *, source: str | os.PathLike[str] | None = None
) -> Experiment:
    """The experiment of settings by :func:`to_dict`; what they leave out is as usual.

    Args:
        settings: The settings.
        source: Where they are from, for errors.

    Raises:
        ValueError: If a setting is unknown, or a value has another type or is out of its range.

    >>> from arcgrad.recipes import catalog, experiment
    >>> demo = catalog.find("demo")
    >>> experiment.from_dict(experiment.to_dict(demo)) == demo
    True
    """
    return _changed("from_dict", Experiment(""), settings, source)


def nearest(name: str, names: Iterable[str]) -> str:
    """What to suggest instead of a name."""
    names = list(names)
    by_end = [other for other in names if other.rpartition(".")[2] == name]
    close = by_end or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"


def _keys(settings: Any, prefix: str = "") -> dict[str, Any]:
    """The types of all settings, by their dotted names."""
    hints = typing.get_type_hints(type(settings))
    found: dict[str, Any] = {}
    for part in dataclasses.fields(settings):
        value = getattr(settings, part.name)
        if dataclasses.is_dataclass(value):
            found |= _keys(value, f"{prefix}{part.name}.")
        else:
            found[prefix + part.name] = hints[part.name]
    return found


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by their dotted names; of an empty table, the table."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _changed(
    op: str,
    experiment: Experiment,
    settings: Mapping[str, Any],
    source: str | os.PathLike[str] | None,
) -> Experiment:
    """An experiment with other settings, all read before any is set."""
    where = "" if source is None else f" in {str(source)!r}"
    keys = _keys(experiment)
    tables = {key.rpartition(".")[0] for key in keys}
    tree: dict[str, Any] = {}
    for key, value in _flat(settings).items():
        if key in tables and (value is None or isinstance(value, Mapping)):
            continue  # a table with nothing in it
        if key not in keys:
            raise ValueError(
                f"{op}: a key must be a setting, but it is {key!r}{where}{nearest(key, keys)}"
            )
        *path, name = key.split(".")
        table = tree
        for part in path:
            table = table.setdefault(part, {})
        try:
            table[name] = _read(value, keys[key])
        except ValueError as error:
            raise ValueError(f"{op}: {key} must be {error}, but it is {value!r}{where}") from None
    changed: Experiment = _replaced(op, where, experiment, tree)
    return changed


def _replaced(
    op: str, where: str, settings: Any, values: Mapping[str, Any], prefix: str = ""
) -> Any:
    """Settings with other values, which are checked together."""
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    inner = {
        name: _replaced(op, where, getattr(settings, name), table, f"{prefix}{name}.")
        for name, table in tables.items()
    }
    try:
        return replace(settings, **{**values, **inner})
    except ValueError as error:
        keys = ", ".join(prefix + name for name in values if name not in tables)
        raise ValueError(f"{op} ({keys}{where}): {error}") from None


def _read(value: Any, hint: Any) -> Any:
    """A value, or the text of one, as a type; else an error that says what it must be."""
    options = typing.get_args(hint)
    if isinstance(hint, types.UnionType):
        if value is None or (isinstance(value, str) and value.lower() == "none"):
            return None
        return _read(value, next(option for option in options if option is not types.NoneType))
    if options:  # a Literal
        if value not in options:
            raise ValueError(f"one of {', '.join(options)}")
        return value
    if isinstance(value, str) and hint is not str:
        with contextlib.suppress(KeyError, ValueError):
            return {"true": True, "false": False}[value.lower()] if hint is bool else hint(value)
    elif type(value) is hint or (hint is float and type(value) is int):
        return hint(value)
    kinds = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}
    raise ValueError(kinds[hint])
