#pragma once

// Reading binary files: every step checks that the bytes are there.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "arcgrad/runtime/error.h"

namespace arcgrad {

/// A position in a binary file.
class ByteReader {
 public:
  /// `name` identifies the data in error messages.
  ByteReader(std::string_view bytes, const char* op, std::string name)
      : bytes_(bytes), op_(op), name_(std::move(name)) {}

  template <class T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  /// A string behind its length in 32 bits.
  std::string_view get_string() {
    const auto size = get<int32_t>();
    require(size >= 0, op_, name_, " must be intact, but it has a string of ", size, " bytes");
    return take(static_cast<uint64_t>(size));
  }
  std::string_view take(uint64_t size) {
    if (size > num_left()) [[unlikely]]
      fail(op_, name_, " must be whole, but it ends after ", bytes_.size(), " bytes");
    const auto out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }
  /// `count` records of `size` bytes, where the product may not fit 64 bits.
  std::string_view take(uint64_t count, uint64_t size) {
    return take(count > num_left() / size ? UINT64_MAX : count * size);
  }
  /// Skips to a position in the file that is a multiple of `size`.
  void align(uint64_t size) { take((size - at_ % size) % size); }

  uint64_t num_left() const { return bytes_.size() - at_; }
  uint64_t position() const { return at_; }
  void seek(uint64_t position) { at_ = position; }
  std::string_view rest() const { return bytes_.substr(at_); }
  const char* op() const { return op_; }
  const std::string& name() const { return name_; }

  /// Throws `<op>: <name> <parts>`.
  template <class... Parts>
  [[noreturn]] void fail_here(const Parts&... parts) const {
    fail(op_, name_, " ", parts...);
  }

 private:
  std::string_view bytes_;
  uint64_t at_ = 0;
  const char* op_;
  std::string name_;
};

/// Appends the bytes of a number.
template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// The first number of a file; 0 if it is shorter.
inline int32_t first_number(std::string_view bytes) {
  int32_t number = 0;
  if (bytes.size() >= sizeof(number)) std::memcpy(&number, bytes.data(), sizeof(number));
  return number;
}

}  // namespace arcgrad
