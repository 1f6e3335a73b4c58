#pragma once

// What the formats of other programs have in common: they number labels from 1, with 0 for epsilon,
// they have one start node, and accept nodes have weights.

#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "arcgrad/core/graph.h"
#include "arcgrad/io/io.h"

namespace arcgrad {

/// Labels in files where 0 is epsilon: label k is `offset` higher there.
class LabelRule {
 public:
  /// Throws unless `offset` is 0 or more.
  LabelRule(const char* op, int32_t offset);

  /// Whether a label of a file has a counterpart.
  bool is_known(int32_t label) const { return label == 0 || (label >= offset_ && label > 0); }
  /// The counterpart of a label of a file.
  int32_t read(int32_t label) const { return label == 0 ? kEpsilon : label - offset_; }
  /// The label in a file. Throws if it would be that of epsilon, or too large.
  int32_t write(int32_t label) const {
    if (label == kEpsilon) return 0;
    const int64_t there = int64_t{label} + offset_;
    if (label < 0 || there < 1 || there > std::numeric_limits<int32_t>::max()) [[unlikely]]
      fail_write(label);
    return static_cast<int32_t>(there);
  }
  /// What is wrong with a label of a file, for messages: `must be ...`.
  std::string wanted() const;

 private:
  [[noreturn]] void fail_write(int32_t label) const;
  const char* op_;
  int32_t offset_;
};

/// The cost of a score, and the score of a cost. A zero has no sign.
template <class T>
T negated(T value) {
  return value == 0 ? T{0} : -value;
}

template <class T>
Weights to_weights(std::span<const T> values) {
  Weights out =
      Weights::uninitialized(static_cast<int64_t>(values.size()),
                             sizeof(T) == sizeof(float) ? DType::float32 : DType::float64);
  std::copy(values.begin(), values.end(), out.fill<T>().begin());
  return out;
}

/// What a file of another program holds, in our labels and scores.
struct ForeignGraph {
  Arrays arrays;
  /// One per arc.
  Weights weights;
  /// One per accept node, in ascending order of nodes.
  std::vector<double> accept_weights;
};

/// The graph; errors start with `op` and say that `name` is invalid. Drops the output labels of an
/// acceptor, and converts the weights to the dtype of the options.
Graph to_graph(ForeignGraph content, const LoadOptions& options, const char* op,
               const std::string& name);

/// The score of the two costs of a lattice of Kaldi.
inline double lattice_score(double graph, double acoustic, const LoadOptions& options) {
  // Scaling infinity by 0 would give NaN.
  if (graph == INFINITY || acoustic == INFINITY) return -INFINITY;
  return negated(options.graph_scale * graph + options.acoustic_scale * acoustic);
}

/// A compact lattice of Kaldi, whose arcs and ends have a string of labels.
class CompactLattice {
 public:
  /// Adds an arc with a word; the labels of add_label() follow.
  void add_arc(int32_t src, int32_t dst, int32_t word, double weight);
  void add_end(int32_t state, double weight) { add_arc(state, kNoState, kEpsilon, weight); }
  void add_label(int32_t label) { labels_.push_back(label); }

  /// The graph in which a string of n labels is a row of n arcs, of which the first has the weight,
  /// and the word as its output label.
  ForeignGraph expand(int64_t num_states, const char* op, const std::string& name) &&;

 private:
  static constexpr int32_t kNoState = -1;
  struct WordArc {
    int32_t src, dst, word;
    double weight;
    size_t first_label;
  };
  std::vector<WordArc> arcs_;
  Column labels_;
};

/// Throws if a file of `size` bytes has far more nodes than a file of this size describes: the
/// arrays of a graph grow with its number of nodes, which damage makes large.
void require_plausible(const char* op, const std::string& name, int64_t num_nodes, size_t size);
/// Throws if a weight is NaN, which no format of costs has.
void require_numbers(const char* op, const std::string& name, const Weights& weights);
/// Throws unless all weights are float32, or float64 with values that float32 holds exactly.
void require_float32(const char* op, const Graph& graph, const char* format);

/// A graph as other formats describe it: state by state, with one start state. Several start nodes,
/// or a start node with a weight, are reached from a new last state by epsilon arcs.
class StateList {
 public:
  StateList(const char* op, const Graph& graph);

  int32_t num_states() const { return num_states_; }
  int64_t num_arcs() const { return topology_->num_arcs() + static_cast<int64_t>(entries_.size()); }
  /// -1 if the graph has no start node.
  int32_t start() const { return start_; }
  int32_t num_arcs(int32_t state) const;
  /// The score of ending in a state; -inf unless it is an accept node.
  double accept_weight(int32_t state) const { return accept_[static_cast<size_t>(state)]; }
  DType dtype() const { return weights_.dtype(); }

  /// Calls `visit(ilabel, olabel, weight, dst)` for each arc of a state, with weights of type T,
  /// which must be that of the graph.
  template <class T, class Visit>
  void for_each_arc(int32_t state, const Visit& visit) const {
    if (state == topology_->num_nodes()) {
      for (const auto& [node, weight] : entries_)
        visit(kEpsilon, kEpsilon, static_cast<T>(weight), node);
      return;
    }
    const auto values = weights_.view<T>();
    for (int32_t slot = out_->offset[static_cast<size_t>(state)];
         slot < out_->offset[static_cast<size_t>(state) + 1]; ++slot) {
      const auto a = static_cast<size_t>(out_->arc(slot));
      visit(ilabel_[a], olabel_[a], values[a], dst_[a]);
    }
  }

 private:
  struct EntryArc {
    int32_t node;
    double weight;
  };
  TopologyPtr topology_;
  const Adjacency* out_;
  std::span<const int32_t> ilabel_, olabel_, dst_;
  Weights weights_;
  std::vector<double> accept_;
  std::vector<EntryArc> entries_;
  int32_t num_states_ = 0, start_ = -1;
};

}  // namespace arcgrad
