// Bindings of files, with their documentation.

#include "arcgrad/io/io.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>

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

}  // namespace

void init_io(nb::module_& m) {
  m.def(
      "save",
      [](const Path& file_name, const Graph& graph) {
        const Graph input = graph.snapshot();
        run_op("save", [&] { save(file_name.string(), input); });
      },
      "file_name"_a, "graph"_a, R"(
Write a graph to a binary file.

The file is replaced atomically: a failure leaves an old file unchanged. The format records its
version, byte order and dtype, and ends with a checksum.

Raises:
    OSError: If the file cannot be written.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graph.bin")
...     ag.save(path, ag.chain_graph([1, 2]))
...     ag.equal(ag.load(path), ag.chain_graph([1, 2]))
True
)");
  m.def(
      "load",
      [](const Path& file_name) {
        return run_op("load", [&] { return load(file_name.string()); });
      },
      "file_name"_a, R"(
Read a graph that :func:`save` wrote.

Raises:
    OSError: If the file cannot be read.
    ValueError: If the file is not in this format, or is truncated or damaged.

>>> import arcgrad as ag
>>> ag.load("no such file")
Traceback (most recent call last):
...
FileNotFoundError: ...
)");
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
      [](const Graph& graph, nb::object isymbols, nb::object osymbols) {
        const auto input = to_symbols("write_dot", "isymbols", isymbols);
        const auto output = to_symbols("write_dot", "osymbols", osymbols);
        return to_dot(graph, pointer(input), pointer(output));
      },
      "graph"_a, "isymbols"_a = nb::none(), "osymbols"_a = nb::none(),
      "The graph in the DOT language of Graphviz.");
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
