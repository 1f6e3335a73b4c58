#pragma once

// The loops of the `dense` kernel: blocked matrix products (Goto and van de Geijn 2008) and the
// passes over one row of states. dense.cpp explains the algorithm. Over 500 lines because all loops
// use the same tiles and number ranges.

#include <cstdint>

#include "arcgrad/trellis/isa/dispatch.h"

namespace arcgrad::trellis {

/// The columns of a panel: matrices are stored in panels, and a panel row by row.
template <class T>
inline constexpr int64_t kPanel = 64 / sizeof(T);
/// The length of rows is a multiple of this.
inline constexpr int64_t kDensePad = 16;
/// The most products that outer() sums in T before it adds them to a double.
inline constexpr int64_t kOuterRows = 256;
/// The rows of the sums of outer() are a multiple of this.
inline constexpr int64_t kOuterPad = 6;

/// The range of numbers in the recursion of the dense kernel, as binary exponents. The largest
/// number of each row is about 1. dense_forward.cpp proves that these limits suffice.
template <class T>
struct DenseRange;
template <>
struct DenseRange<float> {
  static constexpr int kFull = 30;      // span of the weights of a matrix without zeros
  static constexpr int kSparse = 50;    // span of the nonzero weights of a matrix with zeros
  static constexpr int kSmallest = 50;  // span of the nonzero forward scores in that case
  static constexpr int kFlush = 90;     // forward scores below 2^-kFlush are set to 0
  static constexpr int kFloor = 126;    // exponentials of finite emissions are at least 2^-kFloor
};
template <>
struct DenseRange<double> {
  static constexpr int kFull = 300;
  static constexpr int kSparse = 400;
  static constexpr int kSmallest = 400;
  static constexpr int kFlush = 600;
  static constexpr int kFloor = 1000;
};

/// The loops of the dense kernel. `n` is the padded length of a row.
template <class T>
struct DenseTable {
  /// Extends the range [lowest, highest] by the exponents of the numbers above 0; returns how many
  /// numbers are above 0.
  int64_t (*find_range)(const double* mantissa, const double* exponent, int64_t count,
                        double* highest, double* lowest);
  /// to = mantissa * 2^(exponent - base), for exponents of at most `base`.
  void (*join)(const double* mantissa, const double* exponent, int64_t count, double base, T* to);
  /// e = exp(x - peak), where the peak is the largest of x, but 0 if x - peak < lowest. Sets
  /// `dropped` if such an x is finite. Returns false if an x is NaN or +inf.
  bool (*exponentials)(const T* x, int64_t n, T lowest, T* e, T* peak, bool* dropped);
  /// out = a * matrix for a few rows `stride` apart; the matrix has `inner` rows. A row of `out`
  /// does not depend, to the last bit, on the number of rows.
  void (*multiply)(int64_t rows, const T* a, int64_t stride, int64_t inner, const T* panels,
                   int64_t num_panels, T* out);
  /// The same in the tropical semiring: max for sums, and sums for products.
  void (*multiply_max)(int64_t rows, const T* a, int64_t stride, int64_t inner, const T* panels,
                       int64_t num_panels, T* out);
  /// v = u * e * 2^shift, such that the largest is in [1, 2). Returns false if a nonzero u * e is
  /// below 2^-kSmallest.
  bool (*rescale)(const T* u, const T* e, int64_t n, T* v, int32_t* shift);
  /// Sets b to 0 where v is 0; returns the sum of v * b.
  double (*overlap)(const T* v, int64_t n, T* b);
  /// out = a * b * scale.
  void (*product)(const T* a, const T* b, int64_t n, T scale, T* out);
  /// to += a * b * scale for the first `count` numbers, not rounded up.
  void (*add_product)(const T* a, const T* b, int64_t count, T scale, T* to);
  /// sums[i][j] += the sum of v[k][i] * f[k][j] over k < rows; assigns if `is_first`. `scratch` has
  /// room for as many numbers as v and a panel of f.
  void (*outer)(int64_t rows, const T* v, const T* f, int64_t stride, int64_t count, int64_t n,
                T* scratch, bool is_first, double* sums);
};

namespace baseline {
extern const DenseTable<float> dense_float;
extern const DenseTable<double> dense_double;
}  // namespace baseline
namespace avx2 {
extern const DenseTable<float> dense_float;
extern const DenseTable<double> dense_double;
}  // namespace avx2

}  // namespace arcgrad::trellis

#ifdef ARCGRAD_ISA
#include "arcgrad/trellis/isa/simd.h"

namespace arcgrad::trellis::ARCGRAD_ISA {
namespace dense_loops {

#ifdef __AVX2__
inline constexpr int kBytes = 32;
inline constexpr int kTile = 6;  // with the 2 vectors of a panel, 12 of the 16 registers are sums
#else
inline constexpr int kBytes = 16;
inline constexpr int kTile = 3;
#endif

template <class T>
using Wide = Lanes<T, kBytes / static_cast<int>(sizeof(T))>;
template <class T>
using Vec = typename Wide<T>::F;
template <class T>
inline constexpr int kWidth = kBytes / static_cast<int>(sizeof(T));
/// Vectors per panel.
inline constexpr int kVecs = 64 / kBytes;

/// 2^exponent.
template <class T>
constexpr T binary(int exponent) {
  T out = 1;
  for (; exponent > 0; --exponent) out *= 2;
  for (; exponent < 0; ++exponent) out /= 2;
  return out;
}

template <class T>
ARCGRAD_INLINE T largest(Vec<T> v) {
  T out = v[0];
  for (int k = 1; k < kWidth<T>; ++k) out = v[k] > out ? v[k] : out;
  return out;
}

template <class V>
ARCGRAD_INLINE bool any(V mask) {
  constexpr int kCount = sizeof(V) / sizeof(mask[0]);
  bool out = false;
  for (int k = 0; k < kCount; ++k) out |= mask[k] != 0;
  return out;
}

template <class T>
int64_t find_range(const double* mantissa, const double* exponent, int64_t count,
                   double* __restrict highest, double* __restrict lowest) {
  using L = Lanes<double, 4>;
  const L::F none = L::F{} - __builtin_inf();
  L::F high = none, low = -none;
  L::I alive = {};
  int64_t k = 0;
  for (; k + 4 <= count; k += 4) {
    const L::F q = load<L::F>(exponent + k);
    const L::I is_alive = load<L::F>(mantissa + k) > L::F{};
    high = larger<L::F>(is_alive ? q : none, high);
    low = -larger<L::F>(is_alive ? -q : none, -low);
    alive -= is_alive;
  }
  int64_t out = (alive[0] + alive[1]) + (alive[2] + alive[3]);
  for (int l = 0; l < 4; ++l) {
    *highest = larger<double>(high[l], *highest);
    *lowest = -larger<double>(-low[l], -*lowest);
  }
  for (; k < count; ++k) {
    if (!(mantissa[k] > 0)) continue;
    *highest = larger<double>(exponent[k], *highest);
    *lowest = -larger<double>(-exponent[k], -*lowest);
    ++out;
  }
  return out;
}

template <class T>
void join(const double* __restrict mantissa, const double* __restrict exponent, int64_t count,
          double base, T* __restrict to) {
  for (int64_t k = 0; k < count; ++k) {
    // Adding 2^52 leaves the integer in the low bits of the double, ready to be shifted.
    const double shift = larger<double>(exponent[k] - base, -1023.0) + (1023.0 + 0x1p52);
    to[k] = static_cast<T>(mantissa[k] * bits_as<double>(bits_as<uint64_t>(shift) << 52));
  }
}

/// exp(x - peak) for finite x <= peak.
template <class T>
ARCGRAD_INLINE Vec<T> exp_below(Vec<T> x, Vec<T> peak) {
  using L = Wide<T>;
  using F = Vec<T>;
  using I = typename L::I;
  constexpr bool kIsFloat = sizeof(T) == 4;
  auto c = [](double value) { return F{} + static_cast<T>(value); };
  constexpr T kFloor = binary<T>(-DenseRange<T>::kFloor);
  const F lowest = c(-DenseRange<T>::kFloor * 0.69);
  // The difference and its rounding error.
  const F d = x - peak;
  const F back = d - x;
  const F left = (x - (d - back)) - (peak + back);
  const F y = d > lowest ? d : lowest;
  const F round = c(kIsFloat ? 12582912.0 : 6755399441055744.0);  // 1.5 * 2^fraction bits
  const F shifted = y * c(1.4426950408889634074) + round;
  const F whole = shifted - round;
  // log(2) in two parts; products of the first with `whole` are exact.
  const F high = c(kIsFloat ? 0.693359375 : 6.93147180369123816490e-01);
  const F low = c(kIsFloat ? -2.12194440054690583e-4 : 1.90821492927058770002e-10);
  const F r = ((y - whole * high) - whole * low) + left;
  const F r2 = r * r, r4 = r2 * r2;
  const F p0 = (c(1.0) + r) + (c(0.5) + r * c(1.0 / 6.0)) * r2;
  const F p4 = (c(1.0 / 24.0) + r * c(1.0 / 120.0)) + (c(1.0 / 720.0) + r * c(1.0 / 5040.0)) * r2;
  F p = p0 + p4 * r4;
  if constexpr (!kIsFloat) {
    const F p8 = (c(1.0 / 40320.0) + r * c(1.0 / 362880.0)) +
                 (c(1.0 / 3628800.0) + r * c(1.0 / 39916800.0)) * r2;
    const F p12 = c(1.0 / 479001600.0) + r * c(1.0 / 6227020800.0);
    p = p + (p8 + p12 * r4) * (r4 * r4);
  }
  // The integer is in the low bits of `shifted`.
  const I exponent = bits_as<I>(shifted) - bits_as<I>(round);
  p = p * bits_as<F>((exponent + L::kBias) << L::kFractionBits);
  p = d > lowest ? p : F{} + kFloor;
  return p;
}

template <class T>
bool exponentials(const T* __restrict x, int64_t n, T lowest, T* __restrict e, T* __restrict peak,
                  bool* __restrict dropped) {
  using F = Vec<T>;
  constexpr T kLimit = sizeof(T) == 4 ? T(3.4028234663852886e38) : T(1.7976931348623157e308);
  F top = load<F>(x);
  auto good = top <= F{} + kLimit;
  for (int64_t k = kWidth<T>; k < n; k += kWidth<T>) {
    const F w = load<F>(x + k);
    good &= w <= F{} + kLimit;
    top = larger(top, w);
  }
  if (any(~good)) return false;
  const T m = largest<T>(top);
  *peak = m;
  if (m < -kLimit) {
    for (int64_t k = 0; k < n; ++k) e[k] = 0;
    return true;
  }
  const F at = F{} + m;
  decltype(at < F{}) is_dropped{};
  for (int64_t k = 0; k < n; k += kWidth<T>) {
    const F w = load<F>(x + k);
    const auto is_kept = w - at >= F{} + lowest;
    is_dropped |= ~is_kept & (w >= F{} - kLimit);
    store(e + k, is_kept ? exp_below<T>(w, at) : F{});
  }
  if (any(is_dropped)) *dropped = true;
  return true;
}

/// The operations of a matrix product in the real and in the tropical semiring.
struct SumOfProducts {
  template <class T>
  static constexpr T kNone = 0;
  template <class F>
  ARCGRAD_INLINE static F add(F sum, F a, F b) {
    return sum + a * b;
  }
  template <class F>
  ARCGRAD_INLINE static F join(F a, F b) {
    return a + b;
  }
};
struct LargestSum {
  template <class T>
  static constexpr T kNone = -__builtin_inf();
  template <class F>
  ARCGRAD_INLINE static F add(F sum, F a, F b) {
    return larger<F>(a + b, sum);
  }
  template <class F>
  ARCGRAD_INLINE static F join(F a, F b) {
    return larger<F>(a, b);
  }
};

/// Sets `sum` to the products of `Rows` rows of a with `Panels` panels of b, over `inner` indices
/// k: a(k, i) is at a[k * ak + i * ai], row k of a panel at b[k * bk].
template <class Op, class T, int Rows, int Panels>
ARCGRAD_INLINE void tile(int64_t inner, const T* __restrict a, int64_t ak, int64_t ai,
                         const T* __restrict b, int64_t bk, int64_t panel,
                         Vec<T> (&sum)[Rows][Panels * kVecs]) {
  using F = Vec<T>;
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < Panels * kVecs; ++j) sum[i][j] = F{} + Op::template kNone<T>;
#pragma GCC unroll 4
  for (int64_t k = 0; k < inner; ++k) {
    F right[Panels * kVecs];
#pragma GCC unroll 16
    for (int j = 0; j < Panels * kVecs; ++j)
      right[j] = load<F>(b + (j / kVecs) * panel + (j % kVecs) * kWidth<T>);
#pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const F left = a[i * ai] - F{};  // a broadcast; + F{} would cost an addition
#pragma GCC unroll 16
      for (int j = 0; j < Panels * kVecs; ++j) sum[i][j] = Op::add(sum[i][j], left, right[j]);
    }
    a += ak;
    b += bk;
  }
}

/// tile() for a block of the inner index; assigns to `out` for the first block, adds for the
/// others.
template <class Op, class T, int Rows, int Panels>
void multiply_block(int64_t inner, const T* a, int64_t stride, const T* b, int64_t panel,
                    bool is_first, T* __restrict out) {
  using F = Vec<T>;
  F sum[Rows][Panels * kVecs];
  tile<Op, T, Rows, Panels>(inner, a, 1, stride, b, kPanel<T>, panel, sum);
#pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < Panels * kVecs; ++j) {
      T* to = out + i * stride + j * kWidth<T>;
      store(to, is_first ? sum[i][j] : Op::join(load<F>(to), sum[i][j]));
    }
}

template <class Op, class T, int Panels>
void multiply_rows(int64_t rows, int64_t inner, const T* a, int64_t stride, const T* b,
                   int64_t panel, bool is_first, T* out) {
  switch (rows) {
    case 1:
      return multiply_block<Op, T, 1, Panels>(inner, a, stride, b, panel, is_first, out);
    case 2:
      return multiply_block<Op, T, 2, Panels>(inner, a, stride, b, panel, is_first, out);
    case 3:
      return multiply_block<Op, T, 3, Panels>(inner, a, stride, b, panel, is_first, out);
    default:
      break;
  }
  if constexpr (kTile > 3 && Panels == 1) {
    switch (rows) {
      case 4:
        return multiply_block<Op, T, 4, Panels>(inner, a, stride, b, panel, is_first, out);
      case 5:
        return multiply_block<Op, T, 5, Panels>(inner, a, stride, b, panel, is_first, out);
      case 6:
        return multiply_block<Op, T, 6, Panels>(inner, a, stride, b, panel, is_first, out);
      default:
        break;
    }
  }
}

template <class Op, class T>
void multiply(int64_t rows, const T* a, int64_t stride, int64_t inner, const T* panels,
              int64_t num_panels, T* out) {
  constexpr int64_t kBlock = 256;  // a block of a panel fits the L1 cache
  const int64_t panel = inner * kPanel<T>;
  const int64_t groups = (rows + kTile - 1) / kTile;
  for (int64_t j = 0; j < num_panels;) {
    // With few rows, several panels at once give enough independent sums.
    const int64_t left = num_panels - j;
    const int64_t width = kTile < 6                ? 1
                          : rows == 1 && left >= 4 ? 4
                          : rows <= 3 && left >= 2 ? 2
                                                   : 1;
    for (int64_t k = 0; k < inner; k += kBlock) {
      const int64_t size = inner - k < kBlock ? inner - k : kBlock;
      const T* b = panels + j * panel + k * kPanel<T>;
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t first = rows * g / groups, count = rows * (g + 1) / groups - first;
        const T* from = a + first * stride + k;
        T* to = out + first * stride + j * kPanel<T>;
        if (width == 4)
          multiply_block<Op, T, 1, 4>(size, from, stride, b, panel, k == 0, to);
        else if (width == 2)
          multiply_rows<Op, T, 2>(count, size, from, stride, b, panel, k == 0, to);
        else
          multiply_rows<Op, T, 1>(count, size, from, stride, b, panel, k == 0, to);
      }
    }
    j += width;
  }
}

template <class T>
bool rescale(const T* __restrict u, const T* __restrict e, int64_t n, T* __restrict v,
             int32_t* __restrict shift) {
  using L = Wide<T>;
  using F = Vec<T>;
  const F smallest = F{} + binary<T>(-DenseRange<T>::kSmallest);
  F top = F{};
  typename L::I low = {};
  for (int64_t k = 0; k < n; k += kWidth<T>) {
    const F a = load<F>(u + k), b = load<F>(e + k), x = a * b;
    top = larger(top, x);
    low |= (x < smallest) & (a > F{}) & (b > F{});
    store(v + k, x);
  }
  const T m = largest<T>(top);
  using Int = typename L::Int;
  const Int exponent = m > 0 ? (bits_as<Int>(m) >> L::kFractionBits) - L::kBias : Int{0};
  *shift = static_cast<int32_t>(-exponent);
  const F scale = F{} + bits_as<T>(static_cast<Int>((L::kBias - exponent) << L::kFractionBits));
  const F flush = F{} + binary<T>(-DenseRange<T>::kFlush);
  for (int64_t k = 0; k < n; k += kWidth<T>) {
    const F x = load<F>(v + k) * scale;
    store(v + k, x >= flush ? x : F{});
  }
  return !any(low);
}

template <class T>
double overlap(const T* __restrict v, int64_t n, T* __restrict b) {
  using F = Vec<T>;
  F sum[2] = {};
  for (int64_t k = 0; k < n; k += 2 * kWidth<T>)
    for (int j = 0; j < 2; ++j) {
      const int64_t at = k + j * kWidth<T>;
      const F x = load<F>(v + at), y = load<F>(b + at);
      const F kept = x > F{} ? y : F{};
      store(b + at, kept);
      sum[j] += x * kept;
    }
  const F both = sum[0] + sum[1];
  double out = 0;
  for (int k = 0; k < kWidth<T>; ++k) out += static_cast<double>(both[k]);
  return out;
}

template <class T>
void product(const T* __restrict a, const T* __restrict b, int64_t n, T scale, T* __restrict out) {
  using F = Vec<T>;
  const F s = F{} + scale;
  for (int64_t k = 0; k < n; k += kWidth<T>) store(out + k, load<F>(a + k) * load<F>(b + k) * s);
}

template <class T>
void add_product(const T* __restrict a, const T* __restrict b, int64_t count, T scale,
                 T* __restrict to) {
  for (int64_t k = 0; k < count; ++k) to[k] += a[k] * b[k] * scale;
}

/// Adds the product of a tile of v and a panel of f to the sums.
template <class T>
void outer_tile(int64_t rows, const T* v, int64_t vk, const T* f, int64_t fk, int64_t n,
                bool is_first, double* __restrict sums) {
  for (int i = 0; i < kTile; ++i)
    for (int64_t j = 0; j < kPanel<T>; j += 8) __builtin_prefetch(sums + i * n + j, 1);
  // Sums of block sums, which have a smaller rounding error.
  constexpr int64_t kBlock = 64;
  Vec<T> total[kTile][kVecs] = {};
  for (int64_t k = 0; k < rows; k += kBlock) {
    Vec<T> sum[kTile][kVecs];
    tile<SumOfProducts, T, kTile, 1>(rows - k < kBlock ? rows - k : kBlock, v + k * vk, vk, 1,
                                     f + k * fk, fk, 0, sum);
#pragma GCC unroll 16
    for (int i = 0; i < kTile; ++i)
#pragma GCC unroll 16
      for (int j = 0; j < kVecs; ++j) total[i][j] += sum[i][j];
  }
#pragma GCC unroll 16
  for (int i = 0; i < kTile; ++i)
#pragma GCC unroll 16
    for (int j = 0; j < kVecs; ++j) {
      using D = typename Lanes<double, kWidth<T>>::F;
      double* to = sums + i * n + j * kWidth<T>;
      const D sum = __builtin_convertvector(total[i][j], D);
      store(to, is_first ? sum : load<D>(to) + sum);
    }
}

template <class T>
void outer(int64_t rows, const T* v, const T* f, int64_t stride, int64_t count, int64_t n,
           T* __restrict scratch, bool is_first, double* sums) {
  const int64_t tiles = (count + kTile - 1) / kTile, panels = n / kPanel<T>;
  constexpr int64_t kSmall = 128;  // up to here v and f fit the L2 cache without packing
  if (n <= kSmall) {
    for (int64_t j = 0; j < panels; ++j)
      for (int64_t i = 0; i < tiles; ++i)
        outer_tile(rows, v + i * kTile, stride, f + j * kPanel<T>, stride, n, is_first,
                   sums + i * kTile * n + j * kPanel<T>);
    return;
  }
  T* panel = scratch;
  T* packed = scratch + rows * kPanel<T>;
  // Pack tiles of v and a panel of f contiguously; a group of tiles fits the cache.
  constexpr int64_t kGroup = 40;
  for (int64_t first = 0; first < tiles; first += kGroup) {
    const int64_t end = first + kGroup < tiles ? first + kGroup : tiles;
    for (int64_t k = 0; k < rows; ++k)
      for (int64_t i = first; i < end; ++i)
        for (int64_t c = 0; c < kTile; ++c)
          packed[((i - first) * rows + k) * kTile + c] = v[k * stride + i * kTile + c];
    for (int64_t j = 0; j < panels; ++j) {
      for (int64_t k = 0; k < rows; ++k)
        for (int64_t c = 0; c < kPanel<T>; ++c)
          panel[k * kPanel<T> + c] = f[k * stride + j * kPanel<T> + c];
      for (int64_t i = first; i < end; ++i)
        outer_tile(rows, packed + (i - first) * rows * kTile, kTile, panel, kPanel<T>, n, is_first,
                   sums + i * kTile * n + j * kPanel<T>);
    }
  }
}

}  // namespace dense_loops

template <class T>
inline constexpr DenseTable<T> kDense = {dense_loops::find_range<T>,
                                         dense_loops::join<T>,
                                         dense_loops::exponentials<T>,
                                         dense_loops::multiply<dense_loops::SumOfProducts, T>,
                                         dense_loops::multiply<dense_loops::LargestSum, T>,
                                         dense_loops::rescale<T>,
                                         dense_loops::overlap<T>,
                                         dense_loops::product<T>,
                                         dense_loops::add_product<T>,
                                         dense_loops::outer<T>};

extern const DenseTable<float> dense_float = kDense<float>;
extern const DenseTable<double> dense_double = kDense<double>;

}  // namespace arcgrad::trellis::ARCGRAD_ISA
#endif
