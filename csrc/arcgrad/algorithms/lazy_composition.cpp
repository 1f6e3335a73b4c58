#include "arcgrad/algorithms/lazy_composition.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "arcgrad/algorithms/failure.h"
#include "arcgrad/algorithms/node_weights.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/autograd/arc_map.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

/// States of the epsilon filter, as in compose_topologies.cpp.
constexpr int32_t kFree = 0, kFirstWaits = 1, kEnding = 2;

}  // namespace

/// The first factor (without `left`), or the composition of a level with a factor.
class LazyComposition::Level {
 public:
  struct LevelArc {
    int32_t ilabel, olabel, dst;
    int32_t left, right;  // arcs that it is made of, or -1
    int32_t matched_at;   // the node of the factor that matched by way of failure arcs, or -1
    double weight;
  };

  Level(const char* op, Level* left, const Graph& factor)
      : left_(left),
        topology_(factor.topology()),
        weights_(factor.weights().to_vector()),
        index_(topology_.index(left ? Side::input : Side::output)),
        failures_(left ? find_failures(op, topology_, Side::input) : nullptr) {
    if (left_ == nullptr) num_own_ = topology_.num_nodes();
    accepts_.resize(static_cast<size_t>(topology_.num_nodes()));
    for (const int32_t node : topology_.accept()) accepts_[static_cast<size_t>(node)] = true;
  }

  Column start() {
    Column out;
    if (left_ == nullptr) {
      for (const int32_t node : topology_.start()) out.push_back(node);
      return out;
    }
    for (const int32_t first : left_->start())
      for (const int32_t second : topology_.start()) out.push_back(number(first, second, kFree));
    return out;
  }
  int32_t num_nodes() const { return left_ ? static_cast<int32_t>(nodes_.size()) : num_own_; }
  bool is_accept(int32_t node) const {
    if (left_ == nullptr) return accepts_[static_cast<size_t>(node)];
    const LevelNode& at = nodes_[static_cast<size_t>(node)];
    return left_->is_accept(at.left) && accepts_[static_cast<size_t>(at.right)];
  }
  /// The arcs of a node, as a range of arc().
  std::pair<int32_t, int32_t> expand(int32_t node) {
    const auto at = static_cast<size_t>(node);
    if (ranges_.size() <= at) ranges_.resize(at + 1, {-1, -1});
    if (ranges_[at].first >= 0) return ranges_[at];
    const auto begin = static_cast<int32_t>(arcs_.size());
    if (left_ == nullptr)
      expand_factor(node);
    else
      expand_pair(nodes_[at]);
    require_size("beam_search", "arcs", static_cast<int64_t>(arcs_.size()));
    return ranges_[at] = {begin, static_cast<int32_t>(arcs_.size())};
  }
  const LevelArc& arc(int32_t k) const { return arcs_[static_cast<size_t>(k)]; }
  Level* left() const { return left_; }
  const Failures* failures() const { return failures_; }
  const Topology& topology() const { return topology_; }

 private:
  struct LevelNode {
    int32_t left, right, filter;
    bool operator==(const LevelNode&) const = default;
  };
  struct HashNode {
    size_t operator()(const LevelNode& n) const {
      uint64_t x =
          (uint64_t{static_cast<uint32_t>(n.left)} << 32U | static_cast<uint32_t>(n.right));
      x = (x + static_cast<uint64_t>(n.filter)) * 0x9e3779b97f4a7c15U;
      return x ^ (x >> 29U);
    }
  };

  int32_t number(int32_t left, int32_t right, int32_t filter) {
    const auto [at, is_new] =
        ids_.try_emplace({left, right, filter}, static_cast<int32_t>(nodes_.size()));
    if (is_new) nodes_.push_back({left, right, filter});
    return at->second;
  }
  double weight(int32_t arc) const { return weights_[static_cast<size_t>(arc)]; }

  void expand_factor(int32_t node) {
    for (int32_t k = index_.offset[node]; k < index_.offset[node + 1]; ++k) {
      const int32_t a = index_.arc[k];
      arcs_.push_back(
          {topology_.ilabel()[a], topology_.olabel()[a], index_.dst[k], -1, a, -1, weight(a)});
    }
  }

  void expand_pair(const LevelNode from) {
    const auto [begin, end] = left_->expand(from.left);
    const bool left_accepts = left_->is_accept(from.left);
    const auto alone = [&](int32_t a, int32_t dst, int32_t filter) {
      const int32_t olabel = topology_.olabel()[a];
      arcs_.push_back({kEpsilon, olabel == kPhi ? kEpsilon : olabel, number(from.left, dst, filter),
                       -1, a, -1, weight(a)});
    };
    Failures::ArcSlots own{};
    own.epsilon = index_.offset[from.right];
    if (failures_ != nullptr) {
      own = failures_->slots(from.right);
      const bool ends = failures_->ends(from.right), is_ending = from.filter == kEnding;
      if (is_ending && ends) {
        for (int32_t k = own.epsilon; k < own.label; ++k)
          if (failures_->ends(index_.dst[k])) alone(index_.arc[k], index_.dst[k], kEnding);
      } else if (!ends && left_accepts && failures_->can_end(from.right)) {
        alone(failures_->arc(from.right), failures_->parent(from.right), kEnding);
      }
      if (is_ending) return;
    }
    bool has_epsilon = false, has_label = false;
    for (int32_t k = begin; k < end; ++k)
      (left_->arc(k).olabel == kEpsilon ? has_epsilon : has_label) = true;
    // If the left path can only take epsilon arcs, its turn is first.
    if (left_accepts || has_label)
      for (int32_t k = own.epsilon;
           k < index_.offset[from.right + 1] && index_.label[k] == kEpsilon; ++k)
        alone(index_.arc[k], index_.dst[k], has_epsilon ? kFirstWaits : kFree);
    for (int32_t k = begin; k < end; ++k) {
      const LevelArc left = left_->arc(k);
      if (left.olabel == kEpsilon) {
        if (from.filter != kFirstWaits)
          arcs_.push_back(
              {left.ilabel, kEpsilon, number(left.dst, from.right, kFree), k, -1, -1, left.weight});
        continue;
      }
      match(from.right, left.olabel, [&](int32_t slot, bool by_failure) {
        const int32_t a = index_.arc[slot];
        double sum = left.weight + weight(a);
        for (int32_t node = from.right; by_failure && node != topology_.src()[a];
             node = failures_->parent(node))
          sum += weight(failures_->arc(node));
        arcs_.push_back({left.ilabel, resolved_label(topology_.olabel()[a], left.olabel),
                         number(left.dst, index_.dst[slot], kFree), k, a,
                         by_failure ? from.right : -1, sum});
      });
    }
  }

  template <class Visit>
  void match(int32_t node, int32_t label, const Visit& visit) const {
    if (failures_ != nullptr) {
      failures_->match(node, label, [&](int32_t slot) { visit(slot, true); });
      return;
    }
    const auto first = index_.label.begin() + index_.offset[node];
    const auto last = index_.label.begin() + index_.offset[node + 1];
    for (auto at = std::lower_bound(first, last, label); at != last && *at == label; ++at)
      visit(static_cast<int32_t>(at - index_.label.begin()), false);
  }

  Level* left_;
  const Topology& topology_;
  std::vector<double> weights_;
  const LabelIndex& index_;
  const Failures* failures_;
  int32_t num_own_ = 0;
  std::vector<bool> accepts_;
  std::unordered_map<LevelNode, int32_t, HashNode> ids_;
  std::vector<LevelNode> nodes_;
  std::vector<std::pair<int32_t, int32_t>> ranges_;
  std::vector<LevelArc> arcs_;
};

LazyComposition::LazyComposition(const char* op, std::vector<Graph> factors)
    : op_(op), factors_(std::move(factors)) {
  require(factors_.size() >= 2, op, "a lazy composition must have 2 graphs or more, but it has ",
          factors_.size());
  Level* last = nullptr;
  for (size_t i = 0; i < factors_.size(); ++i) {
    const Topology& topology = factors_[i].topology();
    require(!topology.has_node_weights(), op,
            "graphs of a lazy composition must have no weights of nodes, but graph ", i,
            " has them; compose without lazy");
    if (i == 0)
      require_no_failures(op, topology);
    else
      require_matched(op, topology, Side::input);
    levels_.push_back(std::make_unique<Level>(op, last, factors_[i]));
    last = levels_.back().get();
  }
  start_ = last->start();
}

LazyComposition::~LazyComposition() = default;

int32_t LazyComposition::num_nodes() const { return levels_.back()->num_nodes(); }
bool LazyComposition::is_accept(int32_t node) const { return levels_.back()->is_accept(node); }

void LazyComposition::expand(int32_t node) {
  const auto at = static_cast<size_t>(node);
  if (begin_.size() <= at) {
    begin_.resize(at + 1, -1);
    end_.resize(at + 1, -1);
  }
  if (begin_[at] >= 0) return;
  Level& level = *levels_.back();
  const auto [first, last] = level.expand(node);
  std::vector<int32_t> order(static_cast<size_t>(last - first));
  std::iota(order.begin(), order.end(), first);
  std::ranges::stable_sort(order, {}, [&](int32_t k) { return level.arc(k).ilabel; });
  begin_[at] = static_cast<int32_t>(weights_.size());
  for (const int32_t k : order) {
    const Level::LevelArc& arc = level.arc(k);
    arcs_.label.push_back(arc.ilabel);
    arcs_.arc.push_back(static_cast<int32_t>(weights_.size()));
    arcs_.dst.push_back(arc.dst);
    olabel_.push_back(arc.olabel);
    source_.push_back(node);
    made_of_.push_back(k);
    weights_.push_back(arc.weight);
  }
  end_[at] = static_cast<int32_t>(weights_.size());
}

Graph LazyComposition::graph() const {
  const size_t count = weights_.size();
  Arrays out;
  out.num_nodes = num_nodes();
  out.start = start_;
  std::ranges::sort(out.start);
  for (int32_t node = 0; node < out.num_nodes; ++node)
    if (is_accept(node)) out.accept.push_back(node);
  out.src = source_;
  out.dst = arcs_.dst;
  out.ilabel = arcs_.label;
  out.olabel = olabel_;
  std::vector<Moved> inputs;
  Column arcs = made_of_;  // of the level, for each arc
  for (size_t i = levels_.size(); i-- > 0;) {
    const Level& level = *levels_[i];
    Column own(count, -1);
    FailureSteps steps(count);
    for (size_t k = 0; k < count; ++k) {
      if (arcs[k] < 0) continue;
      const Level::LevelArc& arc = level.arc(arcs[k]);
      own[k] = arc.right;
      if (arc.matched_at >= 0)
        steps.add(*level.failures(), arc.matched_at, level.topology().src()[arc.right], k);
      arcs[k] = arc.left;
    }
    inputs.push_back({factors_[i], ArcMap::gather(std::move(own))});
    for (ArcMap& map : std::move(steps).maps()) inputs.push_back({factors_[i], std::move(map)});
  }
  out.symbols = compose_symbols(op_, factors_.front(), factors_.back());
  return record_moves(op_, std::make_shared<Topology>(std::move(out)), std::move(inputs));
}

}  // namespace arcgrad
