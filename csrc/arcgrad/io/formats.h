#pragma once

// The readers and writers of each format. Readers raise std::invalid_argument with `op` and the
// name of the data, whatever it holds; writers raise it if the format cannot hold the graph.

#include <string>
#include <string_view>

#include "arcgrad/io/byte_reader.h"
#include "arcgrad/io/io.h"

namespace arcgrad {

/// What data is, judged by its content.
enum class FileKind : uint8_t {
  empty,
  arcgrad,
  openfst,
  openfst_symbols,
  far_table,
  far_list,
  kaldi_archive,
  kaldi_text,
  gtn,
  gtn_text,
  att,
  k2,
  ambiguous_text,
  symbols_text,
  arpa,
  dot,
  gzip,
  zip,
  unknown,
};

FileKind recognize(std::string_view bytes);
/// In words, with the function that reads it: `an ARPA model, which ngram.load_arpa reads`.
const char* describe(FileKind kind);

/// Reads a graph in the format of the options, or the one that its content shows.
Graph parse_graph(std::string_view bytes, const char* op, const std::string& name,
                  const LoadOptions& options);
/// The graphs of an archive.
NamedGraphs parse_archive(std::string_view bytes, const char* op, const std::string& name,
                          const LoadOptions& options);

// binary.cpp
bool is_arcgrad(std::string_view bytes);
Graph parse_arcgrad(std::string_view bytes, const char* op, const std::string& name);
std::string write_arcgrad(const Graph& graph);

// openfst.cpp
bool is_openfst(std::string_view bytes);
bool is_openfst_symbols(std::string_view bytes);
/// Reads one FST, and stops behind it. Its position in the file matters if it is aligned.
Graph parse_openfst(ByteReader& reader, const LoadOptions& options);
void write_openfst(std::string& out, const char* op, const Graph& graph,
                   const SaveOptions& options);

// att.cpp
Graph parse_att(std::string_view content, const char* op, const std::string& name,
                const LoadOptions& options);
std::string write_att(const char* op, const Graph& graph, const SaveOptions& options);

// k2.cpp
Graph parse_k2(std::string_view content, const char* op, const std::string& name,
               const LoadOptions& options);
/// The columns of a graph of k2.
struct K2Arcs {
  Column src, dst, ilabel, olabel;
  Buffer<float> scores;
};
std::string write_k2(const char* op, const Graph& graph, const SaveOptions& options);

// text.cpp
Graph parse_gtn_text(std::string_view content, const char* op, const std::string& name);

// gtn_binary.cpp
bool is_gtn(std::string_view bytes);
Graph parse_gtn(std::string_view bytes, const char* op, const std::string& name);
void refuse_node_weights_in_gtn(const char* op, const Graph& graph);
std::string write_gtn(const char* op, const Graph& graph);

}  // namespace arcgrad
