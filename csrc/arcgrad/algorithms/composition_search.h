#pragma once

// The pairs of nodes that the search of a composition reaches, and the part of them that lies on
// accepted paths.

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/runtime/interrupt_poll.h"

namespace arcgrad {

/// The limit on the arcs that the search of a composition may reach.
class SearchLimit {
 public:
  /// The default of `max_arcs` is what half of the memory of the machine holds.
  SearchLimit(std::string_view op, const Topology& first, const Topology& second,
              std::optional<int64_t> max_arcs = std::nullopt);
  void check(int64_t num_nodes, int64_t num_arcs) const {
    if (std::max(num_nodes - 1, num_arcs) > max_arcs_) [[unlikely]]
      fail_size(num_nodes, num_arcs);
  }

 private:
  [[noreturn]] void fail_size(int64_t num_nodes, int64_t num_arcs) const;
  std::string_view op_;
  const Topology& first_;
  const Topology& second_;
  bool is_default_;
  int64_t max_arcs_;
};

/// Pairs of nodes and the arcs between them, in the order of their sources. The pairs of start
/// nodes come first.
class CompositionSearch {
 public:
  /// The two input arcs that an arc is made of; -1 for an input that takes no arc.
  struct Parents {
    int32_t first, second;
  };

  /// Adds the pairs of start nodes.
  CompositionSearch(std::string_view op, const Topology& first, const Topology& second,
                    uint64_t num_filters, std::optional<int64_t> max_arcs = std::nullopt);

  /// Searches breadth first: `expand(pair)` calls add() for each arc of the pair. Pairs are
  /// expanded in batches, so that data read at random can be prefetched; `prefetch(begin, end)` is
  /// called before the pairs [begin, end) are expanded.
  template <class Prefetch, class Expand>
  void explore(const Prefetch& prefetch, const Expand& expand) {
    constexpr int32_t kBatch = 32;
    constexpr size_t kAhead = 32;
    InterruptPoll poll;
    for (int32_t n = 0; n < num_nodes();) {
      const int32_t end = std::min(num_nodes(), n + kBatch);
      prefetch(n, end);
      targets_.clear();
      for (; n < end; ++n) {
        expand(pair(n));
        check_size();
        offset_.push_back(static_cast<int32_t>(parents_.size()));
      }
      poll(kBatch + std::ssize(targets_));
      for (size_t i = 0; i < targets_.size(); ++i) {
        if (i + kAhead >= kPrefetched && i + kAhead < targets_.size())
          ids_.prefetch(targets_[i + kAhead]);
        dst_.push_back(ids_[targets_[i]]);
      }
    }
  }
  void add(Parents parents, const Pair& to) {
    const PairIds::Key target = ids_.key(to);
    if (targets_.size() < kPrefetched) ids_.prefetch(target);
    targets_.push_back(target);
    parents_.push_back(parents);
  }

  int32_t num_nodes() const { return ids_.size(); }
  int32_t num_start() const { return num_start_; }
  Pair pair(int32_t node) const { return ids_.pair(node); }
  bool accepts_first(int32_t node) const { return first_accepts_[node]; }
  bool accepts_second(int32_t node) const { return second_accepts_[node]; }
  bool is_accept(int32_t node) const {
    const Pair pair = ids_.pair(node);
    return first_accepts_[pair.first] && second_accepts_[pair.second];
  }
  /// Node n has the arcs [begin(n), begin(n + 1)).
  int32_t begin(int32_t node) const { return offset_[node]; }
  int32_t dst(int32_t arc) const { return dst_[arc]; }
  Parents parents(int32_t arc) const { return parents_[arc]; }

 private:
  /// How many destinations of a batch are prefetched as they are found: what the cache holds.
  static constexpr size_t kPrefetched = 1024;

  void check_size() const { limit_.check(num_nodes(), parents_.size()); }

  PairIds ids_;
  PodVector<int32_t> offset_, dst_;
  PodVector<Parents> parents_;
  /// The destinations of the arcs of the current batch.
  std::vector<PairIds::Key> targets_;
  SearchLimit limit_;
  std::vector<bool> first_accepts_, second_accepts_;
  int32_t num_start_ = 0;
};

/// The nodes and arcs of a search that lie on accepted paths, without labels.
struct AcceptedPaths {
  Arrays arrays;
  Column nodes;          // of each node, its number in the search
  Column first, second;  // of each arc, its parents
};
AcceptedPaths find_accepted_paths(const CompositionSearch& search);

}  // namespace arcgrad
