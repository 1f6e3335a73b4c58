"""Pictures that are part of the page, for light and for dark paper."""

from __future__ import annotations

import base64
import io
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What is drawn in the colour for light paper gets the other one for dark paper.
INK = {"light": "#1c1d20", "dark": "#e7e8ea"}

NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True)
class Picture:
    """An SVG image for light and for dark paper, as addresses that hold all of it.

    The width is in points.
    """

    light: str
    dark: str
    alt: str
    width: float

    @classmethod
    def of(cls, svg: str, alt: str) -> Picture:
        """A picture that is drawn in the colour for light paper."""
        dark = svg.replace(INK["light"], INK["dark"])
        width = re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)
        assert width is not None
        return cls(_address(svg), _address(dark), alt, float(width[1]))


def _address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def drawn(draw: Callable[[], Figure], alt: str) -> Picture:
    """A picture by matplotlib."""
    import matplotlib

    colored = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = {
        **dict.fromkeys(colored, INK["light"]),
        "svg.fonttype": "none",
        "svg.hashsalt": "arcgrad",
    }
    file = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # The letters are drawn by the browser, whatever letters the font here lacks.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        draw().savefig(file, format="svg", transparent=True, metadata=NO_METADATA)
    return Picture.of(file.getvalue(), alt)
