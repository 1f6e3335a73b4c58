"""Figure 1 of the paper: the ASG loss, its gradients, and pictures of its graphs.

Usage: python examples/figure1.py [folder for the pictures]
"""

import sys
from pathlib import Path

import numpy as np

import arcgrad as ag
from arcgrad import Graph, backward, forward_score, intersect, linear_graph, negate, subtract


def asg(emissions, transitions, target):
    # The constrained and the normalization graph.
    A = intersect(intersect(target, transitions), emissions)
    Z = intersect(transitions, emissions)

    loss = negate(subtract(forward_score(A), forward_score(Z)))

    emissions.zero_grad()
    transitions.zero_grad()
    backward(loss)
    return loss.item(), emissions.grad(), transitions.grad()


def make_target():
    """The alignments of "ab": one or more a, then one or more b."""
    target = Graph(calc_grad=False)
    target.add_node(start=True)
    target.add_node()
    target.add_node(accept=True)
    for src, dst, label in [(0, 1, 0), (1, 1, 0), (1, 2, 1), (2, 2, 1)]:
        target.add_arc(src, dst, label)
    return target


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "figure1")
    folder.mkdir(parents=True, exist_ok=True)
    probabilities = np.array([[0.8, 0.2], [0.4, 0.6], [0.3, 0.7]])
    emissions = linear_graph(3, 2, weights=np.log(probabilities))
    # Figure 4a: node 0 is the start, node 1 + c follows token c.
    transitions, target = ag.ngram.dense_graph(2, 2), make_target()
    loss, *gradients = asg(emissions, transitions, target)
    print(f"ASG loss of 'ab': {loss:.4f}")
    print("gradients, one row per frame or last token (none, a, b), one column per token:")
    for gradient in gradients:
        print(gradient.weights_to_numpy().reshape(-1, 2).round(4))
    graphs = {"target": target, "transitions": transitions, "emissions": emissions}
    graphs["constrained"] = intersect(intersect(target, transitions), emissions)
    for name, graph in graphs.items():
        ag.draw(graph, str(folder / f"{name}.svg"), ["a", "b"])
    print(f"pictures of {', '.join(graphs)}: {folder}")


if __name__ == "__main__":
    main()
