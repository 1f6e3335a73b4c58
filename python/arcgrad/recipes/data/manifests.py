"""Manifests: the examples of a prepared corpus, with one JSON object per line."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from arcgrad import _files
from arcgrad.recipes.checked_files import digest, from_json, to_json

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
FileSize = Annotated[int, Field(ge=0)]

# The numbers of rows and the checksums of the manifests in the same folder.
INDEX = "manifests.json"


@checked_dataclass(frozen=True, config=_EXACT)
class Line:
    """A row for an image.

    Attributes:
        id: Its name in the corpus.
        text: Its text.
        image: The file, relative to the folder of the manifest.
        width: Of the image, in pixels.
        height: Of the image, in pixels.
        size: Of the file, in bytes; None if it is not known.
    """

    id: str
    text: Text
    image: str
    width: Size
    height: Size
    size: FileSize | None = None

    @property
    def file(self) -> str:
        """The file of the row."""
        return self.image


@checked_dataclass(frozen=True, config=_EXACT)
class Utterance:
    """A row for a recording.

    Attributes:
        id: Its name in the corpus.
        text: Its text.
        audio: The file, relative to the folder of the manifest.
        duration: In seconds.
        size: Of the file, in bytes; None if it is not known.
    """

    id: str
    text: Text
    audio: str
    duration: Duration
    size: FileSize | None = None

    @property
    def file(self) -> str:
        """The file of the row."""
        return self.audio


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
        index = _read_index(problems.op, folder)
        for name, rows in manifests.items():
            sized = (
                dataclasses.replace(row, size=(folder / row.file).stat().st_size) for row in rows
            )
            lines = (json.dumps(dataclasses.asdict(row), ensure_ascii=False) for row in sized)
            content = "".join(f"{line}\n" for line in lines).encode()
            _files.write(folder / f"{name}.jsonl", content)
            index[name] = {"rows": len(rows), "sha256": digest(content)}
        _files.write(folder / INDEX, to_json({"manifests": index}))
    counts = {name: len(rows) for name, rows in manifests.items()}
    hours = {
        name: sum(row.duration for row in rows if isinstance(row, Utterance)) / 3600
        for name, rows in manifests.items()
        if isinstance(rows[0], Utterance)
    }
    return Prepared(folder, counts, {**problems.unusable, **problems.found}, hours)


def _read_index(op: str, folder: Path) -> dict[str, Any]:
    """Return the number of rows and the checksum of each manifest of a folder."""
    path = folder / INDEX
    if not path.exists():
        return {}
    found = from_json(op, path, path.read_bytes()).get("manifests")
    if not isinstance(found, dict) or not all(isinstance(each, dict) for each in found.values()):
        raise ValueError(
            f"{op}: {str(path)!r} must list manifests, but it has {_files.shown(found)}; run "
            "prepare again"
        )
    return found


def decode(
    manifests: dict[str, list[Row]],
    folder: Path,
    read: Callable[[Row, Path], None],
    problems: Problems,
    progress: Callable[[Sequence[Any]], Iterable[Any]],
) -> None:
    """Read the file of each row in several threads; leave out rows whose file is damaged.

    Args:
        manifests: The rows of each part, which are changed.
        folder: The folder of the manifests.
        read: Reads a file, and raises for a damaged one.
        problems: The problems of the corpus.
        progress: Wraps the sequence of files to show progress.
    """
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        # The folder of the manifests may not exist yet. Images that would be cut from a form do
        # not exist either; the form is decoded already.
        root = folder.resolve()
        futures = [
            (name, row, pool.submit(read, row, path))
            for name, rows in manifests.items()
            for row in rows
            if (path := Path(os.path.normpath(root / row.file))).exists()
        ]
        damaged = set()
        for name, row, future in progress(futures):
            # Libraries raise errors of many classes for damaged files.
            if future.exception() is not None:
                problems.add("files that cannot be decoded", f"{row.id} in {row.file}")
                damaged.add((name, row.id))
    for name, rows in manifests.items():
        manifests[name] = [row for row in rows if (name, row.id) not in damaged]


def first_names(names: Sequence[str]) -> str:
    """Return the first names as a text, for a message."""
    more = ["..."] if len(names) > NUM_NAMED else []
    return ", ".join([*(name[:LONGEST_NAME] for name in names[:NUM_NAMED]), *more])


def load_rows(
    op: str,
    path: PathLike,
    parts: Sequence[Sequence[str]],
    row: type[Row],
    *,
    limits: Sequence[int | None],
    damaged: Literal["stop", "skip"] = "stop",
) -> tuple[Path, list[list[Row]], tuple[str, ...]]:
    """Read the rows of training, validation and test data, and check their files.

    The test data may be missing; their list is then empty.

    Args:
        op: The name of the caller, for errors.
        path: The folder of a corpus, or a folder with manifests.
        parts: The manifests of each split.
        row: The type of rows.
        limits: The maximum number of rows of each split, at equal distances; None for all.
        damaged: Whether to raise for a file that is missing or has another size, or to leave it
            out.

    Returns:
        The folder of the manifests, the rows of each split, and the names of those left out.

    Raises:
        ValueError: If a manifest is missing or damaged, or a limit is not positive.
        CorpusError: If a file is missing or has another size.
    """
    for limit in limits:
        if limit is not None and limit < 1:
            raise ValueError(f"{op}: the limit must be at least 1, but it is {limit}")
    folder = _folder_of(op, path, [name for names in parts[:2] for name in names])
    is_there = all((folder / f"{name}.jsonl").exists() for name in parts[2])
    index, problems = _read_index(op, folder), Problems(op)
    splits: list[list[Row]] = []
    for names, limit in zip(parts if is_there else parts[:2], limits, strict=False):
        rows = [each for name in names for each in _read(op, folder, name, row, index)]
        if limit is not None and limit < len(rows):
            rows = [rows[i * len(rows) // limit] for i in range(limit)]
        splits.append([each for each in rows if _is_whole(folder, each, problems)])
        if not splits[-1]:
            problems.check(advice="no file is left")
    if not is_there:
        splits.append([])
    advice = "restore them and run prepare, or leave them out with data.damaged=skip"
    problems.check(allow=damaged == "skip", advice=advice)
    left_out = tuple(name for names in problems.found.values() for name in names)
    return folder, splits, left_out


def _is_whole(folder: Path, row: Line | Utterance, problems: Problems) -> bool:
    """Return whether the file of a row has the size that it had when it was prepared."""
    try:
        size = (folder / row.file).stat().st_size
    except OSError:
        problems.add("missing files", row.file)
        return False
    if row.size is not None and size != row.size:
        problems.add("files of another size than when they were prepared", row.file)
        return False
    return True


def _folder_of(op: str, path: PathLike, names: Iterable[str]) -> Path:
    """Return the folder with manifests: a path itself, or its folder ``arcgrad``."""
    files = [f"{name}.jsonl" for name in names]
    for folder in (Path(path), Path(path) / FOLDER):
        if all((folder / file).exists() for file in files):
            return folder
    raise ValueError(
        f"{op}: {str(path)!r} or its folder {FOLDER!r} must have the manifests {', '.join(files)}, "
        "but it does not; run prepare first"
    )


def _read(
    op: str, folder: Path, name: str, row: type[Row], index: dict[str, dict[str, Any]]
) -> list[Row]:
    """Read the rows of a manifest."""
    path = folder / f"{name}.jsonl"
    reader = TypeAdapter(row)
    rows: list[Row] = []
    lines = io.StringIO(_files.read_text(op, path))
    for number, line in enumerate(lines, 1):
        try:
            rows.append(reader.validate_json(line))
        except ValidationError as errors:
            error = errors.errors(include_url=False)[0]
            key = ".".join(map(str, error["loc"]))[:LONGEST_NAME]
            what = f"{key}: {error['msg']}".removeprefix(": ")
            required = (f.name for f in dataclasses.fields(row) if f.name != "size")
            fields = ", ".join(required)
            raise ValueError(
                f"{op}: a row must be an object with {fields}, but line {number} of "
                f"{str(path)!r} is {_files.shown(line.strip())} ({what})"
            ) from None
    if not rows:
        raise ValueError(f"{op}: a manifest must have a row, but {str(path)!r} has none")
    wanted = index.get(name)
    if wanted is not None and wanted.get("sha256") != digest(path.read_bytes()):
        raise ValueError(
            f"{op}: a manifest must be as prepare wrote it, with {wanted.get('rows')} rows, but "
            f"{str(path)!r} has changed and has {len(rows)}; run prepare again"
        )
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
