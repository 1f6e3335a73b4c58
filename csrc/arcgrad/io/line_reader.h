#pragma once

// Text files of one record per line: lines, their columns, and errors that name the line.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "arcgrad/io/file.h"
#include "arcgrad/io/numbers.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

/// Splits text into lines, and lines into columns between spaces and tabs.
class LineReader {
 public:
  /// The largest id of a node: the number of nodes, id + 1, must fit as well.
  static constexpr int32_t kMaxId = std::numeric_limits<int32_t>::max() - 1;

  /// `name` identifies the text in error messages.
  LineReader(std::string_view content, const char* op, std::string name);

  /// Steps to the next line. False at the end.
  bool next();
  const std::vector<std::string_view>& columns() const { return columns_; }
  std::string_view line() const { return line_; }
  int64_t line_number() const { return line_number_; }
  const char* op() const { return op_; }
  const std::string& name() const { return name_; }

  template <class... Parts>
  [[noreturn]] void fail_here(std::string_view what, const Parts&... parts) const {
    fail(op_, what, " on line ", line_number_, " of ", name_, " ", parts...);
  }

  int32_t parse_int(std::string_view what, std::string_view column, int32_t low,
                    int32_t high = std::numeric_limits<int32_t>::max()) const {
    int32_t value = 0;
    if (!is_int(column, value) || value < low || value > high) fail_int(what, column, low, high);
    return value;
  }
  /// Refuses NaN unless `has_nan`.
  template <class T>
  T parse_weight(std::string_view column, bool has_nan) const {
    T value = 0;
    const ParsedFloat outcome = parse_float(column, value);
    if (outcome != ParsedFloat::valid || (std::isnan(value) && !has_nan)) [[unlikely]]
      fail_weight(column, outcome, has_nan, sizeof(T) == sizeof(float));
    return value;
  }

  /// Whether a column is a whole number that fits 32 bits.
  static bool is_int(std::string_view column, int32_t& value);

 private:
  [[noreturn]] void fail_int(std::string_view what, std::string_view column, int32_t low,
                             int32_t high) const;
  [[noreturn]] void fail_weight(std::string_view column, ParsedFloat outcome, bool has_nan,
                                bool is_float) const;

  PlainNumbers plain_;
  std::string_view rest_, line_;
  InterruptPoll poll_;
  const char* op_;
  std::string name_;
  std::vector<std::string_view> columns_;
  int64_t line_number_ = 0;
};

}  // namespace arcgrad
