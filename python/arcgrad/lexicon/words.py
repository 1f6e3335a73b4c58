"""Words and the tokens that spell them."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from arcgrad._arguments import checked
from arcgrad._core import Graph, Trie

from .pieces import is_batch


@checked
def word_lexicon_graph(
    pronunciations: Sequence[Any] | Mapping[str, Any],
    *,
    weights: Any = None,
    calc_grad: bool = False,
    dtype: Any = "float32",
) -> Graph:
    """The transducer from tokens to the words they spell, for decoding.

    Common prefixes share nodes. The output label of a word is on the last arc of a pronunciation.

    Args:
        pronunciations: For each word a sequence of tokens, or a list of such sequences; as a dict,
            or as a list. The label of a word is its index.
        weights: One weight per pronunciation, in their order; by default 0.
        calc_grad: Whether backward computes a gradient for this graph.
        dtype: The type of the weights.

    Returns:
        A graph whose node 0 starts and accepts. Arc i is the last arc of pronunciation i and has
        its weight.

    Raises:
        ValueError: If a word has no pronunciation, an empty one or the same one twice, or the
            number of weights is not the number of pronunciations.

    >>> import arcgrad as ag
    >>> graph = ag.lexicon.word_lexicon_graph({"a": [0], "an": [[0, 1], [2, 1]]})
    >>> tokens = ag.compose(ag.chain_graph([2, 1, 0]), graph)
    >>> ag.viterbi_path(ag.remove(ag.project_output(tokens))).labels_to_list()
    [1, 0]
    """
    op = "word_lexicon_graph"
    entries: Mapping[Any, Any]
    if isinstance(pronunciations, Mapping):
        entries = pronunciations
    else:
        entries = dict(enumerate(pronunciations))
    spellings: list[list[int]] = []
    labels: list[int] = []
    for label, (word, listed) in enumerate(entries.items()):
        try:
            listed = listed if is_batch(listed) else [listed]
            ways = [list(map(operator.index, way)) for way in listed]
        except TypeError:
            raise TypeError(
                f"{op}: a pronunciation must be a list of tokens, or of such lists, but that of "
                f"word {word!r} is {listed!r}"
            ) from None
        for i, way in enumerate(ways):
            if not way:
                raise ValueError(
                    f"{op}: a pronunciation must have tokens, but word {word!r} has an empty one"
                )
            if min(way) < 0:
                raise ValueError(
                    f"{op}: tokens must be 0 or more, but word {word!r} has {min(way)}"
                )
            if way in ways[:i]:
                raise ValueError(
                    f"{op}: pronunciations of a word must differ, but word {word!r} has {way} twice"
                )
        spellings += ways
        labels += [label] * len(ways)
    graph = Trie(spellings, labels).graph(calc_grad=calc_grad, dtype=dtype)
    if weights is not None:
        values = np.asarray(weights, np.float64)
        if values.shape != (len(spellings),):
            raise ValueError(
                f"{op}: there must be one weight for each of {len(spellings)} pronunciations, but "
                f"the shape of the weights is {values.shape}"
            )
        graph.set_weights(np.append(values, np.zeros(graph.num_arcs() - len(values))))
    return graph
