"""The picture of the front page: target, emissions, their product, and the gradient."""

import numpy as np
from IPython.display import HTML

import arcgrad as ag
from pictures import row

SYMBOLS = ag.SymbolTable(["-", "a", "b"])
scores = np.log([[0.3, 0.6, 0.1], [0.3, 0.5, 0.2], [0.2, 0.1, 0.7], [0.5, 0.1, 0.4]]).round(1)


def picture() -> HTML:
    emissions = ag.linear_graph(4, 3, weights=scores)
    alignments = ag.tokens.ctc_graph([1, 2])
    for graph in (emissions, alignments):
        graph.isymbols = graph.osymbols = SYMBOLS
    product = ag.top_sort(ag.intersect(alignments, emissions))
    ag.backward(ag.forward_score(ag.intersect(alignments, emissions)))
    gradient = emissions.grad()
    gradient.set_weights(gradient.weights_to_numpy().round(2))
    graphs = [
        ("alignments of ab", alignments),
        ("emissions: the scores of a network", emissions),
        ("their intersection; the color is the posterior of an arc", product),
        ("the gradient: a posterior per frame and label", gradient),
    ]
    colors = {graphs[2][0]: ag.arc_posteriors(product), graphs[3][0]: gradient}
    return HTML(row(graphs, colors))
