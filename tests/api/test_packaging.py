"""What packages are made of agrees: versions, dependencies, scripts of the release checklist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = (ROOT / "pyproject.toml").read_text()
VERSION = re.search(r'^version = "(.+)"', PROJECT, re.M)[1]


def needs(text):
    """Requirements without spaces and markers."""
    return {re.sub(r"\s", "", line.split(";")[0]) for line in text}


def test_the_conda_recipe_agrees_with_the_project():
    yaml = pytest.importorskip("yaml")
    recipe = yaml.safe_load((ROOT / "packaging/conda/recipe.yaml").read_text())
    assert recipe["context"]["version"] == VERSION
    wanted = needs(recipe["requirements"]["host"])
    build = re.search(r"^requires = \[(.*?)^\]", PROJECT, re.M | re.S)[1]
    names = set(re.findall(r'"([\w-]+>=[\d.]+)"', build))
    assert names
    assert names <= wanted
    run = re.search(r"^dependencies = \[(.*?)\]", PROJECT, re.M)[1]
    assert set(re.findall(r'"(.+?)"', run)) <= needs(recipe["requirements"]["run"])
    python = re.search(r'^requires-python = "(.+)"', PROJECT, re.M)[1]
    assert f"python{python}" in needs(recipe["requirements"]["run"])


def test_versions_agree():
    assert f"version: {VERSION}" in (ROOT / "CITATION.cff").read_text().replace('"', "")


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("build_wheels.py", ["a folder"], "the folder must be a plain path"),
        ("test_wheels.py", ["{folder}"], "must have wheels, but it has none"),
    ],
)
def test_scripts_refuse_what_they_cannot_use(script, arguments, message, tmp_path):
    arguments = [argument.format(folder=tmp_path) for argument in arguments]
    command = [sys.executable, str(ROOT / "scripts" / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr
