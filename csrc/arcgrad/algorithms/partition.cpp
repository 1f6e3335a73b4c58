#include "arcgrad/algorithms/partition.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "arcgrad/runtime/hash_index.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Without cycles, nodes are visited after those that they lead to, and two nodes are equal if they
// have the same arcs to the same classes (Revuz 1992, "Minimisation of acyclic deterministic
// automata in linear time"), by a hash table instead of sorting. With cycles, a partition of the
// nodes and one of the arcs refine each other (Hopcroft 1971; in the form of Valmari 2012, "Fast
// brief practical DFA minimization"), in O(arcs * log(nodes)).

namespace arcgrad {
namespace {

/// The classes of an acyclic graph.
class AcyclicPartition {
 public:
  explicit AcyclicPartition(const Futures& futures) : futures_(futures) {}

  Column run() && {
    const Topology& t = futures_.topology;
    class_.resize(static_cast<size_t>(t.num_nodes()));
    InterruptPoll poll;
    for (int32_t position = t.num_nodes() - 1; position >= 0; --position) {
      const int32_t n = t.order().node(position);
      sign(n);
      poll(1 + std::ssize(signature_));
      class_[n] = find_or_add();
    }
    return std::move(class_);
  }

 private:
  using Step = std::pair<int32_t, int32_t>;  // a symbol, and the class that it leads to

  /// Sets signature_ to what distinguishes a node.
  void sign(int32_t node) {
    const Adjacency& out = futures_.topology.out();
    signature_.clear();
    for (int32_t k = out.offset[node]; k < out.offset[node + 1]; ++k)
      if (const int32_t symbol = futures_.symbols[out.arc(k)]; symbol >= 0)
        signature_.push_back({symbol, class_[out.node[k]]});
    if (signature_.size() > 1 && !std::ranges::is_sorted(signature_)) std::ranges::sort(signature_);
    signature_.push_back({-1, futures_.accepts[node]});
  }
  int32_t find_or_add() {
    uint64_t hash = 0;
    for (const auto& [symbol, to] : signature_)
      hash = mix_hash(hash, static_cast<uint64_t>(symbol) << 32 | static_cast<uint32_t>(to));
    const auto key = static_cast<uint32_t>(hash >> 32);
    const int32_t found = index_.find(key, [&](int32_t id) {
      return std::ranges::equal(std::span(steps_).subspan(begin_[id], begin_[id + 1] - begin_[id]),
                                signature_);
    });
    if (found >= 0) return found;
    const auto id = static_cast<int32_t>(begin_.size()) - 1;
    index_.add(key, id);
    steps_.insert(steps_.end(), signature_.begin(), signature_.end());
    begin_.push_back(steps_.size());
    return id;
  }

  const Futures& futures_;
  Column class_;
  Buffer<Step> signature_;
  // The signatures of the classes.
  Buffer<Step> steps_;
  Buffer<size_t> begin_ = {0};
  HashIndex index_;
};

/// A partition of 0 ... size - 1 into sets, which can be split by marking some elements.
class RefinablePartition {
 public:
  /// One set for each run of equal keys among `elements`, which are sorted by `key`.
  template <class Key>
  RefinablePartition(Column elements, const Key& key)
      : elements_(std::move(elements)), location_(elements_.size()), set_(elements_.size()) {
    for (size_t i = 0; i < elements_.size(); ++i) {
      if (i == 0 || key(elements_[i]) != key(elements_[i - 1])) {
        if (i > 0) end_.push_back(static_cast<int32_t>(i));
        begin_.push_back(static_cast<int32_t>(i));
      }
      location_[elements_[i]] = static_cast<int32_t>(i);
      set_[elements_[i]] = num_sets() - 1;
    }
    if (!elements_.empty()) end_.push_back(static_cast<int32_t>(elements_.size()));
    num_marked_.assign(begin_.size(), 0);
  }

  int32_t num_sets() const { return static_cast<int32_t>(begin_.size()); }
  const Column& sets() const { return set_; }
  std::span<const int32_t> elements(int32_t set) const {
    return std::span(elements_).subspan(static_cast<size_t>(begin_[set]),
                                        static_cast<size_t>(end_[set] - begin_[set]));
  }

  void mark(int32_t element) {
    const int32_t set = set_[element], at = location_[element];
    const int32_t to = begin_[set] + num_marked_[set];
    if (at < to) return;
    elements_[at] = elements_[to];
    location_[elements_[at]] = at;
    elements_[to] = element;
    location_[element] = to;
    if (num_marked_[set]++ == 0) touched_.push_back(set);
  }
  /// Separates marked from other elements. The smaller part of a set is a new set.
  void split() {
    for (const int32_t set : touched_) {
      const int32_t middle = begin_[set] + num_marked_[set];
      num_marked_[set] = 0;
      if (middle == end_[set]) continue;
      const int32_t added = num_sets();
      if (middle - begin_[set] <= end_[set] - middle) {
        begin_.push_back(begin_[set]);
        end_.push_back(middle);
        begin_[set] = middle;
      } else {
        begin_.push_back(middle);
        end_.push_back(end_[set]);
        end_[set] = middle;
      }
      num_marked_.push_back(0);
      for (int32_t i = begin_[added]; i < end_[added]; ++i) set_[elements_[i]] = added;
    }
    touched_.clear();
  }

 private:
  Column elements_, location_, set_;  // location_ and set_ are of each element
  Column begin_, end_, num_marked_;   // of each set; marked elements come first
  Column touched_;                    // the sets with marked elements
};

template <class Key>
RefinablePartition group_by(int32_t size, const Key& key) {
  Column elements(static_cast<size_t>(size));
  std::iota(elements.begin(), elements.end(), 0);
  InterruptPoll poll;
  std::sort(elements.begin(), elements.end(), [&](int32_t a, int32_t b) {
    poll();
    return std::pair(key(a), a) < std::pair(key(b), b);
  });
  return RefinablePartition(std::move(elements), key);
}

Column refine(const Futures& futures) {
  const Topology& t = futures.topology;
  const auto src = t.src();
  const Adjacency& in = t.in();
  RefinablePartition nodes = group_by(t.num_nodes(), [&](int32_t n) { return futures.accepts[n]; });
  // Each set has arcs with one symbol to one set of nodes.
  RefinablePartition arcs = group_by(t.num_arcs(), [&](int32_t a) { return futures.symbols[a]; });
  InterruptPoll poll;
  int32_t next_nodes = 1;  // the first set of nodes needs no step: the others separate it
  for (int32_t c = 0; c < arcs.num_sets(); ++c) {
    for (const int32_t a : arcs.elements(c)) {
      poll();
      if (futures.symbols[a] >= 0) nodes.mark(src[a]);
    }
    nodes.split();
    for (; next_nodes < nodes.num_sets(); ++next_nodes) {
      for (const int32_t n : nodes.elements(next_nodes)) {
        poll(1 + in.offset[n + 1] - in.offset[n]);
        for (int32_t k = in.offset[n]; k < in.offset[n + 1]; ++k) arcs.mark(in.arc(k));
      }
      arcs.split();
    }
  }
  return nodes.sets();
}

}  // namespace

Column partition_by_future(const Futures& futures) {
  return futures.topology.is_acyclic() ? AcyclicPartition(futures).run() : refine(futures);
}

}  // namespace arcgrad
