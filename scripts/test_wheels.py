"""Install wheels into empty environments, print what they cost, and run tests without torch.

Usage: python scripts/test_wheels.py FOLDER [--arm-root FOLDER]

A wheel for 64-bit ARM runs under qemu with the Python of `--arm-root`, the unpacked packages of a
Debian for that architecture. A wheel for the stable ABI runs on each `python3.N` from 3.12 on.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# All operations, the tape, the files, and programs for gtn. Under qemu: a sample of them.
TESTS = "tests/core", "tests/ops/test_every_op.py", "tests/gtn", "tests/api/test_paper.py"
SAMPLE = "tests/api/test_paper.py", "tests/ops/test_forward_score.py", "tests/core/test_tape.py"
TOOLS = "pytest", "hypothesis", "psutil", "numpy"
IMPORT = """
import time
start = time.perf_counter()
import numpy
middle = time.perf_counter()
import arcgrad
end = time.perf_counter()
print(f"import {1000 * (end - middle):.0f} ms, after {1000 * (middle - start):.0f} ms of NumPy")
"""


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, **options)


def describe(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
        unpacked = sum(entry.file_size for entry in archive.infolist())
    needs = [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need]
    sizes = f"{wheel.stat().st_size / 1e6:.1f} MB, {unpacked / 1e6:.1f} MB unpacked"
    print(f"{wheel.name}\n  {sizes}; needs {', '.join(needs)}", flush=True)


def interpreters(wheel: Path) -> list[str]:
    """The Pythons of this machine that the wheel is for."""
    major, tag = re.search(r"-cp(3)(\d+)-", wheel.name).groups()
    minors = range(int(tag), 20) if "-abi3-" in wheel.name else [int(tag)]
    found = [shutil.which(f"python{major}.{minor}") for minor in minors]
    return [path for path in found if path]


def test_here(python: str, wheel: Path, folder: Path) -> None:
    run(python, "-m", "venv", "--clear", folder)
    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*pip, "-c", ROOT / "constraints.txt", wheel, *TOOLS)
    run(folder / "bin/python", "-c", IMPORT, cwd=folder)
    pytest = [folder / "bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run(*pytest, *TESTS, cwd=ROOT)


def test_under_qemu(root: Path, wheel: Path, folder: Path) -> None:
    """Packages are unpacked by the Python of this machine: qemu runs no other programs."""
    for name in ("lib", "bin"):  # links that the packages of Debian expect
        if not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")
    python = next(path for path in sorted((root / "usr/bin").glob("python3.*")))
    version = python.name.removeprefix("python")
    run(sys.executable, "-m", "venv", "--clear", folder / "tools")
    pip = [folder / "tools/bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (28, 27, 26, 17)]
    target = ["--target", folder / "site", "--only-binary=:all:", f"--python-version={version}"]
    run(*pip, *platforms, *target, "numpy", "pytest", "hypothesis")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    environment = os.environ | {
        "PYTHONPATH": str(folder / "site"),
        "OPENBLAS_NUM_THREADS": "1",
        # The site-packages of Debian and the settings of the user play no part.
        "PYTHONNOUSERSITE": "1",
    }
    emulated = ["qemu-aarch64-static", "-L", root, python]
    run(*emulated, "-c", IMPORT, env=environment, cwd=folder)
    figure1 = ROOT / "examples/figure1.py"
    code = f"import arcgrad, runpy; arcgrad.draw = lambda *_: None; runpy.run_path({str(figure1)!r}"
    run(*emulated, "-c", f"{code}, run_name='__main__')", env=environment, cwd=folder)
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-x", *SAMPLE]
    run(*emulated, *pytest, env=environment, cwd=ROOT)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arm-root", type=Path)
    options = parser.parse_args()
    wheels = sorted(options.folder.resolve().glob("*.whl"))
    if not wheels:
        sys.exit(f"test_wheels: {options.folder} must have wheels, but it has none; make wheels")
    for wheel in wheels:
        describe(wheel)
        folder = wheel.parent / "test"
        if wheel.stem.endswith(platform.machine()):
            for python in interpreters(wheel) or [None]:
                if python is None:
                    print("  not tested: there is no such Python")
                else:
                    test_here(python, wheel, folder)
        elif wheel.stem.endswith("aarch64") and options.arm_root:
            test_under_qemu(options.arm_root.resolve(), wheel, folder)
        else:
            print("  not tested: this machine cannot run it; see docs/release.md")
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
