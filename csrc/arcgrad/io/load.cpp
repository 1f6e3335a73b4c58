#include <algorithm>
#include <array>
#include <stdexcept>

#include "arcgrad/io/file.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/runtime/error.h"

// Which reader or writer a file needs.

namespace arcgrad {
namespace {

struct FormatName {
  std::string_view name;
  FileFormat format;
  FileKind kind;
  const char* noun;
};

constexpr std::array<FormatName, 6> kFormats = {{
    {"arcgrad", FileFormat::arcgrad, FileKind::arcgrad, "a graph in arcgrad's format"},
    {"openfst", FileFormat::openfst, FileKind::openfst, "a binary FST of OpenFst"},
    {"att", FileFormat::att, FileKind::att, "text in OpenFst's format"},
    {"k2", FileFormat::k2, FileKind::k2, "text in k2's format"},
    {"gtn", FileFormat::gtn, FileKind::gtn, "a graph in gtn's binary format"},
    {"gtn-text", FileFormat::gtn_text, FileKind::gtn_text, "text in gtn's format"},
}};

bool is_text(FileFormat format) {
  return format == FileFormat::att || format == FileFormat::k2 || format == FileFormat::gtn_text;
}

/// Whether a reader should see data that was recognized as this, so that its own error names the
/// line. Text of an unknown kind may be damaged text of its format.
bool may_have(FileFormat format, FileKind kind) {
  if (kind == FileKind::ambiguous_text)
    return format == FileFormat::att || format == FileFormat::gtn_text;
  if (is_text(format) && (kind == FileKind::unknown || kind == FileKind::empty)) return true;
  // Lines that begin with a symbol look like a table.
  if (format == FileFormat::att && kind == FileKind::symbols_text) return true;
  if (format == FileFormat::gtn_text && kind == FileKind::kaldi_text) return true;
  return kFormats[static_cast<size_t>(format)].kind == kind;
}

}  // namespace

FileFormat to_format(const char* op, std::string_view name) {
  for (const auto& row : kFormats)
    if (row.name == name) return row.format;
  fail(op, "format must be arcgrad, openfst, att, k2, gtn or gtn-text, but it is ", quote(name));
}

Graph parse_graph(std::string_view bytes, const char* op, const std::string& name,
                  const LoadOptions& options) {
  const FileKind kind = recognize(bytes);
  std::optional<FileFormat> format = options.format;
  if (format) {
    const FormatName& row = kFormats[static_cast<size_t>(*format)];
    const bool may_be_att = *format == FileFormat::att && kind == FileKind::gtn_text;
    require(may_be_att || may_have(*format, kind), op, name, " must be ", row.noun, ", but it is ",
            describe(kind));
  } else {
    for (const auto& row : kFormats)
      if (row.kind == kind) format = row.format;
    require(format.has_value(), op, name, " must be a graph in a format that load knows, but it ",
            kind == FileKind::unknown
                ? text("begins with ", quote(bytes.substr(0, 8)), " and has another format")
                : text("is ", describe(kind)),
            kind == FileKind::ambiguous_text ? "; pass format='att' or format='gtn-text'" : "");
  }
  const auto converted = [&](const Graph& graph) {
    if (!options.dtype || *options.dtype == graph.dtype()) return graph;
    return Graph(graph.topology_ptr(), graph.weights().cast(*options.dtype), graph.calc_grad());
  };
  switch (*format) {
    case FileFormat::arcgrad:
      return converted(parse_arcgrad(bytes, op, name));
    case FileFormat::openfst: {
      ByteReader reader(bytes, op, name);
      const Graph graph = parse_openfst(reader, options);
      require(reader.num_left() == 0, op, name, " must end behind its FST, but ", reader.num_left(),
              " bytes follow");
      return graph;
    }
    case FileFormat::att:
      if (kind != FileKind::gtn_text) return parse_att(bytes, op, name, options);
      // A start state without arcs is on the first line, which makes the text look like gtn's.
      try {
        return parse_att(bytes, op, name, options);
      } catch (const std::invalid_argument&) {
        fail(op, name, " must be text in OpenFst's format, but it is ", describe(kind));
      }
    case FileFormat::k2:
      return parse_k2(bytes, op, name, options);
    case FileFormat::gtn:
      return converted(parse_gtn(bytes, op, name));
    case FileFormat::gtn_text:
      return converted(parse_gtn_text(bytes, op, name));
  }
  return nullptr;
}

std::string to_bytes(const Graph& graph, const SaveOptions& options, const char* op) {
  switch (options.format) {
    case FileFormat::arcgrad:
      return write_arcgrad(graph);
    case FileFormat::openfst: {
      std::string out;
      write_openfst(out, op, graph, options);
      return out;
    }
    case FileFormat::att:
      return write_att(op, graph, options);
    case FileFormat::k2:
      return write_k2(op, graph, options);
    case FileFormat::gtn:
      return write_gtn(op, graph);
    case FileFormat::gtn_text:
      refuse_node_weights_in_gtn(op, graph);
      return to_text(graph);
  }
  return {};
}

Graph from_bytes(std::string_view bytes, const char* op, const LoadOptions& options) {
  return parse_graph(bytes, op, "the data", options);
}

void save(const std::string& file_name, const Graph& graph, const SaveOptions& options) {
  write_file("save", file_name, to_bytes(graph, options, "save"));
}

Graph load(const std::string& file_name, const LoadOptions& options) {
  const Buffer<char> content = read_file("load", file_name);
  return parse_graph({content.data(), content.size()}, "load", text("'", file_name, "'"), options);
}

Graph loadtxt(const std::string& file_name) {
  const Buffer<char> content = read_file("loadtxt", file_name);
  return parse_graph({content.data(), content.size()}, "loadtxt", text("'", file_name, "'"),
                     {.format = FileFormat::gtn_text});
}

}  // namespace arcgrad
