"""``arcgrad decode``: texts as in the test of a run, and a search that agrees with enumeration."""

import itertools
import json
import math

import numpy as np
import pytest
import soundfile
import torch
from command_line import run, tiny, tiny_run
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import arcgrad as ag
from arcgrad.recipes.data import Letters, WordPieces, digits, load_data
from arcgrad.recipes.inference import Decoder, evaluate_run, log_probs, read_lexicon
from arcgrad.recipes.recognizer import Recognizer
from arcgrad.recipes.run import load_run

LETTERS = Letters(("▁", "a", "b"))
BLANKS = [
    ("none", True),
    ("forced", True),
    ("optional", True),
    ("optional", False),
]
WORDS = {"a": [[1]], "ab": [[1, 2]], "bb": [[2, 2]]}


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """A run on lines, and images of its test data."""
    folder = tiny_run(tmp_path_factory.mktemp("lines") / "run")
    data = load_data(load_run(folder)[0]).test
    files = [folder.parent / f"{name}.png" for name in data.ids]
    for index, file in enumerate(files):
        data.image(index).save(file)
    return folder, files


def recognizer(blank="optional", allow_repeats=False, ngram=0, tokenizer=LETTERS):
    torch.manual_seed(1)
    settings = [f"loss.blank={blank}", f"loss.allow_repeats={allow_repeats}", f"loss.ngram={ngram}"]
    found = Recognizer(tiny(*settings), tokenizer, 16)
    for weights in found.criterion.parameters():
        torch.nn.init.normal_(weights)
    return found


def random_emissions(made, frames, seed):
    generator = torch.Generator().manual_seed(seed)
    size = made.criterion.tokens.num_labels
    return torch.randn(frames, size, generator=generator).mul(2).log_softmax(-1)


# The same texts as in the test of a run.
def test_images_are_decoded_as_in_the_test_of_the_run(lines, capsys, monkeypatch):
    folder, files = lines
    expected = [example.hypothesis for example in evaluate_run(folder).examples]
    assert len(set(expected)) == 4
    assert min(map(len, expected)) > 5
    code, out, err = run(capsys, monkeypatch, "decode", folder, *files)
    assert (code, err) == (0, "")
    assert out.splitlines() == [f"{f}\t{text}" for f, text in zip(files, expected, strict=True)]


def test_recordings_are_decoded_as_in_the_test_of_the_run(tmp_path, capsys, monkeypatch):
    settings = ["data.corpus=digits", "model.preset=small", "model.subsampling=4"]
    folder = tiny_run(tmp_path / "run", *settings, "data.test=2")
    data = load_data(load_run(folder)[0]).test
    files = [tmp_path / "0.wav", tmp_path / "1.flac"]
    for index, file in enumerate(files):
        samples = np.round(data.samples(index) * 32768).astype(np.int16)
        soundfile.write(file, samples, digits.RATE)
    expected = [example.hypothesis for example in evaluate_run(folder).examples]
    assert all(expected)
    code, out, _ = run(capsys, monkeypatch, "decode", folder, *files)
    assert code == 0
    assert out.splitlines() == [f"{f}\t{text}" for f, text in zip(files, expected, strict=True)]


def test_bad_files_are_named_and_counted_and_the_others_done(lines, capsys, monkeypatch):
    folder, files = lines
    Image.new("L", (1, 16), 255).save(folder.parent / "narrow.png")
    bad = ["nowhere.png", folder / "tokens", folder.parent / "narrow.png"]
    code, out, err = run(
        capsys, monkeypatch, "decode", folder, bad[0], files[0], *bad[1:], files[1]
    )
    assert code == 2
    assert [line.split("\t")[0] for line in out.splitlines()] == [str(f) for f in files[:2]]
    messages = err.splitlines()
    assert "'nowhere.png' must exist, but it is missing" in messages[0]
    assert "tokens' must be an image, but reading it fails" in messages[1]
    assert "an input must be long enough for a frame, but one of height" in messages[2]
    assert messages[3:] == ["arcgrad: 3 of 5 failed"]


def test_json_has_scores_texts_and_positions(lines, capsys, monkeypatch):
    folder, files = lines
    best, nbest = (
        json.loads(run(capsys, monkeypatch, "decode", folder, files[0], "--json", *more)[1])
        for more in ([], ["--nbest", 3])
    )
    assert best["file"] == str(files[0])
    assert best["nbest"] == [{"text": best["text"], "score": best["score"]}]
    assert nbest["nbest"][0] == best["nbest"][0]
    assert [each["score"] for each in nbest["nbest"]] == sorted(
        (each["score"] for each in nbest["nbest"]), reverse=True
    )
    assert len({each["text"] for each in nbest["nbest"]}) == 3
    letters = "".join(part["label"] for part in best["segments"])
    assert letters.replace("▁", " ") == best["text"]
    assert (best["unit"], best["num_frames"]) == ("pixels", int(best["extent"]) // 2)
    ends = [part["end"] for part in best["segments"]]
    assert ends == sorted(ends)
    assert all(part["start"] < part["end"] <= best["extent"] for part in best["segments"])


def test_several_texts_come_with_their_scores(lines, capsys, monkeypatch):
    folder, files = lines
    _, out, _ = run(capsys, monkeypatch, "decode", folder, files[0], "--nbest", 2)
    rows = [line.split("\t") for line in out.splitlines()]
    assert [len(row) for row in rows] == [3, 3]
    assert float(rows[0][2]) >= float(rows[1][2])


def test_a_lexicon_and_a_model_from_files(lines, tmp_path, capsys, monkeypatch):
    folder, files = lines
    (tmp_path / "words.txt").write_text("ab\nba\nx\n")
    model = ag.ngram.estimate(ag.ngram.count([["ab", "ba"], ["x"]], 2), "mle")
    ag.ngram.save_arpa(model, tmp_path / "words.arpa")
    found = []
    for more in ([], ["--lm", tmp_path / "words.arpa", "--lm-weight", 2.0, "--max-active", 500]):
        options = ["--lexicon", tmp_path / "words.txt", "--beam", 60, "--word-score", -1, *more]
        code, out, _ = run(capsys, monkeypatch, "decode", folder, files[0], *options)
        assert code == 0
        found.append(out.strip().split("\t")[1])
    assert set(found[0].split()) <= {"ab", "ba", "x"}
    assert found[1] in ("ab ba", "x")


def test_a_beam_that_is_too_narrow_is_a_failure(lines, capsys, monkeypatch, tmp_path):
    folder, files = lines
    (tmp_path / "words.txt").write_text("x" * 60 + "\n")
    options = ["--lexicon", tmp_path / "words.txt", "--beam", 0.1]
    code, out, err = run(capsys, monkeypatch, "decode", folder, files[0], *options)
    assert (code, out) == (2, "")
    assert "a path must fit into the frames and the beam, but" in err
    assert "has no such path; raise --beam" in err


# The search itself.
@pytest.mark.parametrize("ngram", [0, 2])
@pytest.mark.parametrize(("blank", "allow_repeats"), BLANKS)
def test_an_exact_search_finds_the_best_path(blank, allow_repeats, ngram):
    made = recognizer(blank, allow_repeats, ngram)
    for seed in range(4):
        emissions = random_emissions(made, 7, seed)
        best = Decoder(made)(emissions)
        found = Decoder(made, beam=math.inf)(emissions, 5)
        assert len(best) == 1
        assert found[0].score == pytest.approx(best[0].score, abs=1e-5)
        assert found[0].text == best[0].text
        scores = [each.score for each in found]
        assert scores == sorted(scores, reverse=True)
        assert best[0].score < 0


def test_emissions_that_no_text_fits_give_no_text():
    made = recognizer("forced", True)
    emissions = torch.full((3, 4), 0.25).log()
    emissions[0, 0] = -math.inf  # a blank must come first
    assert Decoder(made)(emissions) == Decoder(made, beam=math.inf)(emissions) == []


def test_texts_that_differ_only_in_boundaries_are_returned_once():
    made = recognizer()
    frames = torch.tensor([1, 0, 2, 0, 1])  # ▁ - a - ▁
    emissions = torch.eye(4)[frames].log_softmax(-1)
    texts = [each.text for each in Decoder(made, beam=math.inf)(emissions, 20)]
    assert len(set(texts)) == len(texts)
    assert texts[0] == "a"


def path_score(made, emissions, labels):
    """The log-probability of the best path of labels, by trying all paths of labels."""
    tokens, best = made.criterion.tokens, -math.inf
    transitions = made.criterion.transition_graph()
    total, every = [], []
    for frames in itertools.product(range(tokens.num_labels), repeat=len(emissions)):
        score = sum(emissions[t, label].item() for t, label in enumerate(frames))
        if transitions is not None:
            chain = ag.chain_graph(list(frames))
            score += ag.viterbi_score(ag.intersect(transitions, chain)).item()
        total.append(score)
        every.append(frames)
    spelled = ag.project_input(ag.compose(tokens.graph(), ag.chain_graph(labels)))
    for frames, score in zip(every, total, strict=True):
        if ag.viterbi_score(ag.intersect(spelled, ag.chain_graph(list(frames)))).item() == 0.0:
            best = max(best, score)
    return best - torch.logsumexp(torch.tensor(total, dtype=torch.float64), 0).item()


def all_texts(words, model, weight, word_score, made, emissions):
    """The score of each text of up to two words."""
    scores = {}
    for count in range(3):
        for said in itertools.product(words, repeat=count):
            labels = made.tokenizer.encode(" ".join(said))
            score = path_score(made, emissions, [label + made.first_label for label in labels])
            if model is not None:
                numbers = [model.symbols.index(word) for word in said]
                chain = ag.chain_graph(numbers) if numbers else ag.chain_graph([])
                graph = ag.viterbi_score(ag.intersect(model.graph(), chain))
                score += weight * graph.item()
            scores[" ".join(said)] = score + word_score * count
    return scores


@pytest.mark.parametrize(
    ("blank", "allow_repeats", "ngram"),
    [("optional", False, 0), ("optional", False, 2), ("none", True, 2), ("forced", True, 0)],
)
@pytest.mark.parametrize("with_model", [False, True])
def test_a_search_with_words_agrees_with_trying_all(blank, allow_repeats, ngram, with_model):
    made = recognizer(blank, allow_repeats, ngram)
    model = None
    if with_model:
        texts = [["a", "bb"], ["bb", "a"], ["ab"], ["ab", "ab"]]
        model = ag.ngram.estimate(ag.ngram.count(texts, 2), "mle")
    emissions = random_emissions(made, 4, 3)
    expected = all_texts(WORDS, model, 0.7, -0.3, made, emissions)
    options = {"model": model, "model_weight": 0.7} if with_model else {}
    search = Decoder(made, lexicon=WORDS, beam=math.inf, word_score=-0.3, **options)
    found = {each.text: each.score for each in search(emissions, 50)}
    possible = {text: score for text, score in expected.items() if score > -math.inf}
    assert possible
    assert {text for text in found if len(text.split()) <= 2} == set(possible)
    for text, score in possible.items():
        assert found[text] == pytest.approx(score, abs=1e-4)


@given(st.integers(0, 10**6))
def test_a_model_of_tokens_is_added_to_the_paths(seed):
    made = recognizer()
    texts = ["a▁b", "ab", "bba", "b"]
    model = ag.ngram.estimate(ag.ngram.count(texts, 2), "mle")
    emissions = random_emissions(made, 4, seed)
    search = Decoder(made, model=model, model_weight=0.5, beam=math.inf)
    for each in search(emissions, 6):
        labels = made.tokenizer.encode(each.text)
        spelled = [made.tokenizer.tokens[label] for label in labels]
        scored = path_score(made, emissions, [label + 1 for label in labels])
        assert each.score >= scored + 0.5 * model.score(spelled) - 1e-4


def test_words_that_a_model_lacks_are_unknown():
    made = recognizer()
    emissions = random_emissions(made, 4, 0)
    counts = ag.ngram.count([["a"], ["a", "a"]], 1)
    known = Decoder(
        made, lexicon=WORDS, beam=math.inf, model=ag.ngram.estimate(counts, unknown=True)
    )
    texts = {each.text for each in known(emissions, 50)}
    assert {"a", "ab", "bb"} <= texts
    with pytest.raises(ValueError, match=r"must know all 3 words or tokens, .* it lacks 2: ab, bb"):
        Decoder(made, lexicon=WORDS, model=ag.ngram.estimate(counts, "mle"))
    other = ag.ngram.estimate(ag.ngram.count([["x"]], 1), "mle")
    with pytest.raises(ValueError, match=r"it lacks 3: a, ab, bb"):
        Decoder(made, lexicon=WORDS, model=other)
    with pytest.raises(ValueError, match=r"must be tokens, but x are not; a model of words needs"):
        Decoder(made, model=other)


def test_a_text_without_a_boundary_token_is_one_word():
    made = recognizer(tokenizer=Letters(("a", "b")))
    search = Decoder(made, lexicon={"a": [[0]], "ab": [[0, 1]]}, beam=math.inf)
    found = search(random_emissions(made, 5, 0), 9)
    assert {each.text for each in found} == {"a", "ab"}


def test_pieces_bring_the_boundary_themselves():
    pieces = WordPieces.train(["the cat sat on the mat", "the rat sat"], size=14)
    made = recognizer(tokenizer=pieces)
    lexicon = {word: [pieces.encode(word)] for word in ("the", "cat")}
    labels = [0, *(label + 1 for label in pieces.encode("the cat the"))]
    frames = [label for each in labels for label in (each, 0)]
    emissions = torch.eye(15)[torch.tensor(frames)].mul(9).log_softmax(-1)
    assert Decoder(made, lexicon=lexicon)(emissions)[0].text == "the cat the"


def test_impossible_scores_stay_impossible_with_weight_0():
    made = recognizer()
    emissions = random_emissions(made, 5, 0)
    model = ag.ngram.estimate(ag.ngram.count([["a", "ab"], ["bb"]], 2), "mle")
    free = Decoder(made, lexicon=WORDS, model=model, model_weight=0.0, beam=math.inf)
    assert all(math.isfinite(each.score) for each in free(emissions, 20))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam": 0.0}, "the beam must be positive, but it is 0.0"),
        ({"beam": math.nan}, "the beam must be positive, but it is nan"),
        ({"lexicon": {}}, "a lexicon must have words, each with a spelling .*, but it is {}"),
        ({"lexicon": {"a": []}}, r"a lexicon must have words, .*, but it is {'a': \[\]}"),
        ({"lexicon": {"a": [[]]}}, r"a lexicon must have words, .*, but it is {'a': \[\[\]\]}"),
        (
            {"model": ag.ngram.estimate(ag.ngram.count([[0, 1]], 1), "mle")},
            "the words of a language model must have names, but they have none",
        ),
        ({"model_weight": -1.0}, "the weight must not be negative, but it is -1.0"),
    ],
)
def test_options_must_be_in_their_range(options, message):
    with pytest.raises(ValueError, match=message):
        Decoder(recognizer(), **options)


def test_a_lexicon_has_words_and_spellings(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("ab\n\nba  b a\nba\tb b a\nba b a\n")
    assert read_lexicon(path, LETTERS) == {"ab": [[1, 2]], "ba": [[2, 1], [2, 2, 1]]}
    path.write_text("ab\ncab\nb x\n")
    message = r"words\.txt', but 2 of 3 cannot be spelled: cab on line 2, b on line 3$"
    with pytest.raises(ValueError, match=message):
        read_lexicon(path, LETTERS)
    path.write_bytes(b"ab\nb\xff\n")
    message = rf"^read_lexicon: '{path}' must be text in UTF-8, but byte 4 on line 2 is not"
    with pytest.raises(ValueError, match=message):
        read_lexicon(path, LETTERS)
    path.write_text("\n")
    with pytest.raises(ValueError, match="must have a word, but it has none"):
        read_lexicon(path, LETTERS)


def test_an_input_must_have_at_least_one_frame():
    made = recognizer()
    assert log_probs(made, torch.zeros(16, 2)).shape == (1, 4)
    with pytest.raises(ValueError, match="must be long enough for a frame, but one of height"):
        log_probs(made, torch.zeros(16, 1))
