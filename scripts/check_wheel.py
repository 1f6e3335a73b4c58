"""Check that a wheel holds the whole package and nothing else, and that it can be imported.

Usage: python scripts/check_wheel.py <wheel>
"""

import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "python"
IMPORT = "import sys; sys.path[:0] = sys.argv[1:]; import arcgrad; print(arcgrad.__file__)"


def check(wheel: zipfile.ZipFile) -> list[str]:
    names = wheel.namelist()
    needed = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*")
        if path.is_file() and path.suffix in {".j2", ".npz", ".py", ".txt"}
    }
    needed |= {"arcgrad/py.typed", "arcgrad/_core.pyi"}
    problems = [f"{name} is missing" for name in sorted(needed - set(names))]
    problems += [
        f"{name} is outside the package"
        for name in names
        if name.split("/")[0] != "arcgrad" and ".dist-info/" not in name
    ]

    with tempfile.TemporaryDirectory() as folder:
        wheel.extractall(folder)
        # -S keeps an editable install of arcgrad from answering the import.
        command = [sys.executable, "-S", "-c", IMPORT, folder, sysconfig.get_path("purelib")]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if not run.stdout.startswith(folder):
            problems.append(f"import arcgrad fails: {run.stdout}{run.stderr}")
    return problems


if __name__ == "__main__":
    path = sys.argv[1]
    with zipfile.ZipFile(path) as archive:
        found = check(archive)
    sys.exit("\n".join(f"{path}: {problem}" for problem in found) or None)
