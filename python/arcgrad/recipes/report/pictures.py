"""Pictures embedded in the page, for its light and its dark mode."""

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

# Pictures are drawn in the light page's colour, which is replaced for the dark page.
INK = {"light": "#1c1d20", "dark": "#e7e8ea"}

NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True)
class Picture:
    """An SVG image for the light and the dark page, as data URLs. The width is in points."""

    light: str
    dark: str
    alt: str
    width: float

    @classmethod
    def of(cls, svg: str, alt: str) -> Picture:
        """Make a picture from an SVG image in the light page's colour."""
        dark = svg.replace(INK["light"], INK["dark"])
        width = re.search(r'<svg [^>]*width="([\d.]+)pt"', svg)
        assert width is not None
        return cls(_address(svg), _address(dark), alt, float(width[1]))


def _address(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def drawn(draw: Callable[[], Figure], alt: str) -> Picture:
    """Return a picture of matplotlib."""
    import matplotlib

    colored = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = {
        **dict.fromkeys(colored, INK["light"]),
        "svg.fonttype": "none",
        "svg.hashsalt": "arcgrad",
    }
    file = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # The browser draws the text, so glyphs that are missing here do not matter.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        draw().savefig(file, format="svg", transparent=True, metadata=NO_METADATA)
    return Picture.of(file.getvalue(), alt)
