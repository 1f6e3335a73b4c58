"""Compact models score like ARPA models, and refuse damaged files."""

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

import arcgrad as ag
from arcgrad.ngram import CompactModel, load_compact


def lines(count, words=12, seed=0):
    rng = np.random.default_rng(seed)
    names = [f"w{i}" for i in range(words)]
    weights = 1 / np.arange(1, words + 1)
    return [
        list(rng.choice(names, rng.integers(0, 7), p=weights / weights.sum())) for _ in range(count)
    ]


@pytest.mark.parametrize("method", ["kneser_ney", "katz", "mle"])
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_scores_are_those_of_the_model(order, method, tmp_path):
    model = ag.ngram.estimate(ag.ngram.count(lines(60), order), method, unknown=True)
    ag.ngram.save_arpa(model, tmp_path / "a.arpa")
    ag.ngram.save_arpa(model, tmp_path / "a.arpa.gz")
    load_compact(tmp_path / "a.arpa").save(str(tmp_path / "a.ngrams"))
    forms = [model.compact(), *(load_compact(tmp_path / name) for name in ("a.arpa", "a.arpa.gz"))]
    forms.append(load_compact(tmp_path / "a.ngrams"))
    for sentence in [*lines(40, words=14, seed=1), ["nothing"], []]:
        for start in (True, False):
            expected = model.score(sentence, start=start)
            for form in forms:
                assert sum(form.scores(sentence, start=start)) == pytest.approx(expected, abs=2e-5)
    for form in forms:
        assert form.order == order
        assert form.sizes == model.sizes
        assert set(form.words()) >= {"<s>", "</s>", "<unk>", "w0"}
        form.verify()


ARPA = """
\\data\\
ngram 1=4
ngram 2=2
ngram 3=1

\\1-grams:
-1.0\t<s>\t-0.3
-0.5\ta\t-0.2
-0.7 b
-99 </s>

\\2-grams:
-0.25\ta b
-0.125\tb a\t-1e-1

\\3-grams:
-0.0625\t<s> b a

\\end\\
"""


def parse(text):
    return CompactModel.parse(text.encode(), "x.arpa")


def test_missing_back_offs_and_prefixes():
    """Without a back-off weight it is 0; `<s> b` is added with the score of its back-off."""
    model = parse(ARPA)
    ten = math.log(10)
    assert model.scores(["b", "a"], end=False) == pytest.approx([-1.0 * ten, -0.0625 * ten])
    assert model.scores(["b", "b"], end=False) == pytest.approx([-1.0 * ten, -0.7 * ten])
    assert model.scores(["a", "b", "a"], start=False, end=False) == pytest.approx(
        [-0.5 * ten, -0.25 * ten, -0.125 * ten]
    )
    assert model.scores(["a"]) == pytest.approx([-0.8 * ten, -math.inf])
    assert model.scores(["c"], end=False) == [-math.inf]


def test_the_model_reads_the_same_file(tmp_path):
    (tmp_path / "x.arpa").write_text(ARPA)
    model = ag.ngram.load_arpa(tmp_path / "x.arpa")
    for sentence in (["a"], ["b", "a"], ["b", "b", "a"], ["a", "b", "a", "b"]):
        expected = model.score(sentence, end=False)
        assert sum(parse(ARPA).scores(sentence, end=False)) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "", "must have a line .data., as ARPA files have, but it has none"),
        ("ngram 2=2", "ngram 2=x", "line 4 .*: there must be ngram 2=<number>, but it is"),
        ("ngram 2=2", "ngram 2=3", "after 3 2-grams there must be a new section, but it is .* 2"),
        ("\\2-grams:", "\\5-grams:", "there must be .2-grams:, but it is .*5-grams:"),
        ("\\end\\", "", "there must be a new section|there must be .end."),
        ("-0.5\ta", "x\ta", "line 9 of .x.arpa.: a score must be a number of at most 0"),
        ("-0.5\ta", "0.5\ta", "a score must be a number of at most 0, but it is .0.5."),
        ("-0.5\ta\t-0.2", "-0.5\ta\tnan", "a back-off weight must be a number, but it is .nan."),
        ("-0.5\ta\t-0.2", "-0.5\tb\t-0.2", "line 10 .*: an n-gram must occur once"),
        ("a b\n", "a c\n", "line 14 .*: a word must be among the 1-grams, but it is .c."),
        ("a b\n", "a b 1 2\n", "there must be a score, 2 words and perhaps a back-off weight"),
        ("a b\n", "a\n", "there must be a score, 2 words and perhaps a back-off weight"),
        (
            "-0.125\tb a",
            "-0.125\ta b",
            "x.arpa.: an n-gram must occur once, but .a b. occurs again",
        ),
    ],
)
def test_refused_arpa(old, new, message):
    assert old in ARPA
    with pytest.raises(ValueError, match=message) as caught:
        parse(ARPA.replace(old, new, 1))
    assert str(caught.value).startswith("load_ngrams: ")
    assert "x.arpa" in str(caught.value)


def test_refused_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("m.ngrams")
    model = ag.ngram.estimate(ag.ngram.count(lines(30), 3)).compact()
    model.save(str(path))
    content = path.read_bytes()
    assert len(content) == model.num_bytes
    rng = np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(content)
        if rng.random() < 0.3:
            damaged = damaged[: rng.integers(len(damaged))]
        else:
            damaged[rng.integers(len(damaged))] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"m\.ngrams"):
            load_compact(path)
    path.write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0")
    with pytest.raises(ValueError, match="binary file of KenLM; use the ARPA file"):
        load_compact(path)
    path.write_bytes(gzip.compress(ARPA.encode())[:-9])
    with pytest.raises(ValueError, match="must be a complete gzip file"):
        load_compact(path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="must have a line"):
        load_compact(path)
    with pytest.raises(OSError, match="no-such-file"):
        load_compact(tmp_path / "no-such-file")
    with pytest.raises(OSError, match="No such file"):
        model.save(str(tmp_path / "no" / "m.ngrams"))
