"""The two file formats of counts: compressed NumPy arrays, and text.

Both hold a head, which is a dictionary, and for each order the n-grams and their counts.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
from typing import Any, TypeAlias

import numpy as np

from arcgrad import _files

from ._table import Ints

Path: TypeAlias = str | os.PathLike[str]
Content: TypeAlias = tuple[dict[str, Any], list[Ints], list[Ints]]

TITLE = "arcgrad n-gram counts"
NAMES = {"order", "num_tokens", "start", "end", "symbols"}


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
    return read(op, path, content)


def _checked(head: Any) -> dict[str, Any]:
    if not isinstance(head, dict) or not head.keys() >= NAMES or not isinstance(head["order"], int):
        raise ValueError("the head is incomplete")
    return head


def _read_npz(op: str, path: Path, content: bytes) -> Content:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            head = _checked(json.loads(str(arrays["head"])))
            orders = range(1, head["order"] + 1)
            ngrams = [arrays[f"ngrams{n}"].astype(np.int64).reshape(-1, n) for n in orders]
            values = [arrays[f"values{n}"].astype(np.int64) for n in orders]
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ValueError(
            f"{op}: {os.fspath(path)!r} must hold counts, but it does not: {error}"
        ) from None
    return head, ngrams, values


def _read_text(op: str, path: Path, content: bytes) -> Content:
    lines = content.split(b"\n")
    if lines[0] != TITLE.encode():
        raise ValueError(f"{op}: {os.fspath(path)!r} must begin with {TITLE!r}, but it does not")
    try:
        head = _checked(json.loads(lines[1]))
    except (IndexError, ValueError):
        raise ValueError(
            f"{op}: line 2 of {os.fspath(path)!r} must describe the counts, but it does not"
        ) from None
    by_order: dict[int, list[list[int]]] = {n: [] for n in range(1, head["order"] + 1)}
    for number, line in enumerate(lines[2:], 3):
        if not line:
            continue
        try:
            row = list(map(int, line.split()))
            by_order[len(row) - 1].append(row)
        except (ValueError, KeyError):
            raise ValueError(
                f"{op}: line {number} must hold a count and 1 to {len(by_order)} tokens, but it is "
                f"{line.decode(errors='replace')!r}"
            ) from None
    columns = [np.array(x, np.int64).reshape(-1, n + 1) for n, x in by_order.items()]
    return head, [c[:, 1:] for c in columns], [c[:, 0] for c in columns]
