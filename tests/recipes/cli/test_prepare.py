"""``arcgrad prepare``: its output for complete and for damaged corpora."""

import pytest
import trees
from command_line import run

from arcgrad.recipes.data import iam, librispeech, wsj


def snapshot(folder):
    return {path: path.stat().st_size for path in folder.rglob("*")}


MAKE = {"iam": trees.iam, "librispeech": trees.librispeech, "wsj": trees.wsj}
LOAD = {"iam": iam.load, "librispeech": librispeech.load, "wsj": wsj.load}


@pytest.mark.parametrize("corpus", MAKE)
def test_a_complete_corpus_is_prepared_and_counted(corpus, tmp_path, capsys, monkeypatch):
    tree = MAKE[corpus](tmp_path / corpus)
    code, out, err = run(capsys, monkeypatch, "prepare", corpus, tree)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    splits = LOAD[corpus](tree)
    sizes = [len(part) for part in (splits.train, splits.validation, splits.test)]
    assert [int(line.split()[1]) for line in lines[:3]] == sizes
    assert lines[-2] == f"manifests in {tree / 'arcgrad'}"
    assert f"--set data.corpus={corpus}" in lines[-1]
    assert lines[-1].endswith(f"--set data.path={tree / 'arcgrad'}")
    has_hours = [line.endswith(" hours") for line in lines[:3]]
    assert has_hours == [corpus != "iam"] * 3


def test_hours_are_those_of_the_recordings(tmp_path, capsys, monkeypatch):
    tree = trees.librispeech(tmp_path / "libri")
    prepared = librispeech.prepare(tree)
    seconds = sum(0.5 + 0.1 * number for number in (1, 2, 3))
    assert prepared.hours["train-clean-100"] == pytest.approx(seconds / 3600)
    assert set(prepared.hours) == set(prepared.counts)
    assert iam.prepare(trees.iam(tmp_path / "iam")).hours == {}


@pytest.mark.parametrize("corpus", MAKE)
def test_check_writes_no_files(corpus, tmp_path, capsys, monkeypatch):
    tree = MAKE[corpus](tmp_path / corpus)
    before = snapshot(tmp_path)
    code, checked, _ = run(capsys, monkeypatch, "prepare", corpus, tree, "--check")
    assert code == 0
    assert checked.splitlines()[-1] == "nothing was written"
    assert snapshot(tmp_path) == before
    _, prepared, _ = run(capsys, monkeypatch, "prepare", corpus, tree)
    assert prepared.splitlines()[:3] == checked.splitlines()[:3]


def test_words_and_parts_can_be_chosen(tmp_path, capsys, monkeypatch):
    tree, out = trees.iam(tmp_path / "iam"), tmp_path / "out"
    code, printed, _ = run(
        *(capsys, monkeypatch, "prepare", "iam", tree, "--unit", "words", "--out", out)
    )
    assert code == 0
    assert (out / "words-train.jsonl").is_file()
    assert "left out: 1 words that are crossed out (a01-000u-02-07)" in printed
    assert "--set data.task=words" in printed
    tree = trees.librispeech(tmp_path / "libri")
    _, printed, _ = run(
        *(capsys, monkeypatch, "prepare", "librispeech", tree),
        *("--part", "dev-clean", "--part", "test-clean"),
    )
    assert [line.split()[0] for line in printed.splitlines()[:2]] == ["dev-clean", "test-clean"]


def test_a_broken_corpus_is_one_line_that_counts_and_names(tmp_path, capsys, monkeypatch):
    tree = trees.librispeech(tmp_path / "libri")
    (tree / "dev-clean/84/121123/84-121123-0000.flac").unlink()
    (tree / "train-clean-100/26/495/26-495-0000.flac").write_bytes(b"broken")
    code, out, err = run(capsys, monkeypatch, "prepare", "librispeech", tree)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "1 unreadable recordings (26-495-0000.flac)" in err
    assert "1 missing recordings (84-121123-0000.flac)" in err
    assert err.endswith("(--allow-missing) to leave these out\n")
    (tree / "train-clean-100/26/495/26-495-0000.flac").unlink()
    code, out, _ = run(
        *(capsys, monkeypatch, "prepare", "librispeech", tree, "--allow-missing"),
        *("--part", "train-clean-100"),
    )
    assert code == 0
    assert "left out: 1 missing recordings (26-495-0000.flac)" in out


def test_the_error_for_compressed_recordings_names_the_converter(tmp_path, capsys, monkeypatch):
    tree = trees.wsj(tmp_path / "wsj", shorten=True)
    code, _, err = run(capsys, monkeypatch, "prepare", "wsj", tree, "--check")
    assert code == 2
    assert "6 recordings compressed with shorten, which need sph2pipe and" in err
    assert "(--convert)" in err
    assert "sph2pipe -p -f wav x.wv1 x.wav" in err
    monkeypatch.setenv("PATH", "")
    code, _, err = run(capsys, monkeypatch, "prepare", "wsj", tree, "--convert")
    assert code == 2
    assert "needs the program sph2pipe, but it is not on the path; it is at" in err
    code, _, err = run(capsys, monkeypatch, "prepare", "wsj", tree, "--convert", "--check")
    assert code == 2
    assert "a check must not write, but convert does" in err


def test_converted_recordings_can_be_in_another_folder(tmp_path, capsys, monkeypatch):
    tree = trees.wsj(tmp_path / "wsj", shorten=True)
    plain = trees.wsj(tmp_path / "plain")
    for name in trees.WSJ_AUDIO:
        target = tmp_path / "wav" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (plain / name).rename(target.with_suffix(".wav"))
    code, out, err = run(
        *(capsys, monkeypatch, "prepare", "wsj", tree, "--audio", tmp_path / "wav", "--check")
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[0].split()[1] == "3"


def test_folders_that_are_not_a_corpus_are_errors(tmp_path, capsys, monkeypatch):
    for corpus, message in {
        "iam": "missing files (trainset.txt",
        "librispeech": "must have parts such as 'train-clean-100', but it has none",
        "wsj": "missing index files",
    }.items():
        code, _, err = run(capsys, monkeypatch, "prepare", corpus, tmp_path)
        assert code == 2
        assert message in err
        code, _, err = run(capsys, monkeypatch, "prepare", corpus, tmp_path / "no")
        assert code == 2
        assert "must be the folder of the corpus, but it is not one" in err
    code, _, err = run(capsys, monkeypatch, "prepare", "iam", tmp_path, "--unit", "pages")
    assert code == 2
    assert "the unit must be 'lines' or 'words', but it is 'pages'" in err
