#include "arcgrad/algorithms/sparse_lu.h"

#include <algorithm>
#include <functional>
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
    for (size_t left = rows_.size(); left > 0 && !is_dense(left); --left)
      if (!eliminate(next(), out, least)) return false;
    for (size_t i = 0; i < rows_.size(); ++i)
      if (is_left_[i]) out.dense_rows_.push_back(static_cast<int32_t>(i));
    return out.num_dense() > kMaxDense || factor_dense(out, least);
  }

 private:
  /// Few rows are eliminated faster as dense ones, even if they are sparse.
  bool is_dense(size_t left) const {
    constexpr size_t kFew = 32, kDenseShare = 4;
    return left <= kFew || kDenseShare * num_entries_ >= left * left;
  }

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

  bool factor_dense(SparseLu& out, double least) {
    const size_t n = out.num_dense();
    out.dense_.assign(n * n, 0.0);
    double* const lu = out.dense_.data();
    for (size_t i = 0; i < n; ++i) where_[out.dense_rows_[i]] = static_cast<int32_t>(i);
    for (size_t i = 0; i < n; ++i)
      for (const auto& [col, value] : rows_[out.dense_rows_[i]]) lu[i * n + where_[col]] = value;
    for (size_t k = 0; k < n; ++k) {
      const double* pivot = lu + k * n;
      if (!(pivot[k] > least)) return false;
      for (size_t i = k + 1; i < n; ++i) {
        double* row = lu + i * n;
        poll_();
        if (row[k] == 0.0) continue;
        const double factor = row[k] /= pivot[k];
        poll_(static_cast<int64_t>(n - k));
        for (size_t j = k + 1; j < n; ++j) row[j] -= factor * pivot[j];
      }
    }
    return true;
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
  if (!Elimination(size, std::move(entries)).run(out, least)) return std::nullopt;
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
