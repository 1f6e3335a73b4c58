#include "arcgrad/core/symbol_table.h"

#include <charconv>
#include <cstring>

#include "arcgrad/io/file.h"
#include "arcgrad/io/io.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Files of symbols in OpenFst's text format: one line `symbol<TAB>id` each, where epsilon has the
// id 0. Labels here begin at 0 and epsilon is -1, so a label is the id minus one.

namespace arcgrad {
namespace {

constexpr std::string_view kSpace = " \t\r";

std::string_view trim(std::string_view line) {
  const size_t begin = line.find_first_not_of(kSpace), end = line.find_last_not_of(kSpace);
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin, end + 1 - begin);
}

void put_number(std::string& out, uint64_t value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

std::string to_text(const SymbolTable& table) {
  const char* op = "SymbolTable.save";
  require(table.kind() == SymbolTable::Kind::list, op,
          "only a list of symbols can be saved, but this is a table of all characters");
  std::string out = table.epsilon() + "\t0\n";
  InterruptPoll poll;
  for (size_t k = 0; k < table.symbols().size(); ++k) {
    poll();
    const std::string& symbol = table.symbols()[k];
    require(symbol.find_first_of(" \t\r\n\v\f") == std::string::npos, op,
            "symbols in this format must have no white space, but ", quote(symbol), " has");
    out.append(symbol).append("\t").append(std::to_string(int64_t{table.labels()[k]} + 1)) += '\n';
  }
  return out;
}

SymbolTable symbols_from_text(std::string_view content, const std::string& name) {
  const char* op = "SymbolTable.load";
  struct Line {
    std::string_view symbol;
    int64_t id;
    int64_t line;
  };
  std::vector<Line> entries;
  std::string epsilon = "<eps>";
  if (content.starts_with("\xef\xbb\xbf")) content.remove_prefix(3);
  InterruptPoll poll;
  int64_t number = 0;
  while (!content.empty()) {
    poll();
    const size_t end = std::min(content.find('\n'), content.size());
    const std::string_view line = trim(content.substr(0, end));
    content.remove_prefix(std::min(end + 1, content.size()));
    ++number;
    if (line.empty()) continue;
    const size_t gap = line.find_last_of(kSpace);
    int64_t id = -1;
    if (gap != std::string_view::npos) {
      const auto [at, error] =
          std::from_chars(line.data() + gap + 1, line.data() + line.size(), id);
      if (error != std::errc() || at != line.data() + line.size()) id = -1;
    }
    const std::string_view symbol = id < 0 ? std::string_view() : trim(line.substr(0, gap));
    if (symbol.empty() || symbol.find_first_of(kSpace) != std::string_view::npos ||
        id > int64_t{1} << 31)
      fail(op, "each line of ", name, " must be a symbol and an id from 0 to 2^31, but line ",
           number, " is ", quote(line));
    if (id == 0)
      epsilon = symbol;
    else
      entries.push_back({symbol, id, number});
  }
  // Errors of a symbol name the file.
  const auto try_symbol = [&](const auto& run) {
    try {
      return run();
    } catch (const std::invalid_argument& error) {
      fail(op, name, " must hold valid symbols, but ", error.what());
    }
  };
  SymbolTable table =
      try_symbol([&] { return SymbolTable(SymbolTable::Kind::list, std::move(epsilon)); });
  for (const Line& entry : entries) {
    poll();
    const auto label = static_cast<int32_t>(entry.id - 1);
    require(!table.find(entry.symbol), op, "each symbol of ", name, " must occur once, but ",
            quote(entry.symbol), " on line ", entry.line, " does again");
    require(!table.symbol(label), op, "each id of ", name, " must occur once, but ", entry.id,
            " on line ", entry.line, " does again");
    try_symbol([&] { return table.add(op, std::string(entry.symbol), label); });
  }
  return table;
}

SymbolTable load_symbols(const std::string& file_name) {
  const Buffer<char> content = read_file("SymbolTable.load", file_name);
  return symbols_from_text({content.data(), content.size()}, text("'", file_name, "'"));
}

void save_symbols(const std::string& file_name, const SymbolTable& table) {
  write_file("SymbolTable.save", file_name, to_text(table));
}

std::string to_bytes(const SymbolTable& table) {
  std::string out;
  const auto put = [&](std::string_view symbol) {
    put_number(out, symbol.size());
    out += symbol;
  };
  put_number(out, static_cast<uint64_t>(table.kind()));
  put(table.epsilon());
  InterruptPoll poll;
  for (size_t k = 0; k < table.symbols().size(); ++k) {
    poll();
    put_number(out, static_cast<uint64_t>(table.labels()[k]));
    put(table.symbols()[k]);
  }
  return out;
}

SymbolTable symbols_from_bytes(std::string_view bytes, const char* op) {
  const auto damaged = [&] { fail(op, "the symbols must be intact, but they are damaged"); };
  const auto number = [&](uint64_t most) {
    uint64_t value = 0;
    if (bytes.size() < sizeof(value)) damaged();
    std::memcpy(&value, bytes.data(), sizeof(value));
    bytes.remove_prefix(sizeof(value));
    if (value > most) damaged();
    return value;
  };
  const auto symbol = [&] {
    const size_t size = number(bytes.size());
    if (size > bytes.size()) damaged();
    std::string out(bytes.substr(0, size));
    bytes.remove_prefix(size);
    return out;
  };
  const auto kind = static_cast<SymbolTable::Kind>(number(2));
  SymbolTable table(kind, symbol());
  InterruptPoll poll;
  while (!bytes.empty()) {
    poll();
    const auto label = static_cast<int32_t>(number((uint64_t{1} << 31) - 1));
    table.add(op, symbol(), label);
  }
  return table;
}

}  // namespace arcgrad
