#pragma once

// The loops over the states of a chain: the best scores of a frame, and the sums of all paths as
// mantissas and exponents. See chain.h for the arcs.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// Loops take this many tokens at once; ranges are multiples of it.
inline constexpr int32_t kChainBlock = 4;

/// The scores of gaps and tokens, by number.
template <class P>
struct ChainRow {
  P *gap, *token;
};

/// The weights of a chain, by the number of the token that arcs leave.
struct ChainArcs {
  const int32_t *token_slot, *gap_slot;
  const double *enter, *direct, *jump_gap, *jump_token;
};

/// Numbers as mantissas and exponents.
struct ScaledRow {
  double* mantissa;
  int64_t* exponent;
};

/// Both rows of a frame for the sums of paths, with one entry per token and gap.
struct ScaledChainRow {
  ScaledRow gap, token;
};

/// The weights of ChainArcs, and the emissions of a frame by slot.
struct ScaledChainArcs {
  const int32_t *token_slot, *gap_slot;
  ScaledRow enter, direct, jump_gap, jump_token, emissions;
};

struct ChainTable {
  /// The best scores to the end with one frame more left, of tokens and gaps [begin, end). Reads
  /// the tokens of one block beyond. `after` may be `before`.
  void (*best)(const ChainArcs& arcs, const double* emissions, ChainRow<const double> before,
               int32_t begin, int32_t end, ChainRow<double> after);
  /// The same for a plain chain.
  void (*best_plain)(const ChainArcs& arcs, const double* emissions, ChainRow<const double> before,
                     int32_t begin, int32_t end, ChainRow<double> after);
  /// The sums of all paths to each state after one frame more; reads two entries before `begin`.
  void (*forward)(const ScaledChainArcs& arcs, ScaledChainRow before, int32_t begin, int32_t end,
                  ScaledChainRow after);
  /// The sums of all paths to the end with one frame more left. Multiplies the numbers of `before`
  /// by their emissions, with one block beyond `end`.
  void (*backward)(const ScaledChainArcs& arcs, ScaledChainRow before, int32_t begin, int32_t end,
                   ScaledChainRow after);
  /// Converts weights to mantissas and exponents; `count` is a multiple of kChainBlock.
  void (*split)(const double* weights, int32_t count, ScaledRow out);
};

namespace baseline {
extern const ChainTable chain;
}  // namespace baseline
namespace avx2 {
extern const ChainTable chain;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace chain_loops {

using L = Lanes<double, kChainBlock>;
using F = L::F;
using I = L::I;

template <class V, class P>
ARCGRAD_INLINE V gather(const P* from, const int32_t* index) {
  return V{from[index[0]], from[index[1]], from[index[2]], from[index[3]]};
}

template <bool kPlain>
void best(const ChainArcs& arcs, const double* emissions, ChainRow<const double> before,
          int32_t begin, int32_t end, ChainRow<double> after) {
  const auto through = [&](int64_t k) {
    return load<F>(before.token + k) + gather<F>(emissions, arcs.token_slot + k);
  };
  const F gap_emission = F{} + emissions[arcs.gap_slot[begin]];
  F now = through(begin);
  for (int64_t k = begin; k < end; k += kChainBlock) {
    const F next = through(k + kChainBlock);
    const F one = __builtin_shufflevector(now, next, 1, 2, 3, 4);
    if constexpr (kPlain) {
      const F gap = load<F>(before.gap + k) + gap_emission;
      store(after.gap + k, larger(gap, one));
      store(after.token + k, larger(larger(now, gap), one + load<F>(arcs.direct + k)));
    } else {
      const F two = __builtin_shufflevector(now, next, 2, 3, 4, 5);
      const F gap = load<F>(before.gap + k) + gather<F>(emissions, arcs.gap_slot + k);
      store(after.gap + k,
            larger(larger(gap, one + load<F>(arcs.enter + k)), two + load<F>(arcs.jump_gap + k)));
      store(after.token + k, larger(larger(larger(now, gap), one + load<F>(arcs.direct + k)),
                                    two + load<F>(arcs.jump_token + k)));
    }
    now = next;
  }
}

/// A vector of numbers as mantissas and exponents.
struct ScaledVector {
  F mantissa;
  I exponent;
};

ARCGRAD_INLINE ScaledVector read(ScaledRow row, int64_t k) {
  return {load<F>(row.mantissa + k), load<I>(row.exponent + k)};
}

ARCGRAD_INLINE ScaledVector read_at(ScaledRow row, const int32_t* index) {
  return {gather<F>(row.mantissa, index), gather<I>(row.exponent, index)};
}

ARCGRAD_INLINE void write(ScaledRow row, int64_t k, ScaledVector x) {
  store(row.mantissa + k, x.mantissa);
  store(row.exponent + k, x.exponent);
}

ARCGRAD_INLINE ScaledVector times(ScaledVector a, ScaledVector b) {
  return {a.mantissa * b.mantissa, a.exponent + b.exponent};
}

/// The sum of terms, normalized. Terms of zero have low exponents.
template <class... Terms>
ARCGRAD_INLINE ScaledVector sum(ScaledVector first, Terms... rest) {
  I top = first.exponent;
  ((top = larger<I>(rest.exponent, top)), ...);
  F total = first.mantissa * power<L>(first.exponent - top);
  ((total += rest.mantissa * power<L>(rest.exponent - top)), ...);
  ScaledVector out;
  normalize<L>(total, top, out.mantissa, out.exponent);
  return out;
}

inline void forward(const ScaledChainArcs& arcs, ScaledChainRow before, int32_t begin, int32_t end,
                    ScaledChainRow after) {
  for (int64_t k = begin; k < end; k += kChainBlock) {
    const ScaledVector stay = read(before.token, k);
    const ScaledVector gap = sum(read(before.gap, k), stay);
    write(after.gap, k, sum(times(gap, read_at(arcs.emissions, arcs.gap_slot + k))));
    const ScaledVector token = sum(stay, times(read(before.gap, k - 1), read(arcs.enter, k - 1)),
                                   times(read(before.token, k - 1), read(arcs.direct, k - 1)),
                                   times(read(before.gap, k - 2), read(arcs.jump_gap, k - 2)),
                                   times(read(before.token, k - 2), read(arcs.jump_token, k - 2)));
    write(after.token, k, sum(times(token, read_at(arcs.emissions, arcs.token_slot + k))));
  }
}

inline void backward(const ScaledChainArcs& arcs, ScaledChainRow before, int32_t begin, int32_t end,
                     ScaledChainRow after) {
  for (int64_t k = begin; k < end + kChainBlock; k += kChainBlock) {
    const auto consume = [&](ScaledRow row, const int32_t* slot) {
      write(row, k, sum(times(read(row, k), read_at(arcs.emissions, slot + k))));
    };
    consume(before.gap, arcs.gap_slot);
    consume(before.token, arcs.token_slot);
  }
  for (int64_t k = begin; k < end; k += kChainBlock) {
    const ScaledVector gap = read(before.gap, k);
    const ScaledVector one = read(before.token, k + 1), two = read(before.token, k + 2);
    write(after.gap, k,
          sum(gap, times(one, read(arcs.enter, k)), times(two, read(arcs.jump_gap, k))));
    write(after.token, k,
          sum(gap, read(before.token, k), times(one, read(arcs.direct, k)),
              times(two, read(arcs.jump_token, k))));
  }
}

inline void split(const double* weights, int32_t count, ScaledRow out) {
  for (int64_t k = 0; k < count; k += kChainBlock) {
    ScaledVector x;
    split_exp<L>(load<F>(weights + k), x.mantissa, x.exponent);
    write(out, k, sum(x));
  }
}

}  // namespace chain_loops

const ChainTable chain{chain_loops::best<false>, chain_loops::best<true>, chain_loops::forward,
                       chain_loops::backward, chain_loops::split};

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
