#include "arcgrad/later.h"

#include <atomic>

namespace arcgrad {
namespace {

constexpr int64_t kLeastArcs = int64_t{1} << 16;
std::atomic<bool> is_forced = false;

}  // namespace

bool is_for_later(int64_t num_arcs) {
  return num_arcs >= kLeastArcs || is_forced.load(std::memory_order_relaxed);
}

void force_later(bool force) { is_forced = force; }

}  // namespace arcgrad
