"""Whether an argument fits an annotation, and the error if not: one form for the whole package."""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import inspect
import operator
import os
import re
import reprlib
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=type)

# How a message names a type, alone and as the elements of a list.
_NAMES: dict[Any, tuple[str, str]] = {
    types.NoneType: ("None", "None"),
    bool: ("True or False", "bools"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    str: ("a str", "strings"),
    os.PathLike: ("a path", "paths"),
    collections.abc.Callable: ("a function", "functions"),
    collections.abc.Iterable: ("an iterable", "iterables"),
    collections.abc.Mapping: ("a mapping", "mappings"),
}
_SEQUENCES = (list, tuple, collections.abc.Sequence)

# `<op>: <rule>, but <what was given>`
_FORM = re.compile(r"[\w.]+( \([^)]*\))*: .*\b(but|or|from)\b", re.DOTALL)
_FOLDER = os.path.dirname(__file__) + os.sep
_JUNK_ERRORS = (AttributeError, KeyError, TypeError, ValueError, IndexError, OverflowError)

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 60


class Problem(NamedTuple):
    """Why a value does not fit.

    Attributes:
        path: The index and the number of elements of each list on the way to the value.
        wanted: What the value must be.
        value: The value.
        error: The class of the exception.
    """

    path: tuple[tuple[int, int], ...]
    wanted: str
    value: Any
    error: type[Exception] = TypeError


def is_in_form(message: str) -> bool:
    """Whether an error names its op and says what was given."""
    return _FORM.match(message) is not None


@contextlib.contextmanager
def renamed(op: str) -> Iterator[None]:
    """Errors of an inner function under the name of the op that the user called."""
    try:
        yield
    except (TypeError, ValueError, MemoryError) as error:
        raise type(error)(re.sub(r"^[\w.]+", op, str(error), count=1)) from None


def find_problem(value: Any, wanted: Any, *, deep: bool = True) -> Problem | None:
    """Why a value does not fit an annotation, or None; ``deep`` looks at elements of lists."""
    problems: list[Problem] = []
    is_path = any((typing.get_origin(one) or one) is os.PathLike for one in _alternatives(wanted))
    if is_path and isinstance(value, str):
        try:
            os.fsencode(value)  # a name that is not UTF-8 has surrogates
        except UnicodeEncodeError:
            return Problem((), "be a name that the file system can hold", value, ValueError)
        return None
    for one in _alternatives(wanted):
        problem = _find(value, one, deep)
        if problem is None:
            return None
        problems.append(problem)
    # A list with a wrong element, or a number out of range, is closer than another type.
    best = max(problems, key=lambda problem: (len(problem.path), problem.error is ValueError))
    if best.path or best.error is ValueError:
        return best
    return Problem((), _describe(wanted), value)


def refusal(op: str, name: str, problem: Problem) -> Exception:
    """The exception for an argument: ``<op>: <name> must be <what>, but it is <value>``."""
    element = ""
    if problem.path:
        element = " (element {} of {})".format(*problem.path[0])
        for index, _ in problem.path[1:]:
            name = f"element {index} of {name}"
    return problem.error(
        f"{op}{element}: {name} must {problem.wanted}, but it is {_show(problem.value)}"
    )


class _Function:
    """A function with the annotations that its arguments are compared with."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @functools.cached_property
    def wanted(self) -> dict[str, Any]:
        """The annotation of each parameter, in order; Any without one."""
        hints = typing.get_type_hints(self.function)
        return {name: hints.get(name, Any) for name in inspect.signature(self.function).parameters}

    @functools.cached_property
    def plain(self) -> dict[str, tuple[type, ...]]:
        """The types of each parameter that fit without a closer look."""
        return {name: tuple(_plain_types(wanted)) for name, wanted in self.wanted.items()}

    def op(self, args: tuple[Any, ...]) -> str:
        """What errors call the function."""
        name = self.function.__name__
        return type(args[0]).__name__ if name == "__init__" else name

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any], deep: bool) -> None:
        """Raise an error for the first argument that does not fit."""
        plain = self.plain
        for name, value in (*zip(plain, args, strict=False), *kwargs.items()):
            if name not in plain:
                continue
            if not deep and isinstance(value, plain[name]) and _is_ordinary(value):
                continue
            if problem := find_problem(value, self.wanted[name], deep=deep):
                raise refusal(self.op(args), name, problem)

    def explain(self, error: Exception, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise an error in our form instead of one that Python or NumPy raised here."""
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        file = trace.tb_frame.f_code.co_filename if trace is not None else ""
        # Errors of a function that the user passed, and of a call that Python refused, stay.
        is_ours = file.startswith(_FOLDER) and file != __file__
        if not is_ours or is_in_form(str(error)):
            return
        try:
            self.check(args, kwargs, deep=True)
        except (TypeError, ValueError) as better:
            raise better from error
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(
            f"{self.op(args)}: arguments must have the documented form, but Python says: {error}"
        ) from error


def checked(function: F) -> F:
    """A function that refuses arguments that differ from its annotations, in our form.

    Elements of lists are looked at if the function fails.
    """
    return _wrap(function, checks_first=True)


def explained(function: F) -> F:
    """The same for a function that is called often: it looks at arguments only if it fails."""
    return _wrap(function, checks_first=False)


def _wrap(function: F, *, checks_first: bool) -> F:
    own = _Function(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if checks_first:
            own.check(args, kwargs, deep=False)
        try:
            return function(*args, **kwargs)
        except _JUNK_ERRORS as error:
            own.explain(error, args, kwargs)
            raise

    return typing.cast(F, call)


def checked_class(cls: C) -> C:
    """A class whose constructor and public methods are :func:`checked`."""
    for name, value in list(vars(cls).items()):
        if name.startswith("_") and name != "__init__":
            continue
        if isinstance(value, staticmethod):
            setattr(cls, name, staticmethod(checked(value.__func__)))
        elif inspect.isfunction(value):
            setattr(cls, name, checked(value))
    return cls


def _alternatives(wanted: Any) -> Iterable[Any]:
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        for one in typing.get_args(wanted):
            yield from _alternatives(one)
    else:
        yield types.NoneType if wanted is None else wanted


def _is_ordinary(value: Any) -> bool:
    """Whether a value of a right type needs no closer look: it may be too large, or no text."""
    if isinstance(value, int):
        return value.bit_length() < 64
    return not isinstance(value, str) or value.isascii()


def _plain_types(wanted: Any) -> Iterable[type]:
    for one in _alternatives(wanted):
        kind = typing.get_origin(one) or one
        if kind is Any or kind is object:
            yield object
        elif kind is float:
            yield from (float, int)
        elif kind is Literal:
            yield str
        elif kind in _SEQUENCES:
            yield from (list, tuple)
        elif isinstance(kind, type) and kind.__module__ != "collections.abc":
            yield kind


def _find(value: Any, wanted: Any, deep: bool) -> Problem | None:
    """The same for an annotation without alternatives."""
    other = Problem((), _describe(wanted), value)
    kind = typing.get_origin(wanted) or wanted
    if kind is int:
        try:
            number = operator.index(value)
        except TypeError:
            return other
        fits = -(2**63) <= number < 2**63
        return None if fits else Problem((), "fit 64 bits", value, ValueError)
    if kind is float:
        if isinstance(value, str) or not hasattr(type(value), "__float__"):
            return None if hasattr(type(value), "__index__") else other
        try:
            float(value)
        except OverflowError:
            return Problem((), "fit 64 bits as a floating-point number", value, ValueError)
        except Exception:
            return other
        return None
    if kind is bool:
        return None if isinstance(value, bool | np.bool_) else other
    if kind is str or kind is Literal:
        if not isinstance(value, str):
            return other
        try:
            value.encode()
        except UnicodeEncodeError:
            return Problem((), "be text that UTF-8 can hold", value, ValueError)
        return None
    if kind in _SEQUENCES:
        if kind is collections.abc.Sequence and isinstance(value, str):
            return None if str in _alternatives(*typing.get_args(wanted)) else other
        if not isinstance(value, list | tuple | np.ndarray | collections.abc.Sequence):
            return other
        elements = typing.get_args(wanted)
        if deep and len(elements) == 1 and isinstance(value, list | tuple):
            for i, element in enumerate(value):
                if problem := find_problem(element, elements[0]):
                    return problem._replace(path=((i, len(value)), *problem.path))
        return None
    if kind is collections.abc.Callable:
        return None if callable(value) else other
    if kind is collections.abc.Iterable:
        return None if hasattr(value, "__iter__") or hasattr(value, "__getitem__") else other
    if kind is Any or not isinstance(kind, type):
        return None
    return None if isinstance(value, kind) else other


def _describe(wanted: Any) -> str:
    parts = list(dict.fromkeys(map(_name, _alternatives(wanted))))
    if len(parts) > 1:
        parts[-2:] = [f"{parts[-2]} or {parts[-1]}"]
    return "be " + ", ".join(parts)


def _name(wanted: Any, plural: bool = False) -> str:
    kind = typing.get_origin(wanted) or wanted
    if kind is Literal:
        return " or ".join(map(repr, typing.get_args(wanted)))
    if kind in _SEQUENCES:
        elements = [one for one in typing.get_args(wanted) if one is not ...]
        name = "lists" if plural else "a list"
        if len(elements) == 1 and elements[0] is not Any:
            inner = (_name(one, True) for one in _alternatives(elements[0]))
            name += " of " + " or ".join(inner)
        return name
    if kind in _NAMES:
        return _NAMES[kind][plural]
    name = getattr(kind, "__name__", str(kind))
    if plural:
        return f"{name}s"
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


def _show(value: Any) -> str:
    if value is None:
        return "None"
    name = type(value).__name__
    if isinstance(value, int) and value.bit_length() > 1000:
        return f"a number of {value.bit_length()} bits"
    if isinstance(value, str | bytes | bool | int | float | complex | np.generic):
        return f"{_repr.repr(value)} ({name})"
    return f"of type {name}"
