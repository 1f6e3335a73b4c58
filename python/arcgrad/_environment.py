"""Environment variables, checked when the package is imported."""

import warnings

from ._core import check_environment


def check() -> None:
    """Warn of a variable with a bad value, at the line that imports the package."""
    try:
        check_environment()
    except ValueError as error:
        warnings.warn(f"{error}; the default is used", RuntimeWarning, stacklevel=3)
