// Allocation, conversion and addition of weights.

#include "arcgrad/core/weights.h"

#include <algorithm>

#include "arcgrad/runtime/buffer.h"

namespace arcgrad {
namespace {

/// A buffer. Never null, so that empty weights differ from no weights.
template <class T>
std::shared_ptr<T[]> allocate(int64_t size, bool zero) {
  const auto count = static_cast<size_t>(std::max<int64_t>(size, 1));
  const size_t bytes = count * sizeof(T);
  if (bytes >= kLarge) {
    std::shared_ptr<T[]> buffer(static_cast<T*>(allocate_large(bytes)),
                                [bytes](T* memory) { free_large(memory, bytes); });
    if (zero) std::fill(buffer.get(), buffer.get() + count, T{0});
    return buffer;
  }
#ifdef __cpp_lib_smart_ptr_for_overwrite
  if (!zero) return std::make_shared_for_overwrite<T[]>(count);
#endif
  return std::make_shared<T[]>(count);
}

template <class From, class To>
void copy_strided(const From* from, const Layout& layout, To* to) {
  if (layout.is_contiguous()) {
    std::copy(from, from + layout.rows * layout.cols, to);
    return;
  }
  for (int64_t r = 0; r < layout.rows; ++r)
    for (int64_t c = 0; c < layout.cols; ++c)
      *to++ = static_cast<To>(from[r * layout.row_stride + c * layout.col_stride]);
}

Layout row(int64_t size) { return {1, size, size, 1}; }

/// Calls `f(row, index of its first entry, count)` for each contiguous row of a matrix, or once if
/// the whole matrix is contiguous.
template <class T, class F>
void for_each_row(T* data, const Layout& layout, F f) {
  if (layout.is_contiguous()) {
    f(data, 0, layout.rows * layout.cols);
    return;
  }
  for (int64_t r = 0; r < layout.rows; ++r)
    f(data + r * layout.row_stride, r * layout.cols, layout.cols);
}

}  // namespace

Weights Weights::make(int64_t size, DType dtype, bool zero) {
  Weights out;
  dispatch(dtype, [&](auto kind) {
    auto buffer = allocate<decltype(kind)>(size, zero);
    out.data_ = buffer.get();
    out.owner_ = std::move(buffer);
  });
  out.layout_ = row(size);
  out.dtype_ = dtype;
  return out;
}

Weights Weights::uninitialized(int64_t size, DType dtype) { return make(size, dtype, false); }
Weights Weights::zeros(int64_t size, DType dtype) { return make(size, dtype, true); }

void Weights::clear() {
  dispatch(dtype_, [&](auto kind) {
    using T = decltype(kind);
    for_each_row(static_cast<T*>(const_cast<void*>(data_)), layout_,
                 [](T* row, int64_t, int64_t count) { std::fill_n(row, count, T{0}); });
  });
}

void Weights::add(const Weights& other) {
  dispatch(dtype_, [&](auto to) {
    dispatch(other.dtype(), [&](auto from) {
      using T = decltype(to);
      const auto* const in = other.view<decltype(from)>().data();
      for_each_row(static_cast<T*>(const_cast<void*>(data())), layout_,
                   [&](T* row, int64_t first, int64_t count) {
                     for (int64_t k = 0; k < count; ++k) row[k] += static_cast<T>(in[first + k]);
                   });
    });
  });
}

Weights Weights::scalar(double value, DType dtype) {
  return from(std::span<const double>(&value, 1), dtype);
}

Weights Weights::from(std::span<const double> values, DType dtype) {
  Weights out = uninitialized(static_cast<int64_t>(values.size()), dtype);
  dispatch(dtype, [&](auto kind) {
    using T = decltype(kind);
    std::transform(values.begin(), values.end(), out.fill<T>().begin(),
                   [](double w) { return static_cast<T>(w); });
  });
  return out;
}

Weights Weights::borrow(std::shared_ptr<const void> owner, const void* data, Layout layout,
                        DType dtype) {
  Weights out;
  out.owner_ = std::move(owner);
  out.data_ = data;
  out.layout_ = layout;
  out.dtype_ = dtype;
  out.borrowed_ = true;
  return out;
}

double Weights::operator[](int64_t i) const {
  const int64_t at =
      (i / layout_.cols) * layout_.row_stride + (i % layout_.cols) * layout_.col_stride;
  return dtype_ == DType::float32 ? static_cast<double>(static_cast<const float*>(data())[at])
                                  : static_cast<const double*>(data())[at];
}

Weights Weights::contiguous() const { return cast(dtype_); }

Weights Weights::cast(DType dtype) const {
  if (dtype == dtype_ && layout_.is_contiguous()) return *this;
  Weights out = uninitialized(size(), dtype);
  dispatch(dtype_, [&](auto from) {
    dispatch(dtype, [&](auto to) {
      copy_strided(static_cast<const decltype(from)*>(data()), layout_,
                   out.fill<decltype(to)>().data());
    });
  });
  return out;
}

std::vector<double> Weights::to_vector() const {
  std::vector<double> out(static_cast<size_t>(size()));
  dispatch(dtype_, [&](auto kind) {
    copy_strided(static_cast<const decltype(kind)*>(data()), layout_, out.data());
  });
  return out;
}

void Weights::append(double value) {
  const int64_t count = size();
  if (count >= capacity_ || !is_own() || !layout_.is_contiguous()) {
    const int64_t room = std::max<int64_t>(8, 2 * count);
    Weights bigger = uninitialized(room, dtype_);
    dispatch(dtype_, [&](auto kind) {
      using T = decltype(kind);
      copy_strided(static_cast<const T*>(data()), layout_, bigger.fill<T>().data());
    });
    *this = std::move(bigger);
    capacity_ = room;
  }
  layout_ = row(count + 1);
  dispatch(dtype_, [&](auto kind) {
    using T = decltype(kind);
    fill<T>()[static_cast<size_t>(count)] = static_cast<T>(value);
  });
}

void Weights::truncate(int64_t size) {
  *this = contiguous();
  layout_ = row(size);
}

void Weights::set(int64_t i, double value) {
  if (!is_own()) {
    Weights copy = uninitialized(size(), dtype_);
    dispatch(dtype_, [&](auto kind) {
      using T = decltype(kind);
      copy_strided(static_cast<const T*>(data()), layout_, copy.fill<T>().data());
    });
    *this = std::move(copy);
  }
  dispatch(dtype_, [&](auto kind) {
    using T = decltype(kind);
    fill<T>()[static_cast<size_t>(i)] = static_cast<T>(value);
  });
}

}  // namespace arcgrad
