"""Results that the paper reports: CER on validation data in percent, and seconds per epoch."""

from __future__ import annotations

#: The CER with n-grams of order 0, 1 and 2, for no, forced and optional blanks.
TABLE_1 = {"no": (18.2, 17.7, 9.4), "forced": (8.9, 8.5, 6.7), "optional": (6.4, 6.3, 6.4)}

#: CER and time by kind of tokens and by pruning; None stands for no pruning and for no result.
TABLE_2: dict[str, dict[int | None, tuple[float | None, int]]] = {
    "letters": {None: (6.4, 544), 0: (6.8, 249), 10: (6.5, 202)},
    "pieces": {None: (None, 17_939), 0: (22.2, 683), 10: (19.8, 204)},
}

#: CER and the number of parameters of the convolution.
TABLE_3 = {"wfst": (19.5, 2_048), "ordinary": (20.7, 79_000)}

#: Histograms of the counts of 1000 pieces, in the bins of :data:`arcgrad.recipes.report.BINS`.
FIGURE_8 = {
    "WSJ": (2, 31, 247, 337, 382),
    "LibriSpeech": (0, 0, 154, 325, 521),
    "IAM": (644, 178, 85, 57, 36),
}
