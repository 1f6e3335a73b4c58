"""Forced alignment: the positions of a text's tokens or words in an image or a recording."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from praatio.utilities import textgrid_io
from torch import Tensor

from arcgrad.recipes.data import BOUNDARY, Input
from arcgrad.recipes.models import output_grid
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.torch import TokenSpan

from .emissions import log_probs

__all__ = [
    "FORMATS",
    "Alignment",
    "Segment",
    "align",
    "to_ctm",
    "to_json",
    "to_srt",
    "to_textgrid",
    "to_tsv",
    "to_vtt",
    "token_names",
]

UNITS = ("token", "word")

# Decimals of positions and scores in files.
DIGITS = 4


@dataclass(frozen=True)
class Segment:
    """A token or a word of a text.

    Attributes:
        label: The token or the word.
        start: Its start, in seconds, or in pixels of the original image.
        end: Its end.
        first_frame: Its first output frame of the network.
        end_frame: The frame after its last one.
        score: The mean log-probability of its tokens over their frames.
        confidence: Its posterior, if it is known.
        kind: ``"missing"`` for a word that is not there, ``"star"`` for one without known letters.
        unspelled: Its characters that the model does not know.
    """

    label: str
    start: float
    end: float
    first_frame: int
    end_frame: int
    score: float
    confidence: float | None = None
    kind: str = "word"
    unspelled: str = ""


@dataclass(frozen=True)
class Alignment:
    """A text with the positions of its tokens or words.

    Attributes:
        name: The file, or the id of an example.
        text: The text.
        unit: The unit of positions, ``"pixels"`` or ``"seconds"``.
        extent: The width of the image, or the duration of the recording.
        num_frames: The number of output frames of the network.
        segments: The tokens or words in order. Frames between them may belong to no segment.
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
    """Return the best alignment of a text.

    A frame of the network covers the input around its centre, halfway to the adjacent frames. A
    word covers the frames from its first token to its last; the boundary between words belongs to
    no word.

    Args:
        recognizer: The recogniser.
        name: The name of the alignment.
        source: An image or recording.
        text: The text of the image or recording.
        unit: ``"token"`` or ``"word"``.
        emissions: The log-probabilities of the input, if they are known.

    Raises:
        ValueError: If there is no such unit, no tokens spell the text, or it does not fit into the
            frames.

    >>> import torch
    >>> from arcgrad.recipes.data import Input, Letters
    >>> from arcgrad.recipes.experiments import find
    >>> from arcgrad.recipes.inference import align
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
        # The border between the frame and its predecessor.
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
    """Raise ValueError for an unknown unit."""
    if unit not in UNITS:
        raise ValueError(f"align: the unit must be 'token' or 'word', but it is {unit!r}")


def token_names(recognizer: Recognizer) -> list[str]:
    """Return the name of each label of the emissions, including the blank."""
    return ["blank"] * recognizer.first_label + list(recognizer.tokenizer.tokens)


def _words(tokens: Sequence[tuple[str, list[TokenSpan]]]) -> list[tuple[str, list[TokenSpan]]]:
    """Return the words that tokens spell, each with its spans."""
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
    """Write a tab-separated table: a row with the names of the columns, then one for each segment.

    >>> from arcgrad.recipes.inference import Alignment, Segment, to_tsv
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
    """Write one line with a JSON object for each alignment.

    >>> from arcgrad.recipes.inference import Alignment, to_json
    >>> print(to_json([Alignment("a.wav", "", "seconds", 1.0, 9, ())]))
    {"name": "a.wav", "text": "", "unit": "seconds", "extent": 1.0, "num_frames": 9, "segments": []}
    """
    return "\n".join(json.dumps(to_dict(each), ensure_ascii=False) for each in alignments)


def to_dict(alignment: Alignment) -> dict[str, Any]:
    """Return an alignment as JSON can store it, with rounded numbers."""
    content = asdict(alignment)
    for part in content["segments"]:
        # JSON has no infinite numbers.
        part |= {
            key: round(part[key], DIGITS) if math.isfinite(part[key]) else None
            for key in ("start", "end", "score", "confidence")
            if part[key] is not None
        }
        if part["confidence"] is None:
            del part["confidence"], part["kind"]
        if not part["unspelled"]:
            del part["unspelled"]
    return content


def to_ctm(alignments: Iterable[Alignment]) -> str:
    """Write NIST's CTM: name, channel, start, duration, label and probability of each segment.

    Names are file names without folder and suffix, with ``_`` for white space.

    >>> from arcgrad.recipes.inference import Alignment, Segment, to_ctm
    >>> said = Alignment("in/a.wav", "hi", "seconds", 1.0, 9, (Segment("hi", 0.2, 0.5, 2, 4, 0.0),))
    >>> print(to_ctm([said]))
    a 1 0.2000 0.3000 hi 1.0000
    """
    rows = []
    for alignment in alignments:
        name = "_".join(PurePath(alignment.name).stem.split())
        for part in alignment.segments:
            # The duration is the difference of the rounded times, so that the end is exact.
            begin = round(part.start, DIGITS)
            times = f"{begin:.{DIGITS}f} {round(part.end, DIGITS) - begin:.{DIGITS}f}"
            probability = math.exp(part.score) if part.confidence is None else part.confidence
            if part.kind != "missing":
                rows.append(f"{name} 1 {times} {part.label} {probability:.{DIGITS}f}")
    return "\n".join(rows)


def to_textgrid(alignment: Alignment, tier: str = "words") -> str:
    """Write a Praat TextGrid with one tier of intervals; gaps between segments are empty intervals.

    >>> from arcgrad.recipes.inference import Alignment, Segment, to_textgrid
    >>> said = Alignment("a.wav", "hi", "seconds", 1.0, 9, (Segment("hi", 0.2, 0.5, 2, 4, 0.0),))
    >>> to_textgrid(said).count("intervals [")
    3
    """
    limits = {"xmin": 0.0, "xmax": round(alignment.extent, DIGITS)}
    entries = [
        (round(part.start, DIGITS), round(part.end, DIGITS), part.label)
        for part in alignment.segments
        if part.kind != "missing"
    ]
    content = {"class": "IntervalTier", "name": tier, **limits, "entries": entries}
    text: str = textgrid_io.getTextgridAsStr(
        {**limits, "tiers": [content]},
        "long_textgrid",
        includeBlankSpaces=True,
        minimumIntervalLength=None,  # keep short intervals
    )
    return text.removesuffix("\n")


# A caption ends after so many characters, or where the next word begins so many seconds later.
MOST_CHARACTERS, LONGEST_GAP = 42, 0.8


def captions(alignment: Alignment) -> list[tuple[float, float, str]]:
    """The start, the end and the words of each caption of a recording."""
    if alignment.unit != "seconds":
        raise ValueError(
            f"align: captions must have times, but positions of {alignment.name!r} are in "
            f"{alignment.unit}"
        )
    found: list[tuple[float, float, str]] = []
    for part in alignment.segments:
        if part.kind == "missing":
            continue
        if found:
            start, end, text = found[-1]
            is_near = part.start - end <= LONGEST_GAP
            if is_near and len(text) + 1 + len(part.label) <= MOST_CHARACTERS:
                found[-1] = (start, part.end, f"{text} {part.label}")
                continue
        found.append((part.start, part.end, part.label))
    return found


def _clock(seconds: float, point: str) -> str:
    milliseconds = round(seconds * 1000)
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{point}{rest % 1000:03}"


def to_srt(alignments: Iterable[Alignment]) -> str:
    """Write captions in the format SubRip.

    >>> from arcgrad.recipes.inference import Alignment, Segment, to_srt
    >>> said = Alignment("a.wav", "hi", "seconds", 1.0, 9, (Segment("hi", 0.2, 0.5, 2, 4, 0.0),))
    >>> print(to_srt([said]))
    1
    00:00:00,200 --> 00:00:00,500
    hi
    <BLANKLINE>
    """
    cues = [cue for alignment in alignments for cue in captions(alignment)]
    return "\n".join(
        f"{i}\n{_clock(start, ',')} --> {_clock(end, ',')}\n{text}\n"
        for i, (start, end, text) in enumerate(cues, 1)
    )


def to_vtt(alignments: Iterable[Alignment]) -> str:
    """Write captions in the format WebVTT.

    >>> from arcgrad.recipes.inference import Alignment, Segment, to_vtt
    >>> said = Alignment("a.wav", "hi", "seconds", 1.0, 9, (Segment("hi", 0.2, 0.5, 2, 4, 0.0),))
    >>> print(to_vtt([said]))
    WEBVTT
    <BLANKLINE>
    00:00:00.200 --> 00:00:00.500
    hi
    <BLANKLINE>
    """
    cues = [cue for alignment in alignments for cue in captions(alignment)]
    escapes = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
    return "WEBVTT\n\n" + "\n".join(
        f"{_clock(start, '.')} --> {_clock(end, '.')}\n{text.translate(escapes)}\n"
        for start, end, text in cues
    )


#: The functions that write several alignments into one text, by the name of the format.
FORMATS: dict[str, Callable[[Iterable[Alignment]], str]] = {
    "tsv": to_tsv,
    "json": to_json,
    "ctm": to_ctm,
    "srt": to_srt,
    "vtt": to_vtt,
}
