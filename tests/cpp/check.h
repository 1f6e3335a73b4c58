// Checks of the C++ tests: a failure prints its file, line and values, and the program continues.
// `main` ends with `return failures();`.
#pragma once

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace check {

inline int num_failures = 0;

inline void fail(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  ++num_failures;
}

inline std::string print(double value) { return std::to_string(value); }
inline std::string print(const std::vector<double>& values) {
  std::string found = "{";
  for (double value : values) found += " " + std::to_string(value);
  return found + " }";
}

inline bool is_close(double found, double expected, double tolerance) {
  return found == expected ||
         std::abs(found - expected) <= tolerance * std::fmax(1.0, std::abs(expected));
}
inline bool is_close(const std::vector<double>& found, const std::vector<double>& expected,
                     double tolerance) {
  bool same = found.size() == expected.size();
  for (size_t i = 0; same && i < found.size(); ++i)
    same = is_close(found[i], expected[i], tolerance);
  return same;
}

}  // namespace check

inline int failures() { return check::num_failures != 0; }

#define CHECK(condition)                                           \
  do {                                                             \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition); \
  } while (false)

/// Equal up to `tolerance`, relative to the expected value where that is larger than 1.
#define CHECK_CLOSE(found, expected, tolerance)                                              \
  do {                                                                                       \
    const auto found_ = (found);                                                             \
    const decltype(found_) expected_ = (expected);                                           \
    if (!check::is_close(found_, expected_, tolerance))                                      \
      check::fail(__FILE__, __LINE__,                                                        \
                  std::string(#found) + " is " + check::print(found_) + ", but should be " + \
                      check::print(expected_));                                              \
  } while (false)

/// The statement throws `type` with a message that begins with `start`.
#define CHECK_THROWS(type, start, statement)                                                 \
  do {                                                                                       \
    try {                                                                                    \
      statement;                                                                             \
      check::fail(__FILE__, __LINE__, #statement " does not throw");                         \
    } catch (const type& error) {                                                            \
      if (std::string(error.what()).rfind(start, 0) != 0)                                    \
        check::fail(__FILE__, __LINE__, std::string(#statement " throws: ") + error.what()); \
    }                                                                                        \
  } while (false)
