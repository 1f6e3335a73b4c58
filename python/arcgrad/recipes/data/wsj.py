"""The Wall Street Journal corpora: read news, 16 kHz (licensed; LDC93S6A and LDC94S13A).

The index files, transcripts (``*.dot``) and recordings of ``csr_1`` and ``csr_2_comp`` are read.
The parts are ``train_si284``, ``dev_93`` and ``eval_92``. Recordings are NIST SPHERE files, most of
them compressed with shorten, which must be converted once: see :func:`prepare`.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

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

INDICES_1 = "csr_1/11-13.1/wsj0/doc/indices"
INDICES_2 = "csr_2_comp/13-34.1/wsj1/doc/indices"
PARTS = {
    "train_si284": (f"{INDICES_2}/si_tr_s.ndx", f"{INDICES_1}/train/tr_s_wv1.ndx"),
    "dev_93": (f"{INDICES_2}/h1_p0.ndx",),
    "eval_92": (f"{INDICES_1}/test/nvp/si_et_20.ndx",),
}
TRANSCRIPTS = (
    "csr_1/*/wsj0/transcrp/dots",
    "csr_2_comp/13-34.1/wsj1/trans",
    "csr_1/11-14.1/wsj0/si_et_20",
)
# The folder of a disc, by the first number of its name in an index file.
DISCS = {"11": "csr_1", "13": "csr_2_comp"}
# Left out of the training set by common usage.
DROPPED = "wsj0/si_tr_s/401/"

INDEX_ROW = re.compile(
    r"(\d{1,4})_(\d{1,4})_(\d{1,4})\s*:\s*(\w[\w.-]{0,99}(?:/\w[\w.-]{0,99}){0,9})", re.ASCII
)
DOT_ROW = re.compile(r"(.*)\((\w+)\)\s*")

# Noises, and the marks of the transcript notation.
NOISE = re.compile(r"\[[^\[\]]*\]")
MARKS = re.compile(r"[<>\\()*\":?;!,~{}%/&+$#@_]|\.\.\.")
# Punctuation that was spoken: the sign before its name.
SPOKEN_QUOTE = re.compile(r"(?<!\S)'(?=(?:[a-z]+-)*(?:quote|unquote|apostrophe)(?!\S))")
SPOKEN_SIGN = re.compile(r"(?<!\S)[.\-]+(?=[a-z])")
# Signs alone: pauses, and dashes that were not spoken.
ALONE = re.compile(r"(?<!\S)[.\-']+(?!\S)")


def clean(text: str) -> str:
    """Return a clean transcript.

    Letters become lower case. Noises in brackets, pauses, and the marks of truncated, emphasised
    and mispronounced words are deleted. Spoken punctuation keeps its name: ``.POINT`` becomes
    ``point``. Dots and dashes inside words stay, and back-quotes become apostrophes.

    >>> from arcgrad.recipes.data import wsj
    >>> wsj.clean("Mr. *Smith* [door_slam] said ,COMMA <it> ROSE six .POINT five --DASH . (maybe)")
    'mr. smith said comma it rose six point five dash maybe'
    """
    text = NOISE.sub(" ", text.lower().replace("`", "'"))
    text = SPOKEN_QUOTE.sub("", MARKS.sub("", text))
    text = ALONE.sub("", SPOKEN_SIGN.sub("", text))
    return " ".join(text.split())


class Recording(NamedTuple):
    """A recording of an index file: its file from the root, and its name."""

    file: str
    id: str


def prepare(
    data_path: PathLike,
    out: PathLike | None = None,
    *,
    convert: bool = False,
    audio_path: PathLike | None = None,
    allow_missing: bool = False,
    check_only: bool = False,
    progress: Callable[[Sequence[Any]], Iterable[Any]] = iter,
) -> Prepared:
    """Read the folder with ``csr_1`` and ``csr_2_comp`` and write a manifest for each part.

    libsndfile cannot read recordings compressed with shorten. Either install sph2pipe and set
    ``convert``; or convert them by other means, to files of the same path with the suffix ``.wav``
    or ``.flac``, in the same folder or under ``audio_path``.

    Args:
        data_path: The folder of the corpora.
        out: The folder for manifests; by default ``arcgrad`` in the folder of the corpora.
        convert: Whether to convert compressed recordings with sph2pipe, into ``audio`` in the
            folder for manifests.
        audio_path: A folder with converted recordings.
        allow_missing: Whether to leave out examples with problems instead of raising.
        check_only: Whether to decode every file and write nothing.
        progress: Wraps the sequence of recordings to show progress.

    Returns:
        A summary.

    Raises:
        CorpusError: If files are missing or cannot be read; the message counts and names them.
        ValueError: If there is no such folder, or ``convert`` is set but sph2pipe is not installed,
            or together with ``check_only``.
    """
    op = "wsj.prepare"
    root = manifests.existing_folder(op, data_path)
    folder = root / manifests.FOLDER if out is None else Path(out)
    if convert and check_only:
        raise ValueError(f"{op}: a check must not write, but convert does; use only one of them")
    if convert and shutil.which("sph2pipe") is None:
        raise ValueError(
            f"{op}: convert needs the program sph2pipe, but it is not on the path; it is at "
            "openslr.org/3"
        )
    problems = Problems(op)
    listed = {part: _read_indices(root, files, problems) for part, files in PARTS.items()}
    texts = _read_transcripts(root, problems)
    problems.check(allow=allow_missing)

    places = [folder / "audio", root]
    if audio_path is not None:
        places.insert(0, manifests.existing_folder(op, audio_path))
    rows: dict[str, list[Utterance]] = {part: [] for part in PARTS}
    for part, recording in progress([(p, r) for p, each in listed.items() for r in each]):
        text = texts.get(recording.id)
        if text is None:
            problems.add("recordings without transcript", recording.id)
            continue
        if not text:
            problems.leave_out("recordings of nothing but noise", recording.id)
            continue
        audio = _readable(recording, root, places, problems, folder / "audio" if convert else None)
        if audio is None:
            continue
        rows[part] += read_utterance(
            recording.id, text, audio, folder, RATE, recording.file, problems
        )
    if check_only:
        read = functools.partial(decode_utterance, rate=RATE)
        manifests.decode(rows, folder, read, problems, progress)
    return manifests.write(folder, rows, problems, allow=allow_missing, check_only=check_only)


def _read_indices(root: Path, files: Iterable[str], problems: Problems) -> list[Recording]:
    """The recordings of index files."""
    recordings = []
    for file in files:
        path = root / file
        if not path.is_file():
            problems.add("missing index files", file)
            continue
        for number, row in enumerate(manifests.read_lines(path, problems), 1):
            row = row.strip().lower()
            if not row or row.startswith(";"):
                continue
            match = INDEX_ROW.fullmatch(row)
            if match is None or match[1] not in DISCS:
                problems.add(f"malformed rows of {path.name}", f"line {number}")
            elif not match[4].startswith(DROPPED):
                name = match[4].removesuffix(".wv1")
                disc = f"{DISCS[match[1]]}/{match[1]}-{match[2]}.{match[3]}"
                recordings.append(Recording(f"{disc}/{name}.wv1", name.rpartition("/")[2]))
    return recordings


def _read_transcripts(root: Path, problems: Problems) -> dict[str, str]:
    """The text of each recording."""
    texts: dict[str, str] = {}
    folders = [folder for pattern in TRANSCRIPTS for folder in sorted(root.glob(pattern))]
    for path in sorted({path for folder in folders for path in folder.rglob("*.dot")}):
        for number, row in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
            match = DOT_ROW.fullmatch(row)
            if match is not None:
                texts[match[2].lower()] = clean(match[1])
            elif row.strip():
                problems.add("malformed rows of transcripts", f"{path.name} line {number}")
    return texts


def _readable(
    recording: Recording,
    root: Path,
    places: Iterable[Path],
    problems: Problems,
    converted: Path | None,
) -> Path | None:
    """Return a readable file of a recording: a converted one, or the original."""
    original = root / recording.file
    for place in places:
        for suffix in (".wav", ".flac"):
            path = (place / recording.file).with_suffix(suffix)
            if path.is_file():
                return path
    if not original.is_file():
        problems.add("missing recordings", recording.file)
        return None
    if not is_compressed(original):
        return original
    if converted is None:
        problems.add(
            "recordings compressed with shorten, which need sph2pipe and convert=True (--convert), "
            "or other means: sph2pipe -p -f wav x.wv1 x.wav",
            recording.file,
        )
        return None
    target = (converted / recording.file).with_suffix(".wav")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Rename at the end, so that the final name never has partial content.
    partial = target.with_suffix(".part")
    command = ["sph2pipe", "-p", "-f", "wav", str(original), str(partial)]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        partial.unlink(missing_ok=True)
        problems.add("recordings that sph2pipe cannot convert", recording.file)
        return None
    partial.replace(target)
    return target


def is_compressed(path: Path) -> bool:
    """Return whether the header of a SPHERE file names the compression shorten."""
    with open(path, "rb") as file:
        header = file.read(1024)
    coding = re.search(rb"^sample_coding\s+-s\d+\s+(.*)$", header, re.MULTILINE)
    return coding is not None and b"shorten" in coding[1]


def load(
    data_path: PathLike,
    *,
    train: str | Sequence[str] = "train_si284",
    validation: str | Sequence[str] = "dev_93",
    test: str | Sequence[str] = "eval_92",
    features: LogMel | None = None,
    augmentation: SpecAugment | None = AUGMENTATION,
    limit: int | None = None,
    limits: Mapping[str, int] | None = None,
    damaged: Literal["stop", "skip"] = "stop",
    seed: int = 0,
) -> Splits[RecordingsInFiles]:
    """Utterances of train_si284, dev_93 and eval_92, after :func:`prepare`.

    Args:
        data_path: The folder of the corpora, or the folder with their manifests.
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
        "wsj.load",
        data_path,
        (train, validation, test),
        features=LogMel(rate=RATE) if features is None else features,
        augmentation=augmentation,
        limit=limit,
        limits=limits or {},
        damaged=damaged,
        seed=seed,
    )
