#include "arcgrad/algorithms/subset_construction.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "arcgrad/algorithms/connect.h"
#include "arcgrad/algorithms/subset_forest.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"
#include "arcgrad/runtime/hash_index.h"
#include "arcgrad/runtime/interrupt_poll.h"

// Weighted determinization (Mohri 1997, "Finite-state transducers in language and speech
// processing") and disambiguation (Mohri and Riley 2015, "On the disambiguation of weighted
// automata"), on pairs of labels.
//
// A node of the result is a subset: the nodes that the paths of a string reach, each with its
// residual, the score u of these paths divided by a norm (scores are divided by subtraction).
// Strings with the same nodes and residuals lead to the same subset. With u(S, q) the score of the
// paths to q, and T the subset after a label,
//     u(T, d) = sum over q in S and arcs (q, d) with the label of u(S, q) * weight.
//
// To determinize, the norm is the sum of all u, and the arc (S, T) has the weight norm(T) /
// norm(S).
//
// To disambiguate, a node of the result is a node q, its focus, and the subset of the nodes that
// equal strings reach and that have a common future with q; the norm is u(S, q). Every path to q
// has a copy, and one is kept: the arc to d is kept if q is the least node of the subset that has
// such an arc, and q accepts if it is the least that accepts. So the last node of a string, and
// then each node before it, is determined.
//
// Subsets are found with plain numbers. For the gradient, a forest (subset_forest.h) has a copy of
// each node of each subset, connected along the string that led to the subset first; the u are the
// path scores of the copies. A subset of one node begins a new tree, since its residual is always
// one.
//
// Cost: O(arcs of the subsets, sorted); the result may be exponentially larger than the graph.

namespace arcgrad {
namespace {

/// A node of a subset.
struct Element {
  int32_t node;
  int32_t copy;  // its copy in the forest
  double level;  // its residual, rounded so that equal residuals are found
  double residual;
};

/// A node of the result.
struct Subset {
  size_t begin, size = 0;  // of its elements
  int32_t focus = -1;      // the index of its focus, or -1
  int32_t norm = -1;       // the score of the forest that is its norm, or -1 for one
  bool is_normed = true;   // false for several start nodes, whose residuals are one
  int32_t parent = -1;     // the subset from which it was reached first, or -1
};

class SubsetConstruction {
 public:
  SubsetConstruction(const Graph& graph, const LabelCodes& codes, const SubsetOptions& options)
      : graph_(graph),
        topology_(graph.topology()),
        weights_(graph.weights()),
        codes_(codes),
        options_(options),
        keeps_forest_(tracks(graph)),
        // Residuals that differ by rounding errors only are the same.
        levels_(graph.dtype() == DType::float32 ? std::ldexp(1.0, 20) : std::ldexp(1.0, 36)),
        alone_(static_cast<size_t>(topology_.num_nodes()), -1) {}

  /// Returns false if there are too many nodes.
  bool run() {
    add_start();
    for (int32_t s = 0; s < num_subsets() && !is_too_large_; ++s) expand(s);
    return !is_too_large_;
  }

  Graph record() && {
    arrays_.symbols = topology_.symbols();
    arrays_.num_nodes = num_subsets();
    if (arrays_.ilabel == arrays_.olabel) arrays_.olabel.clear();
    arrays_.has_node_weights = topology_.has_node_weights() || has_weighted_end_;
    if (arrays_.has_node_weights)
      for (const std::vector<PathEnd>* ends : {&starts_, &accepts_})
        for (const PathEnd& end : *ends) add_weight(end.weight, end.subset);
    std::unique_ptr<Rule> rule;
    if (keeps_forest_)
      rule = make_forest_rule(options_.op, graph_, std::move(forest_), options_.semiring);
    const Graph out =
        arcgrad::record(options_.op, std::make_shared<Topology>(std::move(arrays_)),
                        Weights::from(values_, graph_.dtype()), {&graph_, 1}, std::move(rule));
    if (!has_impossible_ || !connected(out.topology()).topology) return out;
    const Connected& kept = connected(out.topology());
    return record_moves(options_.op, kept.topology, {{out, ArcMap::gather(kept.arcs)}});
  }

 private:
  /// An arc that leaves an element of a subset. They are sorted by label, destination and index.
  struct ElementArc {
    uint64_t key;  // code << 32 | destination
    int32_t index;
    int32_t arc;
    int32_t element;  // index in here_
    double score;

    uint32_t code() const { return static_cast<uint32_t>(key >> 32); }
    int32_t dst() const { return static_cast<int32_t>(key); }
    bool operator<(const ElementArc& other) const {
      return key != other.key ? key < other.key : index < other.index;
    }
  };
  /// A weight of the result: a number and, for the gradient, a weight of the graph or a score of
  /// the forest that is divided by the norm of a subset; -1 if there is none.
  struct Value {
    double number = 0.0;
    int32_t direct = -1, score = -1;
  };
  /// A subset at which paths start or end.
  struct PathEnd {
    int32_t subset;
    Value weight;
  };
  /// A node of the next subset, and the arcs [begin, end) that lead to it.
  struct Member {
    int32_t node;
    size_t begin, end;
    double score;
  };

  bool disambiguates() const { return static_cast<bool>(options_.have_common_future); }
  int32_t num_subsets() const { return static_cast<int32_t>(subsets_.size()); }
  std::span<const Element> elements(int32_t subset) const {
    return std::span(elements_).subspan(subsets_[subset].begin, subsets_[subset].size);
  }
  double sum(double a, double b) const {
    return options_.semiring == Semiring::log ? logadd(a, b) : std::max(a, b);
  }
  double level(double residual) const { return std::nearbyint(residual * levels_) + 0.0; }

  /// The weight of a start or accept node, given by its index or -1.
  double node_weight(int32_t index) const { return index < 0 ? 0.0 : weights_[index]; }
  bool is_possible(int32_t index) {
    const bool is_impossible = node_weight(index) == kNegInf;
    has_impossible_ |= is_impossible;
    return !is_impossible;
  }

  void add_start() {
    std::vector<Element> starts;
    for (const int32_t n : topology_.start())
      if (const int32_t index = topology_.start_weight(n); is_possible(index))
        starts.push_back({n, -1, 0.0, node_weight(index)});
    if (starts.empty()) return;
    const bool is_alone = starts.size() == 1;
    if (keeps_forest_)
      for (Element& e : starts) {
        const int32_t index = topology_.start_weight(e.node);
        e.copy = forest_.add_source();
        if (index < 0 || is_alone) continue;
        const int32_t source = std::exchange(e.copy, forest_.num_nodes++);
        forest_.add_arc(source, e.copy, index);
      }
    for (size_t focus = 0; focus < (disambiguates() ? starts.size() : 1); ++focus) {
      const size_t begin = elements_.size();
      int32_t index = 0;
      // Without a focus, the start weights of several nodes are part of their residuals.
      const bool has_norm = disambiguates() || is_alone;
      const double norm = has_norm ? starts[focus].residual : 0.0;
      for (size_t i = 0; i < starts.size(); ++i) {
        if (disambiguates() && i != focus &&
            !options_.have_common_future(starts[focus].node, starts[i].node))
          continue;
        if (i == focus) index = static_cast<int32_t>(elements_.size() - begin);
        const double residual = starts[i].residual - norm;
        elements_.push_back({starts[i].node, starts[i].copy, level(residual), residual});
      }
      const int32_t weight = topology_.start_weight(starts[focus].node);
      const bool has_target = keeps_forest_ && disambiguates() && !is_alone && weight >= 0;
      const int32_t subset =
          add_subset({.begin = begin,
                      .focus = disambiguates() ? index : -1,
                      .norm = has_target ? forest_.add_target(starts[focus].copy) : -1,
                      .is_normed = has_norm});
      arrays_.start.push_back(subset);
      starts_.push_back({subset, has_norm ? Value{norm, weight} : Value{}});
    }
  }

  /// Adds the elements at the end as a subset.
  int32_t add_subset(Subset subset) {
    if (num_subsets() >= options_.max_nodes) {
      if (!options_.may_fail) fail_size(subset.parent, subset.begin);
      is_too_large_ = true;
    }
    const auto id = num_subsets();
    subset.size = elements_.size() - subset.begin;
    if (subset.size == 1 && subset.is_normed) {
      alone_[elements_.back().node] = id;
    } else {
      found_.add(hash(subset.begin, subset.focus), id);
    }
    subsets_.push_back(subset);
    return id;
  }

  uint32_t hash(size_t begin, int32_t focus) const {
    uint64_t out = static_cast<uint64_t>(focus);
    for (size_t i = begin; i < elements_.size(); ++i)
      out = mix_hash(mix_hash(out, static_cast<uint64_t>(elements_[i].node)),
                     std::bit_cast<uint64_t>(elements_[i].level));
    return static_cast<uint32_t>(out >> 32);
  }
  /// The subset with the nodes and residuals of the elements from `begin` on, or -1.
  int32_t find_subset(size_t begin, int32_t focus) const {
    const auto wanted = std::span(elements_).subspan(begin);
    return found_.find(hash(begin, focus), [&](int32_t id) {
      return subsets_[id].focus == focus &&
             std::ranges::equal(elements(id), wanted, [](const Element& a, const Element& b) {
               return a.node == b.node && a.level == b.level;
             });
    });
  }

  void expand(int32_t subset) {
    const Adjacency& out = topology_.out();
    here_.assign(elements(subset).begin(), elements(subset).end());
    arcs_out_.clear();
    bool is_sorted = true;
    dispatch(weights_.dtype(), [&](auto kind) {
      const auto* weight = weights_.view<decltype(kind)>().data();
      int32_t index = 0;
      for (size_t i = 0; i < here_.size(); ++i) {
        const Element& e = here_[i];
        for (int32_t k = out.offset[e.node]; k < out.offset[e.node + 1]; ++k) {
          const int32_t a = out.arc(k);
          const double w = weight[a];
          if (w == kNegInf) {
            has_impossible_ = true;
            continue;
          }
          const uint64_t key = uint64_t{codes_[a]} << 32 | static_cast<uint32_t>(out.node[k]);
          is_sorted &= arcs_out_.empty() || arcs_out_.back().key <= key;
          arcs_out_.push_back({key, index++, a, static_cast<int32_t>(i), e.residual + w});
        }
      }
    });
    poll_(1 + std::ssize(arcs_out_));
    if (!is_sorted) std::ranges::sort(arcs_out_, std::less());
    end(subset);
    size_t next = 0;
    while (next < arcs_out_.size() && !is_too_large_) {
      const size_t begin = next;
      while (next < arcs_out_.size() && arcs_out_[next].code() == arcs_out_[begin].code()) ++next;
      if (disambiguates())
        advance_focus(subset, begin, next);
      else
        advance_all(subset, begin, next);
    }
  }

  /// Lets paths end in a subset.
  void end(int32_t subset) {
    const Subset& here = subsets_[subset];
    // The elements whose paths may end, and the indices of the weights with which they do.
    ends_.clear();
    for (size_t i = 0; i < here_.size(); ++i)
      if (topology_.is_accept(here_[i].node))
        if (const int32_t index = topology_.accept_weight(here_[i].node); is_possible(index))
          ends_.push_back({static_cast<int32_t>(i), index});
    if (ends_.empty()) return;
    if (disambiguates() && ends_[0].first != here.focus) return;
    arrays_.accept.push_back(subset);
    double number = kNegInf;
    for (const auto& [element, index] : ends_)
      number = sum(number, here_[element].residual + node_weight(index));
    const bool is_all = ends_.size() == (disambiguates() ? 1 : here_.size());
    if (is_all && here.is_normed && !topology_.has_node_weights()) {
      accepts_.push_back({subset, {}});
      return;
    }
    has_weighted_end_ = true;
    Value value{number};
    if (here_.size() == 1 && ends_.size() == 1) {
      value.direct = ends_[0].second;
    } else if (keeps_forest_) {
      const int32_t copy = forest_.num_nodes++;
      for (const auto& [element, index] : ends_) forest_.add_arc(here_[element].copy, copy, index);
      value.score = forest_.add_target(copy);
    }
    accepts_.push_back({subset, value});
  }

  /// Adds the arc of a deterministic graph for the arcs [begin, end), which have one label.
  void advance_all(int32_t subset, size_t begin, size_t end) {
    const ElementArc& only = arcs_out_[begin];
    if (end - begin == 1 && here_.size() == 1 && subsets_[subset].is_normed) {
      const int32_t to = find_or_add_alone(subset, only.dst());
      return add_arc(subset, to, only.code(), {only.score, only.arc});
    }
    const double total = gather(begin, end);
    if (members_.size() == 1) {
      const int32_t to = find_or_add_alone(subset, only.dst());
      return add_sum(subset, to, begin, end, total);
    }
    const size_t first = elements_.size();
    for (const Member& m : members_) add_element(m, total);
    if (const int32_t to = find_subset(first, -1); to >= 0) {
      elements_.resize(first);
      return add_sum(subset, to, begin, end, total);
    }
    int32_t norm = -1;
    if (keeps_forest_) {
      const int32_t copy = forest_.num_nodes++;
      for (size_t m = 0; m < members_.size(); ++m)
        forest_.add_arc(add_copy(first + m, members_[m]), copy, -1);
      norm = forest_.add_target(copy);
    }
    const uint32_t code = only.code();
    const int32_t to = add_subset({.begin = first, .norm = norm, .parent = subset});
    add_arc(subset, to, code, {total, -1, norm});
  }

  /// Adds the arcs of an unambiguous graph for the arcs [begin, end), which have one label.
  void advance_focus(int32_t subset, size_t begin, size_t end) {
    gather(begin, end);
    const uint32_t code = arcs_out_[begin].code();
    const int32_t focus = subsets_[subset].focus;
    for (size_t f = 0; f < members_.size(); ++f) {
      const Member& centre = members_[f];
      if (arcs_out_[centre.begin].element != focus) continue;
      const size_t first = elements_.size();
      int32_t index = 0;
      for (size_t m = 0; m < members_.size(); ++m) {
        if (m == f) index = static_cast<int32_t>(elements_.size() - first);
        if (m == f || options_.have_common_future(centre.node, members_[m].node)) {
          add_element(members_[m], centre.score);
          elements_.back().copy = static_cast<int32_t>(m);
        }
      }
      if (elements_.size() - first == 1) {
        elements_.resize(first);
        const int32_t to = find_or_add_alone(subset, centre.node);
        add_sum(subset, to, centre.begin, centre.end, centre.score);
        continue;
      }
      if (const int32_t to = find_subset(first, index); to >= 0) {
        elements_.resize(first);
        add_sum(subset, to, centre.begin, centre.end, centre.score);
        continue;
      }
      int32_t norm = -1;
      for (size_t i = first; i < elements_.size() && keeps_forest_; ++i) {
        const int32_t copy = add_copy(i, members_[elements_[i].copy]);
        if (i == first + static_cast<size_t>(index)) norm = forest_.add_target(copy);
      }
      const int32_t to =
          add_subset({.begin = first, .focus = index, .norm = norm, .parent = subset});
      add_arc(subset, to, code, {centre.score, -1, norm});
    }
  }

  /// Sets members_ for the arcs [begin, end), and returns the sum of their scores.
  double gather(size_t begin, size_t end) {
    members_.clear();
    double total = kNegInf;
    for (size_t i = begin; i < end; ++i) {
      const ElementArc& arc = arcs_out_[i];
      if (members_.empty() || members_.back().node != arc.dst())
        members_.push_back({arc.dst(), i, i, kNegInf});
      members_.back().end = i + 1;
      members_.back().score = sum(members_.back().score, arc.score);
      total = sum(total, arc.score);
    }
    return total;
  }
  void add_element(const Member& member, double norm) {
    const double residual = member.score - norm;
    elements_.push_back({member.node, -1, level(residual), residual});
  }
  /// The subset of one node.
  int32_t find_or_add_alone(int32_t parent, int32_t node) {
    if (alone_[node] >= 0) return alone_[node];
    elements_.push_back({node, keeps_forest_ ? forest_.add_source() : -1, 0.0, 0.0});
    return add_subset(
        {.begin = elements_.size() - 1, .focus = disambiguates() ? 0 : -1, .parent = parent});
  }
  /// Adds to the forest the copy of an element to which the arcs of a member lead.
  int32_t add_copy(size_t element, const Member& member) {
    const int32_t copy = elements_[element].copy = forest_.num_nodes++;
    for (size_t i = member.begin; i < member.end; ++i)
      forest_.add_arc(here_[arcs_out_[i].element].copy, copy, arcs_out_[i].arc);
    return copy;
  }

  /// Adds an arc whose weight is the sum of the arcs [begin, end).
  void add_sum(int32_t src, int32_t dst, size_t begin, size_t end, double number) {
    const uint32_t code = arcs_out_[begin].code();
    if (end - begin == 1 && here_.size() == 1)
      return add_arc(src, dst, code, {number, arcs_out_[begin].arc});
    if (!keeps_forest_) return add_arc(src, dst, code, {number});
    const int32_t copy = forest_.num_nodes++;
    for (size_t i = begin; i < end; ++i)
      forest_.add_arc(here_[arcs_out_[i].element].copy, copy, arcs_out_[i].arc);
    add_arc(src, dst, code, {number, -1, forest_.add_target(copy)});
  }
  void add_arc(int32_t src, int32_t dst, uint32_t code, const Value& weight) {
    if (values_.size() == INT32_MAX) [[unlikely]]
      require_size(options_.op, "arcs", std::ssize(values_) + 1);
    arrays_.src.push_back(src);
    arrays_.dst.push_back(dst);
    arrays_.ilabel.push_back(codes_.ilabel(code));
    arrays_.olabel.push_back(codes_.olabel(code));
    add_weight(weight, src);
  }
  void add_weight(const Value& weight, int32_t subset) {
    values_.push_back(weight.number);
    if (!keeps_forest_) return;
    forest_.direct.push_back(weight.direct);
    forest_.plus.push_back(weight.score);
    forest_.minus.push_back(weight.score < 0 ? -1 : subsets_[subset].norm);
  }

  /// Explains why there are more than max_nodes subsets. If the new one, which has the elements
  /// from `begin` on and follows `parent`, has the nodes of an earlier one, a string leads back to
  /// them, and has changed their residuals.
  [[noreturn]] void fail_size(int32_t parent, size_t begin) const {
    const char* name = options_.is_original ? "" : " of the graph without epsilon arcs";
    const auto last = std::span(elements_).subspan(begin);
    for (int32_t s = parent; s >= 0; s = subsets_[s].parent) {
      const auto before = elements(s);
      if (!std::ranges::equal(before, last, {}, &Element::node, &Element::node)) continue;
      for (size_t i = 1; i < last.size(); ++i)
        if (last[i].level - last[0].level != before[i].level - before[0].level)
          fail(options_.op, "the scores of nodes ", last[0].node, " and ", last[i].node, name,
               " must differ by the same amount whenever a string returns to both (twins "
               "property), but they differ by ",
               before[0].residual - before[i].residual, " and later by ",
               last[0].residual - last[i].residual,
               "; found after max_nodes = ", options_.max_nodes, " nodes");
    }
    fail(options_.op, "the result may have at most max_nodes = ", options_.max_nodes,
         " nodes, but it has more; the graph has ", topology_.num_nodes());
  }

  const Graph& graph_;
  const Topology& topology_;
  const Weights weights_;
  const LabelCodes& codes_;
  const SubsetOptions& options_;
  const bool keeps_forest_;
  const double levels_;

  Buffer<Element> elements_;
  Buffer<Subset> subsets_;
  Column alone_;     // for each node, the subset of that node
  HashIndex found_;  // all other subsets
  SubsetForest forest_;
  InterruptPoll poll_;
  bool has_weighted_end_ = false, is_too_large_ = false;
  bool has_impossible_ = false;  // whether arcs of weight -inf were left out
  // The result.
  Arrays arrays_;
  Buffer<double> values_;
  std::vector<PathEnd> starts_, accepts_;
  // Of the subset that is expanded.
  Buffer<Element> here_;
  std::vector<std::pair<int32_t, int32_t>> ends_;
  Buffer<ElementArc> arcs_out_;
  std::vector<Member> members_;
};

}  // namespace

Graph construct_subsets(const Graph& graph, const LabelCodes& codes, const SubsetOptions& options) {
  SubsetConstruction construction(graph, codes, options);
  if (!construction.run()) return nullptr;
  return std::move(construction).record();
}

}  // namespace arcgrad
