#pragma once

// How errors are raised: `require` and `fail` throw messages `<op>: <rule>, but <what was given>`.

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace arcgrad {

/// An error of differentiation: the tape was freed, there is no gradient, or a higher derivative is
/// not implemented. Python sees a RuntimeError.
class TapeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// The tape was freed by an earlier backward().
class FreedTapeError : public TapeError {
 public:
  using TapeError::TapeError;
};

/// Concatenates the printed parts. Floats have six significant digits.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws std::invalid_argument with the text `<op>: <parts>`. Python sees a ValueError.
template <class... Parts>
[[noreturn]] void fail(std::string_view op, const Parts&... parts) {
  throw std::invalid_argument(text(op, ": ", parts...));
}

/// Calls fail() unless `ok`. The parts are printed only then.
template <class... Parts>
void require(bool ok, std::string_view op, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(op, parts...);
}

}  // namespace arcgrad
