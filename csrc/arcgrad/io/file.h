#pragma once

#include <string>
#include <string_view>

namespace arcgrad {

/// The whole content of a file. Throws std::system_error if it cannot be read.
std::string read_file(const char* op, const std::string& file_name);

/// Replaces a file in one step: readers see the old content or the new, never a part. Throws
/// std::system_error if it cannot be written, and then the old file is as it was.
void write_file(const char* op, const std::string& file_name, std::string_view content);

/// The text in quotes, without control characters, cut if it is long.
std::string quote(std::string_view content);

/// Numbers are printed and read with a decimal point while this lives, whatever the user's locale.
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
