"""The formats of the files of a run: JSON, and tensors in the format of safetensors.

Each file carries the SHA-256 of its content, so any change to it is an error that names the file.
Reading executes nothing that a file contains.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from arcgrad import _files

__all__ = ["digest", "from_json", "from_tensors", "to_json", "to_tensors"]

# The entry of the checksum, and what stands for the checksum while it is computed.
SHA256, EMPTY = "sha256", "0" * 64

# The entry of the header of safetensors for everything but tensors, and the checksum in it.
HEADER = "arcgrad"
IN_HEADER = re.compile(rb'\\"sha256\\": \\"([0-9a-f]{64})\\"')

# The entry that stands for a tensor.
TENSOR = "tensor of the file"


def digest(content: bytes | bytearray) -> str:
    """Return the SHA-256 of a content."""
    return hashlib.sha256(content).hexdigest()


def to_json(content: Mapping[str, Any], *, indent: int | None = 2) -> bytes:
    """Return a JSON object with its checksum as the last entry.

    >>> from pathlib import Path
    >>> from arcgrad.recipes.checked_files import from_json, to_json
    >>> from_json("read", Path("a.json"), to_json({"epochs": 3}))
    {'epochs': 3}
    """
    plain = _dump(content, indent)
    return _dump({**content, SHA256: digest(plain)}, indent)


def _dump(content: Mapping[str, Any], indent: int | None) -> bytes:
    text = json.dumps(content, indent=indent, ensure_ascii=False) + "\n"
    return text.encode("utf-8", "surrogatepass")


def from_json(
    op: str,
    where: Path | str,
    content: bytes,
    *,
    indent: int | None = 2,
    editable: bool = False,
) -> dict[str, Any]:
    """Return the object of :func:`to_json`.

    Args:
        op: The name of the caller, for errors.
        where: The file, for errors.
        content: The content of the file.
        indent: The indentation with which it was written.
        editable: Whether a file without a checksum is accepted, since users may edit it.

    Raises:
        ValueError: If the content is not JSON, or not what was written.
    """
    name = repr(str(where)) if isinstance(where, Path) else where
    found = _files.parse_json(op, name, content)
    if not isinstance(found, dict):
        raise ValueError(f"{op}: {name} must be a JSON object, but it is {_files.shown(found)}")
    given = found.pop(SHA256, None)
    if given is None and editable:
        return found
    if to_json(found, indent=indent) != content:
        advice = f"; remove the entry {SHA256} of a file that you edited" if editable else ""
        raise ValueError(
            f"{op}: {name} must be as it was written, but its checksum does not fit its "
            f"content{advice}"
        )
    return found


def to_tensors(content: Mapping[str, Any]) -> bytes:
    """Return a file with tensors, texts, numbers, None, and lists and dictionaries of them.

    It is a file of safetensors. Its header has all but the tensors as JSON, and the checksum.

    >>> import torch
    >>> from pathlib import Path
    >>> from arcgrad.recipes.checked_files import from_tensors, to_tensors
    >>> from_tensors("read", Path("a.safetensors"), to_tensors({"w": torch.ones(2), "epochs": 3}))
    {'w': tensor([1., 1.]), 'epochs': 3}
    """
    tensors: dict[str, Tensor] = {}
    plain = _without_tensors(content, "", tensors)
    header = json.dumps({SHA256: EMPTY, "content": plain})
    whole = bytearray(safetensors.torch.save(tensors, {HEADER: header}))
    begin = whole.index(EMPTY.encode())
    whole[begin : begin + len(EMPTY)] = digest(whole).encode()
    return bytes(whole)


def _without_tensors(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return a value with a reference in place of each tensor, which is added to ``tensors``."""
    if isinstance(value, Tensor):
        # safetensors refuses tensors that share memory.
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        return {TENSOR: name}
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"to_tensors: keys must be texts, but one is {key!r}")
        return {
            key: _without_tensors(inner, f"{name}/{key}" if name else key, tensors)
            for key, inner in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_tensors(v, f"{name}/{i}", tensors) for i, v in enumerate(value)]
    return value


def from_tensors(op: str, path: Path, content: bytes) -> dict[str, Any]:
    """Return the content of :func:`to_tensors`; tuples become lists.

    Args:
        op: The name of the caller, for errors.
        path: The file, for errors.
        content: The content of the file.

    Raises:
        ValueError: If the content is not what was written.
    """
    found = IN_HEADER.search(content)
    if found is None:
        raise ValueError(f"{op}: {str(path)!r} must be a checkpoint of arcgrad, but it is not")
    view = memoryview(content)
    computed = hashlib.sha256(view[: found.start(1)])
    computed.update(EMPTY.encode())
    computed.update(view[found.end(1) :])
    if computed.hexdigest().encode() != found[1]:
        raise ValueError(
            f"{op}: {str(path)!r} must be as it was written, but its checksum does not fit its "
            "content"
        )
    # A correct checksum does not prove that the writer was arcgrad.
    try:
        tensors = safetensors.torch.load(content)
        size = int.from_bytes(content[:8], "little")
        header = json.loads(content[8 : 8 + size])["__metadata__"][HEADER]

        def resolve(entry: dict[str, Any]) -> Any:
            return tensors[entry[TENSOR]] if entry.keys() == {TENSOR} else entry

        plain = json.loads(header, object_hook=resolve)["content"]
    except Exception as error:
        raise ValueError(
            f"{op}: {str(path)!r} must be a checkpoint of arcgrad, but reading it fails: "
            f"{_files.shown(error)}"
        ) from None
    if not isinstance(plain, dict):
        raise ValueError(f"{op}: {str(path)!r} must be a checkpoint of arcgrad, but it is not")
    return plain
