"""Evaluate runs and write the page about them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

import arcgrad as ag
from arcgrad import _files
from arcgrad.recipes.data import Dataset, read_split
from arcgrad.recipes.inference import torch_threads

from .command_lines import command_lines
from .curves import curves
from .graphs import loss_graphs, losses
from .page_runs import colors, evaluate, groups, load, names
from .run_tables import environment, percent, settings, summary
from .side_by_side import SideBySide

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
    """Write a page about one run, or about several runs side by side.

    The page has error rates, learning curves, the best and the worst examples with their
    alignments, the graph of the loss, frequent confusions, all settings, and the command lines that
    reproduce it. Pictures are embedded. If the data of a run cannot be loaded, the page says why.
    Runs on the same data are compared on the same examples.

    Args:
        runs: The folder of a run, or several folders.
        out: The file to write; an existing file is replaced atomically.
        split: ``"train"``, ``"validation"`` or ``"test"``.
        checkpoint: ``"best"`` or ``"last"``.
        examples: The number of worst examples to show, and of best examples.
        device: The device of the networks.
        threads: The number of threads of torch.

    Returns:
        The path of the page.

    Raises:
        ValueError: If there is no run, a run occurs twice, a run lacks the checkpoint, or there is
            no such split or device.

    >>> from arcgrad.recipes.experiments import find, override
    >>> from arcgrad.recipes.report import write_report
    >>> from arcgrad.recipes.training import train
    >>> sizes = ["data.train=8", "data.validation=4", "data.test=2", "optim.epochs=1"]
    >>> _ = train(override(find("demo"), sizes), "run", quiet=True)
    >>> write_report("run", "report.html").name
    'report.html'
    """
    paths = [Path(run) for run in ([runs] if isinstance(runs, str | os.PathLike) else runs)]
    if not paths or len({path.resolve() for path in paths}) < len(paths):
        raise ValueError(
            "write_report: there must be at least one run, and no run twice, but they are "
            f"{[str(path) for path in paths]}"
        )
    part = read_split("write_report", split)
    if examples < 0:
        raise ValueError(
            f"write_report: the number of examples must not be negative, but it is {examples}"
        )
    with torch_threads(threads):
        loaded = [
            load(path, name, color, checkpoint, device)
            for path, name, color in zip(paths, names(paths), colors(len(paths)), strict=True)
        ]
        datasets: dict[Any, Dataset] = {}
        for run in loaded:
            evaluate(run, datasets, part, threads)
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
            commands=command_lines(loaded, out, split, checkpoint, examples),
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
