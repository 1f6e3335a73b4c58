"""How words of a text become tokens of a model, with stars for what the model cannot spell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ._labels import BEGIN, Labels

#: What stands for a star in spellings.
STAR = -1


class Spelling:
    """The tokens of words: the fewest that spell a word, and stars for unknown characters.

    A star stands for one or more unknown characters in a row. If all letters of the labels have one
    case, letters of the other case are read as these.
    """

    def __init__(self, labels: Labels) -> None:
        self._prefix = labels.prefix
        self._labels = {name: i for i, name in enumerate(labels.spelling_names()) if name}
        letters = "".join(self._labels)
        self._fold: Callable[[str], str] = str
        if letters.upper() == letters != letters.lower():
            self._fold = str.upper
        elif letters.lower() == letters != letters.upper():
            self._fold = str.lower
        self._longest = max(map(len, self._labels), default=1)
        self._known: dict[str, tuple[list[int], list[str], str]] = {}

    def __call__(self, word: str) -> tuple[list[int], list[str], str]:
        """The tokens of a word, the characters of each token, and the unknown characters."""
        if word not in self._known:
            self._known[word] = self._spell(word)
        return self._known[word]

    def _spell(self, word: str) -> tuple[list[int], list[str], str]:
        # An unknown character costs more than all tokens of a word.
        text = self._prefix + self._fold(word)
        if len(text) != len(self._prefix) + len(word):  # such as the upper case of sharp s
            text = self._prefix + word
        shown = self._prefix + word
        unknown_cost = len(text) + 1
        best: list[tuple[int, int]] = [(0, 0)]  # cost, and where the last token begins
        for end in range(1, len(text) + 1):
            is_prefix = end == 1 and self._prefix == BEGIN
            choice = (best[end - 1][0] + (1 if is_prefix else unknown_cost), end - 1)
            for begin in range(max(0, end - self._longest), end):
                if text[begin:end] in self._labels:
                    choice = min(choice, (best[begin][0] + 1, begin))
            best.append(choice)
        parts, end = [], len(text)
        while end:
            parts.append((best[end][1], end))
            end = best[end][1]
        tokens: list[int] = []
        characters: list[str] = []
        unknown = ""
        for begin, end in reversed(parts):
            label = self._labels.get(text[begin:end], STAR)
            part = shown[begin:end].removeprefix(self._prefix)
            if label == STAR:
                unknown += part
                if not part:  # a word need not begin with its mark if no label is the mark
                    continue
                if tokens[-1:] == [STAR]:
                    characters[-1] += part
                    continue
            tokens.append(label)
            characters.append(part)
        return tokens, characters, unknown


def split_words(op: str, words: str | Sequence[str]) -> list[str]:
    """The words of a text: those of a string, or the entries of a list."""
    if isinstance(words, str):
        return words.split()
    if not isinstance(words, Sequence):
        raise TypeError(
            f"{op}: words must be a string or a list of strings, but they are of type "
            f"{type(words).__name__}"
        )
    for i, word in enumerate(words):
        if not isinstance(word, str) or not word.strip():
            raise ValueError(
                f"{op}: a word must be a string of characters, but word {i} is {word!r}"
            )
    return [*words]
