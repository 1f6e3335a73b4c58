"""``arcgrad align --corpus`` and ``arcgrad decode --corpus``: models, formats, failures."""

import json

import numpy as np
import pytest
import soundfile
import torch
from command_line import run, tiny_run

from arcgrad.recipes.data import load_data
from arcgrad.recipes.inference import Adapter, Alignment, Segment, load_model, to_srt, to_vtt
from arcgrad.recipes.inference.corpus import CorpusTask, read_items, run_corpus, run_shard
from arcgrad.recipes.run import load_run

LABELS = ["<blank>", "|", *"abcdehlorstw"]
TEXTS = ["cat sat", "the road", "hello world"]


def frames(text):
    found = [0]
    for letter in text.replace(" ", "|"):
        found += [LABELS.index(letter), 0]
    return torch.eye(len(LABELS))[found].mul(8).log_softmax(-1).numpy()


@pytest.fixture
def saved(tmp_path):
    """Labels, and a folder of arrays with texts."""
    (tmp_path / "labels.txt").write_text("\n".join(LABELS))
    items = tmp_path / "items"
    (items / "deep").mkdir(parents=True)
    for name, text in zip(("a", "b", "deep/c"), TEXTS, strict=True):
        np.save(items / f"{name}.npy", frames(text))
        (items / f"{name}.txt").write_text(text)
    return tmp_path


def command(capsys, monkeypatch, saved, op, *more, corpus="items"):
    paths = saved / "labels.txt", "--corpus", saved / corpus, "--out", saved / "out"
    more = more if "--format" in more else ("--format", "json", *more)
    return run(capsys, monkeypatch, op, *paths, "--frame-shift", "0.02", *more)


def outputs(saved):
    found = [path for path in (saved / "out").rglob("*") if path.is_file()]
    return {path.relative_to(saved / "out").as_posix(): path.read_text() for path in found}


def test_alignments_are_one_file_per_item(capsys, monkeypatch, saved):
    code, out, err = command(capsys, monkeypatch, saved, "align", "--format", "ctm")
    assert code == 0, err
    assert "3 of 3 written to" in out
    assert set(outputs(saved)) == {"a.ctm", "b.ctm", "deep/c.ctm"}
    name, channel, start, duration, word, confidence = (
        outputs(saved)["a.ctm"].split("\n")[1].split()
    )
    assert (name, channel, start, duration, word) == ("a", "1", "0.1800", "0.1000", "sat")
    assert 0.9 < float(confidence) <= 1


@pytest.mark.parametrize("output_format", ["json", "tsv", "srt", "vtt", "textgrid"])
def test_formats(capsys, monkeypatch, saved, output_format):
    for op in ("align", "decode"):
        code, _, err = command(capsys, monkeypatch, saved, op, "--format", output_format)
        assert code == 0, err
        found = outputs(saved)
        assert len(found) == 3
        content = found["b.TextGrid" if output_format == "textgrid" else f"b.{output_format}"]
        assert "the" in content
        assert "road" in content
        for path in (saved / "out").rglob("*.*"):
            path.unlink()


def test_captions():
    words = [("one", 0.0, 0.4), ("two", 0.5, 0.9), ("<three>", 3.0, 3.5)]
    segments = [Segment(w, a, b, 0, 1, 0.0) for w, a, b in words]
    segments += [Segment("lost", 3.5, 3.5, 1, 1, -np.inf, 0.0, "missing")]
    segments += [Segment("x" * 40, 3600.0, 3661.5, 1, 2, 0.0)]
    made = Alignment("a", "", "seconds", 4000.0, 9, tuple(segments))
    assert to_srt([made]).split("\n\n")[0] == "1\n00:00:00,000 --> 00:00:00,900\none two"
    assert to_srt([made]).split("\n\n")[2].startswith("3\n01:00:00,000 --> 01:01:01,500\nx")
    assert to_vtt([made]).split("\n\n")[2] == "00:00:03.000 --> 00:00:03.500\n&lt;three&gt;"
    pixels = Alignment("a", "", "pixels", 9.0, 9, tuple(segments))
    with pytest.raises(ValueError, match="captions must have times, but positions of 'a' are"):
        to_srt([pixels])


def test_bad_items_are_named_and_counted(capsys, monkeypatch, saved):
    items = saved / "items"
    (items / "bad.npy").write_bytes(b"\x93NUMPY")
    (items / "bad.txt").write_text("cat")
    np.save(items / "short.npy", frames("c"))
    (items / "short.txt").write_text("cat sat")
    np.save(items / "silent.npy", frames("c"))
    code, out, err = command(capsys, monkeypatch, saved, "align")
    assert code == 2
    assert "3 of 6 written to" in out
    assert "bad: align: " in err
    assert "short: align_words: the words must fit into the frames" in err
    assert "silent: align: an item must have a text, but there is none" in err
    assert "arcgrad: 3 of 6 failed" in err
    lines = (saved / "out/failures.jsonl").read_text().splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["bad", "short", "silent"]
    # The next run tries failed items again, and nothing else.
    before = (saved / "out/a.json").stat().st_mtime_ns
    np.save(items / "bad.npy", frames("cat"))
    np.save(items / "short.npy", frames("cat sat"))
    (items / "silent.txt").write_text("c")
    code, out, _ = command(capsys, monkeypatch, saved, "align")
    assert (code, "6 of 6 written" in out) == (0, True)
    assert (saved / "out/a.json").stat().st_mtime_ns == before
    assert not (saved / "out/failures.jsonl").exists()


def test_words_that_cannot_be_spelled_are_listed(capsys, monkeypatch, saved):
    (saved / "items/a.txt").write_text("cat 寿司 s4t")
    assert command(capsys, monkeypatch, saved, "align", "--skip-penalty", "9")[0] == 0
    segments = json.loads((saved / "out/a.json").read_text())["segments"]
    assert [segment.get("unspelled") for segment in segments] == [None, "寿司", "4"]
    assert all(segment["start"] is not None for segment in segments)


def test_manifests(capsys, monkeypatch, saved):
    rows = [{"id": "one", "audio_filepath": "items/a.npy", "text": "cat sat"}]
    rows += [{"path": "items/b.npy", "text": "the road", "other": 1}]
    (saved / "list.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert command(capsys, monkeypatch, saved, "align", corpus="list.jsonl")[0] == 0
    assert set(outputs(saved)) == {"one.json", "items/b.json"}
    (saved / "list.tsv").write_text("items/deep/c.npy\thello world\n")
    assert command(capsys, monkeypatch, saved, "decode", corpus="list.tsv")[0] == 0
    assert json.loads(outputs(saved)["items/deep/c.json"])["text"] == "hello world"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("items/a.npy", "must have a file and a text, but line 1 of .* is 'items/a.npy'"),
        ('{"text": "cat"}', "must have a file and a text, but line 1"),
        ("{", "must be JSON, but it is not"),
        ("", "a corpus must have an item, but .* has none"),
        ("a.npy\tcat\na.wav\tcat", "must have different names, but 2 are called 'a'"),
    ],
)
def test_bad_manifests_are_refused(saved, lines, message):
    (saved / "list.tsv").write_text(lines)
    with pytest.raises(ValueError, match=f"align: .*{message}"):
        read_items("align", saved / "list.tsv", True)


def test_an_adapter_is_two_lines(capsys, monkeypatch, tmp_path):
    soundfile.write(tmp_path / "a.wav", np.zeros(800), 8000)
    (tmp_path / "a.txt").write_text("ab")
    adapter = tmp_path / "adapters" / "mine.py"
    adapter.parent.mkdir()
    adapter.write_text(
        "import torch\n"
        "from arcgrad.recipes.inference import Adapter\n"
        "network = lambda x: torch.eye(4).mul(9)[[0, 2, 3, 0]].expand(len(x), 4, 4)\n"
        "model = Adapter(network, ['<pad>', '|', 'a', 'b'], frame_shift=0.5)\n"
        "other = 7\n"
    )
    corpus = tmp_path / "a.tsv"
    corpus.write_text("a.wav\tab\n")
    more = "--corpus", corpus, "--out", tmp_path / "out", "--format", "json"
    code, _, err = run(capsys, monkeypatch, "align", f"{adapter}:model", *more)
    assert code == 0, err
    word = json.loads((tmp_path / "out/a.json").read_text())["segments"][0]
    assert (word["label"], word["start"], word["end"]) == ("ab", 0.5, 1.5)
    for name, message in (
        ("other", "must be callable and have labels, but 'other' .* is of type int"),
        ("none", "must be callable and have labels, but 'none' .* is missing"),
    ):
        with pytest.raises(ValueError, match=f"align: an adapter {message}"):
            load_model("align", f"{adapter}:{name}")
    with pytest.raises(ValueError, match="the file of an adapter must exist"):
        load_model("align", tmp_path / "no.py:model")
    with pytest.raises(
        ValueError, match=r"a model must be the folder of a run, file\.py:name, or a"
    ):
        load_model("align", tmp_path / "nothing")
    wrong = Adapter(lambda x: torch.zeros(5, 3), ["-", "a"], 0.02, blank=0)
    with pytest.raises(ValueError, match=r"must return \[T, 2\], .* it returns \[5, 3\]"):
        wrong(tmp_path / "a.wav")


def test_a_run_is_a_model(capsys, monkeypatch, tmp_path):
    folder = tiny_run(tmp_path / "run", "loss.blank=optional")
    data = load_data(load_run(folder)[0]).test
    (tmp_path / "lines").mkdir()
    for i in range(2):
        data.image(i).save(tmp_path / f"lines/{i}.png")
        (tmp_path / f"lines/{i}.txt").write_text(data.texts[i])
    more = "--corpus", tmp_path / "lines", "--out", tmp_path / "out"
    for op in ("align", "decode"):
        code, _, err = run(
            capsys,
            monkeypatch,
            op,
            folder,
            *more,
            "--format",
            f"{'json' if op == 'align' else 'tsv'}",
        )
        assert code == 0, err
    found = json.loads((tmp_path / "out/0.json").read_text())
    assert found["unit"] == "pixels"
    assert [s["label"] for s in found["segments"]] == data.texts[0].split()


def test_an_interrupted_output_leaves_nothing(saved):
    task = CorpusTask("align", str(saved / "labels.txt"))
    items = read_items("align", saved / "items", True)
    (saved / "out").mkdir()
    (saved / "out/a.json").mkdir()  # cannot be replaced by a file
    failures = run_shard(task, str(saved / "out"), items)
    assert failures == []
    failures = run_shard(task, str(saved / "out"), [items[1]._replace(name="b/../a.json/b")])
    assert set(outputs(saved)) == {"b.json", "deep/c.json", "a.json/b.json"}


def test_bad_options_are_refused(capsys, monkeypatch, saved):
    code, _, err = command(capsys, monkeypatch, saved, "align", "--format", "doc")
    assert code == 2
    assert "align: the format must be one of tsv, json, ctm, srt, vtt, textgrid" in err
    code, _, err = command(capsys, monkeypatch, saved, "align", "--engine", "far")
    assert code == 2
    assert "align: the engine must be 'local' or 'ray', but it is 'far'" in err
    code, _, err = run(capsys, monkeypatch, "decode", saved / "labels.txt", "--corpus", saved)
    assert (code, "decode: --corpus needs a folder for its outputs, but --out" in err) == (2, True)
    code, _, err = run(capsys, monkeypatch, "decode", saved / "labels.txt")
    assert (code, "decode: there must be a file or --corpus, but there is neither" in err) == (
        2,
        True,
    )
    task = CorpusTask("align", str(saved / "nothing"))
    with pytest.raises(ValueError, match="a model must be the folder"):
        run_corpus(task, read_items("align", saved / "items", True), saved / "out")


def test_ray_is_named_if_it_is_missing(saved):
    try:
        import ray  # noqa: F401
    except ImportError:
        task = CorpusTask("align", str(saved / "labels.txt"))
        items = read_items("align", saved / "items", True)
        with pytest.raises(ValueError, match="--engine ray needs Ray, but it is not installed"):
            run_corpus(task, items, saved / "out", engine="ray")
