#include "arcgrad/algorithms/path_scores.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "arcgrad/algorithms/cycle_solver.h"
#include "arcgrad/runtime/error.h"

namespace arcgrad {
namespace {

/// How many slots ahead of its use memory is asked for.
constexpr int32_t kAhead = 32;
/// The same for what is read one after the other, which takes longer to come from memory.
constexpr int32_t kFarAhead = 512;
/// The same for nodes where arcs reach far.
constexpr int32_t kNodesAhead = 64;

constexpr double kEps = std::numeric_limits<double>::epsilon();

/// "{0, 3, 4}", shortened if long, with the names that the caller gave the nodes.
std::string list_nodes(std::span<const int32_t> nodes, std::span<const int32_t> names) {
  std::string out = "{";
  for (size_t i = 0; i < std::min<size_t>(nodes.size(), 8); ++i)
    out += text(i ? ", " : "", names.empty() ? nodes[i] : names[nodes[i]]);
  return out + (nodes.size() > 8 ? ", ...}" : "}");
}

/// Marks what can be reached from `sources` over arcs that are not impossible.
std::vector<bool> reach(const Adjacency& along, std::span<const int32_t> sources,
                        const std::vector<double>& weight) {
  std::vector<bool> seen(along.offset.size() - 1);
  std::vector<int32_t> stack(sources.begin(), sources.end());
  for (int32_t n : sources) seen[n] = true;
  while (!stack.empty()) {
    const int32_t n = stack.back();
    stack.pop_back();
    for (int32_t k = along.offset[n]; k < along.offset[n + 1]; ++k)
      if (!seen[along.node[k]] && weight[along.arc(k)] > kNegInf) {
        seen[along.node[k]] = true;
        stack.push_back(along.node[k]);
      }
  }
  return seen;
}

}  // namespace

void require_scorable(const char* op, const Weights& weights) {
  dispatch(weights.dtype(), [&](auto kind) {
    const auto values = weights.view<decltype(kind)>();
    int32_t bad = 0;  // an integer, so that the loop is vectorised
    for (auto w : values) bad |= w < std::numeric_limits<decltype(kind)>::infinity() ? 0 : 1;
    if (!bad) [[likely]]
      return;
    for (size_t a = 0; a < values.size(); ++a)
      require(values[a] < std::numeric_limits<decltype(kind)>::infinity(), op,
              "weights must be finite or -inf, but arc ", a, " has weight ", values[a]);
  });
}

/// What the constructor hands to the recursions.
struct PathScores::Setup {
  const Options& options;
  Buffer<uint8_t> is_source;
  // Only where the weights are looked at one by one:
  std::vector<double> weight = {};
  std::vector<bool> is_useful = {};
};

PathScores::PathScores(TopologyPtr topology, const Weights& weights,
                       std::span<const int32_t> sources, const Options& options)
    : topology_(std::move(topology)), keep_(options.keep) {
  const Topology& t = *topology_;
  const bool forward = options.direction == Direction::forward;
  const Order& order = t.order();
  const bool is_acyclic = order.is_acyclic(), is_log = options.semiring == Semiring::log;
  // Arcs lie in the order of the nodes they leave, and that order is topological.
  const bool is_in_order = is_acyclic && order.nodes.empty() && t.out().arcs.empty();
  if (is_in_order && is_log && !options.exact_sums && forward) {
    acyclic_ = AcyclicForward::run(t.out(), weights, sources, keep_);
    if (acyclic_) return;
  }
  require_scorable(options.op, weights);
  const bool is_far_best = is_in_order && !is_log && !forward && !keep_ && reaches_far(t.out());
  const auto num_nodes = static_cast<size_t>(t.num_nodes());
  own_order_ = order.nodes;
  if (!forward) std::reverse(own_order_.begin(), own_order_.end());
  is_backwards_ = !forward;
  if (is_far_best || (is_log && is_acyclic && options.exact_sums)) {
    plain_.resize(num_nodes);
  } else if (is_log) {
    scores_.resize(num_nodes);
  } else if (is_acyclic) {
    plain_.resize(num_nodes);
    best_slot_.resize(num_nodes);
    best_node_.resize(num_nodes);
  } else {
    plain_.assign(num_nodes, kNegInf);
    best_slot_.assign(num_nodes, -1);
    stay_.resize(num_nodes);
  }
  if (keep_) {
    // The recursions without cycles in the log semiring write every entry.
    term_buffer_ = is_acyclic && is_log ? Weights::uninitialized(t.num_arcs(), DType::float64)
                                        : Weights::zeros(t.num_arcs(), DType::float64);
    term_ = term_buffer_.fill<double>().data();
    inverse_sum_.assign(num_nodes, 0.0);
  }
  Setup setup{options, Buffer<uint8_t>(num_nodes, 0)};
  for (int32_t n : sources) setup.is_source[n] = 1;
  adjacency_ = forward ? &t.in() : &t.out();
  if (is_acyclic) {
    dispatch(weights.dtype(), [&](auto kind) {
      const auto* weight = weights.view<decltype(kind)>().data();
      if (is_far_best)
        run_far_best(weight, setup);
      else if (!is_log)
        run_acyclic_best(weight, setup);
      else if (options.exact_sums)
        run_acyclic_exact(weight, setup);
      else
        run_acyclic(weight, setup);
    });
  } else {
    setup.weight = weights.to_vector();
    setup.is_useful = reach(forward ? t.out() : t.in(), sources, setup.weight);
    if (options.targets) {
      const std::vector<bool> ends = reach(*adjacency_, *options.targets, setup.weight);
      for (size_t n = 0; n < num_nodes; ++n) setup.is_useful[n] = setup.is_useful[n] && ends[n];
    }
    run_components(setup);
  }
  if (is_far_best) {
    weights_ = weights;
    is_source_ = std::move(setup.is_source);
  }
  if (keep_ && !is_log)
    for (size_t n = 0; n < num_nodes; ++n)
      if (best_slot_[n] >= 0) term_[best_slot_[n]] = inverse_sum_[n] = 1.0;
}

template <class T>
void PathScores::run_acyclic(const T* weight, const Setup& setup) {
  constexpr size_t kBlock = 512;
  const auto last_slot = static_cast<int32_t>(adjacency_->node.size()) - 1;
  const int32_t* offset = adjacency_->offset.data();
  const int32_t* src = adjacency_->node.data();
  const int32_t* arcs = adjacency_->arcs.empty() ? nullptr : adjacency_->arcs.data();
  const auto num_nodes = static_cast<int32_t>(scores_.size());
  std::vector<double> gathered, mantissa, exponent, scratch;
  for (int32_t begin = 0, end; begin < num_nodes; begin = end) {
    // The weights of as many nodes as fill a block, turned into numbers in one vectorised pass.
    // What the recursion will read of other nodes is on its way from memory meanwhile.
    size_t count = 0;
    for (end = begin; end < num_nodes && count < kBlock; ++end)
      count += static_cast<size_t>(offset[node(end) + 1] - offset[node(end)]);
    if (count > gathered.size())
      for (auto* column : {&gathered, &mantissa, &exponent, &scratch})
        column->resize(std::max(2 * kBlock, count));
    double* to = gathered.data();
    auto gather = [&](int32_t k) {
      *to++ = static_cast<double>(weight[arcs ? arcs[k] : k]);
      __builtin_prefetch(&scores_[src[k]]);
      if (arcs) __builtin_prefetch(&weight[arcs[std::min(k + kAhead, last_slot)]]);
    };
    if (own_order_.empty() && !is_backwards_)
      for (int32_t k = offset[begin]; k < offset[end]; ++k) gather(k);
    else
      for (int32_t position = begin; position < end; ++position)
        for (int32_t k = offset[node(position)]; k < offset[node(position) + 1]; ++k) gather(k);
    split_exp(gathered.data(), static_cast<int64_t>(count), mantissa.data(), exponent.data());

    const double* m = mantissa.data();
    double* q = exponent.data();
    for (int32_t position = begin; position < end; ++position) {
      const int32_t d = node(position), first = offset[d], degree = offset[d + 1] - first;
      const bool is_source = setup.is_source[d];
      double* term = keep_ ? term_ + first : scratch.data();
      double top = is_source ? 0.0 : kNegInf;
      for (int32_t k = 0; k < degree; ++k) {
        const Scaled& from = scores_[src[first + k]];
        q[k] = std::min(q[k] + from.exponent, Scaled::kMost);
        term[k] = from.mantissa * m[k];
        top = std::max(top, q[k]);
      }
      if (top == kNegInf) {
        std::fill(term, term + degree, 0.0);
      } else {
        double sum = is_source ? pow2(-top) : 0.0;
        for (int32_t k = 0; k < degree; ++k) {
          term[k] *= pow2(q[k] - top);
          sum += term[k];
        }
        scores_[d] = renormalize(sum, top);
        if (keep_) inverse_sum_[d] = 1.0 / sum;
      }
      m += degree;
      q += degree;
    }
  }
}

template <class T>
void PathScores::run_acyclic_exact(const T* weight, const Setup& setup) {
  const Adjacency& adjacency = *adjacency_;
  const auto num_nodes = static_cast<int32_t>(plain_.size());
  for (int32_t position = 0; position < num_nodes; ++position) {
    const int32_t d = node(position), first = adjacency.offset[d], last = adjacency.offset[d + 1];
    const auto arriving = [&](int32_t k) {
      return plain_[adjacency.node[k]] + weight[adjacency.arc(k)];
    };
    double score = setup.is_source[d] ? 0.0 : kNegInf;
    for (int32_t k = first; k < last; ++k) score = logadd(score, arriving(k));
    plain_[d] = score;
    if (!keep_) continue;
    inverse_sum_[d] = score > kNegInf ? 1.0 : 0.0;
    for (int32_t k = first; k < last; ++k)
      term_[k] = score > kNegInf ? std::exp(arriving(k) - score) : 0.0;
  }
}

template <class T>
void PathScores::run_acyclic_best(const T* weight, const Setup& setup) {
  const Adjacency& adjacency = *adjacency_;
  const auto num_nodes = static_cast<int32_t>(plain_.size());
  const int32_t last_slot = static_cast<int32_t>(adjacency.node.size()) - 1;
  const int32_t ahead = is_backwards_ ? -kFarAhead : kFarAhead;
  for (int32_t position = 0; position < num_nodes; ++position) {
    const int32_t d = node(position);
    const int32_t soon = std::clamp(adjacency.offset[d] + ahead, 0, std::max(last_slot, 0));
    __builtin_prefetch(adjacency.node.data() + soon);
    __builtin_prefetch(weight + soon);
    double best = setup.is_source[d] ? 0.0 : kNegInf;
    int32_t slot = -1;
    for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
      const double score = plain_[adjacency.node[k]] + weight[adjacency.arc(k)];
      if (score > best) {
        best = score;
        slot = k;
      }
    }
    plain_[d] = best;
    best_slot_[d] = slot;
    best_node_[d] = slot < 0 ? -1 : adjacency.node[slot];
  }
}

template <class T>
void PathScores::run_far_best(const T* weight, const Setup& setup) {
  // What is read at random comes late enough; which arc was best is asked of few nodes.
  const int32_t *offset = adjacency_->offset.data(), *dst = adjacency_->node.data();
  double* const scores = plain_.data();
  for (int32_t s = static_cast<int32_t>(plain_.size()) - 1; s >= 0; --s) {
    const int32_t first = offset[s], ahead = first >= kNodesAhead ? kNodesAhead : 0;
    if (first >= kFarAhead) {
      __builtin_prefetch(dst + first - kFarAhead);
      __builtin_prefetch(weight + first - kFarAhead);
    }
    double best = kNegInf;
    // The first arc comes last, since it often goes to the node that was just done.
    for (int32_t k = offset[s + 1] - 1; k >= first; --k) {
      expect_far(&scores[dst[k - ahead]]);
      best = std::max(best, scores[dst[k]] + weight[k]);
    }
    scores[s] = setup.is_source[s] ? std::max(best, 0.0) : best;
  }
}

template <class T>
int32_t PathScores::find_best_slot(const T* weight, int32_t node) const {
  const double best = plain_[node];
  // An end comes before any arc.
  if (best == kNegInf || (is_source_[node] && best == 0.0)) return -1;
  int32_t k = adjacency_->offset[node];
  while (plain_[adjacency_->node[k]] + weight[k] != best) ++k;
  return k;
}

int32_t PathScores::best_arc(int32_t node) const {
  if (best_slot_.empty())
    return dispatch(weights_.dtype(), [&](auto kind) {
      return find_best_slot(weights_.view<decltype(kind)>().data(), node);  // which is the arc
    });
  return best_slot_[node] < 0 ? -1 : adjacency_->arc(best_slot_[node]);
}

bool PathScores::goes_before(int32_t node, int32_t other) const {
  if (!stay_.empty() && stay_[node].first == stay_[other].first &&
      stay_[node].second != stay_[other].second)
    return stay_[node].second < stay_[other].second;
  return best_arc(node) < best_arc(other);
}

Column PathScores::best_path(int32_t node) const {
  Column arcs;
  const Adjacency& adjacency = *adjacency_;
  if (!best_slot_.empty()) {
    for (int32_t n = node, k; (k = best_slot_[n]) >= 0;
         n = best_node_.empty() ? adjacency.node[k] : best_node_[n])
      arcs.push_back(adjacency.arc(k));
    return arcs;
  }
  dispatch(weights_.dtype(), [&](auto kind) {
    const auto* weight = weights_.view<decltype(kind)>().data();
    for (int32_t n = node, k; (k = find_best_slot(weight, n)) >= 0; n = adjacency.node[k]) {
      // Two lines of each, since a step passes over some nodes.
      const int32_t soon = std::min(k + kFarAhead, topology_->num_arcs() - 1);
      for (int32_t a : {soon, std::min(soon + 16, topology_->num_arcs() - 1)}) {
        __builtin_prefetch(&adjacency.node[a]);
        __builtin_prefetch(weight + a);
      }
      arcs.push_back(k);
    }
  });
  return arcs;
}

/// A strongly connected component and the arcs that matter to it, by index within it.
struct PathScores::Component {
  std::vector<int32_t> nodes;
  std::vector<Link> links;     // by destination and ascending slot
  std::vector<double> inflow;  // log-sum, or maximum, of what arrives from outside
  std::vector<int32_t> slot;   // by which that maximum arrives, or -1

  size_t size() const { return nodes.size(); }
  [[noreturn]] void fail_divergent(const Options& options) const;
};

PathScores::Component PathScores::gather_component(const Setup& setup, std::vector<int32_t> nodes,
                                                   const std::vector<int32_t>& local) const {
  const bool is_log = !scores_.empty();
  Component out;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int32_t d = nodes[i];
    double inflow = setup.is_source[d] ? 0.0 : kNegInf;
    int32_t slot = -1;
    for (int32_t k = adjacency_->offset[d]; k < adjacency_->offset[d + 1]; ++k) {
      const int32_t s = adjacency_->node[k];
      const double w = setup.weight[adjacency_->arc(k)];
      if (w == kNegInf || !setup.is_useful[s]) continue;
      if (local[s] >= 0) {
        out.links.push_back({local[s], static_cast<int32_t>(i), k, w});
        continue;
      }
      const double arriving = score(s) + w;
      if (arriving > inflow) slot = k;
      inflow = is_log ? logadd(inflow, arriving) : std::max(inflow, arriving);
    }
    out.inflow.push_back(inflow);
    out.slot.push_back(slot);
  }
  out.nodes = std::move(nodes);
  return out;
}

void PathScores::Component::fail_divergent(const Options& options) const {
  const double log_radius = log_spectral_radius(links, size());
  const std::string radius =
      log_radius < 300.0 ? text(std::exp(log_radius)) : text("exp(", log_radius, ")");
  fail(options.op, "the sum over paths must converge, so the spectral radius of every strongly ",
       "connected component must be below 1, but that of nodes ", list_nodes(nodes, options.names),
       " has ", radius);
}

void PathScores::run_component(const Setup& setup, const Component& component) {
  const size_t n = component.size();
  std::vector<double> value = component.inflow;
  if (!component.links.empty()) {
    const Options& options = setup.options;
    if (n > static_cast<size_t>(kMaxComponent))
      fail(options.op, "a strongly connected component may have at most ", kMaxComponent,
           " nodes, but the one with nodes ", list_nodes(component.nodes, options.names), " has ",
           n);
    const auto paths = best_cycle_paths(component.links, component.inflow, component.slot);
    if (!paths) component.fail_divergent(options);
    const std::vector<double>& best = paths->score;
    Block block{component.nodes, std::vector<double>(n), std::vector<double>(n * n)};
    std::vector<double> heaviest_loop(n, kNegInf);
    for (const Link& link : component.links)
      if (link.from == link.to)
        heaviest_loop[link.from] = std::max(heaviest_loop[link.from], link.weight);
    for (size_t i = 0; i < n; ++i) {
      // One minus the loop that counts most, without losing digits if that is near one.
      block.lu[i * n + i] = -std::expm1(heaviest_loop[i]);
      block.scale[i] = std::exp(component.inflow[i] - best[i]);
    }
    for (const auto& [from, to, slot, weight] : component.links)
      if (from == to && weight == heaviest_loop[from])
        heaviest_loop[from] = kNegInf;  // done
      else
        block.lu[static_cast<size_t>(from) * n + static_cast<size_t>(to)] -=
            std::exp(weight + (best[from] - best[to]));
    // The sum converges just if elimination without pivoting meets only positive pivots.
    const bool is_loop = component.links.size() == 1;
    const double least =
        is_loop ? std::numeric_limits<double>::min() : 4.0 * static_cast<double>(n) * kEps;
    for (size_t k = 0; k < n; ++k) {
      const double* pivot = &block.lu[k * n];
      if (!(pivot[k] > least)) component.fail_divergent(options);
      for (size_t i = k + 1; i < n; ++i) {
        double* row = &block.lu[i * n];
        if (row[k] == 0.0) continue;
        const double factor = row[k] /= pivot[k];
        for (size_t j = k + 1; j < n; ++j) row[j] -= factor * pivot[j];
      }
    }
    block.solve_transposed(block.scale);
    for (size_t i = 0; i < n; ++i) value[i] = best[i] + std::log(block.scale[i]);
    if (keep_) {
      if (block_of_.empty()) block_of_.assign(scores_.size(), -1);
      for (int32_t d : component.nodes) block_of_[d] = static_cast<int32_t>(blocks_.size());
      blocks_.push_back(std::move(block));
    }
  }
  for (size_t i = 0; i < n; ++i) {
    const int32_t d = component.nodes[i];
    double mantissa, exponent;
    split_exp(&value[i], 1, &mantissa, &exponent);
    if (value[i] > kNegInf) scores_[d] = renormalize(mantissa, exponent);
  }
  if (!keep_) return;
  for (size_t i = 0; i < n; ++i) {
    const int32_t d = component.nodes[i];
    inverse_sum_[d] = 1.0;
    for (int32_t k = adjacency_->offset[d]; k < adjacency_->offset[d + 1]; ++k) {
      const int32_t s = adjacency_->node[k];
      const double w = setup.weight[adjacency_->arc(k)];
      if (w > kNegInf && setup.is_useful[s]) term_[k] = std::exp(score(s) + w - value[i]);
    }
  }
}

void PathScores::run_component_best(const Setup& setup, Component& component) {
  const auto paths = best_cycle_paths(component.links, component.inflow, component.slot);
  if (!paths)
    fail(setup.options.op,
         "the best path must exist, so no cycle may have a positive weight, but one among the ",
         "nodes ", list_nodes(component.nodes, setup.options.names), " has");
  std::vector<int32_t> by_length(component.size());
  for (size_t i = 0; i < by_length.size(); ++i) {
    by_length[i] = static_cast<int32_t>(i);
    plain_[component.nodes[i]] = paths->score[i];
    best_slot_[component.nodes[i]] = paths->slot[i];
    stay_[component.nodes[i]] = {component.nodes[0], paths->length[i]};
  }
  // In this order the best path to a node comes before it, as in a graph without cycles.
  std::ranges::stable_sort(by_length, {}, [&](int32_t i) { return paths->length[i]; });
  std::vector<int32_t> nodes;
  for (int32_t i : by_length) nodes.push_back(component.nodes[i]);
  component.nodes = std::move(nodes);
}

void PathScores::run_components(const Setup& setup) {
  const std::vector<int32_t>& bounds = topology_->order().component;
  const bool forward = setup.options.direction == Direction::forward;
  const auto num_nodes = static_cast<int32_t>(setup.is_source.size());
  std::vector<int32_t> sweep_order, local(setup.is_source.size(), -1);
  int32_t begin = 0;
  for (size_t c = 0; begin < num_nodes; ++c) {
    int32_t end = begin + 1;
    if (!bounds.empty()) {
      const int32_t* at = &bounds[forward ? c : bounds.size() - 2 - c];
      end = begin + at[1] - at[0];
    }
    std::vector<int32_t> nodes;
    for (int32_t p = begin; p < end; ++p)
      (setup.is_useful[node(p)] ? nodes : sweep_order).push_back(node(p));
    begin = end;
    std::sort(nodes.begin(), nodes.end());
    for (size_t i = 0; i < nodes.size(); ++i) local[nodes[i]] = static_cast<int32_t>(i);
    Component component = gather_component(setup, std::move(nodes), local);
    if (scores_.empty())
      run_component_best(setup, component);
    else
      run_component(setup, component);
    for (int32_t n : component.nodes) {
      local[n] = -1;
      sweep_order.push_back(n);
    }
  }
  own_order_ = std::move(sweep_order);
}

void PathScores::Block::solve(std::vector<double>& x) const {
  const size_t n = nodes.size();
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) x[i] -= lu[i * n + j] * x[j];
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) x[i] -= lu[i * n + j] * x[j];
    x[i] /= lu[i * n + i];
  }
}

void PathScores::Block::solve_transposed(std::vector<double>& x) const {
  const size_t n = nodes.size();
  for (size_t i = 0; i < n; ++i) {
    x[i] /= lu[i * n + i];
    for (size_t j = i + 1; j < n; ++j) x[j] -= lu[i * n + j] * x[i];
  }
  for (size_t i = n; i-- > 0;)
    for (size_t j = 0; j < i; ++j) x[j] -= lu[i * n + j] * x[i];
}

template <class OnNode, class OnBlock>
void PathScores::visit(bool backwards, OnNode on_node, OnBlock on_block) const {
  const int32_t num_nodes = topology_->num_nodes();
  for (int32_t i = 0; i < num_nodes; ++i) {
    const int32_t n = node(backwards ? num_nodes - 1 - i : i);
    if (const Block* many = block(n)) {
      on_block(*many);
      i += static_cast<int32_t>(many->nodes.size()) - 1;
    } else {
      on_node(n);
    }
  }
}

void PathScores::pull_back(Buffer<double> mass, Weights& grad) const {
  if (acyclic_) return acyclic_->pull_back(mass, grad);
  const Adjacency& adjacency = *adjacency_;
  dispatch(grad.dtype(), [&](auto kind) {
    using T = decltype(kind);
    T* out = grad.fill<T>().data();
    auto spread = [&](int32_t d, const Block* inside) {
      const double share = mass[d] * inverse_sum_[d];
      if (share == 0.0) return;
      for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
        // Nodes are visited backwards, so what is needed soon lies before slot k.
        const int32_t soon = std::max(k - kAhead, 0);
        __builtin_prefetch(&mass[adjacency.node[soon]], 1);
        __builtin_prefetch(&out[adjacency.arc(soon)], 1);
        const double g = share * term_[k];
        const int32_t s = adjacency.node[k];
        if (!inside || block(s) != inside) mass[s] += g;
        out[adjacency.arc(k)] += static_cast<T>(g);
      }
    };
    visit(
        true, [&](int32_t d) { spread(d, nullptr); },
        [&](const Block& block) {
          block.solve_mass(mass);
          for (int32_t d : block.nodes) spread(d, &block);
        });
  });
}

Buffer<double> PathScores::push_forward(const Weights& direction) const {
  if (acyclic_) return acyclic_->push_forward(direction);
  const Adjacency& adjacency = *adjacency_;
  const int32_t num_nodes = topology_->num_nodes();
  Buffer<double> moved(static_cast<size_t>(num_nodes), 0.0);
  dispatch(direction.dtype(), [&](auto kind) {
    const auto* along = direction.view<decltype(kind)>().data();
    auto mean = [&](int32_t d, const Block* inside) {
      double sum = 0.0;
      for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
        const int32_t s = adjacency.node[k];
        const double before = inside && block(s) == inside ? 0.0 : moved[s];
        sum += term_[k] * (before + along[adjacency.arc(k)]);
      }
      return sum * inverse_sum_[d];
    };
    visit(
        false, [&](int32_t d) { moved[d] = mean(d, nullptr); },
        [&](const Block& block) {
          std::vector<double> x;
          for (size_t i = 0; i < block.nodes.size(); ++i)
            x.push_back(block.scale[i] * mean(block.nodes[i], &block));
          block.solve_transposed(x);
          for (size_t i = 0; i < x.size(); ++i) moved[block.nodes[i]] = x[i] / block.scale[i];
        });
  });
  return moved;
}

void PathScores::pull_back_moved(Buffer<double> mass, Buffer<double> mass_moved,
                                 const Weights& direction, const Buffer<double>& moved,
                                 double factor, Weights& grad) const {
  if (acyclic_) return acyclic_->pull_back_moved(mass, mass_moved, direction, moved, factor, grad);
  const Adjacency& adjacency = *adjacency_;
  dispatch(direction.dtype(), [&](auto along_kind) {
    dispatch(grad.dtype(), [&](auto kind) {
      using T = decltype(kind);
      const auto* along = direction.view<decltype(along_kind)>().data();
      T* out = grad.fill<T>().data();
      // What the share of slot k of node d changes by, times the mass that flows through d.
      auto change = [&](int32_t d, int32_t k) {
        return mass[d] * inverse_sum_[d] * term_[k] *
               (along[adjacency.arc(k)] + moved[adjacency.node[k]] - moved[d]);
      };
      auto spread = [&](int32_t d, const Block* inside) {
        for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k) {
          const double share = inverse_sum_[d] * term_[k];
          const double g = mass_moved[d] * share + change(d, k);
          const int32_t s = adjacency.node[k];
          if (!inside || block(s) != inside) {
            mass[s] += mass[d] * share;
            mass_moved[s] += g;
          }
          out[adjacency.arc(k)] += static_cast<T>(factor * g);
        }
      };
      visit(
          true, [&](int32_t d) { spread(d, nullptr); },
          [&](const Block& inside) {
            inside.solve_mass(mass);
            for (int32_t d : inside.nodes)
              for (int32_t k = adjacency.offset[d]; k < adjacency.offset[d + 1]; ++k)
                if (block(adjacency.node[k]) == &inside)
                  mass_moved[adjacency.node[k]] += change(d, k);
            inside.solve_mass(mass_moved);
            for (int32_t d : inside.nodes) spread(d, &inside);
          });
    });
  });
}

void PathScores::Block::solve_mass(Buffer<double>& mass) const {
  std::vector<double> x;
  for (size_t i = 0; i < nodes.size(); ++i) x.push_back(mass[nodes[i]] / scale[i]);
  solve(x);
  for (size_t i = 0; i < nodes.size(); ++i) mass[nodes[i]] = scale[i] * x[i];
}

}  // namespace arcgrad
