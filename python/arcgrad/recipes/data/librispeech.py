"""LibriSpeech: read English books, 16 kHz (CC BY 4.0; openslr.org/12).

These files of its folder, or of ``LibriSpeech`` in it, are read:
``<part>/<speaker>/<chapter>/*.flac``, and in the same folders the transcripts
``<speaker>-<chapter>.trans.txt``, with rows ``<id> UPPER CASE TEXT``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from . import manifests
from .examples import Splits
from .manifests import PathLike, Prepared, Problems, Utterance
from .speech import (
    LogMel,
    RecordingsInFiles,
    SpecAugment,
    decode_utterance,
    load_recordings,
    read_utterance,
)

RATE = 16000

#: The masks for training examples.
AUGMENTATION = SpecAugment()

PARTS = (
    *("train-clean-100", "train-clean-360", "train-other-500"),
    *("dev-clean", "dev-other", "test-clean", "test-other"),
)


def prepare(
    data_path: PathLike,
    out: PathLike | None = None,
    *,
    parts: Sequence[str] | None = None,
    allow_missing: bool = False,
    check_only: bool = False,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Prepared:
    """Read LibriSpeech's folder and write a manifest for each part. Texts are in lower case.

    Args:
        data_path: The folder of the corpus.
        out: The folder for manifests; by default ``arcgrad`` in the corpus folder.
        parts: The parts, such as ``"train-clean-100"``; by default all existing parts.
        allow_missing: Whether to leave out examples with problems instead of raising.
        check_only: Whether to decode every file and write nothing.
        progress: Wraps the sequence of chapters to show progress.

    Returns:
        A summary.

    Raises:
        CorpusError: If files are missing or cannot be read; the message counts and names them.
        ValueError: If there is no such folder, or it has no parts.
    """
    op = "librispeech.prepare"
    root = manifests.existing_folder(op, data_path)
    folder = root / manifests.FOLDER if out is None else Path(out)
    if (root / "LibriSpeech").is_dir():
        root = root / "LibriSpeech"
    problems = Problems(op)
    if parts is None:
        parts = [part for part in PARTS if (root / part).is_dir()]
        if not parts:
            raise ValueError(
                f"{op}: {str(root)!r} must have parts such as {PARTS[0]!r}, but it has none"
            )
    for part in parts:
        if not (root / part).is_dir():
            problems.add("missing parts", part)
    problems.check(advice="unpack them there, or name the parts to use")

    rows: dict[str, list[Utterance]] = {part: [] for part in parts}
    chapters = [
        (part, path)
        for part in parts
        for path in sorted((root / part).glob("*/*"))
        if path.is_dir()
    ]
    for part, chapter in progress(chapters):
        rows[part] += _read_chapter(chapter, root, folder, problems)
    if check_only:
        read = functools.partial(decode_utterance, rate=RATE)
        manifests.decode(rows, folder, read, problems, progress)
    return manifests.write(folder, rows, problems, allow=allow_missing, check_only=check_only)


def _read_chapter(
    chapter: Path, root: Path, folder: Path, problems: Problems
) -> Iterable[Utterance]:
    """The rows of a chapter."""
    path = chapter / f"{chapter.parent.name}-{chapter.name}.trans.txt"
    if not path.is_file():
        problems.add("missing transcripts", str(path.relative_to(root)))
        return
    recordings = {file.stem: file for file in chapter.glob("*.flac")}
    for number, row in enumerate(manifests.read_lines(path, problems), 1):
        name, _, text = row.strip().partition(" ")
        if not name:
            continue
        audio = recordings.pop(name, None)
        if not text:
            problems.add("rows without text", f"{path.name} line {number}")
        elif audio is None:
            problems.add("missing recordings", f"{name}.flac")
        else:
            spoken = " ".join(text.lower().split())
            yield from read_utterance(name, spoken, audio, folder, RATE, audio.name, problems)
    for name in sorted(recordings):
        problems.add("recordings without transcript", f"{name}.flac")


def load(
    data_path: PathLike,
    *,
    train: str | Sequence[str] = "train-clean-100",
    validation: str | Sequence[str] = "dev-clean",
    test: str | Sequence[str] = "test-clean",
    features: LogMel | None = None,
    augmentation: SpecAugment | None = AUGMENTATION,
    limit: int | None = None,
    limits: Mapping[str, int] | None = None,
    damaged: Literal["stop", "skip"] = "stop",
    seed: int = 0,
) -> Splits[RecordingsInFiles]:
    """Utterances of LibriSpeech, after :func:`prepare`.

    Args:
        data_path: The folder of the corpus, or the folder with its manifests.
        train: The part or parts for training.
        validation: The part or parts for validation.
        test: The part or parts for the test.
        features: The preprocessing of samples; by default ``LogMel()``.
        augmentation: Masks for training examples, or None.
        limit: The maximum number of examples of each split, at equal distances; None for all.
        limits: The same for ``"train"``, ``"validation"`` and ``"test"``, which counts first.
        damaged: Whether to raise for a file that is missing or has changed its size, or to
            ``"skip"`` it.
        seed: The seed of the masks.

    Returns:
        The data sets, with the letters of all splits as tokens.

    Raises:
        ValueError: If there are no manifests, or they are damaged. The test data may be missing.
        CorpusError: If a file is missing or has changed its size.
    """
    return load_recordings(
        "librispeech.load",
        data_path,
        (train, validation, test),
        features=LogMel(rate=RATE) if features is None else features,
        augmentation=augmentation,
        limit=limit,
        limits=limits or {},
        damaged=damaged,
        seed=seed,
    )
