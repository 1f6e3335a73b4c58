"""The worst and the best examples, and frequent confusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arcgrad.recipes import metrics
from arcgrad.recipes.metrics import Evaluation, Scored
from arcgrad.recipes.reading import Reading, read

from .pictures import Picture, drawn
from .runs import MOST_ROWS, PageRun


@dataclass(frozen=True)
class _Shown:
    """An example, as a run reads it."""

    run: PageRun
    scored: Scored
    parts: list[metrics.Difference]
    alignment: Picture
    decomposition: Picture | None
    pieces: list[str]


@dataclass(frozen=True)
class _Example:
    """An example, as all runs read it."""

    id: str
    shown: list[_Shown]


class SideBySide:
    """Runs with the same data: their confusions, and the worst and best examples of all."""

    def __init__(self, runs: list[PageRun], count: int) -> None:
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


def _show(run: PageRun, index: int) -> _Shown:
    assert run.dataset is not None
    assert run.evaluation is not None
    scored = run.evaluation.examples[index]
    reading = read(run.recognizer, run.dataset[index])
    what = "log-mel features" if run.recognizer.is_speech else "image of the line"
    alignment = drawn(
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


def _decomposition(reading: Reading, what: str) -> Picture:
    pieces = ", ".join(span.piece for span in reading.pieces)
    return drawn(reading.draw_pieces, f"The {what} with the word pieces {pieces} where they lie")
