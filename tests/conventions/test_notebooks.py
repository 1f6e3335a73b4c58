"""Notebooks are stored without outputs; `make docs` executes them."""

import ast
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "docs/notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def test_the_index_lists_every_notebook():
    text = (FOLDER.parent / "notebooks.md").read_text()
    assert len(NOTEBOOKS) >= 4
    assert all(text.count(f"notebooks/{path.stem}") == 2 for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_no_outputs_and_short_lines(path):
    cells = json.loads(path.read_text())["cells"]
    assert cells[0]["cell_type"] == "markdown"
    assert cells[0]["source"][0].startswith("# ")
    for cell in cells:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            assert max(map(len, source.splitlines())) <= 100
            ast.parse(source)
