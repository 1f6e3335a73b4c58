"""Word pieces: lexicon graphs, decompositions of labels, and texts."""

import itertools
import math
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from spec import language, strings, table
from tools import snapshot

import arcgrad as ag
from arcgrad import _core
from arcgrad.lexicon import Lexicon, decompositions, lexicon_graph, piece_graph

WORDS = st.text("abc", min_size=1, max_size=3)
PIECES = st.lists(WORDS, min_size=1, max_size=7, unique=True)
LABELS = st.text("abc", max_size=5)


def split(pieces, label):
    """Every way to write a label as pieces, by their numbers."""
    if not label:
        return [[]]
    return [
        [i, *rest]
        for i, piece in enumerate(pieces)
        if label.startswith(piece)
        for rest in split(pieces, label[len(piece) :])
    ]


def recurrence(pieces, label):
    """The number of decompositions, by recursion over the start of the last piece."""
    ways = [1]
    for end in range(1, len(label) + 1):
        ways.append(
            sum(ways[end - len(p)] for p in pieces if label[:end].endswith(p) and len(p) <= end)
        )
    return ways[-1]


def spelled(graph):
    """The label sequences of an acceptor, each as often as it has paths."""
    return {string[0]: round(math.exp(score)) for string, score in language(graph).items()}


# Graphs


def test_figure_6a():
    t, h, th = 0, 1, 5
    arcs = [arc[1:] for arc in table(piece_graph(th, [t, h])).arcs]
    assert arcs == [(0, 1, th, t, 0.0), (1, 2, ag.epsilon, h, 0.0)]
    with pytest.raises(ValueError, match="a piece must have graphemes, but piece 5 has none"):
        piece_graph(5, [])


def test_figure_6b():
    lexicon = Lexicon(["e", "h", "t", "he", "th", "the"])
    e, h, t, he, th, the = range(6)
    arcs = [arc[1:4] for arc in table(decompositions(lexicon, "the")).arcs]
    assert arcs == [(0, 1, t), (0, 2, th), (0, 3, the), (1, 2, h), (1, 3, he), (2, 3, e)]


@given(PIECES, LABELS)
def test_decompositions_are_all_ways_to_spell_the_label(pieces, label):
    lexicon = Lexicon(pieces, graphemes="abc")
    graph = decompositions(lexicon, label)
    assert spelled(graph) == {tuple(way): 1 for way in split(pieces, label)}
    # Every node and arc lies on a path.
    assert snapshot(ag.connect(graph)) == snapshot(graph)
    arcs = list(zip(graph.src_nodes(), graph.dst_nodes(), graph.ilabels(), strict=True))
    assert arcs == sorted(arcs)


@pytest.mark.parametrize("shared", [False, True])
@given(PIECES, LABELS)
def test_decompositions_equal_the_composition(shared, pieces, label):
    lexicon = Lexicon(pieces, graphemes="abc")
    target = ag.chain_graph(lexicon.spell(label))
    composed = ag.compose(lexicon_graph(lexicon, shared=shared), target)
    by_hand = ag.remove(ag.project_input(composed))
    assert spelled(by_hand) == spelled(decompositions(lexicon, label))
    turned = ag.compose(target, lexicon_graph(lexicon, to="pieces", shared=shared))
    assert spelled(ag.remove(ag.project_output(turned))) == spelled(by_hand)


@given(PIECES, st.data())
def test_lexicon_graphs_spell_pieces(pieces, data):
    lexicon = Lexicon(pieces, graphemes="abc")
    chosen = data.draw(st.lists(st.integers(0, len(pieces) - 1), max_size=4))
    expected = tuple(lexicon.spell("".join(pieces[i] for i in chosen)))
    for shared in (False, True):
        graph = lexicon_graph(lexicon, shared=shared)
        composed = ag.compose(ag.chain_graph(chosen), graph)
        assert spelled(ag.remove(ag.project_output(composed))) == {expected: 1}


@pytest.mark.parametrize("to", ["graphemes", "pieces"])
@given(pieces=st.lists(WORDS, min_size=1, max_size=4, unique=True))
def test_sharing_prefixes_does_not_change_the_relation(to, pieces):
    found = [strings(lexicon_graph(pieces, to=to, shared=shared)) for shared in (False, True)]
    assert found[0] == pytest.approx(found[1])
    assert all(value == pytest.approx(0.0) for value in found[0].values())


@given(PIECES)
def test_shared_prefixes_have_one_node(pieces):
    graph = lexicon_graph(pieces)
    begun = {piece[:k] for piece in pieces for k in range(1, len(piece))}
    assert graph.num_nodes() == 1 + len(begun)
    assert graph.num_arcs() == len(pieces) + len(begun)
    assert graph.ilabels()[: len(pieces)].tolist() == list(range(len(pieces)))
    assert set(graph.dst_nodes()[: len(pieces)].tolist()) == {0}
    assert graph.num_arcs() <= lexicon_graph(pieces, shared=False).num_arcs()


def test_a_lexicon_without_pieces_spells_nothing():
    lexicon = Lexicon([])
    for shared in (False, True):
        graph = lexicon_graph(lexicon, shared=shared)
        assert spelled(graph) == {(): 1}
    assert spelled(decompositions(lexicon, "")) == {(): 1}


@pytest.mark.parametrize("calc_grad", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_options_of_graphs(calc_grad, dtype):
    lexicon = Lexicon(["a", "ab", "b"])
    options = {"calc_grad": calc_grad, "dtype": dtype}
    graphs = [decompositions(lexicon, "ab", **options), piece_graph(0, [1], **options)]
    for to, shared in itertools.product(["pieces", "graphemes"], [False, True]):
        graphs.append(lexicon_graph(lexicon, to=to, shared=shared, **options))
    for graph in graphs:
        assert (graph.calc_grad, graph.dtype) == (calc_grad, np.dtype(dtype))
        assert not graph.weights_to_numpy().any()


def test_rejects_another_direction():
    with pytest.raises(ValueError, match="to must be graphemes or pieces, but it is 'words'"):
        lexicon_graph(["a"], to="words")


def test_an_empty_label_has_the_empty_decomposition():
    graph = decompositions(Lexicon(["a"]), "")
    assert (graph.num_nodes(), graph.start().tolist(), graph.accept().tolist()) == (1, [0], [0])


def test_a_label_that_no_piece_spells_has_an_empty_graph():
    lexicon = Lexicon(["ab", "b"])
    graph = decompositions(lexicon, "ba")
    assert (graph.num_nodes(), graph.num_arcs()) == (0, 0)
    assert lexicon.count("ba") == 0
    assert list(lexicon.enumerate("ba")) == []


def test_first_label_shifts_all_labels():
    lexicon = Lexicon(["a", "ab", "b"], first_label=10)
    assert spelled(decompositions(lexicon, "ab")) == {(10, 12): 1, (11,): 1}
    assert lexicon_graph(lexicon).ilabels().max() == 12
    assert lexicon_graph(lexicon, shared=False).ilabels().max() == 12
    assert lexicon.names([11, 12]) == ["ab", "b"]
    assert lexicon.best("ab", [0.0, 1.0, 0.0]) == [11]


@given(PIECES, st.lists(LABELS, min_size=1, max_size=5))
def test_a_list_is_a_batch(pieces, labels):
    lexicon = Lexicon(pieces, graphemes="abc")
    expected = [snapshot(decompositions(lexicon, label)) for label in labels]
    assert [snapshot(graph) for graph in decompositions(lexicon, labels)] == expected
    for kind in (list, tuple, np.array):
        spellings = [kind(lexicon.spell(label)) for label in labels]
        # The dtype of an empty NumPy array is float64.
        if kind is not np.array or all(labels):
            assert [snapshot(graph) for graph in decompositions(lexicon, spellings)] == expected
            assert snapshot(decompositions(lexicon, spellings[0])) == expected[0]


def test_decompositions_replace_the_label_in_a_criterion():
    # Two frames: the label is spelled by pieces of one frame each.
    lexicon = Lexicon(["a", "b", "ab", "ba", "abb"])
    scores = np.random.default_rng(0).normal(size=(2, 5))
    emissions = ag.linear_graph(2, 5, scores)
    product = ag.intersect(decompositions(lexicon, "abb"), emissions)
    ways = [way for way in split(lexicon.pieces, "abb") if len(way) == 2]
    assert len(ways) == 1
    expected = sum(scores[t, piece] for t, piece in enumerate(ways[0]))
    assert ag.forward_score(product).item() == pytest.approx(expected)
    ag.backward(ag.forward_score(product))
    assert emissions.grad().weights_to_numpy().sum() == pytest.approx(2.0)


# Plain values


@given(PIECES, LABELS)
def test_the_number_of_decompositions_equals_the_recurrence(pieces, label):
    lexicon = Lexicon(pieces, graphemes="abc")
    assert lexicon.count(label) == recurrence(pieces, label) == len(split(pieces, label))


def test_the_number_of_decompositions_may_be_huge():
    lexicon = Lexicon(["a", "aa"])
    fibonacci = [1, 1]
    while len(fibonacci) < 501:
        fibonacci.append(fibonacci[-1] + fibonacci[-2])
    assert lexicon.count("a" * 500) == fibonacci[500]


@given(PIECES, LABELS)
def test_enumeration_gives_each_decomposition_once(pieces, label):
    lexicon = Lexicon(pieces, graphemes="abc")
    found = list(lexicon.enumerate(label))
    assert sorted(found) == sorted(split(pieces, label))
    # Shorter pieces first.
    lengths = [[len(pieces[i]) for i in way] for way in found]
    assert lengths == sorted(lengths)


def test_enumeration_can_be_stopped():
    lexicon = Lexicon(["a", "aa"])
    first = list(itertools.islice(lexicon.enumerate("a" * 100), 2))
    assert first == [[0] * 100, [0] * 98 + [1]]


@given(PIECES, LABELS, st.data())
def test_the_best_decomposition_has_the_largest_sum(pieces, label, data):
    lexicon = Lexicon(pieces, graphemes="abc")
    ways = split(pieces, label)
    numbers = st.integers(-8, 8).map(lambda k: k / 8)
    weights = data.draw(st.lists(numbers, min_size=len(pieces), max_size=len(pieces)))
    if not ways:
        with pytest.raises(ValueError, match=f"must have a decomposition, but '{label}' has none"):
            lexicon.best(label, weights)
        return
    best = max(sum(weights[i] for i in way) for way in ways)
    ties = [way for way in ways if sum(weights[i] for i in way) == best]
    expected = min(ties, key=lambda way: [len(pieces[i]) for i in way])
    assert lexicon.best(label, weights) == expected


def test_samples_are_drawn_in_proportion():
    lexicon = Lexicon(["a", "b", "ab"])
    weights = np.log([0.5, 0.5, 0.75])
    drawn = lexicon.sample("ab", 4000, weights=weights, seed=1)
    assert {tuple(way) for way in drawn} == {(0, 1), (2,)}
    # 0.25 to 0.75.
    assert drawn.count([2]) / 4000 == pytest.approx(0.75, abs=0.03)
    assert lexicon.sample("ab", 4000, weights=weights, seed=1) == drawn
    assert lexicon.sample("ab", 4000, weights=weights, seed=10_000) != drawn
    equal = lexicon.sample("ab", 4000, seed=2)
    assert equal.count([2]) / 4000 == pytest.approx(0.5, abs=0.03)
    assert lexicon.sample("", 2, seed=0) == [[], []]


def test_impossible_pieces_are_not_used():
    lexicon = Lexicon(["a", "b", "ab"])
    weights = [-math.inf, 0.0, -5.0]
    assert lexicon.best("ab", weights) == [2]
    assert lexicon.sample("ab", 3, weights=weights) == [[2]] * 3
    with pytest.raises(ValueError, match="must have finite weights, but 'aab' has none"):
        lexicon.best("aab", weights)
    with pytest.raises(ValueError, match=r"sample .*: the graph must accept a path"):
        lexicon.sample("a", weights=weights)


def test_weights_must_be_one_per_piece():
    lexicon = Lexicon(["a", "b"])
    for method in (lexicon.best, lambda label, w: lexicon.sample(label, weights=w)):
        with pytest.raises(ValueError, match=r"for each of 2 pieces, .* weights is \(1,\)"):
            method("ab", [0.0])


# Texts


def test_graphemes_are_the_sorted_characters_of_the_pieces():
    lexicon = Lexicon(["ab", "c", "é"])
    assert lexicon.graphemes == ("a", "b", "c", "é")
    assert lexicon.spell("cé") == [2, 3]
    assert lexicon.graphemes_to_text([2, 3]) == "cé"
    assert repr(lexicon) == "Lexicon(3 pieces, 4 graphemes)"


def test_graphemes_can_be_an_argument():
    lexicon = Lexicon(["ab"], graphemes="xba")
    assert lexicon.spell("ab") == [2, 1]
    # This grapheme occurs in no piece.
    assert decompositions(lexicon, "x").num_nodes() == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("the cat", "▁the▁cat"), ("  the \t cat ", "▁the▁cat"), ("▁the cat", "▁the▁cat"), ("", "")],
)
def test_separators_mark_the_starts_of_words(text, expected):
    pieces = ["▁", *"aceht", "▁the", "▁c"]
    lexicon = Lexicon(pieces, separator="▁")
    assert [lexicon.graphemes[i] for i in lexicon.spell(text)] == list(expected)
    assert lexicon.count(text) == recurrence(pieces, expected)
    assert lexicon.graphemes_to_text(lexicon.spell(text)) == expected.replace("▁", " ").strip()


def test_the_first_word_can_be_left_unmarked():
    lexicon = Lexicon(["▁", *"aceht"], separator="▁", prepend=False)
    assert lexicon.count("the cat") == 1
    assert lexicon.pieces_to_text(lexicon.best("the cat", np.zeros(6))) == "the cat"
    assert lexicon.spell("the cat") == Lexicon(["▁", *"aceht"]).spell("the▁cat")


def test_pieces_become_text():
    lexicon = Lexicon(["▁the", "▁", "c", "at", "▁c"], separator="▁")
    assert lexicon.pieces_to_text([0, 4, 3]) == "the cat"
    assert lexicon.pieces_to_text([]) == ""
    assert Lexicon([" a"]).pieces_to_text([0]) == " a"
    for label in (-1, 5):
        with pytest.raises(ValueError, match=f"between 0 and 4, but there is {label}"):
            lexicon.names([label])


def test_characters_that_are_not_covered_are_named():
    lexicon = Lexicon(["a", "b"])
    message = "every character must be a grapheme of the lexicon, but 'axbyx' has 'x', 'y'"
    with pytest.raises(ValueError, match=f"spell: {message}"):
        lexicon.spell("axbyx")
    with pytest.raises(ValueError, match=f"decompositions: {message}"):
        decompositions(lexicon, "axbyx")
    with pytest.raises(ValueError, match=r"decompositions \(element 1 of 2\): every character"):
        decompositions(lexicon, ["ab", "axb"])
    with pytest.raises(ValueError, match=r"Lexicon: every character .* but 'ab' has 'b'"):
        Lexicon(["ab"], graphemes="a")
    with pytest.raises(ValueError, match="graphemes must be between 0 and 1, but there is 2"):
        decompositions(lexicon, [0, 2])
    with pytest.raises(ValueError, match=r"graphemes_to_text: .* between 0 and 1, but there is -1"):
        lexicon.graphemes_to_text([-1])
    with pytest.raises(ValueError, match=r"\(element 0 of 1\): .* but there is -1"):
        decompositions(lexicon, [[0, -1]])


@pytest.mark.parametrize(
    ("pieces", "options", "error", "message"),
    [
        (["a", ""], {}, ValueError, "pieces must not be empty, but number 1 is"),
        (["a", "b", "a"], {}, ValueError, "pieces must differ, but 'a' occurs more than once"),
        (["a", 3], {}, TypeError, "pieces must be strings, but pieces 1 is 3"),
        (["a"], {"graphemes": ["a", "a"]}, ValueError, "graphemes must differ, but 'a'"),
        (["a"], {"graphemes": ["a", "bc"]}, ValueError, "one character, but there is 'bc'"),
        (["a"], {"separator": "__"}, ValueError, "separator must be one character, but it is '__'"),
        (["a"], {"first_label": -1}, ValueError, "first_label must be 0 or more, but it is -1"),
    ],
)
def test_rejects(pieces, options, error, message):
    with pytest.raises(error, match=f"Lexicon: .*{message}"):
        Lexicon(pieces, **options)


def test_can_be_pickled():
    lexicon = Lexicon(["▁a", "▁", "a", "b"], separator="▁", first_label=3)
    again = pickle.loads(pickle.dumps(lexicon))
    assert again.pieces == lexicon.pieces
    assert snapshot(decompositions(again, "a b")) == snapshot(decompositions(lexicon, "a b"))


@pytest.mark.parametrize(
    ("spellings", "labels", "message"),
    [
        ([[0]], [], "one label per spelling, but there are 0 labels and 1 spellings"),
        ([[0], []], [0, 1], "a spelling must not be empty, but the spelling of entry 1 is"),
        ([[0], [1, -1]], [0, 1], "must be 0 or more, but the spelling of entry 1 has -1"),
        ([[0]], [-2], "labels must be 0 or more, but the label of entry 0 is -2"),
    ],
)
def test_tries_are_checked(spellings, labels, message):
    with pytest.raises(ValueError, match=f"Trie: .*{message}"):
        _core.Trie(spellings, labels)
