"""Searches that read frames as they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from arcgrad import _core

from ._endpoint import ENDPOINT_RULES, EndpointRule
from ._labels import SEPARATOR
from .hypothesis import Hypothesis, Partial, Token

if TYPE_CHECKING:
    from .decoder import CTCDecoder


class Stream:
    """A search that reads frames as they come; see :meth:`CTCDecoder.stream`.

    >>> import arcgrad as ag
    >>> stream = ag.decoding.CTCDecoder(["", "a", "b"]).stream()
    >>> stream.num_frames
    0
    """

    def __init__(self, decoder: CTCDecoder, nbest: int = 1, confidences: bool = False) -> None:
        if nbest < 1:
            raise ValueError(f"stream: nbest must be 1 or more, but it is {nbest}")
        self._decoder, self._nbest, self._confidences = decoder, nbest, confidences
        self._stream = _core.BeamStream(decoder._decoder, nbest > 1 or confidences)

    @property
    def num_frames(self) -> int:
        """How many frames were read."""
        count: int = self._stream.num_frames()
        return count

    def push(self, log_probs: Any) -> Partial:
        """Reads frames ``[T, C]``; returns what is recognized so far."""
        self._stream.push(self._decoder._array("push", log_probs, (2,)))
        return self.partial()

    def partial(self) -> Partial:
        """The best text so far, and the part of it that later frames cannot change."""
        decoder = self._decoder
        result = self._stream.partial()
        tokens, words, stable_words, stable_tokens = result[5:]
        labels = [token[0] for token in tokens]
        if not decoder._is_words:
            text = decoder._labels.text(labels)
            return Partial(text, decoder._labels.text(labels[:stable_tokens]))
        named = [decoder._word(word, list(map(Token._make, tokens)), False).text for word in words]
        rest = decoder._labels.text(labels[words[-1][2] if words else 0 :])
        text = " ".join([*named, rest] if rest else named)
        return Partial(text, " ".join(named[:stable_words]))

    @property
    def trailing_frames(self) -> int:
        """How many frames have passed since the last token of the best path, or since the begin."""
        roles = self._decoder._labels.roles
        tokens = self._stream.partial()[5]
        ends = [end for label, _, end in tokens if roles[label] != SEPARATOR]
        return self.num_frames - (ends[-1] if ends else 0)

    @property
    def final_cost(self) -> float:
        """The best path's score minus that of the best that may end here; inf if none may."""
        cost: float = self._stream.final_cost()
        return cost

    def endpoint(
        self, frame_shift: float, rules: Iterable[EndpointRule] = ENDPOINT_RULES
    ) -> EndpointRule | None:
        """The first rule by which the utterance ends here, or None.

        Call :meth:`finish` then, and begin a new stream.

        Args:
            frame_shift: The time of a frame in seconds.
            rules: By default those of Kaldi.

        >>> import arcgrad as ag, numpy as np
        >>> stream = ag.decoding.CTCDecoder(["", "a", "b"]).stream()
        >>> _ = stream.push(np.log([[0.1, 0.8, 0.1], *[[0.98, 0.01, 0.01]] * 10]))
        >>> stream.endpoint(frame_shift=0.02) is None
        True
        >>> stream.endpoint(frame_shift=0.06)
        EndpointRule(silence=0.5, length=0.0, needs_words=True, final_cost=2.0)
        """
        if not frame_shift > 0:
            raise ValueError(f"endpoint: frame_shift must be positive, but it is {frame_shift}")
        trailing, cost = self.trailing_frames, self.final_cost
        has_words = trailing < self.num_frames
        for rule in rules:
            if (
                trailing * frame_shift >= rule.silence
                and self.num_frames * frame_shift >= rule.length
                and (has_words or not rule.needs_words)
                and cost <= rule.final_cost
            ):
                return rule
        return None

    def finish(self) -> list[Hypothesis]:
        """The results if the input ended here: those of :meth:`CTCDecoder.decode`."""
        found = self._stream.finish(self._nbest, self._confidences)
        return [self._decoder._hypothesis(result, self._confidences) for result in found]

    def report(self) -> dict[str, int]:
        """What was read and pruned so far, as :meth:`CTCDecoder.report` describes it."""
        report: dict[str, int] = self._stream.report()
        return report
