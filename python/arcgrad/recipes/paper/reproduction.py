"""Train all cells of a table or figure of the paper, and write it with the paper's results."""

from __future__ import annotations

import concurrent.futures
import contextlib
import io
import json
import multiprocessing
import os
import shlex
import statistics
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

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
from arcgrad.recipes.experiments import EXPERIMENTS, Experiment, nearest, override
from arcgrad.recipes.inference import evaluate_run
from arcgrad.recipes.run import EXPERIMENT, LAST, METRICS, load_history
from arcgrad.recipes.training import train

from .tables import PAPER_TABLES, Cell, PaperTable, TableInputs, origin

__all__ = ["reproduce"]

RESULT = "result.json"

# Sizes for a test that everything runs; the results are not meaningful.
QUICK = {
    "letters": ("data.train=1000", "data.validation=60", "data.test=60", "optim.epochs=1"),
    "digits": ("data.train=400", "data.validation=40", "data.test=40", "optim.epochs=1"),
}
# Fewer training texts have fewer pieces.
QUICK_PIECES = 5


def reproduce(
    table: str,
    corpus: str | None = None,
    out: str | os.PathLike[str] = "results",
    *,
    settings: Iterable[str] = (),
    quick: bool = False,
    jobs: int = 1,
    device: str = "cpu",
    threads: int = 1,
    quiet: bool = False,
) -> list[Path]:
    """Train the cells of a table or figure and write it, together with the paper's results.

    Runs are kept in ``out/runs``. Finished runs are not repeated and others are resumed, so the
    same call continues after an interruption. Cells with the same settings share a run, also across
    tables.

    Args:
        table: ``"table1"`` to ``"table4"``, ``"fig5"``, ``"fig7"``, ``"fig8"``, or ``"variants"``,
            which is not in the paper.
        corpus: The corpus; None for one that comes with the package.
        out: The folder for tables, pictures and runs.
        settings: Texts ``key=value`` for all cells, such as ``data.path=...``.
        quick: Whether to train very little, as a test that everything runs.
        jobs: The number of cells to train at a time, each in its own process.
        device: The device of the networks.
        threads: The number of threads of torch per cell.
        quiet: Whether to print nothing.

    Returns:
        The files that were written.

    Raises:
        ValueError: If there is no such table, or it cannot be made on the corpus.
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
    folder, settings = Path(out), list(settings)
    experiments = {
        name: _chosen(experiment, settings, quick)
        for name, experiment in wanted.experiments(corpus).items()
    }
    folders = _run_folders(experiments, folder / "runs") if wanted.is_trained else {}
    options = {"device": device, "threads": threads}
    epochs = {path: experiments[name].optim.epochs for name, path in folders.items()}
    with _Reporter(f"{table} on {corpus}", epochs, quiet) as reporter:
        for path, result in _trained(experiments, folders, jobs, options):
            reporter.done(path.relative_to(folder / "runs"), result)
    cells = {name: Cell(experiments[name], path, _result(path)) for name, path in folders.items()}
    title = f"{wanted.title}, on {corpus}{' (quick)' if quick else ''}"
    command = ["arcgrad", "reproduce", table, "--data", corpus, *(["--quick"] if quick else [])]
    for setting in settings:
        command += ["--set", setting]
    inputs = TableInputs(corpus, cells, experiments)
    written = _write(wanted, inputs, title, shlex.join(command), folder)
    if not quiet:
        Console(soft_wrap=True, highlight=False).print(
            written[0].read_text(encoding="utf-8"), markup=False
        )
    return written


def _chosen(experiment: Experiment, settings: Iterable[str], quick: bool) -> Experiment:
    """Return an experiment with some settings changed and, if quick, little training."""
    if quick:
        experiment = override(experiment, QUICK.get(experiment.data.corpus, ["optim.epochs=1"]))
        if experiment.data.corpus == "letters":
            tokens, model = experiment.tokens, experiment.model
            experiment = replace(
                experiment,
                tokens=replace(tokens, num_pieces=tokens.num_pieces // QUICK_PIECES),
                model=replace(model, inner_pieces=model.inner_pieces // 2),
            )
    return override(experiment, settings)


def _run_folders(experiments: Mapping[str, Experiment], runs: Path) -> dict[str, Path]:
    """Return the folder of each cell's run, named after the first experiment like it."""
    names = {
        replace(experiment, description=""): name
        for name, experiment in reversed(EXPERIMENTS.items())
        if name != "demo"
    }
    first: dict[Experiment, Path] = {}
    for name, experiment in experiments.items():
        # Equal cells of the catalog stay equal when the same settings are changed in both.
        key = replace(EXPERIMENTS[name], description="")
        first.setdefault(replace(experiment, description=""), runs / names[key])
    return {name: first[replace(e, description="")] for name, e in experiments.items()}


@dataclass(frozen=True)
class _Job:
    experiment: Experiment
    path: Path
    device: str
    threads: int


def _is_done(path: Path, experiment: Experiment) -> bool:
    """Return whether a run is finished; raise if it has other settings."""
    if not (path / RESULT).exists():
        return False
    if _result(path).get("settings") != _comparable(experiment):
        raise ValueError(
            f"reproduce: a run must have the settings of its cell, but {str(path / EXPERIMENT)!r} "
            "has others; choose another folder"
        )
    return True


def _result(path: Path) -> dict[str, object]:
    """Return the result of a finished run."""
    file = path / RESULT
    try:
        return from_json("reproduce", file, file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{error}; remove it") from None


def _comparable(experiment: Experiment) -> dict[str, object]:
    return asdict(replace(experiment, description=""))


def _run(job: _Job) -> dict[str, object]:
    """Train and test a cell; an unfinished run in its folder is resumed."""
    result = train(
        job.experiment,
        job.path,
        resume=(job.path / LAST).exists(),
        device=job.device,
        threads=job.threads,
        quiet=True,
    )
    if result.interrupted:
        raise KeyboardInterrupt
    tested = evaluate_run(job.path, "test", device=job.device, threads=job.threads)
    rows = load_history(job.path)
    best = min(rows, key=lambda row: row["validation_cer"])
    found: dict[str, object] = {
        "validation_cer": best["validation_cer"],
        "validation_wer": best["validation_wer"],
        "test_cer": tested.cer,
        "test_wer": tested.wer,
        "epochs": len(rows),
        "seconds": rows[-1]["seconds"],
        "cpu_seconds": rows[-1]["cpu_seconds"],
        "epoch_cpu_seconds": statistics.median(row["epoch_cpu_seconds"] for row in rows),
        "settings": _comparable(job.experiment),
    }
    _files.write(job.path / RESULT, to_json(found))
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
    experiments: Mapping[str, Experiment],
    folders: Mapping[str, Path],
    jobs: int,
    options: Mapping[str, object],
) -> Iterator[tuple[Path, dict[str, object]]]:
    """Train the cells; yield the folder and the result of each as soon as it is finished."""
    waiting: dict[Path, _Job] = {}
    for name, path in folders.items():
        if _is_done(path, experiments[name]):
            continue
        waiting.setdefault(path, _Job(experiments[name], path, **options))  # type: ignore[arg-type]
    for path in dict.fromkeys(folders.values()):
        if path not in waiting:
            yield path, _result(path)
    if jobs == 1:
        for path, job in waiting.items():
            yield path, _run(job)
        return
    # A fork would copy locks that torch's threads hold.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_end_with_parent
    ) as pool:
        futures = {pool.submit(_run, job): path for path, job in waiting.items()}
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
    table: PaperTable, inputs: TableInputs, title: str, command: str, folder: Path
) -> list[Path]:
    """Write the page of a table, its pictures, and its results as JSON."""
    cells, stem = inputs.cells, f"{table.name}-{inputs.corpus}"
    rendered = table.make(inputs)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{stem}.md", folder / f"{stem}.json"]
    pictures = []
    for name, figure in rendered.pictures.items():
        path = folder / f"{stem}-{name}.svg"
        picture = io.BytesIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
        _files.write(path, picture.getvalue())
        written.append(path)
        pictures.append(f"![{name}]({path.name})\n")
    body = "\n".join([f"# {title}\n", rendered.text, *pictures, origin(command, cells)])
    _files.write(written[0], body.encode())
    numbers = {name: cell.result for name, cell in cells.items()} or rendered.numbers
    _files.write(written[1], (json.dumps(numbers, indent=2, ensure_ascii=False) + "\n").encode())
    return written
