"""Words of tensors: the decoder with a lexicon and a language model, and the alignment of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import arcgrad as ag
from arcgrad import decoding
from arcgrad._arguments import checked

from ._leaves import borrow


class CTCDecoder(decoding.CTCDecoder):
    """:class:`arcgrad.decoding.CTCDecoder` that takes tensors, too.

    Tensors may be on any device, have any floating-point type and need gradients; results are
    plain values.

    >>> import torch, arcgrad.torch as agt
    >>> decoder = agt.CTCDecoder(["<blank>", "|", "a", "c", "t"], lexicon=["act", "cat"])
    >>> log_probs = torch.eye(5)[torch.tensor([3, 2, 4, 4, 0])].mul(4).log_softmax(-1)
    >>> decoder.decode(log_probs)[0][0].text
    'cat'
    """

    def _array(self, op: str, values: Any, dims: tuple[int, ...]) -> Any:
        return super()._array(op, to_numpy(values), dims)

    def lattice(self, log_probs: Any, lattice_beam: float = math.inf) -> ag.Graph:
        """As :meth:`arcgrad.decoding.CTCDecoder.lattice`; a tensor gets the gradients.

        >>> import torch, arcgrad as ag, arcgrad.torch as agt
        >>> log_probs = torch.eye(3)[[0, 1, 2]].log_softmax(-1).requires_grad_()
        >>> lattice = agt.CTCDecoder(["", "a", "b"]).lattice(log_probs)
        >>> agt.tensor(ag.forward_score(lattice)).sum().backward()
        >>> [round(x, 3) for x in log_probs.grad.sum(-1).tolist()]
        [1.0, 1.0, 1.0]
        """
        if isinstance(log_probs, Tensor) and log_probs.dim() == 2 and log_probs.requires_grad:
            log_probs = borrow("lattice", log_probs, None, True)[0]
        return super().lattice(log_probs, lattice_beam)

    def _examples(self, op: str, log_probs: Any, lengths: Any) -> Any:
        return super()._examples(op, log_probs, to_numpy(lengths))


@checked
def align_words(
    log_probs: Any, words: Any, labels: Sequence[str], *, lengths: Any = None, **options: Any
) -> Any:
    """:func:`arcgrad.decoding.align_words` that takes tensors, too.

    Tensors may be on any device, have any floating-point type and need gradients; results are
    plain values.

    Args:
        log_probs: Log-probabilities ``[T, C]``; a batch is ``[B, T, C]`` or a list.
        words: A text, or the list of its words; for a batch a list of these.
        labels: The name of each label.
        lengths: The number of frames of each example of a batch.
        options: The options of :func:`arcgrad.decoding.align_words`.

    >>> import torch, arcgrad.torch as agt
    >>> log_probs = torch.eye(4)[torch.tensor([0, 2, 3, 0, 1, 2, 0])].mul(4).log_softmax(-1)
    >>> words = agt.align_words(log_probs, "ab a", ["<blank>", "|", "a", "b"], frame_shift=0.02)
    >>> [(word.word, word.start, word.end) for word in words]
    [('ab', 0.02, 0.06), ('a', 0.1, 0.12)]
    """
    if isinstance(log_probs, list | tuple):
        log_probs = [to_numpy(each) for each in log_probs]
    return decoding.align_words(
        to_numpy(log_probs), words, labels, lengths=to_numpy(lengths), **options
    )


def to_numpy(values: Any) -> Any:
    """A tensor as an array; other values as they are."""
    if not isinstance(values, Tensor):
        return values
    values = values.detach().cpu()
    if values.dtype in (torch.float16, torch.bfloat16):
        values = values.float()
    return values.numpy()
