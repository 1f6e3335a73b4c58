#include <algorithm>
#include <array>
#include <unordered_set>

#include "arcgrad/io/file.h"
#include "arcgrad/io/formats.h"
#include "arcgrad/io/line_reader.h"
#include "arcgrad/runtime/error.h"

// Archives of graphs with names. FAR archives of OpenFst: a magic number, a version, then names and
// FSTs. A list ends with an empty name, a table with the positions of its entries: their number,
// the positions, and their number again. Tables of Kaldi: each entry is a name, a space, and an
// FST, or its text and a blank line.

namespace arcgrad {
namespace {

constexpr int32_t kTableMagic = 2125656924, kListMagic = 5656924, kVersion = 1;

constexpr std::array<std::string_view, 4> kNames = {"sttable", "stlist", "kaldi", "kaldi-text"};

std::string name_of(const std::string& file, std::string_view entry) {
  return text(file, " (graph ", quote(entry), ")");
}

/// Reads the FST of an entry, whose name errors contain.
Graph parse_entry(ByteReader& reader, std::string_view bytes, std::string_view entry,
                  const LoadOptions& options) {
  ByteReader inner(bytes, reader.op(), name_of(reader.name(), entry));
  inner.seek(reader.position());
  Graph graph = parse_openfst(inner, options);
  reader.seek(inner.position());
  return graph;
}

NamedGraphs parse_far(std::string_view bytes, const char* op, const std::string& name,
                      const LoadOptions& options, bool is_table) {
  NamedGraphs out;
  ByteReader reader(bytes, op, name);
  reader.get<int32_t>();  // the magic number
  const auto version = reader.get<int32_t>();
  require(version == kVersion, op, name, " must have version ", kVersion, ", but it has ", version);
  if (is_table) {
    ByteReader index(bytes, op, name);
    require(bytes.size() >= 3 * sizeof(int64_t), op, name, " must be whole, but it has ",
            bytes.size(), " bytes");
    index.seek(bytes.size() - sizeof(int64_t));
    const auto count = index.get<uint64_t>();
    require(count <= bytes.size() / sizeof(int64_t) - 3, op, name,
            " must be whole, but its index has ", count, " entries in ", bytes.size(), " bytes");
    const uint64_t end = bytes.size() - (count + 2) * sizeof(int64_t);
    index.seek(end);
    require(index.get<uint64_t>() == count, op, name,
            " must be intact, but its index has two different numbers of entries");
    const auto entries = bytes.substr(0, end);
    for (uint64_t i = 0; i < count; ++i) {
      const auto position = index.get<uint64_t>();
      require(position == reader.position(), op, name, " must have entry ", i, " at byte ",
              reader.position(), ", but its index has it at ", position);
      ByteReader at(entries, op, name);
      at.seek(position);
      const std::string key(at.get_string());
      out.emplace_back(key, parse_entry(at, entries, key, options));
      reader.seek(at.position());
    }
    require(reader.position() == end, op, name, " must have its index behind its entries, but ",
            end - reader.position(), " bytes are between them");
    return out;
  }
  for (;;) {
    const std::string key(reader.get_string());
    if (key.empty()) break;
    out.emplace_back(key, parse_entry(reader, bytes, key, options));
  }
  require(reader.num_left() == 0, op, name, " must end behind its last entry, but ",
          reader.num_left(), " bytes follow");
  return out;
}

NamedGraphs parse_kaldi(std::string_view bytes, const char* op, const std::string& name,
                        const LoadOptions& options) {
  NamedGraphs out;
  ByteReader reader(bytes, op, name);
  while (reader.num_left() > 0) {
    const size_t size = reader.rest().find(' ');
    if (size == 0 || size == std::string_view::npos)
      reader.fail_here("must have a name and a space at byte ", reader.position(),
                       ", but it has not");
    const std::string key(reader.take(size));
    reader.take(1);
    out.emplace_back(key, parse_entry(reader, bytes, key, options));
  }
  return out;
}

NamedGraphs parse_kaldi_text(std::string_view bytes, const char* op, const std::string& name,
                             const LoadOptions& options) {
  NamedGraphs out;
  LineReader lines(bytes, op, name);
  while (lines.next()) {
    if (lines.columns().empty()) continue;
    if (lines.columns().size() != 1)
      lines.fail_here("a name", "must be alone on its line, but the line is ", quote(lines.line()));
    const std::string key(lines.columns()[0]);
    // The text of an entry, up to a blank line.
    const char* begin = nullptr;
    const char* end = nullptr;
    while (lines.next() && !lines.columns().empty()) {
      if (begin == nullptr) begin = lines.line().data();
      end = lines.line().data() + lines.line().size();
    }
    const std::string_view content =
        begin == nullptr ? "" : std::string_view(begin, static_cast<size_t>(end - begin));
    if (content.empty()) {
      out.emplace_back(key, Graph(true, options.dtype.value_or(DType::float32)));
      continue;
    }
    out.emplace_back(key, parse_att(content, op, name_of(name, key), options));
  }
  return out;
}

std::string write_archive(const char* op, const NamedGraphs& graphs, ArchiveFormat format,
                          const SaveOptions& options) {
  const bool is_far = format == ArchiveFormat::sttable || format == ArchiveFormat::stlist;
  std::vector<const NamedGraphs::value_type*> entries;
  std::unordered_set<std::string_view> keys;
  for (const auto& entry : graphs) {
    const std::string& key = entry.first;
    require(!key.empty() && (is_far || key.find_first_of(" \t\n\r\v\f") == std::string::npos), op,
            "names must not be empty", is_far ? "" : " or have spaces", ", but one is ",
            quote(key));
    require(keys.insert(key).second, op, "names must differ, but ", quote(key), " is repeated");
    entries.push_back(&entry);
  }
  // The index of a table is searched by bisection.
  if (format == ArchiveFormat::sttable)
    std::ranges::sort(entries, {}, [](const auto* entry) { return entry->first; });
  std::string out;
  std::vector<uint64_t> positions;
  if (is_far) {
    put(out, format == ArchiveFormat::sttable ? kTableMagic : kListMagic);
    put(out, kVersion);
  }
  for (const auto* entry : entries) {
    const auto& [key, graph] = *entry;
    positions.push_back(out.size());
    if (is_far) put(out, static_cast<int32_t>(key.size()));
    out += key;
    if (!is_far) out += ' ';
    if (format == ArchiveFormat::kaldi_text)
      out += "\n" + write_att(op, graph, options) + "\n";
    else
      write_openfst(out, op, graph, options);
  }
  if (format == ArchiveFormat::stlist) put(out, int32_t{0});
  if (format == ArchiveFormat::sttable) {
    put(out, static_cast<uint64_t>(positions.size()));
    for (const uint64_t position : positions) put(out, position);
    put(out, static_cast<uint64_t>(positions.size()));
  }
  return out;
}

}  // namespace

ArchiveFormat to_archive_format(const char* op, std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  require(found != kNames.end(), op,
          "format must be sttable, stlist, kaldi or kaldi-text, but it is ", quote(name));
  return static_cast<ArchiveFormat>(found - kNames.begin());
}

NamedGraphs parse_archive(std::string_view bytes, const char* op, const std::string& name,
                          const LoadOptions& options) {
  const FileKind kind = recognize(bytes);
  switch (kind) {
    case FileKind::far_table:
    case FileKind::far_list:
      return parse_far(bytes, op, name, options, kind == FileKind::far_table);
    case FileKind::kaldi_archive:
      return parse_kaldi(bytes, op, name, options);
    case FileKind::kaldi_text:
      return parse_kaldi_text(bytes, op, name, options);
    default:
      fail(op, name, " must be a FAR archive or an archive of Kaldi, but it is ", describe(kind));
  }
}

NamedGraphs load_archive(const std::string& file_name, const LoadOptions& options) {
  const Buffer<char> content = read_file("load_archive", file_name);
  return parse_archive({content.data(), content.size()}, "load_archive", text("'", file_name, "'"),
                       options);
}

void save_archive(const std::string& file_name, const NamedGraphs& graphs, ArchiveFormat format,
                  const SaveOptions& options) {
  write_file("save_archive", file_name, write_archive("save_archive", graphs, format, options));
}

}  // namespace arcgrad
