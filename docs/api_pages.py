"""Write the API pages: everything in `arcgrad.__all__`, so that no list is kept by hand."""

import inspect
from pathlib import Path
from types import ModuleType


def directive(module: ModuleType, name: str) -> str:
    """The autodoc directive that documents one public name of `module`."""
    value = getattr(module, name)
    full_name = f"{module.__name__}.{name}"
    if inspect.isclass(value):
        options = "   :members:\n   :special-members: __matmul__, __add__\n"
        return f".. autoclass:: {full_name}\n{options}"
    if callable(value):
        return f".. autofunction:: {full_name}\n"
    # autodata would show the description of the type of the value.
    return f".. py:data:: {full_name}\n   :value: {value!r}\n"


def page(module: ModuleType, names: list[str]) -> str:
    """A page with the description of `module` and of each of `names`."""
    title = module.__name__
    parts = [f"{title}\n{'=' * len(title)}\n", f".. automodule:: {title}\n   :no-members:\n"]
    return "\n".join(parts + [directive(module, name) for name in names])


def write(package: ModuleType, folder: Path, others: list[ModuleType]) -> None:
    """Write one page for `package`, one for each module among its public names, and for others."""
    folder.mkdir(exist_ok=True)
    public = [name for name in package.__all__ if not name.startswith("__")]
    modules = [name for name in public if inspect.ismodule(getattr(package, name))]
    pages = {package.__name__: page(package, [name for name in public if name not in modules])}
    for module in [*(getattr(package, name) for name in modules), *others]:
        pages[module.__name__] = page(module, list(getattr(module, "__all__", [])))
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for stem, text in pages.items():
        path = folder / f"{stem}.rst"
        # An unchanged file keeps its time, so that Sphinx need not read it again.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
