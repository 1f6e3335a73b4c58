"""Programs written for pyctcdecode, torchaudio and flashlight."""

import itertools
import math

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


def test_pyctcdecode(arpa):
    x = scores(1, frames=20)
    decoder = build_ctcdecoder(NAMES, arpa, ["a", "ab", "ba"], alpha=0.6, beta=0.5)
    beams = decoder.decode_beams(x, beam_prune_logp=-30.0, token_min_logp=-30.0)
    own = CTCDecoder(
        NAMES,
        arpa,
        ["a", "ab", "ba"],
        alpha=0.6,
        beta=0.5,
        merge="sum",
        beam=30.0,
        open_vocabulary=True,
        unknown_score=-6.0 * math.log(10),
    )
    expected = own.decode(x, nbest=100)[0]
    assert [beam.text for beam in beams] == [one.text for one in expected]
    assert beams[0].lm_score == pytest.approx(expected[0].score, abs=1e-3)
    assert beams[0].logit_score == pytest.approx(expected[0].acoustic, abs=1e-3)
    words = [(word.text, (word.start, word.end)) for word in expected[0].words]
    assert beams[0].text_frames == words
    best = decoder.decode(x, beam_prune_logp=-30.0, token_min_logp=-30.0)
    assert best == beams[0].text
    assert decoder.decode_batch(None, [x, x[:0]]) == [decoder.decode(x), ""]
    assert decoder.decode_beams_batch(None, [x])[0] == decoder.decode_beams(x)


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
    with pytest.raises(ValueError, match="lm_score_boundary must be True"):
        build_ctcdecoder(NAMES, arpa, lm_score_boundary=False)
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


def test_flashlight_options(arpa):
    x = scores(5, frames=20)
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
