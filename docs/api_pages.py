"""Write the reference: everything in `__all__`, so that no list of operations is kept by hand.

The operations are on one page per section of `csrc/arcgrad/ops.h`, each with a picture of its
example. The other names of `arcgrad` are grouped here, those of its modules have a page per module.
"""

import inspect
import re
from pathlib import Path
from types import ModuleType

from pictures import example_picture

ROOT = Path(__file__).parents[1]

# The pages of names that are not operations. A name that stands nowhere is an error.
OTHERS = {
    "Graphs": (
        *("Graph", "Arc", "epsilon", "phi", "rho", "SymbolTable", "linear_graph", "linear_graphs"),
        *("scalar_graph", "chain_graph", "levenshtein_graph", "random_graph", "Encoder"),
        *("LazyComposition",),
    ),
    "Strings": ("string", "paths", "edit_distance"),
    "Descriptions": ("info", "GraphInfo", "arc_sources"),
    "Differentiation": ("backward", "grad", "hvp", "no_grad", "is_grad_enabled"),
    "Files and pictures": (
        *("load", "save", "load_archive", "save_archive", "loadtxt", "savetxt"),
        *("to_openfst", "from_openfst", "to_k2", "from_k2", "draw", "write_dot"),
    ),
    "Threads, memory and kernels": (
        *("parallel_for", "get_num_threads", "set_num_threads", "explain", "Explanation"),
        *("get_history_limit", "set_history_limit", "get_memory_limit", "set_memory_limit"),
    ),
}


def sections() -> dict[str, list[str]]:
    """The operations that each section of the index of the core declares, in its order."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in (ROOT / "csrc/arcgrad/ops.h").read_text().splitlines():
        if re.fullmatch(r"// [A-Z][a-z ]+", line):
            title = line[3:]
        elif title and (declared := re.match(r"[\w:<>]+ (\w+)\(", line)):
            names = found.setdefault(title, [])
            if (name := declared[1].removesuffix("_")) not in names:
                names.append(name)
    return found


def groups(package: ModuleType, names: list[str]) -> dict[str, list[str]]:
    """The public names of the package by page; every name is on one page."""
    public = set(names)
    found = {
        title: [name for name in members if name in public]
        for title, members in (sections() | OTHERS).items()
    }
    missing = public.difference(*found.values())
    if missing:
        raise ValueError(f"{package.__name__}: no page of the reference has {sorted(missing)}")
    return {title: members for title, members in found.items() if members}


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


def picture(module: ModuleType, name: str) -> str:
    """The picture of the example of a function, as raw HTML; empty if there is nothing to draw."""
    html = example_picture(module, name)
    if not html:
        return ""
    return ".. raw:: html\n\n" + "".join(f"   {line}\n" for line in html.splitlines())


def page(title: str, body: list[str]) -> str:
    return "\n".join([f"{title}\n{'=' * len(title)}\n", *body])


def module_page(module: ModuleType) -> str:
    parts = [f".. automodule:: {module.__name__}\n   :no-members:\n"]
    names = list(getattr(module, "__all__", []))
    return page(module.__name__, parts + [directive(module, name) for name in names])


def write(package: ModuleType, folder: Path, others: list[ModuleType]) -> None:
    """Write the pages of `package`, of each module among its public names, and of others."""
    folder.mkdir(exist_ok=True)
    public = [name for name in package.__all__ if not name.startswith("__")]
    modules = [name for name in public if inspect.ismodule(getattr(package, name))]
    pages = {}
    for k, (title, names) in enumerate(groups(package, sorted(set(public) - set(modules))).items()):
        body = [
            part for name in names for part in (directive(package, name), picture(package, name))
        ]
        pages[f"{k:02}-{re.sub('[^a-z]+', '-', title.lower())}"] = page(title, body)
    for module in [*(getattr(package, name) for name in modules), *others]:
        pages[module.__name__] = module_page(module)
    for old in folder.glob("*.rst"):
        if old.stem not in pages:
            old.unlink()
    for stem, text in pages.items():
        path = folder / f"{stem}.rst"
        # An unchanged file keeps its time, so that Sphinx need not read it again.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
