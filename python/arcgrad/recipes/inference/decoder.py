"""Decode emissions to texts: the best path, or a search with a lexicon and a language model."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad import _files
from arcgrad.recipes.data import BOUNDARY, Letters, Tokenizer
from arcgrad.recipes.data.manifests import NUM_NAMED, first_names
from arcgrad.recipes.recognizer import Recognizer

__all__ = ["BEAM", "Decoder", "Transcript", "read_lexicon"]

#: The default beam: nodes whose score is lower than the best of their frame by more are pruned.
BEAM = 15.0

Lexicon = Mapping[str, Sequence[Sequence[int]]]


@dataclass(frozen=True)
class Transcript:
    """A decoded text.

    Attributes:
        text: The text.
        score: The log-probability of its best path, plus the weighted scores of the language model
            and the word scores, if there are any.
    """

    text: str
    score: float


def read_lexicon(path: str | os.PathLike[str], tokenizer: Tokenizer) -> dict[str, list[list[int]]]:
    r"""Read the words of a file, with the tokens that spell them.

    Args:
        path: A text file with one word per line, followed by the tokens that spell it; without
            tokens the tokenizer spells the word. A word with several spellings has several lines.
        tokenizer: The tokenizer of the run.

    Returns:
        The spellings of each word, as labels of the tokenizer.

    Raises:
        ValueError: If there is no word, or some cannot be spelled; the message counts them and
            names their lines.
        OSError: If there is no such file.

    >>> from pathlib import Path
    >>> from arcgrad.recipes.data import Letters
    >>> from arcgrad.recipes.inference import read_lexicon
    >>> _ = Path("words.txt").write_text("ab\nb\n&  a b\n")
    >>> read_lexicon("words.txt", Letters(("▁", "a", "b")))
    {'ab': [[1, 2]], 'b': [[2]], '&': [[1, 2]]}
    """
    labels = {token: label for label, token in enumerate(tokenizer.tokens)}
    words: dict[str, list[list[int]]] = {}
    bad = []
    lines = _files.read_text("read_lexicon", path).split("\n")
    for number, line in enumerate(lines, 1):
        word, *tokens = line.split() or [""]
        if not word:
            continue
        try:
            spelling = [labels[token] for token in tokens] or tokenizer.encode(word)
        except (KeyError, ValueError):
            bad.append(f"{word} on line {number}")
            continue
        spellings = words.setdefault(word, [])
        if spelling not in spellings:
            spellings.append(spelling)
    if bad:
        raise ValueError(
            f"read_lexicon: tokens must spell all words of {str(path)!r}, but {len(bad)} of "
            f"{len(words) + len(bad)} cannot be spelled: {first_names(bad)}"
        )
    if not words:
        raise ValueError(f"read_lexicon: {str(path)!r} must have a word, but it has none")
    return words


class Decoder:
    """Decodes the emissions of a recogniser.

    Without a beam, a lexicon and a language model the text is the best path, as in the evaluation
    of a run. Otherwise :func:`arcgrad.torch.beam_search` searches a graph: the tokens and
    transitions of the recogniser, composed with the lexicon and the language model.

    Args:
        recognizer: The recogniser.
        beam: Prune nodes whose score is lower than the best of their frame by more than this; None
            for :data:`BEAM` if there is a lexicon or a model. Infinity gives an exact search.
        max_active: The maximum number of nodes kept per frame.
        lexicon: Words and their spellings, by :func:`read_lexicon`; the text has no other words.
        model: A language model over words if there is a lexicon, else over tokens, by name.
        model_weight: The factor of the scores of the language model.
        word_score: The score added for each word of the lexicon.

    Raises:
        ValueError: If the model does not know the words or tokens, or knows other ones; a number is
            out of its range; or the lexicon is empty, or has a word without a spelling.

    >>> import torch
    >>> from arcgrad.recipes.data import Letters
    >>> from arcgrad.recipes.experiments import find
    >>> from arcgrad.recipes.inference import Decoder
    >>> from arcgrad.recipes.recognizer import Recognizer
    >>> recognizer = Recognizer(find("demo"), Letters(("▁", "a", "b")), height=16)
    >>> frames = torch.tensor([2, 3, 3, 0, 3])  # a b b - b
    >>> emissions = torch.eye(4)[frames].mul(3).log_softmax(-1)
    >>> Decoder(recognizer)(emissions)[0].text
    'abb'
    >>> Decoder(recognizer, lexicon={"ab": [[1, 2]]})(emissions)[0].text
    'ab'
    """

    def __init__(
        self,
        recognizer: Recognizer,
        *,
        beam: float | None = None,
        max_active: int | None = None,
        lexicon: Lexicon | None = None,
        model: ag.ngram.Model | None = None,
        model_weight: float = 1.0,
        word_score: float = 0.0,
    ) -> None:
        if beam is not None and not beam > 0:
            raise ValueError(f"Decoder: the beam must be positive, but it is {beam}")
        if not model_weight >= 0:
            raise ValueError(f"Decoder: the weight must not be negative, but it is {model_weight}")
        if model is not None and model.symbols is None:
            raise ValueError(
                "Decoder: the words of a language model must have names, but they have none"
            )
        if lexicon is not None and (
            not lexicon or not all(ways and all(ways) for ways in lexicon.values())
        ):
            raise ValueError(
                "Decoder: a lexicon must have words, each with a spelling in tokens, but it is "
                f"{dict(list(lexicon.items())[:NUM_NAMED])}"
            )
        self._recognizer = recognizer
        self._transitions = recognizer.criterion.transition_graph()
        self._words = None if lexicon is None else list(lexicon)
        self._is_search = beam is not None or lexicon is not None or model is not None
        self._beam, self._max_active = BEAM if beam is None else beam, max_active
        if not self._is_search:
            return
        tokens = recognizer.criterion.tokens
        if lexicon is None and model is None and _is_ambiguous(tokens):
            # Equal labels in a row count as one token, as on the best path. Without a blank the
            # tokens get an artificial one, which occurs in no frame.
            count, blank_label = tokens.num_labels, tokens.blank_label
            if blank_label is None:
                count, blank_label = count + 1, count
            tokens = ag.tokens.Tokens(
                count, blank="optional", blank_label=blank_label, allow_repeats=False
            )
        graph = tokens.graph()
        if self._transitions is not None:
            graph = ag.compose(self._transitions, graph)
        texts = self._texts(lexicon, model, model_weight, word_score)
        self._graph = graph if texts is None else ag.compose(graph, texts)

    def _texts(
        self,
        lexicon: Lexicon | None,
        model: ag.ngram.Model | None,
        model_weight: float,
        word_score: float,
    ) -> ag.Graph | None:
        """Return the graph from tokens to tokens or words, with the scores of texts."""
        tokenizer, first = self._recognizer.tokenizer, self._recognizer.first_label
        if lexicon is None:
            if model is None:
                return None
            names = set(tokenizer.tokens)
            others = [
                name
                for i, name in enumerate(model.symbols or ())
                if name not in names and i != model.unknown
            ]
            if others:
                raise ValueError(
                    "Decoder: without a lexicon the words of a language model must be tokens, but "
                    f"{first_names(others)} are not; a model of words needs a lexicon"
                )
            return _model_graph(model, tokenizer.tokens, first, model_weight)
        words = _lexicon_graph(lexicon, tokenizer, first, word_score)
        if model is None:
            return words
        return ag.compose(words, _model_graph(model, list(lexicon), 0, model_weight))

    @torch.no_grad()
    def __call__(self, emissions: Tensor, nbest: int = 1) -> list[Transcript]:
        """Return the best texts of an example, best first.

        Args:
            emissions: Log-probabilities ``[T, C]``, by :func:`log_probs`.
            nbest: The maximum number of texts; the best path is always a single one.

        Returns:
            The texts; an empty list if the beam was too narrow or no text fits into the frames.
        """
        total = 0.0
        with ag.no_grad():
            graph: Any = agt.emissions(emissions)
            if self._transitions is not None:
                total = ag.forward_score(ag.intersect(self._transitions, graph)).item()
            if not self._is_search:
                labels = self._recognizer.criterion.viterbi(emissions)[0]
                score = self._path_score(labels, graph) - total
                return [Transcript(self._text(labels), score)] if score > -math.inf else []
        found = agt.beam_search(
            emissions, self._graph, beam=self._beam, max_active=self._max_active, nbest=nbest
        )[0]
        scores: dict[str, float] = {}
        for each in found:
            # Label sequences that differ only in boundaries at the ends are the same text.
            scores.setdefault(self._text(each.labels), each.score - total)
        return [Transcript(text, score) for text, score in scores.items()]

    def _path_score(self, labels: list[int], emissions: Any) -> float:
        """Return the score of the best path that spells labels."""
        paths = ag.tokens.alignment_graph(self._recognizer.criterion.tokens, labels)
        if self._transitions is not None:
            paths = ag.intersect(paths, self._transitions)
        score: float = ag.viterbi_score(ag.intersect(paths, emissions)).item()
        return score

    def _text(self, labels: Sequence[int]) -> str:
        if self._words is not None:
            return " ".join(self._words[label] for label in labels)
        first = self._recognizer.first_label
        return self._recognizer.tokenizer.decode(label - first for label in labels)


def _is_ambiguous(tokens: ag.tokens.Tokens) -> bool:
    """Return whether repeated labels can be one token or several."""
    limits = (tokens.min_frames, tokens.max_frames, tokens.min_blanks, tokens.max_blanks)
    has_limits = limits != (1, None, 0, None) or bool(tokens.overrides)
    return tokens.allow_repeats and tokens.blank != "forced" and not has_limits


def _lexicon_graph(
    lexicon: Lexicon, tokenizer: Tokenizer, first_label: int, word_score: float
) -> ag.Graph:
    """Return the transducer from tokens to the words they spell.

    A word is the output of its first token. So the composition with a language model has a size
    proportional to the number of n-grams, and its scores apply from the start of a word.
    """
    start, begin, end = 0, 0, 0
    arcs: list[tuple[int, int, int, int, float]] = []
    accept = [0]
    num_nodes = 1
    if isinstance(tokenizer, Letters) and not tokenizer.leading_boundary:
        # The spellings lack the boundary, so the graph adds it between two words.
        begin, end, num_nodes = 1, 2, 3
        arcs.append((start, begin, ag.epsilon, ag.epsilon, 0.0))
        accept = [end]
        if BOUNDARY in tokenizer.tokens:
            boundary = tokenizer.tokens.index(BOUNDARY) + first_label
            arcs.append((end, begin, boundary, ag.epsilon, 0.0))
            accept = [start, end]
    for word, spellings in enumerate(lexicon.values()):
        for spelling in spellings:
            node, output, weight = begin, word, word_score
            for i, label in enumerate(spelling, 1):
                target = end if i == len(spelling) else num_nodes
                num_nodes += target == num_nodes
                arcs.append((node, target, label + first_label, output, weight))
                node, output, weight = target, ag.epsilon, 0.0
    src, dst, ilabel, olabel, weights = zip(*arcs, strict=True)
    return ag.Graph.from_arrays(
        src,
        dst,
        ilabel,
        olabel,
        weights,
        start=[start],
        accept=accept,
        num_nodes=num_nodes,
        calc_grad=False,
    )


def _model_graph(
    model: ag.ngram.Model, names: Sequence[str], first_label: int, weight: float
) -> ag.Graph:
    """Return a language model over names, whose labels are their indices.

    Names that the model lacks are mapped to its unknown word.
    """
    words = {name: i for i, name in enumerate(model.symbols or ())}
    missing = [name for name in names if name not in words]
    if missing and (model.unknown is None or len(missing) == len(names)):
        raise ValueError(
            f"Decoder: the language model must know all {len(names)} words or tokens, or have "
            f"<unk> and know some, but it lacks {len(missing)}: {first_names(missing)}"
        )
    graph = model.graph(dtype="float64")
    src, dst, labels, _, weights = graph.arcs()
    kept = labels == ag.epsilon
    columns = [(src[kept], dst[kept], labels[kept], weights[kept])]
    # An arc of the model becomes one arc for each name that maps to its label.
    word_of = np.array([words.get(name, model.unknown or 0) for name in names])
    order = np.argsort(word_of, kind="stable")
    begin, end = (np.searchsorted(word_of[order], labels, side) for side in ("left", "right"))
    counts = np.where(kept, 0, end - begin)
    arcs = np.repeat(np.arange(len(labels)), counts)
    within = np.arange(len(arcs)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns.append((src[arcs], dst[arcs], order[begin[arcs] + within] + first_label, weights[arcs]))
    src, dst, labels, weights = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    # A score of -inf stays -inf, even with weight 0.
    scaled = np.where(np.isneginf(weights), -np.inf, weight * np.nan_to_num(weights, neginf=0.0))
    return ag.Graph.from_arrays(
        src,
        dst,
        labels,
        weight=scaled,
        start=graph.start(),
        accept=graph.accept(),
        num_nodes=graph.num_nodes(),
        calc_grad=False,
    )
