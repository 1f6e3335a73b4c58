"""The context manager that turns recording on the tape off."""

from contextlib import ContextDecorator
from types import TracebackType

from ._core import set_grad_enabled


class no_grad(ContextDecorator):
    """Turns recording off in this thread, as a context manager or a decorator.

    Results computed inside require no gradient and keep no tape.

    >>> import arcgrad as ag
    >>> g = ag.linear_graph(1, 2)
    >>> with ag.no_grad():
    ...     score = ag.forward_score(g)
    >>> score.calc_grad
    False
    """

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(set_grad_enabled(False))

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        set_grad_enabled(self._before.pop())
