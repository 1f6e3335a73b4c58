#include "common.h"

#include <algorithm>
#include <limits>

namespace arcgrad::bindings {
namespace {

nb::object as_array(const char* op, const char* what, nb::handle values) {
  nb::module_ numpy = nb::module_::import_("numpy");
  try {
    return numpy.attr("asarray")(values);
  } catch (nb::python_error& error) {
    throw nb::type_error(
        text(op, ": ", what, " must be array-like, but NumPy says: ", error.what()).c_str());
  }
}

std::string show(nb::handle object) { return nb::str(object).c_str(); }

std::string kind_of(nb::handle array) { return show(array.attr("dtype").attr("kind")); }

std::string name_of(nb::handle array) { return show(array.attr("dtype")); }

/// A list of whole numbers that fit 32 bits; nothing if it is another thing.
std::optional<Column> try_list(nb::handle values) {
  if (!nb::isinstance<nb::list>(values)) return std::nullopt;
  const size_t size = nb::len(values);
  Column out(size);
  for (size_t i = 0; i < size; ++i) {
    const nb::handle item = nb::borrow<nb::list>(values)[i];
    if (!nb::isinstance<nb::int_>(item) || nb::isinstance<nb::bool_>(item)) return std::nullopt;
    int overflow = 0;
    const long value = PyLong_AsLongAndOverflow(item.ptr(), &overflow);
    out[i] = static_cast<int32_t>(value);
    if (overflow != 0 || out[i] != value) return std::nullopt;
  }
  return out;
}

}  // namespace

Semiring to_semiring(const char* op, const std::string& name) {
  if (name == "log") return Semiring::log;
  if (name == "tropical") return Semiring::tropical;
  fail(op, "the semiring must be 'log' or 'tropical', but it is '", name, "'");
}

DType to_dtype(const char* op, nb::handle dtype) {
  std::string name;
  if (nb::isinstance<nb::str>(dtype)) name = nb::cast<std::string>(dtype);
  if (name != "float32" && name != "float64") {
    nb::module_ numpy = nb::module_::import_("numpy");
    name = show(numpy.attr("dtype")(dtype));
  }
  require(name == "float32" || name == "float64", op,
          "the dtype must be float32 or float64, but it is ", name);
  return name == "float32" ? DType::float32 : DType::float64;
}

nb::object from_dtype(DType dtype) {
  return nb::module_::import_("numpy").attr("dtype")(dtype == DType::float32 ? "float32"
                                                                             : "float64");
}

int32_t to_int32(const char* op, const char* what, int64_t value) {
  require(
      value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max(),
      op, what, " must fit 32 bits, but it is ", value);
  return static_cast<int32_t>(value);
}

Column to_ints(const char* op, const char* what, nb::handle values) {
  if (std::optional<Column> ints = try_list(values)) return std::move(*ints);
  nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> plain;
  if (nb::ndarray_check(values) && nb::try_cast(values, plain, false))
    return Column(plain.data(), plain.data() + plain.size());
  nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> wide;
  if (nb::ndarray_check(values) && nb::try_cast(values, wide, false)) {
    Column narrow(wide.size());
    bool fits = true;
    for (size_t i = 0; i < wide.size(); ++i) {
      narrow[i] = static_cast<int32_t>(wide.data()[i]);
      fits &= narrow[i] == wide.data()[i];
    }
    if (fits) return narrow;  // else the message below names the numbers
  }
  nb::object array = as_array(op, what, values);
  const int ndim = nb::cast<int>(array.attr("ndim"));
  if (ndim == 0)
    throw nb::type_error(
        text(op, ": ", what, " must be array-like, but it is ", show(values)).c_str());
  require(ndim == 1, op, what, " must have one dimension, but its shape is ",
          show(array.attr("shape")));
  const auto size = nb::cast<size_t>(array.attr("size"));
  if (size == 0) return {};
  const std::string kind = kind_of(array);
  if (kind != "i" && kind != "u")
    throw nb::type_error(
        text(op, ": ", what, " must hold whole numbers, but its dtype is ", name_of(array))
            .c_str());
  nb::module_ numpy = nb::module_::import_("numpy");
  Column out(size);
  if (nb::cast<int>(array.attr("itemsize")) > 4 || kind == "u") {
    const nb::object low = array.attr("min")(), high = array.attr("max")();
    const nb::int_ least(std::numeric_limits<int32_t>::min()),
        most(std::numeric_limits<int32_t>::max());
    const bool fits = PyObject_RichCompareBool(low.ptr(), least.ptr(), Py_GE) == 1 &&
                      PyObject_RichCompareBool(high.ptr(), most.ptr(), Py_LE) == 1;
    require(fits, op, what, " must hold numbers that fit 32 bits, but they lie between ", show(low),
            " and ", show(high));
  }
  nb::object ints = numpy.attr("ascontiguousarray")(array, "int32");
  auto view =
      nb::cast<nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(ints);
  std::copy(view.data(), view.data() + size, out.begin());
  return out;
}

Weights to_weights(const char* op, nb::handle values, std::optional<DType> dtype) {
  // Plain arrays need no help from NumPy.
  nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> plain;
  if (nb::ndarray_check(values) && nb::try_cast(values, plain, false) && plain.ndim() > 0 &&
      reinterpret_cast<uintptr_t>(plain.data()) % plain.itemsize() == 0 &&
      (plain.dtype() == nb::dtype<float>() || plain.dtype() == nb::dtype<double>())) {
    const DType from = plain.dtype() == nb::dtype<float>() ? DType::float32 : DType::float64;
    return dispatch(from, [&](auto from_kind) {
      return dispatch(dtype.value_or(from), [&](auto to_kind) {
        const auto* data = static_cast<const decltype(from_kind)*>(plain.data());
        Weights out =
            Weights::uninitialized(static_cast<int64_t>(plain.size()), dtype.value_or(from));
        std::transform(data, data + plain.size(), out.fill<decltype(to_kind)>().begin(),
                       [](auto w) { return static_cast<decltype(to_kind)>(w); });
        return out;
      });
    });
  }
  nb::object array = as_array(op, "weights", values);
  const std::string kind = kind_of(array);
  const auto size = nb::cast<int64_t>(array.attr("size"));
  if (nb::cast<int>(array.attr("ndim")) == 0)
    throw nb::type_error(
        text(op, ": weights must be array-like, but they are ", show(values)).c_str());
  if (kind != "f" && kind != "i" && kind != "u")
    throw nb::type_error(
        text(op, ": weights must hold real numbers, but their dtype is ", name_of(array)).c_str());
  // A list has no dtype of its own, although NumPy gives it one.
  const bool is_float64 = nb::hasattr(values, "dtype") && name_of(array) == "float64";
  const DType to = dtype.value_or(is_float64 ? DType::float64 : DType::float32);
  if (size == 0) return Weights::zeros(0, to);
  // NumPy brings it to one of our types; a narrowing is done here, where it cannot warn.
  const DType from = name_of(array) == "float32" ? DType::float32 : DType::float64;
  nb::object flat =
      nb::module_::import_("numpy")
          .attr("ascontiguousarray")(array, from == DType::float32 ? "float32" : "float64")
          .attr("ravel")();
  Weights given = dispatch(from, [&](auto element) {
    using T = decltype(element);
    auto view = nb::cast<nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(flat);
    Weights copy = Weights::uninitialized(size, from);
    std::copy(view.data(), view.data() + size, copy.fill<T>().begin());
    return copy;
  });
  return given.cast(to);
}

std::shared_ptr<const void> hold(nb::handle object) {
  return {new nb::object(nb::borrow(object)), [](nb::object* held) {
            nb::gil_scoped_acquire acquire;
            delete held;
          }};
}

std::optional<Weights> try_borrow_matrix(nb::handle values) {
  nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu> view;
  if (!nb::ndarray_check(values) || !nb::try_cast(values, view, false)) return std::nullopt;
  const bool is_double = view.dtype() == nb::dtype<double>();
  if (!is_double && view.dtype() != nb::dtype<float>()) return std::nullopt;
  const auto address = reinterpret_cast<uintptr_t>(view.data());
  if (address % (is_double ? sizeof(double) : sizeof(float)) != 0) return std::nullopt;
  const Layout layout{static_cast<int64_t>(view.shape(0)), static_cast<int64_t>(view.shape(1)),
                      view.stride(0), view.stride(1)};
  const DType dtype = is_double ? DType::float64 : DType::float32;
  if (layout.rows * layout.cols == 0) return std::nullopt;
  return Weights::borrow(hold(values), view.data(), layout, dtype);
}

Weights borrow_weights(const char* op, nb::handle values) {
  if (std::optional<Weights> weights = try_borrow_matrix(values)) return *weights;
  nb::object array = as_array(op, "weights", values);
  const std::string name = name_of(array);
  require(name == "float32" || name == "float64", op,
          "weights that are not copied must be float32 or float64, but they are ", name);
  require(nb::cast<int>(array.attr("ndim")) == 2, op,
          "weights that are not copied must have two dimensions, but their shape is ",
          show(array.attr("shape")));
  require(nb::cast<bool>(array.attr("flags").attr("aligned")), op,
          "weights that are not copied must be aligned in memory, but they are not");
  auto view = nb::cast<nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>>(array);
  const DType dtype = name == "float32" ? DType::float32 : DType::float64;
  if (view.size() == 0) return Weights::zeros(0, dtype);
  std::optional<Weights> weights = try_borrow_matrix(array);
  require(weights.has_value(), op, "weights that are not copied must be a plain NumPy array");
  return *weights;
}

}  // namespace arcgrad::bindings
