"""Files and objects of OpenFst, Kaldi, k2 and gtn."""

import gzip
import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from spec import language
from strategies import graphs
from tools import build, content, write

import arcgrad as ag

FORMATS = ["arcgrad", "openfst", "att", "k2", "gtn", "gtn-text"]
FOREIGN = ["openfst", "att", "k2"]
ARCHIVES = ["sttable", "stlist", "kaldi", "kaldi-text"]


def possible(graph):
    """The language of a graph, without impossible strings."""
    return {pair: score for pair, score in language(graph).items() if score > -math.inf}


def has_one_start(graph):
    return len(graph.start()) == 1 and graph.start_weights().tolist() == [0.0]


# Round trips


@given(graph=graphs(node_weights=None), format=st.sampled_from(["openfst", "att"]))
def test_openfst_files_give_back_graphs(tmp_path_factory, graph, format):
    path = tmp_path_factory.mktemp("formats") / "graph"
    if format == "att" and not len(graph.start()):
        with pytest.raises(ValueError, match="save: the graph must have a start node"):
            ag.save(path, graph, format)
        return
    ag.save(path, graph, format)
    loaded = ag.load(path, format, dtype="float64")
    if has_one_start(graph) or not len(graph.start()):
        assert content(loaded) == content(graph)
    else:
        assert loaded.num_nodes() == graph.num_nodes() + 1
        assert loaded.start().tolist() == [graph.num_nodes()]
        assert possible(loaded) == pytest.approx(possible(graph))


@given(graph=graphs(node_weights=None))
def test_k2_files_give_back_graphs(tmp_path_factory, graph):
    path = tmp_path_factory.mktemp("formats") / "graph"
    if not len(graph.start()):
        with pytest.raises(ValueError, match="save: the graph must have a start node"):
            ag.save(path, graph, "k2")
        return
    ag.save(path, graph, "k2")
    loaded = ag.load(path, "k2", dtype="float64")
    assert possible(loaded) == pytest.approx(possible(graph))
    if has_one_start(graph):
        assert loaded.num_nodes() == graph.num_nodes()
        assert loaded.num_arcs() == graph.num_arcs()
        assert loaded.start().tolist() == [0]
    arcs, aux_labels = ag.to_k2(graph)
    assert content(ag.from_k2(arcs, aux_labels)) == content(ag.load(path, "k2"))


@given(graph=graphs(cyclic=True, node_weights=False))
def test_gtn_files_give_back_graphs(tmp_path_factory, graph):
    path = tmp_path_factory.mktemp("formats") / "graph"
    for format in ("gtn", "gtn-text"):
        ag.save(path, graph, format)
        assert content(ag.load(path, format, dtype="float64")) == content(graph)


@pytest.mark.parametrize("format", FORMATS)
def test_formats_are_recognized_by_content(tmp_path, format):
    graph = build(3, {0}, {2}, [(0, 1, 1, 2, -0.5), (0, 1, 3, 3, 0.25), (1, 2, -1, 2, 1.5)])
    path = tmp_path / "graph"
    ag.save(path, graph, format)
    assert content(ag.load(path, dtype="float64")) == content(graph)
    for other in FORMATS:
        # Some text of gtn is text of OpenFst too, where the first node has no arcs.
        if other != format and (format, other) != ("gtn-text", "att"):
            with pytest.raises(
                ValueError, match=r"load: '.*graph' must be .*, but it is .* reads?"
            ):
                ag.load(path, other)


@pytest.mark.parametrize("format", FORMATS)
def test_writers_are_atomic(tmp_path, format):
    path = tmp_path / "graph"
    for _ in range(2):
        ag.save(path, ag.chain_graph([1]), format)
    assert [p.name for p in tmp_path.iterdir()] == ["graph"]


@pytest.mark.parametrize("format", [*FORMATS, *ARCHIVES])
def test_every_truncation_is_an_error_or_a_shorter_text(tmp_path, format):
    path = tmp_path / "file"
    graph = build(3, {0}, {2}, [(0, 1, 1, 2, -0.5), (1, 2, -1, 2, 1.5)], dtype="float32")
    graph.isymbols = graph.osymbols = ag.SymbolTable(["a", "b", "c"])
    if format in ARCHIVES:
        ag.save_archive(path, {"one": graph, "two": graph}, format)
    else:
        ag.save(path, graph, format)
    whole = path.read_bytes()
    read = ag.load_archive if format in ARCHIVES else ag.load
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        try:
            read(path)
        except ValueError as error:
            message = str(error)
        else:
            message = ""
        # Lines, and the entries of a table of Kaldi, have no count.
        may_be_read = format in ("att", "gtn-text", "k2", "kaldi", "kaldi-text")
        assert (message.startswith(f"{read.__name__}: ") and str(path) in message) or may_be_read


# Labels, weights and types


@pytest.mark.parametrize("format", FOREIGN)
def test_the_label_offset_applies_to_all_but_epsilon(tmp_path, format):
    path = tmp_path / "graph"
    graph = build(2, {0}, {1}, [(0, 1, 5, -1, 0.0), (0, 1, 3, 2, 0.0)], dtype="float32")
    ag.save(path, graph, format, label_offset=10)
    assert content(ag.load(path, label_offset=10)) == content(graph)
    assert sorted(ag.load(path, label_offset=0).ilabels().tolist()) == [13, 15]
    with pytest.raises(ValueError, match=r"load: .*must be 0 \(epsilon\) or 14 or more"):
        ag.load(path, label_offset=14)
    for offset in (-1, 2**31):
        with pytest.raises(ValueError, match="label_offset must"):
            ag.load(path, label_offset=offset)


@pytest.mark.parametrize("format", FOREIGN)
def test_label_zero_needs_an_offset(tmp_path, format):
    path = tmp_path / "graph"
    with pytest.raises(ValueError, match=r"save: labels must be 1 or more .* pass label_offset=1"):
        ag.save(path, ag.chain_graph([0]), format, label_offset=0)
    with pytest.raises(ValueError, match="save: labels must fit 32 bits"):
        ag.save(path, ag.chain_graph([2**31 - 1]), format)
    assert not path.exists()


@pytest.mark.parametrize("format", FOREIGN)
def test_weights_may_be_infinite(tmp_path, format):
    path = tmp_path / "graph"
    values = [math.inf, -math.inf, 0.0, 1 / 3, -1e-38]
    graph = build(2, {0}, {1}, [(0, 1, i, i, w) for i, w in enumerate(values)], dtype="float32")
    ag.save(path, graph, format)
    assert repr(ag.load(path).weights_to_list()) == repr(graph.weights_to_list())


@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=8),
    st.sampled_from(["float32", "float64"]),
)
def test_text_of_openfst_keeps_any_float(tmp_path_factory, values, dtype):
    path = tmp_path_factory.mktemp("floats") / "graph"
    with np.errstate(over="ignore"):
        values = np.array(values, dtype)
    graph = ag.Graph.from_arrays(
        *(np.zeros(len(values), int), np.ones(len(values), int), np.arange(len(values)), None),
        values, start=[0], accept=[1], dtype=dtype,
    )  # fmt: skip
    ag.save(path, graph, "att")
    loaded = ag.load(path, acceptor=False, dtype=dtype)
    assert loaded.dtype == dtype
    assert loaded.weights_to_list() == values.tolist()


@pytest.mark.parametrize("format", ["k2", "gtn"])
def test_formats_of_float32_refuse_to_round(tmp_path, format):
    graph = ag.chain_graph([1, 2], weights=[0.5, 0.1], dtype="float64")
    with pytest.raises(ValueError, match=r"save: weights must be float32 for .* weight 1 would"):
        ag.save(tmp_path / "graph", graph, format)
    ag.save(tmp_path / "graph", ag.chain_graph([1], weights=[0.5], dtype="float64"), format)


@pytest.mark.parametrize("format", ["gtn", "gtn-text"])
def test_gtn_has_no_node_weights(tmp_path, format):
    graph = build(2, {0}, {1}, [(0, 1, 1, 1, 0.0)])
    graph.set_accept_weight(1, 0.5)
    with pytest.raises(ValueError, match="save: the graph must have no node weights"):
        ag.save(tmp_path / "graph", graph, format)


def test_unknown_options_are_errors(tmp_path):
    path = tmp_path / "graph"
    with pytest.raises(ValueError, match=r"save: format must be arcgrad, openfst, .*, but it is"):
        ag.save(path, ag.chain_graph([1]), "fst")
    with pytest.raises(ValueError, match="save: arc_type must be standard, log or log64, but"):
        ag.save(path, ag.chain_graph([1]), "openfst", arc_type="minmax")
    ag.save(path, ag.chain_graph([1]))
    with pytest.raises(ValueError, match="load: format must be"):
        ag.load(path, "fst")


# Text of OpenFst, gtn and k2


def load_text(tmp_path, text, format=None, **options):
    return ag.load(write(tmp_path / "text", text), format, **options)


def test_the_start_is_on_the_first_line(tmp_path):
    graph = load_text(tmp_path, "2\t0\t5\t5\t0.5\n0 1 6 7\n1 1.5\n")
    assert content(graph) == (
        3, [(2, 0.0)], [(1, -1.5)], [(0, 1, 5, 6, 0.0), (2, 0, 4, 4, -0.5)]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "acceptor", "olabels", "weights"),
    [
        ("0 1 3\n0 1 4 0.5\n1\n", None, [2, 3], [0.0, -0.5]),
        ("0 1 3 2\n0 1 4\n1\n", None, [2, 3], [-2.0, 0.0]),
        ("0 1 3 2\n0 1 4 0.5\n1\n", None, [2, 3], [-2.0, -0.5]),
        ("0 1 3 2\n0 1 4 5\n1\n", None, [1, 4], [0.0, 0.0]),
        ("0 1 3 2\n0 1 4 5\n1\n", True, [2, 3], [-2.0, -5.0]),
        ("0 1 3 2\n0 1 4 5 6\n1\n", None, [1, 4], [0.0, -6.0]),
    ],
)
def test_columns_tell_acceptors_from_transducers(tmp_path, text, acceptor, olabels, weights):
    graph = load_text(tmp_path, text, acceptor=acceptor)
    assert (graph.olabels().tolist(), graph.weights_to_list()) == (olabels, weights)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("0 1 3\n0 1 4 5 6\n1\n", {}),
        ("0 1 3 4 5\n0 1 4\n1\n", {}),
        ("0 1 3 x\n0 1 4 5 6\n1\n", {}),
        ("0 1 3 0.5\n1\n", {"acceptor": False}),
        ("0 1 3 4 5\n1\n", {"acceptor": True}),
    ],
)
def test_mixed_columns_name_the_line(tmp_path, text, options):
    with pytest.raises(ValueError, match=r"load: .* on line [12] of '.*text' must"):
        load_text(tmp_path, text, **options)


@pytest.mark.parametrize("text", ["0 1 2 3 0.5 7\n1\n", "0 1 -3 3\n1\n", "0 1 2 3 x\n1\n"])
def test_invalid_lines_are_named(tmp_path, text):
    with pytest.raises(ValueError, match=r"load: .*line 1 of '.*text'|begins with"):
        load_text(tmp_path, text)


def test_a_node_accepts_once(tmp_path):
    with pytest.raises(ValueError, match=r"on line 3 .* node 1 was on an earlier line"):
        load_text(tmp_path, "0 1 2 3\n1\n1 0.5\n")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("0\n1\n0 1 5 5 0.5\n", "gtn-text"),
        ("0 1\n1\n0 1 5\n", "gtn-text"),
        ("\n\n0 1 5\n", "gtn-text"),
        ("# arcgrad: nodes=3\n0\n1\n", "gtn-text"),
        ("0\n", "att"),
        ("0 0.5\n", "att"),
        ("0 1 5\n1\n", "att"),
        ("0 1 5 5\n1 2 6 6\n2\n", "att"),
        ("0 1 1 -0.5\n1 2 -1 0.25\n2\n", "k2"),
        ("0 1 1 2 -0.5\n1 2 -1 -1 0.25\n2\n", "k2"),
    ],
)
def test_text_is_recognized(tmp_path, text, kind):
    assert content(load_text(tmp_path, text)) == content(load_text(tmp_path, text, kind))


def test_text_that_fits_two_formats_needs_a_choice(tmp_path):
    text = "0 1 2\n3\n0 3 5\n"
    with pytest.raises(ValueError, match="fits the formats of OpenFst and gtn; pass format='att'"):
        load_text(tmp_path, text)
    assert load_text(tmp_path, text, "gtn-text").start().tolist() == [0, 1, 2]
    assert load_text(tmp_path, text, "att").start().tolist() == [0]


@pytest.mark.parametrize(
    "text",
    [
        "0 1 5 0.5\n1 2 -1 0\n2\n3\n",
        "0 1 5 0.5\n1 2 -1 0 0\n2\n",
        "0 1 -1 0.5\n1 2 -1 0\n2\n",
        "0 2 5 0.5\n1 2 -1 0\n2\n",
        "0 3 -1 0.5\n2\n",
        "2 2 -1 0.5\n2\n",
        "0 1 -2 0.5\n1 2 -1 0\n2\n",
    ],
)
def test_arcs_to_the_final_state_of_k2_have_its_label(tmp_path, text):
    with pytest.raises(ValueError, match=r"load: .*'.*text'.* must .*, but"):
        load_text(tmp_path, text, "k2")


def test_several_final_arcs_of_k2_stay_arcs(tmp_path):
    graph = load_text(tmp_path, "0 1 2 3 0.5\n1 2 -1 0 1\n1 2 -1 7 2\n0 2 -1 -1 4\n2\n")
    assert content(graph) == (
        3,
        [(0, 0.0)],
        [(0, 4.0), (2, 0.0)],
        [(0, 1, 1, 2, 0.5), (1, 2, -1, -1, 1.0), (1, 2, -1, 6, 2.0)],
    )


def test_symbols_may_be_the_labels_of_text(tmp_path):
    table = ag.SymbolTable(["a", "b"])
    graph = load_text(tmp_path, "0 1 a b 0.5\n1 1 <eps> a\n1\n", isymbols=table)
    assert (graph.ilabels().tolist(), graph.olabels().tolist()) == ([0, -1], [1, 0])
    assert graph.isymbols == graph.osymbols == table
    ag.save(tmp_path / "again", graph, "att", symbols=True)
    assert (tmp_path / "again").read_text() == "0\t1\ta\tb\t0.5\n1\t1\t<eps>\ta\n1\n"
    with pytest.raises(ValueError, match=r"line 1 .* must be a symbol of the table, but it is"):
        load_text(tmp_path, "0 1 a c 0.5\n1\n", isymbols=table)
    with pytest.raises(ValueError, match="save: the graph must have symbols"):
        ag.save(tmp_path / "again", ag.chain_graph([1]), "att", symbols=True)
    graph.isymbols = ag.SymbolTable(["a b"])
    with pytest.raises(ValueError, match="must have no white space"):
        ag.save(tmp_path / "again", graph, "att", symbols=True)


# Binary files


@pytest.mark.parametrize("kind", ["bytes", "list"])
def test_binary_files_keep_symbols(tmp_path, kind):
    graph = ag.chain_graph([97, 98])
    bytes_table = ag.SymbolTable.of_bytes()
    graph.isymbols = bytes_table if kind == "bytes" else ag.SymbolTable({"x y": 97, "é": 98})
    ag.save(tmp_path / "graph", graph, "openfst")
    loaded = ag.load(tmp_path / "graph")
    assert [loaded.isymbols[label] for label in (97, 98)] == [
        graph.isymbols[label] for label in (97, 98)
    ]
    assert loaded.osymbols is None


def aligned_const():
    """The FST of two arcs as OpenFst writes it with --fst_type=const --fst_align."""
    header = struct.pack(
        "<ii5si8siiQqqq", 2125659606, 5, b"const", 8, b"standard", 2, 4, 1, 0, 2, 1
    )
    content = header + b"\0" * (-len(header) % 16)
    content += struct.pack("<fIIII", math.inf, 0, 1, 0, 0) + struct.pack("<fIIII", 0.5, 1, 0, 0, 0)
    content += b"\0" * (-len(content) % 16)
    return content + struct.pack("<iifi", 5, 6, 0.25, 1)


def test_aligned_files_are_read(tmp_path):
    graph = ag.load(write(tmp_path / "graph", aligned_const()))
    assert content(graph) == (2, [(0, 0.0)], [(1, -0.5)], [(0, 1, 4, 5, -0.25)])


def lattice_file(arc_type, states):
    header = struct.pack(
        f"<ii6si{len(arc_type)}siiQqqq",
        *(2125659606, 6, b"vector", len(arc_type), arc_type, 2, 0, 3, 0, len(states), 0),
    )
    return header + b"".join(
        end + struct.pack("<q", len(arcs)) + b"".join(arcs) for end, arcs in states
    )


def test_lattices_of_kaldi_add_two_costs(tmp_path):
    arc = struct.pack("<iiffi", 7, 9, 1.5, 2.0, 1)
    states = [(struct.pack("<ff", math.inf, math.inf), [arc]), (struct.pack("<ff", 0.5, 0.25), [])]
    path = write(tmp_path / "table", b"utt-1 " + lattice_file(b"lattice4", states))
    (graph,) = ag.load_archive(path).values()
    assert content(graph) == (2, [(0, 0.0)], [(1, -0.75)], [(0, 1, 6, 8, -3.5)])
    scaled = ag.load_archive(path, lattice_scales=(1.0, 0.1))["utt-1"]
    assert scaled.weights_to_list() == pytest.approx([-1.7])


def test_compact_lattices_of_kaldi_become_rows_of_arcs(tmp_path):
    zero = struct.pack("<ffi", math.inf, math.inf, 0)
    first = struct.pack("<iiffiiii", 5, 5, 1.5, 2.0, 2, 3, 4, 1)
    silent = struct.pack("<iiffii", 6, 6, 0.0, 1.0, 0, 1)
    end = struct.pack("<ffii", 0.5, 0.25, 1, 8)
    content_ = lattice_file(b"compactlattice44", [(zero, [first, silent]), (end, [])])
    graph = ag.load(write(tmp_path / "lattice", content_))
    assert content(graph) == (
        4,
        [(0, 0.0)],
        [(3, 0.0)],
        [(0, 1, -1, 5, -1.0), (0, 2, 2, 4, -3.5), (1, 3, 7, -1, -0.75), (2, 1, 3, -1, 0.0)],
    )


def test_text_of_lattices_is_read(tmp_path):
    path = write(
        tmp_path / "table",
        "one \n0 1 7 9 1.5,2\n1 0.5,0.25\n\ntwo \n0 1 5 1.5,2,3_4\n0 1 6 0,1,\n1 0.5,0.25,8\n\n",
    )
    one, two = ag.load_archive(path).values()
    assert content(one) == (2, [(0, 0.0)], [(1, -0.75)], [(0, 1, 6, 8, -3.5)])
    assert content(two) == (
        4,
        [(0, 0.0)],
        [(3, 0.0)],
        [(0, 1, -1, 5, -1.0), (0, 2, 2, 4, -3.5), (1, 3, 7, -1, -0.75), (2, 1, 3, -1, 0.0)],
    )
    assert ag.load_archive(path, lattice_scales=(1, 0))["two"].weights_to_list()[0] == -1.5
    for text in ("0 1 5 1.5,2,3_x\n1\n", "0 1 5 1,2,3\n1 1,2,3,4\n", "0 1 5 5 1,2,3_4\n1\n"):
        with pytest.raises(ValueError, match=r"load: .* on line [12] of '.*text' must"):
            load_text(tmp_path, text)


def test_other_types_of_openfst_are_named(tmp_path):
    path = tmp_path / "graph"
    ag.save(path, ag.chain_graph([1]), "openfst")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"standard", b"stendard"))
    with pytest.raises(ValueError, match=r'load: .* standard, log or log64 .* has "stendard" arcs'):
        ag.load(path)
    path.write_bytes(whole.replace(b"vector", b"victor"))
    with pytest.raises(ValueError, match=r'type vector or const, but it has "victor"; convert it'):
        ag.load(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ValueError, match="must end behind its FST, but 1 bytes follow"):
        ag.load(path)


def test_gzip_files_are_expanded(tmp_path):
    path = tmp_path / "graph"
    ag.save(path, ag.chain_graph([1, 2]), "openfst")
    packed = write(tmp_path / "graph.gz", gzip.compress(path.read_bytes()))
    assert ag.equal(ag.load(packed), ag.load(path))
    write(packed, packed.read_bytes()[:-9])
    with pytest.raises(ValueError, match=r"load: '.*graph.gz' must be a complete gzip file"):
        ag.load(packed)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("\\data\\\nngram 1=1\n", "an ARPA model, which ngram.load_arpa reads"),
        ("digraph {\n}\n", "a drawing in the DOT language"),
        ("<eps> 0\na 1\n", "a symbol table in text"),
        ("key \n0 1 5 5\n1\n\n", "an archive of Kaldi, which load_archive reads"),
        ("root:x:0\nbin:x:1\n", "begins with"),
        (struct.pack("<ii", 2125656924, 1), "a FAR archive, which load_archive reads"),
        (struct.pack("<ii", 2125658996, 1), "a symbol table of OpenFst"),
        (b"PK\3\4", "a zip archive"),
        (b"\0\1", "begins with"),
    ],
)
def test_other_files_are_named(tmp_path, text, kind):
    path = write(tmp_path / "file", text)
    with pytest.raises(ValueError, match=kind.replace("\\", "\\\\")):
        ag.load(path)


# Objects


class Fsa:
    """What from_k2 needs of a k2.Fsa."""

    class Arcs:
        def __init__(self, rows):
            self.rows = rows

        def values(self):
            return self.rows

    def __init__(self, rows, aux_labels=None, shape=(3, None)):
        self.arcs, self.shape = self.Arcs(rows), shape
        if aux_labels is not None:
            self.aux_labels = aux_labels


def test_objects_of_k2_are_read():
    torch = pytest.importorskip("torch")
    graph = build(2, {0}, {1}, [(0, 1, 1, 2, -0.5)], dtype="float32")
    graph.set_accept_weight(1, 0.25)
    rows, aux_labels = ag.to_k2(graph)
    assert rows[:, :3].tolist() == [[0, 1, 2], [1, 2, -1]]
    assert rows[:, 3].view(np.float32).tolist() == [-0.5, 0.25]
    assert aux_labels.tolist() == [3, -1]
    fsa = Fsa(torch.from_numpy(rows), torch.from_numpy(aux_labels))
    assert content(ag.from_k2(fsa)) == content(graph)
    assert ag.from_k2(Fsa(rows[:0])).num_nodes() == 0
    with pytest.raises(ValueError, match="from_k2: fsa must be one FSA, but it is a vector of 2"):
        ag.from_k2(Fsa(rows, shape=(2, None, None)))
    with pytest.raises(ValueError, match="from_k2: aux_labels must be one label per arc"):
        ag.from_k2(rows, aux_labels[:1])
    with pytest.raises(ValueError, match=r"from_k2: arcs must be rows .* shape is \(8,\)"):
        ag.from_k2(rows.ravel())
    with pytest.raises((TypeError, ValueError), match="from_k2: arcs must"):
        ag.from_k2("fsa")


def test_other_readers_name_graphs(tmp_path):
    path = tmp_path / "graph"
    ag.save(path, ag.chain_graph([1]), "openfst")
    with pytest.raises(ValueError, match=r"must .*, but it is a binary FST of OpenFst, which"):
        ag.ngram.load_arpa(path)


def test_text_without_arcs_is_not_guessed(tmp_path):
    graph = ag.Graph()
    graph.add_node(start=True, accept=True)
    graph.add_node(accept=True)
    path = tmp_path / "graph.txt"
    ag.save(path, graph, "att")
    with pytest.raises(ValueError, match=r"OpenFst and gtn; pass format='att' or"):
        ag.load(path)
    assert ag.load(path, "att").accept().tolist() == [0, 1]
    assert ag.load(path, "gtn-text").accept().tolist() == [1]
