"""Losses from token graphs, lexicons and transitions (equations 2 and 4 of the paper)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

import arcgrad as ag
from arcgrad._arguments import checked

from ._leaves import all_weights, graph
from ._parameters import check_fingerprint, fingerprint
from ._targets import Targets
from .decoding import TokenSpan, best_frames, best_labels, forced_align
from .sequence import Graphs, Reduction, SequenceLoss


class TransducerLoss(SequenceLoss):
    r"""A sequence loss from token graphs, with a lexicon and transitions where wanted.

    .. math:: A = E \circ (B \circ (T \circ (L \circ Y))) \quad\text{and}\quad Z = E \circ B

    Args:
        tokens: The number of tokens, or a list of tokens, of which only the length counts; or
            :class:`arcgrad.tokens.Tokens` for any token graphs (spikes, limited durations, ...).
        lexicon: The spellings of targets in tokens; the loss sums over all of them. Either an
            :class:`arcgrad.lexicon.Lexicon` for targets that are texts or graphemes, whose
            ``first_label`` is the label of the first token (1 after a blank 0); or a transducer
            from labels of tokens to labels of targets. Without one, targets are labels of tokens.
        transitions: A graph over labels, such as from :func:`arcgrad.ngram.backoff_graph`, whose
            weights are the initial values of the parameter; or :class:`arcgrad.ngram.Counts` of
            labels, for a back-off graph with an arc for each of their n-grams, with blanks inserted
            as ``blank`` says and, if tokens may last several frames, repeated tokens; or the order
            of a dense n-gram graph (2 for bigrams). Order 0 means no transitions, as None does.
        backoff: For counts, what the back-off arcs are: ``"failure"``, so that each sequence of
            labels has one path, or ``"epsilon"``, as in the paper.
        blank: ``"none"``, ``"forced"`` or ``"optional"``.
        blank_label: The label of the blank. The tokens are all other labels, in their order.
        allow_repeats: Whether equal tokens may follow one another without a blank.
        learn_transitions: Whether the weights of the transitions are a parameter; else they are
            constant.
        normalize: Without transitions, whether to normalize over all paths, so that emissions may
            be any scores; else they must be log-probabilities.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        zero_infinity: Count an infinite loss, of a target that does not fit, as 0.
        nan: ``"raise"`` or ``"propagate"``.
        infeasible: ``"raise"`` for a target that does not fit, or ``"propagate"``.

    Attributes:
        tokens: How frames spell tokens.
        transitions: The weights of the transitions in the order of the arcs, or None.

    >>> import torch, arcgrad.torch as agt
    >>> loss = agt.TransducerLoss(26, blank="optional", allow_repeats=False)  # CTC
    >>> x = torch.randn(2, 20, 27, requires_grad=True)
    >>> loss(x, [[8, 9], [1, 1]], lengths=[20, 15]).backward()
    """

    transitions: Tensor | None

    @checked
    def __init__(
        self,
        tokens: int | Sequence[str] | ag.tokens.Tokens,
        lexicon: ag.lexicon.Lexicon | ag.Graph | None = None,
        transitions: ag.Graph | ag.ngram.Counts | int | None = None,
        *,
        backoff: Literal["failure", "epsilon"] = "failure",
        blank: Literal["none", "forced", "optional"] = "none",
        blank_label: int = 0,
        allow_repeats: bool = True,
        learn_transitions: bool = True,
        normalize: bool = True,
        reduction: Reduction = "mean",
        zero_infinity: bool = False,
        nan: Literal["raise", "propagate"] = "raise",
        infeasible: Literal["raise", "propagate"] = "propagate",
    ) -> None:
        super().__init__(
            reduction=reduction, zero_infinity=zero_infinity, nan=nan, infeasible=infeasible
        )
        if isinstance(tokens, ag.tokens.Tokens):
            if (blank, blank_label, allow_repeats) != ("none", 0, True):
                raise ValueError(
                    "TransducerLoss: blank, blank_label and allow_repeats belong to a number of "
                    f"tokens, but the tokens are {tokens}; set these options of Tokens"
                )
            self.tokens = tokens
        else:
            count = tokens if isinstance(tokens, int) else len(tokens)
            self.tokens = ag.tokens.Tokens(
                count + (blank != "none"),
                blank=blank,
                blank_label=blank_label,
                allow_repeats=allow_repeats,
            )
        if isinstance(transitions, int):
            transitions = self._dense(transitions)
        elif isinstance(transitions, ag.ngram.Counts):
            transitions = self._back_off(transitions, backoff)
        elif backoff != "failure":
            raise ValueError(
                "TransducerLoss: backoff belongs to counts, but the transitions are "
                f"{'None' if transitions is None else 'a graph'}; make the graph with it"
            )
        if transitions is not None and not transitions.is_acceptor():
            raise ValueError(
                "TransducerLoss: transitions must be an acceptor over labels, but input and output "
                "labels of some arc differ"
            )
        self.lexicon, self.normalize = lexicon, normalize
        self._transition_graph = transitions.detach() if transitions is not None else None
        weights = None
        if transitions is not None:
            weights = torch.from_numpy(all_weights([transitions]))
        if weights is not None and learn_transitions:
            self.transitions = nn.Parameter(weights)
        else:
            self.register_buffer("transitions", weights)

    def _dense(self, order: int) -> ag.Graph | None:
        if order == 0:
            return None
        return ag.ngram.dense_graph(self.tokens.num_labels, order, calc_grad=False)

    def _back_off(
        self, counts: ag.ngram.Counts, backoff: Literal["failure", "epsilon"]
    ) -> ag.Graph:
        if counts.num_tokens > self.tokens.num_labels:
            raise ValueError(
                f"TransducerLoss: counts must be of the {self.tokens.num_labels} labels, but they "
                f"have {counts.num_tokens} tokens"
            )
        return ag.ngram.backoff_graph(
            counts,
            backoff=backoff,
            blank=self.tokens.blank,
            blank_label=self.tokens.blank_label,
            self_loops=self.tokens.max_frames != 1,
            calc_grad=False,
        )

    def extra_repr(self) -> str:
        """The options, as modules of torch print them."""
        parts = [repr(self.tokens)]
        if self._transition_graph is not None:
            parts.append(f"transitions={self._transition_graph.num_arcs()} arcs")
        if self.lexicon is not None:
            parts.append(f"lexicon={type(self.lexicon).__name__}")
        return ", ".join([*parts, super().extra_repr()])

    def weights(self) -> tuple[Tensor, ...]:
        """The weights of the transitions; empty without transitions."""
        return () if self.transitions is None else (self.transitions,)

    def get_extra_state(self) -> str | None:
        """The fingerprint of the graph whose arcs have these weights."""
        return fingerprint(self._transition_graph) if self._transition_graph is not None else None

    def set_extra_state(self, state: object) -> None:
        """Raise RuntimeError for weights of another graph."""
        if self._transition_graph is not None:
            check_fingerprint("TransducerLoss", self._transition_graph, state)

    def graphs(self, targets: Targets, *weights: Tensor) -> tuple[Graphs, Graphs | bool]:
        """The alignments with the scores of transitions, and the transitions alone."""
        if targets.num_labels != self.tokens.num_labels:
            raise ValueError(
                f"TransducerLoss: emissions must have {self.tokens.num_labels} labels, as the "
                f"tokens have, but they have {targets.num_labels}"
            )
        labels, lengths = targets.labels, targets.lengths
        if self.lexicon is not None:
            labels, lengths = self._decompositions(targets), None
        alignments = ag.tokens.alignment_graph(self.tokens, labels, lengths=lengths)
        if self._transition_graph is None:
            return alignments, self.normalize
        transitions = graph(self._transition_graph, weights[0])
        return ag.intersect(alignments, transitions), transitions

    def _decompositions(self, targets: Targets) -> list[ag.Graph]:
        assert self.lexicon is not None
        sequences = targets.sequences()
        if isinstance(self.lexicon, ag.lexicon.Lexicon):
            found: list[ag.Graph] = ag.lexicon.decompositions(self.lexicon, sequences)
            return found
        chains = [
            target if isinstance(target, ag.Graph) else ag.chain_graph(target)
            for target in sequences
        ]
        return ag.remove(ag.project_input(ag.compose(self.lexicon, chains)))

    def transition_graph(self) -> ag.Graph | None:
        """The transitions with their present weights, for a search; None without transitions.

        >>> import arcgrad.torch as agt
        >>> agt.TransducerLoss(2, transitions=2).transition_graph().num_arcs()
        6
        """
        if self._transition_graph is None or self.transitions is None:
            return None
        return graph(self._transition_graph, self.transitions.detach())

    def viterbi(self, emissions: Tensor, lengths: Any = None) -> list[list[int]]:
        """The tokens of the best path of each example, as labels."""
        return best_labels("viterbi", emissions, lengths, self.tokens, self.transition_graph())

    def viterbi_frames(self, emissions: Tensor, lengths: Any = None) -> list[list[int]]:
        """The best path of each example: the label of every frame, including blanks.

        It is empty if there is no path.

        >>> import torch, arcgrad.torch as agt
        >>> loss = agt.TransducerLoss(2, blank="optional", allow_repeats=False)
        >>> x = torch.eye(3)[torch.tensor([[1, 1, 0, 2]])]
        >>> loss.viterbi_frames(x), loss.viterbi(x)
        ([[1, 1, 0, 2]], [[1, 2]])
        """
        paths = best_frames(
            "viterbi_frames", emissions, lengths, self.tokens, self.transition_graph()
        )
        return [[] if path is None else path for path in paths]

    def forced_align(
        self, emissions: Tensor, targets: Any, lengths: Any = None, target_lengths: Any = None
    ) -> list[list[TokenSpan]]:
        """The frames of each label of a target, under these tokens and transitions.

        Targets are given as to the loss. With a lexicon they are texts, and the labels are the word
        pieces of the best decomposition. See :func:`arcgrad.torch.forced_align` for the rest.

        >>> import torch, arcgrad as ag, arcgrad.torch as agt
        >>> pieces = ["t", "h", "e", "th", "the"]
        >>> lexicon = ag.lexicon.Lexicon(pieces, first_label=1)
        >>> loss = agt.TransducerLoss(pieces, lexicon, blank="optional", allow_repeats=False)
        >>> x = torch.eye(6)[torch.tensor([[4, 4, 0, 3]])]  # th th - e
        >>> [(span.token, span.start, span.end) for span in loss.forced_align(x, ["the"])[0]]
        [(4, 0, 2), (3, 3, 4)]
        """
        if self.lexicon is not None:
            batch = 1 if emissions.dim() == 2 else emissions.shape[0]
            read = Targets("forced_align", targets, target_lengths, batch, emissions.shape[-1])
            targets, target_lengths = self._decompositions(read), None
        return forced_align(
            emissions,
            targets,
            lengths,
            target_lengths,
            tokens=self.tokens,
            transitions=self.transition_graph(),
        )
