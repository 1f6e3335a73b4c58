// Conversions from Python with errors that name the operation and the argument.

#include "common.h"

#include <algorithm>
#include <limits>

namespace arcgrad::bindings {

nb::object as_array(const char* op, const char* what, nb::handle values) {
  nb::module_ numpy = nb::module_::import_("numpy");
  try {
    return numpy.attr("asarray")(values);
  } catch (nb::python_error& error) {
    throw nb::type_error(
        text(op, ": ", what, " must be array-like, but NumPy says: ", show(error.value())).c_str());
  }
}

bool is_array(nb::handle values) {
  if (!nb::ndarray_check(values)) return false;
  if (PyObject_Size(values.ptr()) >= 0) return true;
  PyErr_Clear();
  return nb::hasattr(values, "__dlpack__");
}

std::string show(nb::handle object) {
  // A str may contain lone surrogates, which UTF-8 cannot encode.
  return nb::cast<nb::bytes>(nb::str(object).attr("encode")("utf-8", "backslashreplace")).c_str();
}

std::optional<uint64_t> to_seed(const char* op, const Integer& seed) {
  if (seed.number.is_none()) return std::nullopt;
  uint64_t number = 0;
  require(nb::try_cast(seed.number, number), op,
          "the seed must be between 0 and 2**64 - 1, but it is ", show(seed.number));
  return number;
}

std::optional<int64_t> to_int64(const char* op, const char* what, const Integer& number) {
  if (number.number.is_none()) return std::nullopt;
  int64_t value = 0;
  require(nb::try_cast(number.number, value), op, what, " must fit 64 bits, but it is ",
          show(number.number));
  return value;
}

int64_t to_count(const char* op, const Integer& n) {
  const std::optional<int64_t> count = to_int64(op, "n", n);
  if (!count) throw nb::type_error(text(op, ": n must be a whole number, but it is None").c_str());
  return *count;
}

namespace {

std::string kind_of(nb::handle array) { return show(array.attr("dtype").attr("kind")); }

std::string name_of(nb::handle array) { return show(array.attr("dtype")); }

/// An array-like of whole numbers; an empty one may be of any type.
nb::object as_int_array(const char* op, const char* what, nb::handle values) {
  nb::object array = as_array(op, what, values);
  if (nb::cast<int>(array.attr("ndim")) == 0)
    throw nb::type_error(
        text(op, ": ", what, " must be array-like, but it is ", show(values)).c_str());
  const std::string kind = kind_of(array);
  if (kind != "i" && kind != "u" && nb::cast<size_t>(array.attr("size")) > 0)
    throw nb::type_error(
        text(op, ": ", what, " must hold whole numbers, but its dtype is ", name_of(array))
            .c_str());
  return array;
}

/// A list of ints that fit 32 bits; nothing if `values` is something else.
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

/// Whether an element of a list is a sequence, not a number.
bool is_row(nb::handle item) {
  if (PyLong_Check(item.ptr())) return false;
  if (nb::hasattr(item, "ndim")) return nb::cast<int>(item.attr("ndim")) > 0;
  return nb::isinstance<nb::sequence>(item);
}

/// A matrix of whole numbers, or a vector as its only row.
template <class T>
struct IntMatrix {
  nb::ndarray<const T, nb::c_contig, nb::device::cpu> owner;
  bool is_vector = false;
  size_t rows = 0, cols = 0;

  /// Appends the `length` numbers from `begin` on as a sequence.
  void append(const char* op, const char* what, size_t begin, size_t length, Sequences& to) const {
    const size_t size = to.labels.size();
    to.labels.resize(size + length);
    const T* from = owner.data() + begin;
    for (size_t i = 0; i < length; ++i) {
      to.labels[size + i] = static_cast<int32_t>(from[i]);
      require(to.labels[size + i] == from[i], op, what,
              " must hold numbers that fit 32 bits, but number ", i, " of sequence ", to.size(),
              " is ", from[i]);
    }
    to.end_sequence();
  }
};

template <class T>
std::optional<IntMatrix<T>> try_int_matrix(nb::handle values) {
  IntMatrix<T> out;
  if (!is_array(values) || !nb::try_cast(values, out.owner, false)) return std::nullopt;
  if (out.owner.ndim() != 1 && out.owner.ndim() != 2) return std::nullopt;
  out.is_vector = out.owner.ndim() == 1;
  out.rows = out.is_vector ? 1 : out.owner.shape(0);
  out.cols = out.owner.shape(out.is_vector ? 0 : 1);
  return out;
}

/// The sequences in a matrix or vector, of the given lengths.
template <class T>
Labels cut(const char* op, const char* what, const IntMatrix<T>& matrix,
           const std::optional<Column>& lengths) {
  Labels out{.sequences = {}, .is_list = !matrix.is_vector || lengths};
  if (!lengths) {
    for (size_t r = 0; r < matrix.rows; ++r)
      matrix.append(op, what, r * matrix.cols, matrix.cols, out.sequences);
    return out;
  }
  const size_t count = lengths->size();
  require(matrix.is_vector || count == matrix.rows, op,
          "there must be one length per row, but there are ", count, " lengths for ", matrix.rows,
          " rows");
  size_t total = 0;
  for (size_t i = 0; i < count; ++i) {
    const int32_t length = (*lengths)[i];
    if (length < 0 || (!matrix.is_vector && static_cast<size_t>(length) > matrix.cols))
      fail(op, "a length must be 0 or more",
           matrix.is_vector ? std::string() : text(" and at most ", matrix.cols), ", but length ",
           i, " is ", length);
    total += static_cast<size_t>(length);
  }
  require(!matrix.is_vector || total == matrix.cols, op, "the lengths must add up to the ",
          matrix.cols, " labels of ", what, ", but they add up to ", total);
  size_t begin = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto length = static_cast<size_t>((*lengths)[i]);
    matrix.append(op, what, matrix.is_vector ? begin : i * matrix.cols, length, out.sequences);
    begin += length;
  }
  return out;
}

}  // namespace

Semiring to_semiring(const char* op, const std::string& name) {
  if (name == "log") return Semiring::log;
  if (name == "tropical") return Semiring::tropical;
  fail(op, "the semiring must be 'log' or 'tropical', but it is '", name, "'");
}

Side to_side(const char* op, const std::string& name) {
  if (name == "input") return Side::input;
  if (name == "output") return Side::output;
  fail(op, "the side must be 'input' or 'output', but it is '", name, "'");
}

DType to_dtype(const char* op, nb::handle dtype) {
  std::string name;
  if (nb::isinstance<nb::str>(dtype)) name = show(dtype);
  if (name != "float32" && name != "float64") {
    nb::module_ numpy = nb::module_::import_("numpy");
    try {
      name = show(numpy.attr("dtype")(dtype));
    } catch (nb::python_error&) {
      throw nb::type_error(
          text(op, ": the dtype must be float32 or float64, but it is ", nb::repr(dtype).c_str())
              .c_str());
    }
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

bool to_flag(const char* op, const char* what, nb::handle value) {
  Flag flag;
  if (!nb::try_cast(value, flag))
    throw nb::type_error(
        text(op, ": ", what, " must be True or False, but it is ", nb::repr(value).c_str())
            .c_str());
  return flag;
}

namespace {

/// A list or an array of ints, read without NumPy; nothing if `values` is something else.
std::optional<Column> try_ints(nb::handle values) {
  if (std::optional<Column> ints = try_list(values)) return ints;
  nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> plain;
  if (is_array(values) && nb::try_cast(values, plain, false))
    return Column(plain.data(), plain.data() + plain.size());
  nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> wide;
  if (is_array(values) && nb::try_cast(values, wide, false)) {
    Column narrow(wide.size());
    int64_t lost = 0;  // not a bool, so that the loop is vectorized
    for (size_t i = 0; i < wide.size(); ++i) {
      narrow[i] = static_cast<int32_t>(wide.data()[i]);
      lost |= narrow[i] ^ wide.data()[i];
    }
    if (lost == 0) return narrow;  // else the message of to_ints names the numbers
  }
  return std::nullopt;
}

}  // namespace

Column to_ints(const char* op, const char* what, nb::handle values) {
  if (std::optional<Column> ints = try_ints(values)) return std::move(*ints);
  nb::object array = as_int_array(op, what, values);
  require(nb::cast<int>(array.attr("ndim")) == 1, op, what,
          " must have one dimension, but its shape is ", show(array.attr("shape")));
  const auto size = nb::cast<size_t>(array.attr("size"));
  if (size == 0) return {};
  const std::string kind = kind_of(array);
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

Column to_counts(const char* op, nb::handle lengths, int64_t cols) {
  if (std::optional<Column> ints = try_ints(lengths)) return std::move(*ints);
  const nb::object array = as_array(op, "lengths", lengths);
  if (kind_of(array) != "b") return to_ints(op, "lengths", array);
  require(nb::cast<int>(array.attr("ndim")) == 2, op,
          "a mask of lengths must have two dimensions, but its shape is ",
          show(array.attr("shape")));
  const nb::object whole = nb::module_::import_("numpy").attr("ascontiguousarray")(array);
  const auto mask = nb::cast<nb::ndarray<const bool, nb::ndim<2>, nb::c_contig>>(whole);
  const auto width = static_cast<int64_t>(mask.shape(1));
  require(cols < 0 || width == cols, op, "a mask of lengths must have ", cols,
          " columns, but it has ", width);
  Column counts(mask.shape(0));
  for (size_t i = 0; i < counts.size(); ++i) {
    const bool* const row = mask.data() + static_cast<int64_t>(i) * width;
    const bool* const end = std::find(row, row + width, false);
    require(
        std::find(end, row + width, true) == row + width, op,
        "each row of a mask of lengths must be true up to a length and false after it, but row ", i,
        " is true again after place ", end - row);
    counts[i] = static_cast<int32_t>(end - row);
  }
  return counts;
}

Labels to_labels(const char* op, const char* what, nb::handle values, nb::handle lengths) {
  const bool is_plain = nb::isinstance<nb::list>(values) || nb::isinstance<nb::tuple>(values);
  if (is_plain && lengths.is_none()) {
    const nb::sequence list = nb::borrow<nb::sequence>(values);
    const size_t size = nb::len(list);
    Labels out{.sequences = {}, .is_list = size > 0 && is_row(nb::object(list[0]))};
    if (!out.is_list) {
      out.sequences.labels = to_ints(op, what, values);
      out.sequences.end_sequence();
      return out;
    }
    Column& labels = out.sequences.labels;
    for (size_t i = 0; i < size; ++i) {
      try {
        const Column row = to_ints(op, what, nb::object(list[i]));
        labels.insert(labels.end(), row.begin(), row.end());
        out.sequences.end_sequence();
      } catch (const std::invalid_argument&) {
        rethrow_for_element(op, i, size);
      }
    }
    return out;
  }
  std::optional<Column> cuts;
  if (!lengths.is_none()) cuts = to_counts(op, lengths, -1);
  if (const auto matrix = try_int_matrix<int32_t>(values)) return cut(op, what, *matrix, cuts);
  if (const auto matrix = try_int_matrix<int64_t>(values)) return cut(op, what, *matrix, cuts);
  const nb::object array = as_int_array(op, what, values);
  const int ndim = nb::cast<int>(array.attr("ndim"));
  require(ndim <= 2, op, what, " must have one or two dimensions, but its shape is ",
          show(array.attr("shape")));
  const nb::object wide = nb::module_::import_("numpy").attr("ascontiguousarray")(array, "int64");
  return cut(op, what, *try_int_matrix<int64_t>(wide), cuts);
}

Column to_lengths(const char* op, nb::handle lengths, int64_t batch, int64_t frames) {
  if (lengths.is_none()) return {};
  Column counts = to_counts(op, lengths, frames);
  require(static_cast<int64_t>(counts.size()) == batch, op,
          "there must be one length per example, ", batch, " in all, but there are ",
          counts.size());
  for (size_t i = 0; i < counts.size(); ++i)
    require(counts[i] >= 0 && counts[i] <= frames, op, "a length must be between 0 and ", frames,
            ", the number of frames, but the length of example ", i, " is ", counts[i]);
  return counts;
}

Weights to_weights(const char* op, nb::handle values, std::optional<DType> dtype) {
  // Fast path without calls into NumPy, for aligned contiguous arrays.
  nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu> plain;
  if (is_array(values) && nb::try_cast(values, plain, false) && plain.ndim() > 0 &&
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
  // NumPy converts lists to float64, but a list has no dtype, so its weights become float32.
  const bool is_float64 = nb::hasattr(values, "dtype") && kind == "f" &&
                          nb::cast<size_t>(array.attr("itemsize")) > sizeof(float);
  const DType to = dtype.value_or(is_float64 ? DType::float64 : DType::float32);
  if (size == 0) return Weights::zeros(0, to);
  // NumPy converts to float32 or float64. Narrowing is done here, since NumPy warns of overflow.
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

Graph to_graph_like(const char* op, const char* what, const Graph& like, nb::handle values) {
  if (nb::isinstance<Graph>(values)) return nb::cast<Graph>(values).snapshot();
  Weights weights = to_weights(op, values, like.dtype());
  require(weights.size() == like.num_arcs(), op, what, " must have one entry per arc, ",
          like.num_arcs(), " in all, but there are ", weights.size());
  // An array speaks of arcs, and node weights are 0.
  while (weights.size() < like.num_weights()) weights.append(0.0);
  return {like.topology_ptr(), std::move(weights)};
}

std::optional<Weights> try_borrow_matrix(nb::handle values) {
  nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu> view;
  if (!is_array(values) || !nb::try_cast(values, view, false)) return std::nullopt;
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
