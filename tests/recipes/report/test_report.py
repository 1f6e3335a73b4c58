"""The report of runs: a complete, self-contained page for any runs."""

import base64
import html.parser
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import arcgrad as ag
from arcgrad import drawing
from arcgrad.recipes import training
from arcgrad.recipes.data import load_data, load_split
from arcgrad.recipes.experiments import find, from_dict, override
from arcgrad.recipes.inference import evaluate_run
from arcgrad.recipes.metrics import evaluate
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.report import command_lines, page_runs, write_report
from arcgrad.recipes.report.page_runs import load
from arcgrad.recipes.run import Run, load_history, load_run

LOOK = Path(__file__).parents[3] / "scripts/look_at_report.py"
TINY = ["data.train=4", "data.validation=2", "data.test=3", "optim.batch_size=2", "optim.epochs=1"]
VOID = {"img", "link", "meta", "source"}


class Page(html.parser.HTMLParser):
    """The content of a page; its tags must be properly nested."""

    def __init__(self, path):
        super().__init__()
        self.source, self.folder = path.read_text(), path.parent
        self.open, self.tags, self.texts = [], [], []
        self.feed(self.source)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, text):
        if self.open and self.open[-1] != "style":
            self.texts.append(text)

    def all(self, tag, **wanted):
        """The attributes of the tags of a kind."""
        found = [attributes for name, attributes in self.tags if name == tag]
        return [a for a in found if all(a.get(key) == value for key, value in wanted.items())]

    def pictures(self):
        """The SVG of all pictures for light paper."""
        for image in self.all("img"):
            yield base64.b64decode(image["src"].partition(",")[2]).decode()


def check(page):
    """Any page is complete, accessible, and has no link to other files."""
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert page.source.startswith("<!DOCTYPE html>")
    assert page.all("html", lang="en")
    assert len(page.all("h1")) == len(page.all("title")) == 1
    for _, attributes in page.tags:
        for name in ("src", "srcset", "href"):
            address = attributes.get(name, "#main")
            assert address.startswith("data:") or address[1:] in ids
    assert not page.all("script")
    assert "url(" not in page.source
    assert "@import" not in page.source
    for image in page.all("img"):
        assert len(image["alt"].split()) > 3
    for cell in page.all("th"):
        assert cell["scope"] in ("col", "row")
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    for svg in page.pictures():
        assert svg.count("<svg") == svg.count("</svg>") == 1
    return page


def written(runs, tmp_path, **options):
    return check(Page(write_report(runs, tmp_path / "report.html", **options)))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of one epoch, one for each kind that a page shows differently."""
    folder = tmp_path_factory.mktemp("runs")
    tiny = override(find("demo"), TINY)
    bigram = override(find("table1/letters/ngram2/no_blank"), TINY)
    pieces = override(tiny, ["data.train=20", "tokens.kind=pieces", "tokens.num_pieces=40"])
    experiments = {
        "letters": tiny,
        "bigram": bigram,
        "pieces": pieces,
        "marginalized": override(pieces, ["tokens.marginalize=true"]),
        "speech": override(tiny, ["data.corpus=digits", "model.preset=small"]),
    }
    for name, experiment in experiments.items():
        training.train(experiment, folder / name, quiet=True, max_seconds=500)
    return folder


@pytest.fixture
def empty_pictures(monkeypatch):
    """Pictures of plots are empty, for tests of what stands around them."""

    def savefig(_, file, **options):
        assert options["format"] == "svg"
        file.write('<svg width="1pt"></svg>')

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture(scope="module")
def page(runs, tmp_path_factory):
    """The page of a run."""
    return written(runs / "letters", tmp_path_factory.mktemp("page"), examples=1)


def test_a_page_has_all_sections_of_a_run(runs, page):
    result = evaluate_run(runs / "letters")
    assert f"{result.cer:.2f}%" in page.text
    assert f"{result.wer:.2f}%" in page.text
    assert "/letters handwritten lines, CTC written as graphs" in page.text
    for title in ("Results", "Learning curves", "Examples", "Worst", "Best", "Confusions"):
        assert title in page.text
    assert {image["alt"].split()[0] for image in page.all("img")} == {
        *("loss", "CER", "WER", "learning", "The")
    }
    assert len(page.all("img")) == 4 + 2 + 1  # curves, examples, the graph of the loss
    assert len(page.all("source", media="(prefers-color-scheme: dark)")) == 7
    assert "TransducerLoss(Tokens(28, blank='optional'" in page.text
    assert "optim.learning_rate 0.003" in page.text
    assert "1 of 1" in page.text  # epochs
    assert not page.all("tr", **{"class": "differs"})
    assert ag.__version__ in page.text


@pytest.mark.usefixtures("empty_pictures")
def test_the_worst_and_the_best_examples_are_shown(runs, tmp_path, monkeypatch):
    texts = load_split(load_run(runs / "letters")[0], "test").texts
    wrong = [texts[0], "", texts[2][:-1] + "?"]
    monkeypatch.setattr(page_runs, "evaluate_recognizer", lambda *_, **__: evaluate(texts, wrong))
    page = written(runs / "letters", tmp_path)
    assert re.findall("test-line-[0-9]", page.text) == ["test-line-1", "test-line-2", "test-line-0"]
    assert page.text.index("test-line-2") < page.text.index("Best") < page.text.index("test-line-0")
    marked = re.findall("<(?:del|ins)>(.*?)</(?:del|ins)>", page.source)
    gap = '<span class="gap">·</span>'
    first = [letter.replace(" ", "␣") for letter in texts[1]] + [gap] * len(texts[1])
    assert marked == [*first, texts[2][-1], "?"]
    assert len(written(runs / "letters", tmp_path, examples=0).all("img")) == 5


def test_several_runs_are_compared_on_one_page(runs, tmp_path):
    page = written([runs / "letters", runs / "bigram"], tmp_path, examples=1)
    assert "2 runs side by side" in page.text
    assert page.text.count("test-line-") == 2  # each example once, as both read it
    assert len(page.all("section", **{"class": "prediction"})) == 4
    differing = re.findall('<tr class="differs"><th scope="row">(.*?)</th>', page.source)
    if differing[-1] == "date":  # a minute may have begun between the two
        differing.pop()
    assert differing == [
        *("description", "data.single_words", "model.channels"),
        *("loss.blank", "loss.allow_repeats", "loss.ngram"),
    ]
    assert page.text.count("The alignments of") == 2
    assert "letters train from" in page.all("img")[0]["alt"]
    assert "bigram validation from" in page.all("img")[0]["alt"]


def test_runs_with_other_data_have_examples_of_their_own(runs, tmp_path):
    page = written([runs / "letters", runs / "speech"], tmp_path, examples=1)
    assert "Worst of letters" in page.text
    assert "Best of speech" in page.text
    assert "log-mel features" in "".join(image["alt"] for image in page.all("img"))
    assert len(page.all("section", **{"class": "prediction"})) == 4


@pytest.mark.usefixtures("empty_pictures")
def test_texts_and_names_are_escaped(runs, tmp_path, monkeypatch):
    run = tmp_path / "<b>&amp;'\""
    shutil.copytree(runs / "letters", run)
    settings = json.loads((run / "experiment.json").read_text())
    settings["description"] = "<script>alert(1)</script>"
    del settings["sha256"]
    (run / "experiment.json").write_text(json.dumps(settings))
    texts = load_split(from_dict(settings), "test").texts
    found = evaluate(texts, ["</dd><script>1</script>"] * 3)
    monkeypatch.setattr(page_runs, "evaluate_recognizer", lambda *_, **__: found)
    page = written(run, tmp_path)
    assert "<script>alert(1)</script>" in page.text
    assert "<b>&amp;'\"" in page.text
    assert page.text.count("</dd>") == 0  # each letter is marked separately


@pytest.mark.usefixtures("empty_pictures")
def test_empty_texts_are_shown(runs, tmp_path, monkeypatch):
    def with_an_empty_text(experiment):
        splits = load_data(experiment)
        splits.test.texts[1] = ""
        return splits

    monkeypatch.setattr(page_runs, "load_data", with_an_empty_text)
    monkeypatch.setattr(Recognizer, "transcribe", lambda *_: ["a"])
    monkeypatch.setattr(
        page_runs, "evaluate_recognizer", lambda _, data, **__: evaluate(data.texts, ["", "a", ""])
    )
    page = written(runs / "letters", tmp_path)
    assert "CER ∞, 1 of 0 letters" in page.text
    assert "CER 100.00%" in page.text


@pytest.mark.usefixtures("empty_pictures")
def test_a_run_without_its_data_has_the_other_sections(runs, tmp_path):
    run = tmp_path / "moved"
    shutil.copytree(runs / "speech", run)
    settings = json.loads((run / "experiment.json").read_text())
    settings["data"]["path"] = str(tmp_path / "nowhere")
    del settings["sha256"]
    (run / "experiment.json").write_text(json.dumps(settings))
    page = written(run, tmp_path)
    assert "The test data of this run could not be loaded: digits.find: a folder" in page.text
    assert len(page.all("img")) == 5  # curves, the graph of the loss
    assert "/moved, whose data could not be loaded" in page.text


@pytest.mark.usefixtures("empty_pictures")
def test_a_run_that_was_interrupted_in_its_first_epoch(runs, tmp_path):
    run = tmp_path / "interrupted"
    shutil.copytree(runs / "letters", run)
    for name in ("best.safetensors", "metrics.jsonl"):
        (run / name).unlink()
    with pytest.raises(ValueError, match=r"there is no '.*best.safetensors'; it was interrupted"):
        write_report(run, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    page = written(run, tmp_path, checkpoint="last")
    assert "No epoch was finished yet" in page.text


@pytest.mark.usefixtures("empty_pictures")
def test_numbers_that_are_not_finite_are_left_out_of_curves(runs, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(runs / "letters", run)
    (row,) = load_history(run)
    rows = [row, {**row, "epoch": 2, "train_loss": float("nan"), "validation_cer": float("inf")}]
    Run(run).save_metrics(rows)
    page = written(run, tmp_path, examples=0)
    assert f"validation from {row['validation_cer']:.4g} to" in page.all("img")[1]["alt"]
    assert "nan" in page.text  # in the table


def test_word_pieces_are_shown_where_they_lie(runs, tmp_path):
    page = written(runs / "pieces", tmp_path, examples=1)
    assert page.text.count("Word pieces of the reference") == 2
    pictures = [
        image["alt"] for image in page.all("img") if "positions of the word pieces" in image["alt"]
    ]
    assert len(pictures) == 2
    assert "▁" in pictures[0]
    assert "Word pieces that the model chose" not in page.text


def test_decompositions_that_the_model_chose_are_compared(runs, tmp_path):
    page = written(runs / "marginalized", tmp_path, examples=1)
    assert "Word pieces that the model chose" in page.text
    assert re.search("The ways to spell “.*” in word pieces", page.text)
    table = page.source.partition("chosen most often")[2].partition("</table>")[0]
    for row in re.findall("<tr>(.*?)</tr>", table):
        word, chosen, _, reference, _ = re.findall("<td.*?>(.*?)</td>", row)
        spelled = [re.findall("<code>(.*?)</code>", cell) for cell in (chosen, reference)]
        assert spelled[0] != spelled[1]
        assert ["".join(pieces) for pieces in spelled] == ["▁" + word] * 2


@pytest.mark.usefixtures("empty_pictures")
def test_without_graphviz_the_graph_is_text(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "_has_graphviz", lambda: False)
    page = written(runs / "letters", tmp_path, examples=0)
    assert "The graph could not be drawn: draw: pygraphviz is needed" in page.text
    assert page.text.count("run `pip install arcgrad[draw]`") == 1
    assert len(page.all("img")) == 4


@pytest.mark.usefixtures("empty_pictures")
def test_the_commands_make_the_same_run(runs, tmp_path):
    for name in ("bigram", "speech"):
        page = written(runs / name, tmp_path, examples=0)
        commands = re.findall('<pre class="commands">(.*?)</pre>', page.source, re.DOTALL)
        train, test, again = (shlex.split(html.unescape(command)) for command in commands)
        assert train[:2] == ["arcgrad", "train"]
        settings = [train[i + 1] for i, argument in enumerate(train) if argument == "--set"]
        experiment = load_run(runs / name)[0]
        found = override(find(train[2]), settings)
        assert replace(found, description=experiment.description) == experiment
        assert train[-2:] == ["--max-seconds", "500"]
        assert train[3:5] == ["--out", str(runs / name)]
        assert test[:3] == ["arcgrad", "test", str(runs / name)]
        assert again[-2:] == ["--out", str(tmp_path / "report.html")]


def test_the_nearest_experiment_is_the_cell_of_the_table(runs):
    run = load(runs / "bigram", "bigram", "", "best", "cpu")
    assert command_lines._train_arguments(run)[0] == "table1/letters/ngram2/no_blank"
    run.experiment = replace(run.experiment, description="mine", seed=7)
    found = command_lines._train_arguments(run)
    assert found[0] == "table1/letters/ngram2/no_blank"
    assert {"seed=7", *TINY} == set(found[4:-2:2])


def test_a_page_is_deterministic(runs, page, tmp_path):
    again = written(runs / "letters", tmp_path, examples=1)
    sources = (p.source.replace(str(p.folder), "folder") for p in (page, again))
    assert len(set(sources)) == 1


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        ([], {}, r"no run twice, but they are \[\]"),
        (["a", "b/../a"], {}, "no run twice, but they are"),
        (["a"], {"split": "exam"}, "the split must be 'train', .* but it is 'exam'"),
        (["a"], {"examples": -1}, "examples must not be negative, but it is -1"),
    ],
)
def test_invalid_report_requests_are_errors(runs, options, message, tmp_path):
    with pytest.raises(ValueError, match=f"write_report: .*{message}"):
        write_report(runs, tmp_path / "report.html", **options)
    assert not list(tmp_path.iterdir())


def test_the_page_renders_without_messages_in_the_console(page, tmp_path):
    (tmp_path / "report.html").write_text(page.source)
    command = [sys.executable, str(LOOK), str(tmp_path / "report.html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("there is no Chromium")
    assert (done.returncode, done.stderr) == (0, "")
