#pragma once

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

// The loops of second derivatives, all in double: a score is mantissa * 2^exponent, the exponent a
// whole number too, or dead with mantissa 0 and exponent -inf. With each score goes a move, the
// mean over its paths of how much a direction moves them.

namespace arcgrad::trellis {

/// So many numbers are taken at once.
inline constexpr int32_t kCurvatureLanes = 4;

struct MovedScores {
  double *mantissa, *exponent, *move;

  MovedScores operator+(int64_t offset) const {
    return {mantissa + offset, exponent + offset, move + offset};
  }
};

/// The terms of each value: `index` is the value a term reads, and `weight` that of its arc.
struct HvpRows {
  const int32_t *offset, *index;
  MovedScores weight;
};

/// The arcs between places by distance. The weight of an arc of diagonal d that leads to place p is
/// at d * stride + p, with dead ones around.
struct HvpDiagonals {
  int32_t count;
  const int32_t* distance;
  int64_t stride;
  MovedScores weight;
};

/// What one frame back needs to add the posteriors of arcs, or nothing: per lane, the exponent of
/// the score of all paths, the mean move that goes off, and the scale; per term, the sums.
struct HvpArcs {
  const double *unit, *mean, *scale;
  double* sums = nullptr;
};

/// Loops over `Arcs` with `W` numbers side by side: either one value of that many examples, or that
/// many places of one. Where `slot` is null there is one emission per place.
template <class Arcs>
struct HvpTable {
  /// Turns logarithms of emissions into scores; both they and the moves have one row of `num_slots`
  /// per example. True if one is NaN or +inf.
  bool (*split)(int64_t num_slots, const double* logarithms, const double* moves, MovedScores to);
  /// The values [begin, end) of a frame: places from the frame before, with emissions, or sums from
  /// the frame itself, without. `center` goes off the moves of places; returns their sums.
  void (*forward)(const Arcs& in, int32_t begin, int32_t end, MovedScores from,
                  const MovedScores* emissions, const int32_t* slot, const double* center,
                  MovedScores to, double* sums);
  /// The values [begin, end) of the frame before, from scores after entering `g`, in descending
  /// order; those from `num_emitting` on are put into `g` too.
  void (*backward)(const Arcs& out, int32_t begin, int32_t end, int32_t num_emitting, MovedScores g,
                   MovedScores v, const HvpArcs& arcs, MovedScores b);
  /// Posteriors of places in units of 2^unit, the sums of posteriors and of posteriors times moves.
  void (*posteriors)(int32_t num_emitting, MovedScores v, MovedScores b, const double* unit,
                     double* posterior, double* total, double* moved);
  /// Turns posteriors into their derivatives, posterior * (move - mean) * scale, and finds `g`: the
  /// scores to the end with the emission of each place, `mean` less.
  void (*finish)(int32_t num_emitting, MovedScores v, MovedScores b, MovedScores emissions,
                 const int32_t* slot, const double* mean, const double* scale, double* posterior,
                 MovedScores g);
};

namespace baseline {
extern const HvpTable<HvpRows> curvature1, curvature4;
extern const HvpTable<HvpDiagonals> curvature_diagonals;
}  // namespace baseline
namespace avx2 {
extern const HvpTable<HvpRows> curvature1, curvature4;
extern const HvpTable<HvpDiagonals> curvature_diagonals;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace curvature {

inline constexpr double kDeadExponent = -__builtin_inf();

/// One value of `W` examples at a time, over rows of terms.
template <int W>
struct RowLayout {
  using Arcs = HvpRows;
  using L = Lanes<double, W>;
  using F = typename L::F;
  static constexpr int32_t kStep = 1;
  ARCGRAD_INLINE static int64_t at(int64_t value) { return value * W; }
  /// Number s of each row of `count`.
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

/// Some places at a time, along diagonals.
struct DiagonalLayout {
  using Arcs = HvpDiagonals;
  using L = Lanes<double, kCurvatureLanes>;
  using F = typename L::F;
  static constexpr int32_t kStep = kCurvatureLanes;
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
struct Loops {
  using Arcs = typename Layout::Arcs;
  using L = typename Layout::L;
  using F = typename L::F;
  using I = typename L::I;

  /// 2^exponent for whole numbers of at most 1023; 0 below -1022 and for NaN.
  ARCGRAD_INLINE static F power(F exponent) {
    const F biased = larger<F>(exponent, F{} - 1023.0) + (1023.0 + 0x1p52);
    return bits_as<F>(bits_as<I>(biased) << 52);
  }

  /// Brings a sum into the form of a score.
  ARCGRAD_INLINE static void put(F sum, F exponent, F move, MovedScores to) {
    const I bits = bits_as<I>(sum);
    const I one = bits_as<I>(F{} + 1.0), whole = bits_as<I>(F{} + 0x1p52);
    const F shift = bits_as<F>((bits >> 52) | whole) - (0x1p52 + 1023.0);
    const F mantissa = bits_as<F>((bits & ((int64_t{1} << 52) - 1)) | one);
    const auto is_alive = sum > F{};
    store(to.mantissa, is_alive ? mantissa : F{});
    store(to.exponent, is_alive ? exponent + shift : F{} + kDeadExponent);
    store(to.move, is_alive ? move : F{});
  }

  static bool split(int64_t num_slots, const double* logarithms, const double* moves,
                    MovedScores to) {
    auto is_good = F{} == F{};
    for (int64_t s = 0; s < num_slots; s += Layout::kStep) {
      const F w = Layout::across(logarithms, num_slots, s);
      is_good &= w < F{} + __builtin_inf();
      F mantissa, exponent;
      split_exp_wide<L>(w, mantissa, exponent);
      const int64_t at = Layout::at(s);
      store(to.mantissa + at, mantissa);
      store(to.exponent + at, mantissa > F{} ? exponent : F{} + kDeadExponent);
      store(to.move + at, Layout::across(moves, num_slots, s));
    }
    if constexpr (sizeof(F) == sizeof(double))
      return !is_good;
    else
      return any_lane(~is_good);
  }

  static void forward(const Arcs& in, int32_t begin, int32_t end, MovedScores from,
                      const MovedScores* emissions, const int32_t* slot, const double* center,
                      MovedScores to, double* sums) {
    const F off = center ? load<F>(center) : F{};
    F moved = F{};
    for (int32_t v = begin; v < end; v += Layout::kStep) {
      F top = F{} + kDeadExponent, sum = F{}, move = F{};
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
        move += m * (load<F>(from.move + at) + Layout::weight(in.weight.move, term));
      }
      move /= sum;
      if (emissions) {
        const MovedScores emission = *emissions + Layout::at(slot ? slot[v] : v);
        sum *= load<F>(emission.mantissa);
        top += load<F>(emission.exponent);
        move += load<F>(emission.move) - off;
      }
      const MovedScores at = to + Layout::at(v);
      put(sum, top, move, at);
      moved += load<F>(at.move);
    }
    if (sums) store(sums, moved);
  }

  template <bool kWithArcs>
  ARCGRAD_INLINE static void go_back(const Arcs& out, int32_t begin, int32_t end,
                                     int32_t num_emitting, MovedScores g, MovedScores from,
                                     const HvpArcs& arcs, MovedScores b) {
    const F unit = kWithArcs ? load<F>(arcs.unit) : F{};
    const F mean = kWithArcs ? load<F>(arcs.mean) : F{};
    const F scale = kWithArcs ? load<F>(arcs.scale) : F{};
    for (int32_t v = end - Layout::kStep; v >= begin; v -= Layout::kStep) {
      F top = F{} + kDeadExponent, sum = F{}, move = F{};
      const int32_t first = Layout::begin(out, v), last = Layout::end(out, v);
      for (int32_t k = first; k < last; ++k)
        top = larger<F>(load<F>(g.exponent + Layout::destination(out, k, v)) +
                            Layout::weight(out.weight.exponent, Layout::term_out(out, k, v)),
                        top);
      F share = F{}, own = F{};
      if constexpr (kWithArcs) {
        const MovedScores at = from + Layout::at(v);
        const F shift = load<F>(at.exponent) + top - unit;
        share = load<F>(at.mantissa) * power(shift < F{} + 100.0 ? shift : F{} + 100.0) * scale;
        // Where there are no paths the exponent may be NaN, and is no number to count with.
        share = load<F>(at.mantissa) > F{} ? share : F{};
        own = load<F>(at.move) - mean;
      }
      for (int32_t k = first; k < last; ++k) {
        const int64_t at = Layout::destination(out, k, v), term = Layout::term_out(out, k, v);
        const F q = load<F>(g.exponent + at) + Layout::weight(out.weight.exponent, term);
        const F m =
            load<F>(g.mantissa + at) * Layout::weight(out.weight.mantissa, term) * power(q - top);
        const F moved = load<F>(g.move + at) + Layout::weight(out.weight.move, term);
        sum += m;
        move += m * moved;
        if constexpr (kWithArcs) {
          double* const to = arcs.sums + Layout::sum_at(term);
          store(to, load<F>(to) + share * m * (own + moved));
        }
      }
      put(sum, top, move / sum, b + Layout::at(v));
      if (v >= num_emitting) put(sum, top, move / sum, g + Layout::at(v));
    }
  }

  static void backward(const Arcs& out, int32_t begin, int32_t end, int32_t num_emitting,
                       MovedScores g, MovedScores v, const HvpArcs& arcs, MovedScores b) {
    if (arcs.sums)
      go_back<true>(out, begin, end, num_emitting, g, v, arcs, b);
    else
      go_back<false>(out, begin, end, num_emitting, g, v, arcs, b);
  }

  static void posteriors(int32_t num_emitting, MovedScores v, MovedScores b, const double* unit,
                         double* posterior, double* total, double* moved) {
    F all = F{}, moves = F{};
    const F base = load<F>(unit), most = F{} + 100.0;
    for (int32_t p = 0; p < num_emitting; p += Layout::kStep) {
      const int64_t at = Layout::at(p);
      const F q = load<F>(v.exponent + at) + load<F>(b.exponent + at) - base;
      const F share =
          load<F>(v.mantissa + at) * load<F>(b.mantissa + at) * power(q < most ? q : most);
      all += share;
      moves += share * (load<F>(v.move + at) + load<F>(b.move + at));
      store(posterior + at, share);
    }
    store(total, all);
    store(moved, moves);
  }

  static void finish(int32_t num_emitting, MovedScores v, MovedScores b, MovedScores emissions,
                     const int32_t* slot, const double* mean, const double* scale,
                     double* posterior, MovedScores g) {
    const F off = load<F>(mean), factor = load<F>(scale);
    for (int32_t p = 0; p < num_emitting; p += Layout::kStep) {
      const int64_t at = Layout::at(p);
      const MovedScores emission = emissions + Layout::at(slot ? slot[p] : p);
      const F after = load<F>(b.move + at) - off;
      store(posterior + at, load<F>(posterior + at) * (load<F>(v.move + at) + after) * factor);
      store(g.mantissa + at, load<F>(emission.mantissa) * load<F>(b.mantissa + at));
      store(g.exponent + at, load<F>(emission.exponent) + load<F>(b.exponent + at));
      store(g.move + at, load<F>(emission.move) + after);
    }
  }

  static constexpr HvpTable<Arcs> table{split, forward, backward, posteriors, finish};
};

}  // namespace curvature

const HvpTable<HvpRows> curvature1 = curvature::Loops<curvature::RowLayout<1>>::table;
const HvpTable<HvpRows> curvature4 = curvature::Loops<curvature::RowLayout<kCurvatureLanes>>::table;
const HvpTable<HvpDiagonals> curvature_diagonals =
    curvature::Loops<curvature::DiagonalLayout>::table;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
