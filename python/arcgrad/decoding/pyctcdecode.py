"""The interface of pyctcdecode 0.5: ``from arcgrad.decoding.pyctcdecode import build_ctcdecoder``.

Programs switch by this import. Differences are listed in the guide on decoding.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arcgrad import _core
from arcgrad._arguments import checked, checked_class
from arcgrad.ngram import CompactModel

from ._labels import Labels
from ._language import read_model, shown
from .decoder import CTCDecoder
from .hypothesis import Hypothesis

# The least probability of a label.
LEAST = math.log(1e-15)
PAD = re.compile(r"[<\[]pad[>\]]", re.IGNORECASE)
# The number of decoders with different options that are kept.
MOST_KEPT = 8


class OutputBeam(NamedTuple):
    """A result: its text, the frames of each word, and its scores.

    >>> from arcgrad.decoding.pyctcdecode import OutputBeam
    >>> OutputBeam("a", None, [("a", (0, 1))], -0.1, -0.1).text
    'a'
    """

    text: str
    last_lm_state: Any
    text_frames: list[tuple[str, tuple[int, int]]]
    logit_score: float
    lm_score: float


@checked
def build_ctcdecoder(
    labels: Sequence[str],
    kenlm_model_path: str | None = None,
    unigrams: Iterable[str] | None = None,
    alpha: float = 0.5,
    beta: float = 1.5,
    unk_score_offset: float = -10.0,
    lm_score_boundary: bool = True,
) -> BeamSearchDecoderCTC:
    """A decoder with the interface of pyctcdecode.

    Args:
        labels: The labels; ``""``, ``"<pad>"``, ``"[PAD]"`` or ``"_"`` is the blank, ``" "`` or
            ``"|"`` separates words. Without a blank one is added at the end.
        kenlm_model_path: An ARPA file or a compact model.
        unigrams: The known words; by default those of the model.
        alpha: The weight of the model.
        beta: The score of a word.
        unk_score_offset: The decimal logarithm that is added for an unknown word.
        lm_score_boundary: Must be true: the model scores the begin and the end of a text.

    >>> import numpy as np
    >>> from arcgrad.decoding.pyctcdecode import build_ctcdecoder
    >>> decoder = build_ctcdecoder(["", " ", "a", "b"])
    >>> decoder.decode(4 * np.eye(4)[[2, 0, 3, 1, 2]])
    'ab a'
    """
    return BeamSearchDecoderCTC(
        labels, kenlm_model_path, unigrams, alpha, beta, unk_score_offset, lm_score_boundary
    )


@checked_class
class BeamSearchDecoderCTC:
    """The decoder that :func:`build_ctcdecoder` returns."""

    def __init__(
        self,
        labels: Sequence[str],
        model: str | None,
        unigrams: Iterable[str] | None,
        alpha: float,
        beta: float,
        unk_score_offset: float,
        lm_score_boundary: bool,
    ) -> None:
        op = "build_ctcdecoder"
        if not lm_score_boundary:
            raise ValueError(f"{op}: lm_score_boundary must be True, but it is False")
        names = ["" if PAD.fullmatch(name) else name for name in labels]
        if "" not in names:
            names = ["" if name == "_" else name for name in names]
        if "" not in names:
            names.append("")
        self._labels = Labels(op, names, names.index(""), None)
        lm = read_model(model)
        assert lm is None or isinstance(lm, CompactModel)
        self._options: dict[str, Any] = {"blank": names.index(""), "merge": "sum"}
        if lm is not None:
            known = list(dict.fromkeys(unigrams)) if unigrams is not None else lm.words()
            self._options |= {
                "lm": lm,
                "lexicon": self._spelled(lm, known) if unigrams is not None else None,
                "alpha": alpha,
                "beta": beta,
                "open_vocabulary": True,
                "unknown_score": alpha * unk_score_offset * math.log(10),
            }
        self._decoders: dict[Any, CTCDecoder] = {}

    def _spelled(self, lm: CompactModel, unigrams: list[str]) -> list[str]:
        """The words that the model has and the labels can spell."""
        known = [word for word, i in zip(unigrams, lm.find(unigrams), strict=True) if i >= 0]
        _, bad = _core.LexiconTree.from_words(
            known, self._labels.spelling_names(), self._labels.prefix
        )
        if bad:
            warnings.warn(
                f"build_ctcdecoder: the labels cannot spell {shown([known[i] for i in bad])}; "
                "these unigrams never occur",
                stacklevel=4,
            )
        return [word for i, word in enumerate(known) if i not in {*bad}]

    def decode(
        self,
        logits: NDArray[Any],
        beam_width: int = 100,
        beam_prune_logp: float = -10.0,
        token_min_logp: float = -5.0,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = 10.0,
        lm_start_state: None = None,
    ) -> str:
        """The best text of one example ``[T, C]`` of logits, probabilities or their logarithms."""
        found = self._beams(
            [logits], 1, beam_width, beam_prune_logp, token_min_logp, hotwords, hotword_weight
        )
        return found[0][0].text

    def decode_beams(
        self,
        logits: NDArray[Any],
        beam_width: int = 100,
        beam_prune_logp: float = -10.0,
        token_min_logp: float = -5.0,
        prune_history: bool = False,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = 10.0,
        lm_start_state: None = None,
    ) -> list[OutputBeam]:
        """The best results of one example, best first; ``prune_history`` has no effect."""
        return self._beams(
            [logits],
            beam_width,
            beam_width,
            beam_prune_logp,
            token_min_logp,
            hotwords,
            hotword_weight,
        )[0]

    def decode_batch(
        self,
        pool: Any,
        logits_list: Sequence[NDArray[Any]],
        beam_width: int = 100,
        beam_prune_logp: float = -10.0,
        token_min_logp: float = -5.0,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = 10.0,
    ) -> list[str]:
        """The best text of each example, on all threads; ``pool`` is not used."""
        found = self._beams(
            logits_list, 1, beam_width, beam_prune_logp, token_min_logp, hotwords, hotword_weight
        )
        return [beams[0].text for beams in found]

    def decode_beams_batch(
        self,
        pool: Any,
        logits_list: Sequence[NDArray[Any]],
        beam_width: int = 100,
        beam_prune_logp: float = -10.0,
        token_min_logp: float = -5.0,
        prune_history: bool = False,
        hotwords: Iterable[str] | None = None,
        hotword_weight: float = 10.0,
    ) -> list[list[OutputBeam]]:
        """The best results of each example, on all threads; ``pool`` is not used."""
        return self._beams(
            logits_list,
            beam_width,
            beam_width,
            beam_prune_logp,
            token_min_logp,
            hotwords,
            hotword_weight,
        )

    def _beams(
        self,
        examples: Sequence[NDArray[Any]],
        nbest: int,
        beam_width: int,
        beam_prune_logp: float,
        token_min_logp: float,
        hotwords: Iterable[str] | None,
        hotword_weight: float,
    ) -> list[list[OutputBeam]]:
        # Each word of a phrase is a hotword.
        words = tuple(dict.fromkeys(word for phrase in hotwords or () for word in phrase.split()))
        decoder = self._decoder(beam_width, -beam_prune_logp, words, hotword_weight)
        scores = [self._log_probs(logits, token_min_logp) for logits in examples]
        found = decoder.decode(scores, nbest=nbest) if scores else []
        return [[_beam(result) for result in results] for results in found]

    def _decoder(
        self, width: int, beam: float, words: tuple[str, ...], weight: float
    ) -> CTCDecoder:
        key = (width, beam, words, weight)
        if key not in self._decoders:
            if len(self._decoders) >= MOST_KEPT:
                self._decoders.clear()
            self._decoders[key] = CTCDecoder(
                self._labels.names,
                hotwords=dict.fromkeys(words, weight) or None,
                beam=beam,
                max_active=width,
                **self._options,
            )
        return self._decoders[key]

    def _log_probs(self, logits: Any, least: float) -> NDArray[Any]:
        """Log-probabilities; labels below `least` are -inf, apart from the best of a frame."""
        scores = np.asarray(logits, np.float64)
        if scores.ndim != 2 or scores.shape[1] != len(self._labels.names):
            raise ValueError(
                f"decode: logits must be [T, C] with {len(self._labels.names)} labels, but their "
                f"shape is {scores.shape}"
            )
        if len(scores) and math.isclose(scores.sum(axis=1).mean(), 1):
            with np.errstate(divide="ignore"):
                scores = np.log(np.clip(scores, 0, 1))
        elif len(scores):
            scores = scores - scores.max(axis=1, keepdims=True)
            scores = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
        scores = np.clip(scores, LEAST, 0)
        is_read = scores >= least
        is_read |= scores == scores.max(axis=1, keepdims=True, initial=-math.inf)
        return np.where(is_read, scores, -math.inf).astype(np.float32)


def _beam(result: Hypothesis) -> OutputBeam:
    frames = [(word.text, (word.start, word.end)) for word in result.words]
    return OutputBeam(result.text, None, frames, result.acoustic, result.score)
