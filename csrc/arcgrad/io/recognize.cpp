#include <algorithm>
#include <cctype>
#include <set>
#include <vector>

#include "arcgrad/io/formats.h"
#include "arcgrad/io/line_reader.h"

// What a file is, judged by its content alone. Binary formats begin with a magic number, except for
// gtn's, whose size follows from its first numbers. Text formats differ in their first and last
// lines; where these fit two formats, the kind is ambiguous_text.

namespace arcgrad {
namespace {

using Columns = std::vector<std::string_view>;

constexpr int32_t kTableMagic = 2125656924, kListMagic = 5656924;

/// Whether the columns are different numbers of nodes, as the first two lines of gtn's text.
bool are_nodes(const Columns& columns) {
  std::set<int32_t> found;
  for (const auto column : columns) {
    int32_t node = 0;
    if (!LineReader::is_int(column, node) || node < 0 || !found.insert(node).second) return false;
  }
  return true;
}

bool is_number(std::string_view column) {
  int32_t value = 0;
  return LineReader::is_int(column, value);
}

Columns columns_of(std::string_view line) {
  LineReader reader(line, "", "");
  return reader.next() ? reader.columns() : Columns();
}

/// The columns of the last line that is not blank.
Columns last_line(std::string_view text) {
  while (!text.empty()) {
    while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
    const size_t begin = text.rfind('\n') + 1;  // 0 if there is none
    Columns columns = columns_of(text.substr(begin));
    if (!columns.empty()) return columns;
    text = text.substr(0, begin);
  }
  return {};
}

/// Whether an arc has the label -1, in the third column.
bool has_final_label(std::string_view text) {
  constexpr std::string_view kLabel = "-1";
  InterruptPoll poll;
  for (size_t at = 0; (at = text.find(kLabel, at)) != std::string_view::npos; at += kLabel.size()) {
    poll();
    const size_t end = at + kLabel.size();
    const auto is_blank = [&](size_t i) { return text[i] == ' ' || text[i] == '\t'; };
    if (at == 0 || end == text.size() || !is_blank(at - 1) || !is_blank(end)) continue;
    const size_t begin = text.rfind('\n', at) + 1;
    const Columns columns = columns_of(text.substr(begin, text.find('\n', at) - begin));
    if (columns.size() > 3 && columns[2] == kLabel) return true;
  }
  return false;
}

/// gtn's text or OpenFst's, of which the first line has three numbers or more. All but its first
/// two lines are arcs in the former. The lines of accept nodes are at the end of most files.
FileKind recognize_arcs(LineReader& reader, const Columns& last) {
  const Columns second = reader.next() ? reader.columns() : Columns();
  if (last.size() <= 2 || !are_nodes(second)) return FileKind::att;
  bool has_arcs = false;
  while (reader.next()) {
    const size_t count = reader.columns().size();
    if (count == 1 || count == 2 || count > 5) return FileKind::att;
    has_arcs |= count > 0;
  }
  return has_arcs ? FileKind::ambiguous_text : FileKind::att;
}

FileKind recognize_text(std::string_view text) {
  LineReader reader(text, "", "");
  reader.next();
  const Columns first = reader.columns();
  if (first.empty() && last_line(text).empty()) return FileKind::empty;
  if (first.empty() || first[0].starts_with('#')) return FileKind::gtn_text;
  if (first[0] == "\\data\\" || text.find("\n\\data\\") != std::string_view::npos)
    return FileKind::arpa;
  if (first[0] == "digraph" || first[0] == "strict") return FileKind::dot;
  if (!is_number(first[0])) {
    if (first.size() == 1 && reader.next()) {
      // The first entry of a table: its name, then arcs, final states, or nothing.
      const Columns& second = reader.columns();
      return second.empty() || is_number(second[0]) ? FileKind::kaldi_text : FileKind::unknown;
    }
    return first.size() == 2 && is_number(first[1]) ? FileKind::symbols_text : FileKind::unknown;
  }
  const Columns last = last_line(text);
  if (first.size() >= 4 && last.size() == 1 && has_final_label(text)) return FileKind::k2;
  if (first.size() > 2)
    return are_nodes(first)    ? recognize_arcs(reader, last)
           : first.size() <= 5 ? FileKind::att
                               : FileKind::unknown;
  // The start node of OpenFst's text has no arcs here, so that other lines would be useless.
  if (!std::ranges::all_of(first, is_number) || !reader.next()) return FileKind::att;
  const Columns second = reader.columns();
  while (reader.next())
    if (!reader.columns().empty()) return FileKind::gtn_text;
  // Without arcs, a start and an accept node look alike in both formats.
  return first.size() == 1 && (second.size() == 1 || second.size() == 2) ? FileKind::ambiguous_text
                                                                         : FileKind::gtn_text;
}

/// Whether an archive of Kaldi begins here: a name, a space, and an FST.
bool is_kaldi_archive(std::string_view bytes) {
  constexpr size_t kLongestName = 4096;
  const size_t size = bytes.substr(0, kLongestName).find_first_of(" \t\n");
  return size != 0 && size != std::string_view::npos && bytes[size] == ' ' &&
         is_openfst(bytes.substr(size + 1));
}

}  // namespace

FileKind recognize(std::string_view bytes) {
  constexpr size_t kLooked = 4096;
  if (bytes.empty()) return FileKind::empty;
  if (is_arcgrad(bytes)) return FileKind::arcgrad;
  if (is_openfst(bytes)) return FileKind::openfst;
  if (is_openfst_symbols(bytes)) return FileKind::openfst_symbols;
  if (first_number(bytes) == kTableMagic) return FileKind::far_table;
  if (first_number(bytes) == kListMagic) return FileKind::far_list;
  if (bytes.starts_with("\x1f\x8b")) return FileKind::gzip;
  if (bytes.starts_with("PK\x03\x04")) return FileKind::zip;
  if (is_gtn(bytes)) return FileKind::gtn;
  if (is_kaldi_archive(bytes)) return FileKind::kaldi_archive;
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < '\t'; };
  if (std::ranges::any_of(bytes.substr(0, kLooked), is_control)) return FileKind::unknown;
  return recognize_text(bytes);
}

const char* describe(FileKind kind) {
  switch (kind) {
    case FileKind::empty:
      return "empty";
    case FileKind::arcgrad:
      return "a graph in arcgrad's format, which load reads";
    case FileKind::openfst:
      return "a binary FST of OpenFst, which load reads";
    case FileKind::openfst_symbols:
      return "a symbol table of OpenFst, and no graph";
    case FileKind::far_table:
    case FileKind::far_list:
      return "a FAR archive, which load_archive reads";
    case FileKind::kaldi_archive:
    case FileKind::kaldi_text:
      return "an archive of Kaldi, which load_archive reads";
    case FileKind::gtn:
      return "a graph in gtn's binary format, which load reads";
    case FileKind::gtn_text:
      return "text in gtn's format, which load and loadtxt read";
    case FileKind::att:
      return "text in OpenFst's format, which load reads";
    case FileKind::k2:
      return "text in k2's format, which load reads";
    case FileKind::ambiguous_text:
      return "text that fits the formats of OpenFst and gtn";
    case FileKind::symbols_text:
      return "a symbol table in text, and no graph";
    case FileKind::arpa:
      return "an ARPA model, which ngram.load_arpa reads";
    case FileKind::dot:
      return "a drawing in the DOT language, which Graphviz reads";
    case FileKind::gzip:
      return "compressed by gzip";
    case FileKind::zip:
      return "a zip archive";
    case FileKind::unknown:
      break;
  }
  return "in none of the formats of graphs";
}

}  // namespace arcgrad
