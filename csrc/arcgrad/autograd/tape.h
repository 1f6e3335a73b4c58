#pragma once

// The tape: which ops made which graphs.
//
// A graph that takes part in differentiation has a Var, a leaf or an output of an Entry. An Entry
// is one recorded op; its Body holds the variables of the inputs and the Rule. So the tape is a
// directed acyclic graph of shared pointers from outputs to inputs, and memory is released as soon
// as no graph depends on it. Freeing an entry drops only its Body.
//
// Invariant: the level of an entry is higher than the levels of the entries that made its inputs.
// Cost: O(1) per input of a recorded op.

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "arcgrad/autograd/rule.h"
#include "arcgrad/core/graph_state.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

/// The part of an entry that exists until the tape is freed.
struct Body {
  std::vector<std::shared_ptr<Var>> inputs;  // null where no gradient is wanted
  size_t num_optional = 0;                   // how many inputs are optional, see record_entry()
  std::unique_ptr<Rule> rule;
};

/// One recorded op.
struct Entry {
  const char* op = "";
  /// Higher than the levels of the entries that made the inputs.
  int32_t level = 0;
  int32_t num_outputs = 1;
  /// About how many weights the gradient visits, in this entry and those below it.
  int64_t work = 0;
  std::mutex mutex;
  std::shared_ptr<const Body> body;  // null once freed

  std::shared_ptr<const Body> get(const char* asked_by) {
    std::lock_guard lock(mutex);
    if (!body)
      throw FreedTapeError(text(asked_by, ": the tape of ", op,
                                " was freed by an earlier backward; pass retain_graph=True there"));
    return body;
  }
  void free() {
    std::shared_ptr<const Body> old;
    std::lock_guard lock(mutex);
    old.swap(body);
  }
};

/// The work of an entry whose rule uses the thread pool: more than any other.
inline constexpr int64_t kParallelWork = int64_t{1} << 40;

/// Whether an op on these inputs is recorded: recording is on, and an input has calc_grad.
bool tracks(std::span<const Graph> inputs);
inline bool tracks(const Graph& input) { return tracks({&input, 1}); }

/// The output of an op that has a rule, recorded if the inputs are tracked. `rule` may be null if
/// they are not.
Graph record(const char* op, TopologyPtr topology, Weights weights, std::span<const Graph> inputs,
             std::unique_ptr<Rule> rule);

/// Puts an op with new outputs on the tape. The first `num_optional` inputs are products whose
/// factors are inputs too. The rule computes the gradient of such a product only if it is a target;
/// the gradient then flows through the product, and not also to its factors directly.
void record_entry(const char* op, std::span<const Graph> outputs, std::span<const Graph> inputs,
                  size_t num_optional, std::unique_ptr<Rule> rule);

}  // namespace arcgrad
