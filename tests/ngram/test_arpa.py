"""ARPA files: reading, writing, malformed files, and scores of KenLM."""

import gzip
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from arcgrad.ngram import END, START, count, estimate, load_arpa, save_arpa

LOG10 = math.log(10)

HAND = """\
This text comes before the model.

\\data\\
ngram 1=5
ngram 2=4
ngram 3=1

\\1-grams:
-1.2\t<unk>
-99\t<s>\t-0.3
-0.7\t</s>
-0.5\tthe\t-0.25
-0.6\tcat\t-0.125

\\2-grams:
-0.2\t<s> the\t-0.1
-0.4\tthe cat\t-0.05
-0.3\tcat </s>
-0.8\tcat the

\\3-grams:
-0.15\t<s> the cat

\\end\\
"""


def write(folder, text, name="model.arpa"):
    path = folder / name
    path.write_bytes(text.encode())
    return path


@pytest.fixture
def hand(tmp_path):
    return load_arpa(write(tmp_path, HAND))


def test_reads_words_scores_and_back_off_weights(hand):
    assert hand.symbols == ("<unk>", "the", "cat")
    assert (hand.order, hand.sizes, hand.unknown) == (3, (5, 4, 1), 0)
    assert hand.has_start
    assert hand.has_end
    rows = hand.ngrams(1)[:, 0].tolist()
    assert rows == [END, START, 0, 1, 2]
    expected = np.array([-0.7, -math.inf, -1.2, -0.5, -0.6]) * LOG10
    assert hand.log_probs(1) == pytest.approx(expected)
    assert hand.back_offs(1) == pytest.approx(np.array([0, -0.3, 0, -0.25, -0.125]) * LOG10)


@pytest.mark.parametrize(
    ("words", "scores"),
    [
        ("the cat", [-0.2, -0.15, -0.05 - 0.3]),  # (the, cat) backs off for </s>
        ("cat", [-0.3 - 0.6, -0.3]),
        ("the the", [-0.2, -0.1 - 0.25 - 0.5, -0.25 - 0.7]),
        ("cat the", [-0.3 - 0.6, -0.8, -0.25 - 0.7]),
        ("dog cat", [-0.3 - 1.2, -0.6, -0.3]),
        ("", [-0.3 - 0.7]),
    ],
)
def test_scores_by_hand(hand, words, scores):
    assert hand.score(words.split()) == pytest.approx(sum(scores) * LOG10)


def test_gzip_is_detected_by_content(tmp_path, hand):
    path = tmp_path / "model.arpa"
    path.write_bytes(gzip.compress(HAND.encode()))
    assert load_arpa(path).score(["the"]) == hand.score(["the"])
    named = tmp_path / "model.gz"
    save_arpa(hand, named)
    assert named.read_bytes().startswith(b"\x1f\x8b")
    assert load_arpa(named).sizes == hand.sizes
    # The extension .gz alone does not decide how a file is read.
    assert load_arpa(write(tmp_path, HAND, "plain.gz")).sizes == hand.sizes


def test_spaces_and_line_ends_of_other_systems(tmp_path, hand):
    text = HAND.replace("\t", " ").replace("\n", "\r\n")
    model = load_arpa(write(tmp_path, text))
    assert model.symbols == hand.symbols
    assert model.score(["the", "cat"]) == hand.score(["the", "cat"])


def test_words_are_split_at_plain_spaces_only(tmp_path):
    names = ["a\u00a0b", "\u3000", "\u2581x", "\u0085"]
    model = estimate(count([names], 2))
    path = tmp_path / "model.arpa"
    save_arpa(model, path)
    assert set(load_arpa(path).symbols) == set(names)


def test_symbols_determine_the_numbers(tmp_path):
    path = write(tmp_path, HAND)
    model = load_arpa(path, symbols=["mouse", "cat", "the"])
    assert model.symbols == ("mouse", "cat", "the", "<unk>")
    assert model.score([2, 1]) == load_arpa(path).score(["the", "cat"])
    # The model does not know the mouse.
    assert model.score(["mouse"]) == model.score(["<unk>"]) > -math.inf
    rule = r"line 13 of .*: a word must be among the symbols, but 'cat' is"
    with pytest.raises(ValueError, match=rule):
        load_arpa(path, symbols=["the"])


def test_a_file_without_ends(tmp_path):
    text = "\\data\\\nngram 1=2\n\n\\1-grams:\n-0.5\ta\n-0.25\tb\n\n\\end\\\n"
    model = load_arpa(write(tmp_path, text))
    assert not model.has_start
    assert not model.has_end
    assert model.score(["a", "b"]) == pytest.approx(-0.75 * LOG10)
    graph = model.graph()
    assert (graph.num_nodes(), graph.num_arcs(), graph.num_accept()) == (1, 2, 1)


def test_missing_lower_order_ngrams_are_added_without_changing_scores(tmp_path):
    text = """\\data\\
ngram 1=4
ngram 2=1
ngram 3=1

\\1-grams:
-99 <s> -0.5
-0.5 a -0.25
-0.7 b -0.125
-0.9 </s>

\\2-grams:
-0.3 a a -0.1

\\3-grams:
-0.2 a b a

\\end\\
"""
    model = load_arpa(write(tmp_path, text))
    assert model.sizes == (4, 3, 1)
    assert model.ngrams(2).tolist() == [[0, 0], [0, 1], [1, 0]]
    expected = np.array([-0.3, -0.25 - 0.7, -0.125 - 0.5]) * LOG10
    assert model.log_probs(2) == pytest.approx(expected)
    assert model.back_offs(2) == pytest.approx(np.array([-0.1, 0, 0]) * LOG10)
    scores = [-0.5 - 0.5, -0.25 - 0.7, -0.2, -0.25 - 0.9]
    assert model.score("aba") == pytest.approx(sum(scores) * LOG10)


def test_unused_ngrams_are_left_out(tmp_path):
    text = HAND.replace("ngram 2=4", "ngram 2=6")
    text = text.replace("-0.8\tcat the\n", "-0.8\tcat the\n-1\tthe <s>\n-1\t</s> the\n")
    model = load_arpa(write(tmp_path, text))
    assert model.sizes == (5, 4, 1)


@given(
    st.lists(st.text("abc", max_size=5), min_size=1, max_size=6),
    st.integers(1, 4),
    st.sampled_from(["kneser_ney", "katz", "mle"]),
    st.integers(3, 12),
)
def test_round_trips_are_exact_to_the_printed_digits(
    tmp_path_factory, lines, order, method, digits
):
    folder = tmp_path_factory.mktemp("arpa")
    model = estimate(count(lines, order, symbols="cab"), method)
    save_arpa(model, folder / "first", digits=digits)
    again = load_arpa(folder / "first", symbols=model.symbols)
    assert again.sizes == model.sizes
    for n in range(1, order + 1):
        assert np.array_equal(again.ngrams(n), model.ngrams(n))
        close = {"rel": 10.0 ** (1 - digits), "abs": 1e-12}
        assert again.log_probs(n) == pytest.approx(model.log_probs(n), **close)
        assert again.back_offs(n) == pytest.approx(model.back_offs(n), **close)
    save_arpa(again, folder / "second", digits=digits)
    assert (folder / "second").read_bytes() == (folder / "first").read_bytes()


def test_tokens_without_names_are_written_as_numbers(tmp_path):
    model = estimate(count([[0, 1]], 1), unknown=True)
    save_arpa(model, tmp_path / "model")
    again = load_arpa(tmp_path / "model", symbols=["0", "1"])
    assert again.unknown == model.unknown == 2
    assert again.score([0, 1, 2]) == pytest.approx(model.score([0, 1, 2]), abs=1e-5)


@pytest.mark.parametrize("name", ["", "a b", "a\tb", "<s>", "</s>"])
def test_names_that_a_file_cannot_hold_are_refused(tmp_path, name):
    model = estimate(count([[name, "x"]], 1))
    path = tmp_path / "model"
    path.write_text("old")
    with pytest.raises(ValueError, match="save_arpa: names of tokens must not be empty"):
        save_arpa(model, path)
    assert path.read_text() == "old"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", r"line 1: the file must have a line \\data\\, but it has none"),
        ("ngram 1=5", "", r"line 5: there must be ngram 1=<number>, but it is 'ngram 2=4'"),
        ("ngram 2=4", "ngram 2=x", "line 5: there must be ngram 2=<number>, but it is 'ngram 2=x'"),
        ("ngram 2=4", "ngram 2=5", "line 15: there must be 5 2-grams, but 4 follow"),
        ("ngram 3=1", "", r"line 21: there must be \\end\\, but it is '\\\\3-grams:'"),
        ("\\2-grams:", "\\3-grams:", r"line 15: there must be \\2-grams:, but it is"),
        ("\\end\\", "", r"line 21: \\end\\ must follow, but the file ends"),
        ("\\3-grams:\n-0.15\t<s> the cat\n\n\\end\\\n", "", r"line 15: \\3-grams: must follow"),
        ("-0.4\tthe cat\t-0.05", "-0.4\tthe", "line 17: .* 2 words and .*, but there are 2 fields"),
        ("-0.8\tcat the", "-0.8\tcat the a b", "line 19: .*, but there are 5 fields"),
        ("-0.4\tthe cat", "zero\tthe cat", "line 17: a score must be a number .* it is 'zero'"),
        ("-0.4\tthe cat", "0.4\tthe cat", "line 17: a score must be a number of at most 0, but"),
        ("-0.4\tthe cat", "nan\tthe cat", "line 17: a score must be a number"),
        ("\t-0.05", "\tnan", "line 17: a weight must be a number, but it is 'nan'"),
        ("\t-0.05", "\tinf", "line 17: a weight must be a number, but it is 'inf'"),
        ("the cat\t-0.05", "the dog", "line 17: a word must be among the 1-grams, but 'dog' is"),
        (
            "cat the",
            "the cat",
            r"line 19: an n-gram must occur once, but \(the, cat\) occurs again",
        ),
        (
            "-0.7\t</s>",
            "-0.7\t<s>",
            r"line 11: an n-gram must occur once, but \(<s>\) occurs again",
        ),
    ],
)
def test_a_malformed_file_is_named_by_its_line(tmp_path, old, new, message):
    assert old in HAND
    with pytest.raises(ValueError, match="^load_arpa: " + message.replace(":", " of '.*':", 1)):
        load_arpa(write(tmp_path, HAND.replace(old, new)))


def test_a_word_must_be_text(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(HAND.encode().replace(b"<unk>", b"\xff\xfe"))
    with pytest.raises(ValueError, match=f"line 9 of '{path}': a word must be UTF-8"):
        load_arpa(path)


def test_an_empty_data_section(tmp_path):
    with pytest.raises(ValueError, match=r"line 1 of '.*': \\data\\ must be followed by ngram 1="):
        load_arpa(write(tmp_path, "\\data\\\n\n\\end\\\n"))


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_arpa(tmp_path / "none")


def test_scores_equal_kenlm(tmp_path):
    kenlm = pytest.importorskip("kenlm")
    rng = np.random.default_rng(0)
    words = [f"w{k}" for k in range(30)]
    lines = [[words[k] for k in rng.integers(0, 30, rng.integers(1, 10))] for _ in range(300)]
    for method, order in [("kneser_ney", 2), ("kneser_ney", 4), ("katz", 3)]:
        path = tmp_path / f"{method}{order}.arpa"
        save_arpa(estimate(count(lines, order), method, unknown=True), path)
        ours, theirs = load_arpa(path), kenlm.Model(str(path))
        for line in [*lines[:50], ["w1", "other", "w2"], []]:
            line = line if rng.random() < 0.5 else [*line[::-1]]
            expected = theirs.score(" ".join(line), bos=True, eos=True)
            assert ours.score(line) / LOG10 == pytest.approx(expected, abs=1e-5)


def test_a_model_of_order_1_has_an_empty_list_of_2_grams_for_kenlm(tmp_path):
    model = estimate(count(["ab", "b"], 1))
    save_arpa(model, tmp_path / "one.arpa")
    lines = (tmp_path / "one.arpa").read_text().splitlines()
    assert lines[:3] == ["\\data\\", f"ngram 1={model.sizes[0]}", "ngram 2=0"]
    assert lines[-3:] == ["\\2-grams:", "", "\\end\\"]
    again = load_arpa(tmp_path / "one.arpa")
    assert (again.order, again.sizes) == (1, model.sizes)
    assert again.score("ab") == pytest.approx(model.score("ab"), abs=1e-6)


def test_kenlm_reads_a_model_of_order_1(tmp_path):
    kenlm = pytest.importorskip("kenlm")
    model = estimate(count(["ab", "b"], 1))
    save_arpa(model, tmp_path / "one.arpa")
    score = kenlm.Model(str(tmp_path / "one.arpa")).score("a b", bos=True, eos=True)
    assert score * LOG10 == pytest.approx(model.score("ab"), abs=1e-5)
