#pragma once

// How an op differentiates: the interface that the rules of all ops implement.

#include <span>
#include <utility>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

/// A sum of gradients. Its buffer is uninitialized until the first term is added, so that a rule
/// which computes every entry can set the entries instead of adding them to zeros.
class Gradient {
 public:
  /// No gradient.
  Gradient() = default;
  /// An empty sum, which is zero.
  Gradient(int64_t size, DType dtype) : Gradient(Weights::uninitialized(size, dtype)) {}
  /// An empty sum in the given buffer.
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
  /// Whether the buffer is uninitialized. If so, the caller must set every entry of `sum()`.
  bool take_unset() { return std::exchange(is_unset_, false); }

 private:
  Weights buffer_;
  bool is_unset_ = false;
};

/// How an op differentiates. A rule holds the data of the inputs that its gradient needs.
class Rule {
 public:
  virtual ~Rule() = default;
  /// Adds the vector-Jacobian products of `deltas`, one per output, to `grads`, one per input. An
  /// empty delta is zero; inputs with a null gradient are skipped. All are contiguous unless
  /// takes_strided().
  virtual void add(std::span<const Weights> deltas, std::span<Gradient* const> grads) const = 0;
  /// The arguments of a call of add().
  struct Call {
    const Rule* rule;
    std::span<const Weights> deltas;
    std::span<Gradient* const> grads;
  };
  /// Makes several calls of rules of this class, with the same result as one after the other. A
  /// rule that uses the thread pool overrides it to run them as one batch.
  virtual void add_together(std::span<const Call> calls) const {
    for (const Call& call : calls) call.rule->add(call.deltas, call.grads);
  }
  /// The vector-Jacobian products as graphs on the tape, one per input, for higher derivatives. A
  /// null graph is zero; only inputs whose flag is set are needed. The default throws.
  virtual std::vector<Graph> record(std::span<const Graph>, const std::vector<bool>&) const {
    throw TapeError(text(op, ": derivatives beyond the second order are not implemented"));
  }
  /// Appends the arcs, or node weights, of an input that arc `arc` of the output came from. The
  /// default throws.
  virtual void add_sources(size_t, int32_t, std::vector<int32_t>&) const {
    throw TapeError(text(op, ": its result has no arcs of its inputs"));
  }
  /// Whether add() uses the thread pool. It is then called from one thread only.
  virtual bool is_parallel() const { return false; }
  /// The least level of its entry. Higher levels are differentiated first, so a rule that sets
  /// whole gradients returns a high level: the other rules then add to its values.
  virtual int32_t least_level() const { return 0; }
  /// Whether add() accepts gradients with a stride between rows.
  virtual bool takes_strided() const { return false; }
  const char* op = "";
};

}  // namespace arcgrad
