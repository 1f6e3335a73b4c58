"""Edit distance with learned costs: insertions, deletions and substitutions as one transducer.

Usage: python examples/edit_distance.py
"""

import numpy as np
import torch

import arcgrad as ag
import arcgrad.torch as agt


def edit_graph(num_symbols):
    """One node; its arcs are deletions, insertions, then substitutions for each pair of symbols."""
    symbols = np.arange(num_symbols)
    none = np.full(num_symbols, ag.epsilon)
    ilabel = np.concatenate([symbols, none, np.repeat(symbols, num_symbols)])
    olabel = np.concatenate([none, symbols, np.tile(symbols, num_symbols)])
    nodes = np.zeros_like(ilabel)
    return ag.Graph.from_arrays(nodes, nodes, ilabel, olabel, start=[0], accept=[0])


def edits(costs, pairs, num_symbols):
    """All ways to edit each source into its target, weighted by their costs."""
    graph = agt.graph(edit_graph(num_symbols), -costs)
    sources, targets = zip(*pairs, strict=True)
    edited = ag.compose([ag.chain_graph(source) for source in sources], graph)
    return ag.compose(edited, [ag.chain_graph(target) for target in targets])


def distances(costs, pairs, num_symbols):
    """The cost of the cheapest sequence of edits."""
    return -agt.tensor(ag.viterbi_score(edits(costs, pairs, num_symbols)))


def log_scores(costs, pairs, num_symbols):
    """The log-sum of the scores of all sequences of edits."""
    return agt.tensor(ag.forward_score(edits(costs, pairs, num_symbols)))


def main():
    # Symbol 1 is often misread as 2, and 0 is often lost.
    pairs = [([0, 1, 1], [2, 1]), ([1, 0, 2], [2, 2]), ([2, 1, 0], [2, 2, 0])]
    scores = torch.zeros(3 + 3 + 9, requires_grad=True)
    optimizer = torch.optim.Adam([scores], 0.1)
    for _ in range(60):
        costs = -scores.log_softmax(0)  # edits as draws from one distribution
        loss = -log_scores(costs, pairs, 3).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    costs = -scores.detach().log_softmax(0)
    print(f"loss {loss.item():.4f}, distances {distances(costs, pairs, 3).tolist()}")
    print(f"1 -> 2 costs {costs[6 + 5]:.2f}, 2 -> 1 costs {costs[6 + 7]:.2f}")


if __name__ == "__main__":
    main()
