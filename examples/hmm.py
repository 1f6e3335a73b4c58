"""A hidden Markov model, trained with expectation maximization (Baum-Welch).

The gradient of the log-likelihood with respect to a log-probability is its expected number of uses,
so the E step is a call of backward.

Usage: python examples/hmm.py
"""

import numpy as np

import arcgrad as ag


def state_graph(start, transition):
    """Node 0 is the start, node 1 + s is state s; arcs into it have the label s."""
    nodes = np.arange(len(start) + 1)
    return ag.Graph.from_arrays(
        np.repeat(nodes, len(start)),
        np.tile(nodes[1:], len(nodes)),
        np.tile(nodes[:-1], len(nodes)),
        weight=np.log(np.vstack([start, transition])).ravel(),
        start=[0],
        accept=nodes[1:],
    )


def expected_counts(start, transition, emission, sequences):
    """The log-likelihood of sequences, and the expected uses of every probability."""
    states = state_graph(start, transition)
    observed = [
        ag.linear_graph(len(x), len(start), weights=np.log(emission[:, x].T)) for x in sequences
    ]
    scores = ag.forward_score(ag.intersect(states, observed))
    ag.backward(scores)
    moves = states.grad().weights_to_numpy().reshape(-1, len(start))
    symbols = np.zeros_like(emission)
    for x, graph in zip(sequences, observed, strict=True):
        np.add.at(symbols.T, x, graph.grad().weights_to_numpy().reshape(len(x), -1))
    return sum(score.item() for score in scores), moves[0], moves[1:], symbols


def normalized(counts):
    return counts / counts.sum(-1, keepdims=True)


def main():
    rng = np.random.default_rng(0)
    # Two coins that are rarely swapped; one of them is loaded.
    sequences = [np.repeat(rng.integers(0, 2, 4), 5) for _ in range(20)]
    start, transition = np.full(2, 0.5), np.full((2, 2), 0.5)
    emission = np.array([[0.6, 0.4], [0.4, 0.6]])
    for step in range(10):
        score, *counts = expected_counts(start, transition, emission, sequences)
        start, transition, emission = (normalized(c) for c in counts)
        print(f"step {step}: log-likelihood {score:.3f}")


if __name__ == "__main__":
    main()
