"""A semi-Markov conditional random field: segments with learned durations and neighbours.

Usage: python examples/semi_markov_crf.py
"""

import torch

import arcgrad as ag
import arcgrad.torch as agt


def segment_graph(num_labels, longest):
    """Read the labels of frames, and emit ``label * longest + length - 1`` for each segment.

    Arcs: the frames of each label [Y, D], then the ends of segments by their durations [Y, D], then
    the transitions between labels, from the start (row 0) and from each label [Y + 1, Y].
    """
    labels = range(num_labels)
    size = longest + 2  # nodes of a label: before its segment, after 1, 2, ... frames, after it

    def node(label, place):
        return 1 + label * size + place % size

    arcs = [(node(y, d), node(y, d + 1), y, ag.epsilon) for y in labels for d in range(longest)]
    segments = [(y, d) for y in labels for d in range(1, longest + 1)]
    arcs += [(node(y, d), node(y, -1), ag.epsilon, y * longest + d - 1) for y, d in segments]
    ends = [0, *(node(y, -1) for y in labels)]
    arcs += [(end, node(y, 0), ag.epsilon, ag.epsilon) for end in ends for y in labels]
    src, dst, ilabel, olabel = zip(*arcs, strict=True)
    return ag.Graph.from_arrays(src, dst, ilabel, olabel, start=[0], accept=ends[1:])


def log_likelihood(scores, durations, transitions, segments):
    """The log of p(segments | frames) for pairs of a label and a length."""
    num_labels, longest = durations.shape
    parts = [torch.zeros_like(durations), durations, transitions]
    weights = torch.cat([part.flatten() for part in parts])
    graph = agt.graph(segment_graph(num_labels, longest), weights)
    chain = ag.chain_graph([label * longest + length - 1 for label, length in segments])
    emissions = agt.emissions(scores)
    of_segments = ag.forward_score(ag.compose(emissions, ag.compose(graph, chain)))
    return agt.tensor(ag.subtract(of_segments, ag.forward_score(ag.compose(emissions, graph))))


def main():
    segments = [(0, 3), (1, 1), (0, 3), (1, 1)]
    parameters = [torch.zeros(shape, requires_grad=True) for shape in ((8, 2), (2, 3), (3, 2))]
    optimizer = torch.optim.SGD(parameters[1:], 1.0)  # durations and neighbours, not frames
    for _ in range(50):
        optimizer.zero_grad()
        loss = -log_likelihood(*parameters, segments)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}, durations of label 0: {parameters[1][0].softmax(0).tolist()}")


if __name__ == "__main__":
    main()
