#pragma once

// The loops of the prefilter of best paths (float_scores.h). A row has, for each emitting state,
// the best score from there to the end plus the emission that enters the state, and for each
// non-emitting state the best score from there to the end. All scores are floats, relative to a
// number per row and example.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// The number of examples that run side by side.
inline constexpr int kPrefilterLanes = 8;

/// The arcs that leave each state: terms [offset[v], middle[v]) lead to emitting states, terms
/// [middle[v], offset[v + 1]) to non-emitting states, which come after `v`.
struct PrefilterTerms {
  int32_t num_values;
  const int32_t *offset, *middle;
  const int32_t* index;
  const float* weight;
};

/// The range of the scores of a row of one example.
struct PrefilterRange {
  float top;   // the largest score of an emitting state; -inf if all are impossible
  float low;   // the smallest such score that is not -inf
  float most;  // the largest absolute emission that is not -inf
};

struct PrefilterTable {
  /// Reads the emissions of one frame of the examples: to[slot, lane] = row[lane][label * stride] -
  /// base[lane] for the first count[lane] labels, else -inf. Sets `most`; returns true if one is
  /// NaN or +inf.
  bool (*read)(int32_t num_slots, const int32_t* label, const float* const* row,
               const int64_t* stride, const int32_t* count, const float* base, float* to,
               PrefilterRange* range);
  /// Computes the scores to the end of a row from the previous row.
  void (*terms)(const PrefilterTerms& terms, const float* before, float* row);
  /// Adds its emission to each emitting state.
  void (*enter)(int32_t num_emitting, const int32_t* slot, const float* emissions, float* row,
                PrefilterRange* range);
  /// The same for one example, with an emission per state, less `base`; returns true if one is NaN
  /// or +inf. The row is padded with scores -inf up to `padded`.
  bool (*enter_row)(int64_t num_emitting, int64_t padded, const float* emissions, float base,
                    float* row, PrefilterRange* range);
  /// The largest of weight[k] + scores[index[k]] over a range of terms, for one example.
  float (*best_term)(const PrefilterTerms& terms, int32_t begin, int32_t end, const float* scores);
  /// Writes the terms where weight[k] + scores[index[k]] is at least `lowest`; returns their
  /// number.
  int32_t (*find_terms)(const PrefilterTerms& terms, int32_t begin, int32_t end,
                        const float* scores, float lowest, int32_t* to);
  /// Sets sums = a + b and returns the largest. `padded` is a multiple of 16.
  float (*best_sum)(int64_t padded, const float* a, const float* b, float* sums);
  /// Writes the i where sums[i] is at least `lowest`; returns their number.
  int32_t (*find_sums)(int64_t padded, const float* sums, float lowest, int32_t* to);
  /// The only i where a[i] + b[i] is within `slack` of the largest, up to rounding. -1 if there are
  /// several or all are -inf.
  int32_t (*only_sum)(int64_t padded, const float* a, const float* b, float slack);
};

namespace baseline {
extern const PrefilterTable prefilter;
}  // namespace baseline
namespace avx2 {
extern const PrefilterTable prefilter;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace prefilter_loops {

using L = Lanes<float, kPrefilterLanes>;
using F = L::F;
using I = L::I;

inline constexpr float kImpossible = -__builtin_inff();

ARCGRAD_INLINE float largest(F x) {
  F y = larger<F>(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
  y = larger<F>(y, __builtin_shufflevector(y, y, 2, 3, 0, 1, 6, 7, 4, 5));
  return y[0] > y[1] ? y[0] : y[1];
}

/// The range of the numbers added to it.
class RangeOfRow {
 public:
  ARCGRAD_INLINE void add_score(F x) {
    top_ = larger(x, top_);
    const F finite = x > F{} + kImpossible ? x : F{} + __builtin_inff();
    low_ = finite < low_ ? finite : low_;
  }
  ARCGRAD_INLINE void add_emission(F x) {
    bad_ |= bad_lanes<L>(x);
    const F size = x < F{} ? -x : x;
    most_ = larger(x > F{} + kImpossible ? size : F{}, most_);
  }
  ARCGRAD_INLINE bool is_bad() const { return any_lane(bad_); }
  ARCGRAD_INLINE void put_scores(PrefilterRange* to) const {
    for (int l = 0; l < kPrefilterLanes; ++l) {
      to[l].top = top_[l];
      to[l].low = low_[l];
    }
  }
  ARCGRAD_INLINE void put_emissions(PrefilterRange* to) const {
    for (int l = 0; l < kPrefilterLanes; ++l) to[l].most = most_[l];
  }
  /// Of all lanes together.
  ARCGRAD_INLINE void put_all(PrefilterRange* to) const {
    *to = {largest(top_), -largest(-low_), largest(most_)};
  }

 private:
  F top_ = F{} + kImpossible, low_ = F{} + __builtin_inff(), most_ = F{};
  I bad_ = {};
};

inline bool read(int32_t num_slots, const int32_t* label, const float* const* row,
                 const int64_t* stride, const int32_t* count, const float* base, float* to,
                 PrefilterRange* range) {
  RangeOfRow seen;
  int32_t least = num_slots;
  bool is_plain = true;
  for (int l = 0; l < kPrefilterLanes; ++l) {
    least = count[l] < least ? count[l] : least;
    is_plain &= stride[l] == 1;
  }
  const F shift = load<F>(base);
  const auto put = [&](int32_t s, F x) {
    seen.add_emission(x);
    store(to + int64_t{s} * kPrefilterLanes, x - shift);
  };
  for (int32_t s = 0; s < num_slots;) {
    if (is_plain && s + 8 <= least && label[s + 7] - label[s] == 7) {
      F rows[8];
      for (int l = 0; l < 8; ++l) rows[l] = load<F>(row[l] + label[s]);
      transpose8(rows);
      for (int k = 0; k < 8; ++k) put(s + k, rows[k]);
      s += 8;
      continue;
    }
    float w[kPrefilterLanes];
    for (int l = 0; l < kPrefilterLanes; ++l)
      w[l] = s < count[l] ? row[l][label[s] * stride[l]] : kImpossible;
    put(s++, load<F>(w));
  }
  seen.put_emissions(range);
  return seen.is_bad();
}

inline void terms(const PrefilterTerms& terms, const float* before, float* row) {
  // Non-emitting destinations have larger numbers, so their scores are known.
  for (int32_t v = terms.num_values; v-- > 0;) {
    F best = F{} + kImpossible;
    const auto add = [&](int32_t k, const float* from) {
      const int64_t at = int64_t{terms.index[k]} * kPrefilterLanes;
      best = larger(load<F>(from + at) + terms.weight[k], best);
    };
    for (int32_t k = terms.offset[v]; k < terms.middle[v]; ++k) add(k, before);
    for (int32_t k = terms.middle[v]; k < terms.offset[v + 1]; ++k) add(k, row);
    store(row + int64_t{v} * kPrefilterLanes, best);
  }
}

inline void enter(int32_t num_emitting, const int32_t* slot, const float* emissions, float* row,
                  PrefilterRange* range) {
  RangeOfRow seen;
  for (int32_t p = 0; p < num_emitting; ++p) {
    float* at = row + int64_t{p} * kPrefilterLanes;
    const F x = load<F>(at) + load<F>(emissions + int64_t{slot[p]} * kPrefilterLanes);
    seen.add_score(x);
    store(at, x);
  }
  seen.put_scores(range);
}

/// Loads the lanes of a mask; 0 elsewhere.
ARCGRAD_INLINE F load_some(const float* from, I is_there) {
#ifdef __AVX2__
  return _mm256_maskload_ps(from, bits_as<__m256i>(is_there));
#else
  F out{};
  for (int l = 0; l < kPrefilterLanes; ++l)
    if (is_there[l]) out[l] = from[l];
  return out;
#endif
}

inline bool enter_row(int64_t num_emitting, int64_t padded, const float* emissions, float base,
                      float* row, PrefilterRange* range) {
  // Usually all numbers are finite; then their maximum and minimum suffice.
  const F none = F{} + kImpossible;
  F top = none, bottom = none, most{}, added{};
  const auto enter = [&](int64_t p, F emission, auto mask) {
    const F x = load<F>(row + p) + (emission - base);
    store(row + p, x);
    added += emission;
    most = larger(larger<F>(emission, -emission), most);
    top = larger(x, top);
    bottom = larger<F>(mask(-x), bottom);
  };
  int64_t p = 0;
  for (; p + kPrefilterLanes <= num_emitting; p += kPrefilterLanes)
    enter(p, load<F>(emissions + p), [](F x) { return x; });
  for (; p < padded; p += kPrefilterLanes) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const I is_state = lane < static_cast<int32_t>(num_emitting - p);
    enter(p, load_some(emissions + p, is_state), [&](F x) { return is_state ? x : none; });
  }
  *range = {largest(top), -largest(bottom), largest(most)};
  if (range->low > kImpossible && range->most < __builtin_inff() && lane_bits(added != added) == 0)
    return false;
  RangeOfRow seen;
  for (p = 0; p < padded; p += kPrefilterLanes) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7};
    seen.add_emission(load_some(emissions + p, lane < static_cast<int32_t>(num_emitting - p)));
    seen.add_score(load<F>(row + p));
  }
  seen.put_all(range);
  return seen.is_bad();
}

inline float best_term(const PrefilterTerms& terms, int32_t begin, int32_t end,
                       const float* scores) {
  float best = kImpossible;
  for (int32_t k = begin; k < end; ++k)
    best = larger(terms.weight[k] + scores[int64_t{terms.index[k]} * kPrefilterLanes], best);
  return best;
}

inline int32_t find_terms(const PrefilterTerms& terms, int32_t begin, int32_t end,
                          const float* scores, float lowest, int32_t* to) {
  int32_t count = 0;
  for (int32_t k = begin; k < end; ++k)
    if (terms.weight[k] + scores[int64_t{terms.index[k]} * kPrefilterLanes] >= lowest)
      to[count++] = k;
  return count;
}

inline float best_sum(int64_t padded, const float* a, const float* b, float* sums) {
  F best = F{} + kImpossible;
  for (int64_t i = 0; i < padded; i += kPrefilterLanes) {
    const F x = load<F>(a + i) + load<F>(b + i);
    best = larger(x, best);
    store(sums + i, x);
  }
  return largest(best);
}

inline int32_t find_sums(int64_t padded, const float* sums, float lowest, int32_t* to) {
  int32_t count = 0;
  const F least = F{} + lowest;
  for (int64_t i = 0; i < padded; i += 2 * kPrefilterLanes) {
    const uint32_t low = lane_bits(load<F>(sums + i) >= least);
    uint32_t bits = low | lane_bits(load<F>(sums + i + kPrefilterLanes) >= least)
                              << kPrefilterLanes;
    for (; bits; bits &= bits - 1) to[count++] = static_cast<int32_t>(i) + __builtin_ctz(bits);
  }
  return count;
}

inline int32_t only_sum(int64_t padded, const float* a, const float* b, float slack) {
  constexpr int kRound = 2;
  F best[kRound];
  for (F& x : best) x = F{} + kImpossible;
  for (int64_t i = 0; i < padded; i += kRound * kPrefilterLanes)
    for (int r = 0; r < kRound; ++r) {
      const int64_t at = i + r * kPrefilterLanes;
      best[r] = larger(load<F>(a + at) + load<F>(b + at), best[r]);
    }
  const float top = largest(larger(best[0], best[1])), low = top - slack;
  if (top == kImpossible) return -1;
  // Lower the threshold by the rounding error, so that no arc is missed.
  const F least = F{} + (low - (low < 0.0f ? -low : low) * 0x1p-22f);
  int32_t only = -1;
  for (int64_t i = 0; i < padded; i += kRound * kPrefilterLanes) {
    uint32_t bits = 0;
    for (int r = 0; r < kRound; ++r) {
      const int64_t at = i + r * kPrefilterLanes;
      bits |= lane_bits(load<F>(a + at) + load<F>(b + at) >= least) << (r * kPrefilterLanes);
    }
    if (bits == 0) continue;
    if (only >= 0 || (bits & (bits - 1)) != 0) return -1;
    only = static_cast<int32_t>(i) + __builtin_ctz(bits);
  }
  return only;
}

}  // namespace prefilter_loops

const PrefilterTable prefilter = {
    prefilter_loops::read,      prefilter_loops::terms,     prefilter_loops::enter,
    prefilter_loops::enter_row, prefilter_loops::best_term, prefilter_loops::find_terms,
    prefilter_loops::best_sum,  prefilter_loops::find_sums, prefilter_loops::only_sum};

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
