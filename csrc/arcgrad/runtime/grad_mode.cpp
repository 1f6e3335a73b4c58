#include "arcgrad/runtime/grad_mode.h"

#include <utility>

namespace arcgrad {
namespace {

thread_local bool grad_enabled = true;

}  // namespace

bool is_grad_enabled() { return grad_enabled; }
bool set_grad_enabled(bool enabled) { return std::exchange(grad_enabled, enabled); }

}  // namespace arcgrad
