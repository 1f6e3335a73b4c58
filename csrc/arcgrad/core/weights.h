#pragma once

// Arc weights: buffers of float or double that graphs, gradients and the tape share.

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace arcgrad {

enum class DType : uint8_t { float32, float64 };

/// The wider of two dtypes.
inline DType promote(DType a, DType b) { return a == DType::float64 ? a : b; }

/// The shape and strides of a matrix, in entries.
struct Layout {
  int64_t rows = 0, cols = 0, row_stride = 0, col_stride = 0;
  bool is_contiguous() const {
    return (cols <= 1 || col_stride == 1) && (rows <= 1 || row_stride == cols);
  }
};

/// Whether `pointer` is the only owner of its object, which may then be changed. All accesses by
/// former owners, on any thread, happen before this returns true.
template <class T>
bool is_sole(const std::shared_ptr<T>& pointer) {
  // Copying synchronizes with the release by former owners; use_count() alone does not.
  const std::shared_ptr<T> second = pointer;
  return second.use_count() == 2;
}

/// Arc weights: a shared buffer of floats or doubles.
///
/// A buffer is written only while its creator is the sole owner. After that it never changes, so
/// graphs, gradients and the tape share it. A borrowed buffer may have strides.
class Weights {
 public:
  Weights() = default;

  /// `size` zeros.
  static Weights zeros(int64_t size, DType dtype);
  /// `size` entries that the caller fills.
  static Weights uninitialized(int64_t size, DType dtype);
  static Weights scalar(double value, DType dtype = DType::float64);
  static Weights from(std::span<const double> values, DType dtype = DType::float64);
  /// Weights in a buffer that `owner` keeps alive.
  static Weights borrow(std::shared_ptr<const void> owner, const void* data, Layout layout,
                        DType dtype);

  int64_t size() const { return layout_.rows * layout_.cols; }
  DType dtype() const { return dtype_; }
  const Layout& layout() const { return layout_; }
  const void* data() const { return data_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  /// Whether the buffer belongs to another library, which may change it.
  bool is_borrowed() const { return borrowed_; }
  /// False for a default-constructed object.
  explicit operator bool() const { return data_ != nullptr; }

  /// The entries in order; the weights must be contiguous and of type T.
  template <class T>
  std::span<const T> view() const {
    return {static_cast<const T*>(data()), static_cast<size_t>(size())};
  }
  /// The same for writing. Only for the sole owner of a buffer.
  template <class T>
  std::span<T> fill() {
    return {static_cast<T*>(const_cast<void*>(data())), static_cast<size_t>(size())};
  }

  double operator[](int64_t i) const;
  /// These weights if they are contiguous, else a contiguous copy.
  Weights contiguous() const;
  /// These weights if they have that dtype and are contiguous, else a copy.
  Weights cast(DType dtype) const;
  std::vector<double> to_vector() const;
  /// Appends an entry, in place if this is the sole owner and has capacity.
  void append(double value);
  /// Drops all entries but the first `size`.
  void truncate(int64_t size);
  /// Sets all entries to zero. Only for the sole owner of a buffer.
  void clear();
  /// Adds contiguous weights entry by entry. Only for the sole owner of a buffer.
  void add(const Weights& other);
  /// Sets one entry, in a copy of the buffer unless this is the sole owner.
  void set(int64_t i, double value);

 private:
  static Weights make(int64_t size, DType dtype, bool zero);
  /// Whether entries may be changed in place.
  bool is_own() const { return !borrowed_ && is_sole(owner_); }

  std::shared_ptr<const void> owner_;
  const void* data_ = nullptr;
  Layout layout_;
  int64_t capacity_ = 0;  // set by append()
  DType dtype_ = DType::float32;
  bool borrowed_ = false;
};

/// Calls `f(float{})` or `f(double{})` according to `dtype`.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  return dtype == DType::float32 ? f(float{}) : f(double{});
}

}  // namespace arcgrad
