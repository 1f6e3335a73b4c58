"""The lock of the folder of a run, which one training at a time may write."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from arcgrad import _files

__all__ = ["LOCK", "lock"]

LOCK = "lock.json"


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep other trainings out of a folder, on this machine and on others that share it.

    The lock is a file with the host and the process. A lock whose process has ended without
    removing it is replaced; whether it has is known on its own host only.

    Raises:
        ValueError: If another training has the lock.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    path, owner = folder / LOCK, _this_process()
    # The file appears with its content: a link is made at once, and fails if there is one.
    own = folder / f".{LOCK}-{owner['host']}-{owner['process']}"
    own.write_text(json.dumps(owner) + "\n", encoding="utf-8")
    try:
        try:
            os.link(own, path)
        except FileExistsError:
            _check_stale(path)
            own.replace(path)
    finally:
        own.unlink(missing_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            if _read(path) == owner:
                path.unlink()
        if is_new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # unless there are files


def _check_stale(path: Path) -> None:
    """Raise unless the process of a lock has ended."""
    try:
        owner = _read(path)
        host, process, begin = (owner.get(name) for name in ("host", "process", "begin"))
    except FileNotFoundError:
        return
    except (OSError, ValueError, AttributeError):
        raise ValueError(
            f"train: the lock of a run must have a host and a process, but {str(path)!r} is "
            "damaged; remove it if no training runs there"
        ) from None
    if host == platform.node():
        if not isinstance(process, int) or _begin(process) is None:
            return
        if None not in (begin, _begin(process)) and begin != _begin(process):
            return  # another process has got its number
    raise ValueError(
        f"train: only one training may write a run, but process {process} on {host} has written "
        f"{str(path.parent)!r} since {_files.shown(owner.get('since'))}; wait for it, choose "
        f"another folder, or remove {str(path)!r} if that process has ended"
    )


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _this_process() -> dict[str, object]:
    return {
        "host": platform.node(),
        "process": os.getpid(),
        "begin": _begin(os.getpid()),
        "since": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def _begin(process: int) -> str | None:
    """Return when a process began, in the units of its system; None if it does not run."""
    try:
        # The name of the program is in parentheses and may have spaces.
        content = Path(f"/proc/{process}/stat").read_text(errors="replace")
        return content.rpartition(")")[2].split()[19]
    except OSError:
        pass
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "unknown"
