// Bindings of files, with their documentation.

#include "arcgrad/io/io.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>

#include "arcgrad/io/file.h"
#include "arcgrad/io/formats.h"
#include "symbol_table.h"

namespace arcgrad::bindings {
namespace {

using Path = std::filesystem::path;

/// Reads symbols from a table, a dict {label: name}, or a list of names.
std::optional<Symbols> to_symbols(const char* op, const char* what, nb::handle symbols) {
  if (symbols.is_none()) return std::nullopt;
  Symbols out;
  if (nb::isinstance<SymbolHandle>(symbols)) {
    const SymbolTable& table = *nb::cast<const SymbolHandle&>(symbols).table;
    require(
        table.kind() == SymbolTable::Kind::list, op, what,
        " must be a list of symbols, but it is a table of all characters; attach it to the graph");
    for (size_t k = 0; k < table.symbols().size(); ++k) out[table.labels()[k]] = table.symbols()[k];
    return out;
  }
  const auto name = [&](nb::handle symbol) {
    std::string written;
    require(nb::try_cast(nb::str(symbol), written) && written.find('\0') == std::string::npos, op,
            "the names in ", what,
            " must be text that UTF-8 can hold, without null characters, but one is ",
            nb::repr(symbol).c_str());
    return written;
  };
  if (nb::isinstance<nb::dict>(symbols)) {
    for (auto [key, symbol] : nb::borrow<nb::dict>(symbols)) {
      int64_t label = 0;
      if (!nb::try_cast(key, label))
        throw nb::type_error(text(op, ": the keys of ", what, " must be whole numbers of 32 bits, ",
                                  "but one is ", nb::repr(key).c_str())
                                 .c_str());
      out[to_int32(op, text("a key of ", what).c_str(), label)] = name(symbol);
    }
  } else if (nb::isinstance<nb::sequence>(symbols) && !nb::isinstance<nb::str>(symbols) &&
             nb::cast<int>(nb::getattr(symbols, "ndim", nb::int_(1))) > 0) {
    int32_t label = 0;
    for (nb::handle symbol : symbols) out[label++] = name(symbol);
  } else {
    throw nb::type_error(text(op, ": ", what, " must be a dict from labels to names or a list of ",
                              "names, but it is ", nb::repr(symbols).c_str())
                             .c_str());
  }
  return out;
}

const Symbols* pointer(const std::optional<Symbols>& symbols) {
  return symbols ? &*symbols : nullptr;
}

LoadOptions to_load_options(const char* op, int64_t label_offset, std::optional<bool> acceptor,
                            nb::handle dtype, std::pair<double, double> scales) {
  LoadOptions options;
  options.label_offset = to_int32(op, "label_offset", label_offset);
  options.is_acceptor = acceptor;
  if (!dtype.is_none()) options.dtype = to_dtype(op, dtype);
  std::tie(options.graph_scale, options.acoustic_scale) = scales;
  return options;
}

SaveOptions to_save_options(const char* op, const std::string& format, int64_t label_offset,
                            const std::string& arc_type) {
  return {to_format(op, format), to_int32(op, "label_offset", label_offset), arc_type};
}

/// Reads a file, expands it if gzip compressed it, and parses it.
template <class Parse>
auto read_and_parse(const char* op, const Path& path, const LoadOptions& options,
                    const Parse& parse) {
  const std::string file_name = path.string(), name = text("'", file_name, "'");
  const Buffer<char> content = run_op(op, [&] { return read_file(op, file_name); });
  std::string_view bytes(content.data(), content.size());
  nb::bytes expanded;
  if (recognize(bytes.substr(0, 2)) == FileKind::gzip) {
    expanded = nb::bytes(nb::module_::import_("arcgrad._files")
                             .attr("expand")(op, file_name, nb::bytes(bytes.data(), bytes.size())));
    bytes = {expanded.c_str(), expanded.size()};
  }
  return run_op(op, [&] { return parse(bytes, op, name, options); });
}

/// A NumPy array that owns the numbers.
nb::object to_array(Column values) {
  auto* owned = new Column(std::move(values));
  const nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<Column*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, int32_t>(owned->data(), {owned->size()}, owner));
}

}  // namespace

void init_io(nb::module_& m) {
  m.def(
      "save",
      [](const Path& file_name, const Graph& graph, const std::string& format, int64_t label_offset,
         const std::string& arc_type, Flag symbols) {
        const Graph input = graph.snapshot();
        SaveOptions options = to_save_options("save", format, label_offset, arc_type);
        options.with_symbols = symbols;
        run_op("save", [&] { save(file_name.string(), input, options); });
      },
      "file_name"_a, "graph"_a, "format"_a = "arcgrad", nb::kw_only(), "label_offset"_a = 1,
      "arc_type"_a = "", "symbols"_a = false, R"(
Write a graph to a file, in the format of arcgrad or of another program.

The file is replaced atomically: a failure leaves an old file unchanged. The format of arcgrad
records its version, byte order and dtype, and ends with a checksum.

Args:
    file_name: The file.
    graph: The graph.
    format: ``"arcgrad"``; ``"openfst"`` (binary) or ``"att"`` (text) for OpenFst, pynini and Kaldi;
        ``"k2"`` (text); ``"gtn"`` (binary) or ``"gtn-text"``.
    label_offset: OpenFst and k2, where 0 is epsilon: label k is written as k + label_offset. With
        an offset of 0 the label 0 is an error.
    arc_type: OpenFst: ``"standard"``, ``"log"`` or ``"log64"``; by default ``"standard"`` for
        float32 and ``"log64"`` for float64.
    symbols: Text of OpenFst: whether to write the symbols of the graph instead of numbers. Binary
        files of OpenFst and arcgrad always have its symbols.

Raises:
    OSError: If the file cannot be written.
    ValueError: If the format cannot hold the graph.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graph.fst")
...     ag.save(path, ag.chain_graph([1, 2]), "openfst")
...     ag.equal(ag.load(path), ag.chain_graph([1, 2]))
True
)");
  m.def(
      "load",
      [](const Path& file_name, const std::optional<std::string>& format, int64_t label_offset,
         std::optional<bool> acceptor, nb::object dtype, std::optional<SymbolHandle> isymbols,
         std::optional<SymbolHandle> osymbols, std::pair<double, double> lattice_scales) {
        LoadOptions options =
            to_load_options("load", label_offset, acceptor, dtype, lattice_scales);
        options.symbols = to_tables(isymbols, osymbols);
        if (format) options.format = to_format("load", *format);
        return read_and_parse("load", file_name, options, parse_graph);
      },
      "file_name"_a, "format"_a = nb::none(), nb::kw_only(), "label_offset"_a = 1,
      "acceptor"_a = nb::none(), "dtype"_a = nb::none(), "isymbols"_a = nb::none(),
      "osymbols"_a = nb::none(), "lattice_scales"_a = std::pair<double, double>(1.0, 1.0),
      nb::sig("def load(file_name: str | os.PathLike[str], format: str | None = None, *, "
              "label_offset: int = 1, acceptor: bool | None = None, dtype: object = None, "
              "isymbols: SymbolTable | None = None, osymbols: SymbolTable | None = None, "
              "lattice_scales: tuple[float, float] = (1.0, 1.0)) -> Graph"),
      R"(
Read a graph from a file of arcgrad, OpenFst, Kaldi, k2 or gtn.

The format is recognized by the content. Costs become log-domain scores, epsilon becomes -1, and
final weights become weights of accept nodes. A file that gzip compressed is expanded.

Args:
    file_name: The file.
    format: The format that the file must have, as in :func:`save`; by default any.
    label_offset: OpenFst and k2, where 0 is epsilon: label k becomes k - label_offset.
    acceptor: Text of OpenFst: whether a line is ``src dst label [cost]``. By default this follows
        from the number of columns; four whole numbers are an arc of a transducer without a cost.
    dtype: The dtype of the graph; by default that of the file, and float32 for text.
    isymbols: Text of OpenFst whose labels are symbols: the symbols of input labels.
    osymbols: The symbols of output labels; by default the same.
    lattice_scales: Lattices of Kaldi: the factors of the graph cost and the acoustic cost, which
        are added.

Raises:
    OSError: If the file cannot be read.
    ValueError: If the file has no format of these or another one than ``format``, or if it is
        truncated or damaged; the message says what the file is.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graph.txt")
...     with open(path, "w") as file:
...         _ = file.write("0 1 7 8 0.5\n1\n")
...     ag.load(path).weights_to_list()
[-0.5]
)");
  m.def(
      "save_archive",
      [](const Path& file_name, const nb::typed<nb::dict, nb::str, Graph>& graphs,
         const std::string& format, int64_t label_offset, const std::string& arc_type) {
        constexpr const char* kOp = "save_archive";
        NamedGraphs inputs;
        for (auto [key, value] : graphs) {
          std::string name;
          Graph graph(nullptr);
          if (!nb::try_cast(key, name) || !nb::try_cast(value, graph))
            throw nb::type_error(text(kOp,
                                      ": graphs must be a dict from names to graphs, but it "
                                      "has the entry ",
                                      show(key), ": ", show(value))
                                     .c_str());
          inputs.emplace_back(name, graph.snapshot());
        }
        const SaveOptions options = to_save_options(kOp, "openfst", label_offset, arc_type);
        const ArchiveFormat archive = to_archive_format(kOp, format);
        run_op(kOp, [&] { save_archive(file_name.string(), inputs, archive, options); });
      },
      "file_name"_a, "graphs"_a, "format"_a = "sttable", nb::kw_only(), "label_offset"_a = 1,
      "arc_type"_a = "", R"(
Write named graphs to an archive of OpenFst or Kaldi, atomically.

Args:
    file_name: The file.
    graphs: A dict from names to graphs.
    format: ``"sttable"`` (a FAR archive with an index, sorted by name), ``"stlist"`` (a FAR archive
        in the order of the dict), ``"kaldi"`` or ``"kaldi-text"`` (a table of Kaldi).
    label_offset: Label k is written as k + label_offset; 0 is epsilon there.
    arc_type: As in :func:`save`.

Raises:
    OSError: If the file cannot be written.
    ValueError: If a name or a graph does not fit the format.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graphs.far")
...     ag.save_archive(path, {"one": ag.chain_graph([1]), "two": ag.chain_graph([1, 2])})
...     list(ag.load_archive(path))
['one', 'two']
)");
  m.def(
      "load_archive",
      [](const Path& file_name, int64_t label_offset, nb::object dtype,
         std::pair<double, double> lattice_scales) {
        const LoadOptions options =
            to_load_options("load_archive", label_offset, std::nullopt, dtype, lattice_scales);
        NamedGraphs graphs = read_and_parse("load_archive", file_name, options, parse_archive);
        nb::dict out;
        for (auto& [name, graph] : graphs) {
          const nb::object key = nb::steal(
              PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), nullptr));
          if (!key.is_valid()) {
            PyErr_Clear();
            fail("load_archive", "'", file_name.string(), "' must have names in UTF-8, but one is ",
                 quote(name));
          }
          require(!out.contains(key), "load_archive", "'", file_name.string(),
                  "' must have different names, but ", quote(name), " is repeated");
          out[key] = std::move(graph);
        }
        return out;
      },
      "file_name"_a, nb::kw_only(), "label_offset"_a = 1, "dtype"_a = nb::none(),
      "lattice_scales"_a = std::pair<double, double>(1.0, 1.0),
      nb::sig("def load_archive(file_name: str | os.PathLike[str], *, label_offset: int = 1, "
              "dtype: object = None, lattice_scales: tuple[float, float] = (1.0, 1.0)) "
              "-> dict[str, Graph]"),
      R"(
Read all graphs of a FAR archive of OpenFst, or of a table of Kaldi (FSTs or lattices).

Args:
    file_name: The file; its format is recognized by the content.
    label_offset: Label k becomes k - label_offset; 0 is epsilon.
    dtype: The dtype of the graphs; by default that of the file, and float32 for text.
    lattice_scales: Lattices of Kaldi: the factors of the graph cost and the acoustic cost.

Returns:
    A dict from names to graphs, in the order of the file.

Raises:
    OSError: If the file cannot be read.
    ValueError: If the file is no archive, or is truncated or damaged.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "lattices.txt")
...     with open(path, "w") as file:
...         _ = file.write("utterance-1 \n0 1 7 5 1.5,2.5\n1\n\n")
...     ag.load_archive(path)["utterance-1"].weights_to_list()
[-4.0]
)");
  m.def(
      "from_bytes",
      [](const nb::bytes& content, const std::string& op, const std::optional<std::string>& format,
         int64_t label_offset) {
        LoadOptions options =
            to_load_options(op.c_str(), label_offset, std::nullopt, nb::none(), {1.0, 1.0});
        if (format) options.format = to_format(op.c_str(), *format);
        const std::string_view bytes(content.c_str(), content.size());
        return run_op(op.c_str(), [&] { return from_bytes(bytes, op.c_str(), options); });
      },
      "content"_a, "op"_a, "format"_a = nb::none(), "label_offset"_a = 1,
      "The graph in the content of a file. Errors start with ``op``.");
  m.def(
      "to_bytes",
      [](const Graph& graph, const std::string& op, const std::string& format, int64_t label_offset,
         const std::string& arc_type, Flag symbols) {
        const Graph input = graph.snapshot();
        SaveOptions options = to_save_options(op.c_str(), format, label_offset, arc_type);
        options.with_symbols = symbols;
        const std::string bytes =
            run_op(op.c_str(), [&] { return to_bytes(input, options, op.c_str()); });
        return nb::bytes(bytes.data(), bytes.size());
      },
      "graph"_a, "op"_a, "format"_a, "label_offset"_a = 1, "arc_type"_a = "", "symbols"_a = false,
      "The content of a file. Errors start with ``op``.");
  m.def(
      "from_k2_arcs",
      [](nb::object arcs, nb::object aux_labels, int64_t label_offset) {
        const Column rows = to_ints("from_k2", "arcs", arcs);
        const Column outputs =
            aux_labels.is_none() ? Column() : to_ints("from_k2", "aux_labels", aux_labels);
        const LoadOptions options =
            to_load_options("from_k2", label_offset, std::nullopt, nb::none(), {1.0, 1.0});
        return run_op("from_k2", [&] { return from_k2_arcs(rows, outputs, options); });
      },
      "arcs"_a, "aux_labels"_a.none(), "label_offset"_a,
      "The graph with these arcs of k2, four numbers each in a flat array.");
  m.def(
      "to_k2_arcs",
      [](const Graph& graph, int64_t label_offset) {
        const Graph input = graph.snapshot();
        const SaveOptions options = to_save_options("to_k2", "k2", label_offset, "");
        K2Rows out = run_op("to_k2", [&] { return to_k2_rows(input, options); });
        return std::make_tuple(to_array(std::move(out.rows)), to_array(std::move(out.aux_labels)));
      },
      "graph"_a, "label_offset"_a,
      "The arcs of a graph for k2, four numbers each in a flat array, and its output labels.");
  m.def(
      "describe_file",
      [](const nb::bytes& content) {
        return std::string(describe(recognize({content.c_str(), content.size()})));
      },
      "content"_a, "What a file is, judged by its content, in words.");
  m.def(
      "savetxt",
      [](const Path& file_name, const Graph& graph) {
        const Graph input = graph.snapshot();
        run_op("savetxt", [&] { savetxt(file_name.string(), input); });
      },
      "file_name"_a, "graph"_a, R"(
Write a graph as text: start nodes, accept nodes, then ``src dst ilabel olabel weight`` per arc.

Weights keep their exact value.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graph.txt")
...     ag.savetxt(path, ag.chain_graph([1, 2]))
...     ag.equal(ag.loadtxt(path), ag.chain_graph([1, 2]))
True
)");
  m.def(
      "loadtxt",
      [](const Path& file_name) {
        return run_op("loadtxt", [&] { return loadtxt(file_name.string()); });
      },
      "file_name"_a, R"(
Read a graph in the text format of :func:`savetxt` and gtn.

The output label is optional if it equals the input label, and so is a weight of 0. Blank lines after
the first two, tabs, lines that begin with ``#``, and a UTF-8 byte order mark are allowed.

Raises:
    OSError: If the file cannot be read.
    ValueError: If a line is invalid; the message names it.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graph.txt")
...     with open(path, "w") as file:
...         _ = file.write("0\n1\n0 1 7 8 0.5\n")
...     ag.loadtxt(path).num_arcs()
1
)");
  m.def(
      "product_bound",
      [](const Graph& graph) -> std::optional<std::pair<int64_t, int64_t>> {
        const auto* product = graph.product();
        if (!product || product->is_built()) return std::nullopt;
        // Each node and arc occurs at most once per frame boundary.
        const int64_t copies = product->emissions().num_nodes();
        const Graph& other = product->graph();
        return std::pair(copies * other.num_nodes(), copies * other.num_arcs());
      },
      "graph"_a,
      "Upper bounds on the nodes and arcs of a deferred product; None for any other graph.");
  m.def(
      "to_dot",
      [](const Graph& graph, nb::object isymbols, nb::object osymbols,
         const std::string& graph_style, std::vector<std::string> arc_styles) {
        const auto input = to_symbols("write_dot", "isymbols", isymbols);
        const auto output = to_symbols("write_dot", "osymbols", osymbols);
        const DotStyle style{graph_style, std::move(arc_styles)};
        return to_dot(graph, pointer(input), pointer(output), style);
      },
      "graph"_a, "isymbols"_a = nb::none(), "osymbols"_a = nb::none(), "graph_style"_a = "",
      "arc_styles"_a = std::vector<std::string>(),
      "The graph in the DOT language of Graphviz, with attributes of the graph and of each arc.");
  m.def(
      "write_dot",
      [](const Graph& graph, const Path& file_name, nb::object isymbols, nb::object osymbols) {
        const auto input = to_symbols("write_dot", "isymbols", isymbols);
        const auto output = to_symbols("write_dot", "osymbols", osymbols);
        write_dot(graph, file_name.string(), pointer(input), pointer(output));
      },
      "graph"_a, "file_name"_a, "isymbols"_a = nb::none(), "osymbols"_a = nb::none(), R"(
Write a graph in the DOT language of Graphviz. To render a picture, use :func:`draw`.

Args:
    graph: The graph.
    file_name: The file to write.
    isymbols: Names of the input labels: a :class:`SymbolTable`, a dict from labels to names, or a
        list of names; by default the symbols of the graph.
    osymbols: Names of the output labels.

Raises:
    OSError: If the file cannot be written.
    TypeError: If a key of a dict is not a label.
    ValueError: If a label has no name, or a name is not valid UTF-8.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graph.dot")
...     ag.write_dot(ag.chain_graph([0, 1]), path, ["a", "b"])
...     os.path.exists(path)
True
)");
}

}  // namespace arcgrad::bindings
