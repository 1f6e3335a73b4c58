"""Run the tests of arcgrad.torch with the oldest and the newest torch, each with NumPy 1.26 and 2.

Usage: python scripts/test_torch.py <wheel> <folder> [<argument of pytest> ...]

The oldest torch is the one that pyproject.toml requires, the newest the one in constraints.txt.
Each has an environment in the folder. PyPI's wheels for Linux contain CUDA, 5 GB each once
installed; an index of builds for the CPU can be set with PIP_INDEX_URL.
"""

import re
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
NUMPYS = ["1.26", "2"]
TOOLS = ["pytest", "pytest-xdist", "hypothesis", "psutil"]
VERSIONS = (
    "import arcgrad, numpy, torch; print(f'torch {torch.__version__}, numpy {numpy.__version__}')"
)


def find_torches() -> list[str]:
    places = (
        (r'torch = \["torch>=([\d.]+)"\]', "pyproject.toml"),
        (r"^torch==(.+)$", "constraints.txt"),
    )
    found = [re.search(form, (ROOT / name).read_text(), re.MULTILINE) for form, name in places]
    return [match[1] for match in found if match]


def test(wheel: Path, folder: Path, torch: str, numpy: str, arguments: list[str]) -> bool:
    python = folder / torch / "bin/python"

    def run(*command: object, check: bool = True) -> int:
        return subprocess.run([python, "-m", *map(str, command)], check=check, cwd=ROOT).returncode

    if not python.exists():
        venv.create(folder / torch, with_pip=True)
    install = "pip", "install", "--quiet", "--disable-pip-version-check"
    run(*install, "-c", ROOT / "constraints.txt", *TOOLS)
    run(*install, f"torch=={torch}.*", f"numpy=={numpy}.*")
    run(*install, "--force-reinstall", "--no-deps", wheel)
    subprocess.run([python, "-c", VERSIONS], check=True)
    return run("pytest", "-q", "tests/torch", *arguments, check=False) == 0


if __name__ == "__main__":
    wheel, folder, *arguments = sys.argv[1:]
    failed = [
        f"torch {torch} with numpy {numpy}"
        for torch in find_torches()
        for numpy in NUMPYS
        if not test(Path(wheel).resolve(), Path(folder), torch, numpy, arguments)
    ]
    sys.exit(f"the tests fail with {', '.join(failed)}" if failed else None)
