"""The automatic segmentation criterion (ASG): learned transitions and no blank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

import arcgrad as ag
from arcgrad._arguments import checked

from ._leaves import graph
from ._parameters import check_fingerprint, fingerprint
from ._targets import Targets
from .decoding import best_labels
from .sequence import Graphs, Reduction, SequenceLoss


class ASGLoss(SequenceLoss):
    r"""The ASG criterion with dense learned transitions (Figure 1 and equation 2 of the paper).

    .. math:: A = E \circ (B \circ (T \circ Y)) \quad\text{and}\quad Z = E \circ B

    where :math:`B` is a bigram graph with a learned weight for every pair of labels and for every
    label at the start. Emissions are scores of any size.

    Args:
        num_tokens: The number of tokens.
        repeats: Without a blank, "aa" cannot be told from a longer "a". So up to this many further
            copies of a token have labels of their own: ``num_tokens`` for one more copy,
            ``num_tokens + 1`` for two, and so on.
        garbage: Add a garbage label, the last one, which stands before, between and after tokens.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        zero_infinity: Count an infinite loss, of a target that does not fit, as 0.
        nan: ``"raise"`` or ``"propagate"``.
        infeasible: ``"raise"`` for a target that does not fit, or ``"propagate"``.

    Attributes:
        num_labels: The number of labels that emissions ``[B, T, num_labels]`` must have:
            ``num_tokens + repeats + garbage``.
        transitions: The weights ``[num_labels + 1, num_labels]``. Row 0 holds the scores of labels
            at the start, row ``i + 1`` the scores of labels after label ``i``.

    >>> import torch, arcgrad.torch as agt
    >>> loss = agt.ASGLoss(26, repeats=1)
    >>> x = torch.randn(2, 20, loss.num_labels, requires_grad=True)
    >>> loss(x, [[0, 1, 1], [3]]).backward()
    >>> loss.transitions.grad.shape
    torch.Size([28, 27])
    """

    @checked
    def __init__(
        self,
        num_tokens: int,
        *,
        repeats: int = 0,
        garbage: bool = False,
        reduction: Reduction = "mean",
        zero_infinity: bool = False,
        nan: Literal["raise", "propagate"] = "raise",
        infeasible: Literal["raise", "propagate"] = "propagate",
    ) -> None:
        super().__init__(
            reduction=reduction, zero_infinity=zero_infinity, nan=nan, infeasible=infeasible
        )
        if num_tokens < 1 or repeats < 0:
            raise ValueError(
                "ASGLoss: there must be at least one token and 0 or more repeats, but there are "
                f"{num_tokens} and {repeats}"
            )
        self.num_tokens, self.repeats, self.garbage = num_tokens, repeats, garbage
        self.num_labels = num_tokens + repeats + garbage
        self.tokens = (
            ag.tokens.Tokens(self.num_labels, blank="forced", blank_label=self.num_labels - 1)
            if garbage
            else ag.tokens.Tokens.asg(self.num_labels)
        )
        self.transitions = nn.Parameter(torch.zeros(self.num_labels + 1, self.num_labels))
        # The order of its arcs is the order of the transitions.
        self._bigram = ag.ngram.dense_graph(self.num_labels, 2, calc_grad=False)

    def extra_repr(self) -> str:
        """The options, as modules of torch print them."""
        return (
            f"{self.num_tokens}, repeats={self.repeats}, garbage={self.garbage}, "
            f"{super().extra_repr()}"
        )

    def weights(self) -> tuple[Tensor, ...]:
        """The scores of transitions."""
        return (self.transitions,)

    def get_extra_state(self) -> str:
        """The fingerprint of the graph whose arcs have these weights."""
        return fingerprint(self._bigram)

    def set_extra_state(self, state: object) -> None:
        """Raise RuntimeError for parameters of another graph."""
        check_fingerprint("ASGLoss", self._bigram, state)

    def graphs(self, targets: Targets, *weights: Tensor) -> tuple[Graphs, Graphs | bool]:
        """The alignments with the scores of transitions, and the transitions alone."""
        if targets.num_labels != self.num_labels:
            raise ValueError(
                f"ASGLoss: emissions must have {self.num_labels} labels ({self.num_tokens} tokens, "
                f"{self.repeats} repeats, {int(self.garbage)} garbage), but they have "
                f"{targets.num_labels}"
            )
        bigram = graph(self._bigram, weights[0])
        labels, lengths = targets.labels, targets.lengths
        if self.repeats:
            labels, lengths = [self.pack(target) for target in targets.label_sequences()], None
        alignments = ag.tokens.alignment_graph(self.tokens, labels, lengths=lengths)
        return ag.intersect(alignments, bigram), bigram

    def pack(self, target: Sequence[int]) -> list[int]:
        """The labels that spell a target: further copies of a token become repeat labels."""
        packed: list[int] = []
        run = 0
        for i, token in enumerate(int(t) for t in target):
            if not 0 <= token < self.num_tokens:
                raise ValueError(
                    f"ASGLoss: a token of a target must be between 0 and {self.num_tokens - 1}, "
                    f"but token {i} is {token}"
                )
            if i and token == int(target[i - 1]) and run < self.repeats:
                run += 1
                if run == 1:
                    packed.append(self.num_tokens)
                packed[-1] = self.num_tokens + run - 1
            else:
                run = 0
                packed.append(token)
        return packed

    def unpack(self, labels: Sequence[int]) -> list[int]:
        """The tokens that labels spell; a repeat label without a token before it is ignored."""
        tokens: list[int] = []
        for label in labels:
            if label < self.num_tokens:
                tokens.append(label)
            elif tokens and label < self.num_tokens + self.repeats:
                tokens += [tokens[-1]] * (label - self.num_tokens + 1)
        return tokens

    def viterbi(self, emissions: Tensor, lengths: Any = None) -> list[list[int]]:
        """The tokens of the best path of each example."""
        with torch.no_grad():
            bigram = graph(self._bigram, self.transitions)
            best = best_labels("viterbi", emissions, lengths, self.tokens, bigram)
        return [self.unpack(labels) for labels in best]
