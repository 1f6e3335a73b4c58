#pragma once

// The loops of best paths. A row holds, for each state, the best score from there to the end with
// some number of frames left; each loop computes a row from the row with one frame less. Weights
// and emissions are added in the type T of the weights of the product, and scores are doubles, so
// that scores are equal, to the last bit, to the scores of the composed graph.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// Loops over emitting states take this many at once; their arrays are padded to a multiple.
inline constexpr int32_t kBestBlock = 4;
/// The most full diagonals that the loops for unweighted graphs handle, and the most with gaps.
inline constexpr int32_t kMostPlain = 3;

/// The arcs between emitting states, by offset. The arrays of emissions and scores are padded on
/// both sides by the largest offset, with finite emissions and scores of -inf.
template <class T>
struct BestDiagonals {
  int32_t padded;  // number of emitting states, padded
  /// The half-open ranges, in blocks, of the states whose scores are wanted, and of the
  /// destinations of their arcs. Other states have the score -inf.
  int32_t begin, end, to_begin, to_end;
  int32_t count;
  const int32_t* offset;  // of each diagonal: destination minus source
  const T* weight;        // [count, padded], -inf where there is no arc
  /// For unweighted graphs: the first `num_full` diagonals have all arcs. `mask` is 0 where one of
  /// the other diagonals has an arc and -inf elsewhere, [count - num_full, padded].
  int32_t num_full;
  const double* mask;
  double* scratch;  // one entry per emitting state, with padding on both sides
};

/// The arcs between emitting states as a matrix, row by row, -inf where there is no arc.
template <class T>
struct BestMatrix {
  int32_t num_emitting, padded;
  const T* weight;  // [num_emitting, padded]
};

/// The arcs that leave each entry of a row: terms [offset[i], middle[i]) lead to emitting states,
/// terms [middle[i], offset[i + 1]) to non-emitting states, which are later entries.
template <class T>
struct BestTerms {
  int32_t num_emitting, row_size, num_slots;
  const int32_t *offset, *middle;
  const int32_t* index;  // entry of a row; in unweighted graphs, for emitting states, the state
  const int32_t* slot;   // of the emission that a term adds
  const T* weight;
  const int32_t *state_index, *state_slot;  // entry and emission of each emitting state
  double* scratch;                          // one entry per emitting state and example
};

/// Computes a row from the row before; returns true if an emission is NaN or +inf.
template <class Arcs, class T>
using BestAdvance = bool (*)(const Arcs& arcs, const double* before, const T* emissions,
                             double* row);

/// The same for unweighted diagonals; the emission of state p is entry from[p] of a frame.
template <class E, class T>
using PlainBestAdvance = bool (*)(const BestDiagonals<T>& arcs, const double* before,
                                  const E* frame, const int64_t* from, double* row);
/// Indexed by the number of full diagonals and the number with gaps.
template <class E, class T>
struct PlainBestTable {
  PlainBestAdvance<E, T> of[kMostPlain + 1][kMostPlain + 1];
  /// For full diagonals 0 and 1, and diagonal 2 with gaps. Null on some instruction sets.
  PlainBestAdvance<E, T> near;
};

template <class T>
struct BestTable {
  /// Reads entry from[p] of a frame for each state p of [begin, end).
  void (*read_float)(const float* frame, const int64_t* from, int32_t begin, int32_t end, T* to);
  void (*read_double)(const double* frame, const int64_t* from, int32_t begin, int32_t end, T* to);
  /// Whether one of `count` numbers is NaN or +inf.
  bool (*is_bad_float)(const float* from, int64_t count);
  bool (*is_bad_double)(const double* from, int64_t count);
  // Over emitting states, with one emission per state.
  BestAdvance<BestDiagonals<T>, T> diagonals[kMostDiagonals + 1];  // by count
  PlainBestTable<float, T> plain_float;
  PlainBestTable<double, T> plain_double;
  BestAdvance<BestMatrix<T>, T> matrix;
  // Term by term, with one emission per slot, for 1, 4 or 8 examples side by side.
  BestAdvance<BestTerms<T>, T> terms1, terms4, terms8;
  BestAdvance<BestTerms<T>, T> plain_terms1, plain_terms4, plain_terms8;
};

namespace baseline {
extern const BestTable<float> best_float;
extern const BestTable<double> best_double;
}  // namespace baseline
namespace avx2 {
extern const BestTable<float> best_float;
extern const BestTable<double> best_double;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace best {

#ifdef __AVX2__
inline constexpr int kWidth = 4;
#else
inline constexpr int kWidth = 2;
#endif

template <class T, int W>
struct Vector {
  typedef T V __attribute__((vector_size(W * sizeof(T))));
};
template <class T>
struct Vector<T, 1> {
  using V = T;
};

template <int W>
using Scores = typename Vector<double, W>::V;

template <class T, int W>
ARCGRAD_INLINE Scores<W> widen(typename Vector<T, W>::V x) {
#ifdef __AVX2__
  // One instruction; the compiler would convert the halves separately.
  if constexpr (W == 4 && sizeof(T) == 4) return bits_as<Scores<4>>(_mm256_cvtps_pd(x));
#endif
  if constexpr (W == 1)
    return static_cast<double>(x);
  else
    return __builtin_convertvector(x, Scores<W>);
}

/// Loads `W` numbers as scores.
template <class T, int W>
ARCGRAD_INLINE Scores<W> load_scores(const T* from) {
  return widen<T, W>(load<typename Vector<T, W>::V>(from));
}

/// Computes the weights of `W` arcs of the product, as scores.
template <class T, int W>
ARCGRAD_INLINE Scores<W> load_arcs(const T* weight, const T* emission) {
  using V = typename Vector<T, W>::V;
  return widen<T, W>(load<V>(weight) + load<V>(emission));
}

template <int W>
ARCGRAD_INLINE Scores<W> impossible() {
  return Scores<W>{} - __builtin_inf();
}

template <class T>
bool has_bad(const T* from, int64_t count) {
  int32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) bad |= from[i] < static_cast<T>(__builtin_inf()) ? 0 : 1;
  return bad != 0;
}

/// Stores whole vectors: store forwarding fails if a vector is loaded after narrower stores.
template <class E, class T>
void read(const E* frame, const int64_t* from, int32_t begin, int32_t end, T* to) {
  typedef T V __attribute__((vector_size(kBestBlock * sizeof(T))));
  for (int64_t p = begin; p < end; p += kBestBlock)
    store(to + p, V{static_cast<T>(frame[from[p]]), static_cast<T>(frame[from[p + 1]]),
                    static_cast<T>(frame[from[p + 2]]), static_cast<T>(frame[from[p + 3]])});
}

/// Sets the scores of the states outside [begin, end) to -inf.
template <class T>
ARCGRAD_INLINE void fill_others(const BestDiagonals<T>& arcs, double* row) {
  for (int64_t p = 0; p < arcs.begin; p += kWidth) store(row + p, impossible<kWidth>());
  for (int64_t p = arcs.end; p < arcs.padded; p += kWidth) store(row + p, impossible<kWidth>());
}

template <class T, int kCount>
bool diagonals(const BestDiagonals<T>& arcs, const double* before, const T* emissions,
               double* row) {
  constexpr int W = kWidth;
  const int64_t padded = arcs.padded;
  double* __restrict scores = arcs.scratch;
  for (int64_t p = arcs.to_begin; p < arcs.to_end; p += W)
    store(scores + p, load<Scores<W>>(before + p));
  const T *weight[kCount], *emission[kCount];
  const double* score[kCount];
  for (int d = 0; d < kCount; ++d) {
    weight[d] = arcs.weight + d * padded;
    emission[d] = emissions + arcs.offset[d];
    score[d] = scores + arcs.offset[d];
  }
  fill_others(arcs, row);
  for (int64_t p = arcs.begin; p < arcs.end; p += W) {
    Scores<W> best = impossible<W>();
    for (int d = 0; d < kCount; ++d)
      best = larger(load_arcs<T, W>(weight[d] + p, emission[d] + p) + load<Scores<W>>(score[d] + p),
                    best);
    store(row + p, best);
  }
  return has_bad(emissions + arcs.to_begin, arcs.to_end - arcs.to_begin);
}

/// Loads the entries of `W` consecutive states.
template <class E, int W>
ARCGRAD_INLINE typename Vector<E, W>::V gather(const E* frame, const int64_t* from) {
  using V = typename Vector<E, W>::V;
  if constexpr (W == 4)
    return V{frame[from[0]], frame[from[1]], frame[from[2]], frame[from[3]]};
  else
    return V{frame[from[0]], frame[from[1]]};
}

template <class E, class T, int kFull, int kOthers>
bool plain_diagonals(const BestDiagonals<T>& arcs, const double* before, const E* frame,
                     const int64_t* from, double* row) {
  constexpr int W = kWidth, kCount = kFull + kOthers;
  using V = typename Vector<E, W>::V;
  const int64_t padded = arcs.padded;
  // All arcs into a state read the same emission, so it is added once.
  double* __restrict scores = arcs.scratch;
  auto good = V{} == V{};
  for (int64_t p = arcs.to_begin; p < arcs.to_end; p += W) {
    const V emission = gather<E, W>(frame, from + p);
    good &= emission < V{} + static_cast<E>(__builtin_inf());
    store(scores + p, load<Scores<W>>(before + p) + widen<E, W>(emission));
  }
  const double *score[kCount + 1], *mask[kOthers + 1];
  for (int d = 0; d < kCount; ++d) score[d] = scores + arcs.offset[d];
  for (int d = 0; d < kOthers; ++d) mask[d] = arcs.mask + d * padded;
  fill_others(arcs, row);
  for (int64_t p = arcs.begin; p < arcs.end; p += W) {
    Scores<W> best = impossible<W>();
    for (int d = 0; d < kFull; ++d) best = larger(load<Scores<W>>(score[d] + p), best);
    for (int d = 0; d < kOthers; ++d)
      best = larger(load<Scores<W>>(score[kFull + d] + p) + load<Scores<W>>(mask[d] + p), best);
    store(row + p, best);
  }
  bool all = true;
  for (int i = 0; i < W; ++i) all &= good[i] != 0;
  return !all;
}

/// The same for diagonals 0, 1 and 2, as in most alignment graphs: a block of states depends only
/// on itself and the next block.
template <class E, class T>
  requires(kWidth == 4)
bool near_diagonals(const BestDiagonals<T>& arcs, const double* before, const E* frame,
                    const int64_t* from, double* row) {
  using V = typename Vector<E, 4>::V;
  auto good = V{} == V{};
  const auto through = [&](int64_t p) {
    const V emission = gather<E, 4>(frame, from + p);
    good &= emission < V{} + static_cast<E>(__builtin_inf());
    return load<Scores<4>>(before + p) + widen<E, 4>(emission);
  };
  fill_others(arcs, row);
  for (int64_t p = arcs.to_begin; p < arcs.begin; p += 4) through(p);
  for (int64_t p = arcs.to_end; (p -= 4) > arcs.end;) through(p);
  auto next = arcs.end < arcs.padded ? through(arcs.end) : impossible<4>();
  for (int64_t p = arcs.end; (p -= 4) >= arcs.begin;) {
    const auto now = through(p);
    const Scores<4> one = __builtin_shufflevector(now, next, 1, 2, 3, 4);
    const Scores<4> two = __builtin_shufflevector(now, next, 2, 3, 4, 5);
    store(row + p, larger(larger(now, one), two + load<Scores<4>>(arcs.mask + p)));
    next = now;
  }
  bool all = true;
  for (int i = 0; i < 4; ++i) all &= good[i] != 0;
  return !all;
}

template <class T>
bool matrix(const BestMatrix<T>& arcs, const double* before, const T* emissions, double* row) {
  constexpr int W = kWidth, kRows = 4;
  for (int32_t p = 0; p < arcs.num_emitting; p += kRows) {
    const T* weight[kRows];
    Scores<W> best[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int32_t at = p + r < arcs.num_emitting ? p + r : p;
      weight[r] = arcs.weight + static_cast<int64_t>(at) * arcs.padded;
      best[r] = impossible<W>();
    }
    for (int64_t to = 0; to < arcs.padded; to += W) {
      const auto scores = load<Scores<W>>(before + to);
      for (int r = 0; r < kRows; ++r)
        best[r] = larger(load_arcs<T, W>(weight[r] + to, emissions + to) + scores, best[r]);
    }
    for (int r = 0; r < kRows && p + r < arcs.num_emitting; ++r) {
      double top = best[r][0];
      for (int i = 1; i < W; ++i) top = larger<double>(best[r][i], top);
      row[p + r] = top;
    }
  }
  for (int32_t p = arcs.num_emitting; p < arcs.padded; ++p) row[p] = -__builtin_inf();
  return has_bad(emissions, arcs.padded);
}

/// Term by term, for `L` examples side by side.
template <class T, int L, bool kPlain>
bool terms(const BestTerms<T>& arcs, const double* before, const T* emissions, double* row) {
  constexpr int W = L < kWidth ? L : kWidth, N = L / W;
  using V = typename Vector<T, W>::V;
  double* __restrict scores = arcs.scratch;
  if constexpr (kPlain)
    for (int32_t p = 0; p < arcs.num_emitting; ++p) {
      const int64_t at = static_cast<int64_t>(p) * L;
      const int64_t from = static_cast<int64_t>(arcs.state_index[p]) * L;
      const int64_t slot = static_cast<int64_t>(arcs.state_slot[p]) * L;
      for (int i = 0; i < N; ++i)
        store(scores + at + W * i,
              load<Scores<W>>(before + from + W * i) + load_scores<T, W>(emissions + slot + W * i));
    }
  // Non-emitting destinations are later entries, so their scores are known.
  for (int32_t v = arcs.row_size; v-- > 0;) {
    Scores<W> best[N];
    for (int i = 0; i < N; ++i) best[i] = impossible<W>();
    for (int32_t k = arcs.offset[v]; k < arcs.middle[v]; ++k) {
      const int64_t at = static_cast<int64_t>(arcs.index[k]) * L;
      if constexpr (kPlain) {
        for (int i = 0; i < N; ++i) best[i] = larger(load<Scores<W>>(scores + at + W * i), best[i]);
      } else {
        const int64_t slot = static_cast<int64_t>(arcs.slot[k]) * L;
        const V weight = V{} + arcs.weight[k];
        for (int i = 0; i < N; ++i)
          best[i] = larger(widen<T, W>(weight + load<V>(emissions + slot + W * i)) +
                               load<Scores<W>>(before + at + W * i),
                           best[i]);
      }
    }
    for (int32_t k = arcs.middle[v]; k < arcs.offset[v + 1]; ++k) {
      const int64_t at = static_cast<int64_t>(arcs.index[k]) * L;
      const double weight = kPlain ? 0.0 : static_cast<double>(arcs.weight[k]);
      for (int i = 0; i < N; ++i)
        best[i] = larger(load<Scores<W>>(row + at + W * i) + weight, best[i]);
    }
    for (int i = 0; i < N; ++i) store(row + static_cast<int64_t>(v) * L + W * i, best[i]);
  }
  return has_bad(emissions, static_cast<int64_t>(arcs.num_slots) * L);
}

template <class E, class T>
constexpr PlainBestAdvance<E, T> make_near() {
  if constexpr (kWidth == 4)
    return near_diagonals<E, T>;
  else
    return nullptr;
}

template <class E, class T>
constexpr PlainBestTable<E, T> make_plain_table() {
  // T is the wider type of emissions and weights.
  if constexpr (sizeof(E) > sizeof(T))
    return {};
  else
    return {{{nullptr, plain_diagonals<E, T, 0, 1>, plain_diagonals<E, T, 0, 2>,
              plain_diagonals<E, T, 0, 3>},
             {plain_diagonals<E, T, 1, 0>, plain_diagonals<E, T, 1, 1>, plain_diagonals<E, T, 1, 2>,
              plain_diagonals<E, T, 1, 3>},
             {plain_diagonals<E, T, 2, 0>, plain_diagonals<E, T, 2, 1>, plain_diagonals<E, T, 2, 2>,
              plain_diagonals<E, T, 2, 3>},
             {plain_diagonals<E, T, 3, 0>, plain_diagonals<E, T, 3, 1>, plain_diagonals<E, T, 3, 2>,
              plain_diagonals<E, T, 3, 3>}},
            make_near<E, T>()};
}

template <class T>
constexpr BestTable<T> make_table() {
  return {read<float, T>,
          read<double, T>,
          has_bad<float>,
          has_bad<double>,
          {nullptr, diagonals<T, 1>, diagonals<T, 2>, diagonals<T, 3>, diagonals<T, 4>,
           diagonals<T, 5>, diagonals<T, 6>},
          make_plain_table<float, T>(),
          make_plain_table<double, T>(),
          matrix<T>,
          terms<T, 1, false>,
          terms<T, 4, false>,
          terms<T, 8, false>,
          terms<T, 1, true>,
          terms<T, 4, true>,
          terms<T, 8, true>};
}

}  // namespace best

const BestTable<float> best_float = best::make_table<float>();
const BestTable<double> best_double = best::make_table<double>();

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
