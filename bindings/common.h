#pragma once

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

namespace nb = nanobind;
using namespace nb::literals;

namespace arcgrad::bindings {

/// A list of graphs, as Python passes it. It may hold other things, of which snapshots() complains:
/// only there it is known for which operation.
struct GraphList {
  std::vector<Graph> graphs;  // those before the first thing that is no graph
  size_t size = 0;
  std::string wrong_type;  // of that thing; empty if there is none
};

/// A graph or a list of graphs, as Python passes it.
struct Batch : GraphList {
  bool is_list = false;
};

/// Any whole number or None, as Python passes it; to_seed() looks at its size.
struct Seed {
  nb::object number;
};

/// True or False, or such a value of NumPy, which comparing its numbers gives.
struct Flag {
  bool value = false;
  operator bool() const { return value; }
};

/// Handles that edits made while the GIL is released do not touch. Take them before releasing it.
inline std::vector<Graph> snapshots(const std::vector<Graph>& graphs) {
  std::vector<Graph> out;
  out.reserve(graphs.size());
  for (const Graph& graph : graphs) out.push_back(graph.snapshot());
  return out;
}

/// The same of a list, which must hold graphs only.
std::vector<Graph> snapshots(const char* op, const GraphList& list);

std::optional<uint64_t> to_seed(const char* op, const Seed& seed);
/// "log" or "tropical".
Semiring to_semiring(const char* op, const std::string& name);
/// Whatever numpy.dtype() understands, as long as it is float32 or float64.
DType to_dtype(const char* op, nb::handle dtype);
nb::object from_dtype(DType dtype);
/// A whole number that fits an int32.
int32_t to_int32(const char* op, const char* what, int64_t value);
/// True or False, where no caster can say what is wrong.
bool to_flag(const char* op, const char* what, nb::handle value);
/// str() of an object, for messages.
std::string show(nb::handle object);
/// Whatever numpy.asarray() understands.
nb::object as_array(const char* op, const char* what, nb::handle values);
/// A one-dimensional array-like of whole numbers.
Column to_ints(const char* op, const char* what, nb::handle values);
/// How many of `frames` frames each of `batch` examples has, or none if that is None.
Column to_lengths(const char* op, nb::handle lengths, int64_t batch, int64_t frames);
/// Sequences of labels as Python passes them: one, or several, and then as a list of sequences, as
/// the rows of a matrix, or one after the other.
struct Labels {
  Sequences sequences;
  bool is_list = false;
};
/// `lengths`, if not None, says how long each of several sequences is: rows of a matrix are cut.
Labels to_labels(const char* op, const char* what, nb::handle values, nb::handle lengths);
/// An array-like of real numbers of any shape, copied. Without `dtype`, float64 if it is an array
/// of floats of more than 32 bits, else float32.
Weights to_weights(const char* op, nb::handle values, std::optional<DType> dtype);
/// A matrix of float32 or float64 as it is in memory, or nothing if it is not one.
std::optional<Weights> try_borrow_matrix(nb::handle values);
/// A two-dimensional float array, not copied.
Weights borrow_weights(const char* op, nb::handle values);

/// A share in a Python object, which is let go with the GIL held.
std::shared_ptr<const void> hold(nb::handle object);

void init_graph(nb::module_& m);
void init_ops(nb::module_& m);
void init_source(nb::module_& m);
void init_tape(nb::module_& m);
void init_parallel(nb::module_& m);
void init_trellis(nb::module_& m);
void init_tokens(nb::module_& m);
void init_alignments(nb::module_& m);
void init_trie(nb::module_& m);
void init_io(nb::module_& m);

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
    // By its name, as NumPy may not be loaded; it was bool_ before NumPy 2.
    const handle type = source.type();
    const object module = getattr(type, "__module__", none()), name = type.attr("__name__");
    if (!module.equal(str("numpy")) || (!name.equal(str("bool")) && !name.equal(str("bool_"))))
      return false;
    value.value = PyObject_IsTrue(source.ptr()) == 1;
    return true;
  }
};

template <>
struct type_caster<arcgrad::bindings::Seed> {
  NB_TYPE_CASTER(arcgrad::bindings::Seed, const_name("int"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.number = source.is_none() ? borrow(source) : steal(PyNumber_Index(source.ptr()));
    if (!value.number.is_valid()) PyErr_Clear();
    return value.number.is_valid();
  }
};

template <>
struct type_caster<arcgrad::bindings::GraphList> {
  NB_TYPE_CASTER(arcgrad::bindings::GraphList, make_caster<std::vector<arcgrad::Graph>>::Name)

  bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<std::vector<object>> items;
    if (!items.from_python(source, flags, cleanup)) return false;
    value.size = items.value.size();
    value.graphs.reserve(value.size);
    for (const object& item : items.value) {
      make_caster<arcgrad::Graph> graph;
      if (item.is_none() || !graph.from_python(item, flags, cleanup)) {
        value.wrong_type = inst_name(item).c_str();
        break;
      }
      value.graphs.push_back(graph.operator arcgrad::Graph&());
    }
    return true;
  }
};

template <>
struct type_caster<arcgrad::bindings::Batch> {
  NB_TYPE_CASTER(arcgrad::bindings::Batch, make_caster<arcgrad::Graph>::Name + const_name(" | ") +
                                               make_caster<arcgrad::bindings::GraphList>::Name)

  bool from_python(handle source, uint8_t flags, cleanup_list* cleanup) noexcept {
    make_caster<arcgrad::Graph> single;
    if (single.from_python(source, flags, cleanup)) {
      value.graphs = {single.operator arcgrad::Graph&()};
      value.is_list = false;
      return true;
    }
    make_caster<arcgrad::bindings::GraphList> many;
    if (!many.from_python(source, flags, cleanup)) return false;
    value = {std::move(many.value), true};
    return true;
  }
};

}  // namespace nanobind::detail
