#pragma once

#include <span>
#include <utility>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

/// A sum of gradients. Its buffer holds no values until the first of them comes, so that a rule
/// which computes every entry writes them once instead of adding them to zeros.
class Gradient {
 public:
  /// No sum, for a gradient that is not wanted.
  Gradient() = default;
  /// An empty sum, which is zero.
  Gradient(int64_t size, DType dtype) : Gradient(Weights::uninitialized(size, dtype)) {}
  /// The same in a given buffer.
  explicit Gradient(Weights buffer) : buffer_(std::move(buffer)), is_unset_(true) {}

  explicit operator bool() const { return static_cast<bool>(buffer_); }
  DType dtype() const { return buffer_.dtype(); }
  int64_t size() const { return buffer_.size(); }
  const Layout& layout() const { return buffer_.layout(); }

  /// The entries, to be read or added to.
  Weights& sum() {
    if (is_unset_) {
      buffer_.clear();
      is_unset_ = false;
    }
    return buffer_;
  }
  /// Whether the buffer has no values yet. The caller then has to set every entry of `sum()`.
  bool take_unset() { return std::exchange(is_unset_, false); }

 private:
  Weights buffer_;
  bool is_unset_ = false;
};

/// How an op differentiates. It holds what the gradient needs of the op's inputs.
class Rule {
 public:
  virtual ~Rule() = default;
  /// Adds the vector-Jacobian product of `deltas`, one per output, to `grads`, one per input. An
  /// empty delta is zero, and a null gradient is not wanted. All are contiguous unless
  /// takes_strided().
  virtual void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const = 0;
  /// A call of add().
  struct Call {
    const Rule* rule;
    std::span<const Weights> deltas;
    std::span<Gradient* const> grads;
  };
  /// Runs calls of rules of this class, with the same result as one after the other. A rule that
  /// uses the thread pool itself overrides it to run them together.
  virtual void add_together(std::span<const Call> calls) const {
    for (const Call& call : calls) call.rule->add(call.deltas, call.grads);
  }
  /// The same as graphs on the tape, one per input, so that they can be differentiated again. Null
  /// graphs stand for zero. The default throws: the op has no higher derivatives.
  virtual std::vector<Graph> record(std::span<const Graph>, const std::vector<bool>&) const {
    throw TapeError(text(op, ": derivatives beyond the second order are not implemented"));
  }
  /// Whether add() uses the thread pool itself; it is then called from one thread only.
  virtual bool is_parallel() const { return false; }
  /// The least level of its entry. Entries of higher levels are differentiated first, so a rule
  /// that sets whole gradients has a high one: the others add to what it has written.
  virtual int32_t least_level() const { return 0; }
  /// Whether gradients may have padding between rows.
  virtual bool takes_strided() const { return false; }
  const char* op = "";
};

}  // namespace arcgrad
