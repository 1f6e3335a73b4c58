#pragma once

// The loops of Hessian-vector products, all in double. A score is mantissa * 2^exponent with an
// integer exponent; an impossible score has mantissa 0 and exponent -inf. Each score has a tangent:
// the mean, over its paths, of the tangents of their scores.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// The number of doubles in a vector, and of examples side by side.
inline constexpr int32_t kHvpLanes = 4;

struct TangentScores {
  double *mantissa, *exponent, *tangent;

  TangentScores operator+(int64_t offset) const {
    return {mantissa + offset, exponent + offset, tangent + offset};
  }
};

/// The terms of each state: `index` is the state that a term reads, `weight` the weight of its arc.
struct HvpRows {
  const int32_t *offset, *index;
  TangentScores weight;
};

/// The arcs between emitting states by offset (destination minus source). The weight of the arc of
/// diagonal d that leads to state p is at d * stride + p; the padding has scores of zero.
struct HvpDiagonals {
  int32_t count;
  const int32_t* distance;
  int64_t stride;
  TangentScores weight;
};

/// What the backward step of a frame needs for the gradients of arcs. Per lane: the exponent of the
/// score of all paths, the mean tangent to subtract, and the scale. Per term: the sums, or null.
struct HvpArcs {
  const double *unit, *mean, *scale;
  double* sums = nullptr;
};

/// HvpLoops over `Arcs` with `W` numbers side by side: either one state of that many examples, or
/// that many states of one. If `slot` is null there is one emission per state.
template <class Arcs>
struct HvpTable {
  /// Converts logarithms of emissions to scores. Logarithms and tangents have a row of `num_slots`
  /// per example. Returns true if one is NaN or +inf.
  bool (*split)(int64_t num_slots, const double* logarithms, const double* tangents,
                TangentScores to);
  /// Computes the states [begin, end) of a frame: emitting states from the frame before, with
  /// emissions, or non-emitting states from the frame itself, without. Subtracts `center` from the
  /// tangents of emitting states, and sets `sums` to their sums.
  void (*forward)(const Arcs& in, int32_t begin, int32_t end, TangentScores from,
                  const TangentScores* emissions, const int32_t* slot, const double* center,
                  TangentScores to, double* sums);
  /// Computes the scores `b` to the end of the states [begin, end) of the frame before, in
  /// descending order, from the scores `g` that include the emission. Copies non-emitting states to
  /// `g`.
  void (*backward)(const Arcs& out, int32_t begin, int32_t end, int32_t num_emitting,
                   TangentScores g, TangentScores v, const HvpArcs& arcs, TangentScores b);
  /// Computes the posteriors of emitting states in units of 2^unit, their sum, and the sum of
  /// posterior times tangent.
  void (*posteriors)(int32_t num_emitting, TangentScores v, TangentScores b, const double* unit,
                     double* posterior, double* total, double* tangent_sum);
  /// Replaces posteriors by their derivatives, posterior * (tangent - mean) * scale, and computes
  /// `g`: the scores to the end times the emission of each state, with `mean` subtracted from their
  /// tangents.
  void (*finish)(int32_t num_emitting, TangentScores v, TangentScores b, TangentScores emissions,
                 const int32_t* slot, const double* mean, const double* scale, double* posterior,
                 TangentScores g);
};

namespace baseline {
extern const HvpTable<HvpRows> hvp1, hvp4;
extern const HvpTable<HvpDiagonals> hvp_diagonals;
}  // namespace baseline
namespace avx2 {
extern const HvpTable<HvpRows> hvp1, hvp4;
extern const HvpTable<HvpDiagonals> hvp_diagonals;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace hvp {

inline constexpr double kDeadExponent = -__builtin_inf();

/// One state of `W` examples at a time, over rows of terms.
template <int W>
struct RowLayout {
  using Arcs = HvpRows;
  using L = Lanes<double, W>;
  using F = typename L::F;
  static constexpr int32_t kStep = 1;
  ARCGRAD_INLINE static int64_t at(int64_t value) { return value * W; }
  /// Loads entry s of each row of `count` numbers.
  ARCGRAD_INLINE static F across(const double* rows, int64_t count, int64_t s) {
    if constexpr (W == 1)
      return rows[s];
    else
      return F{rows[s], rows[count + s], rows[2 * count + s], rows[3 * count + s]};
  }
  ARCGRAD_INLINE static int32_t begin(const Arcs& arcs, int32_t v) { return arcs.offset[v]; }
  ARCGRAD_INLINE static int32_t end(const Arcs& arcs, int32_t v) { return arcs.offset[v + 1]; }
  ARCGRAD_INLINE static int64_t source(const Arcs& arcs, int32_t k, int32_t) {
    return at(arcs.index[k]);
  }
  ARCGRAD_INLINE static int64_t destination(const Arcs& arcs, int32_t k, int32_t) {
    return at(arcs.index[k]);
  }
  ARCGRAD_INLINE static int64_t term_in(const Arcs&, int32_t k, int32_t) { return k; }
  ARCGRAD_INLINE static int64_t term_out(const Arcs&, int32_t k, int32_t) { return k; }
  ARCGRAD_INLINE static F weight(const double* from, int64_t term) { return F{} + from[term]; }
  ARCGRAD_INLINE static int64_t sum_at(int64_t term) { return term * W; }
};

/// A vector of consecutive states of one example at a time, along diagonals.
struct DiagonalLayout {
  using Arcs = HvpDiagonals;
  using L = Lanes<double, kHvpLanes>;
  using F = typename L::F;
  static constexpr int32_t kStep = kHvpLanes;
  ARCGRAD_INLINE static int64_t at(int64_t value) { return value; }
  ARCGRAD_INLINE static F across(const double* rows, int64_t, int64_t s) {
    return load<F>(rows + s);
  }
  ARCGRAD_INLINE static int32_t begin(const Arcs&, int32_t) { return 0; }
  ARCGRAD_INLINE static int32_t end(const Arcs& arcs, int32_t) { return arcs.count; }
  ARCGRAD_INLINE static int64_t source(const Arcs& arcs, int32_t d, int32_t v) {
    return v - arcs.distance[d];
  }
  ARCGRAD_INLINE static int64_t destination(const Arcs& arcs, int32_t d, int32_t v) {
    return v + arcs.distance[d];
  }
  ARCGRAD_INLINE static int64_t term_in(const Arcs& arcs, int32_t d, int32_t v) {
    return d * arcs.stride + v;
  }
  ARCGRAD_INLINE static int64_t term_out(const Arcs& arcs, int32_t d, int32_t v) {
    return d * arcs.stride + v + arcs.distance[d];
  }
  ARCGRAD_INLINE static F weight(const double* from, int64_t term) { return load<F>(from + term); }
  ARCGRAD_INLINE static int64_t sum_at(int64_t term) { return term; }
};

template <class Layout>
struct HvpLoops {
  using Arcs = typename Layout::Arcs;
  using L = typename Layout::L;
  using F = typename L::F;
  using I = typename L::I;

  /// 2^exponent for integers of at most 1023; 0 below -1022 and for NaN.
  ARCGRAD_INLINE static F power(F exponent) {
    const F biased = larger<F>(exponent, F{} - 1023.0) + (1023.0 + 0x1p52);
    return bits_as<F>(bits_as<I>(biased) << 52);
  }

  /// Normalizes a sum to a score.
  ARCGRAD_INLINE static void put(F sum, F exponent, F tangent, TangentScores to) {
    const I bits = bits_as<I>(sum);
    const I one = bits_as<I>(F{} + 1.0), whole = bits_as<I>(F{} + 0x1p52);
    const F shift = bits_as<F>((bits >> 52) | whole) - (0x1p52 + 1023.0);
    const F mantissa = bits_as<F>((bits & ((int64_t{1} << 52) - 1)) | one);
    const auto is_alive = sum > F{};
    store(to.mantissa, is_alive ? mantissa : F{});
    store(to.exponent, is_alive ? exponent + shift : F{} + kDeadExponent);
    store(to.tangent, is_alive ? tangent : F{});
  }

  static bool split(int64_t num_slots, const double* logarithms, const double* tangents,
                    TangentScores to) {
    auto is_good = F{} == F{};
    for (int64_t s = 0; s < num_slots; s += Layout::kStep) {
      const F w = Layout::across(logarithms, num_slots, s);
      is_good &= w < F{} + __builtin_inf();
      F mantissa, exponent;
      split_exp_wide<L>(w, mantissa, exponent);
      const int64_t at = Layout::at(s);
      store(to.mantissa + at, mantissa);
      store(to.exponent + at, mantissa > F{} ? exponent : F{} + kDeadExponent);
      store(to.tangent + at, Layout::across(tangents, num_slots, s));
    }
    if constexpr (sizeof(F) == sizeof(double))
      return !is_good;
    else
      return any_lane(~is_good);
  }

  static void forward(const Arcs& in, int32_t begin, int32_t end, TangentScores from,
                      const TangentScores* emissions, const int32_t* slot, const double* center,
                      TangentScores to, double* sums) {
    const F off = center ? load<F>(center) : F{};
    F tangent_sum = F{};
    for (int32_t v = begin; v < end; v += Layout::kStep) {
      F top = F{} + kDeadExponent, sum = F{}, tangent = F{};
      const int32_t first = Layout::begin(in, v), last = Layout::end(in, v);
      for (int32_t k = first; k < last; ++k)
        top = larger<F>(load<F>(from.exponent + Layout::source(in, k, v)) +
                            Layout::weight(in.weight.exponent, Layout::term_in(in, k, v)),
                        top);
      for (int32_t k = first; k < last; ++k) {
        const int64_t at = Layout::source(in, k, v), term = Layout::term_in(in, k, v);
        const F q = load<F>(from.exponent + at) + Layout::weight(in.weight.exponent, term);
        const F m =
            load<F>(from.mantissa + at) * Layout::weight(in.weight.mantissa, term) * power(q - top);
        sum += m;
        tangent += m * (load<F>(from.tangent + at) + Layout::weight(in.weight.tangent, term));
      }
      tangent /= sum;
      if (emissions) {
        const TangentScores emission = *emissions + Layout::at(slot ? slot[v] : v);
        sum *= load<F>(emission.mantissa);
        top += load<F>(emission.exponent);
        tangent += load<F>(emission.tangent) - off;
      }
      const TangentScores at = to + Layout::at(v);
      put(sum, top, tangent, at);
      tangent_sum += load<F>(at.tangent);
    }
    if (sums) store(sums, tangent_sum);
  }

  template <bool kWithArcs>
  ARCGRAD_INLINE static void go_back(const Arcs& out, int32_t begin, int32_t end,
                                     int32_t num_emitting, TangentScores g, TangentScores from,
                                     const HvpArcs& arcs, TangentScores b) {
    const F unit = kWithArcs ? load<F>(arcs.unit) : F{};
    const F mean = kWithArcs ? load<F>(arcs.mean) : F{};
    const F scale = kWithArcs ? load<F>(arcs.scale) : F{};
    for (int32_t v = end - Layout::kStep; v >= begin; v -= Layout::kStep) {
      F top = F{} + kDeadExponent, sum = F{}, tangent = F{};
      const int32_t first = Layout::begin(out, v), last = Layout::end(out, v);
      for (int32_t k = first; k < last; ++k)
        top = larger<F>(load<F>(g.exponent + Layout::destination(out, k, v)) +
                            Layout::weight(out.weight.exponent, Layout::term_out(out, k, v)),
                        top);
      F posterior = F{}, own = F{};
      if constexpr (kWithArcs) {
        const TangentScores at = from + Layout::at(v);
        const F shift = load<F>(at.exponent) + top - unit;
        posterior = load<F>(at.mantissa) * power(shift < F{} + 100.0 ? shift : F{} + 100.0) * scale;
        // Without paths the exponent may be NaN.
        posterior = load<F>(at.mantissa) > F{} ? posterior : F{};
        own = load<F>(at.tangent) - mean;
      }
      for (int32_t k = first; k < last; ++k) {
        const int64_t at = Layout::destination(out, k, v), term = Layout::term_out(out, k, v);
        const F q = load<F>(g.exponent + at) + Layout::weight(out.weight.exponent, term);
        const F m =
            load<F>(g.mantissa + at) * Layout::weight(out.weight.mantissa, term) * power(q - top);
        const F tangent_sum = load<F>(g.tangent + at) + Layout::weight(out.weight.tangent, term);
        sum += m;
        tangent += m * tangent_sum;
        if constexpr (kWithArcs) {
          double* const to = arcs.sums + Layout::sum_at(term);
          store(to, load<F>(to) + posterior * m * (own + tangent_sum));
        }
      }
      put(sum, top, tangent / sum, b + Layout::at(v));
      if (v >= num_emitting) put(sum, top, tangent / sum, g + Layout::at(v));
    }
  }

  static void backward(const Arcs& out, int32_t begin, int32_t end, int32_t num_emitting,
                       TangentScores g, TangentScores v, const HvpArcs& arcs, TangentScores b) {
    if (arcs.sums)
      go_back<true>(out, begin, end, num_emitting, g, v, arcs, b);
    else
      go_back<false>(out, begin, end, num_emitting, g, v, arcs, b);
  }

  static void posteriors(int32_t num_emitting, TangentScores v, TangentScores b, const double* unit,
                         double* posterior, double* total, double* tangent_sum) {
    F all = F{}, tangents = F{};
    const F base = load<F>(unit), most = F{} + 100.0;
    for (int32_t p = 0; p < num_emitting; p += Layout::kStep) {
      const int64_t at = Layout::at(p);
      const F q = load<F>(v.exponent + at) + load<F>(b.exponent + at) - base;
      const F y = load<F>(v.mantissa + at) * load<F>(b.mantissa + at) * power(q < most ? q : most);
      all += y;
      tangents += y * (load<F>(v.tangent + at) + load<F>(b.tangent + at));
      store(posterior + at, y);
    }
    store(total, all);
    store(tangent_sum, tangents);
  }

  static void finish(int32_t num_emitting, TangentScores v, TangentScores b,
                     TangentScores emissions, const int32_t* slot, const double* mean,
                     const double* scale, double* posterior, TangentScores g) {
    const F off = load<F>(mean), factor = load<F>(scale);
    for (int32_t p = 0; p < num_emitting; p += Layout::kStep) {
      const int64_t at = Layout::at(p);
      const TangentScores emission = emissions + Layout::at(slot ? slot[p] : p);
      const F after = load<F>(b.tangent + at) - off;
      store(posterior + at, load<F>(posterior + at) * (load<F>(v.tangent + at) + after) * factor);
      store(g.mantissa + at, load<F>(emission.mantissa) * load<F>(b.mantissa + at));
      store(g.exponent + at, load<F>(emission.exponent) + load<F>(b.exponent + at));
      store(g.tangent + at, load<F>(emission.tangent) + after);
    }
  }

  static constexpr HvpTable<Arcs> table{split, forward, backward, posteriors, finish};
};

}  // namespace hvp

const HvpTable<HvpRows> hvp1 = hvp::HvpLoops<hvp::RowLayout<1>>::table;
const HvpTable<HvpRows> hvp4 = hvp::HvpLoops<hvp::RowLayout<kHvpLanes>>::table;
const HvpTable<HvpDiagonals> hvp_diagonals = hvp::HvpLoops<hvp::DiagonalLayout>::table;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
