"""Tables and figures: each cell is trained once, and its numbers are in the right place."""

import json
import os
import re
import statistics
import sys
import time
from pathlib import Path

import psutil
import pytest
from tools import long_only

from arcgrad.recipes.checked_files import from_json, to_json
from arcgrad.recipes.experiments import EXPERIMENTS, catalog
from arcgrad.recipes.experiments.published import TABLE_1
from arcgrad.recipes.inference import evaluate_run
from arcgrad.recipes.paper import PAPER_TABLES, reproduce, reproduction
from arcgrad.recipes.training import Result, train

TINY = ["data.train=40", "data.validation=2", "data.test=3", "optim.epochs=1"]
PIECES = ["tokens.num_pieces=32", "model.inner_pieces=32"]


def rows(path, number=0):
    """The cells of a table on a page, by default of its first one."""
    tables = re.findall(r"(?:^\|.*\n)+", path.read_text(), flags=re.MULTILINE)
    lines = tables[number].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_table_has_the_measured_and_the_published_number_of_each_cell(tmp_path):
    page, numbers = reproduce("table1", "letters", tmp_path, settings=TINY, quiet=True)
    header, _, *body = rows(page)
    assert header[:4] == ["n-gram", "no blank", "test", "paper"]
    found = json.loads(numbers.read_text())
    *body, change = body
    assert change[0] == "2 against 0"
    assert change[3::3] == ["-8.8", "-2.2", "+0.0"]
    for place, blank in enumerate(TABLE_1):
        names = [f"table1/letters/ngram{ngram}/{blank}_blank" for ngram in (0, 2)]
        before, after = (found[name]["runs"][0]["validation_cer"] for name in names)
        assert change[1 + 3 * place] == f"{after - before:+.1f}"
    for ngram, row in enumerate(body):
        assert row[0] == str(ngram)
        for place, blank in enumerate(TABLE_1):
            (result,) = found[f"table1/letters/ngram{ngram}/{blank}_blank"]["runs"]
            expected = [f"{result['validation_cer']:.1f}", f"{result['test_cer']:.1f}"]
            assert row[1 + 3 * place : 4 + 3 * place] == [*expected, str(TABLE_1[blank][ngram])]
            run = tmp_path / f"runs/table1/letters/ngram{ngram}/{blank}_blank/seed0"
            history = [
                json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()
            ]
            assert result["validation_cer"] == history[0]["validation_cer"]
            assert evaluate_run(run).cer == result["test_cer"]
    sets = " ".join(f"--set {setting}" for setting in TINY)
    assert f"`arcgrad reproduce table1 --data letters {sets}`" in page.read_text()


def test_finished_cells_are_reused_and_not_trained_again(tmp_path, monkeypatch):
    reproduce("variants", out=tmp_path, settings=TINY, quiet=True)
    trained = sorted(path.parent for path in tmp_path.glob("runs/**/result.json"))
    assert len(trained) == 4  # with CTC, the cell of Table 1
    assert tmp_path / "runs/table1/letters/ngram0/optional_blank/seed0" in trained

    def never(*_, **__):
        raise AssertionError

    monkeypatch.setattr(reproduction, "train", never)
    # A run of an earlier version does not have all settings.
    file = trained[0] / "result.json"
    result = from_json("test", file, file.read_bytes())
    del result["settings"]["data"]["window"]
    file.write_bytes(to_json(result))
    page, _ = reproduce("variants", out=tmp_path, settings=TINY, quiet=True)
    assert [row[0] for row in rows(page)[2:]] == ["CTC", "spike", "limited", "spaced"]
    with pytest.raises(ValueError, match=r"must have the settings of its cell, but .* has others"):
        reproduce("variants", out=tmp_path, settings=[*TINY, "loss.divide=false"], quiet=True)


def test_a_damaged_result_is_an_error_that_names_it(tmp_path):
    run = tmp_path / "runs/table1/letters/ngram0/optional_blank/seed0"
    run.mkdir(parents=True)
    (run / "result.json").write_text('{"validation_cer": 4')
    with pytest.raises(ValueError, match=r"reproduce: '.*result.json' must be JSON, but .* remove"):
        reproduce("variants", out=tmp_path, settings=TINY, quiet=True)


def folders_of(table, root):
    """The folders of the runs of all cells, with one seed."""
    experiments = PAPER_TABLES[table].experiments("letters")
    runs = reproduction._runs(experiments, catalog("letters"), root, 1)
    return {name: run.path.parent for name, (run,) in runs.items()}


def test_equal_cells_have_one_run(tmp_path):
    folders = folders_of("fig5", tmp_path)
    assert len(folders) == 10
    assert len(set(folders.values())) == 8
    one = folders["fig5d/letters/subsampling4/marginal"]
    assert one == folders["fig5/letters/pieces200/marginal"]
    same = folders_of("table2", tmp_path)["table2/letters/letters/dense"]
    assert same == tmp_path / "table1/letters/ngram2/optional_blank"


def test_several_seeds_have_a_mean_and_a_spread(tmp_path):
    def made(seeds):
        return reproduce("variants", out=tmp_path, seeds=seeds, settings=TINY, quiet=True)

    page, _ = made(1)
    assert "±" not in page.read_text()
    page, numbers = made(2)  # trains the second seed only
    runs = json.loads(numbers.read_text())["variants/letters/spike"]["runs"]
    assert [run["seed"] for run in runs] == [0, 1]
    assert [run["settings"]["seed"] for run in runs] == [0, 1]
    errors = [run["test_cer"] for run in runs]
    assert errors[0] != errors[1]
    expected = f"{statistics.fmean(errors):.1f} ± {statistics.stdev(errors):.1f}"
    assert {row[0]: row[2] for row in rows(page)}["spike"] == expected
    text = page.read_text()
    assert "Mean and standard deviation of 2 seeds." in text
    assert f"`arcgrad reproduce variants --data letters --seeds 2 --set {TINY[0]}" in text


def test_some_cells_can_be_trained_alone(tmp_path):
    sizes = ["data.train=40", "data.validation=2", "data.test=2", "optim.epochs=1"]
    written = reproduce("fig5", "digits", tmp_path, only=["18/mar"], settings=sizes, quiet=True)
    assert len(list(tmp_path.glob("runs/**/result.json"))) == 1
    (row,) = rows(written[0])[2:]
    assert row[:3] == ["18", "", ""]
    assert re.fullmatch(r"\d+\.\d", row[3])
    assert "--only 18/mar" in written[0].read_text()
    page, _ = reproduce("table1", "words", tmp_path, only=["ngram0/no"], settings=TINY, quiet=True)
    assert [bool(cell) for cell in rows(page)[2][:6]] == [True, True, True, True, False, False]
    with pytest.raises(ValueError, match=r"must be parts of names of cells, but .* 'ngram7'"):
        reproduce("table1", only=["ngram7"])


def test_the_page_of_a_preset_has_its_own_name_and_runs(tmp_path):
    settings = [*TINY, "data.height=16", "optim.batch_size=8"]
    page, _ = reproduce("table1", "words", tmp_path, preset="paper", settings=settings, quiet=True)
    assert page.name == "table1-words-paper.md"
    title = "# Table 1: transitions and blanks, on words, preset paper\n"
    assert page.read_text().startswith(title)
    assert len(list(tmp_path.glob("runs/paper/table1/words/*/*/seed0/result.json"))) == 9
    found = {row[0]: row[1:] for row in rows(page, 1)}
    assert found["data.height"] == ["16", "64"]
    assert found["data.train"] == ["40", "none"]
    assert "model.preset" not in found


def test_an_interrupted_reproduction_is_resumed(tmp_path, monkeypatch):
    def interrupted(experiment, out, **options):
        result = train(experiment, out, **options)
        return Result(0, result.best_cer, (), finished=False, interrupted=True)

    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "train", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reproduce("variants", out=tmp_path, settings=TINY, quiet=True)
    assert not list(tmp_path.glob("runs/**/result.json"))
    page, *_ = reproduce("variants", out=tmp_path, settings=TINY, quiet=True)
    assert len(rows(page)) == 6


@pytest.mark.parametrize(
    ("name", "corpus", "pictures"),
    [
        ("table2", "letters", []),
        ("table3", "letters", []),
        ("table4", "letters", []),
        ("fig7", "letters", ["1", "2", "3", "4"]),
        ("fig7", "digits", ["1", "2", "3", "4"]),
        ("fig8", "letters", ["counts"]),
    ],
)
def test_each_table_and_figure_is_written(name, corpus, pictures, tmp_path):
    settings = [*TINY, *(PIECES if corpus == "letters" else ["tokens.num_pieces=18"])]
    written = reproduce(name, corpus, tmp_path, settings=settings, quiet=True)
    stem = f"{name}-{corpus}"
    expected = [f"{stem}.md", f"{stem}.json", *(f"{stem}-{name}.svg" for name in pictures)]
    assert [path.name for path in written] == expected
    page = written[0].read_text()
    assert page.startswith(f"# {PAPER_TABLES[name].title}, on {corpus}\n")
    assert re.findall(r"\]\((.*)\)", page) == expected[2:]
    json.loads(written[1].read_text())
    for path in written[2:]:
        assert "<svg" in path.read_text()


def test_figure_5_has_curves_for_single_and_marginalised_decompositions(tmp_path):
    # One epoch for each number of pieces of the catalog, which `quick` reduces.
    settings = ["data.train=60", "data.validation=2", "data.test=2"]
    written = reproduce("fig5", "digits", tmp_path, settings=settings, quick=True, quiet=True)
    assert [path.suffix for path in written] == [".md", ".json", ".svg"]
    header, _, *body = rows(written[0])
    assert header == ["number of word pieces", "SentencePiece", "test", "marginalised", "test"]
    assert [row[0] for row in body] == ["18", "20", "23", "26"]
    assert "on digits (quick)" in written[0].read_text()
    assert "`arcgrad reproduce fig5 --data digits --quick --set " in written[0].read_text()


@pytest.mark.serial
def test_cells_can_be_trained_in_processes(tmp_path, capsys):
    reproduce("table3", out=tmp_path, settings=[*TINY, *PIECES], jobs=2)
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "table3 on letters: 2 runs, 2 epochs"
    assert {line.split()[0] for line in lines[:2]} == {"1/2", "2/2"}
    assert {line.split()[1] for line in lines[:2]} == {
        "table3/letters/wfst/seed0",
        "table3/letters/ordinary/seed0",
    }
    assert "# Table 3: a convolution of graphs, on letters" in lines


@pytest.mark.serial
def test_child_processes_end_with_their_parent(tmp_path):
    command = [sys.executable, "-m", "arcgrad.recipes.cli", "reproduce", "variants", "--quiet"]
    command += ["--jobs", "2", "--out", tmp_path, "--set", "data.train=40"]
    command += ["--set", "optim.epochs=1000"]
    program = psutil.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        end = time.monotonic() + 120
        while len(list(tmp_path.glob("runs/**/metrics.jsonl"))) < 2 and time.monotonic() < end:
            assert program.poll() is None
            time.sleep(0.1)
        workers = program.children(recursive=True)
        assert len(workers) >= 2
    finally:
        program.kill()
        program.wait()
    _, alive = psutil.wait_procs(workers, timeout=60)
    for worker in alive:
        worker.kill()
    assert not alive


def test_the_page_of_settings_is_that_of_the_present_settings(tmp_path):
    (page,) = reproduce("settings", out=tmp_path, quiet=True)
    kept = Path(__file__).parents[3] / "docs/results/settings.md"
    assert page.read_text() == kept.read_text(), "arcgrad reproduce settings --out docs/results"
    found = {row[0]: row[1:4] for row in rows(page) + rows(page, 1)}
    assert found["channels c x d 8, 16, 32 and 64"][:2] == ["8-16-32-64", "16-64-128-256"]
    assert found["mini-batches of 16"] == ["16", "32", "16"]
    assert found["no clipping is stated"] == ["none", "norm 5", "norm 5"]


def test_invalid_reproduction_requests_are_errors():
    with pytest.raises(ValueError, match="but it is 'table11'; did you mean 'table1'"):
        reproduce("table11")
    with pytest.raises(ValueError, match="table1 must be on one of letters, words, iam, but"):
        reproduce("table1", "wsj")
    with pytest.raises(
        ValueError, match=r"preset must be one of small, .* 'papr'; did you mean 'p"
    ):
        reproduce("table1", preset="papr")
    with pytest.raises(ValueError, match="preset of iam must be published or paper, but it is 'sm"):
        reproduce("table1", "iam", preset="small")
    with pytest.raises(ValueError, match="table3 on words must have another preset, but it is 'pa"):
        reproduce("table3", "words", preset="paper")
    with pytest.raises(ValueError, match="there must be at least 1 seed, but there are 0"):
        reproduce("table1", seeds=0)
    with pytest.raises(ValueError, match="the corpus iam must have a folder"):
        reproduce("fig8", "iam")


def test_every_experiment_belongs_to_a_table_or_figure():
    found = {"demo"}
    for name in PAPER_TABLES.values():
        for corpus in name.corpora:
            cells = name.experiments(corpus)
            assert cells
            found |= cells.keys()
    assert found == set(EXPERIMENTS)


@long_only
def test_table_1_is_quick_if_asked(tmp_path):
    start = time.monotonic()
    page, _ = reproduce("table1", out=tmp_path, quick=True, quiet=True)
    assert len(rows(page)) == 6
    assert time.monotonic() - start < 300
