#include "arcgrad/search/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "arcgrad/io/file.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

MappedFile::MappedFile(const char* op, const std::string& file_name) {
  require(file_name.find('\0') == std::string::npos, op,
          "a file name must not have null characters, but got ", quote(file_name));
  const int id = ::open(file_name.c_str(), O_RDONLY | O_CLOEXEC);
  int error = id < 0 ? errno : 0;
  struct stat status{};
  if (error == 0 && ::fstat(id, &status) != 0) error = errno;
  if (error == 0 && S_ISDIR(status.st_mode)) error = EISDIR;
  if (error == 0 && status.st_size > 0) {
    size_ = static_cast<size_t>(status.st_size);
    void* const memory = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, id, 0);
    if (memory == MAP_FAILED)
      error = errno;
    else
      data_ = static_cast<const char*>(memory);
  }
  if (id >= 0) ::close(id);
  if (error != 0)
    throw std::system_error(error, std::generic_category(),
                            text(op, ": cannot read ", quote(file_name)));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), size_);
}

}  // namespace arcgrad
