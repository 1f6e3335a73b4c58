"""Where the tokens or words of a known text lie in an image or a recording."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath

from torch import Tensor

from arcgrad.torch import TokenSpan

from .data import BOUNDARY
from .decoding import log_probs
from .inputs import Input, output_grid
from .recognizer import Recognizer

__all__ = [
    "FORMATS",
    "Alignment",
    "Segment",
    "align",
    "to_ctm",
    "to_json",
    "to_textgrid",
    "to_tsv",
    "token_names",
]

UNITS = ("token", "word")

# Of positions and scores in files.
DIGITS = 4


@dataclass(frozen=True)
class Segment:
    """A token or a word of a text.

    Attributes:
        label: The token or the word.
        start: Where it begins, in seconds, or in pixels of the image as it was.
        end: Where it ends.
        first_frame: Its first frame among the outputs of the network.
        end_frame: The frame after its last one.
        score: The mean log-probability of its tokens over their frames.
    """

    label: str
    start: float
    end: float
    first_frame: int
    end_frame: int
    score: float


@dataclass(frozen=True)
class Alignment:
    """A text and where its parts lie.

    Attributes:
        name: The file, or the id of an example.
        text: The text.
        unit: What positions are counted in, ``"pixels"`` or ``"seconds"``.
        extent: The width of the image, or the duration of the recording.
        num_frames: The number of outputs of the network.
        segments: The tokens or words in their order. Between them may be frames of none.
    """

    name: str
    text: str
    unit: str
    extent: float
    num_frames: int
    segments: tuple[Segment, ...]


def align(
    recognizer: Recognizer,
    name: str,
    source: Input,
    text: str,
    *,
    unit: str = "token",
    emissions: Tensor | None = None,
) -> Alignment:
    """The best alignment of a text.

    A frame of the network stands for the stretch of the input around its middle, half the way to
    the frames beside it. A word takes the frames from its first token to its last; the boundary
    between words belongs to none.

    Args:
        recognizer: The recogniser.
        name: What it is called.
        source: An image or recording.
        text: What it says.
        unit: ``"token"`` or ``"word"``.
        emissions: The log-probabilities of the input, if they are known.

    Raises:
        ValueError: If the unit is another, tokens do not spell the text, or it does not fit into
            the frames.

    >>> import torch
    >>> from arcgrad.recipes.alignment import align
    >>> from arcgrad.recipes.catalog import find
    >>> from arcgrad.recipes.data import Letters
    >>> from arcgrad.recipes.inputs import Input
    >>> from arcgrad.recipes.recognizer import Recognizer
    >>> recognizer = Recognizer(find("demo"), Letters(("▁", "a", "b")), height=16)
    >>> image = Input(torch.zeros(16, 12), "pixels", extent=24.0, first=1.0, step=2.0)
    >>> emissions = torch.eye(4)[torch.tensor([0, 2, 2, 1, 0, 3])].log_softmax(-1)
    >>> found = align(recognizer, "line.png", image, "a b", unit="word", emissions=emissions)
    >>> [(word.label, word.start, word.end) for word in found.segments]
    [('a', 4.0, 12.0), ('b', 20.0, 24.0)]
    """
    check_unit(unit)
    if emissions is None:
        emissions = log_probs(recognizer, source.values)
    labels = recognizer.tokenizer.encode(text)
    spans = recognizer.align(emissions, len(emissions), text)
    if labels and not spans:
        raise ValueError(
            f"align: a text must fit into the frames, but {text!r} has {len(labels)} tokens and "
            f"{name!r} gives {len(emissions)} frames"
        )
    names = token_names(recognizer)
    parts = [(names[span.token], [span]) for span in spans]
    if unit == "word":
        parts = _words(parts)
    grid = output_grid(recognizer.network)

    def position(frame: int) -> float:
        # The border between a frame and the one before it.
        return source.position(grid.first + grid.step * (frame - 0.5))

    segments = []
    for label, part in parts:
        begin, end = part[0].start, part[-1].end
        counts = [span.end - span.start for span in part]
        total = math.fsum(n * span.score for n, span in zip(counts, part, strict=True))
        segments.append(
            Segment(label, position(begin), position(end), begin, end, total / sum(counts))
        )
    return Alignment(name, text, source.unit, source.extent, len(emissions), tuple(segments))


def check_unit(unit: str) -> None:
    """Raises for what is not located."""
    if unit not in UNITS:
        raise ValueError(f"align: the unit must be 'token' or 'word', but it is {unit!r}")


def token_names(recognizer: Recognizer) -> list[str]:
    """The name of each label of emissions, the blank among them."""
    return ["blank"] * recognizer.first_label + list(recognizer.tokenizer.tokens)


def _words(tokens: Sequence[tuple[str, list[TokenSpan]]]) -> list[tuple[str, list[TokenSpan]]]:
    """The words that tokens spell, each with its spans."""
    words: list[tuple[str, list[TokenSpan]]] = [("", [])]
    for token, spans in tokens:
        if token.startswith(BOUNDARY):
            words.append(("", []))
        spelled = token.removeprefix(BOUNDARY)
        if spelled:
            word, before = words[-1]
            words[-1] = (word + spelled, before + spans)
    return [word for word in words if word[0]]


def to_tsv(alignments: Iterable[Alignment]) -> str:
    """A table with a row for each segment, after one with the names of the columns.

    >>> from arcgrad.recipes.alignment import Alignment, Segment, to_tsv
    >>> said = Alignment("a.wav", "hi", "seconds", 1.0, 10, (Segment("hi", 0.2, 0.4, 2, 4, -0.1),))
    >>> print(to_tsv([said]).expandtabs(10))
    name      label     start     end       first_frame         end_frame score
    a.wav     hi        0.2000    0.4000    2         4         -0.1000
    """
    rows = ["name\tlabel\tstart\tend\tfirst_frame\tend_frame\tscore"]
    for alignment in alignments:
        for part in alignment.segments:
            numbers = [f"{part.start:.{DIGITS}f}", f"{part.end:.{DIGITS}f}"]
            numbers += [str(part.first_frame), str(part.end_frame), f"{part.score:.{DIGITS}f}"]
            rows.append("\t".join([alignment.name, part.label, *numbers]))
    return "\n".join(rows)


def to_json(alignments: Iterable[Alignment]) -> str:
    """A JSON object on a line for each alignment.

    >>> from arcgrad.recipes.alignment import Alignment, to_json
    >>> print(to_json([Alignment("a.wav", "", "seconds", 1.0, 9, ())]))
    {"name": "a.wav", "text": "", "unit": "seconds", "extent": 1.0, "num_frames": 9, "segments": []}
    """
    lines = []
    for alignment in alignments:
        content = asdict(alignment)
        for part in content["segments"]:
            part |= {key: round(part[key], DIGITS) for key in ("start", "end", "score")}
        lines.append(json.dumps(content, ensure_ascii=False))
    return "\n".join(lines)


def to_ctm(alignments: Iterable[Alignment]) -> str:
    """NIST's CTM: name, channel, start, duration, label and the probability of each segment.

    Names are those of files without folder and ending. What separates columns becomes ``_``.

    >>> from arcgrad.recipes.alignment import Alignment, Segment, to_ctm
    >>> said = Alignment("in/a.wav", "hi", "seconds", 1.0, 9, (Segment("hi", 0.2, 0.5, 2, 4, 0.0),))
    >>> print(to_ctm([said]))
    a 1 0.2000 0.3000 hi 1.0000
    """
    rows = []
    for alignment in alignments:
        name = "_".join(PurePath(alignment.name).stem.split())
        for part in alignment.segments:
            # The difference of what is written, so that segments end where they end.
            begin = round(part.start, DIGITS)
            times = f"{begin:.{DIGITS}f} {round(part.end, DIGITS) - begin:.{DIGITS}f}"
            rows.append(f"{name} 1 {times} {part.label} {math.exp(part.score):.{DIGITS}f}")
    return "\n".join(rows)


def to_textgrid(alignment: Alignment, tier: str = "words") -> str:
    """A TextGrid of Praat with one tier of intervals; what lies between segments is empty.

    >>> from arcgrad.recipes.alignment import Alignment, Segment, to_textgrid
    >>> said = Alignment("a.wav", "hi", "seconds", 1.0, 9, (Segment("hi", 0.2, 0.5, 2, 4, 0.0),))
    >>> to_textgrid(said).count("intervals [")
    3
    """
    intervals: list[tuple[float, float, str]] = []
    at = 0.0
    for part in alignment.segments:
        if part.start > at:
            intervals.append((at, part.start, ""))
        intervals.append((part.start, part.end, part.label))
        at = part.end
    if at < alignment.extent or not intervals:
        intervals.append((at, alignment.extent, ""))
    limits = [f"xmin = {_number(0.0)}", f"xmax = {_number(alignment.extent)}"]
    rows = ['File type = "ooTextFile"', 'Object class = "TextGrid"', "", *limits]
    rows += ["tiers? <exists>", "size = 1", "item []:", "    item [1]:"]
    rows += [f"        {row}" for row in ('class = "IntervalTier"', f"name = {_quoted(tier)}")]
    rows += [f"        {row}" for row in (*limits, f"intervals: size = {len(intervals)}")]
    for number, (start, end, label) in enumerate(intervals, 1):
        rows.append(f"        intervals [{number}]:")
        rows.append(f"            xmin = {_number(start)}")
        rows.append(f"            xmax = {_number(end)}")
        rows.append(f"            text = {_quoted(label)}")
    return "\n".join(rows)


def _number(value: float) -> str:
    return f"{value:.{DIGITS}f}"


def _quoted(text: str) -> str:
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


#: How alignments of any number are written, by the name of the format.
FORMATS: dict[str, Callable[[Iterable[Alignment]], str]] = {
    "tsv": to_tsv,
    "json": to_json,
    "ctm": to_ctm,
}
