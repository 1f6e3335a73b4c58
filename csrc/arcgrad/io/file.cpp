#include "arcgrad/io/file.h"

#include <fcntl.h>
#include <locale.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <system_error>
#include <utility>

#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/interrupt_poll.h"
#ifdef __APPLE__
#include <xlocale.h>
#endif

// A file is replaced by writing a temporary file in the same folder and renaming it, so that
// readers see the old or the new content.

namespace arcgrad {
namespace {

namespace fs = std::filesystem;

/// Some systems refuse to move more than 2 GB in one call. Ctrl-C is checked between calls.
constexpr size_t kMaxChunk = size_t{1} << 26U;

[[noreturn]] void fail_system(const char* op, const char* task, const std::string& file_name,
                              int error = errno) {
  throw std::system_error(error, std::generic_category(),
                          text(op, ": cannot ", task, " '", file_name, "'"));
}

void check_name(const char* op, const std::string& file_name) {
  require(file_name.find('\0') == std::string::npos, op,
          "a file name must not have null characters, but got ", quote(file_name));
}

/// Repeats a system call that a signal interrupted, unless the signal is Ctrl-C.
template <class Call>
auto retry(Call call) {
  auto result = call();
  while (result == -1 && errno == EINTR) {
    poll_interrupt_now();
    result = call();
  }
  return result;
}

/// Closes the file, and removes it by name if it has one.
class OpenFile {
 public:
  OpenFile(int id, std::string remove = {}) : id_(id), remove_(std::move(remove)) {}
  ~OpenFile() {
    if (id_ >= 0) ::close(id_);
    if (!remove_.empty()) ::unlink(remove_.c_str());
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  int id() const { return id_; }
  bool close() { return ::close(std::exchange(id_, -1)) == 0; }
  void keep() { remove_.clear(); }

 private:
  int id_;
  std::string remove_;
};

bool write_all(int id, std::string_view content) {
  while (!content.empty()) {
    poll_interrupt();
    const ssize_t count =
        retry([&] { return ::write(id, content.data(), std::min(content.size(), kMaxChunk)); });
    if (count < 0) return false;
    content.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

/// Writes to a device or a pipe directly; there is no old content to protect.
void write_in_place(const char* op, const std::string& file_name, std::string_view content) {
  const OpenFile file(retry([&] { return ::open(file_name.c_str(), O_WRONLY | O_CLOEXEC); }));
  if (file.id() < 0 || !write_all(file.id(), content)) fail_system(op, "write", file_name);
}

/// A name in the same folder, so that renaming stays within one file system. It is short, because
/// file systems limit the length of names.
std::string temporary_name(const fs::path& target) {
  static std::atomic<uint64_t> count{0};
  return (target.parent_path() / text(".arcgrad-", ::getpid(), "-", ++count, ".tmp")).string();
}

}  // namespace

Buffer<char> read_file(const char* op, const std::string& file_name) {
  check_name(op, file_name);
  const OpenFile file(retry([&] { return ::open(file_name.c_str(), O_RDONLY | O_CLOEXEC); }));
  struct stat status;
  if (file.id() < 0 || ::fstat(file.id(), &status) != 0) fail_system(op, "read", file_name);
  // The size is only a hint: a pipe has none, and a file may grow during the read.
  Buffer<char> content;
  const bool has_size = S_ISREG(status.st_mode) && status.st_size > 0;
  content.resize((has_size ? static_cast<size_t>(status.st_size) : size_t{1} << 16U) + 1);
  size_t size = 0;
  for (;;) {
    poll_interrupt();
    if (size == content.size()) content.resize(2 * size);
    const ssize_t count = retry([&] {
      return ::read(file.id(), content.data() + size, std::min(content.size() - size, kMaxChunk));
    });
    if (count < 0) fail_system(op, "read", file_name);
    if (count == 0) break;
    size += static_cast<size_t>(count);
  }
  content.resize(size);
  return content;
}

void write_file(const char* op, const std::string& file_name, std::string_view content) {
  check_name(op, file_name);
  std::error_code ignored;
  fs::path target = file_name;
  const fs::file_status before = fs::status(target, ignored);
  const bool replaces = fs::is_regular_file(before);
  if (fs::exists(before) && !replaces) return write_in_place(op, file_name, content);
  if (replaces) {
    // A symbolic link keeps its target's name, and a write-protected file is not replaced.
    target = fs::canonical(target, ignored);
    if (ignored) target = file_name;
    if (::access(target.c_str(), W_OK) != 0) fail_system(op, "write", file_name);
  }

  std::string name;
  int id;
  do {
    name = temporary_name(target);
    id = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (id < 0 && (errno == EEXIST || errno == EINTR));
  if (id < 0) fail_system(op, "write", file_name);

  OpenFile file(id, name);
  if (replaces) ::fchmod(id, static_cast<mode_t>(before.permissions()) & 07777U);
  if (!write_all(id, content)) fail_system(op, "write", file_name);
  // Without fsync, a system crash could leave an empty file under the final name.
  if (retry([&] { return ::fsync(id); }) != 0 && errno != EINVAL && errno != ENOSYS)
    fail_system(op, "write", file_name);
  if (!file.close() || ::rename(name.c_str(), target.c_str()) != 0)
    fail_system(op, "write", file_name);
  file.keep();
}

std::string quote(std::string_view content) {
  constexpr size_t kLongest = 60;
  constexpr const char* kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : content.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f)
      out += c;
    else
      (out += "\\x") += {kHex[byte / 16], kHex[byte % 16]};
  }
  return out + (content.size() > kLongest ? "...\"" : "\"");
}

PlainNumbers::PlainNumbers() {
  static const locale_t plain = ::newlocale(LC_ALL_MASK, "C", nullptr);
  before_ = static_cast<void*>(::uselocale(plain));
}

PlainNumbers::~PlainNumbers() { ::uselocale(static_cast<locale_t>(before_)); }

}  // namespace arcgrad
