"""Trains all cells of a table or figure of the paper, and writes it beside the paper's."""

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

from . import artefacts, catalog
from .artefacts import ARTEFACTS, Artefact, Cell
from .experiment import Experiment, nearest, override
from .run import EXPERIMENT, LAST, METRICS, load_history
from .train import evaluate_run, train

__all__ = ["reproduce"]

RESULT = "result.json"

# Sizes for a look at whether everything runs; the numbers mean little.
QUICK = {
    "letters": ("data.train=1000", "data.validation=60", "data.test=60", "optim.epochs=1"),
    "digits": ("data.train=400", "data.validation=40", "data.test=40", "optim.epochs=1"),
}
# Fewer texts have fewer pieces.
QUICK_PIECES = 5


def reproduce(
    artefact: str,
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
    """Trains what a table or figure needs and writes it, with that of the paper beside it.

    Runs are kept in ``out/runs``. Those that are done are not repeated and others go on where they
    were, so the same call continues after an interruption. Cells with the same settings share a
    run, within an artefact and between them.

    Args:
        artefact: ``"table1"`` to ``"table4"``, ``"fig5"``, ``"fig7"``, ``"fig8"``, or
            ``"variants"``, which is not in the paper.
        corpus: What to train on; by default data that come with the package.
        out: The folder for tables, pictures and runs.
        settings: Texts ``key=value`` for all cells, such as ``data.path=...``.
        quick: Whether to train very little, to see that everything runs.
        jobs: How many cells are trained at a time, each in a process.
        device: Where networks are.
        threads: How many threads torch uses, for each cell.
        quiet: Whether to print nothing.

    Returns:
        The files that were written.

    Raises:
        ValueError: If there is no such artefact, or not on that corpus.
    """
    if artefact not in ARTEFACTS:
        raise ValueError(
            f"reproduce: the artefact must be one of {', '.join(ARTEFACTS)}, but it is "
            f"{artefact!r}{nearest(artefact, ARTEFACTS)}"
        )
    wanted = ARTEFACTS[artefact]
    corpus = wanted.corpora[0] if corpus is None else corpus
    if corpus not in wanted.corpora:
        raise ValueError(
            f"reproduce: {artefact} must be on one of {', '.join(wanted.corpora)}, but it is on "
            f"{corpus!r}"
        )
    folder, settings = Path(out), list(settings)
    experiments = {
        name: _chosen(experiment, settings, quick)
        for name, experiment in wanted.experiments(corpus).items()
    }
    places = _places(experiments, folder / "runs") if wanted.is_trained else {}
    options = {"device": device, "threads": threads}
    epochs = {path: experiments[name].optim.epochs for name, path in places.items()}
    with _Reporter(f"{artefact} on {corpus}", epochs, quiet) as reporter:
        for path, result in _trained(experiments, places, jobs, options):
            reporter.done(path.relative_to(folder / "runs"), result)
    cells = {name: Cell(experiments[name], path, _result(path)) for name, path in places.items()}
    title = f"{wanted.title}, on {corpus}{' (quick)' if quick else ''}"
    command = ["arcgrad", "reproduce", artefact, "--data", corpus, *(["--quick"] if quick else [])]
    for setting in settings:
        command += ["--set", setting]
    source = artefacts.Source(corpus, cells, experiments)
    written = _write(wanted, source, title, shlex.join(command), folder)
    if not quiet:
        Console(soft_wrap=True, highlight=False).print(
            written[0].read_text(encoding="utf-8"), markup=False
        )
    return written


def _chosen(experiment: Experiment, settings: Iterable[str], quick: bool) -> Experiment:
    """An experiment with other settings, and made small."""
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


def _places(experiments: Mapping[str, Experiment], runs: Path) -> dict[str, Path]:
    """The folder of each cell's run: named after the first experiment with the same settings."""
    names = {
        replace(experiment, description=""): name
        for name, experiment in reversed(catalog.EXPERIMENTS.items())
        if name != "demo"
    }
    first: dict[Experiment, Path] = {}
    for name, experiment in experiments.items():
        # Cells that are the same in the catalog are so with other settings, too.
        key = replace(catalog.find(name), description="")
        first.setdefault(replace(experiment, description=""), runs / names[key])
    return {name: first[replace(e, description="")] for name, e in experiments.items()}


@dataclass(frozen=True)
class _Job:
    experiment: Experiment
    path: Path
    device: str
    threads: int


def _is_done(path: Path, experiment: Experiment) -> bool:
    """Whether a run is whole; one with other settings is an error."""
    if not (path / RESULT).exists():
        return False
    if _result(path).get("settings") != _comparable(experiment):
        raise ValueError(
            f"reproduce: a run must have the settings of its cell, but {str(path / EXPERIMENT)!r} "
            "has others; choose another folder"
        )
    return True


def _result(path: Path) -> dict[str, object]:
    """What a run came to."""
    try:
        return dict(json.loads((path / RESULT).read_bytes()))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"reproduce: {str(path / RESULT)!r} must be JSON, but it is not: {error}; remove it"
        ) from None


def _comparable(experiment: Experiment) -> dict[str, object]:
    return asdict(replace(experiment, description=""))


def _run(job: _Job) -> dict[str, object]:
    """Trains and tests a cell; a run in its folder goes on."""
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
    _files.write(job.path / RESULT, (json.dumps(found, indent=2) + "\n").encode())
    return found


def _end_with_parent() -> None:
    """Ends this process when the one that started it is gone, however that ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _trained(
    experiments: Mapping[str, Experiment],
    places: Mapping[str, Path],
    jobs: int,
    options: Mapping[str, object],
) -> Iterator[tuple[Path, dict[str, object]]]:
    """The runs, as they are done."""
    waiting: dict[Path, _Job] = {}
    for name, path in places.items():
        if _is_done(path, experiments[name]):
            continue
        waiting.setdefault(path, _Job(experiments[name], path, **options))  # type: ignore[arg-type]
    for path in dict.fromkeys(places.values()):
        if path not in waiting:
            yield path, _result(path)
    if jobs == 1:
        for path, job in waiting.items():
            yield path, _run(job)
        return
    # A fork would copy the threads' locks of torch.
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
    """A line for each cell that is done, and on a terminal a bar of the epochs of all."""

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
            # Epochs take long: so many are remembered for the time that is left.
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
        """Shows how many epochs there are in the folders of all runs, whatever process ran them."""
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
    artefact: Artefact, source: artefacts.Source, title: str, command: str, folder: Path
) -> list[Path]:
    """Writes the page of an artefact, its pictures, and its numbers as JSON."""
    cells, stem = source.cells, f"{artefact.name}-{source.corpus}"
    made = artefact.make(source)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{stem}.md", folder / f"{stem}.json"]
    pictures = []
    for name, figure in made.pictures.items():
        path = folder / f"{stem}-{name}.svg"
        picture = io.BytesIO()
        figure.savefig(picture, format="svg", metadata={"Date": None})
        _files.write(path, picture.getvalue())
        written.append(path)
        pictures.append(f"![{name}]({path.name})\n")
    body = "\n".join([f"# {title}\n", made.text, *pictures, artefacts.origin(command, cells)])
    _files.write(written[0], body.encode())
    numbers = {name: cell.result for name, cell in cells.items()} or made.numbers
    _files.write(written[1], (json.dumps(numbers, indent=2, ensure_ascii=False) + "\n").encode())
    return written
