#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "arcgrad/autograd/rule.h"
#include "arcgrad/core/graph_state.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {

/// What a recorded op holds until its tape is freed.
struct Body {
  std::vector<std::shared_ptr<Var>> inputs;  // null where no gradient is wanted
  size_t num_optional = 0;                   // of the inputs, the first; see record_entry()
  std::unique_ptr<Rule> rule;
};

/// One recorded op.
struct Entry {
  const char* op = "";
  /// Above the levels of the entries that made the inputs.
  int32_t level = 0;
  int32_t num_outputs = 1;
  std::mutex mutex;
  std::shared_ptr<const Body> body;  // null once freed

  std::shared_ptr<const Body> get(const char* asked_by) {
    std::lock_guard lock(mutex);
    if (!body)
      throw TapeError(text(asked_by, ": the tape of ", op,
                           " was freed by an earlier backward; pass retain_graph=True there"));
    return body;
  }
  void free() {
    std::shared_ptr<const Body> old;
    std::lock_guard lock(mutex);
    old.swap(body);
  }
};

/// Whether an op on these inputs is recorded: gradients are on, and some input wants one.
bool tracks(std::span<const Graph> inputs);
inline bool tracks(const Graph& input) { return tracks({&input, 1}); }

/// Records an op with a rule of its own. `rule` may be null if the inputs are not tracked.
Graph record(const char* op, TopologyPtr topology, Weights weights, std::span<const Graph> inputs,
             std::unique_ptr<Rule> rule);

/// Puts an op with fresh outputs on the tape. The first `num_optional` inputs are products whose
/// factors are inputs too: their gradients are wanted only if somebody asks for them, and where
/// they are, what flows into them must not also flow into the factors.
void record_entry(const char* op, std::span<const Graph> outputs, std::span<const Graph> inputs,
                  size_t num_optional, std::unique_ptr<Rule> rule);

}  // namespace arcgrad
