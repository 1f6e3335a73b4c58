"""WSJ, on small complete or damaged trees of files with the same layout."""

import json
import os
import stat

import numpy as np
import pytest
import soundfile
import trees

from arcgrad.recipes.data import (
    CorpusError,
    wsj,
)

PLAIN = {"augmentation": None}


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# WSJ.
def test_wsj_is_read(tmp_path):
    tree = trees.wsj(tmp_path)
    prepared = wsj.prepare(tree)
    assert prepared.counts == {"train_si284": 3, "dev_93": 1, "eval_92": 2}
    splits = wsj.load(tree, **PLAIN)
    assert splits.train.ids == ["46ac0201", "01ic0201", "01ic0202"]
    assert splits.train.texts == [
        "mr. smith said comma double-quote no",
        "the sale of the hotels is part of holiday's strategy",
        "the hotel operator's embassy suites hyphen plan",
    ]
    assert splits.validation.texts == ["saatchi saatchi fell two point five percent"]
    assert splits.test.texts == ["drexel remains confident", "'it works' he says"]
    for index, seconds in enumerate((0.4, 0.5, 0.6)):
        assert splits.train[index].length == splits.train.lengths[index] == 1 + seconds * 100


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("HELLO World", "hello world"),
        ("A [BREATH/] B [/DOOR_SLAM] [<CROSS_TALK] C", "a b c"),
        ("six .POINT two -DASH --DASH %PERCENT", "six point two dash dash percent"),
        ("(LEFT-PAREN a )RIGHT-PAREN {LEFT-BRACE", "left-paren a right-paren left-brace"),
        ("'SINGLE-QUOTE yes 'CLOSE-SINGLE-QUOTE", "single-quote yes close-single-quote"),
        ('"QUOTE I "UNQUOTE ...ELLIPSIS', "quote i unquote ellipsis"),
        ("'em the dogs' it's", "'em the dogs' it's"),
        ("<DELETED> *EMPH* ~ wor- . TRUNC~ \\backslash", "deleted emph wor- trunc backslash"),
        ("U. S. Mr. twenty-five", "u. s. mr. twenty-five"),
        ("`QUOTED'", "'quoted'"),
        ("a: b; c? d!", "a b c d"),
        ("", ""),
    ],
)
def test_wsj_transcripts_are_cleaned(text, cleaned):
    assert wsj.clean(text) == cleaned


def test_wsj_compressed_recordings_are_explained(tmp_path):
    tree = trees.wsj(tmp_path, shorten=True)
    with pytest.raises(CorpusError) as caught:
        wsj.prepare(tree)
    assert "6 recordings compressed with shorten, which need sph2pipe" in str(caught.value)
    assert "csr_1/11-1.1/wsj0/si_tr_s/01i/01ic0201.wv1" in str(caught.value)


def test_wsj_converted_recordings_are_found(tmp_path):
    tree = trees.wsj(tmp_path / "wsj", shorten=True)
    for number, name in enumerate(trees.WSJ_AUDIO):
        path = (tmp_path / "converted" / name).with_suffix(".flac" if number % 2 else ".wav")
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, trees.tone(number, 0.5), trees.RATE)
    prepared = wsj.prepare(tree, tmp_path / "out", audio_path=tmp_path / "converted")
    assert sum(prepared.counts.values()) == 6
    assert wsj.load(tmp_path / "out").test[0].length == 51


def install_sph2pipe(folder, monkeypatch, status=0):
    """A program named sph2pipe that writes silence."""
    soundfile.write(folder / "silence.wav", np.zeros(1600), trees.RATE)
    program = folder / "bin/sph2pipe"
    trees.write(program, f'#!/bin/sh\ncp "{folder}/silence.wav" "$5"\nexit {status}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")


def test_wsj_recordings_are_converted(tmp_path, monkeypatch):
    tree = trees.wsj(tmp_path / "wsj", shorten=True)
    install_sph2pipe(tmp_path, monkeypatch)
    prepared = wsj.prepare(tree, convert=True)
    assert sum(prepared.counts.values()) == 6
    row = rows(prepared.folder / "dev_93.jsonl")[0]
    assert row["audio"] == "audio/csr_2_comp/13-16.1/wsj1/si_dt_20/4k0/4k0c0301.wav"
    assert row["duration"] == 0.1
    # Converted recordings are used again.
    monkeypatch.setenv("PATH", "/nowhere")
    assert wsj.prepare(tree).counts == prepared.counts


def test_wsj_conversions_that_fail_are_named(tmp_path, monkeypatch):
    tree = trees.wsj(tmp_path / "wsj", shorten=True)
    install_sph2pipe(tmp_path, monkeypatch, status=1)
    with pytest.raises(CorpusError, match="6 recordings that sph2pipe cannot convert"):
        wsj.prepare(tree, convert=True)
    assert not [p for p in (tree / "arcgrad").rglob("*") if p.is_file()]
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ValueError, match="needs the program sph2pipe, but it is not on the path"):
        wsj.prepare(tree, convert=True)


def test_wsj_problems_are_counted_and_named(tmp_path):
    tree = trees.wsj(tmp_path)
    audio = [tree / name for name in trees.WSJ_AUDIO]
    audio[1].unlink()
    audio[2].write_bytes(b"NIST_1A\n   1024\n" + b" " * 1024)
    soundfile.write(audio[4], np.zeros(50), 8000, format="NIST", subtype="PCM_16")
    dot = tree / "csr_1/11-14.1/wsj0/si_et_20/440/440c0400.dot"
    dot.write_text("Drexel remains confident (440c0401)\n(440c0402)\n")
    (tree / "csr_2_comp/13-34.1/wsj1/trans/wsj1/si_dt_20/4k0/4k0c0300.dot").unlink()
    with pytest.raises(CorpusError) as caught:
        wsj.prepare(tree)
    assert caught.value.problems == {
        "missing recordings": [trees.WSJ_AUDIO[1]],
        "unreadable recordings": [trees.WSJ_AUDIO[2]],
        "recordings without transcript": ["4k0c0301"],
        "recordings that are not 16000 Hz mono": [
            f"{trees.WSJ_AUDIO[4]}: 50 samples at 8000 Hz in 1 channels"
        ],
    }


def test_wsj_transcripts_of_noise_only_are_left_out(tmp_path):
    tree = trees.wsj(tmp_path)
    dot = tree / "csr_1/11-14.1/wsj0/si_et_20/440/440c0400.dot"
    dot.write_text("Drexel remains confident (440c0401)\n[cough] . (440c0402)\n")
    prepared = wsj.prepare(tree)
    assert prepared.counts["eval_92"] == 1
    assert prepared.left_out == {"recordings of nothing but noise": ["440c0402"]}


def test_wsj_malformed_transcripts_are_named(tmp_path):
    tree = trees.wsj(tmp_path)
    with open(tree / "csr_1/11-14.1/wsj0/si_et_20/440/440c0400.dot", "a") as file:
        file.write("no name here\n")
    with pytest.raises(CorpusError, match=r"1 malformed .* \(440c0400\.dot line 3\)"):
        wsj.prepare(tree)
    prepared = wsj.prepare(tree, allow_missing=True)
    assert prepared.left_out == {"malformed rows of transcripts": ["440c0400.dot line 3"]}


def test_wsj_index_files_must_be_there_and_well_formed(tmp_path):
    with pytest.raises(CorpusError, match=r"4 missing index files \(csr_2_comp/13-34\.1/wsj1/doc"):
        wsj.prepare(tmp_path)
    tree = trees.wsj(tmp_path)
    with open(tree / "csr_2_comp/13-34.1/wsj1/doc/indices/h1_p0.ndx", "a") as file:
        file.write("12_1_1:wsj0/x\nnothing\n")
    with pytest.raises(CorpusError, match=r"2 malformed rows of h1_p0\.ndx \(line 3, line 4\)"):
        wsj.prepare(tree)
