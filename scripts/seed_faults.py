"""Seed faults into the core one by one and check that the tests find each of them.

Usage: python scripts/seed_faults.py [<name of a fault> ...]

A fault replaces a text in one file. The extension is built with it, and the tests that are named
with it must fail. The tree must be clean; it is restored in any case. docs/decisions says what the
faults are for and which test finds which.
"""

import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
CORE = ROOT / "csrc/arcgrad"
BUILD = ROOT / "build/dev"
SECONDS = 1200  # a fault may make a test hang, and that is found too


class Fault(NamedTuple):
    file: str  # below CORE
    old: str  # occurs once
    new: str
    test: str  # what pytest runs, or the name of a C++ test


FAULTS = {
    "the gradient of the forward score has the wrong sign": Fault(
        "algorithms/log_partition.cpp",
        "scores_.add_vjp(seed(factor), grad);",
        "scores_.add_vjp(seed(-factor), grad);",
        "tests/ops/test_every_op.py",
    ),
    "a term of the Hessian of the forward score is missing": Fault(
        "algorithms/log_partition.cpp",
        "posterior_[i] * (ends[i] - centre)",
        "posterior_[i] * (ends[i] - 0.0 * centre)",
        "tests/ops/test_every_op.py",
    ),
    "composition passes two epsilons in either order": Fault(
        "algorithms/compose_topologies.cpp",
        "if (from.filter != kFirstWaits) emit",
        "emit",
        "tests/ops/test_every_op.py",
    ),
    "concatenation goes on at node 0 instead of the start nodes": Fault(
        "algorithms/concat.cpp",
        ", {to, i + 1});",
        ", {0 * to, i + 1});",
        "tests/ops/test_every_op.py",
    ),
    "the last of equally good arcs is taken": Fault(
        "algorithms/path_scores_best.cpp",
        "if (score > best) {",
        "if (score >= best && score > kNegInf) {",
        "tests/ops/test_viterbi_path.py",
    ),
    "where arcs reach far, a path may not end where a better one goes on": Fault(
        "algorithms/path_scores_best.cpp",
        "scores[s] = std::max(best, table.begin(s));",
        "scores[s] = best == kNegInf ? table.begin(s) : best;",
        "tests/core/test_path_scores.py",
    ),
    "a weight that is not a number is scored": Fault(
        "algorithms/path_scores.cpp",
        "  require_scorable(options.op, t, weights);\n  table_",
        "  table_",
        "tests/api/test_bad_input.py",
    ),
    "arcs within a component have no posterior": Fault(
        "algorithms/path_scores_cyclic.cpp",
        "if (w > kNegInf && is_useful(s)) table_.term",
        "if (w > kNegInf && is_useful(s) && local_[s] < 0) table_.term",
        "tests/ops/test_every_op.py",
    ),
    "the first weight of an epsilon closure is lost": Fault(
        "ops/remove.cpp",
        "ArcMap::gather(arcs_).apply(graph_.weights(), weights, 1.0);",
        "ArcMap::gather(arcs_).apply(graph_.weights(), weights, 1.0);\n"
        "    if (weights.size() > 0) weights.set(0, 0.0);",
        "tests/ops/test_every_op.py",
    ),
    "the dense kernel forgets by how much it scaled a row": Fault(
        "trellis/kernels/dense_forward.cpp",
        ": 0.0) - scale.shift;",
        ": 0.0);",
        "tests/trellis/test_kernels.py",
    ),
    "rows of a gradient of emissions that lie apart are written one after the other": Fault(
        "trellis/emissions.cpp",
        "out.row_stride = layout.is_contiguous() ? labels_[i] : layout.row_stride;",
        "out.row_stride = layout.is_contiguous() ? labels_[i] : labels_[i];",
        "tests/torch",
    ),
    "equal tokens follow each other without a blank": Fault(
        "tokens/tokens.h",
        "return gap.least == 0 && !(separates_repeats && label == other);",
        "return gap.least == 0 || (separates_repeats && label == other);",
        "test_tokens",
    ),
    "two threads do what is to be done once": Fault(
        "runtime/fork_safe_once.h",
        "std::lock_guard lock(generation_ == fork_generation() ? mutex_ : forked_mutex_);",
        "std::unique_lock lock(generation_ == fork_generation() ? mutex_ : forked_mutex_,\n"
        "                          std::defer_lock);",
        "test_parallel",
    ),
}


def run(command, **options):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, **options)


def tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def build() -> None:
    """Compile what changed and put the extension where the environment imports it from."""
    site = sysconfig.get_path("purelib")
    for arguments in (["--build", BUILD], ["--install", BUILD, "--component", "python"]):
        where = ["--prefix", site] if "--install" in arguments else []
        done = run([tool("cmake"), *arguments, *where])
        if done.returncode != 0:
            sys.exit(done.stdout + done.stderr)


def failure(test: str) -> str | None:
    """The first test that fails, or None."""
    if test.startswith("tests/"):
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", test]
    else:
        command = [tool("ctest"), "--test-dir", BUILD, "-R", f"^{test}$", "--no-tests=error"]
    try:
        done = run(command, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"{test} (hangs)"
    if done.returncode == 0:
        return None
    found = re.search(r"^FAILED (\S.*?)( - .*)?$", done.stdout, re.MULTILINE)
    return found[1] if found else f"{test} (exit code {done.returncode})"


def main(names: list[str]) -> None:
    if run(["git", "status", "--porcelain"]).stdout:
        sys.exit("seed_faults: the tree must be clean, but git status lists changes")
    unknown = [name for name in names if name not in FAULTS]
    if unknown:
        sys.exit(f"seed_faults: no such fault: {', '.join(unknown)}")
    chosen = {name: fault for name, fault in FAULTS.items() if not names or name in names}
    build()
    for test in sorted({fault.test for fault in chosen.values()}):
        if failed := failure(test):
            sys.exit(f"seed_faults: the tests must pass without a fault, but {failed} fails")
    missed = []
    for name, fault in chosen.items():
        path = CORE / fault.file
        text = path.read_text()
        if text.count(fault.old) != 1:
            sys.exit(f"seed_faults: {fault.file} must contain this text once: {fault.old}")
        try:
            path.write_text(text.replace(fault.old, fault.new))
            build()
            found = failure(fault.test)
        finally:
            path.write_text(text)
        print(f"{name}: {found or 'NOT FOUND'}", flush=True)
        missed += [] if found else [name]
    build()
    sys.exit(f"seed_faults: not found: {'; '.join(missed)}" if missed else 0)


if __name__ == "__main__":
    main(sys.argv[1:])
