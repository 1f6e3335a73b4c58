"""Parts, limits, checksums and damaged files of prepared corpora."""

import json
import shutil

import pytest
import trees

from arcgrad.recipes.data import CorpusError, iam, librispeech, load_data, load_split, wsj
from arcgrad.recipes.experiments import find, override
from arcgrad.recipes.inference import evaluate_run
from arcgrad.recipes.run import load_environment
from arcgrad.recipes.training import train

TRAIN, DEV, TEST = "train-clean-100", "dev-clean", "test-clean"


@pytest.fixture
def libri(tmp_path):
    tree = trees.librispeech(tmp_path / "libri")
    librispeech.prepare(tree)
    return tree


def experiment(folder, *settings):
    return override(
        find("demo"),
        [
            *("data.corpus=librispeech", f"data.path={folder}", "model.preset=small"),
            *("optim.epochs=1", "optim.batch_size=2", "loss.min_frames=1", *settings),
        ],
    )


def test_librispeech_trains_without_its_test_part(libri, tmp_path):
    (libri / f"arcgrad/{TEST}.jsonl").unlink()
    assert len(librispeech.load(libri).test) == 0
    result = train(experiment(libri), tmp_path / "run", quiet=True)
    assert result.finished
    with pytest.raises(ValueError, match=r"the test data must have been prepared, but there is no"):
        evaluate_run(tmp_path / "run")
    assert len(evaluate_run(tmp_path / "run", "validation").examples) == 1


def test_parts_are_settings(libri):
    train_size, dev_size = (
        len(getattr(librispeech.load(libri), s)) for s in ("train", "validation")
    )
    data = load_data(
        experiment(libri, f"data.train_parts={TRAIN}, {DEV}", f"data.test_parts={DEV}")
    )
    assert len(data.train) == train_size + dev_size
    assert data.test.ids == data.validation.ids
    with pytest.raises(ValueError, match=r"must have the manifests .*train-other-500\.jsonl"):
        load_data(experiment(libri, "data.train_parts=train-other-500"))
    with pytest.raises(ValueError, match=r"have parts to choose, but data\.train_parts is set and"):
        load_data(override(find("demo"), ["data.train_parts=x"]))


@pytest.mark.parametrize("corpus", ["iam", "librispeech", "wsj"])
def test_every_corpus_takes_limits_at_equal_distances(tmp_path, corpus):
    module = {"iam": iam, "librispeech": librispeech, "wsj": wsj}[corpus]
    tree = getattr(trees, corpus)(tmp_path / corpus)
    module.prepare(tree)
    settings = [f"data.corpus={corpus}", f"data.path={tree}"]
    whole = load_data(override(find("demo"), settings))
    part = load_data(override(find("demo"), [*settings, "data.train=2", "data.test=1"]))
    count = len(whole.train)
    assert part.train.ids == [whole.train.ids[0], whole.train.ids[count // 2]]
    assert (len(part.validation), len(part.test)) == (len(whole.validation), 1)
    with pytest.raises(ValueError, match=r"load: the limit must be at least 1, but it is 0"):
        load_data(override(find("demo"), [*settings, "data.train=0"]))


def test_manifests_have_sizes_and_an_index_with_checksums(libri):
    rows = [json.loads(line) for line in (libri / f"arcgrad/{DEV}.jsonl").read_text().splitlines()]
    for row in rows:
        assert row["size"] == (libri / "arcgrad" / row["audio"]).stat().st_size
    index = json.loads((libri / "arcgrad/manifests.json").read_text())
    assert index["manifests"][DEV]["rows"] == len(rows)
    librispeech.prepare(libri, parts=[DEV])
    again = json.loads((libri / "arcgrad/manifests.json").read_text())
    assert again == index


def test_a_manifest_that_lost_a_row_is_an_error(libri):
    path = libri / f"arcgrad/{TRAIN}.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"with \d rows, but '.*' has changed and has \d"):
        librispeech.load(libri)


@pytest.mark.parametrize("content", ["{", "{}", '{"manifests": [1]}'])
def test_a_damaged_index_is_an_error(libri, content):
    (libri / "arcgrad/manifests.json").write_text(content)
    with pytest.raises(ValueError, match=r"^librispeech\.load: '.*manifests\.json' must"):
        librispeech.load(libri)


def test_a_damaged_file_is_named_before_training_or_skipped_and_counted(libri, tmp_path, capsys):
    files = sorted((libri / TRAIN).rglob("*.flac"))
    files[0].write_bytes(files[0].read_bytes()[:-5])
    files[1].unlink()
    with pytest.raises(CorpusError, match=r"of another size than .*, 1 missing files") as error:
        train(experiment(libri), tmp_path / "run", quiet=True)
    assert all(file.name in str(error.value) for file in files[:2])
    assert not (tmp_path / "run").exists()
    skip = experiment(libri, "data.damaged=skip")
    assert len(load_data(skip).train) == len(files) - 2
    assert len(load_split(skip, "validation")) == 1
    train(skip, tmp_path / "run")
    assert "left out 2 examples with missing or damaged files: " in capsys.readouterr().out
    assert len(load_environment(tmp_path / "run")["left_out"]) == 2


def test_a_split_whose_files_are_all_missing_cannot_be_skipped(libri):
    shutil.rmtree(libri / DEV)
    with pytest.raises(CorpusError, match="no file is left"):
        librispeech.load(libri, damaged="skip")


def test_a_check_decodes_every_recording(libri):
    file = sorted((libri / TRAIN).rglob("*.flac"))[1]
    content = bytearray(file.read_bytes())
    # The header stays: the size and all numbers of the file are the same.
    content[len(content) // 2 :] = bytes(len(content) - len(content) // 2)
    file.write_bytes(content)
    assert librispeech.prepare(libri).counts
    with pytest.raises(CorpusError, match=rf"1 files that cannot be decoded .*{file.name}"):
        librispeech.prepare(libri, check_only=True)
    shown = []

    def progress(items):
        shown.append(len(items))
        return items

    found = librispeech.prepare(libri, check_only=True, allow_missing=True, progress=progress)
    whole = librispeech.prepare(libri).counts
    assert found.counts == {**whole, TRAIN: whole[TRAIN] - 1}
    assert shown[-1] == sum(whole.values())


def test_a_check_decodes_every_image(tmp_path):
    trees.iam_sets(tmp_path)
    trees.iam_lines(tmp_path)
    trees.iam_line_images(tmp_path)
    assert iam.prepare(tmp_path, check_only=True).counts["lines-train"] == 6
    file = sorted((tmp_path / "lines").rglob("*.png"))[0]
    file.write_bytes(file.read_bytes()[:60])
    assert iam.prepare(tmp_path, tmp_path / "out").counts["lines-train"] == 6
    with pytest.raises(CorpusError, match=rf"files that cannot be decoded .*{file.name}"):
        iam.prepare(tmp_path, check_only=True)
