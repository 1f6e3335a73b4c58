"""The report of one or several runs: a page that needs no network and no other file."""

from __future__ import annotations

import base64
import io
import math
import os
import re
import shlex
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import torch

import arcgrad as ag
from arcgrad import _files

from . import analysis, metrics, train
from .alignment import token_names
from .catalog import EXPERIMENTS
from .data import Dataset
from .experiment import Experiment, to_dict
from .metrics import Evaluation, Scored
from .reading import Reading, read
from .recognizer import Recognizer
from .run import load_environment, load_history

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["write_report"]

TEMPLATE = Path(__file__).with_name("report.html.j2")

# Of runs, to be told apart on light and on dark paper.
COLORS = (
    *("#2f7ed8", "#d9480f", "#2b9348", "#ae3ec9", "#0c8599"),
    *("#e03170", "#8a6d00", "#7048e8", "#7d8590", "#a0522d"),
)

# What is drawn in the colour for light paper gets the other one for dark paper.
INK = {"light": "#1c1d20", "dark": "#e7e8ea"}

NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))

# Where a table has no number.
NOTHING = "?"

# How many confusions and word-piece decompositions are listed.
MOST_ROWS = 10

# Curves whose values are further apart than this have a logarithmic axis.
WIDE = 8.0

CURVES = (
    ("loss", "loss for each letter", ("train_loss", "validation_loss")),
    ("CER", "CER in percent", ("train_cer", "validation_cer")),
    ("WER", "WER in percent", ("train_wer", "validation_wer")),
    ("learning rate", "learning rate", ("learning_rate",)),
)


@dataclass(eq=False)
class _Run:
    """What a page says about a run."""

    path: Path
    name: str
    color: str
    experiment: Experiment
    recognizer: Recognizer
    history: list[dict[str, float]]
    environment: dict[str, Any]
    dataset: Dataset | None = None
    evaluation: Evaluation | None = None
    problem: str = ""
    comparisons: list[analysis.Comparison] = field(default_factory=list)

    @property
    def has_lexicon(self) -> bool:
        """Whether the loss leaves the word pieces of a text to the model."""
        return self.recognizer.criterion.lexicon is not None


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
            _load(path, name, color, checkpoint)
            for path, name, color in zip(paths, _names(paths), _colors(len(paths)), strict=True)
        ]
        datasets: dict[Any, Dataset] = {}
        for run in loaded:
            _evaluate(run, datasets, split, device, threads)
        page = _template().render(
            runs=loaded,
            split=split,
            checkpoint=checkpoint,
            summary=_summary(loaded),
            curves=_curves(loaded),
            groups=[_Comparison(group, examples) for group in _groups(loaded)],
            losses=_losses(loaded),
            graphs=_loss_graphs(loaded),
            settings=_settings(loaded),
            environment=_environment(loaded),
            commands=_commands(loaded, out, split, checkpoint, examples),
            version=ag.__version__,
        )
    _files.write(out, page.encode())
    return Path(out)


def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = _percent
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8"))


def _percent(rate: float) -> str:
    return f"{rate:.2f}%" if math.isfinite(rate) else "∞"


# Runs


def _names(paths: Sequence[Path]) -> list[str]:
    """A short name for each run: what its path has after the folder that all share.

    Of a single run the last folders: its own is often just called run.
    """
    whole = [path.resolve() for path in paths]
    if len(whole) == 1:
        return ["/".join(whole[0].parts[-3:])]
    common = os.path.commonpath(whole)
    names = [os.path.relpath(path, common) for path in whole]
    return [path.name if name == "." else name for name, path in zip(names, whole, strict=True)]


def _colors(count: int) -> list[str]:
    return [COLORS[i % len(COLORS)] for i in range(count)]


def _load(path: Path, name: str, color: str, checkpoint: str) -> _Run:
    experiment, recognizer = train.load_run(path, checkpoint)
    history, environment = load_history(path), load_environment(path)
    environment.pop("earlier", None)
    return _Run(path, name, color, experiment, recognizer, history, environment)


def _evaluate(
    run: _Run, datasets: dict[Any, Dataset], split: str, device: str, threads: int
) -> None:
    """Adds the data of a run and its errors, or why there are none."""
    # Runs often share their data, which take longer to load than to recognise.
    key = run.experiment.data, run.experiment.tokens, run.experiment.seed
    try:
        if key not in datasets:
            datasets[key] = train.load_split(run.experiment, split)
        dataset = datasets[key]
    except (OSError, ValueError) as error:
        run.problem = " ".join(str(error).split())
        return
    options: dict[str, Any] = {"batch_size": run.experiment.optim.batch_size, "device": device}
    run.dataset = dataset
    run.evaluation = train.evaluate_recognizer(run.recognizer, dataset, threads=threads, **options)
    if run.has_lexicon:
        pieces = _decompositions(run, train.outputs(run.recognizer, dataset, **options))
        tokenizer = run.recognizer.tokenizer
        run.comparisons = analysis.compare(
            analysis.count_decompositions(pieces),
            lambda word: [tokenizer.tokens[label] for label in tokenizer.encode(word)],
        )[:MOST_ROWS]


def _decompositions(run: _Run, outputs: Iterator[Any]) -> Iterator[list[str]]:
    """The best word pieces of each reference."""
    names = token_names(run.recognizer)
    for batch, emissions, lengths in outputs:
        for one, length, text in zip(emissions, lengths.tolist(), batch.texts, strict=True):
            yield [names[span.token] for span in run.recognizer.align(one, length, text)]


def _groups(runs: Sequence[_Run]) -> list[list[_Run]]:
    """The runs that were evaluated, those with the same data together."""
    groups: dict[Any, list[_Run]] = {}
    for run in runs:
        if run.dataset is not None:
            key = tuple(run.dataset.ids), tuple(run.dataset.texts)
            groups.setdefault(key, []).append(run)
    return list(groups.values())


# Pictures


@dataclass(frozen=True)
class _Picture:
    """An SVG image for light and for dark paper, as addresses that hold all of it.

    The width is in points.
    """

    light: str
    dark: str
    alt: str
    width: float

    @classmethod
    def of(cls, svg: str, alt: str) -> _Picture:
        """A picture that is drawn in the colour for light paper."""
        dark = svg.replace(INK["light"], INK["dark"])
        width = re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)
        assert width is not None
        return cls(_address(svg), _address(dark), alt, float(width[1]))


def _address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _drawn(draw: Callable[[], Figure], alt: str) -> _Picture:
    """A picture by matplotlib."""
    import matplotlib

    colored = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = {
        **dict.fromkeys(colored, INK["light"]),
        "svg.fonttype": "none",
        "svg.hashsalt": "arcgrad",
    }
    file = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # The letters are drawn by the browser, whatever letters the font here lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        draw().savefig(file, format="svg", transparent=True, metadata=NO_METADATA)
    return _Picture.of(file.getvalue(), alt)


@dataclass(frozen=True)
class _Curves:
    """The picture of a number by epoch."""

    title: str
    picture: _Picture


def _curves(runs: Sequence[_Run]) -> list[_Curves]:
    """The learning curves; none if no run has an epoch."""
    if not any(run.history for run in runs):
        return []
    return [
        _Curves(
            title,
            _drawn(partial(_draw_curves, runs, axis, keys), _curves_alt(runs, title, keys)),
        )
        for title, axis, keys in CURVES
    ]


def _values(run: _Run, key: str) -> list[tuple[int, float]]:
    rows = [(int(row["epoch"]), row[key]) for row in run.history if key in row]
    return [(epoch, value) for epoch, value in rows if math.isfinite(value)]


def _draw_curves(runs: Sequence[_Run], axis: str, keys: Sequence[str]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    figure = Figure(figsize=(4.8, 3.0), layout="constrained")
    axes: Any = figure.subplots()
    for run in runs:
        for key in keys:
            points = _values(run, key)
            axes.plot(
                [epoch for epoch, _ in points],
                [value for _, value in points],
                linestyle="--" if key.startswith("train") else "-",
                color=run.color,
                marker="o",
                markersize=4,
                linewidth=1.5,
            )
    values = [value for run in runs for key in keys for _, value in _values(run, key)]
    least, greatest = min(values, default=0.0), max(values, default=0.0)
    axes.set_xlabel("epoch")
    if len(keys) > 1 and least > 0 and greatest > WIDE * least:
        axis += ", log scale"
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(NullLocator())
    elif least >= 0:
        axes.set_ylim(0.0, 1.05 * greatest or 1.0)
    axes.set_ylabel(axis)
    axes.set_xlim(0.5, max(len(run.history) for run in runs) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _curves_alt(runs: Sequence[_Run], title: str, keys: Sequence[str]) -> str:
    parts = []
    for run in runs:
        for key in keys:
            values = _values(run, key)
            if values:
                kind = f" {key.split('_')[0]}" if len(keys) > 1 else ""
                first, last = values[0][1], values[-1][1]
                parts.append(f"{run.name}{kind} from {first:.4g} to {last:.4g}")
    return f"{title} by epoch: {'; '.join(parts) or 'no numbers'}"


# Examples


@dataclass(frozen=True)
class _Shown:
    """An example, as a run reads it."""

    run: _Run
    scored: Scored
    parts: list[metrics.Difference]
    alignment: _Picture
    decomposition: _Picture | None
    pieces: list[str]


@dataclass(frozen=True)
class _Example:
    """An example, as all runs read it."""

    id: str
    shown: list[_Shown]


class _Comparison:
    """Runs with the same data: their confusions, and the worst and best examples of all."""

    def __init__(self, runs: list[_Run], count: int) -> None:
        self.runs = runs
        self.confusions = [
            (run, metrics.confusions(run.evaluation.examples).most_common(MOST_ROWS))
            for run in runs
            if run.evaluation is not None
        ]
        order = _from_worst_to_best([run.evaluation for run in runs if run.evaluation is not None])
        half = (len(order) + 1) // 2  # no example is among the worst and the best
        self.worst = [self._example(i) for i in order[:half][:count]]
        self.best = [self._example(i) for i in order[half:][::-1][:count]]

    def _example(self, index: int) -> _Example:
        dataset = self.runs[0].dataset
        assert dataset is not None
        return _Example(dataset.ids[index], [_show(run, index) for run in self.runs])


def _from_worst_to_best(evaluations: Sequence[Evaluation]) -> list[int]:
    """Examples by the errors of all runs together; of those without any the longest are best."""

    def key(index: int) -> tuple[float, int]:
        errors = [evaluation.examples[index].chars for evaluation in evaluations]
        return -sum(e.rate for e in errors), errors[0].length

    return sorted(range(len(evaluations[0].examples)), key=key)


def _show(run: _Run, index: int) -> _Shown:
    assert run.dataset is not None
    assert run.evaluation is not None
    scored = run.evaluation.examples[index]
    reading = read(run.recognizer, run.dataset[index])
    what = "log-mel features" if run.recognizer.is_speech else "image of the line"
    alignment = _drawn(
        reading.draw_alignment,
        f"The {what}, and below it the probabilities of labels by frame with the best path, which "
        f"reads “{reading.hypothesis}”",
    )
    pieces = [span.piece for span in reading.pieces]
    return _Shown(
        run,
        scored,
        metrics.differences(scored.reference, scored.hypothesis),
        alignment,
        _decomposition(reading, what) if pieces else None,
        pieces,
    )


def _decomposition(reading: Reading, what: str) -> _Picture:
    pieces = ", ".join(span.piece for span in reading.pieces)
    return _drawn(reading.draw_pieces, f"The {what} with the word pieces {pieces} where they lie")


# The loss


@dataclass(frozen=True)
class _LossGraph:
    """A graph of the losses of some runs, as a picture or, if it cannot be drawn, as text."""

    title: str
    size: str
    text: str
    picture: _Picture | None
    problem: str
    names: list[str] = field(default_factory=list)


def _losses(runs: Sequence[_Run]) -> dict[str, list[str]]:
    """The names of the runs with each loss."""
    found: dict[str, list[str]] = {}
    for run in runs:
        criterion = run.recognizer.criterion
        loss = f"{type(criterion).__name__}({criterion.extra_repr()})"
        found.setdefault(loss, []).append(run.name)
    return found


def _loss_graphs(runs: Sequence[_Run]) -> list[_LossGraph]:
    """The graphs of the losses for a short word; those that are the same once."""
    found: dict[Any, _LossGraph] = {}
    for run in runs:
        names = token_names(run.recognizer)
        for title, graph in _graphs_of(run, _short_word(run)):
            key = title, tuple(names), _text(graph)
            if key not in found:
                found[key] = _draw_graph(title, graph, names)
            found[key].names.append(run.name)
    return list(found.values())


def _short_word(run: _Run) -> str:
    """A word of about three letters, the most frequent of the data if they are there."""
    tokens = run.recognizer.tokenizer.tokens
    letters = [token for token in tokens if len(token) == 1 and token.isalpha()]
    if run.dataset is None:
        return "".join(letters[:3])
    known = set("".join(tokens))
    counts = Counter(word for text in run.dataset.texts for word in text.split())
    words = [word for word in counts if set(word) <= known] or ["".join(letters[:3])]
    return min(words, key=lambda word: (abs(len(word) - 3), -counts[word], word))


def _graphs_of(run: _Run, word: str) -> list[tuple[str, ag.Graph]]:
    criterion = run.recognizer.criterion
    lexicon = criterion.lexicon
    if isinstance(lexicon, ag.lexicon.Lexicon):
        target = ag.lexicon.decompositions(lexicon, word)
        graphs = [(f"The ways to spell “{word}” in word pieces", target)]
    else:
        labels = run.recognizer.tokenizer.encode(word, skip_unknown=True)
        target = ag.chain_graph([label + run.recognizer.first_label for label in labels])
        graphs = []
    alignments = ag.tokens.alignment_graph(criterion.tokens, target)
    return [*graphs, (f"The alignments of “{word}” that the loss sums over", alignments)]


def _text(graph: ag.Graph) -> str:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.txt"
        ag.savetxt(file, graph)
        return file.read_text()


def _draw_graph(title: str, graph: ag.Graph, names: Sequence[str]) -> _LossGraph:
    size = f"{graph.num_nodes()} nodes and {graph.num_arcs()} arcs"
    picture, problem = None, ""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "graph.svg"
        try:
            ag.draw(graph, file, list(names), max_seconds=20.0)
            picture = _Picture.of(_recolored(file.read_text()), f"{title}: a graph with {size}")
        except (ImportError, RuntimeError, TimeoutError, ValueError) as error:
            problem = str(error)
    return _LossGraph(title, size, _text(graph), picture, problem)


def _recolored(svg: str) -> str:
    """A picture by Graphviz in the colour for light paper, without paper of its own."""
    svg = svg[svg.index("<svg") :].replace('"black"', f'"{INK["light"]}"')
    svg = svg.replace('fill="white"', 'fill="none"').replace("Times,serif", "sans-serif")
    return svg.replace("<svg ", f'<svg fill="{INK["light"]}" ', 1)


# Numbers and settings


@dataclass(frozen=True)
class _Row:
    """A row of a table with a cell for each run."""

    name: str
    cells: list[str]

    @property
    def differs(self) -> bool:
        """Whether runs differ in it."""
        return len(set(self.cells)) > 1


def _summary(runs: Sequence[_Run]) -> list[_Row]:
    def errors(run: _Run, what: str) -> str:
        if run.evaluation is None:
            return NOTHING
        e: metrics.Errors = getattr(run.evaluation, what)
        return f"{e.substitutions}, {e.deletions}, {e.insertions} of {e.length}"

    def last(run: _Run, key: str) -> float | None:
        return run.history[-1].get(key) if run.history else None

    def best(run: _Run) -> str:
        rates = [row["validation_cer"] for row in run.history if "validation_cer" in row]
        return _percent(min(rates)) if rates else NOTHING

    def count(module: torch.nn.Module) -> str:
        return f"{sum(parameter.numel() for parameter in module.parameters()):,}"

    columns = [
        {
            "examples": NOTHING if run.evaluation is None else f"{len(run.evaluation.examples):,}",
            "letters wrong, missing, extra": errors(run, "chars"),
            "words wrong, missing, extra": errors(run, "words"),
            "best validation CER": best(run),
            "epochs": f"{len(run.history)} of {run.experiment.optim.epochs}",
            "training time": _duration(last(run, "seconds")),
            "processor time": _duration(last(run, "cpu_seconds")),
            "parameters of the network": count(run.recognizer.network),
            "parameters of the loss": count(run.recognizer.criterion),
            "tokens": f"{len(run.recognizer.tokenizer.tokens):,}",
        }
        for run in runs
    ]
    return [_Row(name, [column[name] for column in columns]) for name in columns[0]]


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return NOTHING
    if seconds < 120:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _flat(experiment: Experiment) -> dict[str, str]:
    """All settings by their dotted names, as ``--set`` reads them."""
    found = {}
    for name, value in to_dict(experiment).items():
        inner = value if isinstance(value, dict) else {"": value}
        for key, setting in inner.items():
            found[f"{name}.{key}" if key else name] = _written(setting)
    return found


def _written(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)


def _settings(runs: Sequence[_Run]) -> list[_Row]:
    columns = [_flat(run.experiment) for run in runs]
    return [_Row(name, [column[name] for column in columns]) for name in columns[0]]


def _environment(runs: Sequence[_Run]) -> list[_Row]:
    names = dict.fromkeys(name for run in runs for name in run.environment)
    return [
        _Row(name, [_written(run.environment.get(name, NOTHING)) for run in runs]) for name in names
    ]


def _commands(
    runs: Sequence[_Run],
    out: str | os.PathLike[str],
    split: str,
    checkpoint: str,
    examples: int,
) -> list[str]:
    """The commands that make the runs and the page."""
    found = [shlex.join(["arcgrad", "train", *_train_arguments(run)]) for run in runs]
    options = ["--split", split, "--checkpoint", checkpoint]
    paths = [str(run.path) for run in runs]
    found += [shlex.join(["arcgrad", "test", path, *options]) for path in paths]
    page = ["--examples", str(examples), "--out", str(out)]
    return [*found, shlex.join(["arcgrad", "report", *paths, *options, *page])]


def _train_arguments(run: _Run) -> list[str]:
    """The named experiment that is nearest to that of a run, and how they differ."""
    wanted = _flat(run.experiment)
    changes = {
        name: {key: value for key, value in wanted.items() if _flat(experiment)[key] != value}
        for name, experiment in EXPERIMENTS.items()
    }
    # What an experiment is called does not change it, but tells equal ones apart.
    called = {name: changed.pop("description", None) for name, changed in changes.items()}
    nearest = min(changes, key=lambda name: (len(changes[name]), called[name] is not None))
    arguments = [nearest, "--out", str(run.path)]
    for key, value in changes[nearest].items():
        arguments += ["--set", f"{key}={value}"]
    usual = {"max_seconds": None, "threads": 1, "device": "cpu"}
    for option, default in usual.items():
        given = run.environment.get(option, default)
        if given != default:
            arguments += [f"--{option.replace('_', '-')}", str(given)]
    return arguments
