"""Manifests: what ``prepare`` found of a corpus, as one JSON object per line."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, TypeVar

from arcgrad import _files

PathLike = str | os.PathLike[str]

# The folder for manifests inside that of a corpus.
FOLDER = "arcgrad"

# What a JSON value must be for a field.
TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}

# How many names of a kind of problem a message has.
NUM_NAMED = 5


@dataclass(frozen=True)
class Line:
    """A row for an image.

    Attributes:
        id: Its name in the corpus.
        text: What it says.
        image: The file, from the folder of the manifest.
        width: Of the image, in pixels.
        height: Of the image, in pixels.
    """

    id: str
    text: str
    image: str
    width: int
    height: int


@dataclass(frozen=True)
class Utterance:
    """A row for a recording.

    Attributes:
        id: Its name in the corpus.
        text: What is said.
        audio: The file, from the folder of the manifest.
        duration: In seconds.
    """

    id: str
    text: str
    audio: str
    duration: float


Row = TypeVar("Row", Line, Utterance)


class CorpusError(ValueError):
    """A corpus is not complete.

    Attributes:
        problems: The names of what is wrong, by kind.
    """

    def __init__(self, message: str, problems: dict[str, list[str]]) -> None:
        super().__init__(message)
        self.problems = problems


@dataclass
class Problems:
    """What is wrong with a corpus, collected so that one message can tell it all."""

    op: str
    found: dict[str, list[str]] = field(default_factory=dict)
    unusable: dict[str, list[str]] = field(default_factory=dict)

    ADVICE: ClassVar[str] = "pass allow_missing=True (--allow-missing) to leave these out"

    def add(self, kind: str, name: str) -> None:
        """Notes a problem: its kind, such as ``"missing images"``, and which it is."""
        self.found.setdefault(kind, []).append(name)

    def leave_out(self, kind: str, name: str) -> None:
        """Notes what cannot be an example although nothing is wrong with it."""
        self.unusable.setdefault(kind, []).append(name)

    def __str__(self) -> str:
        parts = []
        for kind, names in self.found.items():
            more = ["..."] if len(names) > NUM_NAMED else []
            parts.append(f"{len(names)} {kind} ({', '.join(names[:NUM_NAMED] + more)})")
        return ", ".join(parts)

    def check(self, *, allow: bool = False, advice: str = ADVICE) -> None:
        """Raises if there are problems, unless they are allowed."""
        if self.found and not allow:
            raise CorpusError(
                f"{self.op}: the corpus must be complete, but there are {self}; {advice}",
                self.found,
            )


@dataclass(frozen=True)
class Prepared:
    """What ``prepare`` wrote, or would have written.

    Attributes:
        folder: Where the manifests are.
        counts: The number of examples of each manifest.
        left_out: The names of what was left out, by kind.
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
    """Writes a manifest for each part of a corpus, if it is complete or need not be.

    Args:
        folder: Where to; it is made.
        manifests: The rows of each part.
        problems: What was found.
        allow: Whether problems are allowed. A part without examples never is.
        check_only: Whether nothing is written.

    Returns:
        What was written, or would have been.

    Raises:
        CorpusError: If the corpus is not complete.
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


def folder_of(op: str, path: PathLike, names: Iterable[str]) -> Path:
    """The folder with manifests: a path itself, or its folder ``arcgrad``.

    Args:
        op: The function that asks.
        path: A corpus, or a folder with manifests.
        names: The manifests that must be there.

    Raises:
        ValueError: If there is no such folder.
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
    """The rows of a manifest.

    Args:
        op: The function that asks.
        path: The file.
        row: Their type.
        limit: The number of rows to read, the first ones; by default all.

    Raises:
        ValueError: If a line is no such row, which the message names, or the limit is not positive.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"{op}: the limit must be at least 1, but it is {limit}")
    types = {field.name: TYPES[str(field.type)] for field in dataclasses.fields(row)}
    rows: list[Row] = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if limit is not None and len(rows) == limit:
                break
            try:
                content = json.loads(line)
            except ValueError:
                content = None
            good = isinstance(content, dict) and content.keys() == types.keys()
            if not good or any(not isinstance(content[name], types[name]) for name in types):
                raise ValueError(
                    f"{op}: a row must be an object with {', '.join(types)}, but line {number} of "
                    f"{str(path)!r} is {line.strip()[:80]!r}"
                )
            rows.append(row(**content))
    if not rows:
        raise ValueError(f"{op}: a manifest must have a row, but {str(path)!r} has none")
    return rows


def relative(path: Path, folder: Path) -> str:
    """A file as manifests name it: from their folder, so that a corpus can be moved."""
    return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()


def existing_folder(op: str, path: PathLike) -> Path:
    """A folder that must be there."""
    folder = Path(path)
    if not folder.is_dir():
        raise ValueError(f"{op}: {str(path)!r} must be the folder of the corpus, but it is none")
    return folder
