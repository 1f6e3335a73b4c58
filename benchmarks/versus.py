"""Compare two versions of arcgrad: the same cases in two processes that take turns.

    python -m benchmarks.versus OLD_TREE [case ...]

``OLD_TREE`` is a checkout with its own ``.venv`` in which that version is installed. Each version
runs its own benchmark files. The processes alternate sample by sample, so load on the machine
affects both. Peers are not timed. The table shows the ratio new / old.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PEERS = re.compile(r"torch|openfst|kenlm|pynini|numpy|decoder", re.IGNORECASE)
LIMIT = 1.05
DEFAULT_CASES = ("losses", "trellis", "compose", "forward", "decode", "construct")
TREE = Path(__file__).resolve().parents[1]


def work(cases: list[str], rounds: int, seconds: float, cpu: bool) -> None:
    """The worker: waits for a line before each turn, answers with a line after it."""
    sys.path.insert(0, str(Path.cwd()))
    harness = importlib.import_module("benchmarks.harness")
    results: dict[str, dict[str, list[float]]] = {}

    def wait_for_turn() -> None:
        print("turn", flush=True)
        sys.stdin.readline()

    def interleave(name: str, tasks: Mapping[str, Any], settings: Any) -> dict[str, Any]:
        times = {}
        for key, task in tasks.items():
            if PEERS.search(key):
                times[key] = harness.Timing(1.0, 1.0, 0)
                continue
            prepared = task if isinstance(task, harness.Task) else harness.Task(task)
            harness.sample(prepared, 1, settings.clock)
            calls = harness.calls_per_sample(prepared, settings.clock)
            samples: list[float] = []
            begin = time.perf_counter()
            while len(samples) < rounds and (
                len(samples) < 5 or time.perf_counter() - begin < seconds
            ):
                wait_for_turn()
                turn = [harness.sample(prepared, calls, settings.clock)]
                start = time.perf_counter()
                while len(turn) < 5 and time.perf_counter() - start < 0.02:
                    turn.append(harness.sample(prepared, calls, settings.clock))
                samples.append(min(turn))
            times[key] = harness.Timing.of(samples)
            results.setdefault(name, {})[key] = samples
        return times

    harness.interleave = interleave
    import arcgrad as ag

    ag.set_num_threads(1)
    settings = harness.Settings(quick=False, cpu=cpu)
    for case in cases:
        try:
            importlib.import_module(f"benchmarks.{case}").run(settings)
        except (AssertionError, ZeroDivisionError) as error:
            print(f"{case}: {error!r}", file=sys.stderr)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"memory": memory, "times": results}), flush=True)


def start(tree: Path, case: str, options: list[str]) -> subprocess.Popen[str]:
    command = [str(tree / ".venv/bin/python"), str(Path(__file__).resolve())]
    return subprocess.Popen(
        [*command, "--worker", *options, str(tree), case],
        cwd=tree,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL if "--quiet" in options else None,
        text=True,
    )


def take_turns(workers: list[subprocess.Popen[str]]) -> list[dict[str, Any]]:
    """Let the workers alternate until each has printed its result."""
    results: dict[int, dict[str, Any]] = {}
    while len(results) < len(workers):
        for i, worker in enumerate(workers):
            if i in results:
                continue
            assert worker.stdin is not None
            assert worker.stdout is not None
            if worker.poll() is not None:
                raise SystemExit(f"worker {i} ended with {worker.returncode}")
            line = worker.stdout.readline()
            if line.startswith("{"):
                results[i] = json.loads(line)
            elif line.startswith("turn"):
                worker.stdin.write("\n")
                worker.stdin.flush()
    return [results[i] for i in range(len(workers))]


def compare(old: dict[str, Any], new: dict[str, Any], show: Callable[[str], None]) -> list[str]:
    """Prints one line per measure, and returns those beyond the limit."""
    missed = []
    for name, tasks in new["times"].items():
        for key, samples in tasks.items():
            before = old["times"].get(name, {}).get(key)
            if before is None:
                show(f"{name}, {key}: only in the new version")
                continue
            ratio = min(samples) / min(before)
            middle = statistics.median(samples) / statistics.median(before)
            mark = "  <-- slower" if ratio > LIMIT else ""
            row = f"{name}, {key}"
            show(f"{row:70} {min(before):10.3e} s  {ratio:6.3f} {middle:6.3f}{mark}")
            if mark:
                missed.append(row)
    show(f"peak memory {old['memory']:.0f} MB -> {new['memory']:.0f} MB")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versus", description=__doc__)
    parser.add_argument("old", type=Path, help="a checkout with .venv, the version to compare with")
    parser.add_argument("cases", nargs="*", help=f"default: {' '.join(DEFAULT_CASES)}")
    parser.add_argument("--rounds", type=int, default=30, help="samples per measure")
    parser.add_argument("--seconds", type=float, default=6.0, help="time limit per measure")
    parser.add_argument("--cpu", action="store_true", help="processor time, for a busy machine")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments.cases, arguments.rounds, arguments.seconds, arguments.cpu)
        return
    options = ["--rounds", str(arguments.rounds), "--seconds", str(arguments.seconds)]
    options += ["--cpu"] if arguments.cpu else []
    missed: list[str] = []
    for case in arguments.cases or DEFAULT_CASES:
        print(f"== {case}: old minimum, new / old by minimum and by median", flush=True)
        workers = [start(tree, case, options) for tree in (arguments.old.resolve(), TREE)]
        old, new = take_turns(workers)
        missed += compare(old, new, lambda line: print(line, flush=True))
    print(f"slower than {LIMIT}: {', '.join(missed) or 'none'}")


if __name__ == "__main__":
    main()
