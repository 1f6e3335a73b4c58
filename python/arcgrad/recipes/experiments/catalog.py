"""The named experiments, one for each cell of a table or figure of the paper.

A name is ``TABLE/CORPUS/CELL``. Experiments on the corpora of the paper have its networks and its
training; experiments on the corpora that come with the package train in minutes on a processor.
Other settings of the same cells are in presets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from . import presets, published
from .presets import CORPORA, IMAGES, Preset, check_preset, usual_preset
from .settings import Blank, DataSettings, Experiment, Inner, LossSettings, ModelSettings, nearest

__all__ = ["EXPERIMENTS", "catalog", "cells", "find"]

_DEMO = Experiment(
    "handwritten lines, CTC written as graphs, three minutes on two cores",
    DataSettings("letters"),
    model=ModelSettings("plain", dropout=0.0),
    optim=presets.FAST,
)

# Corpora of images with enough words for word pieces.
_LINES = ("letters", "iam")
# Sub-sampling of Figure 5d; letters of IAM are five times as wide as in small ``letters``.
_FIGURE_5D: dict[Preset, tuple[int, ...]] = {
    "small": (4, 8),
    "published": (4, 8, 16, 24),
    "paper": (4, 8, 16, 24),
}
# The number of its word pieces.
_PIECES_5D: dict[Preset, int] = {"small": 200, "published": 1000, "paper": 1000}
# The numbers of pieces of Figure 5; the ten words of ``digits`` have at most 26.
_NUM_PIECES = dict.fromkeys(CORPORA, (200, 500, 1000, 1500)) | {"digits": (18, 20, 23, 26)}
_FEW_PIECES = (50, 100, 200)
_FIGURE_5 = {"wsj": "Figure 5a", "librispeech": "Figure 5b", "iam": "Figure 5c"}
_FIGURE_5 |= {"letters": "Figure 5c", "digits": "Figures 5a and b"}

# A preset for each corpus.
_Presets = Mapping[str, Preset]
_Cells = Iterator[tuple[str, Experiment]]


def _table1(chosen: _Presets) -> _Cells:
    blanks: dict[str, Blank] = {"no": "none", "forced": "forced", "optional": "optional"}
    for corpus in _of(chosen, IMAGES):
        base = presets.base(corpus, chosen[corpus])
        for ngram in (0, 1, 2):
            for name, blank in blanks.items():
                # As published: only with an optional blank do equal tokens need one in between.
                repeats = blank != "optional"
                loss = replace(base.loss, blank=blank, allow_repeats=repeats, ngram=ngram)
                cer = published.TABLE_1[name][ngram]
                text = f"Table 1, {ngram}-gram, {name} blank: CER {cer} in the paper"
                yield (
                    f"table1/{corpus}/ngram{ngram}/{name}_blank",
                    replace(base, description=text, loss=loss),
                )


def pruning_name(prune: int | None) -> str:
    """Return the name of a cell of Table 2."""
    return "dense" if prune is None else f"prune{prune}"


def _table2(chosen: _Presets) -> _Cells:
    for corpus in _of(chosen, _LINES):
        preset = chosen[corpus]
        pieces = presets.pieces(corpus, preset, 1000, marginalize=False)
        bases = {"letters": presets.base(corpus, preset), "pieces": pieces}
        for kind, cells_of_kind in published.TABLE_2.items():
            base = bases[kind]
            for prune, (cer, seconds) in cells_of_kind.items():
                what = "no pruning" if prune is None else f"pruning {prune}"
                found = f"{'no CER' if cer is None else f'CER {cer}'} and {seconds:,} s"
                text = f"Table 2, bigrams of {kind}, {what}: {found} for an epoch in the paper"
                loss = replace(base.loss, ngram=2, prune=prune)
                yield (
                    f"table2/{corpus}/{kind}/{pruning_name(prune)}",
                    replace(base, description=text, loss=loss),
                )


def _figure5(chosen: _Presets) -> _Cells:
    ways = {"sentencepiece": "as SentencePiece spells", "marginal": "marginalised"}
    for corpus in _of(chosen, _FIGURE_5):
        is_small = (corpus, chosen[corpus]) == ("letters", "small")
        for size in _FEW_PIECES if is_small else _NUM_PIECES[corpus]:
            for way, name in ways.items():
                base = presets.pieces(corpus, chosen[corpus], size, marginalize=way == "marginal")
                text = f"{_FIGURE_5[corpus]}, {size} word pieces, {name}"
                yield f"fig5/{corpus}/pieces{size}/{way}", replace(base, description=text)
    for corpus in _of(chosen, _LINES):
        preset = chosen[corpus]
        size = _PIECES_5D[preset]
        for rate in _FIGURE_5D[preset]:
            for way, name in ways.items():
                base = presets.pieces(corpus, preset, size, marginalize=way == "marginal")
                text = f"Figure 5d, {size} word pieces, sub-sampling {rate}, {name}"
                yield (
                    f"fig5d/{corpus}/subsampling{rate}/{way}",
                    replace(base, description=text, model=replace(base.model, subsampling=rate)),
                )


def _table3(chosen: _Presets) -> _Cells:
    kinds: dict[Inner, str] = {"wfst": "a convolution of graphs", "ordinary": "an ordinary one"}
    for corpus in _of(chosen, IMAGES):
        if corpus == "words" and chosen[corpus] != "small":
            continue  # too few texts for 1000 pieces
        for inner, name in kinds.items():
            base = presets.inner_convolution(corpus, chosen[corpus], inner)
            cer, _ = published.TABLE_3[inner]
            text = f"Table 3, {name}: CER {cer} in the paper"
            yield f"table3/{corpus}/{inner}", replace(base, description=text)


def _variants(chosen: _Presets) -> _Cells:
    found = {
        "spike": ("tokens of one frame", LossSettings(max_frames=1, allow_repeats=True)),
        "limited": ("tokens of one or two frames", LossSettings(max_frames=2)),
        "spaced": ("1 to 6 blanks between tokens", LossSettings(min_blanks=1, max_blanks=6)),
    }
    for corpus in _of(chosen, IMAGES):
        base = presets.base(corpus, chosen[corpus])
        for name, (text, loss) in found.items():
            loss = replace(loss, divide=base.loss.divide)
            yield (
                f"variants/{corpus}/{name}",
                replace(base, description=f"CTC with {text} (appendix A)", loss=loss),
            )


def _of(chosen: _Presets, corpora: Iterable[str]) -> list[str]:
    """Return the corpora that have a preset."""
    return [corpus for corpus in corpora if corpus in chosen]


def _catalog(chosen: _Presets) -> dict[str, Experiment]:
    tables = (_table1, _table2, _figure5, _table3, _variants)
    return {name: experiment for table in tables for name, experiment in table(chosen)}


#: The named experiments, with the usual preset of each corpus.
EXPERIMENTS: dict[str, Experiment] = {
    "demo": _DEMO,
    **_catalog({corpus: usual_preset(corpus) for corpus in CORPORA}),
}


def catalog(corpus: str, preset: Preset | None = None) -> dict[str, Experiment]:
    """Return all experiments on a corpus, with a preset.

    Args:
        corpus: The corpus.
        preset: ``"paper"`` for the settings of the paper's text, ``"published"`` for those of the
            recipes that its authors published, ``"small"`` for processors; None for the preset
            that the corpus has in :data:`EXPERIMENTS`.

    Raises:
        ValueError: If there is no such preset, or not for the corpus.

    >>> from arcgrad.recipes import experiments
    >>> name = "table1/iam/ngram0/no_blank"
    >>> experiments.catalog("iam", "paper")[name].optim.max_grad_norm is None
    True
    """
    preset = usual_preset(corpus) if preset is None else preset
    check_preset(preset, corpus)
    return _catalog({corpus: preset})


def find(name: str, preset: Preset | None = None) -> Experiment:
    """Return a named experiment.

    Args:
        name: Its name.
        preset: Its preset, as for :func:`catalog`.

    Raises:
        ValueError: If there is no experiment of that name, or it does not have the preset.

    >>> from arcgrad.recipes import experiments
    >>> experiments.find("table1/letters/ngram2/no_blank").loss.ngram
    2
    >>> experiments.find("table1/iam/ngram2/no_blank", "paper").model.height_subsampling
    4
    """
    if name not in EXPERIMENTS:
        raise ValueError(
            f"find: the experiment must be one of the named ones, but it is {name!r}"
            f"{nearest(name, EXPERIMENTS)}"
        )
    if preset is None or name == "demo":
        return EXPERIMENTS[name]
    return catalog(name.split("/")[1], preset)[name]


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
