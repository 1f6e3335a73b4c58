#include "arcgrad/algorithms/acyclic_forward.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "arcgrad/algorithms/scaled.h"
#include "arcgrad/runtime/interrupt_poll.h"
#include "arcgrad/runtime/thresholds.h"

// The sum over all paths from the sources to node d is
//
//   alpha(d) = [d is a source] + sum over arcs (s, d) of alpha(s) exp(w),
//
// computed in one pass: nodes are visited in topological order, and each adds its terms to the sums
// of its successors (single-source shortest distance of an acyclic graph, Mohri 2002, section 3).
// So arcs are read sequentially; only the sums of the successors are read at random.
//
// A sum is a double times a unit 2^(256 u). When a node is visited, its value is brought into
// [2^-128, 2^128], so that factors exp(w) <= exp(kPlainExp) cannot overflow, and units change
// rarely. Invariant: the unit of a sum is the largest unit of its nonzero terms. Terms are lost
// only below 1e-80 of the sum, and below 1e-190 for weights of ordinary size.
//
// Derivatives use the stored terms: term / alpha(d) is the local posterior of an arc. Each pass
// costs O(nodes + arcs).

namespace arcgrad {
namespace {

constexpr double kUp = 0x1p256, kDown = 0x1p-256;  // one unit, and its inverse
/// Bounds of the value of a visited node.
constexpr double kHigh = 0x1p128, kLow = 0x1p-128;
/// Numbers this many units apart are never added: the smaller one is lost.
constexpr int64_t kApart = 4;

/// Factors for a sum and for a term added to it, where the unit of the term is higher by
/// i - kApart. A table, because branches on the difference would be mispredicted.
struct Alignment {
  double sum, term;
};
constexpr Alignment kAlignment[] = {{1.0, 0.0},
                                    {1.0, kDown * kDown * kDown},
                                    {1.0, kDown * kDown},
                                    {1.0, kDown},
                                    {1.0, 1.0},
                                    {kDown, 1.0},
                                    {kDown * kDown, 1.0},
                                    {kDown * kDown * kDown, 1.0},
                                    {0.0, 1.0}};

/// 2^(256 (i - 3)), and 0 where the term is lost.
constexpr double kInSum[] = {kDown * kDown * kDown, kDown * kDown, kDown, 1.0, kUp, kUp * kUp, 0.0};
/// Converts a term from its own unit to the unit of its sum. A term whose unit is higher by more
/// than 2 is zero, since the value of its source is at least kLow.
double in_sum(double term, int64_t unit, int64_t sum_unit) {
  const auto index = static_cast<uint64_t>((unit + 3) - sum_unit);
  return term * kInSum[index < 6 ? index : 6];
}

/// Brings a value above 0 between kLow and kHigh.
void normalize(double& value, int64_t& unit) {
  if (value == 0.0) return;
  for (; value > kHigh; value *= kDown) ++unit;
  for (; value < kLow; value *= kUp) --unit;
}

/// Calls `f` with the truth value as a type.
template <class F>
decltype(auto) choose(bool value, F f) {
  return value ? f(std::true_type{}) : f(std::false_type{});
}

/// Prefetch distances in arcs, for data read at random and for data read sequentially. For the
/// latter the hardware prefetcher covers what is nearer.
constexpr int32_t kAhead = 64, kFarAhead = 512;
/// How often loops over nodes check for Ctrl-C.
constexpr int32_t kNodesPerPoll = 4096;

}  // namespace

bool reaches_far(const Adjacency& out) {
  constexpr int32_t kSamples = 256;
  const auto num_nodes = static_cast<int32_t>(out.offset.size()) - 1;
  const int64_t near = thresholds.near_nodes;
  if (num_nodes < near) return false;
  int32_t far = 0, all = 0;
  for (int32_t n = 0; n < num_nodes; n += std::max(num_nodes / kSamples, 1))
    for (int32_t k = out.offset[n]; k < std::min(out.offset[n + 1], out.offset[n] + kSamples);
         ++k) {
      far += out.node[k] - n > near;
      ++all;
    }
  return far > all / 8;
}

std::optional<AcyclicForward> AcyclicForward::run(const Adjacency& out, const Weights& weights,
                                                  std::span<const int32_t> sources,
                                                  int32_t source_weights, bool keep) {
  AcyclicForward forward(out);
  forward.sums_.resize(out.offset.size() - 1);
  if (!forward.set_sources(weights, sources, source_weights)) return std::nullopt;
  forward.reaches_far_ = reaches_far(out);
  if (keep) forward.terms_ = Weights::uninitialized(weights.size(), DType::float64);
  const bool is_done = dispatch(weights.dtype(), [&](auto kind) {
    const auto* weight = weights.view<decltype(kind)>().data();
    return choose(keep, [&](auto kept) {
      return choose(forward.reaches_far_,
                    [&](auto is_far) { return forward.push<kept(), is_far()>(weight); });
    });
  });
  if (!is_done) return std::nullopt;
  return forward;
}

bool AcyclicForward::set_sources(const Weights& weights, std::span<const int32_t> sources,
                                 int32_t first_weight) {
  for (int32_t n : sources) sums_[n] = {1.0, 0};
  if (first_weight < 0) return true;
  for (int32_t n : sources) {
    const int32_t index = first_weight + static_cast<int32_t>(sources_.size());
    const double w = weights[index];
    NodeSum term{0.0, 0};
    if (!plain_exp(&w, 1, &term.value)) return false;
    normalize(term.value, term.unit);
    sums_[n] = term.value > 0.0 ? term : NodeSum{};
    sources_.push_back({n, index, sums_[n]});
  }
  return true;
}

template <bool keep, bool is_far, class T>
bool AcyclicForward::push(const T* weight) {
  constexpr int32_t kBlock = 512;
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const int32_t num_nodes = this->num_nodes(), num_arcs = offset[num_nodes];
  NodeSum* const sums = sums_.data();
  double* const terms = keep ? terms_.fill<double>().data() : nullptr;
  Buffer<double> exps;
  InterruptPoll poll;
  for (int32_t begin = 0, end; begin < num_nodes; begin = end) {
    const int32_t first = offset[begin];
    for (end = begin + 1; end < num_nodes && offset[end] - first < kBlock;) ++end;
    const int32_t count = offset[end] - first;
    poll(kBlock + count);
    if (static_cast<size_t>(count) > exps.size())
      exps.resize(static_cast<size_t>(std::max(std::min(2 * kBlock, num_arcs), count)));
    if (!plain_exp(weight + first, count, exps.data())) return false;
    const double* factor = exps.data() - first;
    for (int32_t s = begin; s < end; ++s) {
      auto [value, unit] = sums[s];
      const int32_t last = offset[s + 1];
      if (value == 0.0) [[unlikely]] {
        if constexpr (keep) std::fill(terms + offset[s], terms + last, 0.0);
        continue;
      }
      if (value > kHigh || value < kLow) [[unlikely]] {
        normalize(value, unit);
        sums[s] = {value, unit};
      }
      [[maybe_unused]] const int32_t ahead = last + kAhead <= num_arcs ? kAhead : 0;
      for (int32_t k = offset[s]; k < last; ++k) {
        if constexpr (is_far) __builtin_prefetch(&sums[dst[k + ahead]], 1);
        const double term = value * factor[k];
        if constexpr (keep) terms[k] = term;
        // A zero term must not change the unit of the sum.
        if (!(term > 0.0)) [[unlikely]]
          continue;
        NodeSum& to = sums[dst[k]];
        const Alignment& align = kAlignment[std::clamp(unit - to.unit, -kApart, kApart) + kApart];
        to.value = to.value * align.sum + term * align.term;
        to.unit = std::max(to.unit, unit);
      }
    }
  }
  return true;
}

double AcyclicForward::score(int32_t node) const {
  const auto [value, unit] = sums_[node];
  return value == 0.0 ? log(Scaled{}) : log(renormalize(value, 256.0 * static_cast<double>(unit)));
}

// The local posterior of an arc is its term, converted to the unit of the destination, over the
// value of the destination. A node that no path reaches has value 0: the terms of its arcs are 0,
// and so is its flow.

void AcyclicForward::add_vjp(const Buffer<double>& seed, Gradient& grad) const {
  const bool is_unset = grad.take_unset();
  dispatch(grad.dtype(), [&](auto kind) {
    const auto out = grad.sum().fill<decltype(kind)>();
    choose(is_unset, [&](auto set) {
      choose(reaches_far_, [&](auto is_far) { pull<set(), is_far()>(seed, out); });
    });
  });
}

template <bool set, bool is_far, class T>
void AcyclicForward::pull(const Buffer<double>& seed, std::span<T> grad) const {
  T* const out = grad.data();
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const double* terms = terms_.view<double>().data();
  Buffer<NodeFlow> flows(sums_.size());  // written as nodes are visited
  NodeFlow* const flow = flows.data();
  const int32_t far = offset[num_nodes()] > thresholds.prefetched_arcs ? kFarAhead : INT32_MAX;
  for (int32_t s = num_nodes() - 1; s >= 0; --s) {
    if (s % kNodesPerPoll == kNodesPerPoll - 1) [[unlikely]]
      poll_interrupt();
    const auto [value, unit] = sums_[s];
    const int32_t first = offset[s];
    if (value == 0.0) [[unlikely]] {
      flow[s] = {};
      if constexpr (set) std::fill(out + first, out + offset[s + 1], T{0});
      continue;
    }
    const double inverse = 1.0 / value;  // the division overlaps with the loop
    if (first >= far) {
      __builtin_prefetch(terms + first - kFarAhead, 0, 0);
      __builtin_prefetch(terms + first - kFarAhead + 8, 0, 0);
      __builtin_prefetch(dst + first - kFarAhead, 0, 0);
    }
    [[maybe_unused]] const int32_t ahead = first >= kAhead ? kAhead : 0;
    double mass = seed[s];
    // The first arc comes last, since it often ends at the node visited just before. The speed of
    // such short loops depends on their alignment in memory, unless they are unrolled.
#pragma GCC unroll 2
    for (int32_t k = offset[s + 1] - 1; k >= first; --k) {
      if constexpr (is_far) prefetch_far(&flow[dst[k - ahead]]);
      const NodeFlow to = flow[dst[k]];
      const double g = to.mass * in_sum(terms[k], unit, to.unit);
      mass += g;
      out[k] = set ? static_cast<T>(g) : out[k] + static_cast<T>(g);
    }
    flow[s] = {mass * inverse, unit};
  }
  if constexpr (set)
    std::ranges::fill(grad.subspan(static_cast<size_t>(offset[num_nodes()])), T{0});
  for (const SourceTerm& source : sources_) {
    const NodeFlow& to = flow[source.node];
    out[source.weight] +=
        static_cast<T>(to.mass * in_sum(source.term.value, source.term.unit, to.unit));
  }
}

Buffer<double> AcyclicForward::jvp(const Weights& tangent) const {
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const double* terms = terms_.view<double>().data();
  Buffer<double> score_tangent(sums_.size(), 0.0);
  Buffer<NodeSum> means(sums_);  // in the unit of the node, times its value until it is visited
  for (NodeSum& mean : means) mean.value = 0.0;
  dispatch(tangent.dtype(), [&](auto kind) {
    const auto* arc_tangent = tangent.view<decltype(kind)>().data();
    for (const auto& [n, weight, term] : sources_)
      means[n].value = in_sum(term.value, term.unit, means[n].unit) * arc_tangent[weight];
    for (int32_t s = 0; s < num_nodes(); ++s) {
      if (s % kNodesPerPoll == kNodesPerPoll - 1) [[unlikely]]
        poll_interrupt();
      const auto [value, unit] = sums_[s];
      if (value == 0.0) continue;
      const double mean = score_tangent[s] = means[s].value / value;
      for (int32_t k = offset[s]; k < offset[s + 1]; ++k) {
        NodeSum& to = means[dst[k]];
        to.value += in_sum(terms[k], unit, to.unit) * (mean + arc_tangent[k]);
      }
    }
  });
  return score_tangent;
}

void AcyclicForward::add_vjp_tangent(const Buffer<double>& seed, const Buffer<double>& seed_tangent,
                                     const Weights& tangent, const Buffer<double>& score_tangent,
                                     double factor, Weights& grad) const {
  struct DualFlow {
    double mass, mass_tangent;  // over the value of the node
    double score_tangent;
    int64_t unit;
  };
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const double* terms = terms_.view<double>().data();
  Buffer<DualFlow> flow(sums_.size());
  dispatch(tangent.dtype(), [&](auto tangent_kind) {
    dispatch(grad.dtype(), [&](auto kind) {
      using T = decltype(kind);
      const auto* arc_tangent = tangent.view<decltype(tangent_kind)>().data();
      T* out = grad.fill<T>().data();
      for (int32_t s = num_nodes() - 1; s >= 0; --s) {
        if (s % kNodesPerPoll == kNodesPerPoll - 1) [[unlikely]]
          poll_interrupt();
        const auto [value, unit] = sums_[s];
        if (value == 0.0) {
          flow[s] = {0.0, 0.0, 0.0, kNoUnit};
          continue;
        }
        double mass = seed[s], mass_tangent = seed_tangent[s];
        for (int32_t k = offset[s]; k < offset[s + 1]; ++k) {
          const DualFlow& to = flow[dst[k]];
          const double term = in_sum(terms[k], unit, to.unit);
          const double change = arc_tangent[k] + score_tangent[s] - to.score_tangent;
          const double g = term * (to.mass_tangent + to.mass * change);
          mass += to.mass * term;
          mass_tangent += g;
          out[k] += static_cast<T>(factor * g);
        }
        flow[s] = {mass / value, mass_tangent / value, score_tangent[s], unit};
      }
      for (const auto& [n, weight, source] : sources_) {
        const DualFlow& to = flow[n];
        const double term = in_sum(source.value, source.unit, to.unit);
        const double change = arc_tangent[weight] - to.score_tangent;
        out[weight] += static_cast<T>(factor * term * (to.mass_tangent + to.mass * change));
      }
    });
  });
}

}  // namespace arcgrad
