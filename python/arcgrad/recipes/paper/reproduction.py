"""Train all cells of a table or figure of the paper, and write it with the paper's results."""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import itertools
import json
import multiprocessing
import os
import shlex
import statistics
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from arcgrad import _files
from arcgrad.recipes.checked_files import from_json, to_json
from arcgrad.recipes.experiments import Experiment, Preset, catalog, from_dict, nearest, override
from arcgrad.recipes.experiments.presets import usual_preset
from arcgrad.recipes.inference import evaluate_run
from arcgrad.recipes.run import EXPERIMENT, LAST, METRICS, load_environment, load_history
from arcgrad.recipes.training import train

from .differences import differences
from .tables import PAPER_TABLES, Cell, PaperTable, TableInputs, origin

__all__ = ["reproduce"]

RESULT = "result.json"

# Sizes for a test that everything runs; the results are not meaningful.
QUICK = {
    "letters": ("data.train=1000", "data.validation=60", "data.test=60", "optim.epochs=1"),
    "digits": ("data.train=400", "data.validation=40", "data.test=40", "optim.epochs=1"),
    **dict.fromkeys(
        ("iam", "librispeech", "wsj"),
        ("data.train=64", "data.validation=16", "data.test=16", "optim.epochs=1"),
    ),
}
# Fewer training texts have fewer pieces.
QUICK_PIECES = 5


def reproduce(
    table: str,
    corpus: str | None = None,
    out: str | os.PathLike[str] = "results",
    *,
    preset: Preset | None = None,
    seeds: int = 1,
    only: Sequence[str] = (),
    settings: Iterable[str] = (),
    quick: bool = False,
    jobs: int = 1,
    device: str = "cpu",
    threads: int = 1,
    quiet: bool = False,
) -> list[Path]:
    """Train the cells of a table or figure and write it, together with the paper's results.

    Runs are kept in ``out/runs``. Finished runs are not repeated and others are resumed, so the
    same call continues after an interruption, or with more seeds. Cells with the same settings
    share a run, also across tables.

    Args:
        table: ``"table1"`` to ``"table4"``, ``"fig5"``, ``"fig7"``, ``"fig8"``; ``"variants"``,
            which is not in the paper; or ``"settings"``, those of the paper and of our presets.
        corpus: The corpus; None for one that comes with the package.
        out: The folder for tables, pictures and runs.
        preset: ``"paper"`` for the settings of the paper's text, ``"published"`` for those of the
            recipes that its authors published, ``"small"`` for processors; None for ``"small"`` on
            corpora that come with the package, and ``"published"`` on others.
        seeds: The number of runs of each cell, with adjacent seeds. The page has their mean and
            standard deviation; pictures of single examples are of the first.
        only: Parts of names of cells, such as ``"ngram2/"``; other cells are not trained and stay
            empty on the page. All cells if there are none.
        settings: Texts ``key=value`` for all cells, such as ``data.path=...``.
        quick: Whether to train very little, as a test that everything runs.
        jobs: The number of cells to train at a time, each in its own process.
        device: The device of the networks.
        threads: The number of threads of torch per cell.
        quiet: Whether to print nothing.

    Returns:
        The files that were written.

    Raises:
        ValueError: If there is no such table, or it cannot be made on the corpus or with the
            preset.
    """
    if table not in PAPER_TABLES:
        raise ValueError(
            f"reproduce: the table must be one of {', '.join(PAPER_TABLES)}, but it is "
            f"{table!r}{nearest(table, PAPER_TABLES)}"
        )
    wanted = PAPER_TABLES[table]
    corpus = wanted.corpora[0] if corpus is None else corpus
    if corpus not in wanted.corpora:
        raise ValueError(
            f"reproduce: {table} must be on one of {', '.join(wanted.corpora)}, but it is on "
            f"{corpus!r}"
        )
    if seeds < 1:
        raise ValueError(f"reproduce: there must be at least 1 seed, but there are {seeds}")
    folder, settings = Path(out), list(settings)
    experiments = {
        name: _chosen(experiment, settings, quick)
        for name, experiment in wanted.experiments(corpus, preset).items()
        if not only or any(part in name for part in only)
    }
    if not experiments and only:
        raise ValueError(
            f"reproduce: only must be parts of names of cells, but no cell of {table} on {corpus} "
            f"has {' or '.join(map(repr, only))}"
        )
    if not experiments:
        raise ValueError(
            f"reproduce: {table} on {corpus} must have another preset, but it is {preset!r}"
        )
    seeds = seeds if wanted.is_averaged else 1
    is_usual = preset is None or preset == usual_preset(corpus)
    root = folder / "runs" if is_usual else folder / "runs" / str(preset)
    runs: dict[str, list[_Run]] = {}
    if wanted.is_trained:
        runs = _runs(experiments, catalog(corpus, preset), root, seeds)
    options = {"device": device, "threads": threads}
    epochs = {run.path: run.experiment.optim.epochs for each in runs.values() for run in each}
    with _Reporter(f"{table} on {corpus}", epochs, quiet) as reporter:
        for path, result in _trained(runs, jobs, options):
            reporter.done(path.relative_to(folder / "runs"), result)
    trained = {
        name: Cell(experiments[name], [run.path for run in each], [_result(r.path) for r in each])
        for name, each in runs.items()
    }
    # A table that is made on one corpus only is about none.
    is_general = len(wanted.corpora) == 1
    title = wanted.title if is_general else f"{wanted.title}, on {corpus}"
    if not is_usual:
        title += f", preset {preset}"
    command = ["arcgrad", "reproduce", table, *([] if is_general else ["--data", corpus])]
    command += [] if is_usual else ["--preset", str(preset)]
    command += ["--seeds", str(seeds)] if seeds > 1 else []
    for part in only:
        command += ["--only", part]
    command += ["--quick"] if quick else []
    for setting in settings:
        command += ["--set", setting]
    inputs = TableInputs(corpus, trained, experiments)
    stem = table if is_general else f"{table}-{corpus}"
    stem += "" if is_usual else f"-{preset}"
    title += " (quick)" if quick else ""
    written = _write(wanted, inputs, title, shlex.join(command), folder / stem)
    if not quiet:
        Console(soft_wrap=True, highlight=False).print(
            written[0].read_text(encoding="utf-8"), markup=False
        )
    return written


def _chosen(experiment: Experiment, settings: Iterable[str], quick: bool) -> Experiment:
    """Return an experiment with some settings changed and, if quick, little training."""
    if quick:
        experiment = override(experiment, QUICK.get(experiment.data.corpus, ["optim.epochs=1"]))
        if experiment.data.corpus != "digits":
            tokens, model = experiment.tokens, experiment.model
            experiment = replace(
                experiment,
                tokens=replace(tokens, num_pieces=tokens.num_pieces // QUICK_PIECES),
                model=replace(model, inner_pieces=model.inner_pieces // 2),
            )
    return override(experiment, settings)


@dataclass(frozen=True)
class _Run:
    """A training of a cell with one seed, and its folder."""

    experiment: Experiment
    path: Path


def _runs(
    experiments: Mapping[str, Experiment], named: Mapping[str, Experiment], root: Path, seeds: int
) -> dict[str, list[_Run]]:
    """Return the runs of each cell, in a folder named after the first experiment like it."""
    names: dict[Experiment, str] = {}
    for name, experiment in named.items():
        names.setdefault(replace(experiment, description=""), name)
    first: dict[Experiment, str] = {}
    for name, experiment in experiments.items():
        # Equal cells of the catalog stay equal when the same settings are changed in both.
        key = replace(named[name], description="")
        first.setdefault(replace(experiment, description=""), names[key])
    runs: dict[str, list[_Run]] = {}
    for name, experiment in experiments.items():
        folder = root / first[replace(experiment, description="")]
        seeded = (replace(experiment, seed=experiment.seed + number) for number in range(seeds))
        runs[name] = [_Run(each, folder / f"seed{each.seed}") for each in seeded]
    return runs


def _is_done(path: Path, experiment: Experiment) -> bool:
    """Return whether a run is finished; raise if it has other settings."""
    if not (path / RESULT).exists():
        return False
    # Settings that were added later have their defaults.
    before = from_dict(_result(path).get("settings", {}), source=path / RESULT)
    if replace(before, description="") != replace(experiment, description=""):
        raise ValueError(
            f"reproduce: a run must have the settings of its cell, but {str(path / EXPERIMENT)!r} "
            "has others; choose another folder"
        )
    return True


def _result(path: Path) -> dict[str, Any]:
    """Return the result of a finished run."""
    file = path / RESULT
    try:
        return from_json("reproduce", file, file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{error}; remove it") from None


def _comparable(experiment: Experiment) -> dict[str, object]:
    return asdict(replace(experiment, description=""))


def _run(run: _Run, device: str, threads: int) -> dict[str, object]:
    """Train and test a run; an unfinished run in its folder is resumed."""
    result = train(
        run.experiment,
        run.path,
        resume=(run.path / LAST).exists(),
        device=device,
        threads=threads,
        quiet=True,
    )
    if result.interrupted:
        raise KeyboardInterrupt
    tested = evaluate_run(run.path, "test", device=device, threads=threads)
    rows = load_history(run.path)
    best = min(rows, key=lambda row: row["validation_cer"])
    found: dict[str, object] = {
        "seed": run.experiment.seed,
        "train_cer": rows[-1]["train_cer"],
        "validation_cer": best["validation_cer"],
        "validation_wer": best["validation_wer"],
        "test_cer": tested.cer,
        "test_wer": tested.wer,
        "epochs": len(rows),
        "seconds": rows[-1]["seconds"],
        "cpu_seconds": rows[-1]["cpu_seconds"],
        "epoch_cpu_seconds": statistics.median(row["epoch_cpu_seconds"] for row in rows),
        "commit": load_environment(run.path)["commit"],
        "settings": _comparable(run.experiment),
    }
    _files.write(run.path / RESULT, to_json(found))
    return found


def _end_with_parent() -> None:
    """Exit this process when its parent process ends for any reason."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _trained(
    runs: Mapping[str, Sequence[_Run]], jobs: int, options: Mapping[str, Any]
) -> Iterator[tuple[Path, dict[str, object]]]:
    """Train the cells; yield the folder and the result of each run as soon as it is finished."""
    waiting: dict[Path, _Run] = {}
    # All cells of a seed before the next seed, so that an early look compares equals.
    for each in itertools.zip_longest(*runs.values()):
        for run in each:
            if _is_done(run.path, run.experiment):
                yield run.path, _result(run.path)
            else:
                waiting.setdefault(run.path, run)
    if jobs == 1:
        for path, run in waiting.items():
            yield path, _run(run, **options)
        return
    # A fork would copy locks that torch's threads hold.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_end_with_parent
    ) as pool:
        futures = {pool.submit(_run, run, **options): path for path, run in waiting.items()}
        try:
            for future in concurrent.futures.as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class _Reporter:
    """Prints a line for each finished cell, and on a terminal a bar for all epochs."""

    def __init__(self, what: str, epochs: Mapping[Path, int], quiet: bool) -> None:
        self._console = Console(quiet=quiet, highlight=False, soft_wrap=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("epoch {task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=self._console,
            transient=True,
            disable=quiet or not self._console.is_terminal,
            # Epochs take long, so the remaining time is estimated from all of them.
            speed_estimate_period=24 * 3600,
        )
        self._what, self._epochs, self._count = what, epochs, 0
        self._is_over = threading.Event()
        self._watch = threading.Thread(target=self._count_epochs, daemon=True)

    def __enter__(self) -> _Reporter:
        if self._epochs:
            self._console.print(
                f"{self._what}: {len(self._epochs)} runs, {sum(self._epochs.values())} epochs",
                markup=False,
            )
        self._progress.start()
        self._task = self._progress.add_task(self._what, total=sum(self._epochs.values()))
        if not self._progress.disable:
            self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._watch.is_alive():
            self._watch.join()
        self._progress.stop()

    def _count_epochs(self) -> None:
        """Show the number of epochs in the folders of all runs, of whichever process."""
        while not self._is_over.wait(1.0):
            done = 0
            for path in self._epochs:
                with contextlib.suppress(OSError):
                    done += (path / METRICS).read_bytes().count(b"\n")
            self._progress.update(self._task, completed=done)

    def done(self, name: Path, result: Mapping[str, object]) -> None:
        self._count += 1
        self._console.print(
            f"{self._count}/{len(self._epochs)}  {name}  CER {result['validation_cer']:.2f}%  "
            f"{result['seconds']:.0f} s",
            markup=False,
        )


def _write(
    table: PaperTable, inputs: TableInputs, title: str, command: str, stem: Path
) -> list[Path]:
    """Write the page of a table, its pictures, and its results as JSON."""
    rendered = table.make(inputs)
    stem.parent.mkdir(parents=True, exist_ok=True)
    numbers: Mapping[str, Any] = rendered.numbers
    if inputs.cells:
        numbers = {name: {"runs": cell.results} for name, cell in inputs.cells.items()}
    written = [stem.with_name(f"{stem.name}.md")]
    if numbers:
        written.append(stem.with_name(f"{stem.name}.json"))
        text = json.dumps(numbers, indent=2, ensure_ascii=False) + "\n"
        _files.write(written[1], text.encode())
    pictures = []
    for name, figure in rendered.pictures.items():
        path = stem.with_name(f"{stem.name}-{name}.svg")
        picture = io.BytesIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
        _files.write(path, picture.getvalue())
        written.append(path)
        pictures.append(f"![{name}]({path.name})\n")
    parts = [f"# {title}\n", rendered.text, *pictures]
    if inputs.cells:
        parts.append(differences(inputs.experiments, inputs.corpus))
    _files.write(written[0], "\n".join([*parts, origin(command, inputs.cells)]).encode())
    return written
