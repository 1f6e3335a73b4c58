"""The picture of the front page: target, emissions, and their product with posteriors."""

import numpy as np
from IPython.display import HTML

import arcgrad as ag
from pictures import row


def picture() -> HTML:
    symbols = ag.SymbolTable(["-", "a", "b"])
    scores = np.log([[0.3, 0.6, 0.1], [0.3, 0.5, 0.2], [0.2, 0.1, 0.7], [0.5, 0.1, 0.4]])
    emissions = ag.linear_graph(4, 3, weights=scores.round(1))
    alignments = ag.tokens.ctc_graph([1, 2])
    for graph in (emissions, alignments):
        graph.isymbols = graph.osymbols = symbols
    product = ag.top_sort(ag.intersect(alignments, emissions))
    captions = "alignments of ab", "emissions", "their intersection, with posteriors"
    graphs = list(zip(captions, (alignments, emissions, product), strict=True))
    return HTML(row(graphs, {captions[-1]: ag.arc_posteriors(product)}))
