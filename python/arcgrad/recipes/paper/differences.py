"""The settings in which trained cells differ from the paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from arcgrad.recipes.experiments import Experiment, catalog, flatten
from arcgrad.recipes.report import markdown_table

__all__ = ["differences"]

# These do not say how a cell is trained.
_LEFT_OUT = {"description", "seed", "data.path"}


def differences(experiments: Mapping[str, Experiment], corpus: str) -> str:
    """Return a table of the settings of cells that differ from those of the preset ``paper``.

    >>> from arcgrad.recipes.experiments import catalog
    >>> from arcgrad.recipes.paper import differences
    >>> cells = catalog("wsj", "published")
    >>> name = "fig5/wsj/pieces1000/marginal"
    >>> print(differences({name: cells[name]}, "wsj"))
    Settings that differ from the preset `paper`:
    <BLANKLINE>
    | setting             | here   | paper   |
    |:--------------------|:-------|:--------|
    | data.window         | 0.025  | 0.02    |
    | model.preset        | recipe | paper   |
    | optim.max_grad_norm | 5.0    | none    |
    <BLANKLINE>
    """
    counterparts = _counterparts(experiments, corpus)
    found: dict[str, dict[tuple[str, str], None]] = {}
    for name, experiment in experiments.items():
        stated = flatten(counterparts[name])
        for setting, value in flatten(experiment).items():
            if setting not in _LEFT_OUT and value != stated[setting]:
                # These belong to another network.
                is_used = setting not in ("model.channels", "model.layers")
                pair = _text(value), _text(stated[setting]) if is_used else "none"
                found.setdefault(setting, {})[pair] = None
    if not found:
        return "All settings are those of the preset `paper`.\n"
    rows = [
        [setting, *(", ".join(dict.fromkeys(side)) for side in zip(*pairs, strict=True))]
        for setting, pairs in found.items()
    ]
    table = markdown_table(["setting", "here", "paper"], rows, left=(0, 1, 2))
    return f"Settings that differ from the preset `paper`:\n\n{table}\n"


def _counterparts(experiments: Mapping[str, Experiment], corpus: str) -> dict[str, Experiment]:
    """Return the cell of the preset ``paper`` for each cell: that of its name, or of its place.

    The small experiments have other numbers of pieces and other sub-sampling, and tables on
    corpora where the paper's settings are impossible.
    """
    paper = catalog(corpus, "paper")
    if not paper.keys() >= experiments.keys():
        paper |= catalog("iam", "paper")
    counts: Counter[tuple[str, str]] = Counter()
    found = {}
    for name in experiments:
        ends = name.split("/")[0], name.split("/")[-1]
        alike = [other for other in paper if (other.split("/")[0], other.split("/")[-1]) == ends]
        found[name] = paper[name if name in paper else alike[counts[ends] % len(alike)]]
        counts[ends] += 1
    return found


def _text(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)
