#pragma once

// The recursion over windows of few frames, 8 side by side, in plain doubles: entry (v, lane) of an
// array of values is at v * 8 + lane. It is for scores that stay within the range of a double.

#include <cstdint>

#include "arcgrad/trellis/kernels/lanes_loops.h"

namespace arcgrad::trellis {

/// Sparse rows with plain weights.
struct PlainRows {
  const int32_t* offset;
  const int32_t* index;
  const double* weight;
};

/// A graph, and the frames of 8 windows.
struct PlainWindow {
  Shape shape;
  PlainRows in, out;
  const double* begin;      // of each value before the first frame
  const double* end;        // of each value after the last frame
  const double* emissions;  // [frames, slots, 8]
  int32_t frames;
};

template <class T>
struct WindowTable {
  /// Turns the emissions of one frame into doubles relative to 2^top, the largest exponent of each
  /// lane, and finds the least one that is alive.
  void (*load)(int32_t num_slots, ConstScores<T> from, double* to, Exponent<T>* top,
               Exponent<T>* least);
  /// All frames forward: fills `values` [frames + 1, values, 8] and `total` [8].
  void (*forward)(const PlainWindow& window, double* values, double* total);
  /// log(total * 2^unit) of each lane; -inf for a total of 0.
  void (*log)(const double* total, const double* unit, double* out);
  /// All frames backward: adds scale * posterior to `slots` [frames, slots, 8], and to `terms`
  /// [out-terms, 8] unless null, there without the weight of the term. `scratch` has room for
  /// [2, values, 8].
  void (*backward)(const PlainWindow& window, const double* values, const double* scale,
                   double* scratch, T* slots, double* terms);
};

namespace baseline {
extern const WindowTable<float> windows_float;
extern const WindowTable<double> windows_double;
}  // namespace baseline
namespace avx2 {
extern const WindowTable<float> windows_float;
extern const WindowTable<double> windows_double;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace {

template <class T>
struct WindowLoops {
  /// 8 lanes are two vectors of doubles.
  using D = Lanes<double, 4>::F;
  struct Pair {
    D a, b;
  };
  ARCGRAD_INLINE static Pair get(const double* from) { return {load_d(from), load_d(from + 4)}; }
  ARCGRAD_INLINE static D load_d(const double* from) { return ARCGRAD_ISA::load<D>(from); }
  ARCGRAD_INLINE static void put(double* to, Pair x) {
    store(to, x.a);
    store(to + 4, x.b);
  }
  ARCGRAD_INLINE static Pair times(Pair x, Pair y) { return {x.a * y.a, x.b * y.b}; }
  ARCGRAD_INLINE static void add_product(Pair& sum, Pair x, double y) {
    sum.a += x.a * y;
    sum.b += x.b * y;
  }
  ARCGRAD_INLINE static void add_product(Pair& sum, Pair x, Pair y) {
    sum.a += x.a * y.a;
    sum.b += x.b * y.b;
  }
  ARCGRAD_INLINE static Pair all(double x) { return {D{} + x, D{} + x}; }

  static void load(int32_t num_slots, ConstScores<T> from, double* to, Exponent<T>* top,
                   Exponent<T>* least) {
    using L = Lanes<T, 8>;
    using F = typename L::F;
    using I = typename L::I;
    I high = I{} + kDead, low = I{} - kDead;
    for (int32_t s = 0; s < num_slots; ++s) {
      const F m = ARCGRAD_ISA::load<F>(from.mantissa + int64_t{s} * 8);
      const I q = ARCGRAD_ISA::load<I>(from.exponent + int64_t{s} * 8);
      const auto alive = m > F{};
      high = alive & (q > high) ? q : high;
      low = alive & (q < low) ? q : low;
    }
    // Where nothing is alive, any unit will do.
    const auto is_dead = high == I{} + kDead;
    high = is_dead ? I{} : high;
    low = is_dead ? I{} : low;
    store(top, high);
    store(least, low);
    using H = Lanes<T, 4>;
    using W = Lanes<double, 4>;
    for (int half = 0; half < 8; half += 4) {
      const auto unit = ARCGRAD_ISA::load<typename H::I>(top + half);
      for (int64_t at = half; at < int64_t{num_slots} * 8; at += 8) {
        const auto m = ARCGRAD_ISA::load<typename H::F>(from.mantissa + at);
        const auto q = ARCGRAD_ISA::load<typename H::I>(from.exponent + at) - unit;
        store(to + at, convert<D>(m) * power<W>(convert<typename W::I>(q)));
      }
    }
  }

  ARCGRAD_INLINE static Pair sum_row(const PlainRows& rows, int32_t row, const double* from) {
    Pair sum{};
    for (int32_t k = rows.offset[row]; k < rows.offset[row + 1]; ++k)
      add_product(sum, get(from + int64_t{rows.index[k]} * 8), rows.weight[k]);
    return sum;
  }

  static void forward(const PlainWindow& window, double* values, double* total) {
    const Shape& shape = window.shape;
    const int64_t size = int64_t{shape.num_values} * 8;
    for (int32_t v = 0; v < shape.num_values; ++v)
      put(values + int64_t{v} * 8, all(window.begin[v]));
    const double* from = values;
    for (int32_t f = 0; f < window.frames; ++f) {
      double* const to = values + (f + 1) * size;
      const double* const emissions = window.emissions + int64_t{f} * shape.num_slots * 8;
      for (int32_t p = 0; p < shape.num_emitting; ++p)
        put(to + int64_t{p} * 8,
            times(sum_row(window.in, p, from), get(emissions + int64_t{shape.slot[p]} * 8)));
      for (int32_t v = shape.num_emitting; v < shape.num_values; ++v)
        put(to + int64_t{v} * 8, sum_row(window.in, v, to));
      from = to;
    }
    // After a frame all paths are at a place.
    Pair sum{};
    for (int32_t p = 0; p < shape.num_emitting; ++p)
      add_product(sum, get(from + int64_t{p} * 8), window.end[p]);
    put(total, sum);
  }

  static void log(const double* total, const double* unit, double* out) {
    using L = Lanes<double, 4>;
    for (int half = 0; half < 8; half += 4) {
      const D x = ARCGRAD_ISA::load<D>(total + half);
      D m;
      L::I q;
      normalize<L>(x, L::I{}, m, q);
      // With the mantissa between the roots of 1/2 and 2, and s = (m - 1) / (m + 1), its logarithm
      // is 2 (s + s^3 / 3 + s^5 / 5 + ...); what is left out is below the last digit.
      const auto is_high = m > D{} + 1.4142135623730951;
      m = is_high ? m * 0.5 : m;
      const D s = (m - 1.0) / (m + 1.0), s2 = s * s;
      D series = D{} + 1.0 / 21.0;
      for (int k = 19; k >= 1; k -= 2) series = series * s2 + 1.0 / k;
      const D whole = convert<D>(is_high ? q + 1 : q) + ARCGRAD_ISA::load<D>(unit + half);
      const D sum = whole * 6.93147180369123816490e-01 +
                    (whole * 1.90821492927058770002e-10 + 2.0 * s * series);
      store(out + half, x > D{} ? sum : D{} - __builtin_inf());
    }
  }

  ARCGRAD_INLINE static void add_slot(T* to, Pair x) {
    typedef T Half __attribute__((vector_size(4 * sizeof(T))));
    store(to, ARCGRAD_ISA::load<Half>(to) + convert<Half>(x.a));
    store(to + 4, ARCGRAD_ISA::load<Half>(to + 4) + convert<Half>(x.b));
  }

  template <bool with_terms>
  ARCGRAD_INLINE static void backward_rows(const PlainWindow& window, const double* before,
                                           Pair scale, double* g, double* b,
                                           double* __restrict terms) {
    const PlainRows& out = window.out;
    for (int32_t v = window.shape.num_values - 1; v >= 0; --v) {
      Pair sum{}, share{};
      if constexpr (with_terms) share = times(get(before + int64_t{v} * 8), scale);
      for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
        const Pair x = get(g + int64_t{out.index[k]} * 8);
        add_product(sum, x, out.weight[k]);
        if constexpr (with_terms) {
          Pair term = get(terms + int64_t{k} * 8);
          add_product(term, x, share);
          put(terms + int64_t{k} * 8, term);
        }
      }
      put(b + int64_t{v} * 8, sum);
      if (v >= window.shape.num_emitting) put(g + int64_t{v} * 8, sum);
    }
  }

  static void backward(const PlainWindow& window, const double* values, const double* scale,
                       double* scratch, T* slots, double* terms) {
    const Shape& shape = window.shape;
    const int64_t size = int64_t{shape.num_values} * 8, frame = int64_t{shape.num_slots} * 8;
    double *const b = scratch, *const g = scratch + size;
    const Pair factor = get(scale);
    for (int32_t v = 0; v < shape.num_values; ++v) put(b + int64_t{v} * 8, all(window.end[v]));
    // Epsilon arcs after the last frame.
    if (terms && shape.num_values > shape.num_emitting)
      for (int32_t v = 0; v < shape.num_values; ++v) {
        const Pair share = times(get(values + window.frames * size + int64_t{v} * 8), factor);
        for (int32_t k = window.out.offset[v]; k < window.out.offset[v + 1]; ++k) {
          if (window.out.index[k] < shape.num_emitting) continue;
          Pair term = get(terms + int64_t{k} * 8);
          add_product(term, share, window.end[window.out.index[k]]);
          put(terms + int64_t{k} * 8, term);
        }
      }
    for (int32_t f = window.frames - 1; f >= 0; --f) {
      const double* const after = values + (f + 1) * size;
      const double* const emissions = window.emissions + f * frame;
      for (int32_t p = 0; p < shape.num_emitting; ++p) {
        const int64_t at = int64_t{p} * 8, s = int64_t{shape.slot[p]} * 8;
        const Pair x = get(b + at);
        add_slot(slots + f * frame + s, times(times(get(after + at), x), factor));
        put(g + at, times(get(emissions + s), x));
      }
      if (terms)
        backward_rows<true>(window, values + f * size, factor, g, b, terms);
      else if (f > 0)
        backward_rows<false>(window, values + f * size, factor, g, b, terms);
    }
  }

  static constexpr WindowTable<T> table{load, forward, log, backward};
};

}  // namespace

const WindowTable<float> windows_float = WindowLoops<float>::table;
const WindowTable<double> windows_double = WindowLoops<double>::table;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
