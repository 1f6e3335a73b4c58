"""The command line: ``python -m benchmarks [case ...] [--json FILE] [--quick] [--cpu]``."""

from __future__ import annotations

import argparse
import importlib
import time

import arcgrad as ag

from .harness import Report, Settings, clear_progress, environment, is_busy, report_text, write_json

CASES = (
    *("forward", "compose", "construct", "second_order", "batch", "slope", "growth"),
    *(
        "trellis",
        "losses",
        "convolution",
        "ngram",
        "pieces",
        "decode",
        "threads",
        "small",
        "normal_forms",
    ),
    *("backoff", "lattices", "text", "decoder", "align", "files", "networks"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Benchmarks.")
    parser.add_argument("cases", nargs="*", metavar="case", help=f"of {', '.join(CASES)}")
    parser.add_argument("--json", metavar="FILE", help="also write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is judged")
    parser.add_argument(
        "--cpu", action="store_true", help="count processor time, for a machine with other work"
    )
    arguments = parser.parse_args()
    if unknown := [case for case in arguments.cases if case not in CASES]:
        parser.error(f"case must be one of {', '.join(CASES)}, but got {', '.join(unknown)}")

    settings = Settings(quick=arguments.quick, cpu=arguments.cpu)
    ag.set_num_threads(1)
    for key, value in environment().items():
        print(f"{key}: {value}")
    clock = "processor time" if settings.cpu else "wall time"
    print(f"one thread, {clock}; a ratio is peer / ours, but ours / peer if its target is a limit")
    if is_busy() and not settings.cpu:
        print("warning: other work is running, so wall times are not fair; use --cpu")
    print(flush=True)

    reports: dict[str, Report] = {}
    begin = time.perf_counter()
    for case in arguments.cases or CASES:
        module = importlib.import_module(f".{case}", __package__)
        reports[case] = module.run(settings)
        clear_progress()
        print(report_text(case, reports[case], settings), flush=True)
        if arguments.json:
            write_json(arguments.json, reports, settings)
    print(summary(reports, settings), f"({time.perf_counter() - begin:.0f} s)")


def summary(reports: dict[str, Report], settings: Settings) -> str:
    """One line: how many targets hold, and the names of those that fail."""
    judged = [(case, row) for case, report in reports.items() for row in report.rows if row.target]
    if settings.quick:
        return f"quick run of {len(judged)} measures with a target; none is judged"
    missed = [f"{case}: {row.measure}" for case, row in judged if row.verdict(settings) == "NO"]
    held = f"{len(judged) - len(missed)} of {len(judged)} targets hold"
    return f"{held}; missed: {', '.join(missed)}" if missed else held


if __name__ == "__main__":
    main()
