"""The two file formats of counts: compressed NumPy arrays, and text.

Both hold a head, which is a dictionary, and for each order the n-grams and their counts.
"""

from __future__ import annotations

import io
import itertools
import json
import os
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from arcgrad import _files

from ._table import Ints

Path: TypeAlias = str | os.PathLike[str]

TITLE = "arcgrad n-gram counts"
NAMES = ("order", "num_tokens", "start", "end", "symbols")

# Limits of counts: the length of n-grams, the number of tokens, and the sum of counts of an order.
MOST_ORDER = 1000
MOST_TOKENS = 2**31 - 2
MOST_COUNTS = 2**63 - 1


class Content(NamedTuple):
    """What a file holds, and the place of the n-gram at an index of an order in it."""

    head: dict[str, Any]
    ngrams: list[Ints]
    values: list[Ints]
    place: Callable[[int, int], str]


def save(path: Path, head: dict[str, Any], ngrams: list[Any], values: list[Ints]) -> None:
    """Write counts; a name that ends in ``.npz`` makes NumPy arrays, any other text."""
    if os.fspath(path).endswith(".npz"):
        arrays: dict[str, Any] = {"head": np.array(json.dumps(head))}
        for n, (rows, counts) in enumerate(zip(ngrams, values, strict=True), 1):
            arrays[f"ngrams{n}"], arrays[f"values{n}"] = rows, counts
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        _files.write(path, buffer.getvalue())
        return
    lines = [TITLE, json.dumps(head, ensure_ascii=False)]
    for rows, counts in zip(ngrams, values, strict=True):
        columns = np.column_stack([counts, rows])
        lines += [" ".join(map(str, row)) for row in columns.tolist()]
    _files.write(path, ("\n".join(lines) + "\n").encode())


def load(op: str, path: Path) -> Content:
    """The head, n-grams and counts in a file of either format; errors are reported as ``op``."""
    content = _files.read(op, path)
    read = _read_npz if content.startswith(b"PK") else _read_text
    return read(op, repr(os.fspath(path)), content)


def _is_whole(value: Any, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most


def _read_head(op: str, where: str, content: bytes | str) -> dict[str, Any]:
    """The head, whose entries are all valid; ``where`` names it in errors."""
    head = _files.parse_json(op, where, content)
    if not isinstance(head, dict) or not head.keys() >= set(NAMES):
        raise ValueError(
            f"{op}: {where} must describe the counts by {', '.join(NAMES)}, but it does not"
        )
    count, symbols = head["num_tokens"], head["symbols"]
    is_valid = {
        f"order must be a whole number from 1 to {MOST_ORDER}": (
            _is_whole(head["order"], 1, MOST_ORDER)
        ),
        f"num_tokens must be a whole number from 0 to {MOST_TOKENS + 1}": (
            _is_whole(count, 0, MOST_TOKENS + 1)
        ),
        "start must be true or false": isinstance(head["start"], bool),
        "end must be true or false": isinstance(head["end"], bool),
        "symbols must be null or a text for each token": symbols is None
        or (
            isinstance(symbols, list)
            and len(symbols) == count
            and all(isinstance(symbol, str) for symbol in symbols)
        ),
    }
    for rule, is_met in is_valid.items():
        if not is_met:
            given = _files.shown(head[rule.split()[0]])
            raise ValueError(f"{op}: in {where}, {rule}, but the value is {given}")
    return head


def _read_npz(op: str, name: str, content: bytes) -> Content:
    try:
        arrays = _files.parse_arrays(content)
    except ValueError as error:
        raise ValueError(f"{op}: {name} must hold counts, but {error}") from None
    text = arrays.get("head")
    if text is None or text.dtype.kind != "U" or text.ndim:
        raise ValueError(f"{op}: {name} must hold counts, but it has no head")
    head = _read_head(op, f"the head of {name}", str(text))
    ngrams, values = [], []
    for n in range(1, head["order"] + 1):
        rows, counts = arrays.get(f"ngrams{n}"), arrays.get(f"values{n}")
        if (
            rows is None
            or counts is None
            or rows.dtype.kind not in "iu"
            or counts.dtype.kind not in "iu"
            or rows.shape != (len(rows), n)
            or counts.shape != (len(rows),)
        ):
            raise ValueError(
                f"{op}: {name} must hold {n}-grams and their counts as arrays of whole numbers, "
                "but it does not"
            )
        ngrams.append(rows.astype(np.int64))
        values.append(counts.astype(np.int64))
    return Content(head, ngrams, values, lambda n, i: f"{n}-gram {i} of {name}")


def _read_text(op: str, name: str, content: bytes) -> Content:
    lines = content.split(b"\n")
    if lines[0] != TITLE.encode():
        raise ValueError(f"{op}: {name} must begin with {TITLE!r}, but it does not")
    head = _read_head(op, f"line 2 of {name}", lines[1] if len(lines) > 1 else b"")
    order = head["order"]
    by_order: list[list[list[int]]] = [[] for _ in range(order)]

    def place(n: int, i: int) -> str:
        rows = (number for number, line in enumerate(lines[2:], 3) if len(line.split()) == n + 1)
        return f"line {next(itertools.islice(rows, i, None))} of {name}"

    for number, line in enumerate(lines[2:], 3):
        if not line:
            continue
        try:
            row = list(map(int, line.split()))
            if not 2 <= len(row) <= order + 1:
                raise ValueError
        except ValueError:
            raise ValueError(
                f"{op}: line {number} of {name} must hold a count and 1 to {order} tokens, but it "
                f"is {_files.shown(line)}"
            ) from None
        by_order[len(row) - 2].append(row)
    columns = []
    for n, rows in enumerate(by_order, 1):
        try:
            columns.append(np.array(rows, np.int64).reshape(-1, n + 1))
        except OverflowError:
            i = next(i for i, row in enumerate(rows) if max(map(abs, row)) > MOST_COUNTS)
            raise ValueError(
                f"{op}: {place(n, i)} must hold numbers of 64 bits, but it is "
                f"{_files.shown(' '.join(map(str, rows[i])))}"
            ) from None
    return Content(head, [c[:, 1:] for c in columns], [c[:, 0] for c in columns], place)
