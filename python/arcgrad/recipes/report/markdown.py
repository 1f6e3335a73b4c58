"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tabulate import tabulate

__all__ = ["markdown_table"]


def markdown_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)
) -> str:
    """Return a table in Markdown.

    Args:
        header: The names of the columns.
        rows: The cells of each row.
        left: The columns that are aligned to the left; all others are aligned to the right.

    >>> from arcgrad.recipes.report import markdown_table
    >>> print(markdown_table(["blank", "CER"], [["no", "18.2"], ["optional", "6.4"]]))
    | blank    |   CER |
    |:---------|------:|
    | no       |  18.2 |
    | optional |   6.4 |
    """
    align = ["left" if column in left else "right" for column in range(len(header))]
    # Cells are texts: numbers are formatted already.
    table: str = tabulate(rows, header, tablefmt="pipe", colalign=align, disable_numparse=True)
    return table
