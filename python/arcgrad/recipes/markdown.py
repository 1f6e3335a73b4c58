"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

__all__ = ["markdown_table"]


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> str:
    """A table in Markdown.

    Args:
        header: The names of the columns.
        rows: The cells of each row.
        left: The columns that are aligned to the left; the others are to the right.

    >>> from arcgrad.recipes.markdown import markdown_table
    >>> print(markdown_table(["blank", "CER"], [["no", "18.2"], ["optional", "6.4"]]))
    | blank    |  CER |
    |----------|-----:|
    | no       | 18.2 |
    | optional |  6.4 |
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rules = [
        "-" * (width + 1) + ("-" if column in left else ":") for column, width in enumerate(widths)
    ]
    return "\n".join([line(header), f"|{'|'.join(rules)}|", *map(line, rows)])
