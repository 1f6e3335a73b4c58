"""rewrite, difference, complement and cross beyond their meaning in spec.py."""

import random

import numpy as np
import pytest
from hypothesis import given
from spec import language
from strategies import acceptors
from tools import with_weights

import arcgrad as ag

LETTERS = "abc"
MARKS = {"^": ag.text.BEGIN, "$": ag.text.END}


def chain(word):
    return ag.chain_graph([MARKS.get(c, ord(c) - ord("a")) for c in word])


def any_of(words):
    return ag.union([chain(word) for word in words])


def outputs(graph, word):
    """All output strings for an input string."""
    lattice = ag.project_output(ag.compose(chain(word), graph))
    found = ag.best_paths(lattice, 5000, unique=True)
    labels = [path.labels_to_list(ilabel=False) for path in found]
    assert len(found) < 5000
    return {"".join(LETTERS[k] for k in path if k >= 0) for path in labels}


# Against pynini


def theirs(words):
    pynini = pytest.importorskip("pynini")
    return pynini.union(*(w.replace("^", "[BOS]").replace("$", "[EOS]") for w in words))


def draw(seed):
    """A random rule with insertions, deletions, boundaries and several alternatives."""
    rng = random.Random(seed)

    def word(length):
        return "".join(rng.choice(LETTERS) for _ in range(rng.randint(0, length)))

    pairs = [(word(2), word(2)) for _ in range(rng.randint(1, 2))]
    left, right = ([word(2) for _ in range(rng.randint(1, 2))] for _ in range(2))
    if rng.random() < 0.2:
        left[0] = "^" + left[0]
    if rng.random() < 0.2:
        right[0] += "$"
    options = rng.choice(["obligatory", "optional"]), rng.choice(["ltr", "rtl", "sim"])
    return pairs, left, right, *options, [word(6) for _ in range(6)]


@pytest.mark.parametrize("seed", range(12))
def test_rules_are_those_of_pynini(seed):
    pynini = pytest.importorskip("pynini")
    sigma = pynini.union(*LETTERS).closure().optimize()
    for k in range(20):
        pairs, left, right, mode, direction, words = draw(20 * seed + k)
        expected = pynini.cdrewrite(
            pynini.union(*(pynini.cross(a, b) for a, b in pairs)),
            theirs(left),
            theirs(right),
            sigma,
            direction=direction,
            mode=mode[:3],
        )
        rule = ag.union([ag.cross(chain(a), chain(b)) for a, b in pairs])
        found = ag.rewrite(
            rule, any_of(left), any_of(right), [0, 1, 2], mode=mode, direction=direction
        )
        for word in words:
            lattice = pynini.compose(word, expected).project("output").rmepsilon()
            paths = pynini.shortestpath(lattice, nshortest=5000, unique=True).paths()
            assert outputs(found, word) == set(paths.ostrings()), (pairs, left, right, word)


# Details


def test_a_rule_is_applied_where_its_contexts_are():
    rule = ag.cross(chain("b"), chain("c"))
    found = ag.rewrite(rule, chain("a"), chain("a"), [0, 1, 2])
    assert outputs(found, "ababbab") == {"acabbab"}


def test_directions_differ_where_contexts_were_rewritten():
    rule, a, nothing = ag.cross(chain("b"), chain("a")), chain("a"), chain("")
    words = {
        direction: outputs(ag.rewrite(rule, a, nothing, [0, 1, 2], direction=direction), "abbb")
        for direction in ("ltr", "rtl", "sim")
    }
    assert words == {"ltr": {"aaaa"}, "rtl": {"aabb"}, "sim": {"aabb"}}


def test_paths_carry_the_weights_of_the_rule():
    rule = ag.union([ag.cross(chain("a"), chain("b")), ag.cross(chain("a"), chain("c"))])
    rule = with_weights(rule, np.array([0.5, 0.0, -1.0, 0.25]))
    found = ag.rewrite(rule, chain(""), chain(""), [0, 1, 2])
    score = ag.forward_score(ag.compose(ag.compose(chain("aa"), found), chain("bc")))
    assert score.item() == pytest.approx(-0.25)
    ag.backward(score)
    assert rule.grad().weights_to_list() == [1.0, 1.0, 1.0, 1.0]


def test_impossible_arcs_are_no_part_of_a_rule():
    rule = ag.union([chain("a"), ag.cross(chain("b"), chain("c"))])
    weights = np.zeros(rule.num_arcs())
    weights[1] = -np.inf
    found = ag.rewrite(with_weights(rule, weights), chain(""), chain(""), [0, 1, 2])
    assert outputs(found, "ab") == {"ab"}


def test_a_list_of_rules_gives_a_list():
    rules = [ag.cross(chain("a"), chain("b")), ag.cross(chain("a"), chain("c"))]
    found = ag.rewrite(rules, chain(""), chain(""), [0, 1, 2])
    assert [outputs(graph, "a") for graph in found] == [{"b"}, {"c"}]


def test_a_rule_without_strings_or_contexts_copies():
    for rule, left in ((ag.Graph(), chain("")), (chain("a"), ag.Graph())):
        assert outputs(ag.rewrite(rule, left, chain(""), [0, 1, 2]), "abc") == {"abc"}


def test_a_large_map_gives_a_transducer_of_a_few_arcs_per_prefix():
    rng = random.Random(1)
    words = {"".join(rng.choices("abcdefghij", k=6)) for _ in range(300)}
    rule = ag.text.string_map(dict.fromkeys(words, "!"))
    found = ag.text.rewrite(rule, sigma=ag.text.sigma_star("bytes", "abcdefghij!"))
    assert found.num_nodes() < 4 * rule.num_nodes()
    word = next(iter(words))
    assert ag.text.apply(f"a{word}b", found).count("!") == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g: ag.rewrite(g, ag.cross(g, g), g, [0]), "the left context must be an acceptor"),
        (lambda g: ag.rewrite(g, g, ag.cross(g, g), [0]), "the right context must be an acceptor"),
        (lambda g: ag.rewrite(g, g, g, [-1]), "labels must be 0 or more .* but one is -1"),
        (lambda g: ag.rewrite(g, g, g, [2**31 - 1]), "but one is 2147483647"),
        (lambda g: ag.rewrite(g, g, g, [2**31]), "must fit 32 bits"),
        (lambda g: ag.rewrite(g, g, g, [0], mode="x"), "mode must be .* but it is 'x'"),
        (lambda g: ag.rewrite(g, g, g, [0], direction="x"), "direction must be .* but it is 'x'"),
        (lambda g: ag.rewrite(g, g, g, [0, 1], max_arcs=1), "at most max_arcs = 1 arcs"),
        (lambda g: ag.difference(ag.cross(g, g), g), "the first graph must be an acceptor"),
        (lambda g: ag.difference(g, ag.cross(g, g)), "the second graph must be an acceptor"),
        (lambda g: ag.difference(g, g, max_arcs=0), "at most 0 arcs"),
        (lambda g: ag.complement(g, [-1]), "labels must be 0 or more, but one is -1"),
        (lambda g: ag.complement(ag.cross(g, g), [0]), "the graph must be an acceptor"),
        (lambda g: ag.cross(g, ag.cross(g, g)), "the second graph must be an acceptor"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(chain("ab"))


# Difference


@given(first=acceptors(), second=acceptors())
def test_difference_and_intersection_are_the_whole(first, second):
    second = with_weights(second, np.where(second.weights_to_numpy() == -np.inf, -np.inf, 0.0))
    strings = set(language(ag.difference(first, second))) | set(
        language(ag.intersect(first, second))
    )
    assert strings == set(language(first))


def test_subsets_are_limited():
    # The n-th label from the end: 2^n sets of nodes.
    num = 12
    last = ag.Graph.from_arrays(
        [0, 0, 0, *np.repeat(np.arange(1, num), 2)],
        [0, 0, 1, *np.repeat(np.arange(2, num + 1), 2)],
        [0, 1, 1, *[0, 1] * (num - 1)],
        start=[0],
        accept=[num],
    )
    assert ag.complement(last, [0, 1]).num_nodes() == 2**num
    with pytest.raises(ValueError, match="complement: the graph must have at most 100 sets"):
        ag.complement(last, [0, 1], max_arcs=100)


def test_symbols_are_carried_by_rules():
    table, other = ag.SymbolTable(["a", "b"]), ag.SymbolTable(["x"])
    a, x = ag.chain_graph(["a"], isymbols=table), ag.chain_graph(["x"], isymbols=other)
    nothing = chain("")
    assert ag.difference(a, chain("b")).isymbols == table
    assert ag.complement(a, [0, 1]).osymbols == table
    assert (ag.cross(a, x).isymbols, ag.cross(a, x).osymbols) == (table, other)
    assert ag.rewrite(a, nothing, nothing, [0, 1]).osymbols == table
    for refused in (
        lambda: ag.difference(a, x),
        lambda: ag.rewrite(a, x, nothing, [0]),
        lambda: ag.rewrite(ag.cross(a, x), nothing, nothing, [0]),
    ):
        with pytest.raises(ValueError, match="the symbols of labels that meet must agree"):
            refused()
