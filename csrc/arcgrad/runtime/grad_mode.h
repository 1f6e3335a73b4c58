#pragma once

// Whether a thread records ops on the tape. In this room, because the thread pool passes the
// setting of the caller on to its threads.

namespace arcgrad {

/// Whether this thread records ops on the tape.
bool is_grad_enabled();
/// Sets this and returns the old value.
bool set_grad_enabled(bool enabled);

/// Switches recording on or off in this thread for the lifetime of the object.
class GradMode {
 public:
  explicit GradMode(bool enabled) : before_(set_grad_enabled(enabled)) {}
  ~GradMode() { set_grad_enabled(before_); }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_;
};

}  // namespace arcgrad
