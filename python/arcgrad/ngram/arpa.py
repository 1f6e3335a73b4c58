"""Reading and writing language models in ARPA format."""

from __future__ import annotations

import gzip
import math
import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, NoReturn

import numpy as np

from arcgrad import _files
from arcgrad._arguments import checked
from arcgrad._core import describe_file

from ._table import END, START, Floats, Index, Ints, Table, show
from .counts import UNKNOWN, check_symbols
from .model import Model

# Files hold decimal logarithms, and -99 for the logarithm of 0.
LOG10 = math.log(10)
ZERO = -99.0

SPECIAL = {b"<s>": START, b"</s>": END}
UNKNOWNS = (UNKNOWN, "<UNK>")
SIZE = re.compile(rb"ngram[ \t]+(\d{1,18})[ \t]*=[ \t]*(\d{1,18})")

# The bytes at which bytes.split() splits.
IS_SPACE = np.zeros(256, np.bool_)
IS_SPACE[list(b" \t\n\r\v\f")] = True


@checked
def load_arpa(path: str | os.PathLike[str], symbols: Sequence[str] | None = None) -> Model:
    """Reads a back-off language model in ARPA format.

    The words ``<s>`` and ``</s>`` are :data:`START` and :data:`END`, ``<unk>`` (or ``<UNK>``) is
    the token for unknown words. N-grams with ``<s>`` after or ``</s>`` before another word are
    skipped, since no sequence has them. Missing prefixes and suffixes of n-grams are added with the
    scores that back-off gives them, so no score changes. The logarithm -99 means minus infinity. A
    file without any 2-gram is a model of order 1.

    Args:
        path: The file; it may be compressed with gzip, whatever its name.
        symbols: The names of the tokens in the order of their numbers. By default words are
            numbered in the order of the file. ``<unk>`` is appended if the symbols lack it.

    Returns:
        The model, with natural logarithms.

    Raises:
        ValueError: If the file is not in ARPA format, or has a word that is not among the symbols;
            the message names the file and the line.
        OSError: If there is no such file.

    Time: about two seconds for a million n-grams.

    >>> import arcgrad as ag
    >>> model = ag.ngram.estimate(ag.ngram.count(["ab", "ba"], 2))
    >>> ag.ngram.save_arpa(model, "ab.arpa")
    >>> ag.ngram.load_arpa("ab.arpa").symbols
    ('a', 'b')
    """
    content = _files.read("load_arpa", path)
    words = _Words(symbols)
    try:
        return _parse(content, words)
    except _LineError as error:
        line, rule, given = error.args
        raise ValueError(
            f"load_arpa: line {line} of {os.fspath(path)!r}: {rule}, but {given}"
        ) from None


def _parse(content: bytes, words: _Words) -> Model:
    """The model in the content of a file."""
    tables, scores, weights = [], [], []
    for section in _sections(content):
        lines, fields = _fields(section)
        if section.order == 1:
            words.learn(lines, fields[:, 1].tolist())
        table, kept = words.table(section, lines, fields[:, 1:-1])
        tables.append(table)
        scores.append(_numbers(lines, fields[:, 0], kept, most=0.0))
        weights.append(_numbers(lines, fields[:, -1], kept, most=math.inf))
    if len(tables) == 2 and not len(tables[1]):
        tables, scores, weights = tables[:1], scores[:1], weights[:1]
    # <s> has no predecessor, whatever score the file gives it.
    scores[0] = np.where(tables[0].rows[:, 0] == START, -math.inf, scores[0])
    return Model(
        tables,
        scores,
        weights,
        num_tokens=len(words.symbols),
        symbols=words.symbols,
        unknown=words.unknown,
    )


@checked
def save_arpa(model: Model, path: str | os.PathLike[str], *, digits: int = 7) -> None:
    """Writes a language model in ARPA format; an existing file is replaced atomically.

    The file of a model of order 1 has an empty list of 2-grams, because KenLM reads no other.

    Args:
        model: The model. Tokens without names are written as numbers.
        path: The file; it is compressed with gzip if its name ends in ``.gz``.
        digits: The number of digits of each logarithm.

    Raises:
        ValueError: If a name is empty, has a space in it, or is ``<s>`` or ``</s>``.

    >>> import arcgrad as ag
    >>> ag.ngram.save_arpa(ag.ngram.estimate(ag.ngram.count(["ab", "ba"], 3)), "ab.arpa.gz")
    """
    names = _names(model)
    lines = ["\\data\\"]
    lines += [f"ngram {n}={size}" for n, size in enumerate(model.sizes, 1)]
    if model.order == 1:
        lines.append("ngram 2=0")
    for n in range(1, model.order + 1):
        lines += ["", f"\\{n}-grams:"]
        words = [names[token] for token in model.ngrams(n).ravel().tolist()]
        texts = [" ".join(words[k : k + n]) for k in range(0, len(words), n)]
        scores = _texts(model.log_probs(n), digits)
        weights = _texts(model.back_offs(n), digits)
        for score, text, weight in zip(scores, texts, weights, strict=True):
            lines.append(f"{score}\t{text}" if weight == "0" else f"{score}\t{text}\t{weight}")
    if model.order == 1:
        lines += ["", "\\2-grams:"]
    content = "\n".join([*lines, "", "\\end\\", ""]).encode()
    if os.fspath(path).endswith(".gz"):
        content = gzip.compress(content, mtime=0)
    _files.write(path, content)


def _names(model: Model) -> dict[int, str]:
    names = list(model.symbols or map(str, range(model.num_tokens)))
    if model.symbols is None and model.unknown is not None:
        names[model.unknown] = UNKNOWN
    for name in names:
        if name.encode().split() != [name.encode()] or name.encode() in SPECIAL:
            raise ValueError(
                f"save_arpa: names of tokens must not be empty, hold spaces, or be <s> or </s>, "
                f"but there is {name!r}"
            )
    return {**dict(enumerate(names)), START: "<s>", END: "</s>"}


def _texts(values: Floats, digits: int) -> list[str]:
    # Adding 0 turns -0 into 0.
    logs = np.where(np.isneginf(values), ZERO, values / LOG10) + 0.0
    return [f"{value:.{digits}g}" for value in logs.tolist()]


class _LineError(Exception):
    """A line that breaks a rule: its number, the rule, and what the line has."""


class _Section(NamedTuple):
    """The n-grams of one order."""

    order: int
    size: int
    title: int  # the line of its title
    content: bytes


def _fail(line: int, rule: str, given: str) -> NoReturn:
    raise _LineError(line, rule, given)


def _sections(content: bytes) -> Iterator[_Section]:
    """The sections of a file; the title of each begins with a backslash."""
    content = b"\n" + content
    begin = content.find(b"\n\\data\\")
    if begin < 0:
        kind = describe_file(content[1:])
        given = "it has none" if kind.startswith("in none") else f"it is {kind}"
        _fail(1, "the file must have a line \\data\\", given)
    sizes: list[int] = []
    order, line = 0, content.count(b"\n", 0, begin + 1)
    while True:
        title_end = content.find(b"\n", begin + 1)
        title_end = len(content) if title_end < 0 else title_end
        title = content[begin + 1 : title_end].strip()
        next_title = content.find(b"\n\\", title_end)
        part = content[title_end : len(content) if next_title < 0 else next_title]
        if order == 0:
            sizes = _sizes(part, line)
        expected = rf"\{order}-grams:" if order <= len(sizes) else "\\end\\"
        if order and title != expected.encode():
            _fail(line, f"there must be {expected}", f"it is {_files.shown(title)}")
        if order > len(sizes):
            return
        if order:
            yield _Section(order, sizes[order - 1], line, part)
        if next_title < 0:
            missing = rf"\{order + 1}-grams:" if order < len(sizes) else "\\end\\"
            _fail(line, f"{missing} must follow", "the file ends")
        begin, order, line = next_title, order + 1, line + part.count(b"\n") + 1


def _sizes(part: bytes, line: int) -> list[int]:
    sizes: list[int] = []
    for number, text in enumerate(part.split(b"\n"), line):
        if not text.strip():
            continue
        found = SIZE.fullmatch(text.strip())
        if not found or int(found[1]) != len(sizes) + 1:
            _fail(
                number,
                f"there must be ngram {len(sizes) + 1}=<number>",
                f"it is {_files.shown(text)}",
            )
        sizes.append(int(found[2]))
    if not sizes:
        _fail(line, r"\data\ must be followed by ngram 1=<number>", "it is not")
    return sizes


def _fields(section: _Section) -> tuple[Ints, np.ndarray]:
    """The line numbers of the n-grams, and a row of fields for each: score, words, back-off."""
    data = np.frombuffer(section.content, np.uint8)
    is_space = IS_SPACE[data]
    is_first = ~is_space
    is_first[1:] &= is_space[:-1]
    # A section begins at the end of its title line, so its first line is empty.
    ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
    fields_before = np.searchsorted(np.flatnonzero(is_first), ends)
    widths = np.diff(fields_before)
    is_ngram = widths > 0
    begins, widths = fields_before[:-1][is_ngram], widths[is_ngram]
    lines = section.title + 1 + np.flatnonzero(is_ngram)
    order = section.order
    bad = np.flatnonzero((widths < order + 1) | (widths > order + 2))
    if len(bad):
        _fail(
            int(lines[bad[0]]),
            f"there must be a score, {order} words and perhaps a back-off weight",
            f"there are {widths[bad[0]]} fields",
        )
    if len(begins) != section.size:
        _fail(section.title, f"there must be {section.size} {order}-grams", f"{len(begins)} follow")
    texts = np.array([*section.content.split(), b"0"], object)
    place = begins[:, None] + np.arange(order + 2)
    place[widths == order + 1, -1] = len(texts) - 1
    return lines, texts[place]


def _numbers(lines: Ints, texts: np.ndarray, kept: Ints, *, most: float) -> Floats:
    """Natural logarithms from texts with decimal logarithms."""
    listed = texts.tolist()
    try:
        values = np.fromiter(map(float, listed), np.float64, len(listed))
    except ValueError:
        values = np.array([_number(text) for text in listed])
    with np.errstate(over="ignore"):
        logs = values * LOG10
    bad = np.flatnonzero(~(values <= most) | (logs == math.inf))
    if len(bad):
        rule = "a score must be a number of at most 0" if most == 0 else "a weight must be a number"
        _fail(int(lines[bad[0]]), rule, f"it is {_files.shown(listed[bad[0]])}")
    return np.where(values == ZERO, -math.inf, logs)[kept]


def _number(text: bytes) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


class _Words:
    """The numbers of the words of a file."""

    def __init__(self, symbols: Sequence[str] | None) -> None:
        self._given = None if symbols is None else check_symbols("load_arpa", symbols)
        self.symbols: tuple[str, ...] = ()
        self.unknown: int | None = None
        self._ids: dict[bytes, int] = {}

    def learn(self, lines: Ints, words: list[bytes]) -> None:
        """Number the words of the 1-grams."""
        names = {name: i for i, name in enumerate(self._given or ())}
        self._ids = dict(SPECIAL)
        for line, word in zip(lines.tolist(), words, strict=True):
            try:
                name = word.decode()
            except UnicodeDecodeError:
                _fail(line, "a word must be UTF-8", f"it is {_files.shown(word)}")
            if word in SPECIAL:
                continue
            if self._given is not None and name not in names and name not in UNKNOWNS:
                _fail(line, "a word must be among the symbols", f"{name!r} is not")
            self._ids[word] = names.setdefault(name, len(names))
            if name in UNKNOWNS:
                self.unknown = names[name]
        self.symbols = tuple(names)

    def table(self, section: _Section, lines: Ints, words: np.ndarray) -> tuple[Table, Ints]:
        """The n-grams in lexicographic order, and the index of the line of each."""
        flat = words.ravel().tolist()
        try:
            numbers = list(map(self._ids.__getitem__, flat))
        except KeyError as error:
            place = flat.index(error.args[0]) // section.order
            _fail(
                int(lines[place]),
                "a word must be among the 1-grams",
                f"{_files.shown(error.args[0])} is not",
            )
        rows = np.array(numbers, np.int32).reshape(-1, section.order)
        keys = Index(rows).keys
        order = np.argsort(keys, kind="stable")
        twice = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(twice):
            place = order[twice[0] + 1]
            _fail(
                int(lines[place]),
                "an n-gram must occur once",
                f"{show(rows[place], self.symbols)} occurs again",
            )
        is_used = (rows[:, 1:] != START).all(axis=1) & (rows[:, :-1] != END).all(axis=1)
        order = order[is_used[order]]
        return Table(rows[order]), order
