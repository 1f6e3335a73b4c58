"""IAM and LibriSpeech, on small complete or damaged trees of files with the same layout."""

import json
import shutil

import numpy as np
import pytest
import soundfile
import torch
import trees
from PIL import Image

from arcgrad.recipes.data import (
    CorpusError,
    ImageAugmentation,
    Key,
    LogMel,
    iam,
    librispeech,
)

PLAIN = {"augmentation": None}


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def snapshot(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# IAM.
@pytest.fixture
def iam_tree(tmp_path):
    return trees.iam(tmp_path / "iam")


def test_iam_lines_are_cut_from_forms(iam_tree):
    prepared = iam.prepare(iam_tree)
    assert prepared.counts == {"lines-train": 6, "lines-validation": 2, "lines-test": 4}
    assert prepared.left_out == {}
    assert prepared.folder == iam_tree / "arcgrad"
    splits = iam.load(iam_tree, height=64, **PLAIN)
    assert sorted(splits.train.ids) == sorted(trees.SETS["trainset.txt"])
    assert splits.validation.ids == trees.SETS["validationset1.txt"]
    tests = trees.SETS["validationset2.txt"] + trees.SETS["testset.txt"]
    assert sorted(splits.test.ids) == sorted(tests)
    for index, name in enumerate(splits.train.ids):
        x, y, w, h = trees.line_box(int(name[-2:]))
        page = trees.page(name[:-3])
        assert splits.train.image(index) == page.crop((x, y, x + w, y + h))
        example = splits.train[index]
        assert example.input.shape == (64, splits.train.lengths[index])
        assert example.length == round(w * 64 / h)
        assert splits.train.tokenizer.decode(example.target.tolist()) == example.text


def test_iam_texts_are_cleaned_and_wrongly_segmented_lines_are_used(iam_tree):
    iam.prepare(iam_tree)
    train = iam.load(iam_tree).train
    texts = dict(zip(train.ids, train.texts, strict=True))
    assert texts["a01-000u-00"] == "A MOVE to stop Mr. Gaitskell from"
    assert texts["a01-000u-02"] == 'is to be made at a meeting "'
    assert texts["a01-003-01"] == "support , a large majority"


def test_iam_pixels_are_normalised(iam_tree):
    iam.prepare(iam_tree)
    data = iam.load(iam_tree, height=30, **PLAIN).train
    index = data.ids.index("a01-003-00")
    pixels = np.asarray(data.image(index), np.float32) / 255
    expected = torch.from_numpy((pixels - 0.912) / 0.168)
    assert torch.allclose(data[index].input, expected, atol=1e-5)


def test_iam_letters_are_those_of_all_splits(iam_tree):
    iam.prepare(iam_tree)
    letters = sorted(set("".join(trees.LINES.values())) - set("|#"))
    assert iam.load(iam_tree).train.tokenizer.tokens == ("▁", *letters)


def test_iam_training_images_change_from_epoch_to_epoch(iam_tree):
    iam.prepare(iam_tree)
    splits = iam.load(iam_tree, augmentation=ImageAugmentation(jitter=2), seed=1)
    assert not torch.equal(splits.train[Key(0, 0)].input, splits.train[Key(1, 0)].input)
    assert torch.equal(splits.test[Key(0, 0)].input, splits.test[Key(1, 0)].input)


def test_iam_line_images_equal_crops_of_forms(iam_tree, tmp_path):
    iam.prepare(iam_tree)
    other = tmp_path / "other"
    trees.iam_sets(other)
    trees.iam_lines(other)
    trees.iam_line_images(other)
    iam.prepare(other)
    assert not (other / "arcgrad/lines").exists()
    first, second = iam.load(iam_tree, **PLAIN), iam.load(other, **PLAIN)
    assert first.train.texts == second.train.texts
    assert all(torch.equal(first.train[i].input, second.train[i].input) for i in range(6))


def test_iam_texts_and_boxes_can_come_from_xml(iam_tree, tmp_path):
    iam.prepare(iam_tree)
    other = tmp_path / "other"
    trees.iam_sets(other)
    trees.iam_xml(other)
    trees.iam_forms(other / "formsA-D")
    iam.prepare(other)
    for split in ("train", "validation", "test"):
        manifests = [folder / f"arcgrad/lines-{split}.jsonl" for folder in (iam_tree, other)]
        assert rows(manifests[0]) == rows(manifests[1])
    prepared = iam.prepare(other, unit="words")
    assert prepared.counts["words-test"] == 2 + 3 + 3 + 4


def test_iam_words_that_are_wrongly_segmented_are_left_out(iam_tree):
    prepared = iam.prepare(iam_tree, unit="words")
    counts = prepared.counts
    words = {name: len(trees.LINES[name].split("|")) for name in trees.LINES}
    train = sum(words[name] for name in trees.SETS["trainset.txt"])
    # One is marked as wrong, and one consists of a deleted sign.
    assert counts["words-train"] == train - 2
    assert prepared.left_out == {"words that are crossed out": ["a01-000u-02-07"]}
    data = iam.load(iam_tree, unit="words").train
    assert "a01-003-01-01" not in data.ids
    assert data.texts[data.ids.index("a01-000u-00-01")] == "MOVE"


def test_iam_manifests_can_be_in_another_folder_and_have_relative_paths(iam_tree, tmp_path):
    iam.prepare(iam_tree, tmp_path / "out")
    assert not (iam_tree / "arcgrad").exists()
    assert len(iam.load(tmp_path / "out").train) == 6
    iam.prepare(iam_tree)
    shutil.move(iam_tree, tmp_path / "moved")
    assert iam.load(tmp_path / "moved").train[0].length > 0


def test_iam_can_be_limited(iam_tree):
    iam.prepare(iam_tree)
    assert len(iam.load(iam_tree, limit=3).train) == 3
    with pytest.raises(ValueError, match=r"iam\.load: the limit must be at least 1, but it is 0"):
        iam.load(iam_tree, limit=0)


def test_a_missing_image_is_named(iam_tree):
    iam.prepare(iam_tree)
    data = iam.load(iam_tree).validation
    (iam_tree / "arcgrad/lines/b02-017-00.png").unlink()
    with pytest.raises(ValueError, match=r"b02-017-00\.png' must exist, but it is missing"):
        data[0]


def break_iam(tree):
    (tree / "a01-003.png").unlink()
    (tree / "b02-017.png").write_bytes(b"no image")
    lines = (tree / "lines.txt").read_text().splitlines()
    lines = [line for line in lines if not line.startswith("c03-021b-02")]
    x, y, w, h = trees.line_box(1)
    outside = f"c03-021b-01 ok 154 19 {x} {y}"
    lines = [line.replace(f"{outside} {w} {h}", f"{outside} -1 -1") for line in lines]
    (tree / "lines.txt").write_text("\n".join(lines))


def test_iam_problems_are_counted_and_named(iam_tree):
    break_iam(iam_tree)
    with pytest.raises(CorpusError) as caught:
        iam.prepare(iam_tree)
    assert caught.value.problems == {
        "lines of the splits without text": ["c03-021b-02"],
        "missing images": [f"a01-003.png or lines/a01/a01-003/a01-003-0{i}.png" for i in range(3)],
        "unreadable images": ["b02-017.png"],
        "boxes outside of their forms": ["c03-021b-01"],
    }
    message = str(caught.value)
    assert message.startswith("iam.prepare: the corpus must be complete, but there are 1 lines")
    assert "3 missing images (a01-003.png or" in message
    assert message.endswith("pass allow_missing=True (--allow-missing) to leave these out")
    assert not list((iam_tree / "arcgrad").glob("*.jsonl"))


def test_iam_problems_can_be_left_out_unless_a_split_is_empty(iam_tree):
    break_iam(iam_tree)
    with pytest.raises(CorpusError, match=r"1 parts without examples \(lines-validation\)"):
        iam.prepare(iam_tree, allow_missing=True)
    trees.page("b02-017").save(iam_tree / "b02-017.png")
    prepared = iam.prepare(iam_tree, allow_missing=True)
    assert prepared.counts == {"lines-train": 3, "lines-validation": 2, "lines-test": 2}
    assert len(prepared.left_out["missing images"]) == 3


def test_iam_names_missing_files(tmp_path):
    with pytest.raises(CorpusError, match=r"5 missing files \(trainset\.txt, .*lines\.txt or xml/"):
        iam.prepare(tmp_path)
    with pytest.raises(ValueError, match="must be the folder of the corpus, but it is not one"):
        iam.prepare(tmp_path / "none")
    with pytest.raises(ValueError, match="must be 'lines' or 'words', but it is 'pages'"):
        iam.prepare(tmp_path, unit="pages")
    with pytest.raises(ValueError, match=r"manifests lines-train\.jsonl, .* run prepare first"):
        iam.load(tmp_path)


def test_iam_malformed_rows_are_named(iam_tree):
    with open(iam_tree / "lines.txt", "a") as file:
        file.write("a01-000u-07 ok 154 19 x\n")
    (iam_tree / "testset.txt").write_text("a01-000u-00\n")
    with pytest.raises(CorpusError) as caught:
        iam.prepare(iam_tree)
    assert caught.value.problems == {
        "lines in two splits": ["a01-000u-00"],
        "malformed rows of lines.txt": ["line 15"],
    }


def test_iam_needs_every_split(iam_tree):
    (iam_tree / "testset.txt").unlink()
    (iam_tree / "validationset2.txt").unlink()
    with pytest.raises(CorpusError, match=r"1 parts without examples \(lines-test\)"):
        iam.prepare(iam_tree, allow_missing=True)


def test_damaged_xml_is_named(tmp_path):
    trees.iam_sets(tmp_path)
    trees.iam_xml(tmp_path)
    (tmp_path / "xml/a01-003.xml").write_text("<form")
    with pytest.raises(CorpusError, match=r"1 unreadable files \(xml/a01-003\.xml\)"):
        iam.prepare(tmp_path)


def test_a_damaged_image_of_a_line_is_named(tmp_path):
    trees.iam_sets(tmp_path)
    trees.iam_lines(tmp_path)
    trees.iam_line_images(tmp_path)
    (tmp_path / "lines/a01/a01-003/a01-003-00.png").write_bytes(b"")
    with pytest.raises(CorpusError, match=r"1 unreadable images \(lines/a01/a01-003/a01-003-00"):
        iam.prepare(tmp_path)


def test_a_box_is_cut_at_the_edge_of_the_form(iam_tree):
    path = iam_tree / "lines.txt"
    x, y, w, h = trees.line_box(2)
    path.write_text(path.read_text().replace(f"{x} {y} {w} {h}", f"{x} {y} {w + 500} {h}"))
    iam.prepare(iam_tree)
    with Image.open(iam_tree / "arcgrad/lines/a01-003-02.png") as cut:
        assert cut.size == (200 - x, h)


WRONG_TYPE = '{"id": 1, "text": "", "image": "", "width": 1, "height": 1}'


@pytest.mark.parametrize("line", ["nothing", "[]", "{}", WRONG_TYPE])
def test_damaged_manifests_are_named(iam_tree, line):
    iam.prepare(iam_tree)
    with open(iam_tree / "arcgrad/lines-train.jsonl", "a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"with id, text, image, width, height, but line 7 of"):
        iam.load(iam_tree)


def test_an_empty_manifest_is_named(iam_tree):
    iam.prepare(iam_tree)
    (iam_tree / "arcgrad/lines-test.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"must have a row, but .*lines-test\.jsonl' has none"):
        iam.load(iam_tree)


def test_prepare_reports_progress(iam_tree):
    seen = []

    def progress(sequence):
        for item in sequence:
            seen.append(item)
            yield item

    iam.prepare(iam_tree, progress=progress)
    assert seen == sorted(trees.FORMS)


# LibriSpeech.
@pytest.fixture
def libri_tree(tmp_path):
    return trees.librispeech(tmp_path / "LibriSpeech")


def test_librispeech_is_read(libri_tree):
    prepared = librispeech.prepare(libri_tree)
    assert prepared.counts == {"train-clean-100": 3, "dev-clean": 1, "test-clean": 2}
    splits = librispeech.load(libri_tree, **PLAIN)
    assert splits.train.texts == ["northanger abbey", "this little work", "it's he"]
    assert splits.train.ids == ["19-198-0000", "19-198-0001", "26-495-0000"]
    assert "'" in splits.train.tokenizer.tokens
    features = LogMel(16000)
    for index in range(3):
        example = splits.train[index]
        expected = features(trees.tone(index + 1, 0.5 + 0.1 * (index + 1)))
        assert example.input.shape == expected.shape == (80, splits.train.lengths[index])
        assert (example.input - expected).abs().mean() < 0.05
        assert splits.train.tokenizer.decode(example.target.tolist()) == example.text


def test_librispeech_is_found_one_folder_down(libri_tree):
    prepared = librispeech.prepare(libri_tree.parent, parts=["dev-clean"])
    assert prepared.folder == libri_tree.parent / "arcgrad"
    assert prepared.counts == {"dev-clean": 1}
    (row,) = rows(prepared.folder / "dev-clean.jsonl")
    assert row["audio"] == "../LibriSpeech/dev-clean/84/121123/84-121123-0000.flac"
    assert row["duration"] == pytest.approx(0.9)


def test_librispeech_masks_training_examples(libri_tree):
    librispeech.prepare(libri_tree)
    splits = librispeech.load(libri_tree)
    assert not torch.equal(splits.train[Key(0, 0)].input, splits.train[Key(1, 0)].input)
    assert torch.equal(splits.test[Key(0, 0)].input, splits.test[Key(1, 0)].input)


def test_librispeech_problems_are_counted_and_named(libri_tree):
    chapter = libri_tree / "train-clean-100/19/198"
    (chapter / "19-198-0000.flac").rename(chapter / "19-198-0009.flac")
    (chapter / "19-198-0001.flac").write_bytes(b"no recording")
    with open(chapter / "19-198.trans.txt", "a") as file:
        file.write("\n19-198-0002\n")
    (libri_tree / "train-clean-100/26/495/26-495.trans.txt").unlink()
    soundfile.write(libri_tree / "dev-clean/84/121123/84-121123-0000.flac", np.zeros(50), 8000)
    with pytest.raises(CorpusError) as caught:
        librispeech.prepare(libri_tree)
    assert caught.value.problems == {
        "missing recordings": ["19-198-0000.flac"],
        "unreadable recordings": ["19-198-0001.flac"],
        "rows without text": ["19-198.trans.txt line 4"],
        "recordings without transcript": ["19-198-0009.flac"],
        "missing transcripts": ["train-clean-100/26/495/26-495.trans.txt"],
        "recordings that are not 16000 Hz mono": [
            "84-121123-0000.flac: 50 samples at 8000 Hz in 1 channels"
        ],
    }
    prepared = librispeech.prepare(libri_tree, parts=["test-clean"], allow_missing=True)
    assert prepared.counts == {"test-clean": 2}


def test_many_problems_are_named_in_part(libri_tree):
    texts = [f"84-121123-{i:04} SOME TEXT" for i in range(1, 30)]
    trees.write(libri_tree / "dev-clean/84/121123/84-121123.trans.txt", "\n".join(texts))
    with pytest.raises(CorpusError, match=r"29 missing recordings \(([^,]*, ){5}\.\.\.\)"):
        librispeech.prepare(libri_tree)


def test_librispeech_parts_must_be_there(libri_tree, tmp_path):
    with pytest.raises(CorpusError, match=r"1 missing parts \(dev-other\)"):
        librispeech.prepare(libri_tree, parts=["dev-clean", "dev-other"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ValueError, match="must have parts such as 'train-clean-100', but it has none"
    ):
        librispeech.prepare(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"must have the manifests train-clean-100\.jsonl"):
        librispeech.load(libri_tree)


def test_a_missing_recording_is_named(libri_tree):
    librispeech.prepare(libri_tree)
    data = librispeech.load(libri_tree).validation
    (libri_tree / "dev-clean/84/121123/84-121123-0000.flac").unlink()
    with pytest.raises(ValueError, match=r"84-121123-0000\.flac' must exist, but it is missing"):
        data[0]


def test_manifests_are_replaced_in_one_step(libri_tree, monkeypatch):
    librispeech.prepare(libri_tree)
    before = snapshot(libri_tree / "arcgrad")
    (libri_tree / "dev-clean/84/121123/84-121123-0000.flac").unlink()
    with pytest.raises(CorpusError):
        librispeech.prepare(libri_tree)
    assert snapshot(libri_tree / "arcgrad") == before
