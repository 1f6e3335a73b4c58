"""The environment of a training, which is saved with the run."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch

import arcgrad as ag

__all__ = ["describe_environment"]

HERE = Path(__file__).resolve()


def describe_environment(
    *,
    command: str | None,
    device: str,
    threads: int,
    world_size: int,
    max_seconds: float | None = None,
) -> dict[str, Any]:
    """Return the versions, the machine and the command of a training, without host names.

    Args:
        command: The command line, or None.
        device: The device of the network.
        threads: The number of threads of torch per process.
        world_size: The number of processes.
        max_seconds: The time limit, or None.

    >>> from arcgrad.recipes.training import describe_environment
    >>> found = describe_environment(command=None, device="cpu", threads=1, world_size=1)
    >>> list(found)[:5]
    ['command', 'date', 'arcgrad', 'commit', 'python']
    """
    return {
        "command": command,
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "arcgrad": ag.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "device": device,
        "device_name": _device(device),
        "threads": threads,
        "graph_threads": ag.get_num_threads(),
        "world_size": world_size,
        "max_seconds": max_seconds,
    }


def _device(name: str) -> str:
    device = torch.device(name)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _processor() -> str:
    """Return the model of the processor."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(errors="replace").splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip() == "model name":
                return " ".join(value.split())
    return platform.processor() or platform.machine()


def _commit() -> str | None:
    """Return the commit of the checkout that tracks this file, or None."""
    if _git("ls-files", "--error-unmatch", HERE.name) is None:
        return None
    return _git("describe", "--always", "--dirty", "--exclude=*")


def _git(*arguments: str) -> str | None:
    """Return the output of git in the folder of this file, or None if it fails."""
    command = ["git", "-C", str(HERE.parent), *arguments]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()
