"""Compact language models for decoding."""

from __future__ import annotations

import os

from arcgrad import _files
from arcgrad._arguments import checked
from arcgrad._core import CompactModel

__all__ = ["CompactModel", "load_compact"]

KENLM = b"mmap lm http://kheafield.com/code"


@checked
def load_compact(path: str | os.PathLike[str]) -> CompactModel:
    """Reads an ARPA file, or maps a file by :meth:`CompactModel.save`.

    An ARPA file is parsed in about 0.5 microseconds per n-gram. To open a large model in
    milliseconds, save it once: ``load_compact("words.arpa").save("words.ngrams")``.

    Args:
        path: The file; an ARPA file may be compressed with gzip, whatever its name. N-grams without
            a back-off weight have the weight 0, and missing prefixes of n-grams are added with the
            scores that back-off gives them.

    Raises:
        ValueError: If the file is neither, or is damaged; the message names the file, and the line
            of an ARPA file.
        OSError: If there is no such file.

    >>> import arcgrad as ag
    >>> model = ag.ngram.estimate(ag.ngram.count(["a b", "b a"], 2, tokenize=str.split))
    >>> ag.ngram.save_arpa(model, "ab.arpa")
    >>> compact = ag.ngram.load_compact("ab.arpa")
    >>> compact.save("ab.ngrams")
    >>> ag.ngram.load_compact("ab.ngrams").sizes
    (4, 6)
    """
    name = os.fspath(path)
    with open(name, "rb") as file:
        first = file.read(len(KENLM))
    if first.startswith(_files.GZIP):
        return CompactModel.parse(_files.read("load_ngrams", name), name)
    if first == KENLM:
        raise ValueError(
            f"load_ngrams: {name!r} must be an ARPA file or a compact model, but it is a binary "
            "file of KenLM; use the ARPA file from which it was made"
        )
    return CompactModel.load(name)
