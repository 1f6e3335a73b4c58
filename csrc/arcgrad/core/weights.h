#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "arcgrad/runtime/fork_safe_once.h"

namespace arcgrad {

enum class DType : uint8_t { float32, float64 };

/// The wider of the two.
inline DType promote(DType a, DType b) { return a == DType::float64 ? a : b; }

/// A row-major or strided view of a matrix, in elements.
struct Layout {
  int64_t rows = 0, cols = 0, row_stride = 0, col_stride = 0;
  bool is_contiguous() const {
    return (cols <= 1 || col_stride == 1) && (rows <= 1 || row_stride == cols);
  }
};

class Formula;

/// Whether a pointer is the only one to its object, which then may be changed. Others that had it
/// in other threads are done with it: their last access comes before this answer.
template <class T>
bool is_sole(const std::shared_ptr<T>& pointer) {
  // Counting up and down orders what use_count() does not.
  const std::shared_ptr<T> second = pointer;
  return second.use_count() == 2;
}

/// Arc weights: a shared buffer of floats or doubles.
///
/// A buffer is written only while its maker is the sole owner; after that it is never changed, so
/// graphs, gradients and the tape share it freely. It may be borrowed, and then may be strided, or
/// stand for a formula until somebody looks.
class Weights {
 public:
  Weights() = default;

  /// `size` zeros.
  static Weights zeros(int64_t size, DType dtype);
  /// `size` entries that the caller fills.
  static Weights uninitialized(int64_t size, DType dtype);
  static Weights scalar(double value, DType dtype = DType::float64);
  static Weights from(std::span<const double> values, DType dtype = DType::float64);
  /// A buffer that `owner` keeps alive.
  static Weights borrow(std::shared_ptr<const void> owner, const void* data, Layout layout,
                        DType dtype);
  /// `size` entries that `formula` computes when somebody first looks.
  static Weights later(std::shared_ptr<const Formula> formula, int64_t size, DType dtype);

  int64_t size() const { return layout_.rows * layout_.cols; }
  DType dtype() const { return dtype_; }
  const Layout& layout() const { return layout_; }
  const void* data() const { return state_ == State::set ? data_ : settle(); }
  const std::shared_ptr<const void>& owner() const;
  /// Whether the buffer belongs to somebody who may change it.
  bool is_borrowed() const { return borrowed_; }
  /// False for the weights of a default-constructed object.
  explicit operator bool() const { return data_ != nullptr; }

  /// The entries in order; the weights must be contiguous and of type T.
  template <class T>
  std::span<const T> view() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(size())};
  }
  /// The same for the sole owner of a fresh buffer.
  template <class T>
  std::span<T> fill() {
    return {static_cast<T*>(const_cast<void*>(data())), static_cast<size_t>(size())};
  }

  /// The formula that these weights stand for, unless somebody has looked at them.
  const Formula* formula() const;
  /// Whether nobody else has these weights.
  bool is_held_alone() const { return is_sole(owner_); }

  double operator[](int64_t i) const;
  /// These weights if they are contiguous, else a contiguous copy.
  Weights contiguous() const;
  /// These weights if they have that dtype and are contiguous, else a copy.
  Weights cast(DType dtype) const;
  std::vector<double> to_vector() const;
  /// Adds an entry at the end, in place if this is the only owner and there is room.
  void append(double value);
  /// Sets all entries to zero, for the sole owner of a buffer.
  void clear();
  /// Adds other weights, which are contiguous, entry by entry, for the sole owner of a buffer.
  void add(const Weights& other);
  /// Sets one entry in a buffer of its own.
  void set(int64_t i, double value);

 private:
  enum class State : uint8_t { set, later };
  static Weights make(int64_t size, DType dtype, bool zero);
  /// Writes the zeros that were put off, or computes the formula; returns the entries.
  const void* settle() const;
  /// Whether entries may be changed where they are.
  bool is_own() const { return state_ == State::set && !borrowed_ && is_sole(owner_); }

  std::shared_ptr<const void> owner_;
  const void* data_ = nullptr;  // the formula in the state `later`
  Layout layout_;
  int64_t capacity_ = 0;  // how many entries there is room for, if append() made that
  DType dtype_ = DType::float32;
  bool borrowed_ = false;
  State state_ = State::set;
};

/// How weights are computed that nobody has looked at yet. Safe to ask from many threads.
class Formula {
 public:
  virtual ~Formula() = default;
  /// The weights, computed at the first call.
  const Weights& made() const;
  bool is_made() const { return once_.is_done(); }

 private:
  virtual Weights make() const = 0;
  /// Lets go of what that takes.
  virtual void forget() const = 0;

  mutable Weights made_;
  mutable ForkSafeOnce once_;
};

/// Calls `f(float{})` or `f(double{})` according to `dtype`.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  return dtype == DType::float32 ? f(float{}) : f(double{});
}

}  // namespace arcgrad
