"""Reading and replacing files."""

from __future__ import annotations

import gzip
import os
import threading
import zlib
from pathlib import Path

GZIP = b"\x1f\x8b"


def read(op: str, path: str | os.PathLike[str]) -> bytes:
    """The content of a file, decompressed if it is a gzip file; its name does not matter."""
    content = Path(path).read_bytes()
    if not content.startswith(GZIP):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{op}: {str(path)!r} must be a complete gzip file, but it is damaged: {error}"
        ) from None


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
    finally:
        partial.unlink(missing_ok=True)
