#pragma once

// LU factors of sparse matrices with a dominant diagonal, for systems of path scores with cycles.

#include <cstdint>
#include <optional>
#include <vector>

#include "arcgrad/runtime/buffer.h"

namespace arcgrad {

/// The LU factors of a square matrix, found without pivoting for size.
class SparseLu {
 public:
  struct MatrixEntry {
    int32_t row, col;
    double value;
  };
  /// The largest block of rows that are solved as dense ones.
  static constexpr size_t kMaxDense = 4096;

  /// Factors the sum of the entries, which must include the whole diagonal. Returns nothing if a
  /// pivot is not above `least`.
  static std::optional<SparseLu> factor(size_t size, std::vector<MatrixEntry> entries,
                                        double least);

  /// The number of rows that were too dense for sparse elimination. If there are more than
  /// kMaxDense, they are not factored, and the factors are unusable.
  size_t num_dense() const { return dense_rows_.size(); }

  /// Solves the system in place.
  void solve(std::vector<double>& x) const;
  void solve_transposed(std::vector<double>& x) const;

 private:
  struct Term {
    int32_t at;
    double value;
  };
  /// A row that was eliminated: the terms [lower, upper) are its multiples in later rows, the terms
  /// [upper, end) the entries right of its pivot.
  struct Pivot {
    int32_t row;
    double value;
    int64_t lower, upper, end;
  };
  class Elimination;

  std::vector<Pivot> pivots_;
  Buffer<Term> terms_;
  /// The rows left, ascending, and the factors of their matrix, row by row.
  std::vector<int32_t> dense_rows_;
  Buffer<double> dense_;
};

}  // namespace arcgrad
