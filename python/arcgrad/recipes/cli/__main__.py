"""Runs the program as ``python -m arcgrad.recipes.cli``, for ``torchrun``."""

from . import main

if __name__ == "__main__":
    main()
