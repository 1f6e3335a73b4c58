"""Files of settings, in TOML or YAML."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import yaml

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from arcgrad import _files

__all__ = ["load_settings"]

FORMATS = {".toml": "TOML", ".yaml": "YAML", ".yml": "YAML"}


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads YAML without aliases, which can make a small file expand without limit."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"there is an alias on line {mark.line + 1}")
        return super().compose_node(parent, index)


def load_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    r"""Read a file of settings, for :func:`arcgrad.recipes.experiments.override`.

    Args:
        path: A file with suffix ``.toml``, ``.yaml`` or ``.yml``, whose tables have the names of
            the settings.

    Returns:
        The nested tables of the file.

    Raises:
        ValueError: If the suffix is another, or the file cannot be parsed.
        OSError: If there is no such file.

    >>> from pathlib import Path
    >>> from arcgrad.recipes.experiments import load_settings
    >>> _ = Path("long.toml").write_text("seed = 7\n[optim]\nepochs = 100\n")
    >>> load_settings("long.toml")
    {'seed': 7, 'optim': {'epochs': 100}}
    """
    path = Path(path)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(
            "load_settings: a file of settings must end in .toml, .yaml or .yml, but it is "
            f"{str(path)!r}"
        )
    text = _files.read_text("load_settings", path)
    try:
        found = tomllib.loads(text) if kind == "TOML" else yaml.load(text, _Loader)
    # PyYAML raises errors of many classes for values that do not fit their tags.
    except Exception as error:
        raise ValueError(
            f"load_settings: {str(path)!r} must be {kind}, but it cannot be read: "
            f"{_files.reason(error)}"
        ) from None
    if found is None:  # an empty YAML file
        return {}
    if not isinstance(found, dict):
        raise ValueError(
            f"load_settings: a file of settings must be a table, but {str(path)!r} is "
            f"{_files.shown(found)}"
        )
    return found
