"""The tables and figures of the paper: the experiments of each, and how it is made of them.

"Table" stands for both in the names of this room, since every figure has its numbers as a table.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arcgrad.recipes.data import WordPieces, load_data
from arcgrad.recipes.experiments import Experiment, Preset, catalog, override
from arcgrad.recipes.experiments.catalog import pruning_name
from arcgrad.recipes.experiments.presets import IMAGES
from arcgrad.recipes.experiments.published import FIGURE_8, TABLE_1, TABLE_2, TABLE_3
from arcgrad.recipes.inference import (
    PieceSpan,
    compare,
    count_decompositions,
    dataset_emissions,
    viterbi_decompositions,
)
from arcgrad.recipes.models import ControlConv1d, TDS2dTransducer, operations
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.report import (
    comparison_table,
    draw_decomposition,
    draw_histograms,
    histogram,
    markdown_table,
)
from arcgrad.recipes.run import load_environment, load_run

from .appendix import settings_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The experiments of a corpus and a preset, by their full names.
Experiments = Callable[..., dict[str, Experiment]]

__all__ = ["PAPER_TABLES", "Cell", "PaperTable", "Rendered", "TableInputs", "origin"]

# The number of words in Table 4, and of examples in Figure 7.
NUM_WORDS, NUM_EXAMPLES = 10, 4


@dataclass(frozen=True)
class Cell:
    """A trained cell of a table.

    Attributes:
        experiment: Its settings, with the first seed.
        paths: The folder of the run of each seed.
        results: Its error rates and times, by seed.
    """

    experiment: Experiment
    paths: Sequence[Path]
    results: Sequence[Mapping[str, Any]]

    def mean(self, key: str) -> float:
        """Return the mean of a result over the seeds."""
        return statistics.fmean(result[key] for result in self.results)

    def spread(self, key: str) -> float:
        """Return the standard deviation of a result over the seeds; 0 for one seed."""
        values = [result[key] for result in self.results]
        return statistics.stdev(values) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class TableInputs:
    """The inputs from which a table is made.

    Attributes:
        corpus: The corpus of the training.
        cells: The trained cells, by their full names.
        experiments: The settings of the cells.
    """

    corpus: str
    cells: Mapping[str, Cell]
    experiments: Mapping[str, Experiment]

    def value(self, name: str, key: str = "validation_cer", digits: int = 1) -> str:
        """Return a result of a cell as text: the mean, and the spread over several seeds.

        It is empty for a cell that is not trained.
        """
        if name not in self.cells:
            return ""
        cell = self.cells[name]
        text = f"{cell.mean(key):.{digits}f}"
        if len(cell.results) > 1:
            text += f" ± {cell.spread(key):.{digits}f}"
        return text

    def change(self, first: str, second: str, key: str = "validation_cer") -> str:
        """Return the change of a result from one cell to another, over seeds as pairs."""
        if first not in self.cells or second not in self.cells:
            return ""
        pairs = zip(self.cells[first].results, self.cells[second].results, strict=True)
        changes = [after[key] - before[key] for before, after in pairs]
        spread = f" ± {statistics.stdev(changes):.1f}" if len(changes) > 1 else ""
        return f"{statistics.fmean(changes):+.1f}{spread}"

    def seeds(self) -> str:
        """Return a sentence on the number of seeds; empty for one."""
        number = max(len(cell.results) for cell in self.cells.values())
        return f" Mean and standard deviation of {number} seeds." if number > 1 else ""


@dataclass(frozen=True)
class Rendered:
    """A table as Markdown, with its pictures by name, and results that belong to no cell."""

    text: str
    pictures: Mapping[str, Figure] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PaperTable:
    """A table or a figure of the paper.

    Attributes:
        name: Its name on the command line.
        title: Its title.
        corpora: The corpora on which it can be made; the first is the default.
        experiments: Returns the experiments of a corpus and a preset, by their full names.
        make: Makes the table from the trained experiments.
        is_trained: Whether the experiments must be trained.
        is_averaged: Whether it is made of several seeds; otherwise of the first one.
    """

    name: str
    title: str
    corpora: tuple[str, ...]
    experiments: Experiments
    make: Callable[[TableInputs], Rendered]
    is_trained: bool = True
    is_averaged: bool = True


def origin(command: str, cells: Mapping[str, Cell]) -> str:
    """Return the origin of a table: the command, and the machine it ran on."""
    text = f"Made by `{command}`."
    if not cells:
        return text + "\n"
    results = {
        path: result
        for cell in cells.values()
        for path, result in zip(cell.paths, cell.results, strict=True)
    }
    ran = [load_environment(path) for path in results]
    seconds = sum(result["cpu_seconds"] for result in results.values())

    def listed(key: str) -> str:
        return ", ".join(dict.fromkeys(str(each[key]) for each in ran))

    return (
        f"{text} Trained in {seconds / 60:.0f} minutes of processor time at commit "
        f"{listed('commit')} with PyTorch {listed('torch')}, on {listed('processor')} "
        f"({listed('cores')} cores, {listed('device_name')}).\n"
    )


def _of(*tables: str) -> Experiments:
    """Return a function from a corpus and a preset to all named experiments of some tables."""

    def experiments(corpus: str, preset: Preset | None = None) -> dict[str, Experiment]:
        prefixes = tuple(f"{table}/{corpus}/" for table in tables)
        return {n: e for n, e in catalog(corpus, preset).items() if n.startswith(prefixes)}

    return experiments


def _marginal(corpus: str, preset: Preset | None = None) -> dict[str, Experiment]:
    """Return the experiment of Figure 5 whose decompositions are shown, the third size."""
    found = [pair for pair in _of("fig5")(corpus, preset).items() if pair[0].endswith("/marginal")]
    return dict(found[2:3])


def _table1(inputs: TableInputs) -> Rendered:
    rows = []
    for ngram in (0, 1, 2):
        row = [str(ngram)]
        for blank, paper in TABLE_1.items():
            name = f"table1/{inputs.corpus}/ngram{ngram}/{blank}_blank"
            row += [inputs.value(name), inputs.value(name, "test_cer"), str(paper[ngram])]
        rows.append(row)
    row = ["2 against 0"]
    for blank, paper in TABLE_1.items():
        first, last = (f"table1/{inputs.corpus}/ngram{n}/{blank}_blank" for n in (0, 2))
        row += [inputs.change(first, last), inputs.change(first, last, "test_cer")]
        row.append(f"{paper[2] - paper[0]:+.1f}")
    rows.append(row)
    header = ["n-gram"]
    for blank in TABLE_1:
        header += [f"{blank} blank", "test", "paper"]
    text = "CER in percent on validation data, on test data, and of the paper on IAM."
    return Rendered(f"{text}{inputs.seeds()}\n\n{markdown_table(header, rows)}\n")


def _table2(inputs: TableInputs) -> Rendered:
    rows = []
    for prune in TABLE_2["letters"]:
        row = ["none" if prune is None else str(prune)]
        for kind, paper in TABLE_2.items():
            name = f"table2/{inputs.corpus}/{kind}/{pruning_name(prune)}"
            cer, seconds = paper[prune]
            row += [
                inputs.value(name),
                inputs.value(name, "test_cer"),
                inputs.value(name, "epoch_cpu_seconds"),
                "none" if cer is None else str(cer),
                f"{seconds:,}",
            ]
        rows.append(row)
    header = ["pruning"]
    for kind in TABLE_2:
        header += [f"{kind}: CER", "test", "epoch, s", "paper: CER", "epoch, s"]
    text = "CER in percent on validation data and on test data, and processor seconds of an epoch."
    return Rendered(f"{text}{inputs.seeds()}\n\n{markdown_table(header, rows)}\n")


def _table3(inputs: TableInputs) -> Rendered:
    rows = []
    for inner, (cer, num_parameters) in TABLE_3.items():
        name = f"table3/{inputs.corpus}/{inner}"
        if name not in inputs.cells:
            continue
        _, recognizer = load_run(inputs.cells[name].paths[0])
        network = recognizer.network
        assert isinstance(network, TDS2dTransducer)
        conv = network.conv
        if isinstance(conv, ControlConv1d):
            formula = f"k c_i c_o = {conv.kernel_size} · {conv.in_channels} · {conv.out_channels}"
        else:
            letters = sum(map(len, network.pieces)) / len(network.pieces)
            formula = f"k w c_o = {conv.kernel_size} · {letters:.2f} · {conv.out_channels}"
        rows.append(
            [
                "WFST" if inner == "wfst" else inner,
                inputs.value(name),
                inputs.value(name, "test_cer"),
                f"{sum(parameter.numel() for parameter in conv.parameters()):,}",
                f"{operations(conv):,}",
                formula,
                str(cer),
                f"{num_parameters:,}",
            ]
        )
    header = ["convolution", "CER", "test", "parameters", "ops", "of order"]
    header += ["paper: CER", "parameters"]
    text = (
        "CER in percent on validation data and on test data; parameters of the convolution and the "
        "multiplications for one of its outputs in time: frames of a window times arcs of all "
        "kernels, or times input and output channels. k is the width of a kernel, w the mean "
        f"number of letters of a piece, c_i and c_o are channels.{inputs.seeds()}"
    )
    return Rendered(f"{text}\n\n{markdown_table(header, rows)}\n")


def _figure5(inputs: TableInputs) -> Rendered:
    text, pictures = "", {}
    panels = [("fig5", "pieces", "number of word pieces")]
    if inputs.corpus in _LINES:
        panels.append(("fig5d", "subsampling", "sub-sampling"))
    for panel, stem, label in panels:
        prefix = f"{panel}/{inputs.corpus}/"
        if not any(name.startswith(prefix) for name in inputs.cells):
            continue
        values: dict[int, dict[str, str]] = {}
        for name in inputs.cells:
            if name.startswith(prefix):
                at, way = name.removeprefix(prefix).split("/")
                values.setdefault(int(at.removeprefix(stem)), {})[way] = name
        ways = ("sentencepiece", "marginal")
        keys = ("validation_cer", "test_cer")
        rows = [
            [
                str(at),
                *(inputs.value(names.get(way, ""), k) for way, k in itertools.product(ways, keys)),
            ]
            for at, names in values.items()
        ]
        header = [label, "SentencePiece", "test", "marginalised", "test"]
        text += f"CER in percent by {label}.{inputs.seeds()}\n\n{markdown_table(header, rows)}\n\n"
        cells = {
            way: {at: inputs.cells[names[way]] for at, names in values.items() if way in names}
            for way in ways
        }
        pictures[stem] = _curves(cells, label)
    return Rendered(text, pictures)


def _curves(curves: Mapping[str, Mapping[int, Cell]], label: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    names = {"sentencepiece": "SentencePiece", "marginal": "marginalised"}
    ticks = list(dict.fromkeys(at for cells_of_way in curves.values() for at in cells_of_way))
    for (way, cells_of_way), marker in zip(curves.items(), "os", strict=True):
        cells = cells_of_way.values()
        axes.errorbar(
            [ticks.index(at) for at in cells_of_way],
            [cell.mean("validation_cer") for cell in cells],
            [cell.spread("validation_cer") for cell in cells],
            marker=marker,
            capsize=3,
            label=names[way],
        )
    axes.set_xticks(range(len(ticks)), [str(tick) for tick in ticks])
    axes.set_xlabel(label)
    axes.set_ylabel("CER in percent")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _decomposed(cell: Cell) -> tuple[Recognizer, list[list[PieceSpan]], Any]:
    """Return the best decompositions of the training texts, without augmentation."""
    _, recognizer = load_run(cell.paths[0])
    dataset = load_data(override(cell.experiment, ["data.augment=false"])).train
    found: dict[str, list[PieceSpan]] = {}
    for batch, emissions, lengths in dataset_emissions(recognizer, dataset):
        spans = viterbi_decompositions(recognizer.criterion, emissions, batch.texts, lengths)
        found.update(zip(batch.ids, spans, strict=True))
    return recognizer, [found[name] for name in dataset.ids], dataset


def _table4(inputs: TableInputs) -> Rendered:
    (cell,) = inputs.cells.values()
    recognizer, spans, _ = _decomposed(cell)
    counts = count_decompositions(spans)
    pieces = recognizer.tokenizer
    assert isinstance(pieces, WordPieces)

    def reference(word: str) -> list[str]:
        return [pieces.tokens[label] for label in pieces.encode(word)]

    rows = compare(counts, reference)
    total = len(counts)
    text = (
        f"Decompositions of the training words by the marginalised model with "
        f"{len(pieces.tokens)} pieces. For {len(rows)} of {total} words the most common "
        f"decomposition differs from SentencePiece. The {min(NUM_WORDS, len(rows))} most frequent "
        f"are\n\n{comparison_table(rows[:NUM_WORDS], 'SentencePiece')}\n"
    )
    return Rendered(text)


def _figure7(inputs: TableInputs) -> Rendered:
    (cell,) = inputs.cells.values()
    recognizer, spans, dataset = _decomposed(cell)
    # The examples whose decompositions differ most from SentencePiece.
    tokens = recognizer.tokenizer.tokens

    def differing(index: int) -> int:
        expected = Counter(
            tokens[label] for label in recognizer.tokenizer.encode(dataset.texts[index])
        )
        found = Counter(span.piece for span in spans[index])
        return (found - expected).total()

    order = sorted(range(len(dataset)), key=lambda i: (-differing(i), dataset.ids[i]))
    pictures: dict[str, Any] = {}
    lines = []
    for number, index in enumerate(order[:NUM_EXAMPLES], 1):
        example = dataset[index]
        lengths = recognizer.network.output_lengths([example.length])  # type: ignore[operator]
        image = example.input.flip(0) if recognizer.is_speech else example.input
        pictures[str(number)] = draw_decomposition(image.numpy(), spans[index], int(lengths[0]))
        expected = [tokens[label] for label in recognizer.tokenizer.encode(example.text)]
        found = ", ".join(span.piece for span in spans[index])
        lines.append(f"{number}. {example.text}: {found} (SentencePiece: {', '.join(expected)})")
    text = "Training examples with the positions of their pieces.\n\n" + "\n".join(lines)
    return Rendered(text + "\n", pictures)


def _figure8(inputs: TableInputs) -> Rendered:
    (experiment,) = inputs.experiments.values()
    dataset = load_data(experiment).train
    tokens = dataset.tokenizer.tokens
    counts = Counter(
        tokens[label] for text in dataset.texts for label in dataset.tokenizer.encode(text)
    )
    ours = histogram(counts, tokens)
    words = sum(len(text.split()) for text in dataset.texts)
    name = f"{inputs.corpus} ({words:,} words)"
    names = list(ours)
    paper = {f"{corpus} (paper)": values for corpus, values in FIGURE_8.items()}
    histograms = {name: ours} | {n: dict(zip(names, v, strict=True)) for n, v in paper.items()}
    rows = [[n, *map(str, found.values())] for n, found in histograms.items()]
    text = f"The number of the {len(tokens)} word pieces that occur c times in the training text."
    return Rendered(
        f"{text}\n\n{markdown_table(['corpus', *names], rows)}\n",
        {"counts": draw_histograms(histograms)},
        {name: ours},
    )


def _variants(inputs: TableInputs) -> Rendered:
    names = {
        "CTC" if name.startswith("table1") else name.rpartition("/")[2]: name
        for name in inputs.cells
    }
    rows = [
        [name, inputs.value(cell), inputs.value(cell, "test_cer"), inputs.value(cell, "test_wer")]
        for name, cell in names.items()
    ]
    described = "; ".join(
        f"{name}: {inputs.cells[cell].experiment.description}"
        for name, cell in names.items()
        if name != "CTC"
    )
    header = ["tokens", "CER", "test", "test WER"]
    return Rendered(
        f"CER in percent on validation data and on test data.{inputs.seeds()} {described}.\n\n"
        f"{markdown_table(header, rows)}\n"
    )


def _with_ctc(corpus: str, preset: Preset | None = None) -> dict[str, Experiment]:
    name = f"table1/{corpus}/ngram0/optional_blank"
    return {name: catalog(corpus, preset)[name], **_of("variants")(corpus, preset)}


def _settings(_: TableInputs) -> Rendered:
    text = (
        "What section 5 and appendix B of the paper say, and the settings of our presets: on IAM "
        "and LibriSpeech for `paper` and `published`, on data of the project for `small`."
    )
    return Rendered(f"{text}\n\n{settings_table()}")


_LINES = ("letters", "iam")
_EVERY = ("letters", "digits", "iam", "librispeech", "wsj")

#: The tables and figures, by their names on the command line.
PAPER_TABLES: dict[str, PaperTable] = {
    table.name: table
    for table in (
        PaperTable("table1", "Table 1: transitions and blanks", IMAGES, _of("table1"), _table1),
        PaperTable("table2", "Table 2: pruned bigrams", _LINES, _of("table2"), _table2),
        PaperTable("table3", "Table 3: a convolution of graphs", IMAGES, _of("table3"), _table3),
        PaperTable(
            "table4",
            "Table 4: decompositions of words",
            _EVERY,
            _marginal,
            _table4,
            is_averaged=False,
        ),
        PaperTable(
            "fig5", "Figure 5: marginalised word pieces", _EVERY, _of("fig5", "fig5d"), _figure5
        ),
        PaperTable(
            "fig7",
            "Figure 7: decompositions in examples",
            _EVERY,
            _marginal,
            _figure7,
            is_averaged=False,
        ),
        PaperTable(
            "fig8",
            "Figure 8: how often pieces occur",
            _EVERY,
            _marginal,
            _figure8,
            is_trained=False,
        ),
        PaperTable(
            "settings",
            "The settings of the paper and of our presets",
            ("letters",),
            _of("table1"),
            _settings,
            is_trained=False,
        ),
        PaperTable("variants", "Beyond the paper: kinds of CTC", IMAGES, _with_ctc, _variants),
    )
}
