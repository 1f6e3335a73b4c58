#pragma once

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

// The loops of the screening of best paths (screen.h). A row has, for each place, the best score
// from there to the end plus the emission with which the place is entered, and for each sum the
// best score from there to the end. All is in floats, and relative to some number per row and
// example.

namespace arcgrad::trellis {

/// So many examples run side by side.
inline constexpr int kPrefilterLanes = 8;

/// The arcs leaving each value: terms [offset[v], middle[v]) lead to places, those up to
/// offset[v + 1] to sums, which come after `v`.
struct ScreenTerms {
  int32_t num_values;
  const int32_t *offset, *middle;
  const int32_t* index;
  const float* weight;
};

/// What a row has, per example.
struct ScreenRange {
  float top;   // the largest score of a place; -inf if there is none
  float low;   // the smallest that is not -inf
  float most;  // the largest emission by size, -inf left out
};

struct PrefilterTable {
  /// Reads the emissions of one frame of the examples: to[slot, lane] = row[lane][label * stride] -
  /// base[lane] for the first count[lane] labels, else -inf. Sets `most`; true if one is NaN or
  /// +inf.
  bool (*read)(int32_t num_slots, const int32_t* label, const float* const* row,
               const int64_t* stride, const int32_t* count, const float* base, float* to,
               ScreenRange* range);
  /// The scores to the end, one frame further from it.
  void (*terms)(const ScreenTerms& terms, const float* before, float* row);
  /// Adds its emission to each place.
  void (*enter)(int32_t num_emitting, const int32_t* slot, const float* emissions, float* row,
                ScreenRange* range);
  /// The same for one example, with an emission per place, less `base`; true if one is NaN or +inf.
  /// The row goes on up to `padded`, with scores -inf.
  bool (*enter_row)(int64_t num_emitting, int64_t padded, const float* emissions, float base,
                    float* row, ScreenRange* range);
  /// The largest of weight[k] + scores[index[k]] over the terms of a range, the scores being those
  /// of one example.
  float (*best_term)(const ScreenTerms& terms, int32_t begin, int32_t end, const float* scores);
  /// Writes the terms where it is at least `lowest`; how many.
  int32_t (*find_terms)(const ScreenTerms& terms, int32_t begin, int32_t end, const float* scores,
                        float lowest, int32_t* to);
  /// sums = a + b, of which there are a multiple of 16; the largest of them.
  float (*best_sum)(int64_t padded, const float* a, const float* b, float* sums);
  /// Writes the i where sums[i] is at least `lowest`; how many.
  int32_t (*find_sums)(int64_t padded, const float* sums, float lowest, int32_t* to);
  /// The only i where a[i] + b[i] is not more than `slack` below the largest, or hardly more; -1 if
  /// there are several or all are -inf.
  int32_t (*only_sum)(int64_t padded, const float* a, const float* b, float slack);
};

namespace baseline {
extern const PrefilterTable screen;
}  // namespace baseline
namespace avx2 {
extern const PrefilterTable screen;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace screen_loops {

using L = Lanes<float, kPrefilterLanes>;
using F = L::F;
using I = L::I;

inline constexpr float kImpossible = -__builtin_inff();

ARCGRAD_INLINE float largest(F x) {
  F y = larger<F>(x, __builtin_shufflevector(x, x, 4, 5, 6, 7, 0, 1, 2, 3));
  y = larger<F>(y, __builtin_shufflevector(y, y, 2, 3, 0, 1, 6, 7, 4, 5));
  return y[0] > y[1] ? y[0] : y[1];
}

/// The range of what passed by.
class Range {
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
  ARCGRAD_INLINE void put_scores(ScreenRange* to) const {
    for (int l = 0; l < kPrefilterLanes; ++l) {
      to[l].top = top_[l];
      to[l].low = low_[l];
    }
  }
  ARCGRAD_INLINE void put_emissions(ScreenRange* to) const {
    for (int l = 0; l < kPrefilterLanes; ++l) to[l].most = most_[l];
  }
  /// Of all lanes together.
  ARCGRAD_INLINE void put_all(ScreenRange* to) const {
    *to = {largest(top_), -largest(-low_), largest(most_)};
  }

 private:
  F top_ = F{} + kImpossible, low_ = F{} + __builtin_inff(), most_ = F{};
  I bad_ = {};
};

inline bool read(int32_t num_slots, const int32_t* label, const float* const* row,
                 const int64_t* stride, const int32_t* count, const float* base, float* to,
                 ScreenRange* range) {
  Range seen;
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

inline void terms(const ScreenTerms& terms, const float* before, float* row) {
  // Sums that a term leads to come later, so their scores are known on the way down.
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
                  ScreenRange* range) {
  Range seen;
  for (int32_t p = 0; p < num_emitting; ++p) {
    float* at = row + int64_t{p} * kPrefilterLanes;
    const F x = load<F>(at) + load<F>(emissions + int64_t{slot[p]} * kPrefilterLanes);
    seen.add_score(x);
    store(at, x);
  }
  seen.put_scores(range);
}

/// Those lanes that are there; 0 elsewhere.
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
                      float* row, ScreenRange* range) {
  // Most often all is finite, and then the largest of everything and of its opposite are enough.
  const F none = F{} + kImpossible;
  F top = none, bottom = none, most{}, added{};
  const auto enter = [&](int64_t p, F emission, auto of_places) {
    const F x = load<F>(row + p) + (emission - base);
    store(row + p, x);
    added += emission;
    most = larger(larger<F>(emission, -emission), most);
    top = larger(x, top);
    bottom = larger<F>(of_places(-x), bottom);
  };
  int64_t p = 0;
  for (; p + kPrefilterLanes <= num_emitting; p += kPrefilterLanes)
    enter(p, load<F>(emissions + p), [](F x) { return x; });
  for (; p < padded; p += kPrefilterLanes) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7};
    const I is_place = lane < static_cast<int32_t>(num_emitting - p);
    enter(p, load_some(emissions + p, is_place), [&](F x) { return is_place ? x : none; });
  }
  *range = {largest(top), -largest(bottom), largest(most)};
  if (range->low > kImpossible && range->most < __builtin_inff() && lane_bits(added != added) == 0)
    return false;
  Range seen;
  for (p = 0; p < padded; p += kPrefilterLanes) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7};
    seen.add_emission(load_some(emissions + p, lane < static_cast<int32_t>(num_emitting - p)));
    seen.add_score(load<F>(row + p));
  }
  seen.put_all(range);
  return seen.is_bad();
}

inline float best_term(const ScreenTerms& terms, int32_t begin, int32_t end, const float* scores) {
  float best = kImpossible;
  for (int32_t k = begin; k < end; ++k)
    best = larger(terms.weight[k] + scores[int64_t{terms.index[k]} * kPrefilterLanes], best);
  return best;
}

inline int32_t find_terms(const ScreenTerms& terms, int32_t begin, int32_t end, const float* scores,
                          float lowest, int32_t* to) {
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
  // Rounding must not leave one out.
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

}  // namespace screen_loops

const PrefilterTable screen = {
    screen_loops::read,      screen_loops::terms,     screen_loops::enter,
    screen_loops::enter_row, screen_loops::best_term, screen_loops::find_terms,
    screen_loops::best_sum,  screen_loops::find_sums, screen_loops::only_sum};

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
