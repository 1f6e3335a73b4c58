#pragma once

// Numbers in text files: printed so that they read back as the same value, and parsed quickly.

#include <cstdint>
#include <string>
#include <string_view>

namespace arcgrad {

/// Appends a whole number.
void put_int(std::string& out, int32_t value);

/// Appends the digits that read back as the same value of this type. A PlainNumbers must exist.
template <class T>
void put_float(std::string& out, T value);

enum class ParsedFloat : uint8_t { valid, not_a_number, too_large };

/// Parses a column: digits, inf, infinity or nan of either sign, in any case. A PlainNumbers must
/// exist.
template <class T>
ParsedFloat parse_float(std::string_view column, T& value);

}  // namespace arcgrad
