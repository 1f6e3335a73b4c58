#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "arcgrad/core/graph.h"

namespace arcgrad {

// What cannot be read or written for reasons of the file system throws std::system_error. What is
// read but is not a graph throws std::invalid_argument. Files are replaced in one step: a failure
// leaves the old file as it was. A graph that was read is a leaf with calc_grad on.

/// Writes a graph to a binary file, with its dtype and bit for bit the same weights.
void save(const std::string& file_name, const Graph& graph);
/// Reads what save() wrote.
Graph load(const std::string& file_name);
/// The content of a binary file.
std::string to_bytes(const Graph& graph);
/// The graph that to_bytes() made these bytes of. Errors start with `op`.
Graph from_bytes(std::string_view bytes, const char* op = "from_bytes");

/// Writes a graph as text: a line of start nodes, a line of accept nodes, and one line
/// `src dst ilabel olabel weight` per arc. Weights keep their value exactly.
void savetxt(const std::string& file_name, const Graph& graph);
/// Reads the text format. The output label may be left out if it is the same, and the weight if it
/// is 0. Blank lines after the first two are skipped, and so are lines that begin with `#`.
Graph loadtxt(const std::string& file_name);
/// The content of a text file.
std::string to_text(const Graph& graph);
/// The graph that this text describes. Errors start with `op`.
Graph from_text(std::string_view content, const char* op = "from_text");

/// The names of labels.
using Symbols = std::unordered_map<int32_t, std::string>;

/// The graph in the language of Graphviz, labelled `p/w` if it is an acceptor and `p:r/w` if not.
/// Weights are left out if all are 0. Labels are numbers where no symbols are given.
std::string to_dot(const Graph& graph, const Symbols* isymbols = nullptr,
                   const Symbols* osymbols = nullptr);
/// Writes the same to a file.
void write_dot(const Graph& graph, const std::string& file_name, const Symbols* isymbols = nullptr,
               const Symbols* osymbols = nullptr);

}  // namespace arcgrad
