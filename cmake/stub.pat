# Additions to the generated stub: the generator leaves out names with double underscores.
_core.__suffix__:
    __version__: str

# The stub generator cannot import the package that the type is in.
_core.Graph.__iter__$:
    \from collections.abc import Iterator
    \from arcgrad._arcs import Arc
    def __iter__(self) -> Iterator[Arc]: ...

# One target gives one graph and several give a list. An array may be either.
_core.alignment_graph$:
    \from typing import Any, overload
    \from collections.abc import Sequence
    @overload
    def alignment_graph(tokens: Tokens, target: Graph | Sequence[int], *, lengths: None = None, outputs: bool = False, calc_grad: bool = False, dtype: object | None = None) -> Graph:
        \doc
    @overload
    def alignment_graph(tokens: Tokens, target: Sequence[Graph] | Sequence[Sequence[int]], *, lengths: None = None, outputs: bool = False, calc_grad: bool = False, dtype: object | None = None) -> list[Graph]: ...
    @overload
    def alignment_graph(tokens: Tokens, target: Any, *, lengths: Any, outputs: bool = False, calc_grad: bool = False, dtype: object | None = None) -> list[Graph]: ...
    @overload
    def alignment_graph(tokens: Tokens, target: Any, *, lengths: Any = None, outputs: bool = False, calc_grad: bool = False, dtype: object | None = None) -> Any: ...

_core.ctc_graph$:
    \from typing import Any, overload
    \from collections.abc import Sequence
    @overload
    def ctc_graph(target: Sequence[int], blank: int = 0, *, lengths: None = None, num_labels: int | None = None, calc_grad: bool = False, dtype: object = 'float32') -> Graph:
        \doc
    @overload
    def ctc_graph(target: Sequence[Sequence[int]], blank: int = 0, *, lengths: None = None, num_labels: int | None = None, calc_grad: bool = False, dtype: object = 'float32') -> list[Graph]: ...
    @overload
    def ctc_graph(target: Any, blank: int = 0, *, lengths: Any, num_labels: int | None = None, calc_grad: bool = False, dtype: object = 'float32') -> list[Graph]: ...
    @overload
    def ctc_graph(target: Any, blank: int = 0, *, lengths: Any = None, num_labels: int | None = None, calc_grad: bool = False, dtype: object = 'float32') -> Any: ...

_core.Tokens.collapse$:
    \from typing import Any, overload
    \from collections.abc import Sequence
    @overload
    def collapse(self, frames: Sequence[int], *, lengths: None = None) -> list[int]:
        \doc
    @overload
    def collapse(self, frames: Sequence[Sequence[int]], *, lengths: None = None) -> list[list[int]]: ...
    @overload
    def collapse(self, frames: Any, *, lengths: Any) -> list[list[int]]: ...
    @overload
    def collapse(self, frames: Any, *, lengths: Any = None) -> Any: ...

# A symbol gives a label and a label a symbol. Tables can be changed, so they have no hash.
_core.SymbolTable.__getitem__$:
    \from typing import overload
    @overload
    def __getitem__(self, key: str) -> int: ...
    @overload
    def __getitem__(self, key: int) -> str: ...

_core.SymbolTable.__hash__$:
    __hash__ = None  # type: ignore[assignment]
