"""The named experiments, one for each cell of a table or figure of the paper.

A name is ``TABLE/CORPUS/CELL``. Experiments on the corpora of the paper have its networks and its
training; experiments on the corpora that come with the package train in minutes on a processor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from . import published
from .settings import (
    Blank,
    DataSettings,
    Experiment,
    Inner,
    LossSettings,
    ModelSettings,
    OptimSettings,
    TokenSettings,
    nearest,
)

__all__ = ["EXPERIMENTS", "cells", "find"]

# Fast settings for processors: the paper's 400 epochs of SGD would take a day.
_FAST = OptimSettings(
    method="adamw",
    learning_rate=3e-3,
    schedule="one-cycle",
    weight_decay=1e-2,
    batch_size=16,
    epochs=12,
)
_DEMO = Experiment(
    "handwritten lines, CTC written as graphs, three minutes on two cores",
    model=ModelSettings("plain", dropout=0.0),
    optim=_FAST,
)

# The base experiment of each corpus, with letters as tokens.
_BASES = {
    "letters": _DEMO,
    "iam": Experiment("", DataSettings("iam"), model=ModelSettings("recipe", subsampling=4)),
    "digits": Experiment(
        "",
        DataSettings("digits"),
        model=ModelSettings("small", subsampling=4),
        optim=replace(_FAST, epochs=20),
    ),
    "librispeech": Experiment(
        "",
        DataSettings("librispeech"),
        model=ModelSettings("recipe", subsampling=8),
        optim=OptimSettings(learning_rate=0.4),
    ),
    "wsj": Experiment(
        "",
        DataSettings("wsj"),
        model=ModelSettings("recipe", subsampling=8, dropout=0.2),
        optim=OptimSettings(learning_rate=0.2, batch_size=16),
    ),
}

# Sub-sampling for word pieces: about two frames for a letter, as in the paper.
_PIECES_SUBSAMPLING = {"letters": 4, "iam": 16, "digits": 4, "librispeech": 8, "wsj": 8}
# Sub-sampling of Figure 5d; letters of IAM are three times as wide as in ``letters``.
_FIGURE_5D = {"letters": (2, 4, 8, 12), "iam": (4, 8, 16, 24)}
# The numbers of pieces of Figure 5; the ten words of ``digits`` have at most 26.
_NUM_PIECES = dict.fromkeys(_BASES, (200, 500, 1000, 1500)) | {"digits": (18, 20, 23, 26)}
_FIGURE_5 = {"wsj": "Figure 5a", "librispeech": "Figure 5b", "iam": "Figure 5c"}
_FIGURE_5 |= {"letters": "Figure 5c", "digits": "Figures 5a and b"}
IMAGES = ("letters", "iam")


def _pieces(corpus: str, num_pieces: int, *, marginalize: bool) -> Experiment:
    """Return an experiment with word pieces: one segmentation, or the sum over all of them."""
    base = _BASES[corpus]
    optim = base.optim
    if corpus == "letters":
        optim = replace(optim, epochs=8)
    if marginalize and corpus in ("librispeech", "wsj"):
        optim = replace(optim, learning_rate=2 * optim.learning_rate)
    return replace(
        base,
        tokens=TokenSettings("pieces", num_pieces, marginalize),
        model=replace(base.model, subsampling=_PIECES_SUBSAMPLING[corpus]),
        optim=optim,
    )


def _table1() -> Iterator[tuple[str, Experiment]]:
    blanks: dict[str, Blank] = {"no": "none", "forced": "forced", "optional": "optional"}
    for corpus in IMAGES:
        for ngram in (0, 1, 2):
            for name, blank in blanks.items():
                # As published: only with an optional blank do equal tokens need one in between.
                loss = LossSettings(blank, allow_repeats=blank != "optional", ngram=ngram)
                cer = published.TABLE_1[name][ngram]
                text = f"Table 1, {ngram}-gram, {name} blank: CER {cer} in the paper"
                yield (
                    f"table1/{corpus}/ngram{ngram}/{name}_blank",
                    replace(_BASES[corpus], description=text, loss=loss),
                )


def pruning_name(prune: int | None) -> str:
    """Return the name of a cell of Table 2."""
    return "dense" if prune is None else f"prune{prune}"


def _table2() -> Iterator[tuple[str, Experiment]]:
    for corpus in IMAGES:
        pieces = _pieces(corpus, 1000, marginalize=False)
        bases = {"letters": _BASES[corpus], "pieces": pieces}
        for kind, cells_of_kind in published.TABLE_2.items():
            for prune, (cer, seconds) in cells_of_kind.items():
                what = "no pruning" if prune is None else f"pruning {prune}"
                found = f"{'no CER' if cer is None else f'CER {cer}'} and {seconds:,} s"
                text = f"Table 2, bigrams of {kind}, {what}: {found} for an epoch in the paper"
                yield (
                    f"table2/{corpus}/{kind}/{pruning_name(prune)}",
                    replace(bases[kind], description=text, loss=LossSettings(ngram=2, prune=prune)),
                )


def _figure5() -> Iterator[tuple[str, Experiment]]:
    ways = {"sentencepiece": "as SentencePiece spells", "marginal": "marginalised"}
    for corpus, sizes in _NUM_PIECES.items():
        for size in sizes:
            for way, name in ways.items():
                base = _pieces(corpus, size, marginalize=way == "marginal")
                text = f"{_FIGURE_5[corpus]}, {size} word pieces, {name}"
                yield f"fig5/{corpus}/pieces{size}/{way}", replace(base, description=text)
    for corpus, rates in _FIGURE_5D.items():
        for rate in rates:
            for way, name in ways.items():
                base = _pieces(corpus, 1000, marginalize=way == "marginal")
                text = f"Figure 5d, 1000 word pieces, sub-sampling {rate}, {name}"
                yield (
                    f"fig5d/{corpus}/subsampling{rate}/{way}",
                    replace(base, description=text, model=replace(base.model, subsampling=rate)),
                )


def _table3() -> Iterator[tuple[str, Experiment]]:
    kinds: dict[Inner, str] = {"wfst": "a convolution of graphs", "ordinary": "an ordinary one"}
    for corpus in IMAGES:
        base = _pieces(corpus, 1000, marginalize=False)
        model = ModelSettings("paper", subsampling=4)
        if corpus == "letters":  # a letter is two frames wide
            model = ModelSettings("small", subsampling=4, inner_stride=2, dropout=0.0)
            base = replace(base, optim=replace(base.optim, epochs=12))
        for inner, name in kinds.items():
            cer, _ = published.TABLE_3[inner]
            yield (
                f"table3/{corpus}/{inner}",
                replace(
                    base,
                    description=f"Table 3, {name}: CER {cer} in the paper",
                    model=replace(model, inner=inner),
                ),
            )


def _variants() -> Iterator[tuple[str, Experiment]]:
    found = {
        "spike": ("tokens of one frame", LossSettings(max_frames=1, allow_repeats=True)),
        "limited": ("tokens of one or two frames", LossSettings(max_frames=2)),
        "spaced": ("1 to 6 blanks between tokens", LossSettings(min_blanks=1, max_blanks=6)),
    }
    for corpus in IMAGES:
        for name, (text, loss) in found.items():
            yield (
                f"variants/{corpus}/{name}",
                replace(_BASES[corpus], description=f"CTC with {text} (appendix A)", loss=loss),
            )


#: The named experiments.
EXPERIMENTS: dict[str, Experiment] = {
    "demo": _DEMO,
    **dict(_table1()),
    **dict(_table2()),
    **dict(_figure5()),
    **dict(_table3()),
    **dict(_variants()),
}


def find(name: str) -> Experiment:
    """Return a named experiment.

    Raises:
        ValueError: If there is no experiment of that name.

    >>> from arcgrad.recipes import experiments
    >>> experiments.find("table1/letters/ngram2/no_blank").loss.ngram
    2
    """
    if name not in EXPERIMENTS:
        raise ValueError(
            f"find: the experiment must be one of the named ones, but it is {name!r}"
            f"{nearest(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]


def cells(table: str, corpus: str) -> dict[str, Experiment]:
    """Return the experiments of a table or figure on a corpus, by the names of its cells.

    >>> from arcgrad.recipes import experiments
    >>> list(experiments.cells("table3", "letters"))
    ['wfst', 'ordinary']
    """
    prefix = f"{table}/{corpus}/"
    return {
        name.removeprefix(prefix): experiment
        for name, experiment in EXPERIMENTS.items()
        if name.startswith(prefix)
    }
