#include "arcgrad/algorithms/sparse_lu.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "arcgrad/runtime/interrupt_poll.h"

// Gaussian elimination in the order of least fill (Markowitz 1957): each pivot takes the row and
// column whose elimination touches the fewest entries. For an M-matrix, such as the identity minus
// a convergent matrix of path weights, every order meets positive pivots and is stable, so the
// order follows the pattern alone. Once the rest is dense, it is factored as a dense matrix.
//
// Cost: a ring of n nodes takes O(n log n), a dense matrix O(n^3).

namespace arcgrad {
namespace {

/// Matrices of few rows, and those with this share of entries, are factored faster as dense ones.
constexpr size_t kFewRows = 128, kDenseShare = 4;

bool is_dense(size_t num_rows, size_t num_entries) {
  return num_rows <= kFewRows || kDenseShare * num_entries >= num_rows * num_rows;
}

/// Factors a dense matrix of n rows in place. Returns whether all pivots are above `least`.
bool factor_dense(double* lu, size_t n, double least) {
  InterruptPoll poll;
  for (size_t k = 0; k < n; ++k) {
    const double* pivot = lu + k * n;
    if (!(pivot[k] > least)) return false;
    for (size_t i = k + 1; i < n; ++i) {
      double* row = lu + i * n;
      if (row[k] == 0.0) continue;
      const double factor = row[k] /= pivot[k];
      poll(static_cast<int64_t>(n - k));
      for (size_t j = k + 1; j < n; ++j) row[j] -= factor * pivot[j];
    }
  }
  return true;
}

}  // namespace

class SparseLu::Elimination {
 public:
  Elimination(size_t size, std::vector<MatrixEntry> entries)
      : rows_(size), cols_(size), count_(size, 0), where_(size, -1), is_left_(size, true) {
    std::ranges::stable_sort(entries, {},
                             [](const MatrixEntry& e) { return std::pair(e.row, e.col); });
    const MatrixEntry* last = nullptr;
    for (const MatrixEntry& entry : entries) {
      if (last && last->row == entry.row && last->col == entry.col)
        rows_[entry.row].back().value += entry.value;
      else
        add(entry.row, entry.col, entry.value);
      last = &entry;
    }
  }

  bool run(SparseLu& out, double least) {
    for (size_t i = 0; i < rows_.size(); ++i) enqueue(static_cast<int32_t>(i));
    size_t left = rows_.size();
    for (; !is_dense(left, num_entries_); --left)
      if (!eliminate(next(), out, least)) return false;
    if (left > kMaxDense) {
      out.dense_rows_.resize(left);
      return true;
    }
    for (size_t i = 0; i < rows_.size(); ++i)
      if (is_left_[i]) {
        where_[i] = static_cast<int32_t>(out.dense_rows_.size());
        out.dense_rows_.push_back(static_cast<int32_t>(i));
      }
    out.dense_.assign(left * left, 0.0);
    for (const int32_t i : out.dense_rows_)
      for (const auto& [col, value] : rows_[i])
        out.dense_[static_cast<size_t>(where_[i]) * left + static_cast<size_t>(where_[col])] =
            value;
    return factor_dense(out.dense_.data(), left, least);
  }

 private:
  void add(int32_t row, int32_t col, double value) {
    rows_[row].push_back({col, value});
    cols_[col].push_back(row);
    ++count_[col];
    ++num_entries_;
  }

  /// An upper bound of the entries that the elimination of a row adds.
  int64_t cost(int32_t i) const { return (std::ssize(rows_[i]) - 1) * (int64_t{count_[i]} - 1); }
  void enqueue(int32_t i) { queue_.push({cost(i), i}); }
  int32_t next() {
    while (true) {
      const auto [cost, i] = queue_.top();
      queue_.pop();
      if (is_left_[i] && cost == this->cost(i)) return i;
    }
  }

  bool eliminate(int32_t k, SparseLu& out, double least) {
    std::vector<Term>& row = rows_[k];
    const auto diagonal = std::ranges::find(row, k, &Term::at);
    Pivot pivot{k, diagonal->value, std::ssize(out.terms_), 0, 0};
    if (!(pivot.value > least)) return false;
    *diagonal = row.back();
    row.pop_back();
    is_left_[k] = false;
    for (const int32_t i : cols_[k])
      if (is_left_[i]) out.terms_.push_back({i, subtract_multiple(i, k, pivot.value)});
    pivot.upper = std::ssize(out.terms_);
    out.terms_.insert(out.terms_.end(), row.begin(), row.end());
    pivot.end = std::ssize(out.terms_);
    out.pivots_.push_back(pivot);
    num_entries_ -= row.size() + 1;
    for (const Term& term : row) --count_[term.at];
    for (int64_t t = pivot.lower; t < pivot.end; ++t) enqueue(out.terms_[t].at);
    row = {};
    cols_[k] = {};
    return true;
  }

  /// Removes entry (i, k) by subtracting a multiple of row k from row i. Returns the factor.
  double subtract_multiple(int32_t i, int32_t k, double pivot) {
    std::vector<Term>& row = rows_[i];
    for (size_t t = 0; t < row.size(); ++t) where_[row[t].at] = static_cast<int32_t>(t);
    const double factor = row[where_[k]].value / pivot;
    for (const auto& [col, value] : rows_[k]) {
      if (where_[col] >= 0)
        row[where_[col]].value -= factor * value;
      else
        add(i, col, -factor * value);
    }
    poll_(std::ssize(row));
    std::swap(row[where_[k]], row.back());
    for (const Term& term : row) where_[term.at] = -1;
    row.pop_back();
    --num_entries_;
    return factor;
  }

  std::vector<std::vector<Term>> rows_;     // of the rows left; their columns are left too
  std::vector<std::vector<int32_t>> cols_;  // the rows of each column, also those eliminated
  std::vector<int32_t> count_;              // of each column, the rows left
  std::vector<int32_t> where_;              // of each column, its term in the current row, or -1
  std::vector<bool> is_left_;
  size_t num_entries_ = 0;
  using Candidate = std::pair<int64_t, int32_t>;  // cost, row; outdated if the cost has changed
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue_;
  InterruptPoll poll_;
};

std::optional<SparseLu> SparseLu::factor(size_t size, std::vector<MatrixEntry> entries,
                                         double least) {
  SparseLu out;
  if (size > kMaxDense || !is_dense(size, entries.size())) {
    if (!Elimination(size, std::move(entries)).run(out, least)) return std::nullopt;
    return out;
  }
  out.dense_rows_.resize(size);
  std::iota(out.dense_rows_.begin(), out.dense_rows_.end(), 0);
  out.dense_.assign(size * size, 0.0);
  for (const auto& [row, col, value] : entries)
    out.dense_[static_cast<size_t>(row) * size + static_cast<size_t>(col)] += value;
  if (!factor_dense(out.dense_.data(), size, least)) return std::nullopt;
  return out;
}

void SparseLu::solve(std::vector<double>& x) const {
  for (const Pivot& pivot : pivots_)
    for (int64_t t = pivot.lower; t < pivot.upper; ++t)
      x[terms_[t].at] -= terms_[t].value * x[pivot.row];
  const size_t n = num_dense();
  const auto at = [&](size_t i) -> double& { return x[dense_rows_[i]]; };
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < i; ++j) at(i) -= dense_[i * n + j] * at(j);
  for (size_t i = n; i-- > 0;) {
    for (size_t j = i + 1; j < n; ++j) at(i) -= dense_[i * n + j] * at(j);
    at(i) /= dense_[i * n + i];
  }
  for (auto pivot = pivots_.rbegin(); pivot != pivots_.rend(); ++pivot) {
    for (int64_t t = pivot->upper; t < pivot->end; ++t)
      x[pivot->row] -= terms_[t].value * x[terms_[t].at];
    x[pivot->row] /= pivot->value;
  }
}

void SparseLu::solve_transposed(std::vector<double>& x) const {
  for (const Pivot& pivot : pivots_) {
    x[pivot.row] /= pivot.value;
    for (int64_t t = pivot.upper; t < pivot.end; ++t)
      x[terms_[t].at] -= terms_[t].value * x[pivot.row];
  }
  const size_t n = num_dense();
  const auto at = [&](size_t i) -> double& { return x[dense_rows_[i]]; };
  for (size_t i = 0; i < n; ++i) {
    at(i) /= dense_[i * n + i];
    for (size_t j = i + 1; j < n; ++j) at(j) -= dense_[i * n + j] * at(i);
  }
  for (size_t i = n; i-- > 0;)
    for (size_t j = 0; j < i; ++j) at(j) -= dense_[i * n + j] * at(i);
  for (auto pivot = pivots_.rbegin(); pivot != pivots_.rend(); ++pivot)
    for (int64_t t = pivot->lower; t < pivot->upper; ++t)
      x[pivot->row] -= terms_[t].value * x[terms_[t].at];
}

}  // namespace arcgrad
