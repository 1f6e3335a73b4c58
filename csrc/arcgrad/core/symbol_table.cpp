#include "arcgrad/core/symbol_table.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>

#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

constexpr int32_t kNumBytes = 256, kNumCodePoints = 0x110000;

bool is_surrogate(int32_t c) { return c >= 0xd800 && c < 0xe000; }

/// A code point as UTF-8.
std::string encode(int32_t c) {
  if (c < 0x80) return {static_cast<char>(c)};
  const int32_t num_more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr int32_t kFirst[] = {0, 0xc0, 0xe0, 0xf0};
  std::string out(1, static_cast<char>(kFirst[num_more] | c >> 6 * num_more));
  for (int32_t k = num_more - 1; k >= 0; --k)
    out += static_cast<char>(0x80 | ((c >> 6 * k) & 0x3f));
  return out;
}

/// A code point as UTF-8; controls, spaces and surrogates as `<U+20>`.
std::string spell_code_point(int32_t c) {
  if (c > 0x20 && !(c >= 0x7f && c <= 0xa0) && c != 0xad && !is_surrogate(c)) return encode(c);
  char hex[16];
  return {hex, static_cast<size_t>(std::snprintf(hex, sizeof(hex), "<U+%X>", c))};
}

std::string spell_byte(int32_t b) {
  if (b > 0x20 && b < 0x7f) return {static_cast<char>(b)};
  char hex[16];
  return {hex, static_cast<size_t>(std::snprintf(hex, sizeof(hex), "<0x%02X>", b))};
}

/// The number in a symbol such as `<U+20>`, or -1.
int32_t parse_hex(std::string_view symbol, std::string_view prefix) {
  if (!symbol.starts_with(prefix) || !symbol.ends_with('>')) return -1;
  const char* end = symbol.data() + symbol.size() - 1;
  int32_t value = -1;
  const auto [at, error] = std::from_chars(symbol.data() + prefix.size(), end, value, 16);
  return error == std::errc() && at == end ? value : -1;
}

/// The only code point of a symbol, or -1. The caller checks it by spelling it again.
int32_t parse_code_point(std::string_view symbol) {
  if (symbol.size() > 4) return parse_hex(symbol, "<U+");
  const auto first = static_cast<unsigned char>(symbol.front());
  int32_t c = symbol.size() == 1 ? first : first & (0x7f >> symbol.size());
  for (const char next : symbol.substr(1)) c = c << 6 | (static_cast<unsigned char>(next) & 0x3f);
  return c;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto first = static_cast<unsigned char>(bytes.front());
    const size_t size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const std::string_view one = bytes.substr(0, size);
    const int32_t c = one.size() == size ? parse_code_point(one) : -1;
    // Encoding it again excludes overlong forms and bytes that do not continue.
    if (c < 0 || c >= kNumCodePoints || is_surrogate(c) || encode(c) != one) return false;
    bytes.remove_prefix(size);
  }
  return true;
}

bool is_symbol(std::string_view symbol) {
  return !symbol.empty() && symbol.find('\0') == std::string_view::npos && is_utf8(symbol);
}

std::string quoted(std::string_view symbol) {
  size_t shown = std::min<size_t>(symbol.size(), 40);
  while (shown < symbol.size() && (symbol[shown] & 0xc0) == 0x80) --shown;
  return text("'", symbol.substr(0, shown), shown < symbol.size() ? "...'" : "'");
}

}  // namespace

SymbolTable::SymbolTable(Kind kind, std::string epsilon)
    : kind_(kind), epsilon_(std::move(epsilon)) {
  require(is_symbol(epsilon_), "SymbolTable",
          "the symbol of epsilon must be UTF-8 text without null characters, but it is not");
}

int32_t SymbolTable::size() const {
  if (kind_ != Kind::list) return kind_ == Kind::bytes ? kNumBytes : kNumCodePoints;
  return static_cast<int32_t>(symbols_.size());
}

std::optional<int32_t> SymbolTable::position(int32_t label) const {
  if (position_of_label_.empty()) {
    if (label < 0 || label >= size()) return std::nullopt;
    return label;
  }
  const auto found = position_of_label_.find(label);
  if (found == position_of_label_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> SymbolTable::symbol(int32_t label) const {
  if (label == kEpsilon) return epsilon_;
  const std::optional<int32_t> at = position(label);
  if (!at) return std::nullopt;
  if (kind_ == Kind::list) return symbols_[static_cast<size_t>(*at)];
  return kind_ == Kind::bytes ? spell_byte(label) : spell_code_point(label);
}

std::optional<int32_t> SymbolTable::find(std::string_view symbol) const {
  if (symbol == epsilon_) return kEpsilon;
  if (kind_ == Kind::list) {
    const auto found = position_of_symbol_.find(std::string(symbol));
    if (found == position_of_symbol_.end()) return std::nullopt;
    return labels_[static_cast<size_t>(found->second)];
  }
  if (symbol.empty()) return std::nullopt;
  int32_t label = kind_ == Kind::unicode ? parse_code_point(symbol)
                  : symbol.size() == 1   ? static_cast<unsigned char>(symbol.front())
                                         : parse_hex(symbol, "<0x");
  if (label < 0 || label >= size() || this->symbol(label) != symbol) return std::nullopt;
  return label;
}

int32_t SymbolTable::label(const char* op, std::string_view symbol) const {
  const std::optional<int32_t> found = find(symbol);
  if (!found)
    fail(op, "the symbols must be in the table",
         kind_ == Kind::list ? text(" of ", size()) : std::string(), ", but ", quoted(symbol),
         " is not");
  return *found;
}

int32_t SymbolTable::add(const char* op, std::string symbol, std::optional<int32_t> label) {
  require(kind_ == Kind::list, op, "symbols can be added to a list of symbols, but this is the ",
          "table of all ", kind_ == Kind::bytes ? "bytes" : "Unicode characters");
  require(is_symbol(symbol), op, "a symbol must be UTF-8 text without null characters, but one ",
          symbol.empty() ? "is empty" : "is not");
  if (const std::optional<int32_t> old = find(symbol)) {
    require(label.value_or(*old) == *old, op, "a symbol must have one label, but ", quoted(symbol),
            " has the label ", *old, ", and was given ", label.value_or(0));
    return *old;
  }
  require(label || next_ >= 0, op, "labels must fit 32 bits, but no label is left for ",
          quoted(symbol));
  const int32_t number = label.value_or(next_);
  require(number >= 0, op, "the labels of symbols must be 0 or more, but that of ", quoted(symbol),
          " is ", number);
  if (const std::optional<std::string> old = this->symbol(number))
    fail(op, "a label must have one symbol, but ", number, " is ", quoted(*old), ", and was given ",
         quoted(symbol));
  const auto at = static_cast<int32_t>(symbols_.size());
  if (position_of_label_.empty() && number != at)
    for (int32_t k = 0; k < at; ++k) position_of_label_.emplace(k, k);
  if (number != at || !position_of_label_.empty()) position_of_label_.emplace(number, at);
  position_of_symbol_.emplace(symbol, at);
  symbols_.push_back(std::move(symbol));
  labels_.push_back(number);
  if (number >= next_) next_ = number == std::numeric_limits<int32_t>::max() ? -1 : number + 1;
  return number;
}

bool SymbolTable::operator==(const SymbolTable& other) const {
  if (kind_ != other.kind_ || epsilon_ != other.epsilon_ || size() != other.size()) return false;
  if (symbols_ == other.symbols_ && labels_ == other.labels_) return true;
  for (size_t k = 0; k < symbols_.size(); ++k)
    if (other.find(symbols_[k]) != labels_[k]) return false;
  return true;
}

const SymbolTablePtr& bytes_table() {
  static const auto table = std::make_shared<const SymbolTable>(SymbolTable::Kind::bytes);
  return table;
}

const SymbolTablePtr& unicode_table() {
  static const auto table = std::make_shared<const SymbolTable>(SymbolTable::Kind::unicode);
  return table;
}

SymbolTablePtr joined(const char* op, const SymbolTablePtr& a, const SymbolTablePtr& b) {
  if (!a || !b || a == b) return a ? a : b;
  const auto describe = [](const SymbolTable& t) {
    return t.kind() == SymbolTable::Kind::bytes     ? std::string("those of bytes")
           : t.kind() == SymbolTable::Kind::unicode ? std::string("those of Unicode characters")
                                                    : text("a list of ", t.size());
  };
  if (a->kind() != b->kind() || a->kind() != SymbolTable::Kind::list) {
    require(a->kind() == b->kind(), op, "the symbols of labels that meet must agree, but they are ",
            describe(*a), " and ", describe(*b));
    return a;
  }
  const auto& [large, small] = a->size() >= b->size() ? std::pair(a, b) : std::pair(b, a);
  std::shared_ptr<SymbolTable> grown;
  for (size_t k = 0; k < small->symbols().size(); ++k) {
    const std::string& symbol = small->symbols()[k];
    const int32_t label = small->labels()[k];
    if (large->find(symbol) == label) continue;
    const auto refuse = [&](const auto&... parts) {
      fail(op, "the symbols of labels that meet must agree, but ", parts...,
           "; give both graphs the same table");
    };
    if (const auto other = large->find(symbol))
      refuse(quoted(symbol), " is label ", label, " in one and ", *other, " in the other");
    if (const auto other = large->symbol(label))
      refuse("label ", label, " is ", quoted(symbol), " in one and ", quoted(*other),
             " in the other");
    if (!grown) grown = std::make_shared<SymbolTable>(*large);
    grown->add(op, symbol, label);
  }
  return grown ? SymbolTablePtr(grown) : large;
}

}  // namespace arcgrad
