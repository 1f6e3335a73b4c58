"""How strings become labels, and labels strings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from .. import _core
from .._core import Graph, SymbolTable

Symbols: TypeAlias = Literal["bytes", "unicode"] | SymbolTable
String: TypeAlias = str | Sequence[str]
Pairs: TypeAlias = (
    Mapping[str, str] | Iterable[str | tuple[String, String] | tuple[String, String, float]]
)

# The label before each string, with which the left context of a rule may begin.
BEGIN: int = _core.begin_label
# The label after each string, with which the right context of a rule may end.
END: int = _core.end_label

BYTES, UNICODE = SymbolTable.of_bytes(), SymbolTable.of_unicode()
NUM_BYTES = 256


def to_table(op: str, symbols: Symbols) -> SymbolTable:
    """The table of the symbols."""
    if isinstance(symbols, SymbolTable):
        return symbols
    if symbols not in ("bytes", "unicode"):
        raise ValueError(
            f"{op}: symbols must be 'bytes', 'unicode' or a SymbolTable, but they are {symbols!r}"
        )
    return BYTES if symbols == "bytes" else UNICODE


def to_labels(op: str, text: String, symbols: Symbols) -> list[int]:
    """The labels of a string."""
    table = to_table(op, symbols)
    if isinstance(text, str):
        if symbols == "bytes":
            try:
                return list(text.encode())
            except UnicodeEncodeError:
                raise ValueError(
                    f"{op}: the text must be text that UTF-8 can hold, but it is {text!r}"
                ) from None
        if symbols == "unicode":
            return [ord(character) for character in text]
        text = text.split()
    labels = []
    for symbol in text:
        if symbol not in table:
            raise ValueError(
                f"{op}: the text must consist of symbols of the table, but {symbol!r} is not one"
            )
        labels.append(table[symbol])
    return labels


def make_chain(
    op: str, pairs: Sequence[tuple[int, int]], weight: float, symbols: Symbols, calc_grad: bool
) -> Graph:
    """A chain of pairs of labels with the weight on its first arc."""
    if not pairs and weight != 0.0:
        pairs = [(_core.epsilon, _core.epsilon)]
    ilabels, olabels = [i for i, _ in pairs], [o for _, o in pairs]
    weights = [weight] + [0.0] * (len(pairs) - 1) if pairs else None
    return _core.chain_graph(
        ilabels, olabels, weights, calc_grad=calc_grad, isymbols=to_table(op, symbols)
    )


def to_graph(op: str, text: String | Graph, symbols: Symbols) -> Graph:
    """A graph as it is, and a string as a chain."""
    if isinstance(text, Graph):
        return text
    return make_chain(op, [(k, k) for k in to_labels(op, text, symbols)], 0.0, symbols, False)


def to_text(op: str, labels: Sequence[int], table: SymbolTable | None) -> str:
    """The string of output labels."""
    if table is None:
        raise ValueError(
            f"{op}: the output labels of the graph must have symbols, but they have none; "
            "set graph.osymbols"
        )
    labels = [label for label in labels if label != _core.epsilon]
    if table == BYTES:
        content = bytes(labels)
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise ValueError(f"{op}: the output must be UTF-8, but it is {content!r}") from None
    if table == UNICODE:
        return "".join(map(chr, labels))
    return " ".join(table[label] for label in labels)
