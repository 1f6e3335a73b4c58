"""What users do with results: endpoints, calibration, rescoring, consensus, lattices, pictures."""

import math
import sys

import numpy as np
import pytest
from decoder_tasks import ALL, LABELS, LEXICON, model, scores

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.decoding import (
    ENDPOINT_RULES,
    CTCDecoder,
    EndpointRule,
    Hypothesis,
    Word,
    calibration,
    confusion_network,
    correct_words,
    minimum_risk,
    rescore,
)

torch = pytest.importorskip("torch")


def frames_of(text, sure=-0.05):
    other = math.log((1 - math.exp(sure)) / (len(LABELS) - 1))
    rows = [LABELS.index(c) if c != "_" else 0 for c in text]
    return np.where(np.eye(len(LABELS)) > 0, sure, other)[rows].astype(np.float32)


def decoder(**options):
    return CTCDecoder(LABELS, model(2), LEXICON, **options)


class TestEndpoints:
    def test_silence_after_a_word(self):
        stream = decoder().stream()
        stream.push(frames_of("ab|"))
        assert stream.endpoint(0.1) is None
        stream.push(frames_of("_" * 20, sure=-0.001))
        assert stream.trailing_frames == 21
        # The best path may end here.
        assert stream.final_cost < 8.0
        assert stream.endpoint(0.1) in ENDPOINT_RULES[1:4]
        assert stream.endpoint(0.01) is None
        assert stream.endpoint(0.01, [EndpointRule(silence=0.2)]) == EndpointRule(silence=0.2)

    def test_silence_alone_takes_longer(self):
        stream = decoder().stream()
        stream.push(frames_of("_" * 30, sure=-0.001))
        assert stream.endpoint(0.1) is None
        stream.push(frames_of("_" * 21, sure=-0.001))
        assert stream.endpoint(0.1) == ENDPOINT_RULES[0]

    def test_length(self):
        stream = decoder().stream()
        stream.push(frames_of("ab|" * 34))
        assert stream.endpoint(0.1) is None
        assert stream.endpoint(0.2) == ENDPOINT_RULES[4]

    def test_the_final_cost_is_that_of_the_end(self):
        lm = model(2)
        stream = CTCDecoder(LABELS, lm, LEXICON, alpha=1.0, beta=0.0, merge="max").stream()
        x = frames_of("ab|")
        stream.push(x)
        lattice = stream.finish()[0]
        # The best path has not read the end of the sentence.
        assert stream.final_cost == pytest.approx(
            lm.score(["ab"], end=False) - lm.score(["ab"]), abs=1e-4
        )
        assert lattice.text == "ab"
        strict = CTCDecoder(LABELS, lexicon=["abab"], max_active=2).stream()
        strict.push(frames_of("ab"))
        assert strict.final_cost == math.inf
        assert strict.endpoint(1.0, [EndpointRule(final_cost=5.0, needs_words=False)]) is None

    def test_refused(self):
        with pytest.raises(ValueError, match="frame_shift must be positive, but it is 0"):
            decoder().stream().endpoint(0.0)


class TestCalibration:
    def test_bins(self):
        values = [0.05, 0.15, 0.95, 1.0, 0.99, 0.0]
        found = calibration(values, [False, True, True, True, False, False], bins=10)
        assert found.counts.tolist() == [2, 1, 0, 0, 0, 0, 0, 0, 0, 3]
        assert found.confidences[[0, 1, 9]] == pytest.approx([0.025, 0.15, 0.98])
        assert found.accuracies[[0, 1, 9]] == pytest.approx([0.0, 1.0, 2 / 3])
        errors = np.array([0.025, 0.85, 0.98 - 2 / 3])
        assert found.expected_error == pytest.approx(errors @ [2, 1, 3] / 6)
        assert found.largest_error == pytest.approx(0.85)
        assert found.brier == pytest.approx(
            np.mean(np.square(np.array(values) - [0, 1, 1, 1, 0, 0]))
        )

    def test_cross_entropy(self):
        right = [True, True, True, False]
        assert calibration([1.0, 1.0, 1.0, 0.0], right).cross_entropy == pytest.approx(1, abs=1e-6)
        assert calibration([0.75] * 4, right).cross_entropy == pytest.approx(0)
        assert calibration([0.1, 0.1, 0.1, 0.9], right).cross_entropy < 0
        assert math.isnan(calibration([0.5], [True]).cross_entropy)

    def test_true_probabilities_are_calibrated(self):
        rng = np.random.default_rng(0)
        values = rng.random(20_000)
        found = calibration(values, rng.random(20_000) < values)
        assert found.expected_error < 0.02
        assert calibration(values**3, rng.random(20_000) < values).expected_error > 0.1

    @pytest.mark.parametrize(
        ("confidences", "right", "bins", "message"),
        [
            ([], [], 10, "one or more confidences, .* but there are 0 and 0"),
            ([0.5], [True, False], 10, "but there are 1 and 2"),
            ([1.5], [True], 10, "confidences must be from 0 to 1, but one is 1.5"),
            ([math.nan], [True], 10, "confidences must be from 0 to 1, but one is nan"),
            ([0.5], [True], 0, "bins must be 1 or more, but it is 0"),
        ],
    )
    def test_refused(self, confidences, right, bins, message):
        with pytest.raises(ValueError, match=message):
            calibration(confidences, right, bins)

    @pytest.mark.parametrize(
        ("words", "reference", "expected"),
        [
            ("a b c", "a b c", [True, True, True]),
            ("a b c", "a c", [True, False, True]),
            ("b c", "a b c", [True, True]),
            ("x", "", [False]),
            ("", "a", []),
            ("a x c", ["a", "b", "c"], [True, False, True]),
        ],
    )
    def test_correct_words(self, words, reference, expected):
        listed = [Word(word, 0, 1) for word in words.split()]
        assert correct_words(Hypothesis(words, 0.0, words=listed), reference) == expected

    def test_the_scale_of_confidences(self):
        x = scores(8, frames=20)
        sharp, flat = (
            decoder(confidence_scale=scale).decode(x, confidences=True)[0][0] for scale in (1, 0.2)
        )
        assert sharp.text == flat.text
        assert sharp.score == flat.score
        mean = [np.mean([word.confidence for word in found.words]) for found in (sharp, flat)]
        assert mean[0] > mean[1]
        for scale in (-1.0, math.nan, math.inf):
            with pytest.raises(ValueError, match="confidence_scale must be"):
                decoder(confidence_scale=scale)


class TestRescoring:
    def test_a_larger_model(self):
        """Rescoring all results of a small model gives those of a large one."""
        x = scores(12)
        small, large = model(1), model(3)
        options = {"alpha": 0.7, "beta": 0.3, **ALL}
        first = CTCDecoder(LABELS, small, LEXICON, **options).decode(x, nbest=10**6)[0]
        expected = CTCDecoder(LABELS, large, LEXICON, **options).decode(x, nbest=10**6)[0]
        found = rescore(first, large, 0.7, replace=0.7)
        assert {one.text for one in found} == {one.text for one in expected}
        wanted = {one.text: one for one in expected}
        for one in found:
            assert one.score == pytest.approx(wanted[one.text].score, abs=1e-4)
            assert one.language == pytest.approx(wanted[one.text].language, abs=1e-4)
        assert rescore(first, large.compact(), 0.7, replace=0.7)[0].text == found[0].text

    def test_a_lattice(self):
        """A lattice of words composed with another model has the scores of both."""
        x = scores(12, frames=5)
        large = model(2)
        plain = CTCDecoder(LABELS, lexicon=LEXICON, beta=0.0, **ALL)
        acceptor = ag.scale(large.graph(dtype="float64"), 0.7)
        names = [large.symbols.index(word) for word in plain.words]
        words = ag.relabel(plain.lattice(x), olabels=names)
        best = ag.viterbi_score(ag.compose(words, acceptor)).item()
        expected = CTCDecoder(LABELS, large, LEXICON, alpha=0.7, beta=0.0, **ALL).decode(x)[0][0]
        assert best == pytest.approx(expected.score, abs=1e-4)

    def test_a_function(self):
        found = decoder().decode(scores(3, frames=20), nbest=10)[0]
        lengths = rescore(found, lambda texts: [-float(len(text)) for text in texts], 100.0)
        assert lengths[0].text == min((one.text for one in found), key=len)
        assert [one.language for one in lengths] == pytest.approx(
            [next(f.language for f in found if f.text == one.text) for one in lengths]
        )
        for bad in ([1.0], [math.nan] * 10):
            with pytest.raises(ValueError, match="must return a number for each of 10 texts"):
                rescore(found, lambda texts, bad=bad: bad, 1.0)

    def test_minimum_risk(self):
        """The least expected number of errors, by the definition."""
        found = decoder().decode(scores(3, frames=20), nbest=30)[0]
        best = minimum_risk(found, 0.3)
        weights = np.exp([0.3 * one.score for one in found])

        def risk(text):
            distances = [ag.edit_distance(*map(chain, (text, one.text))) for one in found]
            return float(weights @ [d.item() for d in distances])

        names = {}

        def chain(text):
            return ag.chain_graph([names.setdefault(word, len(names)) for word in text.split()])

        risks = {one.text: risk(one.text) for one in found}
        assert risks[best.text] == pytest.approx(min(risks.values()))
        assert minimum_risk(found, 1000.0) == found[0]
        with pytest.raises(ValueError, match="must be one result or more"):
            minimum_risk([])

    def test_confusion_network(self):
        found = decoder().decode(scores(3, frames=20), nbest=30)[0]
        network = confusion_network(found, 0.3)
        for slot in network:
            assert sum(slot.probabilities) == pytest.approx(1)
            assert slot.probabilities == sorted(slot.probabilities, reverse=True)
            assert len({*slot.words}) == len(slot.words) == len(slot.probabilities)
        assert max(len(one.text.split()) for one in found) <= len(network)
        # Expected numbers of words agree.
        weights = np.exp([0.3 * (one.score - found[0].score) for one in found])
        weights /= weights.sum()
        expected = weights @ [len(one.text.split()) for one in found]
        parts = (p for s in network for w, p in zip(s.words, s.probabilities, strict=True) if w)
        assert sum(parts) == pytest.approx(expected)
        single = confusion_network(found[:1])
        assert " ".join(slot.words[0] for slot in single) == found[0].text
        with pytest.raises(ValueError, match="must be one result or more"):
            confusion_network([])


class TestLattices:
    @pytest.mark.parametrize("merge", ["max", "sum"])
    def test_gradients_reach_the_emissions(self, merge):
        x = scores(9, frames=7)
        plain = decoder(merge=merge, hotwords={"ab": 0.7}, **ALL)
        emissions = ag.linear_graph(*x.shape, x, dtype="float64")
        lattice = plain.lattice(emissions)
        fixed = plain.lattice(x)
        score = ag.forward_score(lattice)
        assert score.item() == pytest.approx(ag.forward_score(fixed).item(), abs=1e-4)
        ag.backward(score)
        # The posterior of each label of a frame.
        gradient = emissions.grad().weights_to_numpy().reshape(x.shape)
        assert gradient.sum(1) == pytest.approx(np.ones(7))
        posteriors = ag.arc_posteriors(fixed).weights_to_numpy()
        frames, labels = np.zeros(fixed.num_nodes(), int), fixed.ilabels()
        expected = np.zeros(x.shape)
        for src, dst, label, p in zip(
            fixed.src_nodes(), fixed.dst_nodes(), labels, posteriors, strict=True
        ):
            frames[dst] = frames[src] + (label >= 0)
            if label >= 0:
                expected[frames[src], label] += p
        assert gradient == pytest.approx(expected, abs=1e-4)

    def test_tensors(self):
        x = torch.tensor(scores(9, frames=7), dtype=torch.float64, requires_grad=True)
        plain = agt.CTCDecoder(LABELS, model(2), LEXICON, **ALL)
        loss = agt.tensor(ag.viterbi_score(plain.lattice(x)))
        loss.sum().backward()
        best = plain.decode(x)[0][0]
        assert loss.sum().item() == pytest.approx(best.score, abs=1e-4)
        assert x.grad.sum(1).tolist() == pytest.approx([1.0] * 7)
        for token in best.tokens:
            assert x.grad[token.start : token.end, token.label].tolist() == [1.0] * (
                token.end - token.start
            )


class TestObjects:
    class Bigram:
        """A back-off model called word by word."""

        def __init__(self, lm):
            self.lm, self.words = lm, []

        def start(self):
            return ()

        def score(self, state, word):
            longer = (*state, word)
            before = self.lm.score(list(state), end=False)
            return longer, self.lm.score(list(longer), end=False) - before

        def finish(self, state):
            return self.lm.score(list(state)) - self.lm.score(list(state), end=False)

    @pytest.mark.parametrize("merge", ["max", "sum"])
    def test_an_object_is_equal_to_the_model(self, merge):
        lm = model(2)
        x = [scores(seed, frames=12) for seed in range(4)]
        plain = CTCDecoder(LABELS, lm, LEXICON, merge=merge, beam=math.inf)
        objects = CTCDecoder(LABELS, self.Bigram(lm), LEXICON, merge=merge, beam=math.inf)
        for one, other in zip(plain.decode(x), objects.decode(x), strict=True):
            assert one[0].text == other[0].text
            assert one[0].score == pytest.approx(other[0].score, abs=1e-4)
            assert one[0].language == pytest.approx(other[0].language, abs=1e-4)
        stream = objects.stream()
        stream.push(x[0])
        assert stream.finish() == objects.decode(x[0])[0]

    def test_errors_of_an_object(self):
        class Bad(self.Bigram):
            def score(self, state, word):
                raise KeyError(word)

        with pytest.raises(KeyError, match="a"):
            CTCDecoder(LABELS, Bad(model(2)), LEXICON).decode([frames_of("a|b|")] * 3)

        class Infinite(self.Bigram):
            def score(self, state, word):
                return state, math.inf

        with pytest.raises(ValueError, match="scores of a language model must be finite or -inf"):
            CTCDecoder(LABELS, Infinite(model(2)), LEXICON).decode(frames_of("a|b|"))
        with pytest.raises(ValueError, match="must have a lexicon, but it is None"):
            CTCDecoder(LABELS, self.Bigram(model(2)))

    def test_binary_files_of_kenlm_need_kenlm(self, tmp_path, monkeypatch):
        path = tmp_path / "words.bin"
        path.write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0")
        monkeypatch.setitem(sys.modules, "kenlm", None)
        with pytest.raises(ImportError, match=r"needs the package kenlm, .*arcgrad\[kenlm\]"):
            CTCDecoder(LABELS, path, LEXICON)

    @pytest.mark.parametrize("boundaries", [True, False])
    def test_binary_files_of_kenlm(self, tmp_path, monkeypatch, boundaries):
        pytest.importorskip("kenlm")
        from arcgrad.decoding import _models

        lm = model(3)
        ag.ngram.save_arpa(lm, tmp_path / "words.arpa")
        binary = _models.KenLM(tmp_path / "words.arpa")  # kenlm reads both
        options = {"alpha": 0.8, "boundaries": boundaries, "beam": math.inf}
        x = [scores(seed, frames=12) for seed in range(4)]
        plain = CTCDecoder(LABELS, lm, LEXICON, **options).decode(x, nbest=3)
        found = CTCDecoder(LABELS, binary, LEXICON, **options).decode(x, nbest=3)
        for one, other in zip(plain, found, strict=True):
            assert [r.text for r in one] == [r.text for r in other]
            assert [r.score for r in one] == pytest.approx([r.score for r in other], abs=1e-4)


class TestPictures:
    def test_words_over_time(self):
        x = scores(3, frames=30)
        found = decoder().decode(x, nbest=3, confidences=True)[0]
        axes = ag.decoding.plot_words(found, x, frame_shift=0.02)
        words = [word.text for result in found for word in result.words]
        assert [text.get_text() for text in axes.texts] == words
        assert axes.get_xlim() == (0, pytest.approx(0.6))
        assert axes.images
        with pytest.raises(ValueError, match=r"background must be \[T, F\]"):
            ag.decoding.plot_words(found, x[0])

    def test_pruning_by_frame(self):
        x = scores(4, frames=30)
        plain = decoder(max_active=5, beam=3.0)
        counts = plain.pruning(x)
        report = plain.report(x)[0]
        assert counts["hypotheses"].sum() == report["hypotheses"]
        assert counts["hypotheses"].max() == report["most_hypotheses"]
        for name in ("below_beam", "beyond_active", "unread_tokens"):
            assert counts[name].shape == (30,)
            assert counts[name].sum() == report[name]
        axes = ag.decoding.plot_pruning(counts, frame_shift=0.01)
        assert axes.get_xlabel() == "time"
        assert len(axes.collections) == 3

    def test_posteriors_of_a_lattice(self):
        from arcgrad.decoding._pictures import word_posteriors

        x = frames_of("_aa_b|_b_aa", sure=-0.01)
        plain = CTCDecoder(LABELS, lexicon=["ab", "ba", "a"], beta=0.0, **ALL)
        found = word_posteriors(plain.lattice(x), plain.words)
        likely = [one for one in found if one[3] > 0.5]
        assert [one[0] for one in likely] == ["ab", "ba"]
        assert likely[0][3] <= 1 + 1e-6
        assert 4 <= likely[0][2] <= 6 <= likely[1][2]
        # Posteriors of the first word of the path add up to 1 with those of its alternatives.
        axes = ag.decoding.plot_lattice(plain.lattice(x), plain.words, frame_shift=0.02)
        assert any(text.get_text().startswith("ab") for text in axes.texts)

    def test_a_reliability_diagram(self):
        axes = calibration([0.9, 0.8, 0.2], [True, True, False]).plot()
        assert axes.get_title() == "expected calibration error 16.7%"
        assert [text.get_text() for text in axes.texts] == ["1", "1", "1"]

    def test_matplotlib_is_needed(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        with pytest.raises(ImportError, match=r"plot_pruning: pictures need matplotlib"):
            ag.decoding.plot_pruning(decoder().pruning(scores(1)))
