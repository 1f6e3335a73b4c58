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

from ._labels import BEGIN, Labels
from ._language import Lexicon, lexicon_of_model, read_model, shown
from .decoder import CTCDecoder
from .hypothesis import Hypothesis

OP = "build_ctcdecoder"
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
        lm_score_boundary: Whether the model scores the begin and the end of a text.

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
        names = ["" if PAD.fullmatch(name) else name for name in labels]
        if "" not in names:
            names = ["" if name == "_" else name for name in names]
        if "" not in names:
            names.append("")
        self._labels = Labels(OP, names, names.index(""), None)
        lm = read_model(model)
        assert lm is None or isinstance(lm, CompactModel)
        self._lm: CompactModel | None = lm
        self._lexicon = self._read_words(unigrams)
        self._parameters: dict[str, Any] = {
            "alpha": alpha,
            "beta": beta,
            "unk_score_offset": unk_score_offset,
            "lm_score_boundary": lm_score_boundary,
        }
        self._decoders: dict[Any, CTCDecoder] = {}

    def _read_words(self, unigrams: Iterable[str] | None) -> Lexicon:
        """The known words: those that the model has and the labels can spell."""
        lm = self._lm
        if lm is None or not self._labels.has_words:
            return Lexicon([], _core.LexiconTree([], []), True)
        if unigrams is None:
            return lexicon_of_model(OP, lm, self._labels)
        listed = list(dict.fromkeys(unigrams))
        known = [word for word, i in zip(listed, lm.find(listed), strict=True) if i >= 0]
        names, prefix = self._labels.spelling_names(), self._labels.prefix
        _, bad = _core.LexiconTree.from_words(known, names, prefix)
        if bad:
            warnings.warn(
                f"{OP}: the labels cannot spell {shown([known[i] for i in bad])}; these unigrams "
                "never occur",
                stacklevel=5,
            )
        known = [word for i, word in enumerate(known) if i not in {*bad}]
        tree, _ = _core.LexiconTree.from_words(known, names, prefix)
        return Lexicon(known, tree, True)

    def reset_params(
        self,
        alpha: float | None = None,
        beta: float | None = None,
        unk_score_offset: float | None = None,
        lm_score_boundary: bool | None = None,
    ) -> None:
        """Changes parameters of the language model."""
        given = {
            "alpha": alpha,
            "beta": beta,
            "unk_score_offset": unk_score_offset,
            "lm_score_boundary": lm_score_boundary,
        }
        self._parameters |= {name: value for name, value in given.items() if value is not None}
        self._decoders.clear()

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
            [logits], 1, beam_width, beam_prune_logp, token_min_logp, True, hotwords, hotword_weight
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
        """The best results of one example, best first.

        With ``prune_history``, results with words that the model has forgotten are not kept apart.
        """
        return self._beams(
            [logits],
            beam_width,
            beam_width,
            beam_prune_logp,
            token_min_logp,
            prune_history,
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
            *(logits_list, 1, beam_width, beam_prune_logp, token_min_logp, True),
            *(hotwords, hotword_weight),
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
            prune_history,
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
        prune_history: bool,
        hotwords: Iterable[str] | None,
        hotword_weight: float,
    ) -> list[list[OutputBeam]]:
        # Each word of a phrase is a hotword.
        words = tuple(dict.fromkeys(word for phrase in hotwords or () for word in phrase.split()))
        decoder = self._decoder(beam_width, -beam_prune_logp, prune_history, words, hotword_weight)
        scores = [self._log_probs(logits, token_min_logp) for logits in examples]
        found = decoder.decode(scores, nbest=nbest) if scores else []
        return [
            [_beam(one) for one in results if one.score >= results[0].score + beam_prune_logp]
            for results in found
        ]

    def _decoder(
        self, width: int, beam: float, forgets: bool, words: tuple[str, ...], weight: float
    ) -> CTCDecoder:
        key = (width, beam, forgets, words, weight)
        if key not in self._decoders:
            if len(self._decoders) >= MOST_KEPT:
                self._decoders.clear()
            self._decoders[key] = self._new_decoder(width, beam, forgets, words, weight)
        return self._decoders[key]

    def _new_decoder(
        self, width: int, beam: float, forgets: bool, words: tuple[str, ...], weight: float
    ) -> CTCDecoder:
        own, lm = self._labels, self._lm
        options: dict[str, Any] = {"blank": own.blank, "beam": beam, "max_active": width}
        spelled = [word for word in words if _core.spell(word, own.spelling_names(), own.prefix)]
        options["hotwords"] = dict.fromkeys(spelled, weight) or None
        if not own.has_words:
            return CTCDecoder(own.names, merge="sum", **options)
        alpha, beta, offset, boundaries = self._parameters.values()
        unknown = 0.0
        if lm is not None:
            # KenLM gives unknown words this score if the model has none.
            unknown = alpha * (offset + (0.0 if lm.unknown >= 0 else -100.0)) * math.log(10)
            options |= {"lm": lm, "alpha": alpha, "boundaries": boundaries}
        letters = [len(name.replace(BEGIN, "")) for name in own.names]
        num_compared = 1 if lm is None else max(1, len(lm.sizes) - 1)

        class Search(CTCDecoder):
            _search_options = CTCDecoder._search_options | {
                "unfinished": (offset if lm is not None else 0.0, letters),
                "compared_words": num_compared if forgets else 0,
            }

        return Search(
            own.names,
            lexicon=self._lexicon,  # type: ignore[arg-type]
            beta=beta if lm is not None else 0.0,
            open_vocabulary=True,
            unknown_score=unknown,
            merge="sum",
            **options,
        )

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
