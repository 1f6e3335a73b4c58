"""Programs written for pyctcdecode, torchaudio and flashlight."""

import itertools
import math

import decoder_oracles as oracles
import numpy as np
import pytest
from decoder_tasks import model, scores

import arcgrad as ag
from arcgrad.decoding import CTCDecoder
from arcgrad.decoding.flashlight import LexiconDecoderOptions, LexiconFreeDecoderOptions
from arcgrad.decoding.flashlight import decoder as with_options
from arcgrad.decoding.pyctcdecode import build_ctcdecoder

torch = pytest.importorskip("torch")
torchaudio = pytest.importorskip("arcgrad.torch.torchaudio")

NAMES = ["<pad>", " ", "a", "b"]


@pytest.fixture
def arpa(tmp_path):
    path = tmp_path / "words.arpa"
    ag.ngram.save_arpa(model(3, words=("a", "ab", "ba")), path)
    return str(path)


@pytest.fixture(scope="module")
def oracle_arpa(tmp_path_factory):
    path = tmp_path_factory.mktemp("oracles") / "words.arpa"
    oracles.save_model(path)
    return str(path)


@pytest.mark.parametrize("name", oracles.PYCTCDECODE)
def test_pyctcdecode(name, oracle_arpa):
    """The texts and scores are those of pyctcdecode 0.5.0."""
    has_model, build, options = oracles.PYCTCDECODE[name]
    decoder = build_ctcdecoder(oracles.LABELS, oracle_arpa if has_model else None, **build)
    expected = oracles.load()["pyctcdecode"][name]
    for x, there in zip(oracles.examples(), expected, strict=True):
        assert decoder.decode(x, **options) == there["text"]
        beams = decoder.decode_beams(x, **options)
        assert [beam.text for beam in beams[:5]] == [text for text, _, _ in there["beams"]]
        scores = np.array([(beam.logit_score, beam.lm_score) for beam in beams[:5]])
        assert scores == pytest.approx(np.array([beam[1:] for beam in there["beams"]]), abs=2e-5)


def test_pyctcdecode_calls(arpa):
    x = scores(1, frames=20)
    decoder = build_ctcdecoder(NAMES, arpa, ["a", "ab", "ba"], alpha=0.6, beta=0.5)
    beam = decoder.decode_beams(x, prune_history=True)[0]
    assert beam.text == decoder.decode(x)
    assert [word for word, _ in beam.text_frames] == beam.text.split()
    assert all(0 <= start < end <= 20 for _, (start, end) in beam.text_frames)
    assert decoder.decode_batch(None, [x, x[:0]]) == [decoder.decode(x), ""]
    assert decoder.decode_beams_batch(None, [x])[0] == decoder.decode_beams(x)
    before = decoder.decode_beams(x)[0].lm_score
    decoder.reset_params(alpha=0.0, beta=0.0, unk_score_offset=0.0)
    beam = decoder.decode_beams(x)[0]
    assert beam.lm_score == pytest.approx(beam.logit_score) != pytest.approx(before)


def test_pyctcdecode_normalizes_and_takes_hotwords():
    decoder = build_ctcdecoder(["a", "b", "|"])  # a blank is added at the end
    x = np.full((4, 4), -3.0)
    x[[0, 1, 2, 3], [0, 1, 2, 0]] = 3.0
    assert decoder.decode(x) == "ab a"
    assert decoder.decode(x + 100.0) == "ab a"
    assert decoder.decode(np.exp(x) / np.exp(x).sum(1, keepdims=True)) == "ab a"
    x[1, 0] = 2.9
    x[1, 1] = 2.8
    assert decoder.decode(x, hotwords=["ab"], hotword_weight=5.0) == "ab a"
    assert decoder.decode(x, token_min_logp=-0.01) == "a a"


def test_pyctcdecode_refuses(arpa, recwarn):
    decoder = build_ctcdecoder(NAMES)
    with pytest.raises(ValueError, match=r"logits must be .* with 4 labels"):
        decoder.decode(np.zeros((3, 5)))
    with pytest.raises(TypeError, match="lm_start_state must be None"):
        decoder.decode(np.zeros((3, 4)), lm_start_state=object())
    with pytest.warns(UserWarning, match="labels cannot spell 'ab', 'ba'; these unigrams never"):
        build_ctcdecoder(["", " ", "a"], arpa, ["a", "ab", "ba"])


@pytest.mark.parametrize("log_add", [False, True])
@pytest.mark.parametrize("has_lexicon", [False, True])
def test_torchaudio(tmp_path, arpa, log_add, has_lexicon):
    names = ["-", "|", "a", "b"]
    (tmp_path / "tokens.txt").write_text("\n".join(names) + "\n")
    (tmp_path / "lexicon.txt").write_text("a a |\nab a b |\nba b a |\n")
    decoder = torchaudio.ctc_decoder(
        lexicon=str(tmp_path / "lexicon.txt") if has_lexicon else None,
        tokens=str(tmp_path / "tokens.txt"),
        lm=arpa if has_lexicon else None,
        nbest=3,
        lm_weight=0.7,
        word_score=0.3 if has_lexicon else 0.0,
        log_add=log_add,
    )
    x = torch.tensor(np.stack([scores(seed, frames=20) for seed in range(3)]))
    found = decoder(x, torch.tensor([20, 15, 0]))
    own = CTCDecoder(
        names,
        arpa if has_lexicon else None,
        ["a", "ab", "ba"] if has_lexicon else None,
        blank="-",
        alpha=0.7 / math.log(10),
        beta=0.3 if has_lexicon else 0.0,
        merge="sum" if log_add else "max",
        beam=50,
        max_active=50,
    )
    if has_lexicon:
        x[:, 14] = x[:, 19] = torch.tensor([-25.0, -0.1, -25.0, -25.0])  # ends with a silence
        found = decoder(x, torch.tensor([20, 15, 0]))
    expected = own.decode(x.numpy(), [20, 15, 0], nbest=3)
    assert [len(results) for results in found] == [len(results) for results in expected]
    for result, one in zip(itertools.chain(*found), itertools.chain(*expected), strict=True):
        assert result.score == pytest.approx(one.score)
        assert result.words == ([word.text for word in one.words] if has_lexicon else [])
        assert result.tokens[0] == result.tokens[-1] == 1
        assert len(result.tokens) == len(result.timesteps)
        # Frame t is the time step t + 1.
        times = {int(t) - 1: int(c) for t, c in zip(result.timesteps, result.tokens, strict=True)}
        assert all(times.get(token.start, token.label) == token.label for token in one.tokens)
    assert decoder.idxs_to_tokens(torch.tensor([1, 2])) == ["|", "a"]


@pytest.mark.parametrize("name", oracles.FLASHLIGHT)
def test_flashlight(name, oracle_arpa):
    """With a wide beam, words and scores are those of flashlight-text 0.0.7."""
    lm_weight, word_score, sil_score, log_add = oracles.FLASHLIGHT[name]
    options = LexiconDecoderOptions(
        *(2000, len(oracles.LABELS), 1e9, lm_weight, word_score, -math.inf, sil_score), log_add
    )
    lexicon = {word: [*word, " "] for word in oracles.WORDS}
    found = with_options(options, oracles.LABELS, lexicon, oracle_arpa)
    expected = oracles.load()["flashlight"][name]
    for x, (text, score) in zip(oracles.examples(), expected, strict=True):
        best = found.decode(x)[0][0]
        assert best.text == text
        assert best.score == pytest.approx(score, abs=2e-4)


def test_flashlight_options(arpa):
    x = scores(5, frames=20)
    x[-1] = [-9.0, -0.1, -9.0, -9.0]  # ends with a silence
    names = ["#", "|", "a", "b"]
    options = LexiconDecoderOptions(60, 4, 40.0, 0.9, 0.2, -math.inf, 0.0, False)
    found = with_options(options, names, {"ab": ["ab|"], "a": ["a|"]}, arpa, blank="#")
    own = CTCDecoder(
        names, arpa, {"ab": ["ab"], "a": ["a"]}, blank="#", alpha=0.9 / math.log(10), beta=0.2,
        beam=40.0, max_active=60,
    )  # fmt: skip
    assert found.decode(x, nbest=5) == own.decode(x, nbest=5)
    free = with_options(LexiconFreeDecoderOptions(50, 4, 25.0), names, blank="#")
    assert free.decode(x)[0][0].text == CTCDecoder(names, blank="#").decode(x)[0][0].text
    opened = LexiconDecoderOptions(60, 4, 40.0, unk_score=-1.0)
    assert with_options(opened, names, ["ab"], blank="#").decode(x)[0]
    with pytest.raises(ValueError, match="must have no lexicon, but it has one"):
        with_options(LexiconFreeDecoderOptions(50, 4, 25.0), names, ["a"], blank="#")
    with pytest.raises(ValueError, match="must have a lexicon, but it is None"):
        with_options(options, names, blank="#")
