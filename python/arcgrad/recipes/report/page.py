"""Writes the page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

import arcgrad as ag
from arcgrad import _files
from arcgrad.recipes import train
from arcgrad.recipes.data import Dataset

from .commands import commands
from .curves import curves
from .examples import SideBySide
from .graphs import loss_graphs, losses
from .runs import colors, evaluate, groups, load, names
from .tables import environment, percent, settings, summary

TEMPLATE = Path(__file__).with_name("report.html.j2")


def write_report(
    runs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    split: str = "test",
    checkpoint: str = "best",
    examples: int = 5,
    device: str = "cpu",
    threads: int = 1,
) -> Path:
    """Writes a page about a run, or about several runs side by side.

    It has error rates, learning curves, the best and the worst examples with their alignments, the
    graph of the loss, frequent confusions, all settings, and the commands that give the same again.
    Pictures are part of the page. If the data of a run cannot be loaded, the page says so and has
    the rest. Runs with the same data are compared on the same examples.

    Args:
        runs: The folder of a run, or of each.
        out: Where to; an existing file is replaced in one step.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        checkpoint: ``"best"`` or ``"last"``.
        examples: How many of the worst examples are shown, and of the best.
        device: Where the networks are.
        threads: How many threads torch uses.

    Returns:
        The path of the page.

    Raises:
        ValueError: If there is no run, one twice, or a run without the checkpoint; or there is no
            such split.

    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.experiment import override
    >>> from arcgrad.recipes.report import write_report
    >>> from arcgrad.recipes.train import train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=2", "optim.epochs=1"]
    >>> _ = train(override(find("demo"), sizes), "run", quiet=True)
    >>> write_report("run", "report.html").name
    'report.html'
    """
    paths = [Path(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not paths or len({path.resolve() for path in paths}) < len(paths):
        raise ValueError(
            "write_report: there must be runs, each once, but they are "
            f"{[str(path) for path in paths]}"
        )
    train.check_split("write_report", split)
    if examples < 0:
        raise ValueError(
            f"write_report: the number of examples must not be negative, but it is {examples}"
        )
    with train.torch_threads(threads):
        loaded = [
            load(path, name, color, checkpoint)
            for path, name, color in zip(paths, names(paths), colors(len(paths)), strict=True)
        ]
        datasets: dict[Any, Dataset] = {}
        for run in loaded:
            evaluate(run, datasets, split, device, threads)
        page = _template().render(
            runs=loaded,
            split=split,
            checkpoint=checkpoint,
            summary=summary(loaded),
            curves=curves(loaded),
            groups=[SideBySide(group, examples) for group in groups(loaded)],
            losses=losses(loaded),
            graphs=loss_graphs(loaded),
            settings=settings(loaded),
            environment=environment(loaded),
            commands=commands(loaded, out, split, checkpoint, examples),
            version=ag.__version__,
        )
    _files.write(out, page.encode())
    return Path(out)


def _template() -> jinja2.Template:
    templates = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    templates.filters["percent"] = percent
    return templates.from_string(TEMPLATE.read_text(encoding="utf-8"))
