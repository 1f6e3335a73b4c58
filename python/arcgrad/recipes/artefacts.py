"""The tables and figures of the paper: which experiments each needs, and how it is drawn."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from . import analysis, catalog
from .data import WordPieces
from .experiment import Experiment, override
from .markdown import markdown_table
from .paper import FIGURE_8, TABLE_1, TABLE_2, TABLE_3
from .recognizer import Recognizer, load_data
from .run import load_environment, load_run
from .train import outputs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ARTEFACTS", "Artefact", "Cell", "Made", "Source", "origin"]

SPEECH, IMAGES = ("digits", "librispeech", "wsj"), ("letters", "iam")
# How many words Table 4 and how many examples Figure 7 show.
NUM_WORDS, NUM_EXAMPLES = 10, 4


@dataclass(frozen=True)
class Cell:
    """A cell of an artefact that was trained.

    Attributes:
        experiment: Its settings.
        path: The folder of its run.
        result: Its error rates and times.
    """

    experiment: Experiment
    path: Path
    result: Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """What an artefact is made of.

    Attributes:
        corpus: What was trained on.
        cells: The cells that were trained, by their full names.
        experiments: The settings of the cells.
    """

    corpus: str
    cells: Mapping[str, Cell]
    experiments: Mapping[str, Experiment]

    def value(self, cell: str, key: str = "validation_cer", digits: int = 1) -> str:
        """A number of a cell, as text."""
        return f"{self.cells[cell].result[key]:.{digits}f}"


@dataclass(frozen=True)
class Made:
    """An artefact: its text in Markdown, its pictures by name, and numbers of no cell."""

    text: str
    pictures: Mapping[str, Figure] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Artefact:
    """A table or a figure.

    Attributes:
        name: Its name on the command line.
        title: What it shows.
        corpora: The corpora that it can be made on; the first is the usual one.
        experiments: The experiments that have to be trained for a corpus, by their full names.
        make: Makes it of them.
        is_trained: Whether anything has to be trained.
    """

    name: str
    title: str
    corpora: tuple[str, ...]
    experiments: Callable[[str], dict[str, Experiment]]
    make: Callable[[Source], Made]
    is_trained: bool = True


def origin(command: str, cells: Mapping[str, Cell]) -> str:
    """How an artefact came about: the command, and what it ran on."""
    text = f"Made by `{command}`."
    if not cells:
        return text + "\n"
    paths = dict.fromkeys(cell.path for cell in cells.values())
    ran = [load_environment(path) for path in paths]
    seconds = sum({cell.path: cell.result["cpu_seconds"] for cell in cells.values()}.values())

    def listed(key: str) -> str:
        return ", ".join(dict.fromkeys(str(each[key]) for each in ran))

    return (
        f"{text} Trained in {seconds / 60:.0f} minutes of processor time at commit "
        f"{listed('commit')} with PyTorch {listed('torch')}, on {listed('processor')} "
        f"({listed('cores')} cores, {listed('device_name')}).\n"
    )


def _of(*artefacts: str) -> Callable[[str], dict[str, Experiment]]:
    """All experiments of the catalog that belong to some artefacts."""

    def experiments(corpus: str) -> dict[str, Experiment]:
        prefixes = tuple(f"{artefact}/{corpus}/" for artefact in artefacts)
        return {n: e for n, e in catalog.EXPERIMENTS.items() if n.startswith(prefixes)}

    return experiments


def _marginal(corpus: str) -> dict[str, Experiment]:
    """The experiment of Figure 5 whose decompositions are looked at, with 1000 pieces or so."""
    found = [name for name in _of("fig5")(corpus) if name.endswith("/marginal")]
    return {found[2]: catalog.find(found[2])}


def _table1(source: Source) -> Made:
    rows = []
    for ngram in (0, 1, 2):
        row = [str(ngram)]
        for blank, paper in TABLE_1.items():
            name = f"table1/{source.corpus}/ngram{ngram}/{blank}_blank"
            row += [source.value(name), source.value(name, "test_cer"), str(paper[ngram])]
        rows.append(row)
    header = ["n-gram"]
    for blank in TABLE_1:
        header += [f"{blank} blank", "test", "paper"]
    text = "CER in percent on validation data, on test data, and that of the paper on IAM.\n\n"
    return Made(text + markdown_table(header, rows) + "\n")


def _table2(source: Source) -> Made:
    rows = []
    for prune in TABLE_2["letters"]:
        row = ["none" if prune is None else str(prune)]
        for kind, paper in TABLE_2.items():
            name = f"table2/{source.corpus}/{kind}/{catalog.pruning_name(prune)}"
            cer, seconds = paper[prune]
            row += [
                source.value(name),
                source.value(name, "test_cer"),
                source.value(name, "epoch_cpu_seconds"),
                "none" if cer is None else str(cer),
                f"{seconds:,}",
            ]
        rows.append(row)
    header = ["pruning"]
    for kind in TABLE_2:
        header += [f"{kind}: CER", "test", "epoch, s", "paper: CER", "epoch, s"]
    text = "CER in percent on validation data and on test data, and processor seconds of an epoch."
    return Made(f"{text}\n\n{markdown_table(header, rows)}\n")


def _table3(source: Source) -> Made:
    rows = []
    for inner, (cer, num_parameters) in TABLE_3.items():
        name = f"table3/{source.corpus}/{inner}"
        cell = source.cells[name]
        _, recognizer = load_run(cell.path)
        conv = recognizer.network.conv
        assert isinstance(conv, torch.nn.Module)
        count = sum(parameter.numel() for parameter in conv.parameters())
        rows.append(
            [
                "WFST" if inner == "wfst" else inner,
                source.value(name),
                source.value(name, "test_cer"),
                f"{count:,}",
                str(cer),
                f"{num_parameters:,}",
            ]
        )
    header = ["convolution", "CER", "test", "parameters", "paper: CER", "parameters"]
    text = "CER in percent on validation data and on test data, and parameters of the convolution."
    return Made(f"{text}\n\n{markdown_table(header, rows)}\n")


def _figure5(source: Source) -> Made:
    text, pictures = "", {}
    panels = [("fig5", "pieces", "number of word pieces")]
    if source.corpus in IMAGES:
        panels.append(("fig5d", "subsampling", "sub-sampling"))
    for panel, stem, label in panels:
        prefix = f"{panel}/{source.corpus}/"
        values: dict[int, dict[str, str]] = {}
        for name in source.cells:
            if name.startswith(prefix):
                at, way = name.removeprefix(prefix).split("/")
                values.setdefault(int(at.removeprefix(stem)), {})[way] = name
        ways = ("sentencepiece", "marginal")
        keys = ("validation_cer", "test_cer")
        rows = [
            [
                str(at),
                *(source.value(names[way], key) for way, key in itertools.product(ways, keys)),
            ]
            for at, names in values.items()
        ]
        header = [label, "SentencePiece", "test", "marginalised", "test"]
        text += f"CER in percent by {label}.\n\n{markdown_table(header, rows)}\n\n"
        curves = {
            way: [source.cells[names[way]].result["validation_cer"] for names in values.values()]
            for way in ways
        }
        pictures[stem] = _curves(list(values), curves, label)
    return Made(text, pictures)


def _curves(places: list[int], curves: Mapping[str, list[float]], label: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    names = {"sentencepiece": "SentencePiece", "marginal": "marginalised"}
    for (way, values), marker in zip(curves.items(), "os", strict=True):
        axes.plot(range(len(places)), values, marker=marker, label=names[way])
    axes.set_xticks(range(len(places)), [str(place) for place in places])
    axes.set_xlabel(label)
    axes.set_ylabel("CER in percent")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _decomposed(cell: Cell) -> tuple[Recognizer, list[list[analysis.PieceSpan]], Any]:
    """The best decompositions of the training texts, which are not changed at random."""
    _, recognizer = load_run(cell.path)
    dataset = load_data(override(cell.experiment, ["data.augment=false"])).train
    found: dict[str, list[analysis.PieceSpan]] = {}
    for batch, emissions, lengths in outputs(recognizer, dataset):
        spans = analysis.viterbi_decompositions(
            recognizer.criterion, emissions, batch.texts, lengths
        )
        found.update(zip(batch.ids, spans, strict=True))
    return recognizer, [found[name] for name in dataset.ids], dataset


def _table4(source: Source) -> Made:
    (cell,) = source.cells.values()
    recognizer, spans, _ = _decomposed(cell)
    counts = analysis.count_decompositions(spans)
    pieces = recognizer.tokenizer
    assert isinstance(pieces, WordPieces)

    def reference(word: str) -> list[str]:
        return [pieces.tokens[label] for label in pieces.encode(word)]

    rows = analysis.compare(counts, reference)
    total = len(counts)
    text = (
        f"Decompositions of the training words by the marginalised model with "
        f"{len(pieces.tokens)} pieces. Of {total} words, {len(rows)} have a most common one that "
        f"differs from that of SentencePiece; the {min(NUM_WORDS, len(rows))} most frequent of "
        f"these are\n\n{analysis.comparison_table(rows[:NUM_WORDS], 'SentencePiece')}\n"
    )
    return Made(text)


def _figure7(source: Source) -> Made:
    (cell,) = source.cells.values()
    recognizer, spans, dataset = _decomposed(cell)
    # The examples whose decompositions differ most from those of SentencePiece.
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
        pictures[str(number)] = analysis.draw_decomposition(
            image.numpy(), spans[index], int(lengths[0])
        )
        expected = [tokens[label] for label in recognizer.tokenizer.encode(example.text)]
        found = ", ".join(span.piece for span in spans[index])
        lines.append(f"{number}. {example.text}: {found} (SentencePiece: {', '.join(expected)})")
    text = "Training examples with the pieces where the model reads them.\n\n" + "\n".join(lines)
    return Made(text + "\n", pictures)


def _figure8(source: Source) -> Made:
    (experiment,) = source.experiments.values()
    dataset = load_data(experiment).train
    tokens = dataset.tokenizer.tokens
    counts = Counter(
        tokens[label] for text in dataset.texts for label in dataset.tokenizer.encode(text)
    )
    ours = analysis.histogram(counts, tokens)
    words = sum(len(text.split()) for text in dataset.texts)
    name = f"{source.corpus} ({words:,} words)"
    names = list(ours)
    paper = {f"{corpus} (paper)": values for corpus, values in FIGURE_8.items()}
    histograms = {name: ours} | {n: dict(zip(names, v, strict=True)) for n, v in paper.items()}
    rows = [[n, *map(str, found.values())] for n, found in histograms.items()]
    text = f"How many of the {len(tokens)} word pieces occur c times in the training text.\n\n"
    return Made(
        text + markdown_table(["corpus", *names], rows) + "\n",
        {"counts": analysis.draw_histograms(histograms)},
        {name: ours},
    )


def _variants(source: Source) -> Made:
    names = {"CTC": f"table1/{source.corpus}/ngram0/optional_blank"}
    for name in catalog.cells("variants", source.corpus):
        names[name] = f"variants/{source.corpus}/{name}"
    rows = [
        [name, source.value(cell), source.value(cell, "test_cer"), source.value(cell, "test_wer")]
        for name, cell in names.items()
    ]
    described = "; ".join(
        f"{name}: {source.cells[cell].experiment.description}"
        for name, cell in names.items()
        if name != "CTC"
    )
    header = ["tokens", "CER", "test", "test WER"]
    return Made(
        f"CER in percent on validation data and on test data. {described}.\n\n"
        f"{markdown_table(header, rows)}\n"
    )


def _with_ctc(corpus: str) -> dict[str, Experiment]:
    name = f"table1/{corpus}/ngram0/optional_blank"
    return {name: catalog.find(name), **_of("variants")(corpus)}


_EVERY = ("letters", "digits", "iam", "librispeech", "wsj")

#: The tables and figures, by their names on the command line.
ARTEFACTS: dict[str, Artefact] = {
    artefact.name: artefact
    for artefact in (
        Artefact("table1", "Table 1: transitions and blanks", IMAGES, _of("table1"), _table1),
        Artefact("table2", "Table 2: pruned bigrams", IMAGES, _of("table2"), _table2),
        Artefact("table3", "Table 3: a convolution of graphs", IMAGES, _of("table3"), _table3),
        Artefact("table4", "Table 4: decompositions of words", _EVERY, _marginal, _table4),
        Artefact(
            "fig5", "Figure 5: marginalised word pieces", _EVERY, _of("fig5", "fig5d"), _figure5
        ),
        Artefact("fig7", "Figure 7: decompositions in examples", _EVERY, _marginal, _figure7),
        Artefact(
            "fig8",
            "Figure 8: how often pieces occur",
            _EVERY,
            _marginal,
            _figure8,
            is_trained=False,
        ),
        Artefact("variants", "Beyond the paper: kinds of CTC", IMAGES, _with_ctc, _variants),
    )
}
