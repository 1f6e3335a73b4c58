// Functions and methods as users see them: thin callables around nanobind's, with a signature that
// `inspect` can read and an error that names the argument that does not fit.
//
// nanobind has neither: a call that fits no overload raises a list of all overloads. The texts are
// made in Python, in arcgrad._signatures, and only after a call has failed.

#include <cstddef>

#include "common.h"

#if PY_VERSION_HEX >= 0x030C0000
#define ARCGRAD_OFFSET_TYPE Py_T_PYSSIZET
#define ARCGRAD_READONLY Py_READONLY
#else
#include <structmember.h>
#define ARCGRAD_OFFSET_TYPE T_PYSSIZET
#define ARCGRAD_READONLY READONLY
#endif

namespace arcgrad::bindings {
namespace {

/// A Python object. Functions live as long as the module, so these are never freed.
struct Function {
  PyObject_HEAD vectorcallfunc call;
  PyObject* inner;  // nanobind's function
};

/// Of arcgrad._signatures: the exception for a call that does not fit, the signature, and the
/// documentation.
PyObject* explain_call = nullptr;
PyObject* find_signature = nullptr;
PyObject* find_documentation = nullptr;
/// types.MethodType: the stable ABI has no function that makes a bound method.
PyObject* method_type = nullptr;

PyObject* inner_of(PyObject* self) { return reinterpret_cast<Function*>(self)->inner; }

/// Replaces the TypeError of a call that does not fit the bindings, and a MemoryError without the
/// name of the function.
PyObject* explain(PyObject* inner, PyObject* const* args, size_t nargsf, PyObject* names) noexcept {
  try {
    nb::python_error error;  // takes the error that is set
    const auto count = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
    nb::list given;
    for (size_t i = 0; i < count; ++i) given.append(nb::handle(args[i]));
    nb::dict named;
    if (names)
      for (size_t i = 0; i < nb::len(nb::handle(names)); ++i)
        named[nb::handle(names)[i]] = nb::handle(args[count + i]);
    const nb::object better =
        nb::handle(explain_call)(nb::handle(inner), error.value(), given, named);
    if (better.is_none())
      error.restore();
    else
      PyErr_SetObject(better.type().ptr(), better.ptr());
  } catch (nb::python_error& error) {
    error.restore();
  }
  return nullptr;
}

PyObject* call(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* names) noexcept {
  PyObject* const inner = inner_of(self);
  PyObject* const result = PyObject_Vectorcall(inner, args, nargsf, names);
  if (result ||
      (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_MemoryError)))
    return result;
  return explain(inner, args, nargsf, names);
}

/// Attributes that the type does not have are those of nanobind's function.
PyObject* get_attribute(PyObject* self, PyObject* name) {
  PyObject* const found = PyObject_GenericGetAttr(self, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  PyErr_Clear();
  return PyObject_GetAttr(inner_of(self), name);
}

PyObject* get_doc(PyObject* self, void*) {
  return PyObject_CallFunctionObjArgs(find_documentation, inner_of(self), nullptr);
}

PyObject* get_signature(PyObject* self, void*) {
  return PyObject_CallFunctionObjArgs(find_signature, inner_of(self), nullptr);
}

/// By this name tools such as Sphinx look for the function that another one stands for.
PyObject* get_wrapped(PyObject* self, void*) {
  PyObject* const inner = inner_of(self);
  Py_INCREF(inner);
  return inner;
}

PyObject* represent(PyObject* self) {
  PyObject* const name = PyObject_GetAttrString(inner_of(self), "__qualname__");
  PyObject* const out = name ? PyUnicode_FromFormat("<function %U>", name) : nullptr;
  Py_XDECREF(name);
  return out;
}

/// Pickled and copied by name, as functions are.
PyObject* reduce(PyObject* self, PyObject*) {
  return PyObject_GetAttrString(inner_of(self), "__qualname__");
}

PyObject* bind(PyObject* self, PyObject* instance, PyObject*) {
  if (instance && instance != Py_None)
    return PyObject_CallFunctionObjArgs(method_type, self, instance, nullptr);
  Py_INCREF(self);
  return self;
}

PyMemberDef members[] = {
    {"__vectorcalloffset__", ARCGRAD_OFFSET_TYPE, static_cast<Py_ssize_t>(offsetof(Function, call)),
     ARCGRAD_READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr}};
PyGetSetDef properties[] = {{"__doc__", get_doc, nullptr, nullptr, nullptr},
                            {"__signature__", get_signature, nullptr, nullptr, nullptr},
                            {"__wrapped__", get_wrapped, nullptr, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};
PyMethodDef methods[] = {{"__reduce__", reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

/// Makes the type of functions, or of methods, which bind to an instance.
nb::object make_type(bool is_method) {
  PyType_Slot slots[] = {{Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                         {Py_tp_getattro, reinterpret_cast<void*>(get_attribute)},
                         {Py_tp_repr, reinterpret_cast<void*>(represent)},
                         {Py_tp_members, members},
                         {Py_tp_getset, properties},
                         {Py_tp_methods, methods},
                         {is_method ? Py_tp_descr_get : 0, reinterpret_cast<void*>(bind)},
                         {0, nullptr}};
  PyType_Spec spec{is_method ? "arcgrad._core.Method" : "arcgrad._core.Function",
                   static_cast<int>(sizeof(Function)), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL |
                       Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
                   slots};
  if (is_method) spec.flags |= Py_TPFLAGS_METHOD_DESCRIPTOR;
  PyObject* const type = PyType_FromSpec(&spec);
  if (!type) throw nb::python_error();
  return nb::steal(type);
}

nb::object wrap_function(nb::object inner, bool is_method) {
  static PyObject* const types[] = {make_type(false).release().ptr(),
                                    make_type(true).release().ptr()};
  PyObject* const made = PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(types[is_method]), 0);
  if (!made) throw nb::python_error();
  auto* const function = reinterpret_cast<Function*>(made);
  function->call = call;
  function->inner = inner.release().ptr();
  return nb::steal(made);
}

}  // namespace

void init_function(nb::module_& m) {
  method_type = nb::object(nb::module_::import_("types").attr("MethodType")).release().ptr();
  m.def(
      "set_explainers",
      [](nb::object explain, nb::object signature, nb::object documentation) {
        explain_call = explain.release().ptr();
        find_signature = signature.release().ptr();
        find_documentation = documentation.release().ptr();
      },
      "explain"_a, "signature"_a, "documentation"_a,
      "Sets the functions that explain a call that failed, and that find a signature and the "
      "documentation.");
  m.def("wrap_function", &wrap_function, "inner"_a, "is_method"_a,
        "A function of this module with a signature and with clear errors.");
}

}  // namespace arcgrad::bindings
