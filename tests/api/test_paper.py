"""Every figure of the paper that shows a graph, built from operations.

Each test says how it compares: *isomorphic* (node for node, whatever the numbering) or *language*
(same strings with the same scores; epsilon arcs that a closure brings in may differ).
"""

import itertools
import math

import numpy as np
import pytest
from spec import language, paths, strings
from tools import build, weights

import arcgrad as ag

A, B, C, BLANK = 0, 1, 2, 3
eps = ag.epsilon


def token(label):
    """Figure 2a: consume a token once or more, emit it once."""
    return build(2, {0}, {1}, [(0, 1, label, label, 0.0), (1, 1, label, eps, 0.0)])


def blank_token():
    """Figure 3a: consume any number of blanks, emit nothing."""
    return build(1, {0}, {0}, [(0, 0, BLANK, eps, 0.0)])


def label(*labels):
    return ag.chain_graph(labels, dtype="float64")


def frames(length, num_labels=3, seed=None):
    values = np.zeros((length, num_labels))
    if seed is not None:
        values = np.random.default_rng(seed).normal(size=(length, num_labels))
    return ag.linear_graph(length, num_labels, values)


def accepted(graph):
    """The input strings of an acyclic graph and how many paths spell each."""
    found = {}
    for path in paths(graph):
        word = tuple(arc.ilabel for arc in path if arc.ilabel != eps)
        found[word] = found.get(word, 0) + 1
    return found


def words(labels, length):
    return itertools.product(labels, repeat=length)


def collapse(word, *, blank=None):
    return tuple(key for key, _ in itertools.groupby(word) if key != blank)


# Figure 1


def asg(emissions, transitions, target):
    a = ag.intersect(ag.intersect(target, transitions), emissions)
    z = ag.intersect(transitions, emissions)
    loss = ag.negate(ag.subtract(ag.forward_score(a), ag.forward_score(z)))
    emissions.zero_grad()
    transitions.zero_grad()
    ag.backward(loss, retain_graph=False)
    return loss.item(), emissions.grad(), transitions.grad()


def bigram(tokens, weight=lambda first, second: 0.0, dtype="float64"):
    """Figure 4a: a start node and one node per token, all accepting."""
    arcs = [(0, 1 + t, t, t, weight(None, t)) for t in tokens]
    arcs += [(1 + s, 1 + t, t, t, weight(s, t)) for s in tokens for t in tokens]
    nodes = set(range(1 + len(tokens)))
    return build(1 + len(tokens), {0}, nodes, arcs, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_figure_1_asg_loss_and_gradients(dtype):
    target = build(3, {0}, {2}, [(0, 1, A), (1, 1, A), (1, 2, B), (2, 2, B)], dtype=dtype)
    target.calc_grad = False
    loss, emissions, transitions = asg(
        ag.linear_graph(3, 2, dtype=dtype), bigram([A, B], dtype=dtype), target
    )
    # Two of the eight strings of three frames spell "ab".
    assert loss == pytest.approx(math.log(8 / 2), abs=1e-6)
    assert round(loss, 4) == 1.3863
    assert weights(emissions) == pytest.approx([-0.5, 0.5, 0.0, 0.0, 0.5, -0.5], abs=1e-6)
    # Arcs: start to a and b, then aa, ab, ba, bb.
    assert weights(transitions) == pytest.approx([-0.5, 0.5, 0.0, -0.5, 0.5, 0.0], abs=1e-6)


# Figure 2: ASG


def asg_tokens():
    return ag.closure(ag.union([token(t) for t in (A, B, C)]))


def asg_alignments():
    """Figure 2c, drawn by hand."""
    return build(3, {0}, {2}, [(0, 1, A, A), (1, 1, A, eps), (1, 2, B, B), (2, 2, B, eps)])


def test_figure_2a_token_graph_by_language():
    expected = {((A,) * n, (A,)): 0.0 for n in (1, 2, 3)}
    assert strings(token(A)) == expected


def test_figure_2b_label_graph_by_isomorphism():
    assert ag.isomorphic(label(A, B), build(3, {0}, {2}, [(0, 1, A), (1, 2, B)]))


def test_figure_2c_alignment_graph_by_language():
    composed = ag.compose(asg_tokens(), label(A, B))
    expected = strings(asg_alignments())
    assert strings(composed) == pytest.approx(expected)
    assert strings(ag.remove(composed)) == pytest.approx(expected)
    assert expected == {((A, B), (A, B)): 0.0, ((A, A, B), (A, B)): 0.0, ((A, B, B), (A, B)): 0.0}


def test_figure_2d_emissions_graph_by_isomorphism():
    values = np.arange(12.0).reshape(4, 3)
    arcs = [(t, t + 1, c, c, values[t, c]) for t in range(4) for c in (A, B, C)]
    assert ag.isomorphic(ag.linear_graph(4, 3, values), build(5, {0}, {4}, arcs))


def test_figure_2e_constrained_graph_by_isomorphism_and_by_language():
    values = np.random.default_rng(0).normal(size=(4, 3))
    emissions = ag.linear_graph(4, 3, values)
    # Nodes are (frame, label so far), in the order of the figure.
    nodes = [(0, 0), (1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (4, 2)]
    steps = [
        (s, d, A if d[1] == 1 else B)
        for s in nodes
        for d in nodes
        if d[0] == s[0] + 1 and d[1] in (s[1], s[1] + 1) and d[1] > 0
    ]
    arcs = [(nodes.index(s), nodes.index(d), c, c, values[s[0], c]) for s, d, c in steps]
    drawn = build(7, {0}, {6}, arcs)
    by_hand = ag.project_input(asg_alignments())
    assert ag.isomorphic(ag.intersect(by_hand, emissions), drawn)
    composed = ag.project_input(ag.compose(asg_tokens(), label(A, B)))
    constrained = ag.intersect(composed, emissions)
    assert language(constrained) == pytest.approx(language(drawn), abs=1e-12)
    assert accepted(constrained) == {(A, A, A, B): 1, (A, A, B, B): 1, (A, B, B, B): 1}


def test_the_asg_objective_equals_enumeration():
    emissions = frames(4, seed=1)
    a = ag.intersect(ag.project_input(ag.compose(asg_tokens(), label(A, B))), emissions)
    score = weights(emissions).reshape(4, 3)
    spelled = [w for w in words((A, B, C), 4) if collapse(w) == (A, B)]
    expected = np.logaddexp.reduce([sum(score[t, c] for t, c in enumerate(w)) for w in spelled])
    assert ag.forward_score(a).item() == pytest.approx(expected, abs=1e-12)


# Figure 3: CTC


def test_figure_3a_blank_graph_by_language():
    assert strings(blank_token()) == {((BLANK,) * n, ()): 0.0 for n in range(4)}


def test_the_literal_closure_with_the_blank_graph_counts_runs_of_blanks():
    # The blank graph accepts the empty string, which is not repeated; but a run of blanks is one
    # repetition or several.
    literal = ag.closure(ag.union([*(token(t) for t in (A, B)), blank_token()]))
    constrained = ag.intersect(ag.project_input(ag.compose(literal, label(A, B))), frames(4, 4))
    expected = {}
    for word in words((A, B, BLANK), 4):
        if collapse(word, blank=BLANK) == (A, B):
            runs = [len(list(run)) for t, run in itertools.groupby(word) if t == BLANK]
            expected[word] = math.prod(2 ** (run - 1) for run in runs)
    assert accepted(constrained) == expected
    total = math.log(sum(expected.values()))
    assert ag.forward_score(constrained).item() == pytest.approx(total)
    assert ag.forward_score(ag.remove(constrained)).item() == pytest.approx(total)


def ctc_tokens(tokens=(A, B, C)):
    """blank (sum over tokens of token blank)*: optional blanks, and no epsilon cycle."""
    pairs = [ag.concat([token(t), blank_token()]) for t in tokens]
    return ag.concat([blank_token(), ag.closure(ag.union(pairs))])


def ctc_alignments():
    """Figure 3b, drawn by hand: optional blanks around "ab"."""
    arcs = [
        (0, 0, BLANK, eps),
        (0, 1, A, A),
        (1, 1, A, eps),
        (1, 2, BLANK, eps),
        (2, 2, BLANK, eps),
        (1, 3, B, B),
        (2, 3, B, B),
        (3, 3, B, eps),
        (3, 4, BLANK, eps),
        (4, 4, BLANK, eps),
    ]
    return build(5, {0}, {3, 4}, arcs)


def test_figure_3b_alignment_graph_by_language():
    composed = ag.compose(ctc_tokens(), label(A, B))
    assert strings(composed) == pytest.approx(strings(ctc_alignments()), abs=1e-12)
    assert strings(ag.remove(composed)) == pytest.approx(strings(ctc_alignments()), abs=1e-12)


@pytest.mark.parametrize("target", [(), (A,), (A, B), (B, A, C)])
@pytest.mark.parametrize("length", [3, 4, 5])
def test_every_alignment_has_one_path_per_label(target, length):
    composed = ag.project_input(ag.compose(ctc_tokens(), label(*target)))
    constrained = ag.intersect(composed, frames(length, 4))
    found = accepted(constrained)
    expected = [w for w in words((A, B, C, BLANK), length) if collapse(w, blank=BLANK) == target]
    assert found == dict.fromkeys(expected, 1)
    # A label of U tokens, no two neighbours equal, has C(T + U, 2U) alignments with T frames.
    count = math.comb(length + len(target), 2 * len(target))
    assert len(found) == count
    score = ag.forward_score(constrained).item()
    assert score == pytest.approx(math.log(count) if count else -math.inf, abs=1e-12)


def ctc_tokens_without_repeats(tokens=(A, B, C)):
    """Appendix A.1, built directly: a token may follow itself only after a blank."""
    arcs = [(0, 0, BLANK, eps)]
    for t in tokens:
        arcs += [(0, 1 + t, t, t), (1 + t, 1 + t, t, eps), (1 + t, 0, BLANK, eps)]
        arcs += [(1 + t, 1 + u, u, u) for u in tokens if u != t]
    return build(1 + len(tokens), {0}, set(range(1 + len(tokens))), arcs)


@pytest.mark.parametrize("target", [(), (A,), (A, A), (A, B, B), (C, A, C)])
def test_ctc_without_repeats_equals_the_ctc_loss_and_enumeration(target):
    emissions = frames(5, 4, seed=2)
    alignments = ag.project_input(ag.compose(ctc_tokens_without_repeats(), label(*target)))
    constrained = ag.intersect(alignments, emissions)
    spelled = [w for w in words((A, B, C, BLANK), 5) if collapse(w, blank=BLANK) == target]
    assert accepted(constrained) == dict.fromkeys(spelled, 1)
    loss = ag.criterion.ctc_loss(emissions, list(target), BLANK)
    assert ag.forward_score(constrained).item() == pytest.approx(-loss.item(), abs=1e-12)


# Appendix A.1: repeats, by operations


def smallest(graph):
    """The graph without epsilon arcs, determinized and minimized, as unweighted pairs of labels."""
    once = ag.determinize(ag.remove(graph, semiring="tropical"), semiring="tropical")
    return ag.minimize(once)


def direct():
    """All sequences of three tokens and optional blanks, built directly."""
    return ag.tokens.Tokens(4, blank="optional", blank_label=BLANK).graph()


def test_figure_3_closed_is_the_direct_token_graph_by_isomorphism():
    tokens = [token(A), token(B), token(C), blank_token()]
    closed = ag.closure(ag.union(tokens))
    assert ag.isomorphic(smallest(closed), smallest(direct()))
    assert smallest(direct()).num_nodes() <= direct().num_nodes()
    # A run of blanks is one repetition of the blank graph or several: no score diverges.
    frames_of = ag.intersect(ag.project_input(closed), frames(2, 4))
    assert accepted(ag.remove(frames_of))[BLANK, BLANK] == 2


def test_appendix_a1_closed_with_blanks_is_the_direct_token_graph_by_isomorphism():
    tokens = [token(A), token(B), token(C), blank_token()]
    pairs = [ag.concat([x, y]) for x, y in itertools.permutations(tokens, 2)]
    closed = ag.closure(ag.union(pairs))
    # Since the blank is optional, a pair may be one token, so repeats are not forbidden; but every
    # pair has a token, so one token has no blanks on both sides.
    words = {string for string, _ in language(ag.intersect(ag.project_input(closed), frames(3, 4)))}
    assert (A, A, A) in words
    assert (BLANK, A, BLANK) not in words
    with_blanks = ag.closure(ag.union([*pairs, blank_token()]))
    assert ag.isomorphic(smallest(with_blanks), smallest(direct()))
    assert smallest(closed).num_nodes() < closed.num_nodes() / 4


# Figure 4: transitions


def test_figure_4a_bigram_graph_by_isomorphism_and_by_language():
    table = np.random.default_rng(3).normal(size=(4, 3))

    def weight(first, second):
        return table[3 if first is None else first, second]

    graph = bigram([A, B, C], weight)
    assert (graph.num_nodes(), graph.num_arcs()) == (4, 12)
    src = np.repeat(range(4), 3)
    dst = np.tile(range(1, 4), 4)
    labels = dst - 1
    values = [weight(None if s == 0 else s - 1, d - 1) for s, d in zip(src, dst, strict=True)]
    from_arrays = ag.Graph.from_arrays(
        src, dst, labels, weight=np.array(values), start=[0], accept=[0, 1, 2, 3]
    )
    assert ag.isomorphic(graph, from_arrays)
    for word, value in strings(graph).items():
        pairs = zip((None, *word[0]), word[0], strict=False)
        assert value == pytest.approx(sum(weight(s, t) for s, t in pairs), abs=1e-12)
    assert len(strings(graph)) == 1 + 3 + 9 + 27


def test_the_bigram_normaliser_is_a_linear_chain():
    table = np.random.default_rng(4).normal(size=(4, 3))
    graph = bigram([A, B, C], lambda s, t: table[3 if s is None else s, t])
    emissions = frames(5, seed=5)
    x = weights(emissions).reshape(5, 3)
    alpha = table[3] + x[0]
    for frame in x[1:]:
        alpha = np.logaddexp.reduce(alpha[:, None] + table[:3], axis=0) + frame
    z = ag.forward_score(ag.intersect(graph, emissions))
    assert z.item() == pytest.approx(np.logaddexp.reduce(alpha), abs=1e-12)


def test_figure_4b_back_off_graph_by_language():
    w = {"aba": -0.1, "bb": -0.2, "ba": -0.4, "c": -0.8, "b": -1.6}
    back_off = {"ab": -0.7, "b": -0.9}
    ab, b, ba, bb, zero, c = range(6)
    arcs = [
        (ab, ba, A, A, w["aba"]),
        (ab, b, eps, eps, back_off["ab"]),
        (b, bb, B, B, w["bb"]),
        (b, ba, A, A, w["ba"]),
        (b, zero, eps, eps, back_off["b"]),
        (zero, c, C, C, w["c"]),
        (zero, b, B, B, w["b"]),
    ]
    graph = build(6, {ab}, {b, ba, bb, c}, arcs)
    log_sum = np.logaddexp
    to_b, to_zero = back_off["ab"], back_off["ab"] + back_off["b"]
    again = to_zero + w["b"]  # backed off to the unigram b
    expected = {
        (): to_b,
        (A,): log_sum(w["aba"], to_b + w["ba"]),
        (C,): to_zero + w["c"],
        (B,): log_sum(to_b + w["bb"], again),
        (B, A): again + w["ba"],
        (B, C): again + back_off["b"] + w["c"],
        (B, B): log_sum(again + w["bb"], again + back_off["b"] + w["b"]),
    }
    found = {word[0]: value for word, value in strings(graph).items() if len(word[0]) < 3}
    assert found == pytest.approx(expected, abs=1e-12)
    assert strings(ag.remove(graph)) == pytest.approx(strings(graph), abs=1e-12)
    # "c" needs both back-offs, "a" does not.
    best = ag.viterbi_path(ag.intersect(graph, label(C)))
    assert best.labels_to_list() == [eps, eps, C]
    best = ag.viterbi_path(ag.intersect(graph, label(A)))
    assert best.labels_to_list() == [A]


# Figure 6: word pieces


T, H, E = 0, 1, 2
PIECES = {"t": (T,), "h": (H,), "e": (E,), "th": (T, H), "he": (H, E), "the": (T, H, E)}
IDS = {piece: i for i, piece in enumerate(PIECES)}


def piece_graph(piece):
    """Figure 6a: consume a piece, emit its graphemes."""
    letters = PIECES[piece]
    return ag.chain_graph([IDS[piece]] + [eps] * (len(letters) - 1), letters, dtype="float64")


def test_figure_6a_sub_word_graph_by_isomorphism():
    drawn = build(3, {0}, {2}, [(0, 1, IDS["th"], T), (1, 2, eps, H)])
    assert ag.isomorphic(piece_graph("th"), drawn)


def test_figure_6b_decompositions_by_language():
    lexicon = ag.closure(ag.union([piece_graph(piece) for piece in PIECES]))
    decompositions = ag.project_input(ag.compose(lexicon, label(T, H, E)))
    expected = [("t", "h", "e"), ("th", "e"), ("t", "he"), ("the",)]
    pieces = {tuple(IDS[p] for p in split): 1 for split in expected}
    assert accepted(decompositions) == pieces
    assert accepted(ag.remove(decompositions)) == pieces
    # The drawn graph: one node per grapheme boundary, one arc per piece.
    spans = [("t", 0, 1), ("h", 1, 2), ("e", 2, 3), ("th", 0, 2), ("he", 1, 3), ("the", 0, 3)]
    drawn = build(4, {0}, {3}, [(s, d, IDS[p]) for p, s, d in spans])
    assert language(decompositions) == language(drawn)


def test_marginalised_pieces_equal_enumeration():
    # E o ((T_1 + ... + T_C)* o (L o Y)): equation 4 without transitions.
    lexicon = ag.closure(ag.union([piece_graph(piece) for piece in PIECES]))
    tokens = ag.closure(ag.union([token(i) for i in IDS.values()]))
    decompositions = ag.project_input(ag.compose(lexicon, label(T, H, E)))
    alignments = ag.project_input(ag.compose(tokens, decompositions))
    emissions = frames(3, len(PIECES), seed=6)
    x = weights(emissions).reshape(3, -1)
    splits = accepted(decompositions)
    scores = [
        sum(x[t, c] for t, c in enumerate(w))
        for w in words(IDS.values(), 3)
        if collapse(w) in splits
    ]
    score = ag.forward_score(ag.intersect(alignments, emissions))
    assert score.item() == pytest.approx(np.logaddexp.reduce(scores), abs=1e-12)


def test_figure_7_convolution_by_enumeration():
    # Receptive field 3, stride 2: each output is the forward score of kernel o field.
    kernel = build(3, {0}, {2}, [(0, 0, A), (0, 1, B), (1, 1, B), (1, 2, A), (2, 2, C)])
    hidden = np.random.default_rng(7).normal(size=(7, 3))
    fields = [ag.linear_graph(3, 3, hidden[t : t + 3]) for t in range(0, 5, 2)]
    outputs = ag.forward_score(ag.compose(kernel, fields))
    accepted_words = [(A, B, A), (B, B, A), (B, A, C)]
    for t, output in zip(range(0, 5, 2), outputs, strict=True):
        scores = [sum(hidden[t + i, c] for i, c in enumerate(w)) for w in accepted_words]
        assert output.item() == pytest.approx(np.logaddexp.reduce(scores), abs=1e-12)


# Appendix A.2: priors


def one_frame(label_, emitted=eps):
    return ag.chain_graph([label_], [emitted], dtype="float64")


def test_spike_token_graph_by_isomorphism():
    assert ag.isomorphic(one_frame(A, A), build(2, {0}, {1}, [(0, 1, A, A)]))


def test_duration_limited_token_graph_by_language():
    drawn = build(3, {0}, {1, 2}, [(0, 1, A, A), (1, 2, A, eps)])
    optional = ag.union([one_frame(A), ag.concat([])])
    assert language(ag.concat([one_frame(A, A), optional])) == language(drawn)
    assert language(drawn) == {((A,), (A,)): 0.0, ((A, A), (A,)): 0.0}


def equally_spaced_blank():
    """Two or three blanks."""
    return build(4, {0}, {2, 3}, [(0, 1, BLANK, eps), (1, 2, BLANK, eps), (2, 3, BLANK, eps)])


def test_equally_spaced_blank_graph_by_language():
    blank = one_frame(BLANK)
    built = ag.union([ag.concat([blank] * 2), ag.concat([blank] * 3)])
    assert language(built) == language(equally_spaced_blank())


def test_priors_mix_per_token():
    # Spike a, then two or three blanks, then b for one or two frames.
    limited = build(3, {0}, {1, 2}, [(0, 1, B, B), (1, 2, B, eps)])
    tokens = ag.closure(ag.union([one_frame(A, A), limited, equally_spaced_blank()]))
    alignments = ag.project_input(ag.compose(tokens, label(A, B)))
    found = accepted(ag.intersect(alignments, frames(5, 4)))
    assert found[A, BLANK, BLANK, B, B] == found[A, BLANK, BLANK, BLANK, B] == 1
    assert (A, A, BLANK, BLANK, B) not in found
    assert (A, BLANK, B, B, BLANK) not in found
