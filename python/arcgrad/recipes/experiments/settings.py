"""The typed settings of an experiment, and how they are read and written.

pydantic checks types and ranges. Each of its errors becomes one line that names the setting.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from arcgrad import _files

__all__ = [
    "DataSettings",
    "Experiment",
    "LossSettings",
    "ModelSettings",
    "OptimSettings",
    "TokenSettings",
    "flatten",
    "from_dict",
    "nearest",
    "override",
    "to_dict",
]

Blank = Literal["none", "forced", "optional"]
Inner = Literal["none", "wfst", "ordinary"]

T = TypeVar("T")


def _from_text(parse: Callable[[str], Any]) -> BeforeValidator:
    """Lets a strict type accept text. Text that cannot be parsed is left for the type to reject."""

    def validate(value: Any) -> Any:
        if isinstance(value, str):
            with contextlib.suppress(KeyError, ValueError):
                return parse(value)
        return value

    return BeforeValidator(validate)


Text = Annotated[str, Strict()]
Int = Annotated[int, Strict(), _from_text(int)]
Float = Annotated[float, Strict(), _from_text(float)]
Bool = Annotated[bool, Strict(), _from_text(lambda text: _BOOLS[text.lower()])]
Optional = Annotated[T | None, _from_text(lambda text: _NONE[text.lower()])]
Count = Annotated[Int, Field(gt=0)]
Rate = Annotated[Float, Field(ge=0)]

_BOOLS = {"true": True, "false": False}
_NONE = {"none": None}
_FORBID_UNKNOWN = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_FORBID_UNKNOWN)
class DataSettings:
    """The data to recognise; see the guide to data.

    Attributes:
        corpus: The corpus, a module of :mod:`arcgrad.recipes.data`.
        task: Whether an example of handwriting is a line or a word.
        path: The folder of the corpus, for corpora that do not come with the package.
        train: The number of training examples; None for the default of the corpus.
        validation: The number of validation examples, likewise.
        test: The number of test examples, likewise. Of a corpus that users bring, a number takes
            examples at equal distances.
        train_parts: The parts of ``librispeech`` or ``wsj`` for training, separated by commas; None
            for the usual one.
        validation_parts: The parts for validation, likewise.
        test_parts: The parts for the test, likewise.
        damaged: What happens if a file of the corpus is missing or has another size than when it
            was prepared: ``"stop"``, or ``"skip"`` to leave it out.
        augment: Whether training examples are augmented at random.
        height: The height to which images are scaled; None for the default of the corpus.
        normalize: Whether images are normalised with the mean and standard deviation of the corpus,
            or each with its own. Recordings are always normalised one by one.
        window: The length of a frame of recordings, in seconds.
        single_words: The number of epochs at the start in which a training line of ``letters`` has
            one word.
    """

    corpus: Literal["letters", "digits", "iam", "librispeech", "wsj"] = "letters"
    task: Literal["lines", "words"] = "lines"
    path: Optional[Text] = None
    train: Optional[Int] = None
    validation: Optional[Int] = None
    test: Optional[Int] = None
    train_parts: Optional[Text] = None
    validation_parts: Optional[Text] = None
    test_parts: Optional[Text] = None
    damaged: Literal["stop", "skip"] = "stop"
    augment: Bool = True
    height: Optional[Count] = None
    normalize: Literal["corpus", "image"] = "corpus"
    window: Annotated[Float, Field(gt=0)] = 0.020
    single_words: Annotated[Int, Field(ge=0)] = 0

    @property
    def is_speech(self) -> bool:
        """Whether inputs are recordings, not images."""
        return self.corpus in ("digits", "librispeech", "wsj")


@dataclass(frozen=True, config=_FORBID_UNKNOWN)
class TokenSettings:
    """The tokens that spell targets.

    Attributes:
        kind: Letters, or word pieces that are learned from the training texts.
        num_pieces: The number of word pieces.
        marginalize: Whether the loss sums over all segmentations of a text into word pieces;
            otherwise it uses the segmentation of SentencePiece.

    Raises:
        ValueError: If the number of pieces is not positive.
    """

    kind: Literal["letters", "pieces"] = "letters"
    num_pieces: Count = 1000
    marginalize: Bool = False


@dataclass(frozen=True, config=_FORBID_UNKNOWN)
class ModelSettings:
    """The network. The corpus decides whether it is a network for images or for speech.

    Attributes:
        preset: Its size, see :meth:`arcgrad.recipes.models.TDS2d.preset`; or ``"plain"`` for
            :class:`arcgrad.recipes.models.PlainConv2d`, for images.
        subsampling: How many columns or frames make one output; None for the default of the preset.
            An inner convolution sub-samples once more and is not counted.
        height_subsampling: How many rows of an image make one row of the last TDS group; None if
            every group halves the height. The first groups halve it.
        channels: The width of ``"plain"``, see :class:`arcgrad.recipes.models.PlainConv2d`.
        layers: The number of further convolutions over columns of ``"plain"``, likewise.
        dropout: The fraction of activations dropped in training.
        inner: A convolution inside the network for images, from letters to word pieces: ``"wfst"``
            for one whose kernels are graphs (:class:`arcgrad.recipes.models.TDS2dTransducer`),
            ``"ordinary"`` for an ordinary one.
        inner_pieces: The number of word pieces of the inner convolution.
        inner_stride: The stride of the inner convolution.
    """

    preset: Literal["small", "paper", "recipe", "plain"] = "small"
    subsampling: Optional[Int] = None
    height_subsampling: Optional[Int] = None
    channels: Count = 64
    layers: Annotated[Int, Field(ge=0)] = 0
    dropout: Annotated[Float, Field(ge=0, lt=1)] = 0.1
    inner: Inner = "none"
    inner_pieces: Int = 200
    inner_stride: Int = 4


@dataclass(frozen=True, config=_FORBID_UNKNOWN)
class LossSettings:
    """The graphs of the loss, an :class:`arcgrad.torch.TransducerLoss`.

    Attributes:
        blank: Whether there is a blank, and whether it is required between tokens.
        allow_repeats: Whether equal tokens may follow one another without a blank.
        ngram: The order of the learned transitions; 0 for none.
        prune: Keep only those n-grams of the highest order that occur more often than this in the
            training targets, and back off to lower orders, which are all kept. None keeps every
            n-gram and needs no back-off.
        min_frames: The minimum number of frames of a token.
        max_frames: The maximum number of frames of a token; None for no limit.
        min_blanks: The minimum number of blanks between tokens.
        max_blanks: The maximum number of blanks between tokens; None for no limit.
        backoff: What the back-off arcs of pruned transitions are: ``"epsilon"`` as in the paper, or
            ``"failure"``, so that each sequence of labels has one path.
        divide: Whether the loss of an example is divided by the number of letters of its text. A
            batch has the mean of its losses.
    """

    blank: Blank = "optional"
    allow_repeats: Bool = False
    ngram: Int = 0
    prune: Optional[Int] = None
    min_frames: Int = 1
    max_frames: Optional[Int] = None
    min_blanks: Int = 0
    max_blanks: Optional[Int] = None
    backoff: Literal["epsilon", "failure"] = "epsilon"
    divide: Bool = True

    @property
    def first_label(self) -> int:
        """The label of the first token: 1 if label 0 is the blank, else 0."""
        return int(self.blank != "none")


@dataclass(frozen=True, config=_FORBID_UNKNOWN)
class OptimSettings:
    """How parameters are optimised.

    Attributes:
        method: Stochastic gradient descent without momentum, as in the paper, or AdamW.
        learning_rate: The initial learning rate of the network.
        criterion_learning_rate: The initial learning rate of the loss's own parameters; None for
            the same rate.
        schedule: ``"step"`` multiplies rates by ``decay`` every ``step_size`` epochs.
            ``"one-cycle"`` raises them during the first tenth of the training and then lowers them
            to zero along a cosine.
        step_size: The number of epochs between two decays.
        decay: The factor of a decay.
        weight_decay: The weight decay of the network's parameters.
        max_grad_norm: The gradient of all parameters is clipped to this norm; None for no clipping.
        batch_size: The number of examples in a batch.
        epochs: The number of epochs.

    Raises:
        ValueError: If a count is not positive, or a rate is negative.
    """

    method: Literal["sgd", "adamw"] = "sgd"
    learning_rate: Rate = 0.1
    criterion_learning_rate: Optional[Rate] = None
    schedule: Literal["step", "one-cycle"] = "step"
    step_size: Count = 100
    decay: Rate = 0.5
    weight_decay: Rate = 0.0
    max_grad_norm: Optional[Annotated[Float, Field(gt=0)]] = 5.0
    batch_size: Count = 32
    epochs: Count = 400


@dataclass(frozen=True, config=_FORBID_UNKNOWN)
class Experiment:
    """All settings of a training.

    Attributes:
        description: What the experiment is, and what the paper reports.
        data: The data to recognise.
        tokens: The tokens that spell targets.
        model: The network.
        loss: The graphs of the loss.
        optim: How parameters are optimised.
        seed: The seed of all randomness.

    >>> from dataclasses import replace
    >>> from arcgrad.recipes.experiments import Experiment, LossSettings
    >>> ctc = Experiment("CTC")
    >>> asg = replace(ctc, loss=LossSettings("none", allow_repeats=True, ngram=2))
    >>> asg.loss.ngram, asg.optim == ctc.optim
    (2, True)
    """

    description: Text
    data: DataSettings = field(default_factory=DataSettings)
    tokens: TokenSettings = field(default_factory=TokenSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    loss: LossSettings = field(default_factory=LossSettings)
    optim: OptimSettings = field(default_factory=OptimSettings)
    seed: Int = 0


def override(
    experiment: Experiment,
    settings: Iterable[str] | Mapping[str, Any],
    *,
    source: str | os.PathLike[str] | None = None,
) -> Experiment:
    """Return the experiment with some settings changed.

    Args:
        experiment: The experiment.
        settings: Texts ``key=value`` with dotted names; or values by name in nested tables, as
            :func:`arcgrad.recipes.experiments.load_settings` returns them. Text is converted to the
            type of the setting; ``none`` stands for None where the setting allows it.
        source: The origin of the settings, for error messages.

    Returns:
        The changed experiment. If a key occurs twice, the last value counts.

    Raises:
        ValueError: If a key is unknown, or a value has the wrong type or is out of range.

    >>> from arcgrad.recipes import experiments
    >>> changed = experiments.override(
    ...     experiments.find("demo"), ["optim.learning_rate=1e-3", "data.train=100", "seed=7"]
    ... )
    >>> changed.optim.learning_rate, changed.data.train, changed.seed
    (0.001, 100, 7)
    >>> experiments.override(changed, {"seed": 8, "data": {"train": "none"}}).data.train is None
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
    """Return all settings as nested dictionaries that JSON can store.

    >>> from arcgrad.recipes import experiments
    >>> experiments.to_dict(experiments.find("demo"))["tokens"]
    {'kind': 'letters', 'num_pieces': 1000, 'marginalize': False}
    """
    return dataclasses.asdict(experiment)


def from_dict(
    settings: Mapping[str, Any], *, source: str | os.PathLike[str] | None = None
) -> Experiment:
    """Return the experiment of settings written by :func:`to_dict`; missing settings get defaults.

    Args:
        settings: The settings.
        source: The origin of the settings, for error messages.

    Raises:
        ValueError: If a key is unknown, or a value has the wrong type or is out of range.

    >>> from arcgrad.recipes import experiments
    >>> demo = experiments.find("demo")
    >>> experiments.from_dict(experiments.to_dict(demo)) == demo
    True
    """
    return _changed("from_dict", Experiment(""), settings, source)


def flatten(experiment: Experiment) -> dict[str, Any]:
    """Return all settings by dotted name, as ``--set`` takes them.

    >>> from arcgrad.recipes import experiments
    >>> experiments.flatten(experiments.find("demo"))["tokens.kind"]
    'letters'
    """
    found: dict[str, Any] = {}
    for name, value in to_dict(experiment).items():
        if isinstance(value, dict):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            found[name] = value
    return found


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of an error message that suggests the most similar name."""
    names = list(names)
    by_end = [other for other in names if other.rpartition(".")[2] == name]
    close = by_end or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"


_READER = TypeAdapter(Experiment)

# The end of the sentence "SETTING must be", by the type of pydantic's error.
_RULES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "greater_than": "positive",
    "greater_than_equal": "at least 0",
    "less_than": "below 1",
}


def _changed(
    op: str,
    experiment: Experiment,
    settings: Mapping[str, Any],
    source: str | os.PathLike[str] | None,
) -> Experiment:
    """Return an experiment with some settings changed; they are all checked together."""
    tables = to_dict(experiment)
    _merge(tables, settings)
    try:
        return _READER.validate_python(tables)
    except ValidationError as errors:
        error = errors.errors()[0]
    where = "" if source is None else f" in {str(source)!r}"
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] in ("unexpected_keyword_argument", "dataclass_type"):
        raise ValueError(
            f"{op}: a key must be a setting, but it is {_files.shown(key)}{where}"
            f"{nearest(key, flatten(experiment))}"
        )
    rule = _RULES.get(error["type"])
    if error["type"] == "literal_error":
        rule = f"one of {error['ctx']['expected']}"
    given = _files.shown(error["input"])
    raise ValueError(f"{op}: {key[:99]} must be {rule or 'valid'}, but it is {given}{where}")


def _merge(tables: dict[str, Any], settings: Mapping[Any, Any]) -> None:
    """Write settings, whose names may be dotted, into nested tables."""
    for key, value in settings.items():
        name, dot, rest = str(key).partition(".")
        if dot:
            value = {rest: value}
        if isinstance(tables.get(name), dict) and (value is None or isinstance(value, Mapping)):
            _merge(tables[name], value or {})
        else:
            tables[name] = value
