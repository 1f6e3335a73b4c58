"""arcgrad.text: strings as graphs, and graphs as strings."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arcgrad as ag
from arcgrad import text

WORDS = ag.SymbolTable(["one", "two", "three"])
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(texts, st.sampled_from(["bytes", "unicode"]))
def test_strings_come_back(string, symbols):
    graph = text.acceptor(string, symbols)
    assert text.best(graph) == string
    assert text.accepts(graph, string, symbols=symbols)
    assert graph.num_arcs() == len(string.encode() if symbols == "bytes" else string)


@given(st.lists(st.tuples(texts, texts, st.integers(-8, 0)), max_size=6))
def test_a_map_is_the_union_of_its_pairs(pairs):
    pairs = [(first, second, weight / 4) for first, second, weight in pairs]
    graph = text.string_map(pairs)
    for first in {first for first, _, _ in pairs}:
        expected: dict[str, float] = {}
        for other, second, weight in pairs:
            if other == first:
                expected[second] = max(weight, expected.get(second, weight))
        found = text.best_strings(ag.compose(text.acceptor(first), graph), 10)
        assert dict(found) == expected
    assert not text.accepts(graph, "no such input")


def test_a_map_shares_beginnings():
    graph = text.string_map({"cart": "a", "card": "b", "car": "c", "": "d"})
    assert graph.num_arcs() == 3 + 1 + 1 + 1 + 1
    assert graph.isymbols == graph.osymbols == ag.SymbolTable.of_bytes()
    assert text.string_map({}).num_nodes() == 1
    words = text.string_map(["car", "card", "", "card"])
    assert words.is_acceptor()
    assert words.num_arcs() == 4
    assert ag.forward_score(words).item() == pytest.approx(math.log(3))


def test_a_map_is_read_from_a_file(tmp_path):
    path = tmp_path / "map.tsv"
    path.write_text("one\teins\t-0.5\n\ntwo\tzwei\nthree\n")
    graph = text.string_map(path)
    assert text.apply("one", graph) == "eins"
    assert text.apply("three", graph) == "three"
    assert ag.viterbi_score(ag.compose(text.acceptor("one"), graph)).item() == -0.5
    for content, number in (("a\tb\tx", 1), ("a\tb\n\na\tb\t1\t2", 3)):
        path.write_text(content)
        with pytest.raises(ValueError, match=f"string_map: each line .* line {number} is"):
            text.string_map(str(path))
    with pytest.raises(FileNotFoundError):
        text.string_map(tmp_path / "none")


def test_tables_cut_strings_at_white_space():
    graph = text.cross("one two", ["three"], WORDS)
    assert graph.labels_to_list() == [0, 1]
    assert text.apply("one  two", graph, symbols=WORDS) == "three"
    assert text.best(text.acceptor("two one", WORDS)) == "two one"
    with pytest.raises(ValueError, match=r"acceptor: .* but 'four' is not one"):
        text.acceptor("four", WORDS)
    swap = text.rewrite({"one": "two"}, right="three", symbols=WORDS)
    assert text.apply("one one three", swap, symbols=WORDS) == "one two three"


def test_weights_are_scores_of_strings():
    for graph in (
        text.acceptor("ab", weight=-2.0),
        text.acceptor("", weight=-2.0),
        text.cross("", "ab", weight=-2.0),
        text.string_map([("", "", -2.0)]),
    ):
        assert ag.forward_score(graph).item() == -2.0
    assert text.acceptor("", calc_grad=True).calc_grad


def test_cross_takes_graphs():
    vowels = ag.union([text.acceptor("a"), text.acceptor("e")])
    graph = text.cross(vowels, "y")
    assert text.apply("e", graph) == "y"
    with pytest.raises(ValueError, match="cross: weight and calc_grad must be given for two"):
        text.cross(vowels, "y", weight=1.0)


def test_contexts_may_have_the_ends_of_the_text():
    begin, end = ag.chain_graph([text.BEGIN]), ag.chain_graph([text.END])
    first = text.rewrite({"a": "b"}, begin)
    last = text.rewrite({"a": "b"}, right=end, direction="rtl")
    assert text.apply("aaa", first) == "baa"
    assert text.apply("aaa", last) == "aab"
    word = text.rewrite({"a": "A"}, ag.union([begin, text.acceptor(" ")]))
    assert text.apply("aa aa", [word, last]) == "Aa Ab"


def test_rules_of_characters_need_an_alphabet():
    with pytest.raises(ValueError, match="characters must be given for symbols='unicode'"):
        text.rewrite({"ä": "ae"}, symbols="unicode")
    sigma = text.sigma_star("unicode", "abcäöü")
    umlauts = text.rewrite({"ä": "ae", "ö": "oe"}, sigma=sigma, symbols="unicode")
    assert text.apply("bäcö", umlauts, symbols="unicode") == "baecoe"
    assert text.apply("xyz", umlauts, symbols="unicode") is None
    assert text.apply("bäcö", text.rewrite({"ä": "ae"})) == "baecö"


def test_what_is_no_text_is_refused():
    for call, message in (
        (lambda: text.best(ag.chain_graph([0])), "best: the output labels .* have none"),
        (lambda: text.best(text.acceptor("ä")), None),
        (lambda: text.apply("ä", text.rewrite(_byte(0xC3))), "apply|best: the output must be"),
        (lambda: text.acceptor("\ud800"), "that UTF-8 can hold"),
        (lambda: text.acceptor("a", "latin"), "symbols must be"),
        (lambda: text.string_map([("a",)]), "an element must be an input and an output"),
        (lambda: text.rewrite(text.acceptor("a"), text.acceptor("a", "unicode")), "must agree"),
        (lambda: text.apply("a", text.acceptor("a", "unicode")), "must agree"),
    ):
        if message is None:
            call()
            continue
        with pytest.raises((ValueError, TypeError), match=message):
            call()


def _byte(value):
    """The rule that drops one byte."""
    graph = ag.chain_graph([value], [ag.epsilon])
    graph.isymbols = graph.osymbols = ag.SymbolTable.of_bytes()
    return graph


def test_rule_weights_are_learned():
    options = [text.cross("c", "k", calc_grad=True), text.cross("c", "s", calc_grad=True)]
    rule = text.rewrite(ag.union(options))
    both = ag.compose(text.acceptor("cc"), rule)
    right = ag.compose(both, text.acceptor("ks"))
    ag.backward(ag.subtract(ag.forward_score(right), ag.forward_score(both)))
    # Of the two letters each path has, on average half are spelled either way.
    assert [graph.grad().item() for graph in options] == pytest.approx([0.0, 0.0])
