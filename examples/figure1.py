"""Figure 1 of the paper: the ASG loss, its gradients, and pictures of its graphs.

Usage: python examples/figure1.py [folder for the pictures]
"""

import sys
from pathlib import Path

import numpy as np

import arcgrad as ag
from arcgrad import (
    Graph,
    backward,
    forward_score,
    intersect,
    linear_graph,
    negate,
    subtract,
)

TOKENS = ["a", "b"]


def asg(emissions, transitions, target):
    # The constrained and the normalization graph.
    A = intersect(intersect(target, transitions), emissions)
    Z = intersect(transitions, emissions)

    loss = negate(subtract(forward_score(A), forward_score(Z)))

    emissions.zero_grad()
    transitions.zero_grad()
    backward(loss, retain_graph=False)
    return loss.item(), emissions.grad(), transitions.grad()


def make_target():
    """The alignments of "ab": one or more a, then one or more b."""
    target = Graph(False)
    target.add_node(start=True)
    target.add_node()
    target.add_node(accept=True)
    target.add_arc(0, 1, 0)
    target.add_arc(1, 1, 0)
    target.add_arc(1, 2, 1)
    target.add_arc(2, 2, 1)
    return target


def make_transitions():
    """The bigram graph of Figure 4a: node 0 is the start, node 1 + c follows token c."""
    transitions = Graph()
    transitions.add_node(start=True, accept=True)
    for _ in TOKENS:
        transitions.add_node(accept=True)
    for node in range(1 + len(TOKENS)):
        for token in range(len(TOKENS)):
            transitions.add_arc(node, 1 + token, token)
    return transitions


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "figure1")
    folder.mkdir(parents=True, exist_ok=True)

    probabilities = np.array([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    emissions = linear_graph(3, len(TOKENS), weights=np.log(probabilities))
    transitions = make_transitions()
    target = make_target()

    loss, emissions_grad, transitions_grad = asg(emissions, transitions, target)
    np.set_printoptions(precision=4, suppress=True)
    print(f"ASG loss of 'ab': {loss:.4f}")
    print("gradient of the emissions, one row per frame, one column per token:")
    print(emissions_grad.weights_to_numpy().reshape(-1, len(TOKENS)))
    print("gradient of the transitions, one row per last token (none, a, b):")
    print(transitions_grad.weights_to_numpy().reshape(-1, len(TOKENS)))

    graphs = {
        "target": target,
        "transitions": transitions,
        "emissions": emissions,
        "constrained": intersect(intersect(target, transitions), emissions),
        "normalization": intersect(transitions, emissions),
        "emissions_gradient": emissions_grad,
    }
    for name, graph in graphs.items():
        for kind in ("svg", "png"):
            ag.draw(graph, str(folder / f"{name}.{kind}"), TOKENS)
    print(f"pictures of {', '.join(graphs)}: {folder}")


if __name__ == "__main__":
    main()
