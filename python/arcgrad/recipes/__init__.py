"""Data, networks and training for the experiments of the paper. Needs the extra ``[recipes]``.

Each folder is a room, and imports point one way only: ``metrics``, ``checked_files``,
``experiments`` <- ``data``, ``models`` <- ``recognizer`` <- ``run`` <- ``inference`` <-
``training`` <- ``report`` <- ``paper`` <- ``cli``.
"""

import sys as _sys
from importlib.util import find_spec as _find_spec

# The packages of the extra: the names they are imported by, and those they are installed by.
_PACKAGES = {
    "torch": "torch",
    "sentencepiece": "sentencepiece",
    "soundfile": "soundfile",
    "safetensors": "safetensors",
    "PIL": "Pillow",
    "rapidfuzz": "rapidfuzz",
    "typer": "typer",
    "rich": "rich",
    "matplotlib": "matplotlib",
    "yaml": "PyYAML",
    "jinja2": "Jinja2",
    "pydantic": "pydantic",
    "tabulate": "tabulate",
    "praatio": "praatio",
}
if _sys.version_info < (3, 11):
    _PACKAGES["tomli"] = "tomli"

_missing = [package for name, package in _PACKAGES.items() if _find_spec(name) is None]
if _missing:
    raise ImportError(
        f"arcgrad.recipes needs {', '.join(_missing)}, but "
        f"{'it is' if len(_missing) == 1 else 'they are'} not installed; "
        "pip install 'arcgrad[recipes]'"
    )
