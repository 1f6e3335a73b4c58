"""The steppers of the page Learn: recorded steps agree with the library, and the page moves."""

import importlib
import json
import re
import sys
from pathlib import Path

import pytest

import arcgrad as ag

DOCS = Path(__file__).parents[2] / "docs"

# Presses "next" until it is disabled, and reports each text and how much is lit and hidden.
DRIVER = """
document.addEventListener("DOMContentLoaded", () => {
  const found = [];
  const next = document.querySelectorAll("button")[2];
  for (;;) {
    const lit = document.querySelectorAll(".on").length;
    const hidden = document.querySelectorAll(".later").length;
    found.push([document.querySelector(".stepper-text").textContent, lit, hidden]);
    if (next.disabled) break;
    next.click();
  }
  document.body.innerHTML = "<pre>" + JSON.stringify(found) + "</pre>";
});
"""


@pytest.fixture
def steppers(monkeypatch):
    pytest.importorskip("pygraphviz")
    monkeypatch.syspath_prepend(str(DOCS))
    yield importlib.import_module("steppers")
    for name in ("steppers", "pictures"):
        sys.modules.pop(name, None)


@pytest.fixture
def graphs():
    first = ag.Graph.from_arrays(
        [0, 1, 1, 0], [1, 1, 2, 3], [0, 0, 1, 2], [1, 2, 1, 2], [0.5, 0.1, 0.2, 0.3],
        start=[0], accept=[2],
    )  # fmt: skip
    second = ag.Graph.from_arrays(
        [0, 1, 1], [1, 1, 2], [1, 2, 1], [0, 0, 2], [1.0, 2.0, 3.0], start=[0], accept=[2]
    )
    return first, second


def steps_of(page):
    return json.loads(re.search(r"<script[^>]*>(.*?)</script>", page, re.S)[1])


def test_composition_shows_every_arc_once(steppers, graphs):
    page = steppers.composition(*graphs)
    steps = steps_of(page)
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    shown = [part for step in steps for part in step["show"]]
    assert len(shown) == len(set(shown))
    assert set(shown) | {part for step in steps for part in step["on"]} <= set(ids)
    num_arcs = ag.compose(*graphs).num_arcs()
    assert sum("edge" in part for part in shown) == num_arcs
    assert "weight 0.5 + 1 = 1.5" in steps[1]["text"]


def test_the_forward_recursion_ends_in_the_forward_score(steppers, graphs):
    graph = ag.union([ag.chain_graph([1, 2], weights=[0.5, 1.0]), ag.chain_graph([3])])
    steps = steps_of(steppers.forward(graph, "two paths"))
    assert len(steps) == 5
    assert steps[-1]["text"].endswith(f"{ag.forward_score(graph).item():.2f}.")


def test_the_page_moves(steppers, graphs, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS.parent / "scripts"))
    chromium = importlib.import_module("look_at_report")
    program = chromium.find()
    if program is None:
        pytest.skip("there is no Chromium")
    page = steppers.composition(*graphs)
    script = (DOCS / "_static/stepper.js").read_text()
    path = tmp_path / "page.html"
    path.write_text(f"<body>{page}<script>{script}{DRIVER}</script></body>")
    document, messages = chromium.run(program, path, "--dump-dom")
    assert not messages
    found = json.loads(re.search(r"<pre>(.*)</pre>", document)[1])
    assert [text.split(":")[0] for text, _, _ in found] == [
        f"{k + 1} of {len(found)}" for k in range(len(steps_of(page)))
    ]
    hidden = [count for _, _, count in found]
    assert hidden == sorted(hidden, reverse=True)
    assert hidden[0] > 0
    assert hidden[-1] == 0
    assert all(lit for _, lit, _ in found[:-1])
