#pragma once

// Files: our binary format, those of other programs, and Graphviz.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arcgrad/core/graph.h"

namespace arcgrad {

// Failures of the file system throw std::system_error; invalid content throws
// std::invalid_argument. Files are replaced atomically: a failure leaves the old file unchanged.
// Graphs that are read are leaves with calc_grad on.

/// The formats of graphs, see docs/files.md.
enum class FileFormat : uint8_t {
  /// Our binary format: dtype, bit for bit the same weights, a checksum.
  arcgrad,
  /// OpenFst's binary format.
  openfst,
  /// OpenFst's text format.
  att,
  /// The text format of k2.
  k2,
  /// The binary format of gtn.
  gtn,
  /// The text format of gtn, as savetxt() writes it.
  gtn_text,
};
/// The format of this name: arcgrad, openfst, att, k2, gtn or gtn-text.
FileFormat to_format(const char* op, std::string_view name);

struct LoadOptions {
  /// The format that a file must have; without it, the format is recognized by the content.
  std::optional<FileFormat> format = {};
  /// OpenFst, Kaldi and k2, where 0 is epsilon: label k of the file becomes k - label_offset.
  int32_t label_offset = 1;
  /// The dtype of the graph; without it, that of the file, and float32 for text.
  std::optional<DType> dtype = {};
  /// Whether text of OpenFst is an acceptor. Without it, four columns with whole numbers are a
  /// transducer, as for OpenFst's tools.
  std::optional<bool> is_acceptor = {};
  /// Text of OpenFst: the symbols that are there instead of labels.
  SymbolTables symbols = {};
  /// The factors of the two costs of Kaldi's lattices.
  double graph_scale = 1, acoustic_scale = 1;
};

struct SaveOptions {
  FileFormat format = FileFormat::arcgrad;
  /// OpenFst, Kaldi and k2: label k is written as k + label_offset.
  int32_t label_offset = 1;
  /// The arcs of OpenFst: standard, log or log64. If empty: standard for float32, else log64.
  std::string arc_type = {};
  /// Text of OpenFst: whether to write the symbols of the graph instead of labels.
  bool with_symbols = false;
};

/// Writes a graph to a file.
void save(const std::string& file_name, const Graph& graph, const SaveOptions& options = {});
/// Reads a graph in any of the formats.
Graph load(const std::string& file_name, const LoadOptions& options = {});
/// The content of a file. Errors start with `op`.
std::string to_bytes(const Graph& graph, const SaveOptions& options = {},
                     const char* op = "to_bytes");
/// The inverse of to_bytes(). Errors start with `op`.
Graph from_bytes(std::string_view bytes, const char* op = "from_bytes",
                 const LoadOptions& options = {});

/// Graphs with names, in the order of a file.
using NamedGraphs = std::vector<std::pair<std::string, Graph>>;
/// The formats of archives: FAR archives of OpenFst with and without an index, and Kaldi's tables.
enum class ArchiveFormat : uint8_t { sttable, stlist, kaldi, kaldi_text };
ArchiveFormat to_archive_format(const char* op, std::string_view name);
/// Reads an archive; its format is recognized by its content.
NamedGraphs load_archive(const std::string& file_name, const LoadOptions& options = {});
/// Writes an archive. Names must differ; a sttable is sorted by name.
void save_archive(const std::string& file_name, const NamedGraphs& graphs, ArchiveFormat format,
                  const SaveOptions& options = {});

/// The arcs of an acceptor or transducer of k2: rows `src dst label score`, where the score is the
/// bits of a float, and one output label per arc or none.
struct K2Rows {
  Column rows, aux_labels;
};
Graph from_k2_arcs(std::span<const int32_t> rows, std::span<const int32_t> aux_labels,
                   const LoadOptions& options);
K2Rows to_k2_rows(const Graph& graph, const SaveOptions& options);

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

/// The number of a label, or ε, φ, ρ for epsilon, phi and rho.
std::string label_text(int32_t label);

/// Attributes in the DOT language.
struct DotStyle {
  /// Those of the graph, in lines of their own.
  std::string graph = {};
  /// Those of each arc, or none.
  std::vector<std::string> arcs = {};
};

/// The graph in the DOT language of Graphviz. Arcs of an acceptor are labelled `p/w`, those of a
/// transducer `p:r/w`. Weights are omitted if all are 0. By default the symbols are
/// those of the graph; labels without symbols are numbers.
std::string to_dot(const Graph& graph, const Symbols* isymbols = nullptr,
                   const Symbols* osymbols = nullptr, const DotStyle& style = {});
/// Writes the same to a file.
void write_dot(const Graph& graph, const std::string& file_name, const Symbols* isymbols = nullptr,
               const Symbols* osymbols = nullptr);

}  // namespace arcgrad
