#pragma once

namespace arcgrad {

/// Whether ops of this thread are recorded on the tape.
bool is_grad_enabled();
/// Sets it and returns the old value.
bool set_grad_enabled(bool enabled);

/// Switches recording on or off in this thread while it lives.
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
