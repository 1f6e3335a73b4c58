"""Guides name files that exist and show code that is in the tree; decisions are complete."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import pytest

import arcgrad as ag

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
MAPS = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *(DOCS / f"{name}.md" for name in ("architecture", "glossary", "add_an_op", "add_a_kernel")),
]
FOLDERS = ("csrc", "bindings", "python", "tests", "docs", "benchmarks", "examples", "scripts")

DECISIONS = DOCS / "decisions"
INDEX = DECISIONS / "index.md"
FILES = sorted(path for path in DECISIONS.glob("*.md") if path != INDEX)


def tree():
    """All files of the project, as paths below its root with a slash in front."""
    found = [path for name in FOLDERS for path in (ROOT / name).rglob("*")]
    found += [path for path in ROOT.iterdir() if path.is_file()]
    return {f"/{path.relative_to(ROOT)}" for path in found if "__pycache__" not in path.parts}


def test_link_targets_exist():
    guides = [*MAPS, *DOCS.glob("*.md"), *FILES, INDEX]
    for path in guides:
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_files_that_the_maps_name_exist():
    files = tree()
    # `algorithms/product` is a unit: a header, a source file or both.
    pattern = r"`((?:[\w.]+/)*[\w.*]+\.(?:h|cpp|py|md)|(?:[a-z_]+/)+[a-z_]+)`"
    for path in MAPS:
        for name in re.findall(pattern, path.read_text()):
            known = any(
                re.search(rf"/{re.escape(name).replace(re.escape('*'), '[^/]*')}(\.|/|$)", file)
                for file in files
            )
            assert known or name.startswith("build/"), f"{path.name} names {name}"


def test_code_in_guides_is_in_the_tree():
    count = 0
    for path in (DOCS / "add_an_op.md", DOCS / "add_a_kernel.md"):
        for name, code in re.findall(
            r"^`([^`\n]+)`:\n\n```\w+\n(.*?)```", path.read_text(), re.M | re.S
        ):
            count += 1
            assert code in (ROOT / name).read_text(), f"{path.name}: not in {name}:\n{code}"
    assert count >= 8


def test_the_glossary_is_sorted():
    words = re.findall(r"^- \*\*(.+?)\*\*: .", (DOCS / "glossary.md").read_text(), re.M)
    assert len(words) > 100
    assert words == sorted(set(words), key=str.lower)


def test_decisions_have_no_gaps():
    assert [path.name[:4] for path in FILES] == [f"{i:04}" for i in range(1, len(FILES) + 1)]


def test_a_decision_is_complete_and_listed():
    index = INDEX.read_text()
    for path in FILES:
        text, number = path.read_text(), path.name[:4]
        title = re.match(rf"# {number}: (.+)\n", text)
        date = re.search(r"^- Date: (\d{4}-\d\d-\d\d)$", text, re.M)
        assert title, f"{path.name}: the first line is `# {number}: title`"
        assert date, f"{path.name}: there is a line `- Date: YYYY-MM-DD`"
        status = re.search(r"^- Status: (accepted|rejected|superseded by \[\d{4}\])", text, re.M)
        assert status, f"{path.name}: there is a line `- Status: ...`"
        for section in ("Context", "Decision", "Consequences"):
            assert f"\n## {section}\n" in text, f"{path.name}: there is no section {section}"
        row = f"| [{number}]({path.name}) | {title[1]} | {date[1]} |"
        assert row in index, f"the index has no row {row}"


def test_the_map_of_the_paper_names_what_exists():
    paper = pytest.importorskip("arcgrad.recipes.paper")
    text = (DOCS / "paper.md").read_text()
    scope = {"ag": ag, "agt": importlib.import_module("arcgrad.torch"), "arcgrad": ag}
    importlib.import_module("arcgrad.recipes.models")
    names = set(re.findall(r"`((?:ag|agt|arcgrad\.recipes)\.[\w.]+)`", text))
    assert len(names) > 40
    for name in names:
        eval(name, scope)
    for path in re.findall(r"`((?:\w+/)+\w+\.py)`", text):
        assert any((ROOT / folder / path).is_file() for folder in (".", "tests")), path
    commands = set(re.findall(r"`arcgrad reproduce (\w+)`", text))
    assert commands == set(paper.PAPER_TABLES)


# Inputs of blocks that are a part of a program.
PREAMBLES = {
    "README.md": """
import torch, arcgrad as ag
log_probs = torch.randn(50, 2, 5).log_softmax(-1)
targets, input_lengths, target_lengths = torch.ones(2, 3, dtype=int), [50, 50], [3, 3]
emissions = torch.randn(2, 40, 5)
""",
    "ngram.md": """
import arcgrad as ag
counts = ag.ngram.count([[0, 1, 2, 1], [2, 1]], order=2, num_tokens=4)
""",
}
GUIDES = sorted([ROOT / "README.md", *DOCS.glob("*.md")])


def blocks(path):
    """(language, code) of the blocks of a page, without those that Sphinx executes."""
    return re.findall(r"^```(\w+)\n(.*?)^```", path.read_text(), re.M | re.S)


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_programs_of_guides_run(path, monkeypatch, tmp_path):
    """Examples with a prompt are run by test_conventions.py, code cells by `make docs`."""
    programs = [code for kind, code in blocks(path) if kind == "python" and ">>> " not in code]
    # The corpora below /data are those of users.
    programs = [code for code in programs if '"/data/' not in code]
    if path.name.startswith("add_"):  # shows parts of files, which another test compares
        programs = []
    if not programs:
        return
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "gtn", None)
    scope = {"__name__": path.stem}
    for program in [PREAMBLES.get(path.name, ""), *programs]:
        exec(compile(program, str(path), "exec"), scope)


def test_commands_of_guides_exist():
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    targets |= {"sanitize-address", "sanitize-thread"}
    cases = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    for path in GUIDES:
        text = path.read_text()
        for target in re.findall(r"(?:`|^)make ([a-z][a-z0-9-]*)", text, re.M):
            assert target in targets, f"{path.name}: there is no target {target}"
        for case in re.findall(r"python -m benchmarks (\w+)", text):
            assert case in cases, f"{path.name}: there is no benchmark {case}"


def test_every_public_name_has_a_page_of_the_reference(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    public = [name for name in ag.__all__ if not inspect.ismodule(getattr(ag, name))]
    names = [name for name in public if not name.startswith("__")]
    pages = importlib.import_module("api_pages").groups(ag, names)
    assert sorted(name for page in pages.values() for name in page) == sorted(names)
