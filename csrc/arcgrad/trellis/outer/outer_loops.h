#pragma once

// The forward-backward recursion over short windows, 8 side by side, in plain doubles. Scores must
// stay within the range of a double. The score of state v and window `lane` is at v * 8 + lane.

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
  const double* begin;      // of each state before the first frame
  const double* end;        // of each state after the last frame
  const double* emissions;  // [frames, slots, 8]
  int32_t frames;
};

template <class T>
struct WindowTable {
  /// Converts the emissions of one frame to doubles relative to 2^top, where `top` is the largest
  /// exponent of each lane, and finds the least exponent of a possible emission.
  void (*load)(int32_t num_slots, ConstScores<T> from, double* to, Exponent<T>* top,
               Exponent<T>* least);
  /// All frames forward: fills `values` [frames + 1, states, 8] and `total` [8].
  void (*forward)(const PlainWindow& window, double* values, double* total);
  /// log(total * 2^unit) of each lane; -inf for a total of 0.
  void (*log)(const double* total, const double* unit, double* out);
  /// All frames backward: adds scale * posterior to `slots` [frames, slots, 8] and, without the
  /// factor of the weight, to `terms` [out-terms, 8] unless that is null. `scratch` has the size
  /// [2, states, 8].
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
  struct Doubles8 {
    D a, b;
  };
  ARCGRAD_INLINE static Doubles8 get(const double* from) {
    return {load_d(from), load_d(from + 4)};
  }
  ARCGRAD_INLINE static D load_d(const double* from) { return ARCGRAD_ISA::load<D>(from); }
  ARCGRAD_INLINE static void put(double* to, Doubles8 x) {
    store(to, x.a);
    store(to + 4, x.b);
  }
  ARCGRAD_INLINE static Doubles8 times(Doubles8 x, Doubles8 y) { return {x.a * y.a, x.b * y.b}; }
  ARCGRAD_INLINE static void add_product(Doubles8& sum, Doubles8 x, double y) {
    sum.a += x.a * y;
    sum.b += x.b * y;
  }
  ARCGRAD_INLINE static void add_product(Doubles8& sum, Doubles8 x, Doubles8 y) {
    sum.a += x.a * y.a;
    sum.b += x.b * y.b;
  }
  ARCGRAD_INLINE static Doubles8 all(double x) { return {D{} + x, D{} + x}; }

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
      high = (alive & (q > high)) ? q : high;
      low = (alive & (q < low)) ? q : low;
    }
    // If all emissions are zero, the unit does not matter.
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

  ARCGRAD_INLINE static Doubles8 sum_row(const PlainRows& rows, int32_t row, const double* from) {
    Doubles8 sum{};
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
    // After a frame all paths are in an emitting state.
    Doubles8 sum{};
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
      // With m between the square roots of 1/2 and 2, and s = (m - 1) / (m + 1), log(m) = 2 (s +
      // s^3 / 3 + s^5 / 5 + ...). The truncation error is below the last digit.
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

  ARCGRAD_INLINE static void add_slot(T* to, Doubles8 x) {
    typedef T Half __attribute__((vector_size(4 * sizeof(T))));
    store(to, ARCGRAD_ISA::load<Half>(to) + convert<Half>(x.a));
    store(to + 4, ARCGRAD_ISA::load<Half>(to + 4) + convert<Half>(x.b));
  }

  template <bool with_terms>
  ARCGRAD_INLINE static void backward_rows(const PlainWindow& window, const double* before,
                                           Doubles8 scale, double* g, double* b,
                                           double* __restrict terms) {
    const PlainRows& out = window.out;
    for (int32_t v = window.shape.num_values - 1; v >= 0; --v) {
      Doubles8 sum{}, posterior{};
      if constexpr (with_terms) posterior = times(get(before + int64_t{v} * 8), scale);
      for (int32_t k = out.offset[v]; k < out.offset[v + 1]; ++k) {
        const Doubles8 x = get(g + int64_t{out.index[k]} * 8);
        add_product(sum, x, out.weight[k]);
        if constexpr (with_terms) {
          Doubles8 term = get(terms + int64_t{k} * 8);
          add_product(term, x, posterior);
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
    const Doubles8 factor = get(scale);
    for (int32_t v = 0; v < shape.num_values; ++v) put(b + int64_t{v} * 8, all(window.end[v]));
    // The epsilon arcs after the last frame.
    if (terms && shape.num_values > shape.num_emitting)
      for (int32_t v = 0; v < shape.num_values; ++v) {
        const Doubles8 posterior =
            times(get(values + window.frames * size + int64_t{v} * 8), factor);
        for (int32_t k = window.out.offset[v]; k < window.out.offset[v + 1]; ++k) {
          if (window.out.index[k] < shape.num_emitting) continue;
          Doubles8 term = get(terms + int64_t{k} * 8);
          add_product(term, posterior, window.end[window.out.index[k]]);
          put(terms + int64_t{k} * 8, term);
        }
      }
    for (int32_t f = window.frames - 1; f >= 0; --f) {
      const double* const after = values + (f + 1) * size;
      const double* const emissions = window.emissions + f * frame;
      for (int32_t p = 0; p < shape.num_emitting; ++p) {
        const int64_t at = int64_t{p} * 8, s = int64_t{shape.slot[p]} * 8;
        const Doubles8 x = get(b + at);
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
