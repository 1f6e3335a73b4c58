"""The statements of the paper on its experiments, beside the settings of our presets.

Settings are read from the experiments, so that the page cannot be out of date.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from arcgrad.recipes.data.images import ImageAugmentation
from arcgrad.recipes.data.letters import AUGMENTATION
from arcgrad.recipes.data.speech import LogMel, SpecAugment
from arcgrad.recipes.experiments import Experiment, Preset, catalog
from arcgrad.recipes.models.tds import PRESETS_1D, PRESETS_2D
from arcgrad.recipes.models.transducer import TDS2dTransducer
from arcgrad.recipes.report import markdown_table

__all__ = ["settings_table"]

LETTERS, PIECES = "table1/{}/ngram0/optional_blank", "fig5/{}/pieces{}/sentencepiece"
INNER = "table3/{}/wfst"


@dataclass(frozen=True)
class Statement:
    """A statement of the paper.

    Attributes:
        text: What the paper says.
        name: The experiment that it is about; the corpus is filled in.
        value: The same of an experiment.
        note: Why ours differs, or how we read it.
    """

    text: str
    name: str
    value: Callable[[Experiment], str]
    note: str = ""


def _channels(e: Experiment) -> str:
    if e.model.preset == "plain":
        return f"plain convolutions, {e.model.channels // 2} to {2 * e.model.channels} channels"
    preset = PRESETS_2D[e.model.preset]
    return "-".join(str(preset.depth * count) for count in preset.channels)


def _groups(e: Experiment) -> str:
    if e.model.preset == "plain":
        return f"{5 + e.model.layers} convolutions, no TDS blocks"
    preset = PRESETS_2D[e.model.preset]
    return f"{len(preset.channels)} groups of {preset.blocks} blocks"


def _kernel(e: Experiment) -> str:
    if e.model.preset == "plain":
        return "3 x 3 and 5"
    return "{} x {}".format(*PRESETS_2D[e.model.preset].kernel_size)


def _subsampling(e: Experiment) -> str:
    if e.model.preset == "plain":
        return f"height 4, width {e.model.subsampling or 2}"
    groups = len(PRESETS_2D[e.model.preset].channels)
    return f"height {e.model.height_subsampling or 2**groups}, width {e.model.subsampling}"


def _speech_groups(e: Experiment) -> str:
    channels, blocks, _ = PRESETS_1D[e.model.preset]
    sizes = "-".join(map(str, channels))
    return f"{len(channels)} groups of {blocks} blocks, {sizes} channels"


def _rate(e: Experiment) -> str:
    optim = e.optim
    method = {"sgd": "SGD", "adamw": "AdamW"}[optim.method]
    how = (
        f"times {optim.decay} every {optim.step_size} epochs"
        if optim.schedule == "step"
        else "one cycle"
    )
    return f"{method}, {optim.learning_rate:g}, {how}"


def _normalization(e: Experiment) -> str:
    return "of each image" if e.data.normalize == "image" else "of the corpus"


def _augmentation(e: Experiment) -> str:
    used = ImageAugmentation() if e.data.corpus == "iam" else AUGMENTATION
    return (
        f"shift {used.jitter} px, width ±{used.stretch:.0%}, ±{used.rotation:g}°, brightness and "
        f"contrast ±{used.brightness:.0%}"
    )


def _clipping(e: Experiment) -> str:
    return "none" if e.optim.max_grad_norm is None else f"norm {e.optim.max_grad_norm:g}"


def _loss(e: Experiment) -> str:
    return "mean of a batch" + (", divided by the letters of a text" if e.loss.divide else "")


def _features(e: Experiment) -> str:
    features = LogMel(window=e.data.window)
    return (
        f"{features.num_filters} filters, {1000 * features.window:g} ms every "
        f"{1000 * features.hop:g} ms"
    )


def _masks(_: Experiment) -> str:
    masks = SpecAugment()
    return (
        f"{masks.num_frequency_masks} of up to {masks.max_frequencies} filters, "
        f"{masks.num_time_masks} of up to {masks.max_frames} frames"
    )


def _inner(e: Experiment) -> str:
    kernel = TDS2dTransducer.kernel_size(e.model.preset)
    return f"k = {kernel}, stride {e.model.inner_stride}, {e.model.inner_pieces} pieces"


_IMAGES = (
    Statement("4 groups of three TDS blocks each", LETTERS, _groups),
    Statement(
        "a 1 x 1 convolution with c x d input and output channels",
        LETTERS,
        lambda e: "none" if e.model.preset == "plain" else "two, with a ReLU in between",
        "as in the original TDS and the published code",
    ),
    Statement("letters: sub-sample both by 2 after the first two groups", LETTERS, _subsampling),
    Statement("pieces: sub-sample both by 2 after every group", PIECES, _subsampling),
    Statement("a uniform kernel size of 5 x 7", LETTERS, _kernel),
    Statement("channels c x d 8, 16, 32 and 64", LETTERS, _channels),
    Statement("dropout (no number)", LETTERS, lambda e: f"{e.model.dropout:g}", "0.1 as published"),
    Statement("SGD, rate 0.1, times 0.5 every 100 epochs", LETTERS, _rate),
    Statement("400 epochs, the best on validation data", LETTERS, lambda e: str(e.optim.epochs)),
    Statement("mini-batches of 32", LETTERS, lambda e: str(e.optim.batch_size)),
    Statement(
        "removing the global pixel mean and deviation from each image",
        LETTERS,
        _normalization,
        "the sentence can also mean those of the corpus, as published",
    ),
    Statement(
        "random resize and crop, rotation, colour change (no numbers)",
        LETTERS,
        _augmentation,
        "numbers as published; images are grey, so saturation and hue do nothing",
    ),
    Statement(
        "the loss is equation 1 (no scale is stated)",
        LETTERS,
        _loss,
        "without the division SGD at 0.1 diverges: from 69 to 8,144,824 in 12 steps on words",
    ),
    Statement("no clipping is stated", LETTERS, _clipping),
    Statement(
        "WFST convolution: k = 5, stride 4, 200 pieces",
        INNER,
        _inner,
        "between the third and the fourth group",
    ),
    Statement("1000 pieces at the output", INNER, lambda e: str(e.tokens.num_pieces)),
)

_SPEECH = (
    Statement("3 groups of 5 TDS blocks, 4 channels, doubled", PIECES, _speech_groups),
    Statement("sub-sampling by 8 over all", PIECES, lambda e: str(e.model.subsampling)),
    Statement(
        "SGD, rate tuned in 0.01 to 1, times 0.5 every 100",
        PIECES,
        _rate,
        "rates as published: they double where decompositions are marginalised",
    ),
    Statement("400 epochs", PIECES, lambda e: str(e.optim.epochs)),
    Statement("mini-batches of 16", PIECES, lambda e: str(e.optim.batch_size)),
    Statement("80 log-mel filters, windows of 20 ms every 10 ms", PIECES, _features),
    Statement("examples normalised one by one", PIECES, lambda _: "of each recording"),
    Statement("SpecAugment LD without warping", PIECES, _masks),
    Statement("the loss is equation 1 (no scale is stated)", PIECES, _loss),
    Statement("no clipping is stated", PIECES, _clipping),
)


def settings_table() -> str:
    """Return the statements of section 5 and appendix B, with our settings, as tables.

    >>> from arcgrad.recipes.paper.appendix import settings_table
    >>> "windows of 20 ms" in settings_table()
    True
    """
    text = "## Handwriting\n\n" + _table(_IMAGES, "iam", ("letters", "words"))
    return f"{text}\n\n## Speech\n\n{_table(_SPEECH, 'librispeech', ('digits',))}\n"


def _table(statements: tuple[Statement, ...], corpus: str, small: tuple[str, ...]) -> str:
    rows = []
    for statement in statements:
        found = []
        presets: tuple[Preset, ...] = ("paper", "published")
        for preset in presets:
            experiments = catalog(corpus, preset)
            found.append(statement.value(experiments[statement.name.format(corpus, 1000)]))
        own = small[-1] if statement.name == INNER else small[0]
        experiments = catalog(own)
        name = statement.name.format(own, 200 if own == "letters" else 26)
        found.append(statement.value(experiments[name]))
        rows.append([statement.text, *found, statement.note])
    header = ["the paper", "`paper`", "`published`", "`small`", "note"]
    return markdown_table(header, rows, left=tuple(range(5)))
