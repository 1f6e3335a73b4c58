"""Transition graphs with an arc for every n-gram."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from arcgrad._arguments import checked
from arcgrad._core import Graph, epsilon

MOST_ARCS = 2**31 - 1


@checked
def dense_graph(
    num_tokens: int,
    order: int,
    *,
    end_scores: bool = False,
    calc_grad: bool = True,
    dtype: Any = "float32",
) -> Graph:
    """The transition graph with an arc for every n-gram (Figure 4a of the paper for order 2).

    A node stands for the last ``order - 1`` tokens, or for all tokens of a shorter sequence. Node 0
    is the start ``<s>``, then come the histories of one token, of two, and so on, each in
    lexicographic order. The weights are 0, as parameters to be learned. Arc
    ``node * num_tokens + token`` reads ``token`` at ``node``. So with N nodes before the end node,
    ``weights[: N * num_tokens].reshape(N, num_tokens)`` is the table of scores.

    Args:
        num_tokens: The number of tokens C.
        order: The length n of the n-grams. (Order 0, no transitions, needs no graph.)
        end_scores: Whether the end of a sequence has a score. If so, an epsilon arc leads from each
            node to an end node, the only one that accepts; these arcs come last, in the order of
            their nodes. Else every node accepts. With order 1 there is one such score, which
            cancels in any normalized loss.
        calc_grad: Whether backward computes a gradient for this graph.
        dtype: The type of the weights.

    Returns:
        A graph with N = 1 + C + ... + C^(n-1) nodes and N C arcs; with end scores, N + 1 nodes and
        N C + N arcs.

    Raises:
        ValueError: If there are no tokens, the order is less than 1, or there are too many arcs.

    >>> import arcgrad as ag
    >>> graph = ag.ngram.dense_graph(3, 2)
    >>> graph.num_nodes(), graph.num_arcs(), graph.num_accept()
    (4, 12, 4)
    >>> graph = ag.ngram.dense_graph(20, 2, end_scores=True)
    >>> ag.explain(ag.intersect(graph, ag.linear_graph(5, 20))).kernel
    'dense'
    """
    num_tokens, order = operator.index(num_tokens), operator.index(order)
    if num_tokens < 1:
        raise ValueError(f"dense_graph: num_tokens must be 1 or more, but it is {num_tokens}")
    if order < 1:
        raise ValueError(
            f"dense_graph: the order must be 1 or more, but it is {order}; "
            f"without transitions leave the graph out"
        )
    # Order 33 needs more than 2^31 arcs with two tokens or more.
    num_nodes = order if num_tokens == 1 else sum(num_tokens**k for k in range(min(order, 33)))
    num_arcs = num_nodes * (num_tokens + end_scores)
    if num_arcs > MOST_ARCS:
        raise ValueError(
            f"dense_graph: there must be at most {MOST_ARCS} arcs, but {num_tokens} tokens and "
            f"order {order} need {'more' if order > 33 else num_arcs}; use backoff_graph"
        )
    node = np.arange(num_nodes, dtype=np.int32)
    label = np.arange(num_tokens, dtype=np.int32)
    # History h and token c lead to node h * C + 1 + c, as in a heap. The longest histories first
    # drop their first token, so they lead to the node of the last n - 1 tokens.
    child = node[:, None].astype(np.int64) * num_tokens + 1 + label
    longest = num_nodes - num_tokens ** (order - 1)
    width = num_tokens ** max(order - 2, 0)
    last = node[longest:, None].astype(np.int64) - longest
    child[longest:] = longest + (last % width * num_tokens + label if order > 1 else 0)
    src = np.repeat(node, num_tokens)
    dst = child.ravel().astype(np.int32)
    ilabel = np.tile(label, num_nodes)
    accept = node
    if end_scores:
        src = np.concatenate([src, node])
        dst = np.concatenate([dst, np.full(num_nodes, num_nodes, np.int32)])
        ilabel = np.concatenate([ilabel, np.full(num_nodes, epsilon, np.int32)])
        accept = np.array([num_nodes], np.int32)
    return Graph.from_arrays(
        src,
        dst,
        ilabel,
        start=[0],
        accept=accept,
        num_nodes=num_nodes + end_scores,
        dtype=dtype,
        calc_grad=calc_grad,
    )
