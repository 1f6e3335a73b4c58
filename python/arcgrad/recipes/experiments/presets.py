"""The presets of the paper's experiments: the settings that all cells of a corpus share.

``paper`` follows the text of the paper, ``published`` the recipes that its authors published, and
``small`` trains in minutes on a processor. ``docs/results/settings.md`` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

from .settings import (
    DataSettings,
    Experiment,
    Inner,
    ModelSettings,
    OptimSettings,
    TokenSettings,
    nearest,
)

__all__ = ["CORPORA", "IMAGES", "PRESETS", "Preset", "check_preset", "usual_preset"]

Preset = Literal["small", "published", "paper"]
PRESETS: tuple[Preset, ...] = get_args(Preset)

#: The corpora of the experiments; ``words`` are those of ``letters``.
CORPORA = ("letters", "words", "digits", "iam", "librispeech", "wsj")
IMAGES = ("letters", "words", "iam")
LICENSED = ("iam", "librispeech", "wsj")

# Fast settings for processors: the paper's 400 epochs of SGD would take a day.
FAST = OptimSettings(
    method="adamw",
    learning_rate=3e-3,
    schedule="one-cycle",
    weight_decay=1e-2,
    batch_size=16,
    epochs=12,
)

# Images of letters are scaled to the height of IAM where the network is for IAM.
_IAM_HEIGHT = 64

_DATA = {
    "letters": DataSettings("letters"),
    "words": DataSettings("letters", task="words"),
    "digits": DataSettings("digits"),
    "iam": DataSettings("iam"),
    "librispeech": DataSettings("librispeech"),
    "wsj": DataSettings("wsj"),
}

# The learning rates and the dropout of the published recipes. The paper says only that rates of
# speech are between 0.01 and 1.
_RATES = {"digits": 0.4, "librispeech": 0.4, "wsj": 0.2}
_DROPOUTS = {"wsj": 0.2}


def usual_preset(corpus: str) -> Preset:
    """Return the preset of a corpus in ``EXPERIMENTS``."""
    return "published" if corpus in LICENSED else "small"


def check_preset(preset: str, corpus: str) -> None:
    """Raise ValueError if there is no such preset, or not for the corpus."""
    if preset not in PRESETS:
        raise ValueError(
            f"find: the preset must be one of {', '.join(PRESETS)}, but it is {preset!r}"
            f"{nearest(preset, PRESETS)}"
        )
    if preset == "small" and corpus in LICENSED:
        raise ValueError(
            f"find: the preset of {corpus} must be published or paper, but it is {preset!r}"
        )


def base(corpus: str, preset: Preset) -> Experiment:
    """Return the settings of a corpus with letters as tokens."""
    data = _DATA[corpus]
    if preset == "small":
        return _SMALL[corpus]
    if data.is_speech:
        return _speech(corpus, data, preset)
    if corpus != "iam":
        data = replace(data, height=_IAM_HEIGHT)
    if preset == "published":
        model = ModelSettings("recipe", subsampling=4)
        return Experiment("", data, model=model)
    return Experiment(
        "",
        replace(data, normalize="image"),
        # The first two groups sub-sample by 2 in both dimensions.
        model=ModelSettings("paper", subsampling=4, height_subsampling=4),
        optim=OptimSettings(max_grad_norm=None),
    )


def _speech(corpus: str, data: DataSettings, preset: Preset) -> Experiment:
    model = ModelSettings("paper", subsampling=8, dropout=_DROPOUTS.get(corpus, 0.1))
    optim = OptimSettings(learning_rate=_RATES[corpus], batch_size=16)
    if preset == "published":
        if corpus != "wsj":
            optim = replace(optim, batch_size=32)
        model = replace(model, preset="recipe")
        return Experiment("", replace(data, window=0.025), model=model, optim=optim)
    optim = replace(optim, max_grad_norm=None)
    return Experiment("", data, model=model, optim=optim)


def pieces(corpus: str, preset: Preset, num_pieces: int, *, marginalize: bool) -> Experiment:
    """Return the settings with word pieces: one segmentation, or the sum over all of them."""
    found = base(corpus, preset)
    data, optim, model = found.data, found.optim, found.model
    if preset == "small":
        model = replace(model, subsampling=4)
        if not data.is_speech:  # an output must see as much as a word piece
            data = replace(data, train=1500, single_words=0)
            model, optim = replace(model, layers=4), replace(optim, epochs=10)
    elif found.data.is_speech:
        if marginalize:  # as published
            optim = replace(optim, learning_rate=2 * optim.learning_rate)
    else:
        # Every group sub-samples by 2 in both dimensions.
        model = replace(model, subsampling=16, height_subsampling=None)
    tokens = TokenSettings("pieces", num_pieces, marginalize)
    return replace(found, data=data, tokens=tokens, model=model, optim=optim)


def inner_convolution(corpus: str, preset: Preset, inner: Inner) -> Experiment:
    """Return the settings of Table 3: pieces, with a convolution inside the network."""
    # The convolution sub-samples by another 4. The 55 texts of words have few pieces.
    size = 1000
    if preset == "small":
        size = 60 if corpus == "words" else 100
    found = pieces(corpus, preset, size, marginalize=False)
    model = replace(found.model, subsampling=4, inner=inner)
    optim = found.optim
    if preset == "small":  # a letter is less than two frames wide, so there must not be fewer
        model = ModelSettings(
            "small", subsampling=4, dropout=0.0, inner=inner, inner_pieces=size, inner_stride=1
        )
    elif preset == "published":
        optim = replace(optim, batch_size=8)
    return replace(found, model=model, optim=optim)


_PLAIN = ModelSettings("plain", channels=32, dropout=0.0)

_SMALL: Mapping[str, Experiment] = {
    "letters": Experiment(
        "",
        # Lines from the start would end in a poor optimum without a blank.
        replace(_DATA["letters"], train=2000, single_words=4),
        model=_PLAIN,
        optim=replace(FAST, epochs=12),
    ),
    "words": Experiment(
        "", replace(_DATA["words"], train=2000), model=_PLAIN, optim=replace(FAST, epochs=10)
    ),
    "digits": Experiment(
        "",
        _DATA["digits"],
        model=ModelSettings("small", subsampling=4),
        optim=replace(FAST, epochs=20),
    ),
}
