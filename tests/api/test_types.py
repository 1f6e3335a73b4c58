"""Type checking of programs that use arcgrad."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import arcgrad as ag

PROGRAM = """
import arcgrad as ag

graph = ag.linear_graph(2, 3, calc_grad=True)
frames, labels = graph.weights_view().shape
total = float(graph.weights_to_numpy().sum())
src, dst, ilabels, olabels, weights = graph.arcs()
last: int = int(dst.max())
best = int(weights.argmax())
name: str = graph.dtype.name
starts = graph.start().tolist()
graph.calc_grad = False
path = ag.sample(graph, seed=1)
score: float = ag.forward_score([graph, path])[0].item()
"""


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_a_program_that_uses_arrays_is_typed(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = dict(os.environ)
    folder = Path(ag.__file__).parents[1]
    if folder.name != "site-packages":  # type checkers do not see through an editable install
        environment["MYPYPATH"] = str(folder)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(program)],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
