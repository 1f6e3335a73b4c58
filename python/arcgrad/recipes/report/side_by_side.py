"""The worst and the best examples, and frequent confusions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from arcgrad.recipes import metrics
from arcgrad.recipes.inference import Prediction, predict
from arcgrad.recipes.metrics import Evaluation, Scored

from .page_runs import MOST_ROWS, PageRun
from .pictures import Picture, drawn
from .plots import draw_pieces, draw_prediction


@dataclass(frozen=True)
class _Shown:
    """An example with the prediction of one run."""

    run: PageRun
    scored: Scored
    parts: list[metrics.Difference]
    alignment: Picture
    decomposition: Picture | None
    pieces: list[str]


@dataclass(frozen=True)
class _Example:
    """An example with the predictions of all runs."""

    id: str
    shown: list[_Shown]


class SideBySide:
    """Runs on the same data: their confusions, and their worst and best examples."""

    def __init__(self, runs: list[PageRun], count: int) -> None:
        self.runs = runs
        self.confusions = [
            (run, metrics.confusions(run.evaluation.examples).most_common(MOST_ROWS))
            for run in runs
            if run.evaluation is not None
        ]
        order = _from_worst_to_best([run.evaluation for run in runs if run.evaluation is not None])
        half = (len(order) + 1) // 2  # no example is in both lists
        self.worst = [self._example(i) for i in order[:half][:count]]
        self.best = [self._example(i) for i in order[half:][::-1][:count]]

    def _example(self, index: int) -> _Example:
        dataset = self.runs[0].dataset
        assert dataset is not None
        return _Example(dataset.ids[index], [_show(run, index) for run in self.runs])


def _from_worst_to_best(evaluations: Sequence[Evaluation]) -> list[int]:
    """Sort examples by the error rates of all runs; ties put longer examples last."""

    def key(index: int) -> tuple[float, int]:
        errors = [evaluation.examples[index].chars for evaluation in evaluations]
        return -sum(e.rate for e in errors), errors[0].length

    return sorted(range(len(evaluations[0].examples)), key=key)


def _show(run: PageRun, index: int) -> _Shown:
    assert run.dataset is not None
    assert run.evaluation is not None
    scored = run.evaluation.examples[index]
    prediction = predict(run.recognizer, run.dataset[index])
    what = "log-mel features" if run.recognizer.is_speech else "image of the line"
    alignment = drawn(
        partial(draw_prediction, prediction),
        f"The {what}, and below it the probabilities of labels by frame with the best path, which "
        f"reads “{prediction.hypothesis}”",
    )
    pieces = [span.piece for span in prediction.pieces]
    return _Shown(
        run,
        scored,
        metrics.differences(scored.reference, scored.hypothesis),
        alignment,
        _decomposition(prediction, what) if pieces else None,
        pieces,
    )


def _decomposition(prediction: Prediction, what: str) -> Picture:
    pieces = ", ".join(span.piece for span in prediction.pieces)
    alt = f"The {what} with the positions of the word pieces {pieces}"
    return drawn(partial(draw_pieces, prediction), alt)
