"""The signatures of the functions of the core, and what is wrong with a call that does not fit.

Importing this module wraps the functions and methods of ``_core``, so that ``inspect.signature``
can read them and an error names the argument that does not fit.
"""

from __future__ import annotations

import collections.abc
import functools
import inspect
import operator
import os
import re
import types
import typing
from typing import Any

import numpy

from . import _core
from ._arguments import find_problem, is_in_form, refusal

_EMPTY = inspect.Parameter.empty


@functools.cache
def _overloads(function: Any) -> list[inspect.Signature]:
    """The signature of each overload of a function of nanobind, ``self`` included."""
    found = []
    for text, _, defaults in function.__nb_signature__:
        text = text.rpartition("\n")[2]
        # Shapes of arrays and references to defaults are not Python.
        text = re.sub(r"(numpy\.)?\bndarray\[dtype=[^]]*\]", "numpy.ndarray", text)
        text = re.sub(r"\\(\d+)", r"_defaults[\1]", text)
        text = re.sub(r"^def \w+", "def _function", text)
        scope = vars(_core) | {
            "arcgrad": types.SimpleNamespace(
                _core=_core, gtn=types.SimpleNamespace(Graph=_core.GtnGraph)
            ),
            "collections": collections,
            "numpy": numpy,
            "os": os,
            "typing": typing,
            "_defaults": defaults,
        }
        exec(compile(f"{text}: ...", "<signature>", "exec", dont_inherit=True), scope)
        found.append(inspect.signature(scope["_function"]))
    return found


@functools.cache
def find_signature(function: Any) -> inspect.Signature:
    """The signature of a function of nanobind. Annotations of overloads are joined."""
    overloads = _overloads(function)
    # The overload of a copy constructor comes first where it is tried first.
    first = max(overloads, key=lambda signature: len(signature.parameters))
    parameters = [
        parameter.replace(
            annotation=_join(
                s.parameters[name].annotation for s in overloads if name in s.parameters
            )
        )
        for name, parameter in first.parameters.items()
    ]
    return inspect.Signature(
        parameters, return_annotation=_join(s.return_annotation for s in overloads)
    )


def _join(annotations: Any) -> Any:
    listed = list(dict.fromkeys(annotations))
    return listed[0] if len(listed) == 1 else functools.reduce(operator.or_, listed)


def find_documentation(function: Any) -> str:
    """One signature for all overloads of a function of nanobind, and its description."""
    signature = find_signature(function)
    shown = [p for name, p in signature.parameters.items() if name != "self"]
    text = re.sub(
        r"\b(arcgrad\._core|collections\.abc|numpy|typing|os)\.",
        "",
        str(signature.replace(parameters=shown)),
    )
    texts = (inspect.cleandoc(text) for _, text, _ in function.__nb_signature__ if text)
    return "\n\n".join([f"{function.__name__}{text}", *texts])


def explain_call(
    function: Any, error: TypeError | MemoryError, args: list[Any], named: dict[str, Any]
) -> Exception | None:
    """The exception for a call that fits no overload or has no memory; None for other errors."""
    op = function.__name__.removeprefix("gtn_")
    if isinstance(error, MemoryError):
        op = function.__qualname__.removesuffix(".__init__") if op == "__init__" else op
        text = str(error).replace(
            "std::bad_alloc", "there must be memory for the result, but the system has none left"
        )
        return None if is_in_form(text) else MemoryError(f"{op}: {text}")
    if not str(error).startswith(f"{function.__name__}(): incompatible function arguments"):
        return None
    signatures = _overloads(function)
    if type(function).__name__ == "nb_method":
        owner = function.__qualname__.rpartition(".")[0]
        if op == "__init__":
            op = owner
        elif not args or all(c.__name__ != owner for c in type(args[0]).__mro__):
            return TypeError(f"{op}: it must be called on a {owner}, but it is not")
        args = args[1:]
        signatures = [_without_self(signature) for signature in signatures]
    found = [_match(op, signature, args, named) for signature in signatures]
    problems = [problem for problem in found if problem is not None]
    if len(problems) < len(found):
        given = ", ".join(type(value).__name__ for value in (*args, *named.values())) or "missing"
        return TypeError(f"{op}: arguments must have the documented types, but they are {given}")
    # The overload that takes the most arguments is the one that was meant.
    most = max(place for place, _, _ in problems)
    _, name, first = next(problem for problem in problems if problem[0] == most)
    closest = [s for s, (place, _, _) in zip(signatures, problems, strict=True) if place == most]
    values = dict(zip(closest[0].parameters, args, strict=False)) | named
    if name not in values or not all(name in signature.parameters for signature in closest):
        return first
    wanted = _join(signature.parameters[name].annotation for signature in closest)
    whole = find_problem(values[name], wanted)
    return refusal(op, _title(name), whole) if whole else first


def _without_self(signature: inspect.Signature) -> inspect.Signature:
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _title(name: str) -> str:
    return f"the {name} graph" if name in ("first", "second") else name


def _match(
    op: str, signature: inspect.Signature, args: list[Any], named: dict[str, Any]
) -> tuple[int, str, Exception] | None:
    """The place and the name of the first argument that does not fit, and the exception."""
    parameters = list(signature.parameters.values())
    positional = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    if len(args) > len(positional):
        rule = f"at most {len(positional)} arguments" if positional else "no arguments"
        error = f"{op}: there must be {rule} by position, but there are {len(args)}"
        return -1, "", TypeError(error)
    values = dict(zip((p.name for p in positional), args, strict=False))
    for name, value in named.items():
        if name in values:
            error = f"{op}: {name} must be given once, but it is given by position and by name"
            return -1, "", TypeError(error)
        if name not in signature.parameters:
            known = ", ".join(p.name for p in parameters) or "no name"
            error = f"{op}: the name of an argument must be {known}, but one is {name}"
            return -1, "", TypeError(error)
        values[name] = value
    for place, parameter in enumerate(parameters):
        name = parameter.name
        if name not in values:
            if parameter.default is _EMPTY:
                return place, name, TypeError(f"{op}: {name} must be given, but it is missing")
            continue
        if problem := find_problem(values[name], parameter.annotation):
            return place, name, refusal(op, _title(name), problem)
    return None


def _wrap() -> None:
    owners: list[Any] = [_core, *(c for c in vars(_core).values() if isinstance(c, type))]
    for owner in owners:
        constructor = getattr(owner, "__init__", None)
        if owner is not _core and type(constructor).__name__ != "nb_method":
            owner.__signature__ = inspect.Signature()  # the core makes its instances
        for name, value in list(vars(owner).items()):
            kind = type(value).__name__
            # Operators return NotImplemented instead of raising an error.
            if kind in ("nb_func", "nb_method") and (name == "__init__" or name[:2] != "__"):
                function: Any = _core.wrap_function(value, kind == "nb_method")
                is_static = kind == "nb_func" and owner is not _core
                setattr(owner, name, staticmethod(function) if is_static else function)


_core.set_explainers(explain_call, find_signature, find_documentation)
_wrap()
