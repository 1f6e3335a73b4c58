"""What the environment says when the package is imported."""

import warnings

from ._core import check_environment


def check() -> None:
    """Warns of what is ignored, at the line that imports the package."""
    try:
        check_environment()
    except ValueError as error:
        warnings.warn(f"{error}; the default is used", RuntimeWarning, stacklevel=3)
