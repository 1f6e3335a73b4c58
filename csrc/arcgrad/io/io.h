#pragma once

// Files: the binary format, the text format of gtn, and Graphviz.

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "arcgrad/core/graph.h"

namespace arcgrad {

// Failures of the file system throw std::system_error; invalid content throws
// std::invalid_argument. Files are replaced atomically: a failure leaves the old file unchanged.
// Graphs that are read are leaves with calc_grad on.

/// Writes a graph to a binary file, with its dtype and bit for bit the same weights.
void save(const std::string& file_name, const Graph& graph);
/// Reads what save() wrote.
Graph load(const std::string& file_name);
/// The content of a binary file.
std::string to_bytes(const Graph& graph);
/// The inverse of to_bytes(). Errors start with `op`.
Graph from_bytes(std::string_view bytes, const char* op = "from_bytes");

/// Writes a graph as text: a line of start nodes, a line of accept nodes, and one line
/// `src dst ilabel olabel weight` per arc. Weights keep their value exactly.
void savetxt(const std::string& file_name, const Graph& graph);
/// Reads the text format. The output label is optional if it equals the input label, and so is a
/// weight of 0. Blank lines after the first two and lines that begin with `#` are skipped.
Graph loadtxt(const std::string& file_name);
/// The content of a text file.
std::string to_text(const Graph& graph);
/// The graph that this text describes. Errors start with `op`.
Graph from_text(std::string_view content, const char* op = "from_text");

/// Writes symbols in OpenFst's text format, where epsilon has the id 0 and a label is the id minus
/// one.
void save_symbols(const std::string& file_name, const SymbolTable& table);
/// Reads the same format.
SymbolTable load_symbols(const std::string& file_name);
std::string to_text(const SymbolTable& table);
/// `name` identifies the content in error messages.
SymbolTable symbols_from_text(std::string_view content, const std::string& name = "the text");
/// The symbols as bytes, for pickle and for files of graphs.
std::string to_bytes(const SymbolTable& table);
SymbolTable symbols_from_bytes(std::string_view bytes, const char* op = "symbols_from_bytes");

/// The names of labels in a drawing, which need not be unique.
using Symbols = std::unordered_map<int32_t, std::string>;

/// The graph in the DOT language of Graphviz. Arcs of an acceptor are labelled `p/w`, those of a
/// transducer `p:r/w`. Weights are omitted if all are 0. By default the symbols are
/// those of the graph; labels without symbols are numbers.
std::string to_dot(const Graph& graph, const Symbols* isymbols = nullptr,
                   const Symbols* osymbols = nullptr);
/// Writes the same to a file.
void write_dot(const Graph& graph, const std::string& file_name, const Symbols* isymbols = nullptr,
               const Symbols* osymbols = nullptr);

}  // namespace arcgrad
