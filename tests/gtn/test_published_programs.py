"""Programs in the manner of those published with gtn give the numbers of their definitions."""

import itertools
import math

import numpy as np
import pytest
from gtn_programs import chain

import arcgrad as ag
import arcgrad.gtn as gtn
from arcgrad.gtn import epsilon


def token_graph(num_tokens, blank=None, repeats=True):
    """The closure of the union of all tokens, each with one frame or more; blanks are optional."""
    graphs = []
    for token in range(num_tokens):
        graph = gtn.Graph(False)
        graph.add_node(True)
        graph.add_node(False, True)
        graph.add_arc(0, 1, token, epsilon if token == blank else token)
        if repeats:
            graph.add_arc(1, 1, token, epsilon)
        graphs.append(graph)
    tokens = gtn.remove(gtn.closure(gtn.union(graphs)))
    tokens.arc_sort(True)
    return tokens


def hub_token_graph(num_tokens):
    """Accepting token nodes with an epsilon arc back to an accepting start."""
    graph = gtn.Graph(False)
    graph.add_node(True, True)
    for token in range(num_tokens):
        graph.add_node(False, True)
        graph.add_arc(0, token + 1, token)
        graph.add_arc(token + 1, token + 1, token, epsilon)
        graph.add_arc(token + 1, 0, epsilon)
    return graph


def emissions_of(values):
    emissions = gtn.linear_graph(*values.shape)
    emissions.set_weights(np.ascontiguousarray(values, np.float32).ctypes.data)
    return emissions


def log_softmax(values):
    return (values - np.logaddexp.reduce(values, axis=-1, keepdims=True)).astype(np.float32)


def log_sum(scores):
    return np.logaddexp.reduce([*scores, -math.inf])


def alignments(path, target, blank=None):
    """In how many ways a path can be cut into runs of equal frames that spell a target."""
    count = 0
    for cuts in itertools.product([False, True], repeat=max(len(path) - 1, 0)):
        runs = [path[0]]
        for before, token, is_cut in zip(path, path[1:], cuts, strict=False):
            if token != before and not is_cut:
                break
            runs += [token] * is_cut
        else:
            count += [token for token in runs if token != blank] == list(target)
    return count


def transducer_loss(emissions, target, tokens, transitions=None):
    """Minus the log-probability of all alignments of a target."""
    alignments = gtn.project_input(gtn.remove(gtn.compose(tokens, target)))
    if transitions is not None:
        alignments = gtn.intersect(transitions, alignments)
        alignments.arc_sort()
        norm = gtn.forward_score(gtn.intersect(emissions, transitions))
    score = gtn.forward_score(gtn.intersect(emissions, alignments))
    if transitions is None:
        return gtn.negate(score)
    return gtn.subtract(norm, score)


@pytest.mark.parametrize("target", [[], [0], [0, 1], [1, 1], [0, 1, 0]])
@pytest.mark.parametrize(
    ("tokens", "blank"),
    [(token_graph(3), None), (token_graph(3, 2), 2), (hub_token_graph(3), None)],
    ids=["closure", "closure, blank", "hub"],
)
def test_every_alignment_counts_once(target, tokens, blank):
    values = log_softmax(np.random.default_rng(len(target)).normal(size=(4, 3)))
    emissions = emissions_of(values)
    loss = transducer_loss(emissions, chain(*target, calc_grad=False), tokens)
    scores = [
        values[range(4), path].sum(dtype=np.float64)
        for path in itertools.product(range(3), repeat=4)
        for _ in range(alignments(path, target, blank))
    ]
    assert loss.item() == pytest.approx(-log_sum(scores), abs=1e-5)
    gtn.backward(loss)
    gradient = emissions.grad().weights_to_numpy().reshape(4, 3)
    assert gradient.sum(1) == pytest.approx(-1.0 if scores else 0.0, abs=1e-6)


def test_transitions_from_a_text_file_are_trained(tmp_path):
    path = tmp_path / "transitions.txt"
    arcs = [(0, b + 1, b) for b in range(2)]
    arcs += [(a + 1, b + 1, b) for a in range(2) for b in range(2)]
    arcs += [(a, 3, epsilon) for a in range(3)]
    path.write_text("0\n3\n" + "".join(f"{s} {d} {c}\n" for s, d, c in arcs))
    transitions = gtn.loadtxt(str(path))
    transitions.calc_grad = True
    weights = np.random.default_rng(0).normal(size=len(arcs)).astype(np.float32)
    transitions.set_weights(weights)
    transitions.arc_sort()
    scores = dict(zip(((s, c) for s, _, c in arcs), weights.astype(np.float64), strict=True))
    values = np.random.default_rng(1).normal(size=(3, 2)).astype(np.float32)

    def score(frames):
        total, state = values[range(3), frames].sum(dtype=np.float64), 0
        for token in frames:
            total, state = total + scores[state, token], token + 1
        return total + scores[state, epsilon]

    target, tokens, emissions = chain(0, 1, calc_grad=False), token_graph(2), emissions_of(values)
    loss = transducer_loss(emissions, target, tokens, transitions)
    paths = list(itertools.product(range(2), repeat=3))
    aligned = [p for p in paths if alignments(p, (0, 1))]
    assert loss.item() == pytest.approx(
        log_sum(map(score, paths)) - log_sum(map(score, aligned)), abs=1e-5
    )
    gtn.backward(loss)
    gradient = transitions.grad().weights_to_numpy()
    for a in range(len(arcs)):
        nudged = weights.copy()
        losses = []
        for step in (1e-2, -1e-2):
            nudged[a] = weights[a] + step
            transitions.set_weights(nudged)
            losses.append(transducer_loss(emissions, target, tokens, transitions).item())
        assert gradient[a] == pytest.approx((losses[0] - losses[1]) / 2e-2, abs=1e-3)


def lexicon_graph(pieces):
    """Letters in, the number of a piece out with the last letter; pieces follow each other."""
    graphs = []
    for number, piece in enumerate(pieces):
        graph = gtn.Graph(False)
        graph.add_node(True)
        for i, letter in enumerate(piece):
            graph.add_node(False, i + 1 == len(piece))
            graph.add_arc(i, i + 1, ord(letter), number if i + 1 == len(piece) else epsilon)
        graphs.append(graph)
    lexicon = gtn.closure(gtn.union(graphs))
    lexicon.arc_sort()
    return lexicon


def decompositions(word, pieces):
    if not word:
        yield ()
    for number, piece in enumerate(pieces):
        if word.startswith(piece):
            for rest in decompositions(word[len(piece) :], pieces):
                yield (number, *rest)


@pytest.mark.parametrize("word", ["a", "ab", "abab", "bba"])
def test_marginalised_pieces_sum_over_all_decompositions(word):
    pieces = ["a", "b", "ab", "ba", "aba"]
    letters = chain(*map(ord, word), calc_grad=False)
    target = gtn.remove(gtn.project_output(gtn.compose(letters, lexicon_graph(pieces))))
    spelled = set(decompositions(word, pieces))
    values = log_softmax(np.random.default_rng(3).normal(size=(4, 5)))
    loss = transducer_loss(emissions_of(values), target, token_graph(5, repeats=False))
    scores = [
        values[range(4), path].sum(dtype=np.float64)
        for path in itertools.product(range(5), repeat=4)
        if path in spelled
    ]
    assert loss.item() == pytest.approx(-log_sum(scores), abs=1e-5)
    for decomposition in spelled:
        best = gtn.compose(chain(*decomposition), gtn.project_input(target))
        assert gtn.forward_score(best).item() == 0.0


def test_a_batch_of_losses_in_parallel_equals_one_after_the_other():
    rng = np.random.default_rng(0)
    values = log_softmax(rng.normal(size=(6, 5, 4)))
    targets = [rng.integers(0, 3, n).tolist() for n in range(6)]
    tokens = token_graph(4, 3)

    def losses(run):
        emissions = [gtn.linear_graph(5, 4, True) for _ in targets]
        found = [None] * len(targets)

        def process(b):
            emissions[b].set_weights(values[b].ctypes.data)
            loss = transducer_loss(emissions[b], chain(*targets[b], calc_grad=False), tokens)
            found[b] = gtn.negate(gtn.negate(loss))
            gtn.backward(found[b])

        run(process, range(len(targets)))
        return [x.item() for x in found], [e.grad().weights_to_list() for e in emissions]

    assert losses(gtn.parallel_for) == losses(lambda process, numbers: list(map(process, numbers)))


def decode(emissions, tokens):
    """The tokens of the best path, with the fewest of the strings that it may spell."""
    best = gtn.remove(gtn.viterbi_path(emissions))
    best = gtn.remove(gtn.project_output(gtn.viterbi_path(gtn.compose(best, tokens))))
    return best.labels_to_list()


@pytest.mark.parametrize(
    ("frames", "labels"),
    [
        ([1, 1], [1]),
        ([0, 0, 1, 1, 1], [0, 1]),
        ([1, 0, 0, 1, 1, 0], [1, 0, 1, 0]),
        ([0] * 30, [0]),
    ],
)
def test_viterbi_decoding_collapses_repeats(frames, labels):
    values = np.zeros((len(frames), 2))
    values[range(len(frames)), frames] = 5.0
    assert decode(emissions_of(values), hub_token_graph(2)) == labels
    chained = gtn.compose(chain(*frames), hub_token_graph(2))
    path = gtn.viterbi_path(chained)
    assert [x for x in path.labels_to_list(False) if x != epsilon] == labels
    # The gradient of the score marks one arc per frame.
    gtn.backward(gtn.viterbi_score(chained))
    assert sum(chained.grad().weights_to_list()) >= len(frames)


def kernel_graph(letters, blank):
    """A kernel: the letters of a piece with optional blanks around them."""
    graph = gtn.Graph(False)
    graph.add_node(True)
    graph.add_arc(0, 0, blank)
    for i, letter in enumerate(letters):
        is_last = i + 1 == len(letters)
        on, off = graph.add_node(False, is_last), graph.add_node(False, is_last)
        graph.add_arc(on - 1, on, letter)
        graph.add_arc(on, on, letter)
        graph.add_arc(on, off, blank)
        graph.add_arc(off, off, blank)
        if i > 0 and letters[i - 1] != letter:
            graph.add_arc(on - 2, on, letter)
    return graph


def test_a_layer_of_kernels_gives_the_scores_of_their_windows():
    kernels = [kernel_graph(letters, 2) for letters in ([0], [0, 1], [1, 1])]
    values = np.random.default_rng(0).normal(size=(2, 7, 3)).astype(np.float32)
    scores = np.zeros((2, 3, 3))
    gradients = np.zeros_like(values)

    def process(b):
        for window in range(3):
            frames = slice(2 * window, 2 * window + 3)
            emissions = gtn.linear_graph(3, 3)
            emissions.set_weights(np.ascontiguousarray(values[b, frames]).ctypes.data)
            found = [gtn.forward_score(gtn.intersect(emissions, k)) for k in kernels]
            scores[b, window] = [score.item() for score in found]
            for score in found:
                gtn.backward(score)
            gradients[b, frames] += emissions.grad().weights_to_numpy().reshape(3, 3)

    gtn.parallel_for(process, range(2))
    for b, window, (k, letters) in itertools.product(
        range(2), range(3), enumerate(([0], [0, 1], [1, 1]))
    ):
        frames = values[b, 2 * window : 2 * window + 3]
        expected = [
            frames[range(3), path].sum(dtype=np.float64)
            for path in itertools.product(range(3), repeat=3)
            if [x for x, _ in itertools.groupby(path) if x != 2] == letters
        ]
        assert scores[b, window, k] == pytest.approx(log_sum(expected), abs=1e-5)
    # Every kernel spreads a weight of 1 over each frame of each window.
    covered = np.array([1, 1, 2, 1, 2, 1, 1]) * 3
    assert gradients.sum(2) == pytest.approx(np.stack([covered] * 2), abs=1e-5)


def test_masks_by_arithmetic_may_give_nan():
    values = np.array([[0.0, -1.0, -math.inf], [-math.inf, 0.5, -math.inf]], np.float32)
    with np.errstate(invalid="ignore", divide="ignore"):
        masked = values + np.log(1 - np.exp(values - values.max(1, keepdims=True)))
        masked[:, 2] = values[:, 2] - values[:, 2]  # -inf - -inf
    assert np.isnan(masked[:, 2]).all()
    emissions = emissions_of(masked)
    loop = gtn.Graph(False)
    loop.add_node(True, True)
    for label in range(3):
        loop.add_arc(0, 0, label)
    with pytest.raises(ValueError, match="nan"):
        ag.forward_score(ag.intersect(loop, emissions))
    score = gtn.forward_score(gtn.intersect(loop, emissions))
    finite = np.where(np.isnan(masked), -np.inf, masked)[:, :2]
    assert score.item() == pytest.approx(np.logaddexp.reduce(finite, axis=1).sum(), abs=1e-6)
    gtn.backward(score)
    assert np.isfinite(emissions.grad().weights_to_list()).all()
