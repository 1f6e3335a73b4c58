"""Best labels and alignments of emissions."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import arcgrad as ag
import arcgrad.torch as agt
from arcgrad.tokens import Tokens


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


KINDS = [
    Tokens.asg(3),
    Tokens.ctc(3),
    Tokens.ctc(3, blank_label=1),
    Tokens.spike(3),
    Tokens.limited(3, 2),
    Tokens.spaced(3, 1, 2),
    Tokens(3, blank="forced"),
    Tokens(3, blank="optional", overrides={1: (2, 2)}),
]
every_kind = pytest.mark.parametrize("tokens", KINDS, ids=str)


def bigram(seed=0):
    arcs = [(i, j + 1, j) for i in range(4) for j in range(3)]
    src, dst, label = zip(*arcs, strict=True)
    weight = np.random.default_rng(seed).normal(size=len(arcs))
    return ag.Graph.from_arrays(
        src, dst, label, weight=weight, start=[0], accept=range(4), calc_grad=False
    )


def transition_score(graph, path):
    weights = graph.weights_view().reshape(4, 3)
    return sum(weights[a, b] for a, b in zip([0, *(c + 1 for c in path)], path, strict=False))


def best_by_enumeration(x, tokens, transitions=None):
    """The best frames among those that spell something, and their tokens."""
    best, found = -np.inf, ([], [])
    for path in itertools.product(range(3), repeat=len(x)):
        try:
            spelled = tokens.collapse(list(path))
        except ValueError:
            continue
        score = sum(x[t, c].item() for t, c in enumerate(path))
        if transitions is not None:
            score += transition_score(transitions, path)
        if score > best:
            best, found = score, (list(path), spelled)
    return found


@every_kind
@pytest.mark.parametrize("with_transitions", [False, True])
def test_the_best_labels_equal_enumeration(tokens, with_transitions):
    x = random(5, 4, 3)
    transitions = bigram() if with_transitions else None
    best = [best_by_enumeration(e, tokens, transitions) for e in x]
    expected = [labels for _, labels in best]
    assert agt.viterbi(x, tokens=tokens, transitions=transitions) == expected
    assert agt.viterbi(x[0], tokens=tokens, transitions=transitions) == expected[:1]
    loss = agt.TransducerLoss(tokens, transitions=transitions)
    assert loss.viterbi(x) == expected
    assert loss.viterbi_frames(x) == [frames for frames, _ in best]


@given(st.lists(st.integers(0, 3), max_size=12))
def test_greedy_ctc(frames):
    x = torch.nn.functional.one_hot(torch.tensor(frames, dtype=torch.long), 4).float()
    expected = [c for i, c in enumerate(frames) if c and (i == 0 or frames[i - 1] != c)]
    assert agt.viterbi(x) == [expected]


def test_lengths_end_the_search():
    x = torch.eye(3)[torch.tensor([[1, 2, 2], [1, 0, 2]])]
    assert agt.viterbi(x, [1, 2]) == [[1], [1]]
    assert agt.viterbi(x, torch.tensor([3, 0])) == [[1, 2], []]
    assert agt.viterbi(x, [2, 2], transitions=bigram()) == agt.viterbi(
        x[:, :2], transitions=bigram()
    )


def test_equal_scores_give_the_smallest_labels():
    assert agt.viterbi(torch.zeros(1, 3, 4), tokens=Tokens.asg(4)) == [[0]]
    assert agt.viterbi(
        torch.zeros(1, 3, 3), tokens=Tokens.asg(3), transitions=bigram_of_zeros()
    ) == [[0]]


def bigram_of_zeros():
    graph = bigram()
    graph.set_weights(np.zeros(12))
    return graph


def test_no_path_gives_no_labels():
    assert agt.viterbi(torch.zeros(1, 1, 3), tokens=Tokens(3, blank="forced", min_blanks=2)) == [[]]
    assert agt.viterbi(torch.zeros(2, 0, 3)) == [[], []]
    for tokens in (Tokens.ctc(3), Tokens(3, blank="forced")):
        nowhere = torch.full((1, 2, 3), -torch.inf)
        assert agt.TransducerLoss(tokens).viterbi_frames(nowhere) == [[]]
    assert agt.viterbi(torch.zeros(0, 5, 3)) == []


def test_bad_emissions():
    with pytest.raises(ValueError, match="viterbi: emissions must have 4 labels, as the tokens"):
        agt.viterbi(torch.zeros(1, 2, 3), tokens=Tokens.ctc(4))
    with pytest.raises(ValueError, match=r"viterbi: the tensor must have the shape \[T, C\] or"):
        agt.viterbi(torch.zeros(3))
    with pytest.raises(ValueError, match="a length must be between 0 and 2, the number of frames"):
        agt.viterbi(torch.zeros(1, 2, 3), [3])


# Alignments


def alignment_by_enumeration(x, target, tokens, transitions=None):
    """The frames of the best alignment, with the position in the target at each first frame."""
    chain = ag.chain_graph(target, range(len(target)))
    graph = ag.compose(tokens.graph(), chain)
    if transitions is not None:
        graph = ag.compose(transitions, graph)
    path = ag.viterbi_path(ag.compose(ag.linear_graph(*x.shape, x.numpy()), graph))
    return path.ilabels().tolist(), path.weights_view().sum()


@every_kind
@pytest.mark.parametrize("with_transitions", [False, True])
def test_alignments_are_the_best_ones(tokens, with_transitions):
    x = random(3, 7, 3, seed=1)
    label = [c for c in range(3) if c != tokens.blank_label]
    targets = [[label[0], label[1]], [label[1]], [label[1], label[1]]]
    transitions = bigram() if with_transitions else None
    spans = agt.forced_align(x, targets, tokens=tokens, transitions=transitions)
    for example, target, found in zip(x, targets, spans, strict=True):
        assert [span.token for span in found] == target
        frames = np.full(7, tokens.blank_label if tokens.blank_label is not None else -1)
        last = 0
        for span in found:
            assert last <= span.start < span.end
            last = span.end
            frames[span.start : span.end] = span.token
            expected = example[span.start : span.end, span.token].mean().item()
            assert span.score == pytest.approx(expected, rel=1e-5)
        assert tokens.collapse(frames.tolist()) is not None
        score = sum(example[t, c].item() for t, c in enumerate(frames))
        if transitions is not None:
            score += transition_score(transitions, frames)
        _, best = alignment_by_enumeration(example, target, tokens, transitions)
        assert score == pytest.approx(best, rel=1e-5)


def test_alignments_of_positions_that_look_like_labels():
    """Labels 0, 1, 2 at positions 0, 1, 2."""
    x = torch.eye(4)[torch.tensor([3, 0, 0, 1, 3, 2])].mul(9)
    spans = agt.forced_align(x, [0, 1, 2], blank=3)[0]
    assert [(s.token, s.start, s.end) for s in spans] == [(0, 1, 3), (1, 3, 4), (2, 5, 6)]


def test_alignments_of_padded_batches():
    x = random(2, 6, 4)
    padded, sizes = torch.tensor([[1, 2, 3], [2, 9, 9]]), torch.tensor([3, 1])
    spans = agt.forced_align(x, padded, [6, 4], sizes)
    assert spans[0] == agt.forced_align(x[0], [1, 2, 3])[0]
    assert spans[1] == agt.forced_align(x[1, :4], [2])[0]
    joined = agt.forced_align(x, torch.tensor([1, 2, 3, 2]), [6, 4], sizes)
    assert joined == spans


def test_an_infeasible_target_has_no_alignment():
    assert agt.forced_align(torch.zeros(2, 4), [1, 1]) == [[]]
    assert agt.forced_align(torch.zeros(3, 4), np.zeros(0, int)) == [[]]
    with pytest.raises(ValueError, match="a label of the target must be"):
        agt.forced_align(torch.zeros(2, 4), [4])
    loss = agt.TransducerLoss(Tokens.ctc(4))
    x = random(1, 5, 4)
    assert loss.forced_align(x, [[1, 2]]) == agt.forced_align(x, [[1, 2]])


LEXICON = ag.lexicon.Lexicon(["a", "b", "ab", "ba"], first_label=1)


def backed_off(seed=0):
    """A back-off bigram over five labels with some weights."""
    counts = ag.ngram.count([[1, 2, 0, 3], [4, 0, 0, 4], [1, 2]], 2, num_tokens=5)
    graph = ag.ngram.backoff_graph(counts, calc_grad=False)
    graph.set_weights(np.random.default_rng(seed).normal(size=graph.num_arcs()))
    return graph


@pytest.mark.parametrize("with_transitions", [False, True])
@pytest.mark.parametrize("text", ["a", "abab", "abba", "baabab"])
def test_the_best_sequence_of_an_acceptor_is_aligned(text, with_transitions):
    tokens = Tokens.ctc(5)
    x = random(8, 5, seed=len(text))
    transitions = backed_off() if with_transitions else None

    def score(way):
        graph = ag.tokens.alignment_graph(tokens, way)
        if transitions is not None:
            graph = ag.intersect(graph, transitions)
        return ag.viterbi_score(ag.intersect(graph, ag.linear_graph(8, 5, x.numpy()))).item()

    best = max(LEXICON.enumerate(text), key=score)
    ways = ag.lexicon.decompositions(LEXICON, text)
    found = agt.forced_align(x, ways, tokens=tokens, transitions=transitions)
    assert found == agt.forced_align(x, [best], tokens=tokens, transitions=transitions)
    assert [span.token for span in found[0]] == best

    loss = agt.TransducerLoss(
        LEXICON.pieces, LEXICON, transitions, blank="optional", allow_repeats=False
    )
    assert loss.forced_align(x, [text]) == found
    assert loss.forced_align(x[None], torch.tensor([LEXICON.spell(text)]), [8]) == found
    # The same lexicon as a graph, for targets that are graphemes.
    loss.lexicon = ag.lexicon.lexicon_graph(LEXICON)
    assert loss.forced_align(x, [LEXICON.spell(text)]) == found


def test_acceptors_that_cannot_be_aligned():
    missing = ag.lexicon.Lexicon(["ab"], graphemes="ab", first_label=1)
    ways = ag.lexicon.decompositions(missing, ["ab", "aab"])
    assert [len(spans) for spans in agt.forced_align(torch.zeros(2, 3, 2), ways)] == [1, 0]
    with pytest.raises(ValueError, match=r"must be acceptors of tokens, but .* of target 1"):
        agt.forced_align(torch.zeros(2, 3, 2), [ag.chain_graph([1]), ag.chain_graph([1], [0])])


# Search


def test_a_wide_beam_finds_the_exact_best():
    x = random(4, 6, 4, seed=3)
    found = agt.beam_search(x, nbest=3)
    tokens = Tokens.ctc(4)
    for example, hypotheses in zip(x, found, strict=True):
        exact = ag.viterbi_score(ag.compose(ag.linear_graph(6, 4, example.numpy()), tokens.graph()))
        assert hypotheses[0].score == pytest.approx(exact.item(), rel=1e-6)
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.labels) for h in hypotheses}) == 3
    assert [h[0].labels for h in found] == agt.viterbi(x)


def test_a_search_through_a_lexicon():
    # The words 0 = "1 2" and 1 = "2 2", in any order.
    words = ag.closure(
        ag.union([ag.chain_graph([1, 2], [0, ag.epsilon]), ag.chain_graph([2, 2], [1, ag.epsilon])])
    )
    graph = ag.compose(Tokens.ctc(3).graph(), words)
    x = torch.eye(3)[torch.tensor([[1, 2, 0, 2, 0, 2]])].mul(5)
    found = agt.beam_search(x, graph, beam=20.0, max_active=50, nbest=1)
    assert found[0][0].labels == [0, 1]


SPELLINGS = {"cat": [1, 2, 3], "hat": [4, 2, 3], "at": [2, 3], "a": [2], "the": [[3, 4], [3, 5]]}
LINES = ["the cat", "the hat", "a cat at the hat", "the cat at a hat", "the cat", "cat"]


def words_and_model():
    """The spellings of words in letters 1 to 5, and a bigram model of the words."""
    words = list(SPELLINGS)
    counts = ag.ngram.count(LINES, 2, tokenize=str.split, symbols=words)
    return ag.lexicon.word_lexicon_graph(SPELLINGS), ag.ngram.estimate(counts, "katz").graph()


def test_words_are_found_through_a_lexicon_and_a_language_model():
    lexicon, model = words_and_model()
    tokens = Tokens.ctc(6)
    graph = ag.compose(tokens.graph(), ag.compose(lexicon, model))
    names = list(SPELLINGS)
    # "the ?at", where the first letter of the second word is c or h: the model prefers the cat.
    frames = torch.eye(6)[torch.tensor([3, 4, 0, 0, 2, 3])].mul(6)
    frames[3, [1, 4]] = 6.0
    best = agt.beam_search(frames, graph, beam=20.0, nbest=2)[0]
    assert [names[word] for word in best[0].labels] == ["the", "cat"]
    assert [names[word] for word in best[1].labels] == ["the", "hat"]


@pytest.mark.parametrize("seed", range(4))
def test_the_best_words_equal_an_exhaustive_search(seed):
    lexicon, model = words_and_model()
    tokens = Tokens.ctc(6)
    graph = ag.compose(tokens.graph(), ag.compose(lexicon, model))
    x = random(5, 6, seed=seed).mul(3)
    emissions = ag.linear_graph(5, 6, x.numpy(), calc_grad=False)
    spellings = [s if isinstance(s[0], list) else [s] for s in SPELLINGS.values()]
    scores = {}
    for count in range(1, 6):
        for words in itertools.product(range(len(spellings)), repeat=count):
            ways = itertools.product(*(spellings[word] for word in words))
            sequences = [list(itertools.chain(*way)) for way in ways]
            sequences = [sequence for sequence in sequences if len(sequence) <= 5]
            if not sequences:
                continue
            alignments = ag.tokens.alignment_graph(tokens, sequences)
            acoustic = max(
                s.item() for s in ag.viterbi_score(ag.intersect(alignments, [emissions]))
            )
            language = ag.viterbi_score(ag.intersect(model, ag.chain_graph(words))).item()
            scores[words] = acoustic + language
    expected = sorted(scores, key=scores.get, reverse=True)[:3]
    found = agt.beam_search(x, graph, nbest=3)[0]
    assert [tuple(hypothesis.labels) for hypothesis in found] == expected
    for hypothesis, words in zip(found, expected, strict=True):
        assert hypothesis.score == pytest.approx(scores[words], abs=1e-4)


def test_lattices_are_differentiable_and_can_be_rescored():
    x = random(2, 4, 3).double().requires_grad_()

    def total(x):
        return agt.tensor(ag.forward_score(agt.beam_search(x, bigram())))

    exact = agt.tensor(ag.forward_score(ag.intersect(bigram(), agt.emissions(x))))
    assert torch.allclose(total(x), exact)
    assert torch.autograd.gradcheck(total, x)
    lattices = agt.beam_search(x, bigram(), lengths=[4, 2])
    rescored = ag.viterbi_score(ag.intersect(lattices, bigram(1)))
    both = ag.intersect(ag.intersect(bigram(), bigram(1)), agt.emissions(x, [4, 2]))
    for one, two in zip(rescored, ag.viterbi_score(both), strict=True):
        assert one.item() == pytest.approx(two.item(), rel=1e-6)


def test_narrow_searches():
    x = random(1, 8, 4)
    wide, narrow = (agt.beam_search(x, beam=beam)[0] for beam in (100.0, 0.5))
    assert narrow.num_arcs() < wide.num_arcs()
    pruned = agt.beam_search(x, prune=0.0)[0]
    assert ag.viterbi_score(pruned).item() == pytest.approx(ag.viterbi_score(wide).item())
    assert agt.beam_search(x, ag.Graph(calc_grad=False), nbest=2) == [[]]


# Regression tests


def test_greedy_search_follows_the_rules_of_scoring():
    with pytest.raises(ValueError, match=r"viterbi .*the emission of label 0 at frame 0 is nan"):
        agt.viterbi(torch.full((1, 3, 4), torch.nan))
    assert agt.viterbi(torch.full((1, 3, 4), -torch.inf), blank=3) == [[]]
    with pytest.raises(TypeError, match="whole numbers"):
        agt.viterbi(torch.zeros(2, 6, 4), [3.0, 2.0])
    with pytest.raises(TypeError, match="must hold real numbers"):
        agt.viterbi(torch.ones(1, 3, 4, dtype=torch.long))
    with pytest.raises(TypeError, match="viterbi: emissions must be a Tensor, but it is"):
        agt.viterbi(np.zeros((1, 3, 4)))


def test_alignments_check_their_arguments():
    with pytest.raises(ValueError, match="forced_align: emissions must have 5 labels, as the"):
        agt.forced_align(torch.zeros(1, 4, 3), [[4]], tokens=Tokens.ctc(5))
    assert agt.forced_align(torch.zeros(0, 4, 3), []) == []
    with pytest.raises(ValueError, match="a target length must be between 0 and 2, but for"):
        agt.forced_align(torch.zeros(2, 6, 4), torch.ones(2, 2).long(), target_lengths=[5, -1])
    found = agt.beam_search(torch.zeros(1, 0, 3), nbest=1)
    assert isinstance(found[0][0].score, float)
