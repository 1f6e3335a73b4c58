#pragma once

// Conversions between Python and C++ that the bindings share, and the functions that add each part
// of the module.

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arcgrad/algorithms/batch.h"
#include "arcgrad/algorithms/product.h"
#include "arcgrad/arcgrad.h"
#include "arcgrad/autograd/backward.h"
#include "arcgrad/runtime/memory_limit.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace arcgrad::bindings {

/// A graph or a list of graphs from Python.
struct Batch {
  std::vector<Graph> graphs;
  bool is_list = false;
};

/// An int of any size or None from Python; to_seed() and to_int64() check the size.
struct Integer {
  nb::object number;
};

/// A bool of Python or NumPy.
struct Flag {
  bool value = false;
  operator bool() const { return value; }
};

/// Handles that edits by other threads do not change. Take them before releasing the GIL.
inline std::vector<Graph> snapshots(const std::vector<Graph>& graphs) {
  std::vector<Graph> out;
  out.reserve(graphs.size());
  for (const Graph& graph : graphs) out.push_back(graph.snapshot());
  return out;
}

inline std::vector<Graph> snapshots(const Batch& batch) { return snapshots(batch.graphs); }

std::optional<uint64_t> to_seed(const char* op, const Integer& seed);
/// Nothing for None. Throws unless the number fits 64 bits.
std::optional<int64_t> to_int64(const char* op, const char* what, const Integer& number);
/// The number `n` of results. Throws unless it fits 64 bits.
int64_t to_count(const char* op, const Integer& n);
/// "log" or "tropical".
Semiring to_semiring(const char* op, const std::string& name);
/// "input" or "output".
Side to_side(const char* op, const std::string& name);
/// float32 or float64, in any form that numpy.dtype() accepts.
DType to_dtype(const char* op, nb::handle dtype);
nb::object from_dtype(DType dtype);
/// Throws unless the number fits 32 bits.
int32_t to_int32(const char* op, const char* what, int64_t value);
/// A bool, for setters of properties, where a failed conversion has no useful message.
bool to_flag(const char* op, const char* what, nb::handle value);
/// Runs an op without the GIL. If an allocation fails, the error names the op.
template <class Run>
auto run_op(const char* op, const Run& run) {
  nb::gil_scoped_release release;
  try {
    return run();
  } catch (const std::bad_alloc&) {
    rethrow_for_op(op);
  }
}
/// str() of an object, for messages.
std::string show(nb::handle object);
/// numpy.asarray() of an object.
nb::object as_array(const char* op, const char* what, nb::handle values);
/// Whether this is an array of any library. NumPy's scalars are not, though they have buffers too:
/// nanobind cannot read those of dates.
bool is_array(nb::handle values);
/// A one-dimensional array-like of whole numbers.
Column to_ints(const char* op, const char* what, nb::handle values);
/// Lengths, as whole numbers or as a mask: a matrix of bools whose rows are true up to a length.
/// `cols` is the number of columns that a mask must have, or -1 for any number.
Column to_counts(const char* op, nb::handle lengths, int64_t cols);
/// The number of frames of each example, at most `frames`; empty if `lengths` is None.
Column to_lengths(const char* op, nb::handle lengths, int64_t batch, int64_t frames);
/// Sequences of labels from Python: one sequence, or several as a list of sequences, the rows of a
/// matrix, or a concatenation.
struct Labels {
  Sequences sequences;
  bool is_list = false;
};
/// `lengths`, unless None, has the length of each sequence. The rest of a row is padding.
Labels to_labels(const char* op, const char* what, nb::handle values, nb::handle lengths);
/// A copy of an array-like of real numbers of any shape. Without `dtype`, float64 for arrays of
/// floats of more than 32 bits, else float32.
Weights to_weights(const char* op, nb::handle values, std::optional<DType> dtype);
/// A graph as a snapshot, or weights as a graph of the structure and dtype of `like`.
Graph to_graph_like(const char* op, const char* what, const Graph& like, nb::handle values);
/// A matrix of float32 or float64 without a copy; nothing if `values` is something else.
std::optional<Weights> try_borrow_matrix(nb::handle values);
/// A two-dimensional float array, not copied.
Weights borrow_weights(const char* op, nb::handle values);

/// A reference to a Python object that acquires the GIL to release it.
std::shared_ptr<const void> hold(nb::handle object);

/// Slots of a class with a constructor: calls go through ``__init__``, whose errors are explained,
/// instead of nanobind's short cut.
inline nb::type_slots explained_constructor() {
  static PyType_Slot slots[] = {{82, nullptr}, {0, nullptr}};  // Py_tp_vectorcall
  return nb::type_slots(slots);
}

void init_function(nb::module_& m);
void init_symbol_table(nb::module_& m);
void init_graph(nb::module_& m);
void init_ops(nb::module_& m);
void init_external_array(nb::module_& m);
void init_tape(nb::module_& m);
void init_parallel(nb::module_& m);
void init_memory(nb::module_& m);
void init_trellis(nb::module_& m);
void init_tokens(nb::module_& m);
void init_alignments(nb::module_& m);
void init_trie(nb::module_& m);
void init_io(nb::module_& m);
void init_gtn(nb::module_& m);
void init_ngram_model(nb::module_& m);
void init_search(nb::module_& m);
void init_align(nb::module_& m);

}  // namespace arcgrad::bindings

namespace nanobind::detail {

template <>
struct type_caster<arcgrad::bindings::Flag> {
  NB_TYPE_CASTER(arcgrad::bindings::Flag, make_caster<bool>::Name)

  bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<bool> plain;
    if (plain.from_python(source, flags, cleanup)) {
      value.value = plain.value;
      return true;
    }
    // The type is recognized by its name, since NumPy may not be loaded. NumPy 1 calls it bool_.
    const handle type = source.type();
    const object module = getattr(type, "__module__", none()), name = type.attr("__name__");
    if (!module.equal(str("numpy")) || (!name.equal(str("bool")) && !name.equal(str("bool_"))))
      return false;
    value.value = PyObject_IsTrue(source.ptr()) == 1;
    return true;
  }
};

template <>
struct type_caster<arcgrad::bindings::Integer> {
  NB_TYPE_CASTER(arcgrad::bindings::Integer, const_name("int"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.number = source.is_none() ? borrow(source) : steal(PyNumber_Index(source.ptr()));
    if (!value.number.is_valid()) PyErr_Clear();
    return value.number.is_valid();
  }
};

template <>
struct type_caster<arcgrad::bindings::Batch> {
  NB_TYPE_CASTER(arcgrad::bindings::Batch, make_caster<arcgrad::Graph>::Name + const_name(" | ") +
                                               make_caster<std::vector<arcgrad::Graph>>::Name)

  bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<arcgrad::Graph> single;
    if (single.from_python(source, flags, cleanup)) {
      value.graphs = {single.operator arcgrad::Graph&()};
      value.is_list = false;
      return true;
    }
    make_caster<std::vector<arcgrad::Graph>> many;
    if (!many.from_python(source, flags, cleanup)) return false;
    value = {std::move(many.value), true};
    return true;
  }
};

}  // namespace nanobind::detail
