"""Whole corpora: one output file per item, on this machine or on a cluster.

An output file is written under another name and then renamed, so it is complete or missing. Items
whose output exists are done: a run that was interrupted continues where it was, and a task that is
tried again does nothing twice.
"""

from __future__ import annotations

import functools
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from arcgrad import _files, decoding

from .adapter import FileEmissions, load_model
from .alignment import FORMATS, Alignment, Segment, to_textgrid
from .ray_engine import run_on_ray

__all__ = ["CorpusItem", "CorpusTask", "ItemError", "read_items", "run_corpus", "suffix_of"]

#: The keys of a manifest that may name the file of an item.
FILE_KEYS = ("audio_filepath", "audio", "image", "path", "file")
FAILURES = "failures.jsonl"


class CorpusItem(NamedTuple):
    """An item: the name of its output without suffix, its file, and its text."""

    name: str
    path: str
    text: str | None


class ItemError(NamedTuple):
    """Why an item has no output."""

    name: str
    error: str


@dataclass(frozen=True)
class CorpusTask:
    """What is done with each item.

    Attributes:
        op: ``"align"`` or ``"decode"``.
        model: What :func:`load_model` loads.
        format: The format of outputs: one of FORMATS, or ``"textgrid"``.
        options: Arguments of ``load_model``, as pairs.
        arguments: Arguments of ``align_words`` or ``CTCDecoder``, as pairs.
    """

    op: str
    model: str
    format: str = "json"
    options: tuple[tuple[str, Any], ...] = ()
    arguments: tuple[tuple[str, Any], ...] = ()

    def content(self, item: CorpusItem) -> bytes:
        """The content of the output of an item."""
        found = _worker(self)(item)
        if self.format == "textgrid":
            return f"{to_textgrid(found)}\n".encode()
        return f"{FORMATS[self.format]([found])}\n".encode()


@functools.lru_cache(maxsize=1)
def _worker(task: CorpusTask) -> Callable[[CorpusItem], Alignment]:
    """The function of a task; each process loads the model once."""
    model = load_model(task.op, task.model, **dict(task.options))
    arguments = {"blank": model.blank, **dict(task.arguments)}
    if task.op == "align":

        def align(item: CorpusItem) -> Alignment:
            emissions = model(Path(item.path))
            words = decoding.align_words(
                emissions.log_probs, item.text or "", model.labels, **arguments
            )
            segments = [
                _segment(emissions, word, words.unspelled.get(i, ""))
                for i, word in enumerate(words)
            ]
            return _alignment(item, item.text or "", emissions, segments)

        return align
    decoder = decoding.CTCDecoder(model.labels, **arguments)

    def decode(item: CorpusItem) -> Alignment:
        emissions = model(Path(item.path))
        found = decoder.decode(emissions.log_probs, confidences=True)[0]
        if not found:
            raise ValueError("decode: a path must fit into the frames and the beam, but none does")
        best = found[0]
        segments = [
            _segment(emissions, decoding.WordSpan(w.text, w.start, w.end, 0.0, w.confidence or 0.0))
            for w in best.words
        ]
        return _alignment(item, best.text, emissions, segments)

    return decode


def _segment(emissions: FileEmissions, word: decoding.WordSpan, unspelled: str = "") -> Segment:
    def position(frame: float) -> float:
        return max(0.0, emissions.offset + frame * emissions.shift)

    return Segment(
        word.word,
        position(word.start),
        position(word.end),
        int(word.start),
        int(word.end),
        word.score,
        word.confidence,
        word.kind,
        unspelled,
    )


def _alignment(
    item: CorpusItem, text: str, emissions: FileEmissions, segments: list[Segment]
) -> Alignment:
    count = len(emissions.log_probs)
    extent = max(0.0, emissions.offset + count * emissions.shift)
    return Alignment(item.name, text, emissions.unit, extent, count, tuple(segments))


def suffix_of(output_format: str) -> str:
    """The suffix of output files of a format."""
    return ".TextGrid" if output_format == "textgrid" else f".{output_format}"


def read_items(op: str, path: str | os.PathLike[str], needs_text: bool) -> list[CorpusItem]:
    """The items of a folder or a manifest.

    A folder has files, each beside a text with the same name and the suffix ``.txt``, if texts are
    needed. A manifest has JSON lines with a file and a text, or lines with a file, a tab and a
    text; its files are relative to the manifest.

    Raises:
        ValueError: If there are no items, names occur twice, or a line is wrong.
    """
    source = Path(path)
    if source.is_dir():
        items = list(_items_of_folder(source, needs_text))
    else:
        items = list(_items_of_manifest(op, source, needs_text))
    if not items:
        raise ValueError(f"{op}: a corpus must have an item, but {str(path)!r} has none")
    name, count = max(Counter(item.name for item in items).items(), key=lambda entry: entry[1])
    if count > 1:
        raise ValueError(
            f"{op}: the items of a corpus must have different names, but {count} are called "
            f"{name!r}"
        )
    return items


def _items_of_folder(folder: Path, needs_text: bool) -> Iterator[CorpusItem]:
    for file in sorted(folder.rglob("*")):
        if not file.is_file() or file.suffix == ".txt" or file.name.startswith("."):
            continue
        text = file.with_suffix(".txt")
        said = None
        if needs_text and text.is_file():
            said = " ".join(_files.read_text("align", text).split())
        yield CorpusItem(file.relative_to(folder).with_suffix("").as_posix(), str(file), said)


def _items_of_manifest(op: str, manifest: Path, needs_text: bool) -> Iterator[CorpusItem]:
    for number, line in enumerate(_files.read_text(op, manifest).split("\n"), 1):
        if not line.strip():
            continue
        where = f"line {number} of {str(manifest)!r}"
        if line.lstrip().startswith("{"):
            row = _files.parse_json(op, where, line)
            file = next((row[key] for key in FILE_KEYS if key in row), None)
            text, name = row.get("text"), row.get("id")
        else:
            file, tab, text = line.partition("\t")
            file, text, name = file.strip(), text.strip() if tab else None, None
        if not isinstance(file, str) or not file or (needs_text and not isinstance(text, str)):
            raise ValueError(
                f"{op}: a line of a manifest must have a file{' and a text' * needs_text}, but "
                f"{where} is {_files.shown(line)}"
            )
        pure = PurePath(file)
        own = pure.name if pure.is_absolute() or ".." in pure.parts else file
        name = PurePath(own).with_suffix("").as_posix() if name is None else str(name)
        yield CorpusItem(name, str(manifest.parent / file), text)


def run_shard(
    task: CorpusTask, out: str, items: Sequence[CorpusItem], show: Callable[[], None] | None = None
) -> list[ItemError]:
    """Write the outputs of items that have none; return why others failed."""
    failures = []
    for item in items:
        target = output_path(task, item, out)
        if not target.exists():
            try:
                if task.op == "align" and item.text is None:
                    raise ValueError("align: an item must have a text, but there is none")
                _write(target, task.content(item))
            # Errors of a user's model may be of any class.
            except Exception as error:
                failures.append(ItemError(item.name, " ".join(str(error).split())))
        if show is not None:
            show()
    return failures


def output_path(task: CorpusTask, item: CorpusItem, out: str) -> Path:
    """The output file of an item."""
    return Path(out) / f"{item.name}{suffix_of(task.format)}"


def _write(target: Path, content: bytes) -> None:
    # Processes of several machines may write into the same folder.
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        partial.write_bytes(content)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def run_corpus(
    task: CorpusTask,
    items: Sequence[CorpusItem],
    out: str | os.PathLike[str],
    *,
    engine: str = "local",
    address: str | None = None,
    shard_size: int = 32,
    show: Callable[[int, int], None] | None = None,
) -> list[ItemError]:
    """Write one output per item into a folder, and list failures in ``failures.jsonl``.

    Args:
        task: What is done with each item.
        items: The items.
        out: The folder. Items whose output is there already are skipped.
        engine: ``"local"``, or ``"ray"`` for a cluster.
        address: The address of the cluster; by default that of this machine, or a new one.
        shard_size: The number of items of a task on a cluster.
        show: Is called with the numbers of finished and of all items.

    Returns:
        The items that failed. They are tried again in the next run.
    """
    if engine not in ("local", "ray"):
        raise ValueError(f"{task.op}: the engine must be 'local' or 'ray', but it is {engine!r}")
    folder = os.fspath(Path(out).absolute())
    Path(folder).mkdir(parents=True, exist_ok=True)
    left = [item for item in items if not output_path(task, item, folder).exists()]
    done = len(items) - len(left)

    def finished(count: int) -> None:
        nonlocal done
        done += count
        if show is not None:
            show(done, len(items))

    finished(0)
    if engine == "ray":
        shards = [left[i : i + shard_size] for i in range(0, len(left), shard_size)]
        work = functools.partial(run_shard, task, folder)
        failures, lost = run_on_ray(task.op, work, shards, address, finished)
        failures += [ItemError(item.name, reason) for shard, reason in lost for item in shard]
    else:
        if left:
            _worker(task)  # an error of the model is not one of an item
        failures = run_shard(task, folder, left, lambda: finished(1))
    lines = "".join(f"{json.dumps(each._asdict(), ensure_ascii=False)}\n" for each in failures)
    if failures:
        _write(Path(folder) / FAILURES, lines.encode())
    else:
        (Path(folder) / FAILURES).unlink(missing_ok=True)
    return failures
