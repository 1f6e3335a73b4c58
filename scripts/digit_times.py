"""Word times of strings of spoken digits, against the joins of their recordings.

Train a network and measure it; the guide on alignment has the figures:

    arcgrad train demo --set data.corpus=digits --set model.preset=small \
      --set model.subsampling=4 --out runs/digits --max-seconds 700
    python scripts/digit_times.py runs/digits
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from arcgrad.decoding import align_words
from arcgrad.recipes.data import dataset_input, digits
from arcgrad.recipes.inference import load_run_on, log_probs
from arcgrad.recipes.models import output_grid

COUNT, PENALTY = 200, 5.0


def main(run: Path) -> None:
    _, recognizer = load_run_on("digit_times", run, "best", "cpu")
    data = digits.load(train=1, validation=1, test=COUNT).test
    labels = ["<blank>", *recognizer.tokenizer.tokens]
    grid = output_grid(recognizer.network)
    errors, inside, star, missing, extra = [], [], [], [], []
    for i in range(COUNT):
        source = dataset_input(data, i)
        scores = log_probs(recognizer, source.values).numpy()
        words = data.texts[i].split()
        joins = np.cumsum([0, *(len(part) / digits.RATE for part in recordings(data, i))])

        def seconds(frame: float, source: object = source) -> float:
            return source.position(grid.first + grid.step * (frame - 0.5))

        def is_in(span, k, joins=joins, seconds=seconds) -> bool:
            return joins[k] <= seconds((span.start + span.end) / 2) <= joins[k + 1]

        found = align_words(scores, words, labels)
        inside += [is_in(span, k) for k, span in enumerate(found)]
        for k in range(1, len(words)):
            errors.append(abs(seconds((found[k - 1].end + found[k].start) / 2) - joins[k]))
        k = i % len(words)
        starred = align_words(scores, [*words[:k], "*", *words[k + 1 :]], labels)
        star.append(is_in(starred[k], k))
        if len(words) < 3:
            continue
        k = 1 + i % (len(words) - 2)
        shorter = [*words[:k], *words[k + 1 :]]
        left_out = align_words(scores, shorter, labels, skip_penalty=PENALTY)
        others = [*found[:k], *found[k + 1 :]]
        extra.append(
            any(is_in(span, k) for span in left_out.extra)
            and all(abs(a.start - b.start) <= 1 for a, b in zip(left_out, others, strict=True))
        )
        near = {"seven", "three"} & {words[k], words[k - 1]}
        added = ["zero", "nine"] if near else ["seven", "three"]
        longer = align_words(scores, [*words[:k], *added, *words[k:]], labels, skip_penalty=PENALTY)
        kinds = ["word"] * k + ["missing"] * 2 + ["word"] * (len(words) - k)
        missing.append([span.kind for span in longer] == kinds)
    milliseconds = 1000 * np.array(errors)
    print(f"words whose middle is in their recording: {sum(inside)} of {len(inside)}")
    mean, median = milliseconds.mean(), np.median(milliseconds)
    print(f"joins: mean error {mean:.0f} ms, median {median:.0f} ms")
    for name, results in ("star", star), ("missing", missing), ("extra", extra):
        print(f"{name}: {sum(results)} of {len(results)}")


def recordings(data: digits.DigitStrings, index: int) -> list[np.ndarray]:
    ranges = [(data._begins[r], data._begins[r + 1]) for r in data._strings[index]]
    return [data._samples[begin:end] for begin, end in ranges]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
