#pragma once

// The loops of the `lanes` and `csr` kernels over the states of one frame, for `W` examples: entry
// (v, lane) of an array of values is at v * W + lane. lanes.h explains the algorithm.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// Scores: mantissas and exponents.
template <class T>
struct Scores {
  T* mantissa;
  Exponent<T>* exponent;
};
template <class T>
struct ConstScores {
  const T* mantissa;
  const Exponent<T>* exponent;
  ConstScores(const T* m, const Exponent<T>* q) : mantissa(m), exponent(q) {}
  ConstScores(Scores<T> s) : mantissa(s.mantissa), exponent(s.exponent) {}
};

/// Rows with the weight of each term.
template <class T>
struct WeightedRows {
  const int32_t* offset;
  const int32_t* index;
  const T* mantissa;
  const Exponent<T>* exponent;
};

/// The numbers of states and slots of a graph, and the labels of its emitting states.
struct Shape {
  int32_t num_emitting, num_values, num_slots;
  const int32_t* slot;   // of each emitting state
  const int32_t* label;  // of each slot, ascending

  /// `count` slots from `first` on.
  Shape slots(int32_t first, int32_t count) const {
    return {num_emitting, num_values, count, slot, label + first};
  }
};

/// The states [begin, end). Threads divide the states of a frame.
struct States {
  int32_t begin, end;
};

template <class T>
struct LanesTable {
  /// Converts the emissions of one frame to scores: lane l reads row[l][label * stride[l]] for the
  /// first count[l] of the labels; the other slots are zero. Returns whether one is NaN or +inf.
  bool (*split)(const Shape& shape, const T* const* row, const int64_t* stride,
                const int32_t* count, Scores<T> out);
  /// Some states of one frame forward.
  void (*forward)(const Shape& shape, States states, const WeightedRows<T>& in,
                  ConstScores<T> emissions, ConstScores<T> from, Scores<T> to);
  /// The posteriors v * b * 2^-unit of some emitting states, their sum, and e * b in `g`.
  void (*posteriors)(const Shape& shape, States states, ConstScores<T> emissions, ConstScores<T> v,
                     ConstScores<T> b, const Exponent<T>* unit, T* posterior, T* sum, Scores<T> g);
  /// Some states of one frame backward, from `g` to `b`; fills `g` of non-emitting states. Unless
  /// `arc` is null, also adds the posterior of each term to it: v are the scores after the previous
  /// frame, `scale` is delta / sum.
  void (*backward)(const Shape& shape, States states, const WeightedRows<T>& out, Scores<T> g,
                   Scores<T> b, const T* v_mantissa, const Exponent<T>* v_exponent,
                   const Exponent<T>* unit, const T* scale, T* arc);
  /// The sum over emitting states of values times `end`, not normalized.
  void (*finish)(const Shape& shape, ConstScores<T> values, const T* end_mantissa,
                 const Exponent<T>* end_exponent, T* mantissa, Exponent<T>* exponent);
  /// Sets some slots to posterior * scale, if state p has slot p.
  void (*weigh)(States slots, const T* posterior, const T* scale, T* out);
  /// Adds the sums of posterior * scale over the states of each slot to `slots`.
  void (*collect)(const Shape& shape, const T* posterior, const T* scale, T* slots);
  /// Adds the slots of each lane to row[lane] at their labels, of which there are count[lane]; a
  /// null row is skipped.
  void (*scatter)(const Shape& shape, const T* slots, T* const* row, const int32_t* count);
  /// Subtracts the largest exponent of each lane from all its exponents, and writes it to `shift`.
  void (*rebase)(int32_t count, Scores<T> scores, Exponent<T>* shift);
};

namespace baseline {
extern const LanesTable<float> lanes8_float;
extern const LanesTable<double> lanes8_double, lanes1_double;
}  // namespace baseline
namespace avx2 {
extern const LanesTable<float> lanes8_float;
extern const LanesTable<double> lanes8_double, lanes1_double;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace {

template <class T, int W>
struct LanesLoops {
  using L = Lanes<T, W>;
  using F = typename L::F;
  using I = typename L::I;
  using Q = Exponent<T>;

  /// Below the exponent of every term, even of a zero score with the lowest weight.
  static constexpr int32_t kNone = kDead - (1 << 29);
  /// The sum of two exponents of zero is near the lowest integer, so it is bounded.
  ARCGRAD_INLINE static I above_dead(I exponent) { return larger<I>(exponent, I{} + kDead); }

  /// Whether 8 labels from slot s on are consecutive and every lane has them.
  ARCGRAD_INLINE static bool is_block(const Shape& shape, int32_t s, int32_t least) {
    return s + 8 <= least && shape.label[s + 7] - shape.label[s] == 7;
  }

  static bool split(const Shape& shape, const T* const* row, const int64_t* stride,
                    const int32_t* count, Scores<T> out) {
    const T dead = -__builtin_inf();
    const int32_t* const labels = shape.label;
    if constexpr (W == 1) {
      constexpr int kBlock = 4;
      using B = Lanes<T, kBlock>;
      typename B::I bad{};
      for (int32_t s = 0; s < shape.num_slots; s += kBlock) {
        T w[kBlock];
        for (int k = 0; k < kBlock; ++k)
          w[k] = s + k < count[0] ? row[0][labels[s + k] * stride[0]] : dead;
        typename B::F m;
        typename B::I q;
        const auto x = load<typename B::F>(w);
        bad |= bad_lanes<B>(x);
        split_exp<B>(x, m, q);
        for (int k = 0; k < kBlock && s + k < shape.num_slots; ++k) {
          out.mantissa[s + k] = m[k];
          out.exponent[s + k] = q[k];
        }
      }
      return any_lane(bad);
    } else {
      I bad{};
      int32_t least = shape.num_slots;
      bool is_plain = true;
      for (int l = 0; l < W; ++l) {
        least = count[l] < least ? count[l] : least;
        is_plain &= stride[l] == 1;
      }
      const auto put = [&](int32_t s, F x) {
        bad |= bad_lanes<L>(x);
        F m;
        I q;
        split_exp<L>(x, m, q);
        store(out.mantissa + int64_t{s} * W, m);
        store(out.exponent + int64_t{s} * W, q);
      };
      for (int32_t s = 0; s < shape.num_slots;) {
        if constexpr (W == 8 && sizeof(T) == 4) {
          if (is_plain && is_block(shape, s, least)) {
            F rows[8];
            for (int l = 0; l < 8; ++l) rows[l] = load<F>(row[l] + labels[s]);
            transpose8(rows);
            for (int k = 0; k < 8; ++k) put(s + k, rows[k]);
            s += 8;
            continue;
          }
        }
        T w[W];
        const int64_t label = labels[s];
        if (s < least) {
          for (int l = 0; l < W; ++l) w[l] = row[l][label * stride[l]];
        } else {
          for (int l = 0; l < W; ++l) w[l] = s < count[l] ? row[l][label * stride[l]] : dead;
        }
        put(s++, load<F>(w));
      }
      return any_lane(bad);
    }
  }

  /// sum_row() for N terms, so few that their exponents stay in registers.
  template <int N>
  ARCGRAD_INLINE static F sum_few(const WeightedRows<T>& rows, int32_t begin,
                                  const T* __restrict fm, const Q* __restrict fq, I& exponent) {
    I q[N];
    for (int i = 0; i < N; ++i)
      q[i] = load<I>(fq + int64_t{rows.index[begin + i]} * W) + rows.exponent[begin + i];
    I top = q[0];
    for (int i = 1; i < N; ++i) top = larger<I>(top, q[i]);
    F sum = F{};
    for (int i = 0; i < N; ++i)
      sum += load<F>(fm + int64_t{rows.index[begin + i]} * W) * rows.mantissa[begin + i] *
             power<L>(q[i] - top);
    exponent = top;
    return sum;
  }

  /// The sum of weight * from[index] over the terms of a row, relative to 2^exponent.
  ARCGRAD_INLINE static F sum_row(const WeightedRows<T>& rows, int32_t begin, int32_t end,
                                  const T* __restrict fm, const Q* __restrict fq, I& exponent) {
    if (end - begin == 1) {
      const int64_t at = int64_t{rows.index[begin]} * W;
      exponent = load<I>(fq + at) + rows.exponent[begin];
      return load<F>(fm + at) * rows.mantissa[begin];
    }
    if (end - begin == 2) return sum_few<2>(rows, begin, fm, fq, exponent);
    if (end - begin == 3) return sum_few<3>(rows, begin, fm, fq, exponent);
    I top = I{} + kNone;
    for (int32_t k = begin; k < end; ++k)
      top = larger<I>(top, load<I>(fq + int64_t{rows.index[k]} * W) + rows.exponent[k]);
    F sum = F{};
    for (int32_t k = begin; k < end; ++k) {
      const int64_t at = int64_t{rows.index[k]} * W;
      const I q = load<I>(fq + at) + rows.exponent[k];
      sum += load<F>(fm + at) * rows.mantissa[k] * power<L>(q - top);
    }
    exponent = top;
    return sum;
  }

  static void forward(const Shape& shape, States states, const WeightedRows<T>& in,
                      ConstScores<T> emissions, ConstScores<T> from, Scores<T> to) {
    const int32_t middle = states.end < shape.num_emitting ? states.end : shape.num_emitting;
    for (int32_t p = states.begin; p < middle; ++p) {
      I top, q;
      F m;
      const F sum = sum_row(in, in.offset[p], in.offset[p + 1], from.mantissa, from.exponent, top);
      const int64_t s = int64_t{shape.slot[p]} * W;
      normalize<L>(sum * load<F>(emissions.mantissa + s), top + load<I>(emissions.exponent + s), m,
                   q);
      store(to.mantissa + int64_t{p} * W, m);
      store(to.exponent + int64_t{p} * W, q);
    }
    for (int32_t v = states.begin < middle ? middle : states.begin; v < states.end; ++v) {
      I top, q;
      F m;
      const F sum = sum_row(in, in.offset[v], in.offset[v + 1], to.mantissa, to.exponent, top);
      normalize<L>(sum, top, m, q);
      store(to.mantissa + int64_t{v} * W, m);
      store(to.exponent + int64_t{v} * W, q);
    }
  }

  static void posteriors(const Shape& shape, States states, ConstScores<T> emissions,
                         ConstScores<T> v, ConstScores<T> b, const Q* unit, T* posterior, T* sum,
                         Scores<T> g) {
    F total = F{};
    const I base = load<I>(unit);
    const I most = I{} + Q{100};
    for (int32_t p = states.begin; p < states.end; ++p) {
      const int64_t at = int64_t{p} * W, s = int64_t{shape.slot[p]} * W;
      const F bm = load<F>(b.mantissa + at);
      const I bq = load<I>(b.exponent + at);
      I q = above_dead(load<I>(v.exponent + at) + bq) - base;
      q = q < most ? q : most;
      const F post = load<F>(v.mantissa + at) * bm * power<L>(q);
      total += post;
      store(posterior + at, post);
      const F gm = load<F>(emissions.mantissa + s) * bm;
      // A score of zero must not have a large exponent: other terms would underflow.
      const I gq = load<I>(emissions.exponent + s) + bq;
      store(g.mantissa + at, gm);
      store(g.exponent + at, gm > F{} ? gq : I{} + kDead);
    }
    store(sum, total);
  }

  template <bool with_arcs>
  ARCGRAD_INLINE static void backward_rows(const Shape& shape, States states,
                                           const WeightedRows<T>& out, Scores<T> g, Scores<T> b,
                                           const T* v_mantissa, const Q* v_exponent, const Q* unit,
                                           const T* scale, T* __restrict arc) {
    const I base = with_arcs ? load<I>(unit) : I{};
    const F factor = with_arcs ? load<F>(scale) : F{};
    const I most = I{} + Q{100};
    for (int32_t v = states.end - 1; v >= states.begin; --v) {
      const int32_t begin = out.offset[v], end = out.offset[v + 1];
      const int64_t to = int64_t{v} * W;
      I top = I{} + kNone, q;
      F sum = F{}, m;
      // The exponents of the first terms stay in registers.
      constexpr int kKept = 4;
      I kept[kKept];
      const auto exponent_of = [&](int32_t k) {
        return load<I>(g.exponent + int64_t{out.index[k]} * W) + out.exponent[k];
      };
      F scaled_v = F{};
      const auto find_scaled_v = [&] {
        if constexpr (with_arcs) {
          I shift = above_dead(load<I>(v_exponent + to) + above_dead(top)) - base;
          shift = shift < most ? shift : most;
          scaled_v = load<F>(v_mantissa + to) * power<L>(shift) * factor;
        }
      };
      const auto add_term = [&](int32_t k, I term_q) {
        const F term = load<F>(g.mantissa + int64_t{out.index[k]} * W) * out.mantissa[k] *
                       power<L>(term_q - top);
        sum += term;
        if constexpr (with_arcs) {
          const int64_t a = int64_t{k} * W;
          store(arc + a, load<F>(arc + a) + term * scaled_v);
        }
      };
      const auto add_few = [&](auto count) {
        for (int i = 0; i < count(); ++i) {
          kept[i] = exponent_of(begin + i);
          top = larger<I>(top, kept[i]);
        }
        find_scaled_v();
        for (int i = 0; i < count(); ++i) add_term(begin + i, kept[i]);
      };
      switch (end - begin) {
        case 1:
          add_few([] { return 1; });
          break;
        case 2:
          add_few([] { return 2; });
          break;
        case 3:
          add_few([] { return 3; });
          break;
        case 4:
          add_few([] { return 4; });
          break;
        default:
          for (int32_t k = begin; k < end; ++k) top = larger<I>(top, exponent_of(k));
          find_scaled_v();
          for (int32_t k = begin; k < end; ++k) add_term(k, exponent_of(k));
      }
      normalize<L>(sum, top, m, q);
      store(b.mantissa + to, m);
      store(b.exponent + to, q);
      if (v >= shape.num_emitting) {
        store(g.mantissa + to, m);
        store(g.exponent + to, q);
      }
    }
  }

  static void backward(const Shape& shape, States states, const WeightedRows<T>& out, Scores<T> g,
                       Scores<T> b, const T* v_mantissa, const Q* v_exponent, const Q* unit,
                       const T* scale, T* arc) {
    if (arc)
      backward_rows<true>(shape, states, out, g, b, v_mantissa, v_exponent, unit, scale, arc);
    else
      backward_rows<false>(shape, states, out, g, b, v_mantissa, v_exponent, unit, scale, arc);
  }

  static void weigh(States slots, const T* posterior, const T* scale, T* out) {
    const F factor = load<F>(scale);
    for (int32_t s = slots.begin; s < slots.end; ++s)
      store(out + int64_t{s} * W, load<F>(posterior + int64_t{s} * W) * factor);
  }

  static void collect(const Shape& shape, const T* posterior, const T* scale, T* slots) {
    const F factor = load<F>(scale);
    for (int32_t p = 0; p < shape.num_emitting; ++p) {
      const int64_t s = int64_t{shape.slot[p]} * W;
      store(slots + s, load<F>(slots + s) + load<F>(posterior + int64_t{p} * W) * factor);
    }
  }

  static void scatter(const Shape& shape, const T* slots, T* const* row, const int32_t* count) {
    int32_t least = shape.num_slots;
    for (int l = 0; l < W; ++l) least = row[l] && count[l] < least ? count[l] : least;
    int32_t s = 0;
    while (s < shape.num_slots) {
      if constexpr (W == 8 && sizeof(T) == 4) {
        if (is_block(shape, s, least)) {
          F rows[8];
          for (int k = 0; k < 8; ++k) rows[k] = load<F>(slots + int64_t{s + k} * W);
          transpose8(rows);
          for (int l = 0; l < 8; ++l) {
            if (!row[l]) continue;
            T* const to = row[l] + shape.label[s];
            store(to, load<F>(to) + rows[l]);
          }
          s += 8;
          continue;
        }
      }
      for (int l = 0; l < W; ++l)
        if (row[l] && s < count[l]) row[l][shape.label[s]] += slots[int64_t{s} * W + l];
      ++s;
    }
  }

  static void finish(const Shape& shape, ConstScores<T> values, const T* end_mantissa,
                     const Q* end_exponent, T* mantissa, Q* exponent) {
    I top = I{} + kNone;
    for (int32_t p = 0; p < shape.num_emitting; ++p)
      top = larger<I>(top, above_dead(load<I>(values.exponent + int64_t{p} * W) + end_exponent[p]));
    F sum = F{};
    for (int32_t p = 0; p < shape.num_emitting; ++p) {
      const int64_t at = int64_t{p} * W;
      const I q = above_dead(load<I>(values.exponent + at) + end_exponent[p]);
      sum += load<F>(values.mantissa + at) * end_mantissa[p] * power<L>(q - top);
    }
    store(mantissa, sum);
    store(exponent, top);
  }

  static void rebase(int32_t count, Scores<T> scores, Q* shift) {
    I top = I{} + kDead;
    for (int32_t v = 0; v < count; ++v)
      top = larger<I>(top, load<I>(scores.exponent + int64_t{v} * W));
    const I dead = I{} + kDead;
    top = top > dead ? top : I{};
    for (int32_t v = 0; v < count; ++v) {
      const I q = load<I>(scores.exponent + int64_t{v} * W);
      store(scores.exponent + int64_t{v} * W, q > dead ? q - top : dead);
    }
    store(shift, top);
  }

  static constexpr LanesTable<T> table{split, forward, posteriors, backward, finish,
                                       weigh, collect, scatter,    rebase};
};

}  // namespace

const LanesTable<float> lanes8_float = LanesLoops<float, 8>::table;
const LanesTable<double> lanes8_double = LanesLoops<double, 8>::table;
const LanesTable<double> lanes1_double = LanesLoops<double, 1>::table;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
