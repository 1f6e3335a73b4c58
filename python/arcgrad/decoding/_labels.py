"""Labels of a model: which is the blank, and which separate or begin words."""

from __future__ import annotations

from collections.abc import Sequence

# Names that toolkits give the blank, and labels between words.
BLANKS = ("", "<blank>", "<blk>", "<pad>", "[PAD]", "<ctc>", "<eps>")
SEPARATORS = (" ", "|", "<space>")
BEGIN = "▁"

INSIDE, SEPARATOR, BEGINS = range(3)


class Labels:
    """The labels of a model, as the search needs them."""

    def __init__(
        self,
        op: str,
        names: Sequence[str],
        blank: int | str | None,
        separator: int | str | None,
    ) -> None:
        self.names = [*names]
        if len(self.names) < 2:
            raise ValueError(f"{op}: there must be 2 labels or more, but there are {len(names)}")
        for i, name in enumerate(self.names):
            if not isinstance(name, str):
                raise TypeError(f"{op}: labels must be strings, but label {i} is {name!r}")
            if name in self.names[:i]:
                raise ValueError(f"{op}: labels must differ, but {name!r} occurs again")
        self.blank = self._find_blank(op, blank)
        self.roles = [INSIDE] * len(self.names)
        if separator is None:
            self._find_separators()
        elif separator != "":
            self.roles[self._number(op, "separator", separator)] = SEPARATOR
        if self.roles[self.blank] != INSIDE:
            raise ValueError(
                f"{op}: the blank must not separate words, but {names[self.blank]!r} does"
            )
        self.has_words = any(role != INSIDE for role in self.roles)
        self.begins_words = BEGINS in self.roles

    def _number(self, op: str, what: str, label: int | str) -> int:
        if isinstance(label, str):
            if label not in self.names:
                raise ValueError(f"{op}: the {what} must be a label, but {label!r} is not one")
            return self.names.index(label)
        if not 0 <= label < len(self.names):
            raise ValueError(
                f"{op}: the {what} must be a label from 0 to {len(self.names) - 1}, but it is "
                f"{label}"
            )
        return int(label)

    def _find_blank(self, op: str, blank: int | str | None) -> int:
        if blank is not None:
            return self._number(op, "blank", blank)
        found = [i for i, name in enumerate(self.names) if name in BLANKS]
        if len(found) != 1:
            names = ", ".join(map(repr, BLANKS))
            raise ValueError(
                f"{op}: exactly one label must be a blank ({names}), but {len(found)} are; pass "
                "blank"
            )
        return found[0]

    def _find_separators(self) -> None:
        begins = [i for i, name in enumerate(self.names) if name.startswith(BEGIN)]
        if begins and [self.names[i] for i in begins] != [BEGIN]:
            for i in begins:
                self.roles[i] = BEGINS
            return
        for i, name in enumerate(self.names):
            if name in (*SEPARATORS, BEGIN) and i != self.blank:
                self.roles[i] = SEPARATOR

    @property
    def prefix(self) -> str:
        """What precedes the letters of a word in its spelling."""
        return BEGIN if self.begins_words else ""

    def spelling_names(self) -> list[str]:
        """The names of labels that spell words, and empty names for all others."""
        return [
            "" if i == self.blank or role == SEPARATOR else name
            for i, (name, role) in enumerate(zip(self.names, self.roles, strict=True))
        ]

    def text(self, labels: Sequence[int]) -> str:
        """The text that labels spell."""
        parts = [
            " " if self.roles[label] == SEPARATOR else self.names[label].replace(BEGIN, " ")
            for label in labels
        ]
        return " ".join("".join(parts).split()) if self.has_words else "".join(parts)
