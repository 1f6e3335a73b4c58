"""Manifests: the examples of a prepared corpus, with one JSON object per line."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from arcgrad import _files

from .tokenizers import BOUNDARY

PathLike = str | os.PathLike[str]

# The folder for manifests inside the folder of a corpus.
FOLDER = "arcgrad"

# The maximum number of names in a message, and of characters of each.
NUM_NAMED = 5
LONGEST_NAME = 200

_EXACT = ConfigDict(strict=True, extra="forbid")

# The limits of rows: more than any image or recording has.
MOST_PIXELS, MOST_SECONDS = 1_000_000, 1_000_000.0

Text = Annotated[str, Field(pattern=f"^[^{BOUNDARY}]*$")]
Size = Annotated[int, Field(gt=0, le=MOST_PIXELS)]
Duration = Annotated[float, Field(gt=0, le=MOST_SECONDS)]


@checked_dataclass(frozen=True, config=_EXACT)
class Line:
    """A row for an image.

    Attributes:
        id: Its name in the corpus.
        text: Its text.
        image: The file, relative to the folder of the manifest.
        width: Of the image, in pixels.
        height: Of the image, in pixels.
    """

    id: str
    text: Text
    image: str
    width: Size
    height: Size


@checked_dataclass(frozen=True, config=_EXACT)
class Utterance:
    """A row for a recording.

    Attributes:
        id: Its name in the corpus.
        text: Its text.
        audio: The file, relative to the folder of the manifest.
        duration: In seconds.
    """

    id: str
    text: Text
    audio: str
    duration: Duration


Row = TypeVar("Row", Line, Utterance)


class CorpusError(ValueError):
    """A corpus is not complete.

    Attributes:
        problems: The names of missing or damaged examples, by kind.
    """

    is_user_error = True

    def __init__(self, message: str, problems: dict[str, list[str]]) -> None:
        super().__init__(message)
        self.problems = problems


@dataclass
class Problems:
    """The problems of a corpus, collected for a single message."""

    op: str
    found: dict[str, list[str]] = field(default_factory=dict)
    unusable: dict[str, list[str]] = field(default_factory=dict)

    ADVICE: ClassVar[str] = "pass allow_missing=True (--allow-missing) to leave these out"

    def add(self, kind: str, name: str) -> None:
        """Record a problem: its kind, such as ``"missing images"``, and a name."""
        self.found.setdefault(kind, []).append(name)

    def leave_out(self, kind: str, name: str) -> None:
        """Record an item that is intact but cannot be an example."""
        self.unusable.setdefault(kind, []).append(name)

    def __str__(self) -> str:
        return ", ".join(f"{len(n)} {kind} ({first_names(n)})" for kind, n in self.found.items())

    def check(self, *, allow: bool = False, advice: str = ADVICE) -> None:
        """Raise if there are problems, unless they are allowed."""
        if self.found and not allow:
            raise CorpusError(
                f"{self.op}: the corpus must be complete, but there are {self}; {advice}",
                self.found,
            )


@dataclass(frozen=True)
class Prepared:
    """The result of ``prepare``; with ``check_only`` nothing was written.

    Attributes:
        folder: The folder of the manifests.
        counts: The number of examples of each manifest.
        left_out: The names of left-out examples, by kind.
        hours: The hours of speech of each manifest of recordings.
    """

    folder: Path
    counts: dict[str, int]
    left_out: dict[str, list[str]]
    hours: dict[str, float] = field(default_factory=dict)


def write(
    folder: Path,
    manifests: dict[str, list[Row]],
    problems: Problems,
    *,
    allow: bool,
    check_only: bool = False,
) -> Prepared:
    """Write a manifest for each part of a corpus.

    Args:
        folder: The folder of the manifests, which is created.
        manifests: The rows of each part.
        problems: The problems of the corpus.
        allow: Whether problems are allowed. A part without examples is an error in any case.
        check_only: Whether to write nothing.

    Returns:
        A summary.

    Raises:
        CorpusError: If the corpus is incomplete and that is not allowed.
    """
    problems.check(allow=allow)
    empty = Problems(problems.op)
    for name, rows in manifests.items():
        if not rows:
            empty.add("parts without examples", name)
    problems.found.update(empty.found)
    if empty.found:
        problems.check(advice="no manifest was written")
    if not check_only:
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in manifests.items():
            lines = (json.dumps(dataclasses.asdict(row), ensure_ascii=False) for row in rows)
            content = "".join(f"{line}\n" for line in lines)
            _files.write(folder / f"{name}.jsonl", content.encode())
    counts = {name: len(rows) for name, rows in manifests.items()}
    hours = {
        name: sum(row.duration for row in rows if isinstance(row, Utterance)) / 3600
        for name, rows in manifests.items()
        if isinstance(rows[0], Utterance)
    }
    return Prepared(folder, counts, {**problems.unusable, **problems.found}, hours)


def first_names(names: Sequence[str]) -> str:
    """Return the first names as a text, for a message."""
    more = ["..."] if len(names) > NUM_NAMED else []
    return ", ".join([*(name[:LONGEST_NAME] for name in names[:NUM_NAMED]), *more])


def folder_of(op: str, path: PathLike, names: Iterable[str]) -> Path:
    """Return the folder with manifests: a path itself, or its folder ``arcgrad``.

    Args:
        op: The name of the caller, for errors.
        path: The folder of a corpus, or a folder with manifests.
        names: The required manifests.

    Raises:
        ValueError: If neither folder has them.
    """
    files = [f"{name}.jsonl" for name in names]
    for folder in (Path(path), Path(path) / FOLDER):
        if all((folder / file).exists() for file in files):
            return folder
    raise ValueError(
        f"{op}: {str(path)!r} or its folder {FOLDER!r} must have the manifests {', '.join(files)}, "
        "but it does not; run prepare first"
    )


def read(op: str, path: Path, row: type[Row], limit: int | None = None) -> list[Row]:
    """Read the rows of a manifest.

    Args:
        op: The name of the caller, for errors.
        path: The file.
        row: The type of rows.
        limit: The maximum number of rows to read; None for all.

    Raises:
        ValueError: If a line is not a valid row, which the message names, or the limit is not
            positive.
        OSError: If there is no such file.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"{op}: the limit must be at least 1, but it is {limit}")
    reader = TypeAdapter(row)
    rows: list[Row] = []
    lines = io.StringIO(_files.read_text(op, path))
    for number, line in enumerate(itertools.islice(lines, limit), 1):
        try:
            rows.append(reader.validate_json(line))
        except ValidationError as errors:
            error = errors.errors(include_url=False)[0]
            key = ".".join(map(str, error["loc"]))[:LONGEST_NAME]
            what = f"{key}: {error['msg']}".removeprefix(": ")
            fields = ", ".join(field.name for field in dataclasses.fields(row))
            raise ValueError(
                f"{op}: a row must be an object with {fields}, but line {number} of "
                f"{str(path)!r} is {_files.shown(line.strip())} ({what})"
            ) from None
    if not rows:
        raise ValueError(f"{op}: a manifest must have a row, but {str(path)!r} has none")
    return rows


def new_rows(kind: type[Row], problems: Problems, *fields: Any) -> Iterator[Row]:
    """Return a row whose first field is its name; none, with a problem, if a field is invalid."""
    try:
        yield kind(*fields)
    except ValidationError as errors:
        (place,) = errors.errors(include_url=False)[0]["loc"]
        field = place if isinstance(place, str) else dataclasses.fields(kind)[place].name
        problems.add(f"examples with an invalid {field}", str(fields[0]))


def read_lines(path: Path, problems: Problems) -> list[str]:
    """Return the lines of a file of a corpus; none, with a problem, if it cannot be read."""
    try:
        return _files.read_text(problems.op, path).splitlines()
    except (OSError, ValueError):
        problems.add("unreadable files", path.name)
        return []


def relative(path: Path, folder: Path) -> str:
    """Return a path relative to the folder of manifests, so that a corpus can be moved."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def existing_folder(op: str, path: PathLike) -> Path:
    """Return an existing folder, or raise."""
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{op}: {str(path)!r} must be the folder of the corpus, but it is not one")
    return folder
