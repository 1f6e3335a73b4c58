"""Random tensors, and arguments of the tests of sequence losses."""

import itertools

import torch

import arcgrad as ag

F64 = torch.float64


def random(*shape, dtype=F64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=dtype, generator=generator)


def collapse_ctc(path):
    """The labels of a CTC path with blank 0."""
    return [c for i, c in enumerate(path) if c != 0 and (i == 0 or path[i - 1] != c)]


def batch(layout="padded", dtype=F64, seed=0):
    """Emissions [T, B, C] with ragged lengths, and targets with repeats and an empty one."""
    logits = random(12, 4, 6, dtype=dtype, seed=seed).requires_grad_()
    rows = [[1, 2, 2, 3], [5], [], [4, 4, 4]]
    sizes = torch.tensor([len(row) for row in rows])
    if layout == "padded":
        targets = torch.full((4, 4), -7)
        for i, row in enumerate(rows):
            targets[i, : len(row)] = torch.tensor(row, dtype=torch.long)
    else:
        targets = torch.tensor(list(itertools.chain(*rows)))
    return logits, targets, torch.tensor([12, 7, 3, 6]), sizes


def small_bigram(num_labels=3):
    nodes = range(num_labels + 1)
    arcs = [(i, j + 1, j) for i in nodes for j in range(num_labels)]
    src, dst, label = zip(*arcs, strict=True)
    weight = random(len(arcs), seed=5).numpy()
    return ag.Graph.from_arrays(src, dst, label, weight=weight, start=[0], accept=list(nodes))
