"""Rules that end an utterance in a stream, as those of Kaldi."""

from __future__ import annotations

import math
from typing import NamedTuple


class EndpointRule(NamedTuple):
    """An utterance ends if all conditions of a rule hold. Times are in seconds.

    Args:
        silence: The least time since the last token on the best path.
        length: The least time since the begin.
        needs_words: Whether a word must have been recognized.
        final_cost: How much worse the best complete result may be than the best path.

    >>> import arcgrad as ag
    >>> ag.decoding.EndpointRule(silence=0.8).needs_words
    True
    """

    silence: float = 0.0
    length: float = 0.0
    needs_words: bool = True
    final_cost: float = math.inf


#: No word for 5 seconds; a silence after a likely, a possible, or any end; 20 seconds.
ENDPOINT_RULES = (
    EndpointRule(silence=5.0, needs_words=False),
    EndpointRule(silence=0.5, final_cost=2.0),
    EndpointRule(silence=1.0, final_cost=8.0),
    EndpointRule(silence=2.0),
    EndpointRule(length=20.0, needs_words=False),
)
