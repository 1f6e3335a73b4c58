#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace arcgrad {

/// A tape that was freed, a missing gradient, or an order of differentiation that does not exist.
class TapeError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The parts printed one after the other. Floats are short but precise enough to recognise.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Throws `<op>: <parts>` as invalid_argument, which Python sees as a ValueError.
template <class... Parts>
[[noreturn]] void fail(std::string_view op, const Parts&... parts) {
  throw std::invalid_argument(text(op, ": ", parts...));
}

/// Fails unless `ok`. The parts are printed only on failure.
template <class... Parts>
void require(bool ok, std::string_view op, const Parts&... parts) {
  if (!ok) [[unlikely]]
    fail(op, parts...);
}

}  // namespace arcgrad
