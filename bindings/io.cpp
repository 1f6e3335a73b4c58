#include "arcgrad/io/io.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/pair.h>

#include "common.h"

namespace arcgrad::bindings {
namespace {

using Path = std::filesystem::path;

/// Names of labels from a dict, or from a list in which they stand in order.
std::optional<Symbols> to_symbols(const char* op, const char* what, nb::handle symbols) {
  if (symbols.is_none()) return std::nullopt;
  Symbols out;
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
  } else if (nb::isinstance<nb::sequence>(symbols) && !nb::isinstance<nb::str>(symbols)) {
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
        nb::gil_scoped_release release;
        save(file_name.string(), input);
      },
      "file_name"_a, "graph"_a, R"(
Writes a graph to a binary file, in one step: a failure leaves an old file as it was.

The format states its version, byte order and dtype, and ends with a checksum.

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
        nb::gil_scoped_release release;
        return load(file_name.string());
      },
      "file_name"_a, R"(
Reads a graph that :func:`save` wrote.

Raises:
    OSError: If the file cannot be read.
    ValueError: If it is not such a file, is truncated or damaged.

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
        nb::gil_scoped_release release;
        savetxt(file_name.string(), input);
      },
      "file_name"_a, "graph"_a, R"(
Writes a graph as text: start nodes, accept nodes, then ``src dst ilabel olabel weight`` per arc.

Weights are written so that reading them gives the same numbers.

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
        nb::gil_scoped_release release;
        return loadtxt(file_name.string());
      },
      "file_name"_a, R"(
Reads a graph from text as :func:`savetxt` and gtn write it.

The output label may be left out if it is the same as the input label, and the weight if it is 0.
Blank lines after the first two, tabs, lines that begin with ``#``, and a byte order mark of UTF-8
are allowed.

Raises:
    OSError: If the file cannot be read.
    ValueError: If a line is not understood; the message names it.

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
        const auto& product = graph.product();
        if (!product || product->is_built()) return std::nullopt;
        // A node or arc occurs at most once before each frame and after the last.
        const int64_t copies = product->emissions().num_nodes();
        const Graph& other = product->graph();
        return std::pair(copies * other.num_nodes(), copies * other.num_arcs());
      },
      "graph"_a, "The most nodes and arcs a product can have; None if it is none, or is built.");
  m.def(
      "to_dot",
      [](const Graph& graph, nb::object isymbols, nb::object osymbols) {
        const auto input = to_symbols("write_dot", "isymbols", isymbols);
        const auto output = to_symbols("write_dot", "osymbols", osymbols);
        return to_dot(graph, pointer(input), pointer(output));
      },
      "graph"_a, "isymbols"_a = nb::none(), "osymbols"_a = nb::none(),
      "The graph in the language of Graphviz.");
  m.def(
      "write_dot",
      [](const Graph& graph, const Path& file_name, nb::object isymbols, nb::object osymbols) {
        const auto input = to_symbols("write_dot", "isymbols", isymbols);
        const auto output = to_symbols("write_dot", "osymbols", osymbols);
        write_dot(graph, file_name.string(), pointer(input), pointer(output));
      },
      "graph"_a, "file_name"_a, "isymbols"_a = nb::none(), "osymbols"_a = nb::none(), R"(
Writes a graph in the language of Graphviz; :func:`draw` makes pictures directly.

Args:
    graph: The graph.
    file_name: Where to write.
    isymbols: Names of the input labels: a dict from labels to names, or a list of names.
    osymbols: Names of the output labels.

Raises:
    OSError: If the file cannot be written.
    TypeError: If a key of a dict is no label.
    ValueError: If a label has no name, or a name cannot be written.

>>> import os, tempfile, arcgrad as ag
>>> with tempfile.TemporaryDirectory() as folder:
...     path = os.path.join(folder, "graph.dot")
...     ag.write_dot(ag.chain_graph([0, 1]), path, ["a", "b"])
...     os.path.exists(path)
True
)");
}

}  // namespace arcgrad::bindings
