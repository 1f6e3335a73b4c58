"""Timing, judging and printing for all cases."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

Clock = Callable[[], float]


@dataclass(frozen=True)
class Settings:
    """How to measure. With ``quick`` a case shrinks its graphs.

    With ``cpu`` the clock counts the processor time of this process. On a busy machine wall time
    favours the faster peer: a long call is always interrupted, but the fastest of many short calls
    is not.
    """

    quick: bool = False
    cpu: bool = False

    @property
    def clock(self) -> Clock:
        return time.process_time if self.cpu else time.perf_counter

    @property
    def rounds(self) -> int:
        return 2 if self.quick else 40

    @property
    def budget(self) -> float:
        """Seconds after which one measurement stops, once it has a few rounds."""
        return 0.5 if self.quick else 20.0

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Task:
    """Something to time. ``run`` gets the result of ``setup``, which is not timed."""

    run: Callable[..., Any]
    setup: Callable[[], Any] | None = None


@dataclass(frozen=True)
class Timing:
    """Seconds per call."""

    minimum: float
    median: float
    rounds: int

    @staticmethod
    def of(samples: Sequence[float]) -> Timing:
        return Timing(min(samples), statistics.median(samples), len(samples))

    @staticmethod
    def constant(seconds: float) -> Timing:
        return Timing(seconds, seconds, 0)

    def per(self, count: int) -> Timing:
        return Timing(self.minimum / count, self.median / count, self.rounds)


@dataclass(frozen=True)
class Target:
    """A bound on a ratio of times, or on our time in seconds."""

    bound: float
    kind: str  # "ratio >=", "ratio <=" or "time <"

    def __str__(self) -> str:
        if self.kind == "time <":
            return f"< {seconds_text(self.bound)}"
        return f"{self.kind.removeprefix('ratio ')} {self.bound:g}x"

    def holds(self, row: Row) -> bool:
        if self.kind == "time <":
            return row.ours.minimum < self.bound
        ratio = row.ratio_of_minima
        assert ratio is not None, f"{row.measure}: a target on a ratio needs a peer"
        return ratio >= self.bound if self.kind == "ratio >=" else ratio <= self.bound


def faster_by(ratio: float) -> Target:
    """The time of the peer is at least ``ratio`` times ours."""
    return Target(ratio, "ratio >=")


def costs_at_most(ratio: float) -> Target:
    """Our time is at most ``ratio`` times the time of the yardstick."""
    return Target(ratio, "ratio <=")


def takes_under(seconds: float) -> Target:
    return Target(seconds, "time <")


@dataclass
class Row:
    """One measure: our time, the peer's, and whether the target holds.

    The ratio is the peer's time over ours, so larger is better. Against a yardstick (a target made
    by ``costs_at_most``) it is our time over the yardstick's.
    """

    measure: str
    ours: Timing
    peer: str = ""
    theirs: Timing | None = None
    target: Target | None = None
    details: dict[str, Any] = field(default_factory=dict)

    def _ratio(self, ours: float, theirs: float) -> float:
        is_cost = self.target is not None and self.target.kind == "ratio <="
        return ours / theirs if is_cost else theirs / ours

    @property
    def ratio_of_minima(self) -> float | None:
        return None if self.theirs is None else self._ratio(self.ours.minimum, self.theirs.minimum)

    @property
    def ratio_of_medians(self) -> float | None:
        return None if self.theirs is None else self._ratio(self.ours.median, self.theirs.median)

    def verdict(self, settings: Settings) -> str:
        if self.target is None:
            return ""
        if settings.quick:
            return "not judged"
        return "yes" if self.target.holds(self) else "NO"


@dataclass
class Report:
    """The result of a case. ``extra`` holds further tables (title, header, lines)."""

    rows: list[Row]
    extra: list[tuple[str, list[str], list[list[str]]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def show_progress(text: str) -> None:
    """Print what is running: one line that is overwritten on a terminal, plain lines elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def clear_progress() -> None:
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr, flush=True)


SAMPLE_SECONDS = 1e-3


def calls_per_sample(task: Task, clock: Clock) -> int:
    """How often a fast call is repeated, so that the cost of the clock does not matter."""
    if task.setup is not None:
        return 1
    calls = 1
    while True:
        seconds = sample(task, calls, clock) * calls
        if seconds > SAMPLE_SECONDS / 2:
            return max(1, round(SAMPLE_SECONDS / seconds * calls)) if calls > 1 else 1
        calls *= 4


def sample(task: Task, calls: int, clock: Clock) -> float:
    """Seconds per call. Freeing the result of a single call is not timed, for any peer."""
    run = task.run
    arguments = () if task.setup is None else (task.setup(),)
    if calls == 1:
        begin = clock()
        result = run(*arguments)
        seconds = clock() - begin
        del result
        return seconds
    begin = clock()
    for _ in range(calls):
        run()
    return (clock() - begin) / calls


RUNS_PER_TURN = 5
SHORT_TURN = 0.02  # seconds after which a turn ends


def interleave(
    name: str, tasks: Mapping[str, Task | Callable[[], Any]], settings: Settings
) -> dict[str, Timing]:
    """Time the tasks in turn, round after round, so that load on the machine affects all alike.

    In its turn a task runs a few times and the fastest run counts, because the first run starts
    with the caches of another task.
    """
    prepared = {key: task if isinstance(task, Task) else Task(task) for key, task in tasks.items()}
    samples: dict[str, list[float]] = {key: [] for key in prepared}
    show_progress(f"{name}: warming up")
    calls = {}
    for key, task in prepared.items():
        sample(task, 1, settings.clock)
        calls[key] = calls_per_sample(task, settings.clock)
    begin = time.perf_counter()
    gc.collect()
    gc.disable()
    try:
        for done in range(settings.rounds):
            if done >= 5 and time.perf_counter() - begin > settings.budget:
                break
            if sys.stderr.isatty():
                show_progress(f"{name}: round {done + 1} of {settings.rounds}")
            for key, task in prepared.items():
                turn = time.perf_counter()
                runs = [sample(task, calls[key], settings.clock)]
                while len(runs) < RUNS_PER_TURN and time.perf_counter() - turn < SHORT_TURN:
                    runs.append(sample(task, calls[key], settings.clock))
                samples[key].append(min(runs))
    finally:
        gc.enable()
    clear_progress()
    return {key: Timing.of(values) for key, values in samples.items()}


def seconds_text(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def ratio_text(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}x"


def table_text(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, the others to the right."""
    widths = [max(len(line[i]) for line in [header, *lines]) for i in range(len(header))]

    def line_text(line: Sequence[str]) -> str:
        cells = [
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        return "  ".join(cells).rstrip()

    return "\n".join([line_text(header), *map(line_text, lines)])


def report_text(name: str, report: Report, settings: Settings) -> str:
    """The table of one case as printed on the terminal."""
    header = ["measure", "peer", "min", "median", "ours min", "median"]
    header += ["ratio min", "median", "target", "holds"]
    lines = []
    for row in report.rows:
        theirs = row.theirs
        lines.append(
            [
                row.measure,
                row.peer,
                seconds_text(theirs.minimum) if theirs else "",
                seconds_text(theirs.median) if theirs and theirs.rounds else "",
                seconds_text(row.ours.minimum),
                seconds_text(row.ours.median),
                ratio_text(row.ratio_of_minima),
                ratio_text(row.ratio_of_medians) if theirs and theirs.rounds else "",
                str(row.target) if row.target else "",
                row.verdict(settings),
            ]
        )
    parts = [f"== {name} ==", *report.notes, table_text(header, lines)]
    for title, extra_header, extra_lines in report.extra:
        parts += ["", title, table_text(extra_header, extra_lines)]
    return "\n".join(parts) + "\n"


def row_json(row: Row, settings: Settings) -> dict[str, Any]:
    def timing_json(timing: Timing | None) -> dict[str, Any] | None:
        if timing is None:
            return None
        return {"min_s": timing.minimum, "median_s": timing.median, "rounds": timing.rounds}

    return {
        "measure": row.measure,
        "peer": row.peer,
        "peer_time": timing_json(row.theirs),
        "our_time": timing_json(row.ours),
        "ratio_of_minima": row.ratio_of_minima,
        "ratio_of_medians": row.ratio_of_medians,
        "target": str(row.target) if row.target else None,
        "holds": None if row.target is None or settings.quick else row.target.holds(row),
        **row.details,
    }


def write_json(file_name: str, reports: Mapping[str, Report], settings: Settings) -> None:
    content = {
        "quick": settings.quick,
        "clock": settings.clock.__name__,
        "environment": environment(),
        "cases": {
            name: {
                "notes": report.notes,
                "rows": [row_json(row, settings) for row in report.rows],
                "tables": [
                    {"title": title, "header": header, "lines": lines}
                    for title, header, lines in report.extra
                ],
            }
            for name, report in reports.items()
        },
    }
    Path(file_name).write_text(json.dumps(content, indent=2) + "\n")


def environment() -> dict[str, Any]:
    """The machine, the versions and the commit that a figure belongs to."""
    return {
        "machine": processor_name(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("arcgrad", "numpy", "pynini")},
        "commit": commit(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def is_busy() -> bool:
    """Whether more processes are runnable than there are idle cores."""
    return hasattr(os, "getloadavg") and os.getloadavg()[0] > (os.cpu_count() or 1) / 2


def processor_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def commit() -> str | None:
    """The checked-out commit, marked if files differ from it."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return described.stdout.strip()
