#pragma once

#include <memory>
#include <string>
#include <vector>

#include "arcgrad/algorithms/product.h"
#include "arcgrad/core/graph.h"
#include "arcgrad/runtime/parallel.h"
#include "arcgrad/trellis/kernels/kernel.h"
#include "arcgrad/trellis/scores.h"

namespace arcgrad::trellis {

/// Products that are scored together, by what they share.
struct Plan {
  struct Example {
    Graph product;            // null if the factors were given
    size_t graph, emissions;  // the factors
    Emissions view;
    size_t position;  // in the list it came from
  };
  /// The examples of one graph.
  struct Group {
    size_t graph;
    Side side;
    std::vector<size_t> examples;
  };

  /// The products of a list that may hold other graphs too.
  explicit Plan(const std::vector<Graph>& list);
  /// The products of acceptors with emissions, one by one, which are never made. A list of one
  /// graph goes with any.
  Plan(const std::vector<Graph>& acceptors, const std::vector<Graph>& emissions);

  /// The distinct factors.
  std::vector<Graph> graphs, emissions;
  std::vector<Example> examples;
  std::vector<Group> groups;
  size_t list_size;

  /// Throws the current exception again with the number of the example it is about.
  [[noreturn]] void rethrow(const char* op, size_t example) const;
  /// The same for examples of one form that ran together: the first with bad emissions.
  [[noreturn]] void rethrow(const char* op, const TrellisGraph& form,
                            std::span<const size_t> together) const;
  /// The inputs of a score on the tape: the products, which are optional, the graphs, the
  /// emissions.
  std::vector<Graph> tape_inputs() const;

  const std::shared_ptr<const TrellisGraph>& form(const Group& group) const {
    return graphs[group.graph].topology().form(group.side);
  }
  /// How the examples of a group are scored, and why so if there is a place for it.
  Kernel choose(const char* op, const Group& group, std::string* reason = nullptr) const;
};

/// Runs `element(i)` for the elements `others` of a list, whose arcs have to be looked at.
template <class Element>
void for_others(const char* op, size_t list_size, const std::vector<size_t>& others,
                Element element) {
  parallel_for(others.size(), [&](size_t k) {
    try {
      element(others[k]);
    } catch (...) {
      if (list_size == 1) throw;
      rethrow_for_element(op, others[k], list_size);
    }
  });
}

/// Where gradients of emissions go, for examples that may share them: `grads` has one per example,
/// null if not wanted. Each further example with the same gradient gets a buffer of its own, so
/// that threads do not meet and sums have one order.
class EmissionsGrads {
 public:
  EmissionsGrads(std::vector<Weights*> grads, std::vector<int32_t> labels);
  EmissionsGrad at(size_t example) const;
  /// Adds the buffers to the gradients they stand for.
  void join() const;

 private:
  std::vector<Weights*> grads_;
  std::vector<int32_t> labels_;
  std::vector<bool> is_unset_;
  std::vector<Weights> own_;
  bool is_large_ = false;
};

/// The weights of a dense linear graph as a matrix.
Emissions view_emissions(const Graph& graph);

/// Whether `factor` is the graph of a product rather than its emissions; throws if it is neither.
bool is_graph_factor(const char* op, const Graph& product, const Graph& factor);

/// The level of rules that set all rows of gradients: what others add comes later.
inline constexpr int32_t kFillsRows = 16;

/// Sets the elements `positions` of `out` to the forward scores of `graphs` there, which are dense
/// linear graphs.
void score_frames(const char* op, const std::vector<Graph>& graphs,
                  std::span<const size_t> positions, std::vector<Graph>& out);

/// How many of `num_examples` examples of one graph a kernel runs side by side. It does not depend
/// on the number of threads, since sums over examples do depend on it.
size_t chunk_size(Kernel kernel, size_t num_examples);

/// Of `num_frames` frames of `frame_bytes` each, every how many to keep if `num_examples` like it
/// run together.
int32_t history_stride(int64_t num_frames, int64_t frame_bytes, int64_t num_examples);

}  // namespace arcgrad::trellis
