"""Reading, checking and replacing files.

Whatever is wrong with the content of a file is one ValueError that names the file, and nothing is
allocated by the word of a file alone.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import os
import reprlib
import threading
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

GZIP = b"\x1f\x8b"

# The size to which compressed content may expand: a multiple of its size, for small files more.
MOST_EXPANSION, MOST_EXPANDED = 100, 1 << 28

# The number of characters of a value that a message shows, and of a reason that it quotes.
SHOWN, LONGEST_REASON = 80, 500
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = SHOWN


def read(op: str, path: str | os.PathLike[str]) -> bytes:
    """The content of a file, decompressed if it is a gzip file; its name does not matter."""
    content = Path(path).read_bytes()
    return expand(op, path, content) if content.startswith(GZIP) else content


def expand(op: str, path: str | os.PathLike[str], content: bytes) -> bytes:
    """The content of a gzip file, decompressed."""
    limit = _most_expanded(content)
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            expanded = file.read(limit + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{op}: {str(path)!r} must be a complete gzip file, but it is damaged: {error}"
        ) from None
    if len(expanded) > limit:
        raise ValueError(
            f"{op}: {str(path)!r} must expand to at most {limit} bytes, but it expands to more"
        )
    return expanded


def read_text(op: str, path: str | os.PathLike[str]) -> str:
    """The text of a file in UTF-8, without a byte order mark."""
    content = read(op, path)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{op}: {str(path)!r} must be text in UTF-8, but byte {error.start} on line {line} is "
            f"not: {error.reason}"
        ) from None


def parse_json(op: str, where: str, content: bytes | str) -> Any:
    """The value of a JSON text; errors name it by ``where``."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{op}: {where} must be JSON, but it is not: {error}") from None


def parse_arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of a file by ``numpy.savez``, which are read-only.

    ``numpy.load`` allocates what a damaged header asks for.

    Raises:
        ValueError: If the content is not such a file, or has Python objects.
    """
    arrays, limit = {}, _most_expanded(content)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            size = sum(entry.file_size for entry in entries)
            if size > limit:
                raise ValueError(f"it expands to {size} bytes")
            for entry in entries:
                name = entry.filename.removesuffix(".npy")
                arrays[name] = _parse_array(archive.read(entry))
    # zipfile raises errors of many classes for damaged archives.
    except Exception as error:
        raise ValueError(f"it is not a file of arrays: {shown(error)}") from None
    return arrays


def _parse_array(content: bytes) -> NDArray[Any]:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"an array has the format version {version}")
    read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    shape, is_fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("an array has Python objects")
    if math.prod(shape) * dtype.itemsize != len(content) - file.tell():
        raise ValueError(f"an array of shape {shape} has the wrong number of bytes")
    values: NDArray[Any] = np.ndarray(
        shape, dtype, content, file.tell(), order="F" if is_fortran else "C"
    )
    return values


def _most_expanded(content: bytes) -> int:
    return max(MOST_EXPANDED, MOST_EXPANSION * len(content))


def shown(value: object) -> str:
    """A value from a file as messages show it: short, whatever it is."""
    return _SHORT.repr(value.decode(errors="replace") if isinstance(value, bytes) else value)


def reason(error: Exception) -> str:
    """What an error of a parser says, as messages quote it."""
    return (str(error) or type(error).__name__)[:LONGEST_REASON]


def write(path: str | os.PathLike[str], content: bytes) -> None:
    """Replace a file atomically: a failure leaves the old one unchanged."""
    # A symbolic link keeps pointing to the file that is replaced.
    target = Path(os.path.realpath(path))
    mode = None
    if target.exists():
        # Opening it fails for a write-protected file. A device cannot be replaced.
        with open(target, "r+b") as file:
            if not target.is_file():
                file.write(content)
                return
        mode = target.stat().st_mode & 0o7777
    partial = target.with_name(f".arcgrad-{os.getpid()}-{threading.get_ident()}.tmp")
    try:
        with open(partial, "wb") as file:
            file.write(content)
            file.flush()
            # Otherwise a crash of the machine could leave an empty file under the final name.
            os.fsync(file.fileno())
        if mode is not None:
            partial.chmod(mode)
        partial.replace(target)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial)):
            raise
        # The name of the partial file, or none, would not say what failed.
        raise OSError(error.errno, f"{error.strerror}, writing", str(path)) from None
    finally:
        partial.unlink(missing_ok=True)
