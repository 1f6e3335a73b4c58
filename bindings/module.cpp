#include <system_error>

#include "common.h"

NB_MODULE(_core, m) {
  using namespace arcgrad::bindings;
  m.doc() = "The core of arcgrad.";
  // A graph in a traceback that is alive at exit is no leak worth a page of text.
  nb::set_leak_warnings(false);
  m.attr("__version__") = ARCGRAD_VERSION;
  m.attr("epsilon") = arcgrad::kEpsilon;
  nb::register_exception_translator([](const std::exception_ptr& pointer, void*) {
    try {
      std::rethrow_exception(pointer);
    } catch (const std::system_error& error) {
      nb::tuple args = nb::make_tuple(error.code().value(), error.what());
      PyErr_SetObject(PyExc_OSError, args.ptr());
    }
  });
  // In the main thread this runs the handlers of signals that came in, such as that of Ctrl-C.
  arcgrad::set_interrupt_check([] {
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
  // Workers of a DataLoader are daemonic. A spawned one learns that it is so after it has imported
  // its main module, so this cannot be asked when arcgrad is imported.
  arcgrad::set_worker_check([] {
    nb::gil_scoped_acquire acquire;
    const nb::object modules = nb::module_::import_("sys").attr("modules");
    const nb::object process = modules.attr("get")("multiprocessing.process");
    if (process.is_none()) return false;
    const nb::object is_daemon = process.attr("current_process")().attr("daemon");
    return PyObject_IsTrue(is_daemon.ptr()) == 1;
  });
  init_graph(m);
  init_ops(m);
  init_source(m);
  init_tape(m);
  init_parallel(m);
  init_trellis(m);
  init_tokens(m);
  init_alignments(m);
  init_trie(m);
  init_io(m);
}
