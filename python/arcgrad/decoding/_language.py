"""Lexicons and language models as the search needs them."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from arcgrad import _core, _files
from arcgrad.ngram import CompactModel, Model, load_compact
from arcgrad.ngram.compact import KENLM

from ._labels import SEPARATOR, Labels
from ._models import KenLM, LanguageModel, NumberedModel

# The number of words that a message lists.
SHOWN = 10
SPECIAL = ("<s>", "</s>", "<unk>", "<UNK>")


class Lexicon(NamedTuple):
    """Words with their spellings."""

    words: Sequence[str]
    tree: _core.LexiconTree
    # The numbers of the words in the language model; None if they are the same.
    has_own_numbers: bool
    spellings: dict[str, list[list[int]]] | None = None


def read_model(lm: Any) -> CompactModel | _core.Graph | LanguageModel | None:
    """The language model of an argument."""
    if lm is None or isinstance(lm, CompactModel | _core.Graph):
        return lm
    if isinstance(lm, Model):
        return lm.compact()
    if isinstance(lm, LanguageModel):
        return lm
    with open(lm, "rb") as file:
        if file.read(len(KENLM)) == KENLM:
            return KenLM(lm)
    return load_compact(lm)


def is_of_labels(lm: CompactModel, labels: Labels) -> bool:
    """Whether the words of a model are labels."""
    known = {*labels.names, *SPECIAL, *map(label_in_model, labels.names)}
    # All words of a large model are rarely needed to tell.
    return len(labels.names) + len(SPECIAL) >= lm.sizes[0] and known.issuperset(lm.words())


def label_in_model(name: str) -> str:
    """The name of a label in an ARPA file, which cannot hold spaces."""
    return "|" if name == " " else name


def label_numbers(op: str, lm: CompactModel, labels: Labels) -> list[int]:
    """The word of a model for each label; labels that it lacks are unknown."""
    numbers = lm.find([label_in_model(name) for name in labels.names])
    for other in ("▁", "<space>"):
        for i, name in enumerate(labels.names):
            if numbers[i] < 0 and name == " ":
                numbers[i] = lm.find([other])[0]
    missing = [
        name
        for i, name in enumerate(labels.names)
        if numbers[i] < 0 and i != labels.blank and lm.unknown < 0
    ]
    if missing:
        raise ValueError(
            f"{op}: a language model without <unk> must have all labels, but it lacks "
            f"{shown(missing)}"
        )
    return numbers


def lexicon_of_labels(labels: Labels) -> Lexicon:
    """Each label is a word, so that the results are labels."""
    ids = [i for i in range(len(labels.names)) if i != labels.blank]
    return Lexicon(labels.names, _core.LexiconTree([[i] for i in ids], ids), True)


def lexicon_of_model(op: str, lm: CompactModel, labels: Labels) -> Lexicon:
    """The words of a model; those that the labels cannot spell never occur."""
    tree, _ = _core.LexiconTree.from_model(lm, labels.spelling_names(), labels.prefix)
    if not tree.num_words:
        raise ValueError(
            f"{op}: labels must spell the words of the language model, but they spell none"
        )
    return Lexicon(lm.words(), tree, False)


def read_lexicon(op: str, lexicon: Any, labels: Labels) -> Lexicon:
    """The lexicon of an argument: words, words with spellings, a file of them, or read before."""
    place = ""
    if isinstance(lexicon, Lexicon):
        return lexicon
    if isinstance(lexicon, str | os.PathLike):
        place = f" in {os.fspath(lexicon)!r}"
        lexicon = _parse(op, lexicon)
    if isinstance(lexicon, Mapping):
        return _spelled(op, lexicon, labels, place)
    words = list(dict.fromkeys(lexicon))
    for word in words:
        if not isinstance(word, str) or not word or word.split() != [word]:
            raise ValueError(
                f"{op}: words must be strings without spaces, but one is {_files.shown(word)}"
            )
    if not words:
        raise ValueError(f"{op}: a lexicon must have words, but it has none")
    tree, bad = _core.LexiconTree.from_words(words, labels.spelling_names(), labels.prefix)
    if bad:
        raise ValueError(
            f"{op}: labels must spell all words, but they cannot spell "
            f"{shown([words[i] for i in bad])}"
        )
    return Lexicon(words, tree, True)


def _parse(op: str, path: str | os.PathLike[str]) -> dict[str, list[list[str]]]:
    """The words of a file and their spellings: a word and its labels on each line."""
    found: dict[str, list[list[str]]] = {}
    for number, line in enumerate(_files.read_text(op, path).splitlines(), 1):
        fields = line.split()
        if len(fields) == 1:
            raise ValueError(
                f"{op}: line {number} of {os.fspath(path)!r} must have a word and its labels, but "
                f"it is {_files.shown(line)}"
            )
        if fields:
            found.setdefault(fields[0], []).append(fields[1:])
    if not found:
        raise ValueError(f"{op}: {os.fspath(path)!r} must have words, but it has none")
    return found


def _spelled(op: str, lexicon: Mapping[str, Any], labels: Labels, place: str) -> Lexicon:
    number = {name: i for i, name in enumerate(labels.names)}
    spellings: dict[str, list[list[int]]] = {}
    bad = []
    for word, listed in lexicon.items():
        if not isinstance(listed, Iterable):
            bad.append(word)
            continue
        ways = [*listed] if not isinstance(listed, str) else [listed]
        if not ways or not isinstance(ways[0], list | tuple | str) or _is_one(ways, number):
            ways = [ways]
        try:
            spellings[word] = [
                [number[x] if isinstance(x, str) else operator.index(x) for x in way]
                for way in ways
            ]
        except (KeyError, TypeError):
            bad.append(word)
            continue
        if any(not way or not set(way) <= {*range(len(number))} for way in spellings[word]):
            bad.append(word)
    if bad or not spellings:
        raise ValueError(
            f"{op}: spellings{place} must be lists of labels, or several such lists, but this is "
            f"not true of {shown(bad) if bad else 'an empty lexicon'}"
        )
    return Lexicon(
        list(spellings),
        _core.LexiconTree(
            [_stripped(way, labels) for ways in spellings.values() for way in ways],
            [i for i, ways in enumerate(spellings.values()) for _ in ways],
        ),
        True,
        spellings,
    )


def _is_one(ways: list[Any], number: Mapping[str, int]) -> bool:
    """Whether this is one spelling by the names of labels, and not several."""
    return all(isinstance(x, str) and x in number for x in ways)


def _stripped(way: list[int], labels: Labels) -> list[int]:
    """A spelling without the separator at its end, which the search adds."""
    end = len(way)
    while end > 1 and labels.roles[way[end - 1]] == SEPARATOR:
        end -= 1
    return way[:end]


def grammar(
    op: str,
    lm: CompactModel | _core.Graph | LanguageModel | None,
    lexicon: Lexicon,
    is_sum: bool,
    boundaries: bool,
) -> _core.Grammar | None:
    """The language model with the words of the lexicon."""
    if lm is None:
        return None
    if isinstance(lm, _core.Graph):
        semiring = "log" if is_sum else "tropical"
        return _core.Grammar.from_graph(lm, semiring, lexicon.tree.num_words)
    if not isinstance(lm, CompactModel):
        estimates: list[float] = []
        if isinstance(lm, KenLM):
            lm.has_boundaries = boundaries
            estimates = lm.estimates(lexicon.words)
        numbered = NumberedModel(lm, lexicon.words)
        return _core.Grammar.from_object(numbered, estimates, isinstance(lm, KenLM))
    if not lexicon.has_own_numbers:
        return _core.Grammar.from_model(lm, None, boundaries, boundaries)
    numbers = lm.find(lexicon.words)
    missing = [word for word, i in zip(lexicon.words, numbers, strict=True) if i < 0]
    if missing and lm.unknown < 0:
        raise ValueError(
            f"{op}: a language model without <unk> must have all words of the lexicon, but it "
            f"lacks {shown(missing)}"
        )
    return _core.Grammar.from_model(lm, numbers, boundaries, boundaries)


def shown(words: Iterable[str]) -> str:
    """A list of words as messages show it."""
    listed = list(words)
    text = ", ".join(map(_files.shown, listed[:SHOWN]))
    return text + (f" and {len(listed) - SHOWN} more" if len(listed) > SHOWN else "")
