"""Files of corpora and inputs that are damaged: one error that names them, and nothing else."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile
import trees
from PIL import Image

from arcgrad.recipes.data import CorpusError, iam, librispeech, read_audio, read_image, wsj


@pytest.fixture
def lines(tmp_path):
    folder = trees.iam(tmp_path / "iam")
    iam.prepare(folder)
    return folder / "arcgrad/lines-train.jsonl"


@pytest.fixture
def utterances(tmp_path):
    folder = trees.librispeech(tmp_path / "libri")
    librispeech.prepare(folder)
    return folder / "arcgrad/dev-clean.jsonl"


@pytest.mark.parametrize(
    "change",
    [
        *({"width": 0}, {"height": 0}, {"height": -3}, {"width": 10**9}, {"width": 2**70}),
        *({"width": "5"}, {"text": "a▁b"}, {"text": None}, {"id": ["a"]}, {"more": 1}),
    ],
)
def test_rows_of_images_are_checked(lines, change):
    rows = lines.read_text().splitlines()
    rows[2] = json.dumps({**json.loads(rows[2]), **change})
    lines.write_text("\n".join(rows) + "\n")
    with pytest.raises(
        ValueError, match=rf"^iam.load: .* line 3 of '{lines}' .*{next(iter(change))}"
    ):
        iam.load(lines.parent)


@pytest.mark.parametrize("duration", ["0", "-1", "1e9", "1e999", "NaN", "Infinity", '"1"', "[]"])
def test_rows_of_recordings_are_checked(utterances, duration):
    row = json.loads(utterances.read_text().splitlines()[0])
    del row["duration"]
    utterances.write_text(json.dumps(row)[:-1] + f', "duration": {duration}}}\n')
    with pytest.raises(
        ValueError, match=rf"^librispeech.load: .* line 1 of '{utterances}' .*durati"
    ):
        librispeech.load(utterances.parent)


@pytest.mark.parametrize("content", [b"{\xff}", b"[" * 100_000, b"\0", b'{"id": "\\ud800"}'])
def test_lines_that_are_no_text_or_no_json_are_named(lines, content):
    first = lines.read_bytes().splitlines(keepends=True)[0]
    lines.write_bytes(first + content + b"\n")
    with pytest.raises(ValueError, match=rf"^iam.load: .*({lines}.* line 2|line 2 of '{lines})"):
        iam.load(lines.parent)


@pytest.mark.parametrize(
    "name",
    ["../../x-y", "a01/000u-00", "a01-000u", "", "a01-000u-\0", "a01-000u-" + "0" * 500],
)
def test_names_of_lines_cannot_leave_the_folder(tmp_path, name):
    folder = trees.iam(tmp_path / "iam")
    path = folder / "lines.txt"
    path.write_text(path.read_text() + f"{name} ok 154 19 10 20 30 40 text\n")
    with pytest.raises(CorpusError, match=r"1 malformed rows of lines.txt \(line 15\)"):
        iam.prepare(folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('x="', 'x="a'),
        ('x="', 'x="99999999999'),
        ('id="a01-003-00"', 'id="../../a-b-c"'),
        ("UTF-8", "none"),
        ("UTF-8", "utf-16"),
        ("<form", "<form a='\x01'"),
    ],
)
def test_forms_that_are_damaged_are_named(tmp_path, old, new):
    folder = tmp_path / "iam"
    trees.iam_sets(folder)
    trees.iam_xml(folder)
    trees.iam_line_images(folder)
    path = folder / "xml/a01-003.xml"
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(CorpusError, match=r"1 unreadable files \(xml/a01-003.xml\)"):
        iam.prepare(folder)


@pytest.mark.parametrize(
    ("corpus", "tree", "file"),
    [
        (iam, trees.iam, "lines.txt"),
        (iam, trees.iam, "trainset.txt"),
        (librispeech, trees.librispeech, "dev-clean/84/121123/84-121123.trans.txt"),
        (wsj, trees.wsj, f"{wsj.INDICES_2}/si_tr_s.ndx"),
    ],
)
def test_files_that_are_not_text_are_problems(tmp_path, corpus, tree, file):
    path = tree(tmp_path) / file
    path.write_bytes(path.read_bytes() + b"\xff\xfe")
    with pytest.raises(CorpusError, match=rf"1 unreadable files \({Path(file).name}\)"):
        corpus.prepare(tmp_path)


def test_texts_that_a_manifest_cannot_hold_are_problems(tmp_path):
    path = trees.iam(tmp_path / "iam") / "lines.txt"
    path.write_text(path.read_text().replace("to|turn|down", "to|▁turn|down"))
    with pytest.raises(CorpusError, match=r"1 examples with an invalid text \(b02-017-00\)"):
        iam.prepare(path.parent)
    path = trees.librispeech(tmp_path / "libri") / "dev-clean/84/121123/84-121123.trans.txt"
    path.write_text(path.read_text().replace("YOU", "▁YOU"))
    with pytest.raises(CorpusError, match=r"1 examples with an invalid text \(84-121123-0000\)"):
        librispeech.prepare(tmp_path / "libri")


@pytest.mark.parametrize("name", ["../x.wv1", "a/../../x", "9" * 300, "a" * 300, "/" * 9])
def test_names_of_recordings_cannot_leave_the_folder(tmp_path, name):
    path = trees.wsj(tmp_path) / f"{wsj.INDICES_2}/si_tr_s.ndx"
    path.write_text(path.read_text() + f"13_1_1:{name}\n")
    with pytest.raises(CorpusError, match=r"1 malformed rows of si_tr_s.ndx \(line 3\)"):
        wsj.prepare(tmp_path)


def test_memory_does_not_follow_the_header_of_a_recording(tmp_path):
    path = tmp_path / "a.flac"
    soundfile.write(path, np.sin(np.arange(4000) / 9) / 3, 8000)
    content = bytearray(path.read_bytes())
    # The number of samples is the 36 bits before the checksum of the stream.
    content[21] |= 0x0F
    content[22:26] = b"\xff" * 4
    path.write_bytes(content)
    assert soundfile.info(path).frames == 2**36 - 1
    tracemalloc.start()
    try:
        assert len(read_audio(path, 8000)) == 4000
    except ValueError as error:
        message = str(error)
        assert message.startswith(f"read_audio: '{path}' must be a recording")
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 26


def test_long_recordings_are_read_in_blocks(tmp_path):
    path = tmp_path / "a.wav"
    samples = np.random.default_rng(0).uniform(-1, 1, 2_500_000).astype(np.float32)
    soundfile.write(path, samples, 8000, subtype="FLOAT")
    assert np.array_equal(read_audio(path, 8000), samples)
    soundfile.write(path, samples[:0], 8000, subtype="FLOAT")
    assert read_audio(path, 8000).shape == (0,)


def test_images_have_a_largest_size(tmp_path):
    path = tmp_path / "a.png"
    Image.new("1", (10_000, 5_001)).save(path)
    with pytest.raises(ValueError, match=rf"^read_image: '{path}' .* it has 10000 x 5001 pixels"):
        read_image(path)


@pytest.mark.parametrize("name", ["image.png", "image.tiff", "image.gif"])
def test_every_error_of_a_damaged_image_names_it(tmp_path, name):
    path = tmp_path / name
    Image.new("L", (9, 7), 128).save(path)
    whole = path.read_bytes()
    for i in range(len(whole)):
        for value in (0, 255):
            path.write_bytes(whole[:i] + bytes([value]) + whole[i + 1 :])
            try:
                read_image(path)
            except ValueError as error:
                assert str(path) in str(error)  # noqa: PT017
