"""A linear-chain conditional random field: tags of words, with learned scores of neighbours.

Usage: python examples/linear_chain_crf.py
"""

import numpy as np
import torch

import arcgrad as ag
import arcgrad.torch as agt


def transition_graph(num_tags):
    """Node 0 is the start, node 1 + y follows tag y. One arc from every node for every tag."""
    nodes = np.arange(num_tags + 1)
    return ag.Graph.from_arrays(
        np.repeat(nodes, num_tags),
        np.tile(nodes[1:], num_tags + 1),
        np.tile(nodes[:-1], num_tags + 1),
        start=[0],
        accept=nodes[1:],
    )


def log_likelihood(scores, transitions, tags):
    """The log of p(tags | words): ``scores`` [B, T, Y], ``transitions`` [Y + 1, Y]."""
    chain = agt.graph(transition_graph(scores.shape[-1]), transitions)
    words = agt.emissions(scores, [len(t) for t in tags])
    target = ag.intersect([ag.chain_graph(t) for t in tags], chain)
    of_target = ag.forward_score(ag.intersect(target, words))
    of_all = ag.forward_score(ag.intersect(chain, words))
    return agt.tensor(ag.subtract(of_target, of_all))


def best_tags(scores, transitions, lengths):
    """The most likely tags of each example."""
    chain = agt.graph(transition_graph(scores.shape[-1]), transitions)
    paths = ag.viterbi_path(ag.intersect(chain, agt.emissions(scores, lengths)))
    return [path.labels_to_list() for path in paths]


def main():
    torch.manual_seed(0)
    # Tag 1 always follows tag 0; the scores of the words contain almost no information.
    tags = [[0, 1, 2, 0, 1], [2, 0, 1]]
    scores = 0.1 * torch.randn(2, 5, 3)
    transitions = torch.zeros(4, 3, requires_grad=True)
    optimizer = torch.optim.SGD([transitions], 1.0)
    for _ in range(50):
        optimizer.zero_grad()
        loss = -log_likelihood(scores, transitions, tags).mean()
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}, tags {best_tags(scores, transitions.detach(), [5, 3])}")


if __name__ == "__main__":
    main()
