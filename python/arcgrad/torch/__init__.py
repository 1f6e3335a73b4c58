"""PyTorch: any program on graphs is a function of tensors, and sequence losses are modules.

``import arcgrad.torch as agt``. Needs PyTorch (``pip install 'arcgrad[torch]'``), which the core
never links: one build serves all its versions.
"""

from ._bridge import emissions, graph, tensor

__all__ = ["emissions", "graph", "tensor"]
