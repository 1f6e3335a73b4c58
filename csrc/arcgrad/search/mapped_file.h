#pragma once

// A file in memory that is read on access, and shared by all processes that map it.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace arcgrad {

class MappedFile {
 public:
  /// Throws std::system_error if the file cannot be opened or mapped.
  MappedFile(const char* op, const std::string& file_name);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::string_view content() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace arcgrad
