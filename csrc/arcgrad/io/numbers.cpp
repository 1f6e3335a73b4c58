#include "arcgrad/io/numbers.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <type_traits>

namespace arcgrad {
namespace {

template <class T>
T convert(const char* digits, char** end) {
  if constexpr (std::is_same_v<T, float>)
    return std::strtof(digits, end);
  else
    return std::strtod(digits, end);
}

/// Powers of ten that a double holds exactly.
constexpr double kPowers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                              1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                              1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/// Parses `[-]digits[.digits]` if the result is exact after one rounding: the digits and the power
/// of ten are exact doubles, so that their quotient is the nearest double. False for all else.
bool parse_short(std::string_view column, double& value) {
  const char *at = column.data(), *const end = at + column.size();
  const bool is_negative = at < end && *at == '-';
  at += is_negative;
  uint64_t digits = 0;
  int64_t count = 0, fraction = -1;  // digits in all, and digits after the point
  for (; at < end; ++at) {
    const auto digit = static_cast<unsigned>(*at - '0');
    if (digit < 10) {
      digits = 10 * digits + digit;
      ++count;
      fraction += fraction >= 0;
    } else if (*at == '.' && fraction < 0) {
      fraction = 0;
    } else {
      return false;
    }
  }
  constexpr uint64_t kExact = uint64_t{1} << 53U;
  if (count == 0 || count > 18 || digits > kExact) return false;
  value = static_cast<double>(digits) / kPowers[std::max<int64_t>(fraction, 0)];
  if (is_negative) value = -value;
  return true;
}

/// Whether rounding a nearest double to float could differ from rounding the digits: only halfway
/// between two floats.
bool is_halfway(double value) {
  constexpr uint64_t kDropped = (uint64_t{1} << 29U) - 1, kHalf = uint64_t{1} << 28U;
  return (std::bit_cast<uint64_t>(value) & kDropped) == kHalf;
}

}  // namespace

void put_int(std::string& out, int32_t value) {
  char digits[12];
  out.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

template <class T>
void put_float(std::string& out, T value) {
  if (std::isnan(value)) {
    out += "nan";  // printf would print the meaningless sign of a NaN
    return;
  }
  char digits[32];
#ifdef __cpp_lib_to_chars
  out.append(digits, std::to_chars(digits, std::end(digits), value).ptr);
#else
  using Limits = std::numeric_limits<T>;
  for (int precision = Limits::digits10; precision <= Limits::max_digits10; ++precision) {
    std::snprintf(digits, sizeof(digits), "%.*g", precision, static_cast<double>(value));
    T read = 0;
    parse_float(digits, read);
    if (read == value) break;
  }
  out += digits;
#endif
}

template <class T>
ParsedFloat parse_float(std::string_view column, T& value) {
  // Smaller numbers may be subnormal floats, which are rounded elsewhere.
  constexpr double kSmallest = 1e-30;
  double nearest = 0;
  if (parse_short(column, nearest)) {
    const bool is_float = std::is_same_v<T, float>;
    if (!is_float || nearest == 0 || (std::abs(nearest) > kSmallest && !is_halfway(nearest))) {
      value = static_cast<T>(nearest);
      return ParsedFloat::valid;
    }
  }
  const std::string text(column);
  char* end = nullptr;
  errno = 0;
  value = convert<T>(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size()) return ParsedFloat::not_a_number;
  return errno == ERANGE && std::isinf(value) ? ParsedFloat::too_large : ParsedFloat::valid;
}

template void put_float(std::string&, float);
template void put_float(std::string&, double);
template ParsedFloat parse_float(std::string_view, float&);
template ParsedFloat parse_float(std::string_view, double&);

}  // namespace arcgrad
