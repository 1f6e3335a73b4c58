#include "arcgrad/algorithms/difference.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "arcgrad/algorithms/composition_search.h"
#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/pair_ids.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/algorithms/subsets.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"

// The composition of the first graph with the complement of the second, which is not built: a
// breadth-first search over pairs of a node of the first graph and the state of a deterministic
// automaton of the second. Where that has no arc, the pair goes on without a state, and accepts
// what the first graph accepts. Nodes on no accepted path are dropped at the end.
//
// The automaton is the second graph itself if it is deterministic, and else its subsets.
// Cost: O(arcs of the search), apart from the label lookups.

namespace arcgrad {
namespace {

/// A deterministic graph: state n + 1 is node n, and 0 is the empty state.
class Deterministic {
 public:
  explicit Deterministic(const Topology& topology)
      : topology_(topology), index_(topology.index(Side::input)) {
    accepts_.resize(static_cast<size_t>(topology.num_nodes()) + 1);
    for (const int32_t n : topology.accept()) accepts_[n + 1] = true;
  }
  int32_t start() const { return topology_.start().empty() ? 0 : topology_.start()[0] + 1; }
  int32_t num_states() const { return topology_.num_nodes() + 1; }
  bool accepts(int32_t state) const { return accepts_[state]; }

  /// The states after labels that ascend.
  class LabelCursor {
   public:
    LabelCursor(const Deterministic& all, int32_t state) : index_(all.index_) {
      if (state == 0) return;
      at_ = index_.label.begin() + index_.offset[state - 1];
      end_ = index_.label.begin() + index_.offset[state];
    }
    int32_t next(int32_t label) {
      constexpr int64_t kFew = 8;  // slots that are compared one by one
      if (end_ - at_ > kFew)
        at_ = std::lower_bound(at_, end_, label);
      else
        while (at_ != end_ && *at_ < label) ++at_;
      return at_ != end_ && *at_ == label ? index_.dst[at_ - index_.label.begin()] + 1 : 0;
    }

   private:
    const LabelIndex& index_;
    Column::const_iterator at_{}, end_{};
  };
  LabelCursor cursor(int32_t state) const { return {*this, state}; }

 private:
  const Topology& topology_;
  const LabelIndex& index_;
  std::vector<bool> accepts_;
};

/// Any graph.
class Determinized {
 public:
  Determinized(const char* op, TopologyPtr topology, int64_t max_states)
      : subsets_(op, std::move(topology), max_states) {}
  int32_t start() { return subsets_.start(); }
  // States are counted while they are found.
  int32_t num_states() const { return std::numeric_limits<int32_t>::max(); }
  bool accepts(int32_t state) const { return subsets_.accepts(state); }

  struct LabelCursor {
    Subsets& subsets;
    int32_t state;
    int32_t next(int32_t label) const { return subsets.next(state, label); }
  };
  LabelCursor cursor(int32_t state) { return {subsets_, state}; }

 private:
  Subsets subsets_;
};

/// The pairs that start nodes reach, and the weights of the first graph that they take theirs from.
struct PairSearch {
  Arrays arrays;
  Column weights;
};

template <class Automaton>
PairSearch search(const char* op, const Topology& first, Automaton automaton,
                  const SearchLimit& limit) {
  const LabelIndex& index = first.index(Side::input);
  PairIds ids(op, first.num_nodes(), automaton.num_states(), 1);
  PairSearch out;
  const int32_t start = automaton.start();
  for (const int32_t n : first.start()) out.arrays.start.push_back(ids[ids.key({n, start})]);
  PodVector<int32_t> src, dst, arcs;
  InterruptPoll poll;
  for (int32_t p = 0; p < ids.size(); ++p) {
    const Pair from = ids.pair(p);
    if (first.is_accept(from.first) && !automaton.accepts(from.second))
      out.arrays.accept.push_back(p);
    const int32_t begin = index.offset[from.first], end = index.offset[from.first + 1];
    poll(1 + end - begin);
    auto cursor = automaton.cursor(from.second);
    for (int32_t slot = begin; slot < end; ++slot) {
      const int32_t label = index.label[slot];
      const int32_t state = label == kEpsilon ? from.second : cursor.next(label);
      src.push_back(p);
      dst.push_back(ids[ids.key({index.dst[slot], state})]);
      arcs.push_back(index.arc[slot]);
    }
    limit.check(ids.size(), src.size());
  }
  out.arrays.num_nodes = ids.size();
  const auto copy = [&](const PodVector<int32_t>& from, Column& to) {
    to.resize(static_cast<size_t>(from.size()));
    for (int64_t k = 0; k < from.size(); ++k) to[k] = from[k];
  };
  copy(src, out.arrays.src);
  copy(dst, out.arrays.dst);
  copy(arcs, out.weights);
  if (first.has_node_weights()) {
    out.arrays.has_node_weights = true;
    for (const int32_t p : out.arrays.start)
      out.weights.push_back(first.start_weight(ids.pair(p).first));
    for (const int32_t p : out.arrays.accept)
      out.weights.push_back(first.accept_weight(ids.pair(p).first));
  }
  const auto label = first.ilabel();
  out.arrays.ilabel.resize(out.arrays.src.size());
  for (size_t k = 0; k < out.arrays.ilabel.size(); ++k)
    out.arrays.ilabel[k] = label[out.weights[k]];
  return out;
}

}  // namespace

void require_acceptor(const char* op, const char* what, const Graph& graph) {
  require_no_failures(op, graph.topology());
  const Topology& t = graph.topology();
  if (t.is_acceptor()) return;
  const auto a = std::ranges::mismatch(t.ilabel(), t.olabel()).in1 - t.ilabel().begin();
  fail(op, what, " must be an acceptor (input label equal to output label on every arc), but arc ",
       a, " has labels ", t.ilabel()[a], ":", t.olabel()[a], "; project it first");
}

Graph difference_as(const char* op, const Graph& first, const Graph& second,
                    std::optional<int64_t> max_arcs) {
  require(max_arcs.value_or(0) >= 0, op, "max_arcs must be 0 or more, but it is ",
          max_arcs.value_or(0));
  const SymbolTables symbols = compose_symbols(op, first, second);
  const TopologyPtr excluded = possible_arcs(second).topology;
  const Topology& t = first.topology();
  const SearchLimit limit(op, t, *excluded, max_arcs);
  constexpr int64_t kMany = 1'000'000;
  PairSearch found =
      is_deterministic(*excluded)
          ? search(op, t, Deterministic(*excluded), limit)
          : search(
                op, t,
                Determinized(op, excluded, max_arcs.value_or(kMany + 10 * excluded->num_nodes())),
                limit);
  found.arrays.symbols = symbols;
  auto topology = std::make_shared<const Topology>(std::move(found.arrays));
  const Connected& kept = connected(*topology);
  Column weights = std::move(found.weights);
  if (kept.topology) {
    const Column all = std::exchange(weights, Column(kept.arcs.size()));
    for (size_t k = 0; k < weights.size(); ++k) weights[k] = all[kept.arcs[k]];
  }
  return record_moves(op, kept.topology ? kept.topology : topology,
                      {{first, ArcMap::gather(std::move(weights))}, {second, ArcMap::gather({})}});
}

}  // namespace arcgrad
