"""The decoder: streams, times, lattices, confidences, pruning, and what it refuses."""

import math
import pickle

import numpy as np
import pytest
from decoder_tasks import ALL, LABELS, LEXICON, model, scores

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.decoding import CTCDecoder, Partial, Word

torch = pytest.importorskip("torch")


def frames_of(text, labels=LABELS):
    """Scores in which each letter is one sure frame."""
    return np.where(np.eye(len(labels)) > 0, -0.05, -4.0)[
        [labels.index(c) if c != "_" else 0 for c in text]
    ].astype(np.float32)


def decoder(**options):
    return CTCDecoder(LABELS, model(2), LEXICON, **options)


def test_times_of_words_and_tokens():
    found = decoder(beta=0.0).decode(frames_of("_aa_b|_b_aa"), nbest=1)[0][0]
    assert found.text == "ab ba"
    assert found.words == [Word("ab", 1, 5), Word("ba", 7, 11)]
    assert found.tokens == [(2, 1, 3), (3, 4, 5), (1, 5, 6), (3, 7, 8), (2, 9, 11)]
    assert found.labels == [2, 3, 1, 3, 2]


def test_the_parts_of_a_score():
    lm = model(2)
    options = {"alpha": 0.7, "beta": 0.3, "silence_score": -0.2, "hotwords": {"ab": 2.0}}
    found = CTCDecoder(LABELS, lm, LEXICON, **options).decode(frames_of("|a_b|b_a"))[0][0]
    assert found.text == "ab ba"
    assert found.acoustic == pytest.approx(-0.05 * 8, abs=1e-5)
    assert found.language == pytest.approx(lm.score(["ab", "ba"]), abs=1e-5)
    assert found.hotword == 2.0
    total = found.acoustic + 0.7 * found.language + 2.0 + 0.3 * 2 - 0.2
    assert found.score == pytest.approx(total, abs=1e-5)


@pytest.mark.parametrize("merge", ["max", "sum"])
@pytest.mark.parametrize("chunk", [1, 3, 7, 100])
def test_a_stream_is_equal_to_the_offline_result(merge, chunk):
    x = scores(1, frames=60)
    plain = decoder(merge=merge, hotwords=["ab"], max_active=20)
    for confidences in (False, True):
        stream = plain.stream(5, confidences=confidences)
        stable = ""
        for begin in range(0, len(x), chunk):
            partial = stream.push(x[begin : begin + chunk])
            assert isinstance(partial, Partial)
            assert partial.stable.startswith(stable)
            assert partial.text.startswith(partial.stable)
            stable = partial.stable
        assert stream.num_frames == 60
        expected = plain.decode(x, nbest=5, confidences=confidences)[0]
        assert stream.finish() == stream.finish() == expected
        assert expected[0].text.startswith(stable)
        assert stable
        assert stream.report() == plain.report(x)[0]


def test_stable_words_never_change():
    stable = ""
    stream = CTCDecoder(LABELS, lexicon=["a", "ab", "abab"], merge="max").stream()
    for seed in range(30):
        partial = stream.push(scores(seed, frames=4))
        assert partial.stable.startswith(stable)
        stable = partial.stable
    assert stream.finish()[0].text.startswith(stable)
    assert len(stable.split()) > 5


def test_a_partial_word_is_shown():
    stream = decoder(beta=0.0, beam=2.0).stream()
    assert stream.partial() == Partial("", "")
    assert stream.push(frames_of("a_b|b")) == Partial("ab b", "ab")


def test_batches_lengths_and_types():
    x = np.stack([scores(seed, frames=20) for seed in range(6)])
    plain = decoder()
    expected = [plain.decode(one, nbest=3)[0] for one in x]
    assert plain.decode(x, nbest=3) == expected
    assert plain.decode(list(x), nbest=3) == expected
    assert plain.decode(np.asfortranarray(x), nbest=3) == expected
    assert plain.decode(x.transpose(1, 0, 2).copy().transpose(1, 0, 2), nbest=3) == expected
    assert plain.decode(x.astype(np.float64), nbest=3) == expected
    lengths = [20, 0, 3, 10, 1, 19]
    short = plain.decode(x, lengths)
    assert short == [plain.decode(one[:n])[0] for one, n in zip(x, lengths, strict=True)]
    assert short[1][0].text == ""
    assert plain.decode(x[:0]) == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_tensors(dtype):
    x = torch.tensor(scores(3, frames=10)).to(getattr(torch, dtype))
    numpy = decoder().decode(x.float().numpy(), nbest=2)
    tensors = agt.CTCDecoder(LABELS, model(2), LEXICON)
    assert tensors.decode(x.requires_grad_(), nbest=2) == numpy
    assert tensors.decode(x[None], torch.tensor([10]), nbest=2) == numpy
    assert tensors.decode([x, x], nbest=2) == numpy * 2
    stream = tensors.stream(2)
    stream.push(x)
    assert stream.finish() == numpy[0]


@pytest.mark.parametrize("merge", ["max", "sum"])
def test_confidences_are_posteriors(merge):
    """With all paths kept, the confidence of the only word is its probability."""
    x = scores(8, frames=5)
    plain = CTCDecoder(LABELS, lexicon={"a": ["a"], "b": ["b"]}, beta=0.0, merge=merge, **ALL)
    found = plain.decode(x, nbest=100, confidences=True)[0]
    by_sum = CTCDecoder(LABELS, lexicon={"a": ["a"], "b": ["b"]}, beta=0.0, merge="sum", **ALL)
    sums = {one.text: one.score for one in by_sum.decode(x, nbest=100)[0]}
    total = np.logaddexp.reduce(list(sums.values()))
    for one in found:
        if len(one.words) == 1:
            having = [score for text, score in sums.items() if one.text in text.split()]
            expected = math.exp(np.logaddexp.reduce(having) - total)
            assert one.words[0].confidence == pytest.approx(expected, abs=1e-5)
    sure = plain.decode(frames_of("_a_|_b_"), confidences=True)[0][0]
    assert [word.text for word in sure.words] == ["a", "b"]
    assert all(0.5 < word.confidence <= 1 for word in sure.words)
    assert plain.decode(x)[0][0].words[0].confidence is None


@pytest.mark.parametrize("merge", ["max", "sum"])
def test_the_lattice_has_all_results(merge):
    x = scores(9, frames=7)
    plain = decoder(merge=merge, hotwords={"ab": 0.7}, **ALL)
    lattice = plain.lattice(x)
    assert set(plain.words) == set(LEXICON)
    scored = {one.text: one.score for one in plain.decode(x, nbest=20)[0]}
    for text, score in scored.items():
        words = [plain.words.index(word) for word in text.split()]
        path = ag.compose(lattice, ag.chain_graph(words))
        total = ag.viterbi_score if merge == "max" else ag.forward_score
        assert total(path).item() == pytest.approx(score, abs=1e-4)
    narrow = plain.lattice(x, 1.0)
    assert narrow.num_arcs() < lattice.num_arcs()
    assert ag.viterbi_score(narrow).item() == pytest.approx(ag.viterbi_score(lattice).item())
    assert plain.lattice(x, 0.0).num_arcs() >= 7


def test_hotwords_change_the_result():
    x = frames_of("a_b|")
    x[2] = np.log([0.1, 0.05, 0.45, 0.4])  # "aa", which is no word, or "ab"
    words = {"a": ["a"], "ab": ["ab"], "b": ["b"]}
    plain = CTCDecoder(LABELS, lexicon=words, beta=0.0)
    assert plain.decode(x)[0][0].text == "ab"
    boosted = CTCDecoder(LABELS, lexicon=words, beta=0.0, hotwords={"a": 2.0})
    assert boosted.decode(x)[0][0].text == "a"
    assert CTCDecoder(LABELS, lexicon=words, hotwords=["b b"], hotword_weight=2.0)


def test_pruning_is_reported():
    x = scores(4, frames=30)
    wide = decoder(**ALL).report(x)[0]
    assert wide["frames"] == 30
    assert wide["below_beam"] == wide["beyond_active"] == wide["unread_tokens"] == 0
    narrow = decoder(max_active=5, token_beam=2.0, beam=3.0).report(x)[0]
    assert narrow["most_hypotheses"] <= 5
    assert narrow["below_beam"] > 0
    assert narrow["unread_tokens"] > 0
    assert decoder(max_active=5).report(x)[0]["beyond_active"] > 0
    assert decoder(max_tokens=2).report(x)[0]["unread_tokens"] == 60


def test_a_wider_beam_is_never_worse_here():
    x = scores(11, frames=40)
    found = [decoder(max_active=n).decode(x)[0][0].score for n in (1, 4, 16, 64, 1000)]
    assert found == sorted(found)


def test_results_do_not_depend_on_threads():
    x = np.stack([scores(seed, frames=30) for seed in range(16)])
    plain = decoder(max_active=8)
    before = ag.get_num_threads()
    try:
        results = []
        for threads in (1, 3):
            ag.set_num_threads(threads)
            results.append(plain.decode(x, nbest=4, confidences=True))
    finally:
        ag.set_num_threads(before)
    assert results[0] == results[1]


def test_no_complete_word():
    plain = CTCDecoder(LABELS, lexicon=["ab"])
    found = plain.decode(frames_of("a_b|a"))[0][0]
    assert found.text == "ab"
    assert found.is_complete
    strict = CTCDecoder(LABELS, lexicon=["abab"], max_active=2)
    found = strict.decode(frames_of("ab"))[0][0]
    assert (found.text, found.is_complete) == ("", False)


def test_no_finite_path():
    x = np.full((3, 4), -np.inf, np.float32)
    assert decoder().decode(x) == [[]]
    stream = decoder().stream()
    assert stream.push(x) == Partial("", "")
    assert stream.finish() == []


def test_word_pieces():
    labels = ["<blank>", "▁", "a", "b", "▁a", "ab"]
    plain = CTCDecoder(labels, lexicon=["a", "ab", "bb"], beta=0.0)
    # All spellings of a word are known.
    for spelling in (["▁a", "b"], ["▁", "ab"], ["▁", "a", "b"]):
        x = np.where(np.eye(6) > 0, -0.1, -5.0)
        frames = [labels.index(name) for name in [*spelling, "▁a"]]
        found = plain.decode(x[frames].astype(np.float32))[0][0]
        assert found.text == "ab a"
        assert [(w.start, w.end) for w in found.words] == [
            (0, len(spelling)),
            (len(spelling), len(spelling) + 1),
        ]
    free = CTCDecoder(labels)
    assert free.decode(x[[4, 3, 4]].astype(np.float32))[0][0].text == "ab a"
    opened = CTCDecoder(labels, lexicon=["a"], open_vocabulary=True, unknown_score=-1.0)
    found = opened.decode(x[[4, 4, 3]].astype(np.float32))[0][0]
    assert [(w.text, w.is_known) for w in found.words][-1] == ("ab", False)


def test_words_of_labels_have_times():
    found = CTCDecoder(LABELS).decode(frames_of("_ab_|_ba"), confidences=True)[0][0]
    assert found.text == "ab ba"
    assert [word[:3] for word in found.words] == [("ab", 1, 3), ("ba", 6, 8)]
    assert all(0 < word.confidence <= 1 for word in found.words)


def test_a_decoder_of_the_phones_of_a_dictionary_file(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("cat k ae t\nact ae k t\ncat k ah t\n")
    labels = ["_", "k", "ae", "t", "ah"]
    plain = CTCDecoder(labels, lexicon=path, blank="_")
    assert plain.words == ["cat", "act"]
    x = np.where(np.eye(5) > 0, -0.1, -5.0)[[1, 4, 3, 2, 1, 3]].astype(np.float32)
    assert plain.decode(x)[0][0].text == "cat act"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CTCDecoder([]), "there must be 2 labels or more, but there are 0"),
        (lambda: CTCDecoder(["", "a", "a"]), "labels must differ, but 'a' occurs again"),
        (lambda: CTCDecoder(["a", "b"]), "exactly one label must be a blank .*, but 0 are"),
        (lambda: CTCDecoder(["", "<pad>", "a"]), "must be a blank .*, but 2 are; pass blank"),
        (lambda: CTCDecoder(["a", "b"], blank="c"), "blank must be a label, but 'c' is not one"),
        (lambda: CTCDecoder(["a", "b"], blank=2), "blank must be a label from 0 to 1, but it is 2"),
        (lambda: CTCDecoder(LABELS, separator="x"), "separator must be a label, but 'x'"),
        (lambda: CTCDecoder(LABELS, separator=0), "blank must not separate words, but '' does"),
        (
            lambda: CTCDecoder(LABELS, lexicon=["ab", "cab", "x"]),
            "labels must spell all words, but they cannot spell 'cab', 'x'",
        ),
        (lambda: CTCDecoder(LABELS, lexicon=[]), "a lexicon must have words, but it has none"),
        (lambda: CTCDecoder(LABELS, lexicon=["a b"]), "words must be strings without spaces"),
        (lambda: CTCDecoder(LABELS, lexicon={"a": []}), "not true of 'a'"),
        (lambda: CTCDecoder(LABELS, lexicon={"a": [["z"]]}), "not true of 'a'"),
        (lambda: CTCDecoder(LABELS, hotwords=["ab xy"]), "hotwords, but they cannot spell 'ab xy'"),
        (lambda: CTCDecoder(LABELS, hotwords={"a": math.nan}), "boosts must be finite"),
        (lambda: CTCDecoder(LABELS, beam=-1.0), "beam must be 0 or more, but it is -1"),
        (lambda: CTCDecoder(LABELS, beam=math.nan), "beam must be 0 or more, but it is nan"),
        (lambda: CTCDecoder(LABELS, max_active=0), "max_active must be 1 or more, but it is 0"),
        (lambda: CTCDecoder(LABELS, alpha=-0.5), "must be 0 or more, but it is -0.5"),
        (lambda: CTCDecoder(LABELS, model(2), LEXICON, beta=math.inf), "must be finite"),
        (lambda: CTCDecoder(LABELS, open_vocabulary=True), "there is no lexicon"),
        (
            lambda: CTCDecoder(LABELS, lexicon=["a"], separator="", open_vocabulary=True),
            "but the labels have none",
        ),
        (lambda: CTCDecoder(LABELS, merge="both"), "merge must be 'max' or 'sum'"),
        (lambda: CTCDecoder(LABELS, tokens=ag.tokens.Tokens.ctc(3)), "tokens must have 4 labels"),
        (
            lambda: CTCDecoder(LABELS, tokens=ag.tokens.Tokens(4, min_frames=2)),
            "tokens must last one frame or any number of frames",
        ),
        (
            lambda: CTCDecoder(LABELS, without_unknown(), ["ab", "abab"]),
            "must have all words of the lexicon, but it lacks 'abab'",
        ),
        (lambda: CTCDecoder(["", "x"], model(2)), "labels must spell the words .* they spell none"),
        (
            lambda: CTCDecoder(LABELS, lexicon={"ab": "ab", "a": 3, "b": None}),
            "spellings must be lists of labels, .* but this is not true of 'a', 'b'$",
        ),
        (
            lambda: CTCDecoder(LABELS, ag.Graph(), ["a"]),
            "a grammar must have nodes, but the graph has none",
        ),
        (
            lambda: CTCDecoder(LABELS, ag.chain_graph([0], [1]), ["a"]),
            "a grammar must be an acceptor",
        ),
        (
            lambda: CTCDecoder(LABELS, ag.scalar_graph(math.nan), ["a"]),
            "weights must be finite or -inf, but that of arc 0 is nan",
        ),
    ],
)
def test_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def without_unknown():
    return ag.ngram.estimate(ag.ngram.count([["a", "ab"], ["ba"]], 2))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((3, 5)), r"with 4 labels, but their shape is \(3, 5\)"),
        (np.zeros(4), r"their shape is \(4,\)"),
        (np.full((2, 4), np.nan), "the score of label 0 at frame 0 must be finite or -inf"),
        (np.array([[0, 0, np.inf, 0.0]]), "the score of label 2 at frame 0 must be finite or -inf"),
    ],
)
def test_refused_scores(x, message):
    with pytest.raises(ValueError, match=message):
        decoder().decode(x)
    with pytest.raises(ValueError, match=message):
        decoder().stream().push(x)


def test_messages_show_long_words_in_short(tmp_path):
    (tmp_path / "words.txt").write_text("x" * 100_000 + " a\n" + "y" * 100_000 + " ?\n")
    with pytest.raises(ValueError, match="spellings in '") as caught:
        CTCDecoder(LABELS, lexicon=tmp_path / "words.txt")
    assert len(str(caught.value)) < 500


def test_refused_calls():
    plain = decoder()
    x = scores(0)
    with pytest.raises(ValueError, match="nbest must be 1 or more, but it is 0"):
        plain.decode(x, nbest=0)
    with pytest.raises(ValueError, match="nbest must be 1 or more"):
        plain.stream(0)
    with pytest.raises(ValueError, match="lengths must be 1 numbers of frames from 0 to 6"):
        plain.decode(x, [7])
    with pytest.raises(ValueError, match=r"decode \(element 1 of 2\): the score of label 3"):
        plain.decode([x, np.full((1, 4), [0, 0, 0, np.nan])])
    with pytest.raises(TypeError, match="scores must be an array of numbers"):
        plain.decode(np.array([["a"] * 4]))
    with pytest.raises(TypeError, match="hotwords must be a list of phrases"):
        CTCDecoder(LABELS, hotwords="ab")
    with pytest.raises(TypeError):
        pickle.dumps(plain.stream())


def test_an_epsilon_cycle_in_a_grammar_is_refused():
    graph = ag.Graph(calc_grad=False)
    graph.add_node(start=True, accept=True)
    graph.add_arc(0, 0, ag.epsilon)
    with pytest.raises(ValueError, match="epsilon arcs of a grammar must not form a cycle"):
        CTCDecoder(LABELS, graph, ["a"])
