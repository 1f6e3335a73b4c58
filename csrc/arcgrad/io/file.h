#pragma once

// Reading and atomically replacing files.

#include <string>
#include <string_view>

#include "arcgrad/runtime/buffer.h"

namespace arcgrad {

/// The whole content of a file. Throws std::system_error if it cannot be read.
Buffer<char> read_file(const char* op, const std::string& file_name);

/// Replaces a file atomically: readers see the old or the new content, never a part. Throws
/// std::system_error if it cannot be written, and then leaves the old file unchanged.
void write_file(const char* op, const std::string& file_name, std::string_view content);

/// The text in quotes, with control characters escaped and long text truncated.
std::string quote(std::string_view content);

/// While this object lives, numbers are printed and parsed in the C locale.
class PlainNumbers {
 public:
  PlainNumbers();
  ~PlainNumbers();
  PlainNumbers(const PlainNumbers&) = delete;
  PlainNumbers& operator=(const PlainNumbers&) = delete;

 private:
  void* before_;
};

}  // namespace arcgrad
