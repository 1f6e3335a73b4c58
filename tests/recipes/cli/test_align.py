"""``arcgrad align``: the positions of texts, in every format."""

import json
import re

import pytest
import torch
from command_line import run, tiny, tiny_run

from arcgrad.recipes.data import Input, Letters, WordPieces, dataset_input, load_data
from arcgrad.recipes.inference import (
    Alignment,
    Segment,
    align,
    log_probs,
    to_ctm,
    to_json,
    to_textgrid,
    to_tsv,
    token_names,
)
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import load_run

LETTERS = Letters(("▁", "a", "b"))
SAID = Alignment(
    "in a/my said.wav",
    'a "b"',
    "seconds",
    1.5,
    12,
    (Segment("a", 0.0, 0.25, 0, 2, -0.5), Segment('"b"', 0.5, 1.25, 4, 10, -1.0)),
)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A run on lines, an image of its first test line, and its text."""
    folder = tiny_run(tmp_path_factory.mktemp("lines") / "run")
    data = load_data(load_run(folder)[0]).test
    file = folder.parent / "line.png"
    data.image(0).save(file)
    return folder, file, data.texts[0]


@pytest.fixture(scope="module")
def strings(tmp_path_factory):
    """A run on strings of digits."""
    settings = ["data.corpus=digits", "model.preset=small", "model.subsampling=4", "data.test=2"]
    return tiny_run(tmp_path_factory.mktemp("strings") / "run", *settings)


def one_hot(recognizer, names):
    """Emissions in which one label of each frame is likely."""
    labels = token_names(recognizer)
    frames = torch.tensor([labels.index(name) for name in names])
    return torch.eye(len(labels))[frames].mul(9).log_softmax(-1)


def plain(tokenizer=LETTERS, *settings):
    return Recognizer(
        tiny("loss.blank=optional", "loss.allow_repeats=false", *settings), tokenizer, 16
    )


def wide(num_frames):
    """An image of `num_frames` frames of the plain network, scaled to half its size."""
    return Input(torch.zeros(16, 2 * num_frames), "pixels", 4.0 * num_frames, 1.0, 2.0)


# Alignments.
def test_tokens_lie_where_their_frames_are():
    made = plain()
    names = ["blank", "a", "a", "▁", "blank", "b"]
    found = align(made, "x", wide(6), "a b", emissions=one_hot(made, names))
    assert [(s.label, s.first_frame, s.end_frame) for s in found.segments] == [
        ("a", 1, 3),
        ("▁", 3, 4),
        ("b", 5, 6),
    ]
    assert [(s.start, s.end) for s in found.segments] == [(4.0, 12.0), (12.0, 16.0), (20.0, 24.0)]
    assert all(-0.1 < s.score < 0 for s in found.segments)
    assert (found.unit, found.extent, found.num_frames) == ("pixels", 24.0, 6)


def test_words_lie_between_boundaries():
    made = plain()
    names = ["a", "blank", "b", "▁", "blank", "b", "b"]
    emissions = one_hot(made, names)
    emissions[5] *= 2  # less likely: the mean is over frames, not over tokens
    found = align(made, "x", wide(7), "ab b", unit="word", emissions=emissions)
    assert [(s.label, s.first_frame, s.end_frame) for s in found.segments] == [
        ("ab", 0, 3),
        ("b", 5, 7),
    ]
    b = made.first_label + LETTERS.tokens.index("b")
    assert found.segments[1].score == pytest.approx(emissions[5:7, b].mean().item())


def test_words_of_pieces_begin_with_their_boundary():
    pieces = WordPieces.train(["the cat sat on the mat", "the rat sat"], size=14)
    made = plain(pieces)
    names = [pieces.tokens[label] for label in pieces.encode("the rat")]
    frames = [name for each in names for name in (each, "blank")]
    emissions = one_hot(made, frames)
    found = align(made, "x", wide(len(frames)), "the rat", unit="word", emissions=emissions)
    assert [s.label for s in found.segments] == ["the", "rat"]
    assert found.segments[0].end_frame <= found.segments[1].first_frame


def test_times_are_measured_at_the_middle_of_frames(strings):
    experiment, made = load_run(strings)
    data = load_data(experiment).test
    source = dataset_input(data, 0)
    found = align(made, "x", source, data.texts[0])
    spans = made.align(log_probs(made, source.values), found.num_frames, data.texts[0])
    assert [s.first_frame for s in found.segments] == [span.start for span in spans]
    # Output t of this network depends on the features around frame 4 t, at about 40 t ms.
    for part in found.segments:
        assert part.start == pytest.approx(max(0.0, 0.04 * (part.first_frame - 0.5)))
        assert part.end == pytest.approx(min(source.extent, 0.04 * (part.end_frame - 0.5)))
    assert found.segments[-1].end <= source.extent == len(data.samples(0)) / 8000


def test_an_empty_text_has_no_segments():
    made = plain()
    assert align(made, "x", wide(3), "", emissions=one_hot(made, ["a"] * 3)).segments == ()


@pytest.mark.parametrize(
    ("text", "unit", "message"),
    [
        ("aaa", "token", "a text must fit into the frames, but 'aaa' has 3 tokens and 'x' gives 4"),
        ("ax", "token", "the tokens must spell the text, but 'ax' has 'x'"),
        ("a", "letter", "the unit must be 'token' or 'word', but it is 'letter'"),
    ],
)
def test_texts_that_cannot_be_aligned_are_errors(text, unit, message):
    made = plain()
    with pytest.raises(ValueError, match=message):
        align(made, "x", wide(4), text, unit=unit, emissions=one_hot(made, ["a"] * 4))


# Formats.
def test_tables_have_a_row_for_each_segment():
    rows = [row.split("\t") for row in to_tsv([SAID, SAID]).splitlines()]
    assert rows[0] == ["name", "label", "start", "end", "first_frame", "end_frame", "score"]
    assert rows[1] == [SAID.name, "a", "0.0000", "0.2500", "0", "2", "-0.5000"]
    assert len(rows) == 5


def test_json_has_all_fields():
    content = json.loads(to_json([SAID]))
    parts = tuple(Segment(**part) for part in content.pop("segments"))
    assert Alignment(**content, segments=parts) == SAID


def test_ctm_has_names_without_spaces_and_durations():
    assert to_ctm([SAID]).splitlines() == [
        "my_said 1 0.0000 0.2500 a 0.6065",
        'my_said 1 0.5000 0.7500 "b" 0.3679',
    ]


def intervals(grid):
    """The boundaries and texts of a TextGrid."""
    pattern = r'intervals \[\d+\]:\s+xmin = (\S+)\s+xmax = (\S+)\s+text = "((?:[^"]|"")*)"'
    return [
        (float(start), float(end), text.replace('""', '"'))
        for start, end, text in re.findall(pattern, grid)
    ]


def test_textgrids_cover_the_recording_without_gaps():
    assert intervals(to_textgrid(SAID)) == [
        (0.0, 0.25, "a"),
        (0.25, 0.5, ""),
        (0.5, 1.25, '"b"'),
        (1.25, 1.5, ""),
    ]
    silence = Alignment("x", "", "seconds", 1.5, 12, ())
    assert intervals(to_textgrid(silence)) == [(0.0, 1.5, "")]
    assert 'name = "tokens"' in to_textgrid(silence, "tokens")
    assert "intervals: size = 4" in to_textgrid(SAID)


# The command.
def test_a_file_with_its_text(lines, capsys, monkeypatch):
    folder, file, text = lines
    code, out, err = run(capsys, monkeypatch, "align", folder, file, "--text", text)
    assert (code, err) == (0, "")
    rows = [row.split("\t") for row in out.splitlines()]
    assert "".join(row[1] for row in rows[1:]) == text.replace(" ", "▁")
    assert {row[0] for row in rows[1:]} == {str(file)}
    frames = [int(number) for row in rows[1:] for number in row[4:6]]
    assert frames == sorted(frames)


def test_the_data_of_a_run_give_the_same_alignments_as_their_files(lines, capsys, monkeypatch):
    folder, file, text = lines
    options = ["--format", "json", "--unit", "word"]
    one = json.loads(run(capsys, monkeypatch, "align", folder, file, "--text", text, *options)[1])
    of_run = ["--split", "test", "--limit", 2]
    both = run(capsys, monkeypatch, "align", folder, *of_run, *options)[1].splitlines()
    assert len(both) == 2
    first = json.loads(both[0])
    assert first.pop("name") == "test-line-0"
    assert one.pop("name") == str(file)
    assert first == one
    assert [part["label"] for part in one["segments"]] == text.split()


def test_a_manifest_finds_files_from_its_folder(lines, capsys, monkeypatch):
    folder, file, text = lines
    manifest = file.parent / "said.tsv"
    manifest.write_text(f"line.png\t{text}\n\nnowhere.png\ta\nline.png\tä\n")
    out = file.parent / "out.tsv"
    code, printed, err = run(
        *(capsys, monkeypatch, "align", folder, "--manifest", manifest, "--out", out)
    )
    assert (code, printed) == (2, "")
    messages = err.splitlines()
    assert "nowhere.png' must exist, but it is missing" in messages[0]
    assert "the tokens must spell the text, but 'ä' has 'ä'" in messages[1]
    assert messages[2:] == ["arcgrad: 2 of 3 failed"]
    assert len(out.read_text().splitlines()) == 1 + len(text)


def test_textgrids_and_pictures_are_named_after_their_files(strings, tmp_path, capsys, monkeypatch):
    grids, pictures = tmp_path / "grids", tmp_path / "pictures"
    options = ["--format", "textgrid", "--unit", "word", "--out", grids, "--pictures", pictures]
    code, out, _ = run(capsys, monkeypatch, "align", strings, "--split", "test", *options)
    assert (code, out) == (0, "")
    names = ["test-string-0", "test-string-1"]
    assert sorted(path.name for path in grids.iterdir()) == [f"{n}.TextGrid" for n in names]
    data = load_data(load_run(strings)[0]).test
    for name, text in zip(names, data.texts, strict=True):
        parts = intervals((grids / f"{name}.TextGrid").read_text())
        assert " ".join(label for _, _, label in parts if label) == text
        assert [end for _, end, _ in parts[:-1]] == [start for start, _, _ in parts[1:]]
        assert (pictures / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_one_textgrid_is_printed_or_has_a_name(lines, tmp_path, capsys, monkeypatch):
    folder, file, text = lines
    command = ["align", folder, file, "--text", text, "--format", "textgrid"]
    _, printed, _ = run(capsys, monkeypatch, *command)
    assert printed.startswith('File type = "ooTextFile"')
    run(capsys, monkeypatch, *command, "--out", tmp_path / "its.TextGrid")
    assert (tmp_path / "its.TextGrid").read_text() == printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "there must be a file with --text, or --manifest, or --split"),
        (["line.png"], "there must be a file with --text, or --manifest, or --split"),
        (["--text", "a"], "there must be a file with --text, or --manifest, or --split"),
        (["line.png", "--text", "a", "--split", "test"], "there must be a file with --text"),
        (["--split", "dev"], "must be 'train', 'validation' or 'test', but it is 'dev'"),
        (
            ["--split", "test", "--format", "txt"],
            "one of tsv, json, ctm, srt, vtt, textgrid, but it is 'txt'",
        ),
        (["--split", "test", "--format", "textgrid"], "several TextGrids must have a folder"),
        (
            ["--split", "test", "--format", "textgrid", "--out", "x.TextGrid"],
            "but for 4 of them --out is 'x.TextGrid'",
        ),
        (["--manifest", "empty.tsv"], "a manifest must have a line, but 'empty.tsv' has none"),
        (["--split", "test", "--unit", "letter"], "the unit must be 'token' or 'word'"),
        (["--manifest", "bad.tsv"], "line 2 of 'bad.tsv' is 'no text'"),
        (
            ["--manifest", "same.tsv", "--pictures", "p"],
            "inputs must have different names, which name TextGrids and pictures, but 2 are",
        ),
    ],
)
def test_invalid_requests_are_errors(arguments, message, lines, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.tsv").write_text("a.png\ta\nno text\n")
    (tmp_path / "empty.tsv").write_text("\n")
    (tmp_path / "same.tsv").write_text("a/line.png\ta\nb/line.png\ta\n")
    code, out, err = run(capsys, monkeypatch, "align", lines[0], *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "p").exists()
