#include "arcgrad/algorithms/acyclic_forward.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "arcgrad/algorithms/scaled.h"

namespace arcgrad {
namespace {

constexpr double kUp = 0x1p256, kDown = 0x1p-256;  // one unit in terms of its neighbours
/// A node passes its sum on between these bounds.
constexpr double kHigh = 0x1p128, kLow = 0x1p-128;
/// Numbers so many units apart are never added.
constexpr int64_t kApart = 4;

/// Factors for a sum and a term to be added to it, if the unit of the term is higher by
/// i - kApart. A table, because branches on it are not foreseen.
struct Shift {
  double sum, term;
};
constexpr Shift kShift[] = {{1.0, 0.0},
                            {1.0, kDown * kDown * kDown},
                            {1.0, kDown * kDown},
                            {1.0, kDown},
                            {1.0, 1.0},
                            {kDown, 1.0},
                            {kDown * kDown, 1.0},
                            {kDown * kDown * kDown, 1.0},
                            {0.0, 1.0}};

constexpr double kInSum[] = {kDown * kDown * kDown, kDown * kDown, kDown, 1.0, kUp, kUp * kUp, 0.0};
/// By how many units a sum may be higher than a term that counts in it.
constexpr int64_t kReach = 3;
/// A term in `unit` in that of the sum it is part of. If it is higher by more than 2, the term is
/// zero, as it could not be part of the sum otherwise.
double in_sum(double term, int64_t unit, int64_t sum_unit) {
  const auto units = static_cast<uint64_t>((unit + kReach) - sum_unit);
  return term * kInSum[units < 6 ? units : 6];
}

/// What flows through a node per unit of its sum, and that unit.
struct Flow {
  double mass;
  int64_t unit;
};

/// A node that flows are pulled back to.
class PlainPuller {
 public:
  using To = Flow;
  PlainPuller(int64_t unit, int64_t /*highest*/) : unit_(unit) {}
  /// What flows over an arc with this term.
  double share(double term, Flow to) const { return to.mass * in_sum(term, unit_, to.unit); }
  Flow flow(double mass) const { return {mass, unit_}; }

 private:
  int64_t unit_;
};

/// A flow in half the memory, where all units are among 256: the last byte of the mass, which moves
/// by 2^-45 of itself at most, says by how much the unit is below the highest.
class PackedFlow {
 public:
  PackedFlow() = default;
  PackedFlow(double mass, uint64_t below) : bits_(std::bit_cast<uint64_t>(mass)) {
    constexpr double kLeast = std::numeric_limits<double>::min(), kMuch = 0x1p1023;
    const double size = std::abs(mass);
    if (size >= kLeast && size < kMuch) [[likely]]
      bits_ = ((bits_ + 128 - below) & ~uint64_t{255}) + below;
    else if (size < kLeast)
      bits_ = 0;  // in any unit
    else if (std::isfinite(mass))
      bits_ = (bits_ & ~uint64_t{255}) + below;  // not rounded up, which could make it infinite
  }
  double mass() const { return std::bit_cast<double>(bits_); }
  uint64_t below() const { return bits_ & 255; }

 private:
  uint64_t bits_;
};

/// The factors of in_sum(), from those of a term 255 units below its sum.
constexpr auto kInPackedSum = [] {
  std::array<double, 511> factors{};
  std::ranges::copy(kInSum, factors.begin() + 252);
  return factors;
}();

class PackedPuller {
 public:
  using To = PackedFlow;
  PackedPuller(int64_t unit, int64_t highest)
      : below_(static_cast<uint64_t>(highest - unit)),
        factors_(kInPackedSum.data() + 255 - below_) {}
  double share(double term, PackedFlow to) const {
    return to.mass() * (term * factors_[to.below()]);
  }
  PackedFlow flow(double mass) const { return {mass, below_}; }

 private:
  uint64_t below_;
  const double* factors_;
};

/// How far the terms of a node count, where nodes are visited from the last to the first.
///
/// In a graph whose sums grow along its nodes, most far arcs go to sums so large that what they add
/// is lost. All these read one node instead of any, which saves waiting for memory.
class Horizon {
 public:
  Horizon(int64_t lowest_unit, int64_t num_units)
      : lowest_(lowest_unit),
        seen_(lowest_unit + num_units),
        unit_(seen_),
        ends_(static_cast<size_t>(num_units)) {}

  /// None of the visited nodes from this one on has a sum that terms of `node`, which is visited
  /// now, count in.
  int32_t visit(int32_t node, int64_t unit) {
    if (unit != unit_) [[unlikely]] {
      unit_ = unit;
      for (; seen_ > unit; --seen_) ends_[seen_ - 1 - lowest_] = node + 1;
      const int64_t last = static_cast<int64_t>(ends_.size()) - 1;
      end_ = ends_[std::min(unit + kReach - lowest_, last)];
    }
    return end_;
  }

 private:
  int64_t lowest_, seen_;      // the lowest unit there is, and among visited nodes
  int64_t unit_;               // of the node visited last
  int32_t end_ = 0;            // what was said of it
  std::vector<int32_t> ends_;  // for each unit seen, one past the last node with at most this unit
};

/// Calls `f` with the truth value as a type.
template <class F>
decltype(auto) choose(bool value, F f) {
  return value ? f(std::true_type{}) : f(std::false_type{});
}

/// How many arcs ahead of its use memory is asked for, and the same for what is read one after the
/// other, where the processor itself asks for what is near.
constexpr int32_t kAhead = 64, kFarAhead = 512;
/// With fewer arcs, arrays are in the caches anyway.
constexpr int32_t kManyArcs = 1 << 17;
/// What belongs to nodes less far apart is in the caches.
constexpr int32_t kNear = 1 << 15;

}  // namespace

bool reaches_far(const Adjacency& out) {
  constexpr int32_t kLooks = 256;
  const auto num_nodes = static_cast<int32_t>(out.offset.size()) - 1;
  if (num_nodes < kNear) return false;
  int32_t far = 0, all = 0;
  for (int32_t n = 0; n < num_nodes; n += num_nodes / kLooks)
    for (int32_t k = out.offset[n]; k < std::min(out.offset[n + 1], out.offset[n] + kLooks); ++k) {
      far += out.node[k] - n > kNear;
      ++all;
    }
  return far > all / 8;
}

std::optional<AcyclicForward> AcyclicForward::run(const Adjacency& out, const Weights& weights,
                                                  std::span<const int32_t> sources, bool keep) {
  AcyclicForward pushed(out);
  pushed.sums_.resize(out.offset.size() - 1);
  pushed.reaches_far_ = reaches_far(out);
  if (keep) pushed.terms_ = Weights::uninitialized(weights.size(), DType::float64);
  const bool is_done = dispatch(weights.dtype(), [&](auto kind) {
    const auto* weight = weights.view<decltype(kind)>().data();
    return choose(keep, [&](auto kept) {
      return choose(pushed.reaches_far_,
                    [&](auto is_far) { return pushed.push<kept(), is_far()>(weight, sources); });
    });
  });
  if (!is_done) return std::nullopt;
  return pushed;
}

template <bool keep, bool is_far, class T>
bool AcyclicForward::push(const T* weight, std::span<const int32_t> sources) {
  constexpr int32_t kBlock = 512;
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const int32_t num_nodes = this->num_nodes(), num_arcs = offset[num_nodes];
  Sum* const sums = sums_.data();
  double* const terms = keep ? terms_.fill<double>().data() : nullptr;
  for (int32_t n : sources) sums[n] = {1.0, 0};
  Buffer<double> exps;
  int64_t lowest = INT64_MAX, highest = INT64_MIN;
  for (int32_t begin = 0, end; begin < num_nodes; begin = end) {
    const int32_t first = offset[begin];
    for (end = begin + 1; end < num_nodes && offset[end] - first < kBlock;) ++end;
    const int32_t count = offset[end] - first;
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
        for (; value > kHigh; value *= kDown) ++unit;
        for (; value < kLow; value *= kUp) --unit;
        sums[s] = {value, unit};
      }
      lowest = std::min(lowest, unit);
      highest = std::max(highest, unit);
      [[maybe_unused]] const int32_t ahead = last + kAhead <= num_arcs ? kAhead : 0;
      for (int32_t k = offset[s]; k < last; ++k) {
        if constexpr (is_far) __builtin_prefetch(&sums[dst[k + ahead]], 1);
        const double term = value * factor[k];
        if constexpr (keep) terms[k] = term;
        // Nothing must not make what is there look small.
        if (!(term > 0.0)) [[unlikely]]
          continue;
        Sum& to = sums[dst[k]];
        const Shift& shift = kShift[std::clamp(unit - to.unit, -kApart, kApart) + kApart];
        to.value = to.value * shift.sum + term * shift.term;
        to.unit = std::max(to.unit, unit);
      }
    }
  }
  if (lowest <= highest) {
    lowest_unit_ = lowest;
    highest_unit_ = highest;
  }
  return true;
}

double AcyclicForward::score(int32_t node) const {
  const auto [value, unit] = sums_[node];
  return value == 0.0 ? log(Scaled{}) : log(renormalize(value, 256.0 * static_cast<double>(unit)));
}

// The share of an arc in the sum of its destination is its term, in the unit of that sum, over the
// sum. A node that no path reaches has none: nothing flows through it, and terms into it are zero.

void AcyclicForward::pull_back(const Buffer<double>& seed, Weights& grad) const {
  const bool is_unset = grad.take_unset();
  dispatch(grad.dtype(), [&](auto kind) {
    auto* out = grad.fill<decltype(kind)>().data();
    choose(is_unset, [&](auto set) {
      if (!reaches_far_)
        pull<PlainPuller, set(), false>(seed, out);
      else if (highest_unit_ - lowest_unit_ < 256)
        pull<PackedPuller, set(), true>(seed, out);
      else
        pull<PlainPuller, set(), true>(seed, out);
    });
  });
}

template <class Puller, bool set, bool is_far, class T>
void AcyclicForward::pull(const Buffer<double>& seed, T* out) const {
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const double* terms = terms_.view<double>().data();
  Buffer<typename Puller::To> flows(sums_.size());  // set as nodes are visited
  auto* const flow = flows.data();
  Horizon horizon(lowest_unit_, is_far ? highest_unit_ - lowest_unit_ + 1 : 0);
  [[maybe_unused]] bool is_finite = true;  // none of what flows so far times zero is NaN
  const int32_t far = offset[num_nodes()] > kManyArcs ? kFarAhead : INT32_MAX;
  for (int32_t s = num_nodes() - 1; s >= 0; --s) {
    const auto [value, unit] = sums_[s];
    const int32_t first = offset[s];
    if (value == 0.0) [[unlikely]] {
      flow[s] = {};
      if constexpr (set) std::fill(out + first, out + offset[s + 1], T{0});
      continue;
    }
    const double inverse = 1.0 / value;  // ready before the last arc is
    if (first >= far) {
      __builtin_prefetch(terms + first - kFarAhead, 0, 0);
      __builtin_prefetch(terms + first - kFarAhead + 8, 0, 0);
      __builtin_prefetch(dst + first - kFarAhead, 0, 0);
    }
    double mass = seed[s];
    const Puller puller(unit, highest_unit_);
    const auto pull_over = [&](int32_t k, int32_t d) {
      const double g = puller.share(terms[k], flow[d]);
      mass += g;
      out[k] = set ? static_cast<T>(g) : out[k] + static_cast<T>(g);
    };
    // The first arc comes last, since it often goes to the node that was just done. How fast short
    // loops are depends on where they lie in memory, unless they are unrolled.
    if constexpr (!is_far) {
#pragma GCC unroll 2
      for (int32_t k = offset[s + 1] - 1; k >= first; --k) pull_over(k, dst[k]);
    } else if (const int32_t end = horizon.visit(s, unit); end - s <= kNear && is_finite) {
#pragma GCC unroll 2
      for (int32_t k = offset[s + 1] - 1; k >= first; --k) pull_over(k, std::min(dst[k], end));
    } else {
      const int32_t ahead = first >= kAhead ? kAhead : 0;
      for (int32_t k = offset[s + 1] - 1; k >= first; --k) {
        expect_far(&flow[dst[k - ahead]]);
        pull_over(k, dst[k]);
      }
    }
    const double flowing = mass * inverse;
    if constexpr (is_far) is_finite &= std::isfinite(flowing);
    flow[s] = puller.flow(flowing);
  }
}

Buffer<double> AcyclicForward::push_forward(const Weights& direction) const {
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const double* terms = terms_.view<double>().data();
  Buffer<double> moved(sums_.size(), 0.0);
  Buffer<Sum> means(sums_);  // with the unit of the node, times its sum until it is visited
  for (Sum& mean : means) mean.value = 0.0;
  dispatch(direction.dtype(), [&](auto kind) {
    const auto* along = direction.view<decltype(kind)>().data();
    for (int32_t s = 0; s < num_nodes(); ++s) {
      const auto [value, unit] = sums_[s];
      if (value == 0.0) continue;
      const double mean = moved[s] = means[s].value / value;
      for (int32_t k = offset[s]; k < offset[s + 1]; ++k) {
        Sum& to = means[dst[k]];
        to.value += in_sum(terms[k], unit, to.unit) * (mean + along[k]);
      }
    }
  });
  return moved;
}

void AcyclicForward::pull_back_moved(const Buffer<double>& seed, const Buffer<double>& seed_moved,
                                     const Weights& direction, const Buffer<double>& moved,
                                     double factor, Weights& grad) const {
  struct Flow {
    double mass, mass_moved;  // per unit of the sum
    double moved;
    int64_t unit;
  };
  const int32_t *offset = out_->offset.data(), *dst = out_->node.data();
  const double* terms = terms_.view<double>().data();
  Buffer<Flow> flow(sums_.size());
  dispatch(direction.dtype(), [&](auto along_kind) {
    dispatch(grad.dtype(), [&](auto kind) {
      using T = decltype(kind);
      const auto* along = direction.view<decltype(along_kind)>().data();
      T* out = grad.fill<T>().data();
      for (int32_t s = num_nodes() - 1; s >= 0; --s) {
        const auto [value, unit] = sums_[s];
        if (value == 0.0) {
          flow[s] = {0.0, 0.0, 0.0, kNoUnit};
          continue;
        }
        double mass = seed[s], mass_moved = seed_moved[s];
        for (int32_t k = offset[s]; k < offset[s + 1]; ++k) {
          const Flow& to = flow[dst[k]];
          const double term = in_sum(terms[k], unit, to.unit);
          const double g = term * (to.mass_moved + to.mass * (along[k] + moved[s] - to.moved));
          mass += to.mass * term;
          mass_moved += g;
          out[k] += static_cast<T>(factor * g);
        }
        flow[s] = {mass / value, mass_moved / value, moved[s], unit};
      }
    });
  });
}

}  // namespace arcgrad
