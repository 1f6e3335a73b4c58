"""SymbolTable, and the symbols of graphs through ops, files and messages."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

import arcgrad as ag

AB = ag.SymbolTable(["a", "b"])
XY = ag.SymbolTable(["x", "y"])

symbols = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1)


def chain(text="ab", table=AB):
    return ag.chain_graph(list(text), isymbols=table, calc_grad=True)


def pair(text, output):
    return ag.chain_graph(list(text), list(output), isymbols=AB, osymbols=XY)


def tables(graph):
    return graph.isymbols, graph.osymbols


# Tables


@given(st.lists(symbols.filter(lambda s: s != "<eps>"), unique=True))
def test_a_table_maps_both_ways(names):
    table = ag.SymbolTable(names)
    assert list(table) == names
    assert len(table) == len(names)
    assert [table[name] for name in names] == list(range(len(names)))
    assert [table[k] for k in range(len(names))] == names
    assert table == ag.SymbolTable(dict(table.items()))
    assert table == ag.SymbolTable({label: name for name, label in table.items()})
    assert pickle.loads(pickle.dumps(table)).items() == table.items()


@given(st.dictionaries(st.integers(0, 2**31 - 1), symbols, max_size=5))
def test_labels_may_have_gaps(names):
    names = {k: f"{k}{name}" for k, name in names.items()}
    table = ag.SymbolTable(names)
    assert {table[name]: name for name in table} == names
    assert all(table[k] == name for k, name in names.items())
    if names and max(names) < 2**31 - 1:
        assert table.add("another") == max(names) + 1


def test_epsilon_has_a_symbol_that_is_not_counted():
    table = ag.SymbolTable({"a": 0, "-": -1}, epsilon="-")
    assert (table["-"], table[-1], len(table), table.epsilon) == (-1, "-", 1, "-")
    assert table != ag.SymbolTable(["a"])


def test_what_is_added_later_is_not_in_copies():
    table = ag.SymbolTable(["a"])
    graph = ag.chain_graph(["a"], isymbols=table)
    copies = [copy.copy(table), copy.deepcopy(table), graph.isymbols]
    assert table.add("b") == 1
    assert table.add("b") == 1
    assert [len(other) for other in copies] == [1, 1, 1]
    assert "b" in table
    assert 1 in table
    assert None not in table


@given(st.binary(min_size=1, max_size=1), st.characters())
def test_bytes_and_characters_need_no_list(byte, character):
    for table, label in (
        (ag.SymbolTable.of_bytes(), byte[0]),
        (ag.SymbolTable.of_unicode(), ord(character)),
    ):
        assert table[table[label]] == label
    if character.isprintable() and character not in " \xad":
        assert ag.SymbolTable.of_unicode()[ord(character)] == character


def test_merge_joins_tables_that_agree():
    table = AB.merge(ag.SymbolTable({"b": 1, "c": 5}))
    assert table.items() == [("a", 0), ("b", 1), ("c", 5)]
    with pytest.raises(ValueError, match=r"merge: .* 'b' is label 0 in one and 1 in the other"):
        AB.merge(ag.SymbolTable(["b"]))
    with pytest.raises(ValueError, match=r"merge: .* label 0 is 'c' in one and 'a' in the other"):
        AB.merge(ag.SymbolTable(["c"]))
    with pytest.raises(ValueError, match="a list of 2 and those of bytes"):
        AB.merge(ag.SymbolTable.of_bytes())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: ag.SymbolTable(["a", "a"]), ValueError, "must differ, but 'a' occurs again"),
        (lambda: ag.SymbolTable([""]), ValueError, "one is empty"),
        (lambda: ag.SymbolTable(["a\0"]), ValueError, "without null characters"),
        (lambda: ag.SymbolTable(["\ud800"]), TypeError, "UTF-8 can hold"),
        (lambda: ag.SymbolTable("ab"), TypeError, "a list or a dict, but they are 'ab'"),
        (lambda: ag.SymbolTable({"a": "b"}), TypeError, "it maps 'a' to 'b'"),
        (lambda: ag.SymbolTable({"a": -2}), ValueError, "that of 'a' is -2"),
        (lambda: ag.SymbolTable({"a": 2**31}), ValueError, "must fit 32 bits"),
        (lambda: AB["z"], KeyError, "'z'"),
        (lambda: AB[2**40], KeyError, "1099511627776"),
        (lambda: ag.SymbolTable(["a"]).add("b", 0), ValueError, "0 is 'a', and was given 'b'"),
        (lambda: ag.SymbolTable(["a"]).add("a", 3), ValueError, "has the label 0"),
        (lambda: list(ag.SymbolTable.of_bytes()), ValueError, "only a list"),
        (lambda: ag.SymbolTable.of_unicode().add("ab"), ValueError, "all Unicode characters"),
        (lambda: hash(AB), TypeError, "unhashable"),
        (lambda: ag.SymbolTable({"a": 2**31 - 1}).add("b"), ValueError, "no label is left"),
    ],
)
def test_bad_symbols_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


# Files


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1),
        unique=True,
    )
)
def test_files_give_back_a_table(tmp_path_factory, names):
    path = tmp_path_factory.mktemp("symbols") / "table"
    table = ag.SymbolTable([name for name in names if name != "<eps>"])
    table.save(path)
    assert ag.SymbolTable.load(path).items() == table.items()


def test_ids_are_one_more_than_labels_as_in_openfst(tmp_path):
    pywrapfst = pytest.importorskip("pywrapfst")
    theirs = pywrapfst.SymbolTable()
    for k, name in enumerate(["-", "a", "b", "é"]):
        theirs.add_symbol(name, k)
    theirs.write_text(str(tmp_path / "theirs"))
    table = ag.SymbolTable.load(tmp_path / "theirs")
    assert (table.epsilon, table.items()) == ("-", [("a", 0), ("b", 1), ("é", 2)])
    table.save(tmp_path / "ours")
    back = pywrapfst.SymbolTable.read_text(str(tmp_path / "ours"))
    assert [(name, label) for label, name in back] == [("-", 0), ("a", 1), ("b", 2), ("é", 3)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a", "line 1 is"),
        (b"<eps> 0\na x", "line 2 is"),
        (b"a b 1", "line 1 is"),
        (b"a -1", "line 1 is"),
        (b"a 2147483649", "line 1 is"),
        (b"a 1\na 2", "each symbol of .* must occur once"),
        (b"a 1\nb 1", "each id of .* must occur once"),
        (b"\xff 1", "UTF-8"),
        (b"\xff 0", "UTF-8"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path, content, message):
    (tmp_path / "table").write_bytes(content)
    with pytest.raises(ValueError, match=f"SymbolTable.load: .*{message}"):
        ag.SymbolTable.load(tmp_path / "table")


def test_white_space_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match='no white space, but "a b" has'):
        ag.SymbolTable(["a b"]).save(tmp_path / "table")


@pytest.mark.parametrize("graph", [chain(), pair("ab", "yx"), ag.linear_graph(2, 2)])
def test_graphs_keep_symbols_in_files_and_pickles(tmp_path, graph):
    if graph.isymbols is None:
        graph.osymbols = XY
    ag.save(tmp_path / "graph", graph)
    for other in (ag.load(tmp_path / "graph"), pickle.loads(pickle.dumps(graph))):
        assert tables(other) == tables(graph)
        assert ag.equal(other, graph)


# Graphs


def test_labels_may_be_symbols():
    graph = ag.Graph(isymbols=AB, osymbols=XY)
    graph.add_node(start=True)
    graph.add_node(accept=True)
    graph.add_arc(0, 1, "b", "y")
    graph.add_arc(0, 1, "<eps>", 0)
    assert (graph.labels_to_list(), graph.labels_to_list(ilabel=False)) == ([1, -1], [1, 0])
    assert repr(graph).endswith("0 -> 1  b:y/0\n  0 -> 1  ε:x/0")
    other = ag.Graph.from_arrays(
        [0, 0], [1, 1], ["b", "<eps>"], ("y", "x"), start=[0], accept=[1], isymbols=AB, osymbols=XY
    )
    assert ag.equal(graph, other)
    assert tables(other) == (AB, XY)
    with pytest.raises(ValueError, match="add_arc: the symbols must be in the table of 2"):
        graph.add_arc(0, 1, "a", "a")
    assert graph.num_arcs() == 2
    for refused in (lambda: ag.Graph().add_arc(0, 1, "a"), lambda: ag.chain_graph(["a"])):
        with pytest.raises((ValueError, TypeError), match=r"but.* .?'a'"):
            refused()


def test_an_acceptor_shows_both_symbols_if_they_differ():
    assert "a:x/0" in repr(pair("a", "x"))
    assert "a/0" in repr(chain("a"))


def test_setting_symbols_keeps_weights_arrays_and_gradients():
    graph = chain()
    view = graph.ilabels()
    result = ag.scale(graph, 2.0)
    result.isymbols = result.osymbols = None
    assert tables(graph) == (AB, AB)
    assert tables(result) == (None, None)
    result.isymbols = XY
    ag.backward(ag.forward_score(result))
    assert graph.grad().weights_to_list() == [2.0, 2.0]
    assert graph.grad().isymbols == AB
    assert view.tolist() == [0, 1]
    with pytest.raises(TypeError, match="isymbols must be a SymbolTable or None, but it is 3"):
        graph.isymbols = 3
    emissions = ag.linear_graph(2, 2)
    emissions.isymbols = AB
    assert "linear 2 x 2" in repr(emissions)
    assert emissions.add_node() == 3
    assert emissions.isymbols == AB


ONE = {
    "arc_posteriors": ag.arc_posteriors,
    "arc_sort": ag.arc_sort,
    "clone": ag.clone,
    "closure": ag.closure,
    "connect": ag.connect,
    "determinize": ag.determinize,
    "negate": ag.negate,
    "optional": ag.optional,
    "plus": ag.plus,
    "power": lambda graph: ag.power(graph, 2),
    "prune": lambda graph: ag.prune(graph, 1.0),
    "remove": ag.remove,
    "reverse": ag.reverse,
    "sample": ag.sample,
    "top_sort": ag.top_sort,
    "viterbi_path": ag.viterbi_path,
    "best_paths": lambda graph: ag.best_paths(graph, 1)[0],
    "detach": lambda graph: graph.detach(),
}


@pytest.mark.parametrize("op", ONE.values(), ids=ONE)
def test_ops_of_one_graph_carry_symbols(op):
    assert tables(op(pair("ab", "yx"))) == (AB, XY)
    assert tables(op(ag.union([pair("ab", "yx"), pair("b", "x")]))) == (AB, XY)


def test_ops_that_change_sides_change_symbols():
    graph = pair("ab", "yx")
    assert tables(ag.invert(graph)) == (XY, AB)
    assert tables(ag.project_input(graph)) == (AB, AB)
    assert tables(ag.project_output(graph)) == (XY, XY)
    assert tables(ag.forward_score(graph)) == (None, None)


def test_symbols_are_joined():
    more = ag.SymbolTable(["a", "b", "c"])
    for op in (ag.union, ag.concat):
        assert tables(op([chain(), ag.chain_graph([0])])) == (AB, AB)
        assert tables(op([chain(), chain("c", more)])) == (more, more)
        with pytest.raises(ValueError, match="must agree, but label 0 is"):
            op([chain(), chain("x", XY)])


def test_compositions_take_the_outer_symbols():
    first, second = pair("ab", "yx"), ag.invert(pair("ab", "yx"))
    assert tables(ag.compose(first, second)) == (AB, AB)
    assert tables(ag.compose(ag.chain_graph([0, 1]), first)) == (AB, XY)
    with pytest.raises(ValueError, match=r"compose: the symbols .* must agree"):
        ag.compose(first, first)
    with pytest.raises(ValueError, match=r"intersect: the symbols .* must agree"):
        ag.intersect(chain(), chain("x", XY))
    assert tables(ag.intersect(chain(), ag.chain_graph([0]))) == (AB, AB)


def test_products_with_emissions_carry_symbols():
    emissions = ag.linear_graph(2, 2)
    product = ag.compose(pair("ab", "yx"), emissions)
    assert tables(product) == (AB, XY)
    assert "not built" in repr(product)
    assert tables(ag.viterbi_path(product)) == (AB, XY)
    assert "a:y/0" in repr(ag.viterbi_path(product))
    assert tables(ag.compose(product, ag.invert(pair("ab", "yx")))) == (AB, AB)
    assert tables(ag.beam_search(pair("ab", "yx"), emissions)) == (AB, XY)
    product.num_arcs()
    assert tables(product) == (AB, XY)
    emissions.isymbols = XY
    with pytest.raises(ValueError, match=r"intersect: the symbols .* must agree"):
        ag.intersect(chain(), emissions)


def test_drawings_show_symbols(tmp_path):
    ag.write_dot(pair("ab", "yx"), tmp_path / "graph.dot")
    text = (tmp_path / "graph.dot").read_text()
    assert 'label="a:y"' in text
    assert 'label="b:x"' in text
    ag.write_dot(pair("ab", "yx"), tmp_path / "graph.dot", ["p", "q"], ["r", "s"])
    assert 'label="p:s"' in (tmp_path / "graph.dot").read_text()
    ag.write_dot(chain(), tmp_path / "graph.dot", AB.merge(ag.SymbolTable({"c": 2})))
    assert 'label="a"' in (tmp_path / "graph.dot").read_text()
