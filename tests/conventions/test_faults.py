"""The faults that `make faults` seeds fit the sources, so that it can be run at any time."""

import importlib.util
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_fault_fits_the_sources():
    spec = importlib.util.spec_from_file_location("seed_faults", ROOT / "scripts/seed_faults.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    wrong = []
    for name, fault in script.FAULTS.items():
        path = script.CORE / fault.file
        if not path.exists() or path.read_text().count(fault.old) != 1:
            wrong.append(f"{name}: {fault.file} must contain once: {fault.old}")
        if not (ROOT / fault.test).exists() and not (ROOT / f"tests/cpp/{fault.test}.cpp").exists():
            wrong.append(f"{name}: there is no test {fault.test}")
    assert len(script.FAULTS) >= 10
    assert not wrong, "\n".join(wrong)
