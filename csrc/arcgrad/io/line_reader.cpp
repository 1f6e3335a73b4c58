#include "arcgrad/io/line_reader.h"

#include <algorithm>
#include <charconv>

namespace arcgrad {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

LineReader::LineReader(std::string_view content, const char* op, std::string name)
    : rest_(content), op_(op), name_(std::move(name)) {
  // Some editors write a byte order mark at the beginning of UTF-8 text.
  if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
}

bool LineReader::next() {
  if (rest_.empty()) return false;
  poll_();
  const size_t size = std::min(rest_.find('\n'), rest_.size());
  line_ = rest_.substr(0, size);
  rest_.remove_prefix(std::min(size + 1, rest_.size()));
  ++line_number_;
  columns_.clear();
  const char *at = line_.data(), *const end = at + size;
  for (;;) {
    while (at < end && is_space(*at)) ++at;
    if (at == end) return true;
    const char* const begin = at;
    while (at < end && !is_space(*at)) ++at;
    columns_.emplace_back(begin, static_cast<size_t>(at - begin));
  }
}

bool LineReader::is_int(std::string_view column, int32_t& value) {
  const char* const end = column.data() + column.size();
  const auto [at, error] = std::from_chars(column.data(), end, value);
  return error == std::errc() && at == end;
}

void LineReader::fail_int(std::string_view what, std::string_view column, int32_t low,
                          int32_t high) const {
  fail_here(what, "must be a whole number from ", low, " to ", high, ", but it is ", quote(column));
}

void LineReader::fail_weight(std::string_view column, ParsedFloat outcome, bool has_nan,
                             bool is_float) const {
  if (outcome != ParsedFloat::too_large)
    fail_here("the weight", "must be a number, inf", has_nan ? ", -inf or nan" : " or -inf",
              ", but it is ", quote(column));
  fail_here("the weight", "must fit ", is_float ? "float32" : "float64", ", but it is ",
            quote(column));
}

}  // namespace arcgrad
