"""Decoding with a lexicon, a language model and hotwords."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from arcgrad import _core
from arcgrad._arguments import checked_class
from arcgrad.ngram import CompactModel, Model
from arcgrad.tokens import Tokens

from ._labels import Labels
from ._language import (
    grammar,
    is_of_labels,
    label_numbers,
    lexicon_of_labels,
    lexicon_of_model,
    read_lexicon,
    read_model,
    shown,
)
from ._models import LanguageModel
from .hypothesis import Hypothesis, Token, Word
from .stream import Stream

OP = "CTCDecoder"
# The most spellings of a hotword in word pieces.
MOST_SPELLINGS = 16


@checked_class
class CTCDecoder:
    """A beam search with a lexicon, a language model and hotwords, composed on the fly.

    The score of a text is that of its tokens, plus ``alpha`` times that of the language model, plus
    ``beta`` for each word, plus the boosts of hotwords in it. Scores are natural logarithms.

    - With a ``lexicon``, or a language model of words, results are words. Labels between words
      (``" "``, ``"|"``), or labels that begin words (``"▁the"``), tell where they end; without such
      labels a word ends with its spelling.
    - Without a lexicon, the words of the language model are the lexicon, and other words can be
      spelled too (``open_vocabulary``).
    - Without both, or with a language model of labels, any sequence of labels is a result.

    Args:
        labels: The names of the labels, with the blank.
        lm: A language model: an ARPA file or a file by :meth:`CompactModel.save`, a model of
            ``arcgrad.ngram``, or an acceptor whose labels are the indices of words (of labels,
            without a lexicon). It is of labels if all its words are labels, else of words. With a
            lexicon, also a binary file of KenLM (extra ``kenlm``) or a :class:`LanguageModel`.
        lexicon: A list of words; a mapping from words to a spelling, or to several: lists of
            labels; or a file with a word and its labels on each line.
        alpha: The weight of the language model.
        beta: The score of each word, or of each label if the language model is of labels.
        hotwords: Phrases that get a boost, or a mapping from phrases to boosts.
        hotword_weight: The boost of each word of a phrase, if ``hotwords`` is a list.
        blank: The blank, as a label or its index. By default the label with a usual name, such as
            ``""``, ``"<blank>"``, ``"<pad>"``.
        separator: The label between words; by default ``" "`` or ``"|"``. ``""`` for no label.
        open_vocabulary: Whether words that the lexicon lacks can be spelled by any labels. By
            default if there is no lexicon.
        unknown_score: The score of each word that the lexicon lacks, in addition to that of
            ``<unk>`` in the language model.
        silence_score: The score of each separator that ends no word.
        beam: Hypotheses whose score is this much below the best of their frame are pruned.
        max_active: The largest number of hypotheses.
        token_beam: Labels whose score is this much below the best of a frame are not read.
        max_tokens: The largest number of labels that are read in a frame.
        merge: ``"max"``: the score of a text is that of its best path. ``"sum"``: the sum over all
            its paths that the search keeps (prefix search).
        boundaries: Whether the language model scores the begin and the end of a text.
        confidence_scale: Confidences are posteriors of scores times this. Values below 1 make them
            less sure; see :func:`calibration`.
        tokens: The rules by which frames spell labels; by default those of CTC.

    Raises:
        ValueError: If labels, lexicon, language model and hotwords do not fit each other. Words
            that cannot be spelled are listed.

    A decoder does not change, and several threads may use it. Time: per frame, linear in the
    hypotheses and the labels that continue them within the beam, whatever the sizes of lexicon and
    model.

    >>> import arcgrad as ag, numpy as np
    >>> decoder = ag.decoding.CTCDecoder(["<blank>", "|", "a", "c", "t"], lexicon=["act", "cat"])
    >>> log_probs = np.log(np.full((5, 5), 0.1) + 0.5 * np.eye(5)[[3, 2, 4, 4, 0]])
    >>> decoder.decode(log_probs)[0][0].text
    'cat'
    """

    # What only the decoders for programs of other libraries change.
    _search_options: ClassVar[dict[str, Any]] = {
        "unfinished": None,
        "compared_words": 0,
        "like_flashlight": False,
    }

    def __init__(
        self,
        labels: Sequence[str],
        lm: str
        | os.PathLike[str]
        | CompactModel
        | Model
        | _core.Graph
        | LanguageModel
        | None = None,
        lexicon: str | os.PathLike[str] | Mapping[str, Any] | Sequence[str] | None = None,
        *,
        alpha: float = 0.5,
        beta: float = 1.0,
        hotwords: Mapping[str, float] | Sequence[str] | None = None,
        hotword_weight: float = 5.0,
        blank: int | str | None = None,
        separator: int | str | None = None,
        open_vocabulary: bool | None = None,
        unknown_score: float = -10.0,
        silence_score: float = 0.0,
        beam: float = 25.0,
        max_active: int = 100,
        token_beam: float = math.inf,
        max_tokens: int | None = None,
        merge: Literal["max", "sum"] = "max",
        boundaries: bool = True,
        confidence_scale: float = 1.0,
        tokens: Tokens | None = None,
    ) -> None:
        if merge not in ("max", "sum"):
            raise ValueError(f"{OP}: merge must be 'max' or 'sum', but it is {merge!r}")
        self._labels = own = Labels(OP, labels, blank, separator)
        if tokens is None:
            tokens = Tokens.ctc(len(own.names), own.blank)
        if tokens.num_labels != len(own.names):
            raise ValueError(
                f"{OP}: tokens must have {len(own.names)} labels, as many as there are names, but "
                f"they have {tokens.num_labels}"
            )
        model = read_model(lm)
        is_words = lexicon is not None or (
            isinstance(model, CompactModel) and not is_of_labels(model, own)
        )
        if isinstance(model, LanguageModel) and lexicon is None:
            raise ValueError(
                f"{OP}: a language model that cannot list its words must have a lexicon, but it is "
                "None"
            )
        is_sum = merge == "sum"
        numbers = None
        if lexicon is not None:
            words = read_lexicon(OP, lexicon, own)
        elif is_words:
            assert isinstance(model, CompactModel)
            words = lexicon_of_model(OP, model, own)
        else:
            words = lexicon_of_labels(own)
            if isinstance(model, CompactModel):
                numbers = label_numbers(OP, model, own)
        self._lexicon = words
        self._is_words = is_words
        if open_vocabulary is None:
            open_vocabulary = is_words and lexicon is None and own.has_words
        if open_vocabulary and not (is_words and own.has_words):
            raise ValueError(
                f"{OP}: an open vocabulary must have a label that separates or begins words, and a "
                "lexicon or a language model of words, but "
                + ("the labels have none" if is_words else "there is no lexicon")
            )
        used: _core.Grammar | None
        if numbers is not None:
            assert isinstance(model, CompactModel)
            used = _core.Grammar.from_model(model, numbers, boundaries, boundaries)
        else:
            used = grammar(OP, model, words, is_sum, boundaries)
        phrases, boosts = self._phrases(hotwords, hotword_weight)
        self._decoder = _core.BeamDecoder(
            tokens,
            own.roles,
            words.tree,
            used,
            phrases,
            boosts,
            beam=beam,
            max_active=max_active,
            token_beam=token_beam,
            max_tokens=len(own.names) if max_tokens is None else max_tokens,
            is_sum=is_sum,
            lm_weight=alpha,
            word_score=beta if is_words or model is not None else 0.0,
            unknown_score=unknown_score if open_vocabulary else 0.0,
            silence_score=silence_score,
            is_open=open_vocabulary,
            has_label_words=not is_words,
            confidence_scale=confidence_scale,
            **self._search_options,
        )

    @property
    def labels(self) -> list[str]:
        """The names of the labels."""
        return [*self._labels.names]

    @property
    def words(self) -> list[str]:
        """The words of the lexicon, in the order of the output labels of lattices."""
        return [*self._lexicon.words]

    def decode(
        self, log_probs: Any, lengths: Any = None, nbest: int = 1, *, confidences: bool = False
    ) -> list[list[Hypothesis]]:
        """The best results of each example, best first.

        Args:
            log_probs: Scores ``[T, C]`` or ``[B, T, C]``, or a list of arrays ``[T, C]``.
            lengths: The number of frames of each example of a batch.
            nbest: The number of results with different texts.
            confidences: Whether words have posterior probabilities.

        Returns:
            A list of at most ``nbest`` results for each example. It is empty only if no path has a
            finite score.

        Raises:
            ValueError: If a score is NaN or +inf, or there are not as many as labels.

        Batches use all threads.

        >>> import arcgrad as ag, numpy as np
        >>> decoder = ag.decoding.CTCDecoder(["", "a", "b"])
        >>> log_probs = np.log([[[0.1, 0.8, 0.1], [0.1, 0.2, 0.7]]])
        >>> [found.text for found in decoder.decode(log_probs, nbest=2)[0]]
        ['ab', 'a']
        """
        examples = self._examples("decode", log_probs, lengths)
        found, _ = self._decoder.decode(examples, nbest, confidences)
        return [[self._hypothesis(result, confidences) for result in results] for results in found]

    def report(self, log_probs: Any, lengths: Any = None) -> list[dict[str, int]]:
        """What the search of each example reads and prunes.

        Returns:
            For each example the number of ``frames``; ``hypotheses``, the sum of their numbers over
            all frames, and ``most_hypotheses``; how many were pruned ``below_beam`` and
            ``beyond_active``; and ``unread_tokens``, the labels that were not read.

        >>> import arcgrad as ag, numpy as np
        >>> decoder = ag.decoding.CTCDecoder(["", "a", "b"], max_active=2)
        >>> decoder.report(np.zeros((4, 3)))[0]["most_hypotheses"]
        2
        """
        examples = self._examples("report", log_probs, lengths)
        reports: list[dict[str, int]] = self._decoder.decode(examples, 1, False)[1]
        return reports

    def pruning(self, log_probs: Any) -> dict[str, NDArray[np.int64]]:
        """What the search of one example keeps and prunes at each frame.

        Returns:
            The entries of :meth:`report` as arrays over frames. :func:`plot_pruning` draws them.

        >>> import arcgrad as ag, numpy as np
        >>> decoder = ag.decoding.CTCDecoder(["", "a", "b"], max_active=2)
        >>> decoder.pruning(np.zeros((4, 3)))["hypotheses"].tolist()
        [2, 2, 2, 2]
        """
        array = self._array("pruning", log_probs, (2,))
        stream = _core.BeamStream(self._decoder, False)
        sums = {name: [count] for name, count in stream.report().items()}
        for t in range(len(array)):
            stream.push(array[t : t + 1])
            for name, count in stream.report().items():
                sums[name].append(count)
        names = ("hypotheses", "below_beam", "beyond_active", "unread_tokens")
        return {name: np.diff(sums[name]) for name in names}

    def lattice(self, log_probs: Any, lattice_beam: float = math.inf) -> _core.Graph:
        """All paths of one example that the search keeps, as a graph.

        Input labels are those of the frames. The output label of an arc that ends a word is its
        index in :attr:`words`; words that the lexicon lacks have the number of words. Weights are
        the weighted sums of all scores.

        Args:
            log_probs: Scores ``[T, C]``, or emissions: a dense linear graph, which gets the
                gradients of the lattice.
            lattice_beam: Arcs on no path within this distance of the best path are dropped.

        >>> import arcgrad as ag, numpy as np
        >>> decoder = ag.decoding.CTCDecoder(["", "a", "b"])
        >>> lattice = decoder.lattice(np.log([[0.1, 0.8, 0.1], [0.1, 0.2, 0.7]]))
        >>> ag.viterbi_path(lattice).labels_to_list(ilabel=False)[:2]
        [1, 2]
        """
        stream = _core.BeamStream(self._decoder, True)
        if not isinstance(log_probs, _core.Graph):
            stream.push(self._array("lattice", log_probs, (2,)))
            return stream.lattice(lattice_beam, True)
        count, frames = len(self._labels.names), log_probs.num_nodes() - 1
        if frames < 0 or log_probs.num_arcs() != frames * count:
            raise ValueError(
                f"lattice: emissions must be a dense linear graph of {count} labels, but they have "
                f"{log_probs.num_nodes()} nodes and {log_probs.num_arcs()} arcs"
            )
        scores = np.asarray(log_probs.weights_view()).reshape(frames, count)
        stream.push(self._array("lattice", scores, (2,)))
        return _core.compose(log_probs, stream.lattice(lattice_beam, False))

    def stream(self, nbest: int = 1, *, confidences: bool = False) -> Stream:
        """A search that reads frames as they come.

        >>> import arcgrad as ag, numpy as np
        >>> stream = ag.decoding.CTCDecoder(["", "a", "b"]).stream()
        >>> stream.push(np.log([[0.1, 0.8, 0.1]]))
        Partial(text='a', stable='')
        >>> stream.push(np.log([[0.1, 0.2, 0.7]])).text
        'ab'
        >>> stream.finish()[0].text
        'ab'
        """
        return Stream(self, nbest, confidences)

    def _array(self, op: str, values: Any, dims: tuple[int, ...]) -> NDArray[Any]:
        """An array of float32 or float64."""
        array = np.asarray(values)
        if array.dtype not in (np.float32, np.float64):
            if array.dtype.kind not in "fiub":
                raise TypeError(
                    f"{op}: scores must be an array of numbers, but their type is {array.dtype}"
                )
            array = array.astype(np.float32)
        if array.ndim not in dims or array.shape[-1] != len(self._labels.names):
            wanted = " or ".join("[B, T, C]" if n == 3 else "[T, C]" for n in dims)
            raise ValueError(
                f"{op}: scores must be {wanted} with {len(self._labels.names)} labels, but their "
                f"shape is {array.shape}"
            )
        return array

    def _examples(self, op: str, log_probs: Any, lengths: Any) -> list[NDArray[Any]]:
        if isinstance(log_probs, list | tuple) and any(np.ndim(one) == 2 for one in log_probs):
            if lengths is not None:
                raise ValueError(
                    f"{op}: a list of arrays must have no lengths, but they were given"
                )
            return [self._array(op, one, (2,)) for one in log_probs]
        array = self._array(op, log_probs, (2, 3))
        if array.ndim == 2:
            array = array[None]
        if lengths is None:
            return [*array]
        counts = np.asarray(lengths)
        batch, frames = array.shape[:2]
        fits = counts.shape == (batch,) and counts.dtype.kind in "iu"
        if not fits or ((counts < 0) | (counts > frames)).any():
            raise ValueError(
                f"{op}: lengths must be {batch} numbers of frames from 0 to {frames}, but they are "
                f"{lengths}"
            )
        return [one[:count] for one, count in zip(array, counts, strict=True)]

    def _phrases(
        self, hotwords: Mapping[str, float] | Sequence[str] | None, weight: float
    ) -> tuple[list[list[int]], list[float]]:
        """The symbols and the boost of each spelling of each phrase."""
        if hotwords is None:
            return [], []
        if isinstance(hotwords, str):
            raise TypeError(f"{OP}: hotwords must be a list of phrases, but it is {hotwords!r}")
        if isinstance(hotwords, Mapping):
            pairs = [(phrase, float(boost)) for phrase, boost in hotwords.items()]
        else:
            pairs = [(phrase, weight * len(phrase.split())) for phrase in hotwords]
        has_edges = self._is_words or self._labels.has_words
        boundary = len(self._labels.names)
        phrases, boosts, bad = [], [], []
        for phrase, boost in pairs:
            words = phrase.split() if has_edges else ["".join(phrase.split())]
            ways = [self._spellings(word) for word in words]
            if not words or not all(ways):
                bad.append(phrase)
                continue
            for way in itertools.islice(itertools.product(*ways), MOST_SPELLINGS):
                symbols = [boundary] if has_edges else []
                for spelling in way:
                    symbols += [*spelling, boundary] if has_edges else spelling
                phrases.append(symbols)
                boosts.append(boost)
        if bad:
            raise ValueError(
                f"{OP}: labels must spell all hotwords, but they cannot spell {shown(bad)}"
            )
        return phrases, boosts

    def _spellings(self, word: str) -> list[list[int]]:
        listed = (self._lexicon.spellings or {}).get(word)
        if listed is not None:
            return listed
        if not word:
            return []
        names = self._labels.spelling_names()
        spellings: list[list[int]] = _core.spell(word, names, self._labels.prefix)
        return spellings

    def _hypothesis(self, result: Any, confidences: bool) -> Hypothesis:
        score, acoustic, language, hotword, is_complete, tokens, words, _, _ = result
        tokens = list(map(Token._make, tokens))
        if self._is_words:
            named = [self._word(word, tokens, confidences) for word in words]
            text = " ".join(word.text for word in named)
        else:
            text = self._labels.text([token.label for token in tokens])
            named = self._words_of_labels(tokens, words, confidences)
        return Hypothesis(text, score, acoustic, language, hotword, named, tokens, is_complete)

    def _word(self, word: Any, tokens: list[Token], confidences: bool) -> Word:
        number, begin, end, confidence = word
        own = tokens[begin:end]
        is_known = number >= 0
        text = (
            self._lexicon.words[number]
            if is_known
            else self._labels.text([token.label for token in own])
        )
        start, stop = (own[0].start, own[-1].end) if own else (0, 0)
        return Word(text, start, stop, confidence if confidences else None, is_known)

    def _words_of_labels(
        self, tokens: list[Token], found: list[Any], confidences: bool
    ) -> list[Word]:
        """The words that labels spell, if labels separate or begin words."""
        if not self._labels.has_words:
            return []
        words: list[Word] = []
        part: list[int] = []

        def end_word() -> None:
            text = self._labels.text([tokens[i].label for i in part])
            if text:
                confidence = min(found[i][3] for i in part) if confidences else None
                words.append(Word(text, tokens[part[0]].start, tokens[part[-1]].end, confidence))
            part.clear()

        for i, token in enumerate(tokens):
            role = self._labels.roles[token.label]
            if role:
                end_word()
            if role != 1:
                part.append(i)
        end_word()
        return words
