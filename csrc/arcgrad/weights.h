#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

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

/// Arc weights: a shared buffer of floats or doubles.
///
/// A buffer is written only while its maker is the sole owner; after that it is never changed, so
/// graphs, gradients and the tape share it freely. It may be borrowed, and then may be strided.
class Weights {
 public:
  Weights() = default;

  /// `size` zeros.
  static Weights zeros(int64_t size, DType dtype);
  /// `size` entries that the caller fills.
  static Weights uninitialized(int64_t size, DType dtype);
  static Weights scalar(double value, DType dtype = DType::float64);
  static Weights from(std::span<const double> values, DType dtype = DType::float64);
  /// `size` zeros that are written when somebody first looks, unless take_unset() comes before.
  /// Such weights must not be copied or shared until clear() was called.
  static Weights zeros_later(int64_t size, DType dtype);
  /// The same in a part of a buffer that `owner` keeps alive; rows must be contiguous.
  static Weights zeros_later(std::shared_ptr<void> owner, void* data, Layout layout, DType dtype);
  /// A buffer that `owner` keeps alive.
  static Weights borrow(std::shared_ptr<const void> owner, const void* data, Layout layout,
                        DType dtype);

  int64_t size() const { return layout_.rows * layout_.cols; }
  DType dtype() const { return dtype_; }
  const Layout& layout() const { return layout_; }
  const void* data() const {
    clear();
    return data_;
  }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  /// False for the weights of a default-constructed object.
  explicit operator bool() const { return data_ != nullptr; }

  /// The entries in order; the weights must be contiguous and of type T.
  template <class T>
  std::span<const T> view() const {
    clear();
    return {static_cast<const T*>(data_), static_cast<size_t>(size())};
  }
  /// The same for the sole owner of a fresh buffer.
  template <class T>
  std::span<T> fill() {
    clear();
    return {static_cast<T*>(const_cast<void*>(data_)), static_cast<size_t>(size())};
  }

  /// Writes the zeros that were put off.
  void clear() const {
    if (is_unset_) [[unlikely]]
      write_zeros();
  }
  /// Whether they were; the caller then has to set every entry.
  bool take_unset() { return std::exchange(is_unset_, false); }

  double operator[](int64_t i) const;
  /// These weights if they are contiguous, else a contiguous copy.
  Weights contiguous() const;
  /// These weights if they have that dtype and are contiguous, else a copy.
  Weights cast(DType dtype) const;
  std::vector<double> to_vector() const;
  /// Adds an entry at the end, in place if this is the only owner and `capacity` allows it.
  void append(double value, int64_t& capacity);
  /// Adds other weights, which are contiguous, entry by entry, for the sole owner of a buffer.
  void add(const Weights& other);
  /// Sets one entry in a buffer of its own.
  void set(int64_t i, double value);

 private:
  static Weights make(int64_t size, DType dtype, bool zero);
  void write_zeros() const;

  std::shared_ptr<const void> owner_;
  const void* data_ = nullptr;
  Layout layout_;
  DType dtype_ = DType::float32;
  bool borrowed_ = false;
  mutable bool is_unset_ = false;
};

/// Calls `f(float{})` or `f(double{})` according to `dtype`.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  return dtype == DType::float32 ? f(float{}) : f(double{});
}

}  // namespace arcgrad
