"""The named experiments, one for each cell of a table, derived from one another."""

from __future__ import annotations

from dataclasses import replace

from .experiment import (
    Blank,
    Experiment,
    LossSettings,
    ModelSettings,
    OptimSettings,
    nearest,
)

__all__ = ["EXPERIMENTS", "find"]


def _experiments() -> dict[str, Experiment]:
    # Settings for processors: the paper's 400 epochs of SGD would take a day.
    demo = Experiment(
        "handwritten lines, CTC written as graphs, three minutes on two cores",
        model=ModelSettings(preset="plain", dropout=0.0),
        optim=OptimSettings(
            method="adamw",
            learning_rate=3e-3,
            schedule="one-cycle",
            weight_decay=1e-2,
            batch_size=16,
            epochs=12,
        ),
    )
    # CER on the validation set of IAM for n-grams of order 0, 1 and 2.
    table1: list[tuple[str, Blank, tuple[float, ...]]] = [
        ("no", "none", (18.2, 17.7, 9.4)),
        ("forced", "forced", (8.9, 8.5, 6.7)),
        ("optional", "optional", (6.4, 6.3, 6.4)),
    ]
    found = {"demo": demo}
    for ngram in (0, 1, 2):
        for name, blank, paper in table1:
            # As published: only an optional blank is needed between equal tokens.
            loss = LossSettings(blank, allow_repeats=blank != "optional", ngram=ngram)
            text = f"Table 1, {ngram}-gram, {name} blank: CER {paper[ngram]} in the paper, on IAM"
            found[f"table1/ngram{ngram}/{name}_blank"] = replace(demo, description=text, loss=loss)
    return found


#: The named experiments.
EXPERIMENTS: dict[str, Experiment] = _experiments()


def find(name: str) -> Experiment:
    """A named experiment.

    Raises:
        ValueError: If there is none of that name.

    >>> from arcgrad.recipes import catalog
    >>> catalog.find("table1/ngram2/no_blank").loss
    LossSettings(blank='none', allow_repeats=True, ngram=2)
    """
    if name not in EXPERIMENTS:
        raise ValueError(
            f"find: the experiment must be one that is listed, but it is {name!r}"
            f"{nearest(name, EXPERIMENTS)}"
        )
    return EXPERIMENTS[name]
